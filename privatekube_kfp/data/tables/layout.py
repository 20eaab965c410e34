"""Which columns of a table hold what: what a caller says of its files, and known collections.

Callers choose one by name (`layout_named`) or make their own; each reader turns it into columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from privatekube_kfp.data.tables.refusals import invalid

USER, TIME = "user", "time"
"""What ingest calls its own columns."""
FORMATS = ("parquet", "csv", "json")
TIME_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""In microseconds."""
TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}


@dataclass(frozen=True)
class Layout:
    """Which columns hold what, and what is kept.

    `user` and `time` are names in the file. All other columns are payload: `rename` has pairs of
    a name in the file and the name it gets; `keep`, `types` and `constants` speak of the names they
    get. Lists and objects are left out unless `keep` names them: those of Parquet stay what they
    are, those of JSON become JSON text.

    Types are text, integer, number, boolean and (for JSON) json. Where nothing is said, Parquet
    columns keep their type, CSV columns are text, and JSON fields are what most of their
    values in the first 2 MB are; fields that first occur later are left out.
    """

    user: str = "user"
    time: str = "timestamp"
    time_unit: Literal["s", "ms", "us"] = "s"
    """Of times that are numbers."""
    keep: tuple[str, ...] | None = None
    """The payload, in this order. None: all of it, in the file's order."""
    rename: tuple[tuple[str, str], ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    """Columns to add, such as category=books."""
    header: tuple[str, ...] | None = None
    """The names, for a CSV file that has no line of them."""
    format: str | None = None
    """parquet, csv or json. None: by the file's name."""

    def __post_init__(self) -> None:
        if self.time_unit not in TIME_UNITS:
            raise invalid(f"{self.time_unit!r} is no unit of time: s, ms and us are")
        if self.format not in (None, *FORMATS):
            raise invalid(f"{self.format!r} is no format: {', '.join(FORMATS)} are")
        if self.user == self.time:
            raise invalid(f"{self.user} cannot be both the user and the time")
        for name, kind in self.types:
            if kind not in TYPES:
                raise invalid(f"{kind!r} is no type for {name}: {', '.join(TYPES)} are")
        for name in (self.user, self.time):
            if name in dict(self.types):
                raise invalid(f"{name} is the user or the time, which has its own type")
            if name in (self.keep or ()):
                raise invalid(f"{name} is kept in any case, as the user or the time")
            if name in dict(self.rename):
                raise invalid(f"{name} is the user or the time, which cannot be renamed")
        for what, names in (
            ("kept", self.keep or ()),
            ("renamed", [old for old, _ in self.rename]),
            ("given a type", [name for name, _ in self.types]),
            ("added or renamed to", self._new_names()),
            ("in the header", self.header or ()),
        ):
            if repeated := twice(names):
                raise invalid(f"{repeated[0]} is {what} twice")
        for name in (*self._new_names(), *(self.keep or ())):
            if name in (USER, TIME):
                raise invalid(
                    f"a column cannot be called {name}: that is what ingest calls its own"
                )

    def in_file(self, name: str) -> str:
        """What the file calls a column of the payload."""
        return {new: old for old, new in self.rename}.get(name, name)

    def but(self, **said: Any) -> Layout:
        """This one, with what is said otherwise; what is empty says nothing."""
        return replace(self, **{name: value for name, value in said.items() if value})

    def _new_names(self) -> list[str]:
        return [new for _, new in self.rename] + [name for name, _ in self.constants]


def twice(names: Iterable[str]) -> list[str]:
    """Those that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


COLUMNS = Layout()
AMAZON = Layout(
    user="reviewerID",
    time="unixReviewTime",
    keep=("product", "text", "rating", "summary"),
    rename=(("asin", "product"), ("reviewText", "text"), ("overall", "rating")),
    types=(("product", "text"), ("text", "text"), ("rating", "number"), ("summary", "text")),
    format="json",
)
"""The public Amazon reviews of 2014 and 2018, as JSON lines. Names of people are left out."""
AMAZON_CSV_2014 = Layout(
    header=("user", "product", "rating", "timestamp"), types=(("rating", "number"),), format="csv"
)
AMAZON_CSV_2018 = Layout(
    header=("product", "user", "rating", "timestamp"), types=(("rating", "number"),), format="csv"
)
LAYOUTS: Mapping[str, Layout] = {
    "columns": COLUMNS,
    "amazon-json": AMAZON,
    "amazon-csv-2014": AMAZON_CSV_2014,
    "amazon-csv-2018": AMAZON_CSV_2018,
}


def layout_named(name: str) -> Layout:
    """A layout by the name that the command line has for it."""
    if name not in LAYOUTS:
        raise invalid(f"there is no layout {name!r}: there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
