"""What the commands of one run share: which ledger, and whether programs or people read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from privatekube_kfp.cli.output import print_json
from privatekube_kfp.core.errors import LedgerError

if TYPE_CHECKING:
    from privatekube_kfp.ledger.ledger import Ledger


@dataclass
class Session:
    """One run of the command line."""

    as_json: bool = False
    ledger_address: str | None = None

    @contextmanager
    def ledger(self, *, create: bool = False, tend: bool = False) -> Iterator[Ledger]:
        """The ledger that the run names, closed again at the end.

        Args:
            create: Make the file if there is none.
            tend: First do what is due (no scheduler does), so that what is shown is true now;
                where that cannot be written, show what there is.
        """
        # Here, since these load numpy.
        from privatekube_kfp.ledger.opening import LEDGER_VARIABLE, open_ledger

        address, source = self.ledger_address, "--ledger"
        if address is None:
            address, source = os.environ.get(LEDGER_VARIABLE), LEDGER_VARIABLE
        if not address:
            raise click.UsageError(
                f"No ledger named: give --ledger or set {LEDGER_VARIABLE},"
                " for example sqlite:///ledger.db or kubernetes",
                click.get_current_context(silent=True),
            )
        with open_ledger(address, create=create, source=source) as ledger:
            if tend:
                with suppress(LedgerError):
                    ledger.tend()
            yield ledger

    def answer(self, document: Mapping[str, object], for_people: Callable[[], None]) -> None:
        """The result of a command, for whoever reads it."""
        if self.as_json:
            print_json(document)
        else:
            for_people()
