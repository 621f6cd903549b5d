"""`python -m treadle` is the `treadle` command."""

import sys

from treadle.lab.cli import main

sys.exit(main())
