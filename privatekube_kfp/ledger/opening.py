"""Which ledger: the one place that reads where budgets live."""

from __future__ import annotations

from collections.abc import Callable

from privatekube_kfp.core.errors import LedgerError, Reason
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.times import system_clock

LEDGER_VARIABLE = "PRIVATEKUBE_LEDGER"
_SQLITE = "sqlite:///"


def open_ledger(
    address: str | None,
    *,
    create: bool = False,
    source: str = "--ledger",
    clock: Callable[[], int] = system_clock,
) -> Ledger:
    """Open the ledger at an address such as `sqlite:///ledger.db`.

    A ledger is always named, never assumed: a pod that fell back to a ledger of its own would
    spend the same budget again. `sqlite:///name` is relative to the working directory, and
    `sqlite:////name`, with four slashes, is absolute.

    Args:
        address: Where the ledger is.
        create: Make an SQLite ledger if there is none yet.
        source: Where the address was read, for the error message.
        clock: The time in microseconds.
    """
    if not address:
        raise LedgerError(
            Reason.LEDGER_MISSING,
            f"no ledger named: give --ledger or set {LEDGER_VARIABLE}, for example"
            " sqlite:///ledger.db",
        )
    path = address.removeprefix(_SQLITE)
    if path == address or not path or "?" in path:
        raise LedgerError(
            Reason.LEDGER_MISSING,
            f"{source} {address!r} is not the address of a ledger; write it like"
            " sqlite:///ledger.db (relative) or sqlite:////data/ledger.db (absolute)",
        )
    return SqliteLedger(path, create=create, clock=clock)
