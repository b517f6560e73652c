"""``python -m proximo.cli``."""

import sys

from proximo.cli import main

sys.exit(main())
