"""How often a property is tried: in `make check` a fifth as often as in `make test`."""

from __future__ import annotations

from hypothesis import settings

QUICK = "quick"
_USUALLY = 100

settings.register_profile(QUICK, max_examples=_USUALLY // 5)


def times(number: int) -> int:
    """So many examples, or fewer under the profile that `make check` names."""
    return max(1, number * settings().max_examples // _USUALLY)
