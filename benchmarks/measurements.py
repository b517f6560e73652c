"""What measurements have in common: a list of seeds, and the circumstances."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

import jax

from proximo.storage.system_info import versions


def parse_seeds(text: str) -> list[int]:
    """``0-9``, ``3`` or ``0-4,7`` as a list."""
    ends = [part.partition("-") for part in text.split(",")]
    return [seed for first, _, last in ends for seed in range(int(first), int(last or first) + 1)]


def circumstances() -> dict[str, Any]:
    """Where, when and with what a measurement was made."""
    return {
        "date": datetime.date.today().isoformat(),
        "versions": {"python": platform.python_version(), **versions()},
        "cpu_count": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),  # if other work adds to it, the seconds are too long
        "device": jax.devices()[0].device_kind,
    }
