"""Who to look at again when a block gains budget: each waiting claim, by one block that stops it.

Claims are watched in buckets. A bucket has a core, a few blocks or many, of which all its claims
ask for one and the same demand; while one block of the core has no room for that, none of them
can run, and the bucket hangs there. It is left alone until that block's clock reaches the
bucket's alarm; then the demand is tested, once for all. The clock of a block counts the shares it
has opened, plus a credit for what was released to it, in shares.
"""

from __future__ import annotations

import itertools

import numpy as np

from privatekube_kfp.core.block_table import BlockTable
from privatekube_kfp.core.exact_sums import Ints, Places, grown
from privatekube_kfp.core.lazy_heap import LazyHeap
from privatekube_kfp.core.policy import Rank
from privatekube_kfp.core.waiter import Curve, Part, Waiter

_NEVER = 1 << 62
# More shares than a block can have, and few enough that credits add up in 64 bits. An alarm this
# far ahead waits for a release this large, or for smaller ones that come to as much.
_FAR = 1 << 36


def core_of(places: slice) -> slice:
    """The blocks by which a claim is put in a bucket with others of about the same blocks.

    At least three quarters of its own: bounds are rounded inwards to an eighth of its length, so
    that claims over many blocks share few cores, and mostly are stopped within them.
    """
    length = places.stop - places.start
    grain = 1 << max(length.bit_length() - 4, 0)
    return slice(-(-places.start // grain) * grain, places.stop // grain * grain)


class Bucket(LazyHeap[Rank, Waiter]):
    """The claims with one demand on the blocks of one core, best rank first."""

    __slots__ = ("core", "curve", "place")

    def __init__(self, curve: Curve, core: slice, place: int) -> None:
        super().__init__()
        self.curve = curve
        self.core = core
        self.place = place
        """The block of the core that stops them: where the bucket hangs."""

    def _is_live(self, item: Waiter) -> bool:
        return item.bucket is self


class _Alarms(LazyHeap[int, Bucket]):
    """The buckets that hang at one block, by when on its clock they could first run."""

    __slots__ = ()

    def _is_live(self, item: Bucket) -> bool:
        return item.live > 0


class Watch:
    """The buckets of all blocks.

    Outside a pass every bucket has an alarm. During one, `runnable` takes off their alarms those
    that may run; whichever then fits no more, or is new, has its alarm set at the end.
    """

    def __init__(self, blocks: BlockTable) -> None:
        self._blocks = blocks
        self._buckets: dict[tuple[Curve, int, int], Bucket] = {}
        self._alarms: dict[int, _Alarms] = {}
        self._tickets = itertools.count()
        self._credit = np.zeros(0, dtype=np.int64)
        self._due = np.zeros(0, dtype=np.int64)  # the first alarm of each block
        self._gained: set[int] = set()
        self._unset: list[Bucket] = []

    def add_block(self, place: int) -> None:
        if place == len(self._due):
            self._credit = grown(self._credit, max(16, 2 * place))
            self._due = grown(self._due, max(16, 2 * place))
        self._due[place] = _NEVER

    def add(self, waiter: Waiter, place: int, part: Part) -> None:
        """Watch the claim, a part of which this block has no room for."""
        curve, places = part
        core = core_of(places) if isinstance(places, slice) else slice(0, 0)
        if not core.start <= place < core.stop:
            core = slice(place, place + 1)
        bucket = self._buckets.get((curve, core.start, core.stop))
        if bucket is None:
            bucket = Bucket(curve, core, place)
            self._buckets[curve, core.start, core.stop] = bucket
            self._unset.append(bucket)
        waiter.bucket = bucket
        bucket.push(waiter.rank, waiter.arrival, waiter)

    def remove(self, waiter: Waiter) -> None:
        """The claim waits no more."""
        bucket = waiter.bucket
        if bucket is None:
            return
        waiter.bucket = None
        bucket.left()
        if not bucket.live:
            self._forget(bucket)
            self._alarms[bucket.place].left()
            self._find_first_alarm(bucket.place)

    # What changed since the last pass

    def note_unlocked(self, places: Places) -> None:
        """These blocks have opened shares."""
        clock = self._blocks.opened[places] + self._credit[places]
        due = np.flatnonzero(clock >= self._due[places])
        if len(due):
            found = due + places.start if isinstance(places, slice) else places[due]
            self._gained.update(found.tolist())

    def note_released(self, places: Places, amounts: Ints) -> None:
        """These blocks got this much back, each: as if they had opened so many shares more."""
        self._credit[places] += np.minimum(self._blocks.shares_in(places, amounts) + 1, _FAR)
        self.note_unlocked(places)

    @property
    def has_news(self) -> bool:
        """Whether a block gained enough since the last pass that somebody may run."""
        return bool(self._gained)

    # The pass

    def runnable(self) -> list[Bucket]:
        """Take off their alarms the buckets whose demand fits now, of blocks that gained."""
        rung: list[Bucket] = []
        for place in sorted(self._gained):
            clock = int(self._blocks.opened[place] + self._credit[place])
            alarms = self._alarms.get(place)
            while alarms and (head := alarms.head()) and head[0] <= clock:
                rung.append(alarms.pop())
        self._gained.clear()
        if not rung:
            return []
        may_run = self._blocks.have_room(*_where_and_what(rung)).tolist()
        self._unset += [bucket for bucket, may in zip(rung, may_run, strict=True) if not may]
        return [b for b, may in zip(rung, may_run, strict=True) if may and self._has_room(b)]

    def next_in(self, bucket: Bucket) -> Waiter | None:
        """Take out the bucket's best claim, if its core still has room."""
        if not self._has_room(bucket):
            return None
        waiter = bucket.pop()
        waiter.bucket = None
        if not bucket.live:
            self._forget(bucket)
            self._find_first_alarm(bucket.place)
        return waiter

    def _has_room(self, bucket: Bucket) -> bool:
        """Whether the whole core has room; where it has none, the bucket hangs from now on."""
        place, has_room = self._blocks.tightest(bucket.core, bucket.curve.column)
        if not has_room:
            before, bucket.place = bucket.place, place
            self._unset.append(bucket)
            self._find_first_alarm(before)
        return has_room

    def _forget(self, bucket: Bucket) -> None:
        del self._buckets[bucket.curve, bucket.core.start, bucket.core.stop]

    def set_alarms(self) -> None:
        """Wake each bucket when its block's clock reaches the earliest share that could serve it.

        With `s` spent of an order and a demand of `d`, at least (s + d) / (share + 1) shares must
        be open; a release of `a` brings that down by at most a / (share + 1) + 1, which is what
        the block's credit grows by. What is granted meanwhile only makes the alarm early.
        """
        if not self._unset:
            return
        places, demands = _where_and_what(self._unset)
        needed = np.minimum(self._blocks.shares_for(places, demands), _FAR)
        due = np.maximum(needed, self._blocks.opened[places] + 1) + self._credit[places]
        for bucket, time in zip(self._unset, due.tolist(), strict=True):
            alarms = self._alarms.get(bucket.place)
            if alarms is None:
                alarms = self._alarms[bucket.place] = _Alarms()
            alarms.push(time, next(self._tickets), bucket)
        for place in {bucket.place for bucket in self._unset}:
            self._find_first_alarm(place)
        self._unset.clear()

    def next_tick(self, interval: int) -> int | None:
        """When time alone, at one share per interval, could first let somebody run."""
        blocks, used = self._blocks, len(self._blocks.names)
        shares = self._due[:used] - self._credit[:used]
        places = np.flatnonzero(shares <= blocks.shares)
        if not len(places):
            return None
        ticks = np.maximum(shares[places], blocks.opened[places] + 1)
        return int((blocks.created[places] + ticks * interval).min())

    def _find_first_alarm(self, place: int) -> None:
        alarms = self._alarms.get(place)
        head = alarms.head() if alarms else None
        if head:
            self._due[place] = head[0]
        else:
            self._alarms.pop(place, None)
            self._due[place] = _NEVER
            self._credit[place] = 0


def _where_and_what(buckets: list[Bucket]) -> tuple[Places, Ints]:
    places = np.array([bucket.place for bucket in buckets], dtype=np.int32)
    return places, np.hstack([bucket.curve.column for bucket in buckets])
