"""``python -m proximo.cli``."""

import sys

from proximo.cli import main

if __name__ == "__main__":
    sys.exit(main())
