"""``python -m proximo``."""

import sys

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # the working folder, which Python puts first: a json.py that lies there is not run

from proximo.cli import main

sys.exit(main())
