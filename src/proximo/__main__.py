"""``python -m proximo``."""

import sys

from proximo.cli import main

sys.exit(main())
