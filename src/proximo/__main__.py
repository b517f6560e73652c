"""``python -m proximo``."""

import sys

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # Python puts the working folder first: a json.py in it would be imported

from proximo.cli import main

sys.exit(main())
