"""`python -m privatekube_kfp.cli`."""

import sys

from privatekube_kfp.cli import main

sys.exit(main())
