"""Mechanism parameters to demands, and a stream's promise to the capacity of its blocks.

What the rest of the library imports of accounting. All of it is pure, exact where it says so and
rounded to the safe side everywhere else.
"""

from privatekube_kfp.accounting.calibration import (
    dp_sgd_noise,
    epsilon_of,
    gaussian_sigma,
    laplace_epsilon,
    laplace_scale,
)
from privatekube_kfp.accounting.capacity import (
    DEFAULT_DAYS,
    DEFAULT_ORDERS,
    Classic,
    Conversion,
    Counter,
    Weighted,
    block_capacity,
    conversion_from_name,
    how_often,
)
from privatekube_kfp.accounting.mechanisms import (
    Curve,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    PureEpsilon,
    mechanism_from_json,
)
from privatekube_kfp.accounting.plan import Plan, Step, plan_from_json

__all__ = [
    "DEFAULT_DAYS",
    "DEFAULT_ORDERS",
    "Classic",
    "Conversion",
    "Counter",
    "Curve",
    "DpSgd",
    "EpsilonDelta",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Plan",
    "PureEpsilon",
    "Step",
    "Weighted",
    "block_capacity",
    "conversion_from_name",
    "dp_sgd_noise",
    "epsilon_of",
    "gaussian_sigma",
    "how_often",
    "laplace_epsilon",
    "laplace_scale",
    "mechanism_from_json",
    "plan_from_json",
]
