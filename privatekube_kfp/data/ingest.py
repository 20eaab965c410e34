"""Ingest: from tables to a stream's private blocks, and into the ledger.

What may be seen of it, which blocks there are and how many users, depends on public settings and on
the differentially private count alone. Everything else stays in the private place.

A killed ingest goes on when it is begun again. Up to the moment in which users are counted it has
changed nothing that anybody sees; from then on it is bound to finish, from what it has staged,
before anything else is done. Blocks are registered last, when their data are whole.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.data.blocks import INDEX, TIME, USER, Added, extend, write_parquet
from privatekube_kfp.data.noise import RandBelow
from privatekube_kfp.data.settings import Settings
from privatekube_kfp.data.staging import Pile, Progress, Staging
from privatekube_kfp.data.state import State
from privatekube_kfp.data.store import Store
from privatekube_kfp.data.tables import BadRow, BadRows, Read, Source
from privatekube_kfp.data.threads import Later, ahead, in_order
from privatekube_kfp.data.users import Users
from privatekube_kfp.ledger.ledger import Ledger, PublishedCount
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import format_time, system_clock

MOST_NEW_BLOCKS = 20_000
_RUN_BYTES = 32 * 1024 * 1024
_LONG_AGO = MICROSECONDS["d"]
"""Before this, at the beginning of 1970, are only times that were never set."""
_NUMBER = "__user__"
"""The staged column of users' numbers."""

Ints = npt.NDArray[np.int64]
Told = Callable[[str, int, int], None]
"""Is told how an ingest goes on: doing what, how much is done, of how much."""


@dataclass(frozen=True)
class Report:
    """What an ingest did. `rows` are true counts: they are for whoever may see the data."""

    stream: str
    until: int
    new_blocks: tuple[str, ...]
    count: PublishedCount | None
    rows: Mapping[str, int]

    def in_words(self) -> str:
        """What anybody may know, in a line or two."""
        new = len(self.new_blocks)
        blocks = f"{new} new block{'' if new == 1 else 's'}"
        said = f"stream {self.stream}: {blocks}, whole until {format_time(self.until)}"
        if self.count is None:
            return said
        count = self.count
        return (
            f"{said}\nusers: about {count.estimate}, from {count.lower} to {count.upper} with"
            f" confidence {count.confidence}"
        )

    def public(self) -> dict[str, Any]:
        """What anybody may know."""
        said: dict[str, Any] = {
            "stream": self.stream,
            "until": format_time(self.until),
            "newBlocks": len(self.new_blocks),
        }
        if self.count is not None:
            said["users"] = {
                "estimate": self.count.estimate,
                "atLeast": self.count.lower,
                "atMost": self.count.upper,
                "confidence": self.count.confidence,
            }
        return said


def ingest(
    ledger: Ledger,
    stream: str,
    sources: Sequence[Source],
    to: str,
    *,
    until: int | None = None,
    bad_rows: BadRows | None = None,
    clock: Callable[[], int] = system_clock,
    randbelow: RandBelow = secrets.randbelow,
    told: Told = lambda doing, done, of: None,
    **settings: Any,
) -> Report:
    """Bring tables into a stream's blocks at the URI `to`, and register what is whole.

    `until` (microseconds) says up to when the data are there: blocks of periods before it can be
    asked for afterwards. It is public, and never taken from the data. Left out: all periods that
    are over. Settings (`start`, `interval`, ...: see `Settings`) are for the first ingest.
    """
    work = _Ingest(ledger, stream, sources, Store(to), bad_rows or BadRows(), clock(), told)
    return work.run(until, settings, randbelow)


