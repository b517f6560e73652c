"""Colours where they are wanted: on a terminal, unless ``NO_COLOR`` is set (https://no-color.org); elsewhere where ``FORCE_COLOR``
is (https://force-color.org). Both count whatever their value, unless it is empty; with both there are none."""

from __future__ import annotations

import os
import sys
from typing import TextIO

_CODES = {"green": 32, "yellow": 33, "red": 31}


def is_wanted(stream: TextIO) -> bool:
    """Whether ``stream`` gets colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """``text`` in ``colour`` for ``stream`` (standard output), or as it is."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if is_wanted(stream or sys.stdout) else text
