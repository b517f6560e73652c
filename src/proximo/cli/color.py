"""Colored text on terminals.

``NO_COLOR`` turns colors off (https://no-color.org); ``FORCE_COLOR`` turns them on elsewhere (https://force-color.org). Both count
with any value that is not empty. If both are set, there are no colors.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

_CODES = {"green": 32, "yellow": 33, "red": 31}


def is_wanted(stream: TextIO) -> bool:
    """Whether ``stream`` gets colors."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def paint(text: str, color: str, stream: TextIO | None = None) -> str:
    """``text`` in ``color``, or unchanged if ``stream`` (by default standard output) gets no colors."""
    return f"\x1b[{_CODES[color]}m{text}\x1b[0m" if is_wanted(stream or sys.stdout) else text