class _Ingest:
    def __init__(
        self,
        ledger: Ledger,
        stream: str,
        sources: Sequence[Source],
        store: Store,
        bad_rows: BadRows,
        now: int,
        told: Told,
    ) -> None:
        self._ledger = ledger
        self._spec = ledger.stream(stream).spec
        self._sources = sources
        self._store = store
        self._bad_rows = bad_rows
        self._now = now
        self._told = told
        self._staging = Staging(store)
        self._registered: set[str] = set()
        """The stream's blocks that the ledger has."""

    def run(self, until: int | None, given: Mapping[str, Any], randbelow: RandBelow) -> Report:
        with self._store.held():
            # 1. What is there, and whether what is asked for goes with it.
            state = State.load(self._store, self._spec, randbelow)
            schema = self._common_schema(state)
            known = self._check_memory(state)
            if state is None:
                state = State.begin(self._spec, _settings(self._spec, given), schema, randbelow)
            else:
                state.settings.joined_with(given)
            self._check_registered(state, known)
            reached = self._check_until(state, until)
            # 2. What a killed ingest left to do.
            if state.writing is not None:
                left = state.writing
                report = self._finish(state, self._users(state).periods.copy())
                if left["plan"] == self._plan(state, left["from"], reached):
                    return report
            # 3. Read everything, and stage it.
            users = self._users(state)
            before = users.count
            progress = self._staging.progress(self._plan(state, state.until, reached))
            users.add_kept(self._staging.users(progress.runs))
            self._read(state, users, progress, reached)
            pa.default_memory_pool().release_unused()
            # 4. Count whoever is new: from here on it has happened.
            self._count(state, users, before, progress, reached)
            # 5. Write the blocks, and only then let anybody ask for them.
            appeared = users.periods.copy()
            del users  # all the rest of it takes much memory
            return self._finish(state, appeared)

    # What is there

    def _common_schema(self, state: State | None) -> pa.Schema:
        """The columns of all sources and of what is there already: they must be the same."""
        if not self._sources:
            raise _invalid("there is nothing to ingest: no source was given")
        expected, whose = (state.schema, "what is there") if state else (None, "")
        for source in self._sources:
            if expected is None:
                expected, whose = source.schema, source.uri
            if source.schema != expected:
                raise Invalid(
                    Reason.WRONG_COLUMNS,
                    f"{source.uri} has the columns {_columns(source.schema)}, and {whose} has"
                    f" {_columns(expected)}; they must be the same",
                )
        assert expected is not None
        for name in (INDEX, _NUMBER):
            if name in expected.names:
                raise _invalid(f"a column is called {name}, which ingest keeps for its own")
        return expected

    def _check_memory(self, state: State | None) -> set[str]:
        """The blocks that the ledger has. Refuse to begin anew where it has some already, and to go
        on from an old copy: users would be counted twice, and be in two blocks."""
        known = {r.block.name: r.block for r in self._ledger.blocks(self._spec.name)}
        for block in known.values():
            if not (block.data_source or "").startswith(f"{self._store.uri}/"):
                raise _invalid(
                    f"stream {self._spec.name} has block {block.name} with its data at"
                    f" {block.data_source or 'no place'}; ingest to where its other blocks are, or"
                    " into another stream"
                )
        how = "is missing" if state is None else "is an old copy"
        unknown = known.keys() - (state.whole_blocks() if state else set())
        if unknown:
            raise self._store.damaged(State.FILE, f"{how}, and the ledger has block {min(unknown)}")
        count = self._ledger.stream(self._spec.name).count
        if count and (state is None or count.time > state.settings.begins(state.until)):
            told = f"{how}, and users were counted until {format_time(count.time)}"
            raise self._store.damaged(State.FILE, told)
        return set(known)

    def _check_registered(self, state: State, known: set[str]) -> None:
        """Refuse to register data again whose budget may have been spent on another ledger, and to
        begin files anew that are gone."""
        self._registered = known
        done = state.writing["from"] if state.writing else state.until
        there = self._store.names("blocks")
        portions = state.portions
        for portion in map(portions.portion, portions.requestable(done)):
            if portion.name not in known:
                raise PrivateKubeError(
                    Reason.LEDGER_INCONSISTENT,
                    f"block {portion.name} was registered, and this ledger has no such block; its"
                    " budget may have been spent. Use the ledger that has it, or restore that",
                )
            if f"{portion.name}.parquet" not in there:
                raise self._store.damaged(portion.file, "is missing")

    def _check_until(self, state: State, until: int | None) -> int:
        """The first period of which not all data are said to be there."""
        settings = state.settings
        over = settings.period(self._now)
        if over < 0:
            raise _invalid(f"the stream begins on {format_time(settings.start)}, which is to come")
        reached = over if until is None else settings.period(until)
        if reached > over:
            raise _invalid(
                f"until {format_time(until or 0)}: that is not over, so the data cannot all be"
                f" there; say {format_time(settings.begins(over))} at most"
            )
        if reached < state.until:
            raise _invalid(
                f"until {format_time(until or 0)}: the stream begins on"
                f" {format_time(settings.start)}"
                if reached < 0
                else f"until {format_time(settings.begins(reached))}: data were said to be all"
                f" there until {format_time(settings.begins(state.until))} already"
            )
        if reached - state.until > MOST_NEW_BLOCKS:
            raise _invalid(
                f"from {format_time(settings.begins(state.until))} until"
                f" {format_time(settings.begins(reached))} there are {reached - state.until}"
                f" periods, and at most {MOST_NEW_BLOCKS} can be added at once; give a longer"
                " interval, or an earlier until"
            )
        counter = self._spec.counter
        if counter is not None and reached >= counter.days:
            raise _invalid(
                f"the stream's user counter was made for {counter.days - 1} periods, and until"
                f" {format_time(settings.begins(reached))} there are {reached}; give a longer"
                " interval"
            )
        return reached

    def _plan(self, state: State, start: int, reached: int) -> str:
        """What tells one ingest from another, to know whether a staged one is this."""
        told = [
            [source.fingerprint for source in self._sources],
            state.settings.to_json(),
            start,
            reached,
        ]
        return blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

    def _users(self, state: State) -> Users:
        users = Users()
        for piece in range(state.pieces):
            with self._store.reading(_piece(piece)) as opened:
                users.add_kept(parquet.ParquetFile(opened).iter_batches())
        return users

    # Reading

    def _read(self, state: State, users: Users, progress: Progress, reached: int) -> None:
        """Stage the rows that are to be added, in runs."""
        self._bad_rows.restore(progress.tally)
        total = sum(source.size for source in self._sources)
        passed = sum(source.size for source in self._sources[: progress.source])
        staged: list[pa.RecordBatch] = []
        with Later() as later:

            def stage() -> None:
                progress.runs += 1
                told = replace(progress, tally=dict(progress.tally))
                later.do(partial(self._staging.add, [*staged], users.new(), told))
                staged.clear()

            for number in range(progress.source, len(self._sources)):
                source = self._sources[number]
                for (batch, read, rows), bad in ahead(self._batches(source, progress.rows)):
                    self._told("reading", passed + read, total)
                    kept = self._taken(state, users, batch, progress.tally, reached, source.uri)
                    progress.rows = rows
                    progress.tally |= bad
                    if kept.num_rows:
                        staged.append(kept)
                    if sum(batch.nbytes for batch in staged) >= _RUN_BYTES:
                        stage()
                passed += source.size
                progress.source, progress.rows = number + 1, 0
            if staged:
                stage()

    def _batches(self, source: Source, skip: int) -> Iterator[tuple[Read, dict[str, int]]]:
        """What there is to read, each with the bad rows up to there.

        All but absurd times: these are found by another thread, which may be elsewhere.
        """
        for read in source.batches(skip, self._bad_rows):
            bad = self._bad_rows.counts.copy()
            bad.pop(BadRow.ABSURD_TIME, None)
            yield read, bad

    def _taken(
        self,
        state: State,
        users: Users,
        batch: pa.RecordBatch,
        tally: dict[str, int],
        reached: int,
        where: str,
    ) -> pa.RecordBatch:
        """The rows whose time has come, with the numbers of their users where these matter."""
        settings = state.settings
        times = _times(batch)
        absurd = (times < _LONG_AGO) | (times > self._now + MICROSECONDS["d"])
        earlier = ~absurd & (times < settings.start)
        later = ~absurd & (times >= settings.begins(reached))
        self._bad_rows.add(BadRow.ABSURD_TIME, int(absurd.sum()), where)
        for name, rows in (("earlier", earlier), ("later", later), (BadRow.ABSURD_TIME, absurd)):
            tally[name] = tally.get(name, 0) + int(rows.sum())
        tally["read"] = tally.get("read", 0) + batch.num_rows
        taken = ~(absurd | earlier | later)
        if not taken.all():
            batch, times = batch.filter(pa.array(taken)), times[taken]
        if state.counter is None or not batch.num_rows:
            return batch
        names = batch.column(USER).dictionary_encode()
        codes = names.indices.to_numpy()
        first = np.empty(len(names.dictionary), np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        # Whoever comes with data of a period that was counted already is counted with the next.
        periods = np.maximum(settings.period(times[first]), state.until)
        numbers = users.number(names.dictionary.to_pylist(), periods)
        return batch.append_column(_NUMBER, pa.array(numbers[codes]))

    # Counting

    def _count(
        self, state: State, users: Users, before: int, progress: Progress, reached: int
    ) -> None:
        """End all periods up to here, and commit."""
        if state.counter is not None and state.groups is not None:
            new = np.bincount(users.periods, minlength=reached).tolist()
            for period in range(state.until, reached):
                count = state.counter.end_day(period + 1, new[period])
                state.groups.end_period(period, count)
            if users.count > before:
                with self._store.writing(_piece(state.pieces)) as path:
                    write_parquet(path, Users.SCHEMA, self._staging.users(progress.runs))
                state.pieces += 1
        state.writing = {
            "plan": progress.plan,
            "from": state.until,
            "runs": progress.runs,
            "tally": progress.tally,
        }
        state.until = reached
        self._store.settle("users", "staging")
        state.save(self._store)

    # Writing

    def _finish(self, state: State, appeared: npt.NDArray[np.int32]) -> Report:
        """Write what is staged into its blocks, register what is whole. Can be done again.

        `appeared` has the period in which each user first did, by their number.
        """
        assert state.writing is not None
        tally = dict(state.writing["tally"])
        for what in ("added", "duplicates", "beyond bounds"):
            tally[what] = 0
        portions = state.portions
        schema = _schema_of_blocks(state)
        with self._store.scratch() as folder:
            pile = Pile(folder)
            self._sort(state, appeared, pile)
            blocks = pile.blocks()

            def write(block: int) -> Added:
                rows, file = partial(pile.rows, block), portions.portion(block).file
                return extend(self._store, file, schema, rows, state.settings)

            for done, rows in enumerate(in_order(write, blocks)):
                self._told("writing", done, len(blocks))
                tally["added"] += rows.rows
                tally["duplicates"] += rows.duplicates
                tally["beyond bounds"] += rows.beyond_bounds
        self._store.settle("blocks", "")
        count = self._publish(state)
        new = self._register(state, schema)
        state.writing = None
        state.save(self._store)
        self._staging.clear()
        return Report(self._spec.name, state.settings.begins(state.until), new, count, tally)

    def _sort(self, state: State, appeared: npt.NDArray[np.int32], pile: Pile) -> None:
        assert state.writing is not None
        portions, settings = state.portions, state.settings
        groups = None if state.counter is None else portions.groups_of(appeared)
        runs = state.writing["runs"]

        def write(number: int) -> list[int]:
            rows, whose = self._staging.run(number), None
            if groups is not None:
                whose = groups[rows.column(_NUMBER).to_numpy()]
                rows = rows.drop_columns(_NUMBER)
            blocks = portions.blocks_of(settings.period(_times(rows)), whose)
            return pile.write(number, rows, blocks)

        for number, slices in enumerate(in_order(write, range(runs))):
            self._told("sorting", number, runs)
            pile.add(number, slices)

    def _publish(self, state: State) -> PublishedCount | None:
        """Tell how many users there are: the noisy count, and never the true one."""
        if state.counter is None or not state.until:
            return None
        told, settings = state.counter.last, state.settings
        assert settings.confidence is not None
        count = PublishedCount(
            told.estimate,
            told.lower,
            told.upper,
            settings.confidence,
            settings.begins(state.until),
        )
        self._ledger.publish_count(self._spec.name, count)
        return count

    def _register(self, state: State, schema: pa.Schema) -> tuple[str, ...]:
        """Let blocks be asked for whose data are whole; those without any data too."""
        there = self._store.names("blocks")
        portions = state.portions
        whole = map(portions.portion, portions.requestable(state.until))
        new = [portion for portion in whole if portion.name not in self._registered]
        for done, portion in enumerate(new):
            self._told("registering", done, len(new))
            if f"{portion.name}.parquet" not in there:
                extend(self._store, portion.file, schema, lambda: iter(()), state.settings)
            self._ledger.create_block(
                portion.name,
                self._spec.name,
                start=portion.start,
                end=portion.end,
                users=portion.users,
                data_source=self._store.uri_of(portion.file),
            )
            self._registered.add(portion.name)
        return tuple(portion.name for portion in new)


def _settings(spec: StreamSpec, given: Mapping[str, Any]) -> Settings:
    if given.get("start") is None:
        raise _invalid(
            "say from when on the stream is, such as 2018-01-01: it is public, so it is not taken"
            " from the data"
        )
    chosen = {name: value for name, value in given.items() if value is not None}
    return Settings(semantic=spec.semantic, **chosen)


def _schema_of_blocks(state: State) -> pa.Schema:
    if state.counter is None:
        return state.schema
    return state.schema.insert(1, pa.field(INDEX, pa.int64()))


def _times(rows: pa.RecordBatch | pa.Table) -> Ints:
    return np.asarray(rows.column(TIME).cast(pa.int64()).to_numpy(), np.int64)


def _piece(number: int) -> str:
    return f"users/{number:06d}.parquet"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
