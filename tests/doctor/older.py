"""A scheduler that says it is of an older version: `python -m tests.doctor.older`."""

import privatekube_kfp

privatekube_kfp.__version__ = "0.0.9"

from scheduler.__main__ import main  # noqa: E402

main(prog_name="scheduler")
