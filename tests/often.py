"""How often a property is tried: in `make check` a fifth as often as in `make test`.

However long an example takes on a busy machine, no property fails for that.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK, FULL = "quick", "full"
_USUALLY = 100

# What is set already is kept: Hypothesis tries the same examples every time where CI is set.
settings.register_profile(
    FULL, settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(QUICK, settings.get_profile(FULL), max_examples=_USUALLY // 5)
settings.load_profile(FULL)


def times(number: int) -> int:
    """So many examples, or fewer under the profile that `make check` names."""
    return max(1, number * settings().max_examples // _USUALLY)
