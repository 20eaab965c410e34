"""The embedded ledger: one SQLite file that any number of processes on a machine may share.

Everything a call does is one transaction: the request, the pass it sets off, every response and
every block it touches. Whoever is killed before the commit has done nothing, after it all; a
retry with the same request id finds out which. Requests and responses are only ever added, and
triggers in the file hold anybody to that.

The file is made whole under another name and then linked into place, so that an empty or
half-made file is never taken for a ledger that has spent nothing. A file of an older version is
brought up to date by the first transaction that writes to it; reading leaves it as it is.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from privatekube_kfp.core.book import Book
from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.claim import Claim, Kind, Request, Response
from privatekube_kfp.core.errors import Invalid, LedgerError, Reason
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.stream import Block
from privatekube_kfp.ledger.ledger import PublishedCount, Verdict
from privatekube_kfp.ledger.shelf import Shelf, ShelfLedger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import system_clock

P = ParamSpec("P")
R = TypeVar("R")

APPLICATION_ID = 0x50724B42  # "PrKB"
VERSION = 2
BUSY_SECONDS = 60.0

_COUNTS = """
CREATE TABLE counts (                  -- since version 2
    stream TEXT PRIMARY KEY REFERENCES streams (name) ON DELETE CASCADE,
    estimate INTEGER NOT NULL,
    lower_bound INTEGER NOT NULL,
    upper_bound INTEGER NOT NULL,
    confidence TEXT NOT NULL,
    time INTEGER NOT NULL              -- the end of what was counted, microseconds
) STRICT;
"""
_SCHEMA = """
CREATE TABLE ledger (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    latest INTEGER NOT NULL            -- the latest time the ledger has seen, microseconds
) STRICT;
INSERT INTO ledger VALUES (1, 0);

CREATE TABLE streams (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL,                -- the declaration
    capacity TEXT NOT NULL,            -- what each block gets, fixed when the stream was declared
    arrivals INTEGER NOT NULL,         -- allocate requests so far
    due INTEGER                        -- when a pass could next decide something by itself
) STRICT;

CREATE TABLE blocks (
    name TEXT PRIMARY KEY,
    stream TEXT NOT NULL REFERENCES streams (name),
    created INTEGER NOT NULL,
    start_time INTEGER, end_time INTEGER,
    first_user INTEGER, last_user INTEGER,
    data_source TEXT,
    retired INTEGER NOT NULL,
    arrivals INTEGER NOT NULL,         -- claims that have stood in line for it
    opened INTEGER NOT NULL,           -- shares unlocked
    allocated TEXT NOT NULL,
    consumed TEXT NOT NULL
) STRICT;
CREATE INDEX blocks_of_stream ON blocks (stream);

CREATE TABLE claims (
    name TEXT PRIMARY KEY,
    stream TEXT NOT NULL REFERENCES streams (name),
    owner TEXT,
    created INTEGER NOT NULL,
    waiting INTEGER NOT NULL           -- whether a request has no response yet
) STRICT;
CREATE INDEX claims_of_stream ON claims (stream, waiting);

CREATE TABLE requests (
    claim TEXT NOT NULL REFERENCES claims (name),
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,                -- the client's words
    received TEXT NOT NULL,            -- what the ledger made of them
    PRIMARY KEY (claim, position),
    UNIQUE (claim, id)
) STRICT;

CREATE TABLE responses (
    claim TEXT NOT NULL,
    request TEXT NOT NULL,
    done INTEGER NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    at INTEGER NOT NULL,
    amounts TEXT NOT NULL,
    PRIMARY KEY (claim, request),
    FOREIGN KEY (claim, request) REFERENCES requests (claim, id)
) STRICT;
"""
_APPEND_ONLY = "".join(
    f"""
CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, '{table} are only ever added'); END;
"""
    for table in ("requests", "responses")
    for verb in ("UPDATE", "DELETE")
)


_DAMAGED = (
    "it is damaged or cut short; restore it from a copy, and never start anew as if nothing had"
    " been spent"
)


def _refusing_damage(read: Callable[P, R]) -> Callable[P, R]:
    """A record that cannot be understood means a damaged ledger, never a guess."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except (ValueError, KeyError, TypeError, Invalid) as error:
            raise LedgerError(
                Reason.LEDGER_UNREADABLE, f"the ledger: {_DAMAGED} ({error!r})"
            ) from error

    return reading


class _SqliteShelf(Shelf):
    """The books as the file has them, read when they are needed and kept while they are true."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self.specs = {}
        self.counts = {}
        self.now = 0
        self._books: dict[str, Book] = {}

    @_refusing_damage
    def refresh(self) -> None:
        """Forget everything: another process has written, or a transaction was undone."""
        self._books.clear()
        self.specs = {
            name: StreamSpec.from_json(json.loads(spec))
            for name, spec in self._db.execute("SELECT name, spec FROM streams")
        }
        self.counts = {}
        if self.version() > 1:
            for name, *count in self._db.execute(
                "SELECT stream, estimate, lower_bound, upper_bound, confidence, time FROM counts"
            ):
                self.counts[name] = PublishedCount(*count)

    # Reading

    def version(self) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(version)

    def book(self, stream: str) -> Book:
        book = self._books.get(stream)
        return book if book is not None else self._load_book(stream)

    @_refusing_damage
    def _load_book(self, stream: str) -> Book:
        spec = self.specs[stream]
        capacity, arrivals = self._db.execute(
            "SELECT capacity, arrivals FROM streams WHERE name = ?", (stream,)
        ).fetchone()
        read = partial(_read_budget, spec.accounting)
        book = self._books[stream] = Book(spec.stream(read(capacity)), arrivals)
        for row in self._db.execute(
            "SELECT name, created, start_time, end_time, first_user, last_user, data_source,"
            " retired, arrivals, opened, allocated, consumed FROM blocks"
            " WHERE stream = ? ORDER BY rowid",
            (stream,),
        ):
            name, created, start, end, first, last, source, retired, *budget = row
            users = None if first is None else (first, last)
            block = Block(name, stream, created, start, end, users, source, bool(retired))
            arrivals, opened, allocated, consumed = budget
            book.restore_block(block, arrivals, opened, read(allocated), read(consumed))
        for claim in self._load_claims("c.stream = ? AND c.waiting = 1", (stream,)):
            book.restore_claim(claim)
        return book

    @_refusing_damage
    def _load_claims(self, where: str, values: tuple[object, ...]) -> list[Claim]:
        claims: dict[str, Claim] = {}
        for name, stream, owner, created in self._db.execute(
            f"SELECT name, stream, owner, created FROM claims c WHERE {where} ORDER BY rowid",
            values,
        ):
            claims[name] = Claim(name, stream, owner, created)
        for name, id, kind, body, received in self._db.execute(
            "SELECT r.claim, r.id, r.kind, r.body, r.received FROM requests r"
            f" JOIN claims c ON c.name = r.claim WHERE {where} ORDER BY r.claim, r.position",
            values,
        ):
            accounting = self.specs[claims[name].stream].accounting
            request = _request_from_row(accounting, id, kind, body, received)
            claims[name].requests.append(request)
        for name, id, done, reason, message, at, amounts in self._db.execute(
            "SELECT r.claim, r.request, r.done, r.reason, r.message, r.at, r.amounts"
            f" FROM responses r JOIN claims c ON c.name = r.claim WHERE {where}",
            values,
        ):
            accounting = self.specs[claims[name].stream].accounting
            claims[name].responses[id] = Response(
                id,
                bool(done),
                Reason(reason),
                message,
                at,
                PerBlock.from_json(accounting, json.loads(amounts)),
            )
        return list(claims.values())

    def stream_of_block(self, block: str) -> str | None:
        for book in self._books.values():
            if block in book.blocks:
                return book.stream.name
        row = self._db.execute("SELECT stream FROM blocks WHERE name = ?", (block,)).fetchone()
        return row[0] if row else None

    def claim(self, name: str) -> Claim | None:
        for book in self._books.values():
            if name in book.claims:
                return book.claims[name]
        for claim in self._load_claims("c.name = ?", (name,)):
            self.book(claim.stream).claims.setdefault(name, claim)
            return self.book(claim.stream).claims[name]
        return None

    def claims(self, stream: str | None) -> Iterable[Claim]:
        if stream is None:
            return self._load_claims("1", ())
        return self._load_claims("c.stream = ?", (stream,))

    def due(self) -> Iterable[str]:
        for (name,) in self._db.execute("SELECT name FROM streams WHERE due <= ?", (self.now,)):
            yield name

    def latest(self) -> int:
        (latest,) = self._db.execute("SELECT latest FROM ledger").fetchone()
        return int(latest)

    def answer(self, claim: str, request: str) -> tuple[bool, bool]:
        """Whether there is such a request, and whether it has a response."""
        row = self._db.execute(
            "SELECT s.request IS NOT NULL FROM requests r LEFT JOIN responses s"
            " ON s.claim = r.claim AND s.request = r.id WHERE r.claim = ? AND r.id = ?",
            (claim, request),
        ).fetchone()
        return row is not None, bool(row and row[0])

    # Writing

    def bring_up_to_date(self) -> None:
        """Give a ledger of version 1 what it lacks, within the transaction that writes to it."""
        if self.version() == 1:
            self._db.execute(_COUNTS)
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def add(self, spec: StreamSpec) -> None:
        capacity = spec.capacity()
        self._db.execute(
            "INSERT INTO streams (name, spec, capacity, arrivals) VALUES (?, ?, ?, 0)",
            (spec.name, _dump(spec.to_json()), _dump(capacity.to_json())),
        )
        self.specs[spec.name] = spec
        self._books[spec.name] = Book(spec.stream(capacity))

    def remove(self, stream: str) -> None:
        self._db.execute("DELETE FROM streams WHERE name = ?", (stream,))
        del self.specs[stream], self._books[stream]
        self.counts.pop(stream, None)

    def publish(self, stream: str, count: PublishedCount) -> None:
        self._db.execute(
            "INSERT INTO counts VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (stream) DO UPDATE SET"
            " estimate = excluded.estimate, lower_bound = excluded.lower_bound,"
            " upper_bound = excluded.upper_bound, confidence = excluded.confidence,"
            " time = excluded.time",
            (stream, count.estimate, count.lower, count.upper, count.confidence, count.time),
        )
        self.counts[stream] = count

    def store(self) -> None:
        """Write whatever the books say has changed, and when they next need looking at."""
        self._db.execute("UPDATE ledger SET latest = ?", (self.now,))
        for name, book in self._books.items():
            self._store_blocks(book)
            for claim in book.dirty_claims:
                self._store_claim(book.claims[claim])
            self._db.execute(
                "UPDATE streams SET arrivals = ?, due = ? WHERE name = ?",
                (book.arrivals, book.next_due(), name),
            )
            book.dirty_claims.clear()
            book.dirty_blocks.clear()
            book.forget_answered()

    def _store_blocks(self, book: Book) -> None:
        for name in book.dirty_blocks:
            block, budget = book.blocks[name], book.budget(name)
            first, last = block.users or (None, None)
            self._db.execute(
                "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET retired = excluded.retired,"
                " arrivals = excluded.arrivals, opened = excluded.opened,"
                " allocated = excluded.allocated, consumed = excluded.consumed",
                (
                    name,
                    block.stream,
                    block.created,
                    block.start,
                    block.end,
                    first,
                    last,
                    block.data_source,
                    int(block.retired),
                    budget.arrivals,
                    budget.opened,
                    _dump(budget.allocated.to_json()),
                    _dump(budget.consumed.to_json()),
                ),
            )

    def _store_claim(self, claim: Claim) -> None:
        self._db.execute(
            "INSERT INTO claims VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET waiting = excluded.waiting",
            (
                claim.name,
                claim.stream,
                claim.owner,
                claim.created,
                int(claim.unanswered() is not None),
            ),
        )
        for position, request in enumerate(claim.requests):
            self._db.execute(
                "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    claim.name,
                    position,
                    request.id,
                    request.kind,
                    _dump(request.body),
                    _received(request),
                ),
            )
        for response in claim.responses.values():
            self._db.execute(
                "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    claim.name,
                    response.request,
                    int(response.done),
                    response.reason,
                    response.message,
                    response.at,
                    _dump(response.amounts.to_json()),
                ),
            )


class SqliteLedger(ShelfLedger):
    """Budgets in one file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        clock: Callable[[], int] = system_clock,
    ) -> None:
        super().__init__(clock)
        self._path = Path(path)
        self._lock = threading.RLock()
        if not _exists(self._path):
            if not create:
                raise LedgerError(
                    Reason.LEDGER_MISSING,
                    f"there is no ledger at {self._path}; `privatekube stream create` makes one",
                )
            _make(self._path)
        with _as_ledger_errors(self._path):
            _check_header(self._path)
            self._db = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._check_ours()
                self._db.execute("PRAGMA foreign_keys = ON")
                self._db.execute("PRAGMA synchronous = EXTRA")
                self._shelf = _SqliteShelf(self._db)
                self._data_version: int | None = None
            except BaseException:
                self._db.close()
                raise

    def _check_ours(self) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise LedgerError(Reason.LEDGER_UNREADABLE, f"{self._path} is not a PrivateKube ledger")
        if version > VERSION:
            raise LedgerError(
                Reason.LEDGER_NEWER,
                f"{self._path} was written by a newer PrivateKube (format {version}; this one reads"
                f" up to {VERSION}); upgrade with `pip install --upgrade privatekube-kfp`",
            )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[_SqliteShelf]:
        with self._lock, _as_ledger_errors(self._path):
            self._db.execute(begin)
            try:
                (version,) = self._db.execute("PRAGMA data_version").fetchone()
                if version != self._data_version:
                    self._shelf.refresh()
                    self._data_version = version
                yield self._shelf
                self._db.execute("COMMIT")
            except BaseException:
                self._data_version = None
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[Shelf]:
        with self._transaction("BEGIN") as shelf:
            shelf.now = max(self._clock(), shelf.latest())
            yield shelf

    @contextmanager
    def _writing(self) -> Iterator[Shelf]:
        with self._transaction("BEGIN IMMEDIATE") as shelf:
            shelf.now = self._now(shelf.latest())
            shelf.bring_up_to_date()
            yield shelf
            shelf.store()

    def response(self, claim: str, request: str) -> Response | None:
        with self._transaction("BEGIN") as shelf:
            known, answered = shelf.answer(claim, request)
        if known and not answered:
            return None
        return super().response(claim, request)

    def verify(self) -> Verdict:
        with self._lock, _as_ledger_errors(self._path):
            (verdict,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise LedgerError(
                    Reason.LEDGER_UNREADABLE, f"ledger {self._path}: {_DAMAGED} ({verdict})"
                )
            self._data_version = None  # an audit is of the file, not of what we remember of it
        return super().verify()

    def reset_clock(self) -> None:
        """Take the clock as it is now for the truth, although the ledger has seen a later one."""
        with self._transaction("BEGIN IMMEDIATE"):
            self._db.execute("UPDATE ledger SET latest = ?", (self._clock(),))
            self._data_version = None

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise LedgerError(
            Reason.LEDGER_UNREADABLE, f"cannot reach the ledger at {path}: {error.strerror}"
        ) from error


def _make(path: Path) -> None:
    """Make an empty ledger; if another process makes it at the same time, theirs is as good."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise LedgerError(
            Reason.LEDGER_READ_ONLY, f"cannot make a ledger at {path}: {error.strerror}"
        ) from error
    try:
        with _as_ledger_errors(path):
            db = sqlite3.connect(temporary, isolation_level=None)
            try:
                db.execute("PRAGMA synchronous = EXTRA")
                db.executescript(
                    f"BEGIN; PRAGMA application_id = {APPLICATION_ID};"
                    f" PRAGMA user_version = {VERSION}; {_SCHEMA} {_COUNTS} {_APPEND_ONLY} COMMIT;"
                )
            finally:
                db.close()
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        with suppress(FileExistsError):
            os.link(temporary, path)
    except OSError as error:
        raise LedgerError(
            Reason.LEDGER_READ_ONLY, f"cannot make a ledger at {path}: {error.strerror}"
        ) from error
    finally:
        os.unlink(temporary)


def _check_header(path: Path) -> None:
    """Refuse what SQLite would take for a new database: a file that is empty or not a database.

    A file that is shorter than it should be is found by SQLite itself, once it holds a lock.
    """
    try:
        with path.open("rb") as file:
            header = file.read(16)
    except OSError as error:
        raise LedgerError(
            Reason.LEDGER_UNREADABLE, f"cannot read the ledger at {path}: {error.strerror}"
        ) from error
    if header != b"SQLite format 3\0":
        what = "is not a SQLite file" if header else "is empty"
        raise LedgerError(Reason.LEDGER_UNREADABLE, f"{path} {what}: it is no PrivateKube ledger")


@contextmanager
def _as_ledger_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences about this ledger."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise LedgerError(Reason.LEDGER_UNREADABLE, f"ledger {path}: {_DAMAGED}") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        reason, sentence = {
            sqlite3.SQLITE_FULL: (Reason.LEDGER_FULL, "the disk is full; nothing was changed"),
            sqlite3.SQLITE_IOERR: (Reason.LEDGER_FULL, "it cannot be written; nothing was changed"),
            sqlite3.SQLITE_READONLY: (Reason.LEDGER_READ_ONLY, "it is read-only"),
            sqlite3.SQLITE_CANTOPEN: (Reason.LEDGER_READ_ONLY, "it cannot be opened for writing"),
            sqlite3.SQLITE_BUSY: (Reason.LEDGER_BUSY, "another process keeps it locked"),
            sqlite3.SQLITE_CORRUPT: (Reason.LEDGER_UNREADABLE, _DAMAGED),
            sqlite3.SQLITE_NOTADB: (Reason.LEDGER_UNREADABLE, _DAMAGED),
        }.get(code, (Reason.LEDGER_UNREADABLE, "it cannot be used"))
        raise LedgerError(reason, f"ledger {path}: {sentence} ({error})") from error


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


@lru_cache(maxsize=1 << 16)
def _read_budget(accounting: Accounting, text: str) -> Budget:
    return accounting.parse(json.loads(text))


def _received(request: Request) -> str:
    """What the ledger made of a request, without what is not there."""
    received: dict[str, object] = {"submitted": request.submitted}
    if request.kind is Kind.ALLOCATE:
        received |= {
            "blocks": list(request.blocks),
            "steps": [[step, price.to_json()] for step, price in request.steps],
            "arrival": request.arrival,
            "deadline": request.deadline,
        }
    elif request.step is not None:
        received["step"] = request.step
    elif request.amount is not None:
        received["amount"] = request.amount.to_json()
    return _dump(received)


@lru_cache(maxsize=1 << 14)
def _request_from_row(
    accounting: Accounting, id: str, kind: str, body: str, received: str
) -> Request:
    known: dict[str, Any] = json.loads(received)
    said: dict[str, Any] = json.loads(body)
    return Request(
        id=id,
        kind=Kind(kind),
        body=said,
        submitted=known["submitted"],
        blocks=tuple(known.get("blocks", ())),
        steps=tuple((step, accounting.parse(price)) for step, price in known.get("steps", ())),
        arrival=known.get("arrival", 0),
        deadline=known.get("deadline"),
        weight=said.get("weight", 1),
        step=known.get("step"),
        amount=accounting.parse(known["amount"]) if "amount" in known else None,
    )
