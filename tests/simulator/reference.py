"""What is there to compare with: the published simulator's traces and demands, where they are."""

from pathlib import Path

import pytest

_DATA = Path(__file__).parents[3] / "shared" / "data"
MULTI, SINGLE = (_DATA / "traces" / f"{name}_basic.csv" for name in ("multi", "single"))
DEMANDS = _DATA / "macro_event_demands.csv"

with_reference = pytest.mark.skipif(
    not DEMANDS.exists(), reason="the published traces and demands are not beside this checkout"
)
