"""`python -m tests.node`: why no node can run on this machine; nothing, and exit 0, if one can."""

import sys

from tests.node.needs import why_not

if __name__ == "__main__":
    reason = why_not()
    if reason:
        sys.exit(reason)
