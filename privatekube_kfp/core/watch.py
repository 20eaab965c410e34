"""Who to look at again when a block gains budget: each waiting claim, by one block that stops it.

Claims wait in buckets. A bucket has a core of blocks, of each of which all its claims ask for one
and the same demand; while one block of the core has no room for it, none of them can run. The
bucket hangs at such a block, on the peg for that demand, with other buckets.

Each block keeps the least that its pegs ask for, order by order. Until it has room for that, no
peg is looked at, however many there are and however many claims hang there.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from privatekube_kfp.core.block_table import BlockTable
from privatekube_kfp.core.exact_sums import Ints, Places, columns_at, grown
from privatekube_kfp.core.lazy_heap import LazyHeap
from privatekube_kfp.core.policy import Rank
from privatekube_kfp.core.waiter import Curve, Part, Waiter

_NOBODY = 1 << 62  # the least that is asked for where nobody asks: more than any room


def core_of(places: slice) -> slice:
    """The blocks by which a claim is put in a bucket with others of about the same blocks.

    About half of its own or more: the bounds are rounded inwards to a quarter of its length, so
    that a great many claims share few cores, and mostly are stopped within them.
    """
    grain = 1 << max((places.stop - places.start).bit_length() - 3, 0)
    return slice(-(-places.start // grain) * grain, places.stop // grain * grain)


class Bucket(LazyHeap[Rank, Waiter]):
    """The claims with one demand on the blocks of one core, best rank first."""

    __slots__ = ("core", "curve", "hangs", "place")

    def __init__(self, curve: Curve, core: slice) -> None:
        super().__init__()
        self.curve = curve
        self.core = core
        self.place = core.start
        """Where it hangs; during a pass, where it hung last."""
        self.hangs = False

    def _is_live(self, item: Waiter) -> bool:
        return item.bucket is self


_Peg = dict[Bucket, None]
"""The buckets that one block stops, because it has no room for their demand, as a set in order."""


class Watch:
    """The buckets of all waiting claims, and the pegs of all blocks.

    Outside a pass every bucket hangs on a peg. During one, `runnable` takes down those that may
    run, and each is hung up again as soon as it has no room any more: when one is found to have
    none, all with its core are looked at together, since mostly they have none either.
    """

    def __init__(self, blocks: BlockTable) -> None:
        self._blocks = blocks
        self._buckets: dict[tuple[Curve, int, int], Bucket] = {}
        self._pegs: dict[int, dict[Curve, _Peg]] = {}
        self._least = np.zeros((blocks.width, 0), dtype=np.int64)
        self._gained: set[int] = set()
        self._down: dict[tuple[int, int], list[Bucket]] = {}

    def add_block(self, place: int) -> None:
        if place == self._least.shape[1]:
            self._least = grown(self._least, max(16, 2 * place))
        self._least[:, place] = _NOBODY

    def add(self, waiter: Waiter, place: int, part: Part) -> None:
        """Watch the claim, a part of which this block has no room for."""
        curve, places = part
        core = core_of(places) if isinstance(places, slice) else slice(0, 0)
        if not core.start <= place < core.stop:
            core = slice(place, place + 1)
        bucket = self._buckets.get((curve, core.start, core.stop))
        if bucket is None:
            bucket = self._buckets[curve, core.start, core.stop] = Bucket(curve, core)
            self._hang([bucket], place, curve.column)
        waiter.bucket = bucket
        bucket.push(waiter.rank, waiter.arrival, waiter)

    def remove(self, waiter: Waiter) -> None:
        """The claim waits no more."""
        bucket = waiter.bucket
        if bucket is None:
            return
        waiter.bucket = None
        bucket.left()
        if bucket.live:
            return
        self._forget(bucket)
        pegs = self._pegs[bucket.place]
        del pegs[bucket.curve][bucket]
        if not pegs[bucket.curve]:
            del pegs[bucket.curve]
            if not pegs:
                self._find_least(bucket.place)

    def note_gain(self, places: Places) -> None:
        """These blocks have more room than before."""
        gained = np.flatnonzero(self._blocks.have_room(places, columns_at(self._least, places)))
        if len(gained):
            found = gained + places.start if isinstance(places, slice) else places[gained]
            self._gained.update(found.tolist())

    @property
    def has_news(self) -> bool:
        """Whether a block gained enough since the last pass that somebody may run."""
        return bool(self._gained)

    # The pass

    def runnable(self) -> list[Bucket]:
        """Take down the buckets whose whole core has room now, of blocks that gained."""
        self._down = {}
        for place in sorted(self._gained & self._pegs.keys()):
            pegs = self._pegs[place]
            room_for = self._blocks.has_room(place, _side_by_side(pegs)).tolist()
            fitting = [curve for curve, fits in zip(pegs, room_for, strict=True) if fits]
            for bucket in [bucket for curve in fitting for bucket in pegs.pop(curve)]:
                bucket.hangs = False
                self._down.setdefault((bucket.core.start, bucket.core.stop), []).append(bucket)
            self._find_least(place)
        self._gained.clear()
        for core in self._down:
            self._hang_stopped(core)
        return [bucket for down in self._down.values() for bucket in down]

    def next_in(self, bucket: Bucket) -> Waiter | None:
        """Take out the best claim of a runnable bucket; hang it up if its core has no room left."""
        if not self._has_room(bucket):
            return None
        waiter = bucket.pop()
        waiter.bucket = None
        if not bucket.live:
            self._forget(bucket)
        return waiter

    def all_in(self, bucket: Bucket) -> list[Waiter]:
        """Take out all claims of a runnable bucket; hang it up if its core has no room left."""
        if not self._has_room(bucket):
            return []
        waiters = bucket.empty()
        for waiter in waiters:
            waiter.bucket = None
        self._forget(bucket)
        return waiters

    def next_tick(self, interval: int) -> int | None:
        """When time alone, at one share per interval, could first let somebody run."""
        blocks = self._blocks
        places = np.array(sorted(self._pegs), dtype=np.int32)
        shares = blocks.shares_for(places, columns_at(self._least, places))
        ticks = np.maximum(shares, blocks.opened[places] + 1)
        due = blocks.created[places] + ticks * interval
        return min(due[ticks <= blocks.shares].tolist(), default=None)

    def _has_room(self, bucket: Bucket) -> bool:
        """Whether the whole core of a bucket that was taken down has room still."""
        if bucket.hangs:
            return False
        _, has_room = self._blocks.tightest(bucket.core, bucket.curve.column)
        if not has_room:
            self._hang_stopped((bucket.core.start, bucket.core.stop))
        return has_room

    def _hang_stopped(self, core: tuple[int, int]) -> None:
        """Hang up those with this core that have no room for their demand, where it has least."""
        down = [bucket for bucket in self._down[core] if bucket.live and not bucket.hangs]
        demands = _side_by_side(bucket.curve for bucket in down)
        places, has_room = self._blocks.tightest_for(slice(*core), demands)
        for place in np.unique(places[~has_room]).tolist():
            stopped = np.flatnonzero(~has_room & (places == place))
            self._hang([down[index] for index in stopped.tolist()], place, demands[:, stopped])
        self._down[core] = [bucket for bucket in down if not bucket.hangs]

    def _hang(self, buckets: Iterable[Bucket], place: int, demands: Ints) -> None:
        """Hang up buckets of these demands, side by side."""
        pegs = self._pegs.setdefault(place, {})
        for bucket in buckets:
            pegs.setdefault(bucket.curve, {})[bucket] = None
            bucket.place = place
            bucket.hangs = True
        least = self._least[:, place]
        np.minimum(least, demands.min(axis=1), out=least)

    def _forget(self, bucket: Bucket) -> None:
        del self._buckets[bucket.curve, bucket.core.start, bucket.core.stop]

    def _find_least(self, place: int) -> None:
        pegs = self._pegs[place]
        if pegs:
            self._least[:, place] = _side_by_side(pegs).min(axis=1)
        else:
            self._least[:, place] = _NOBODY
            del self._pegs[place]


def _side_by_side(curves: Iterable[Curve]) -> Ints:
    return np.concatenate([curve.column for curve in curves], axis=1)
