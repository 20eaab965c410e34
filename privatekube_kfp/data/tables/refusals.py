"""What people are told where a table is refused: a sentence, without what the table holds."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.data.places import in_one_line


def invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)


def wrong_columns(message: str) -> Invalid:
    return Invalid(Reason.WRONG_COLUMNS, message)


def unreadable(shown: str, why: str) -> PrivateKubeError:
    return PrivateKubeError(Reason.DATA_UNREADABLE, f"{shown} cannot be read: {why}")


@contextmanager
def in_a_sentence(shown: str) -> Iterator[None]:
    """What the store or the format has to say, without contents: messages of parsers quote them."""
    try:
        yield
    except FileNotFoundError as error:
        raise unreadable(shown, "there is nothing there") from error
    except EOFError as error:
        raise unreadable(
            shown,
            "it is cut short: its compressed data end in the middle. What was read of it so far"
            " may be half a table",
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise unreadable(shown, "its compressed data are damaged") from error
    except (pa.ArrowException, ValueError) as error:
        raise unreadable(shown, "it is damaged, or not what its name says") from error
    except (OSError, ImportError) as error:
        raise unreadable(shown, in_one_line(error)) from error
