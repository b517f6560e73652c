"""``Tracker``: where the metrics of a run are written. Each kind has a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proximo.tracking.histograms import Histogram

CLIP = "videos/episode"
"""Name of clips in rows."""


@dataclass(frozen=True)
class TrackedRun:
    """The run of a tracker. A custom tracker is created as ``MyTracker(run)``."""

    run_dir: Path
    """The run directory."""
    settings: dict[str, dict[str, Any]]
    """The settings as ``{group: {name: value}}``, as in ``config.yaml``."""
    resumed_at: int | None = None
    """The environment step that a resumed run continues from; None for a new run."""
    warned: Callable[[str], None] = lambda message: None
    """Warns the user with a sentence."""


@dataclass(frozen=True)
class Image:
    """An observation as the policy reads it: ``pixels``, uint8 [height, width, 3]."""

    pixels: np.ndarray


@dataclass(frozen=True)
class Clip:
    """A recorded episode."""

    path: Path
    """The MP4 file."""
    gif: Callable[[], bytes] | None = None
    """Returns a small animated GIF; None for a clip from before a resume."""


class Tracker:
    """Receives the rows of a run. A custom tracker must define ``write``; ``close`` is optional."""

    patience = 60.0
    """Seconds that the end of a training waits for ``close``."""

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Record a row.

        Args:
            step: environment steps so far.
            values: floats by the names of ``metrics.jsonl``; NaN if there was nothing to measure. With ``histograms`` and
                ``video_every``, rows may have a ``Histogram`` or ``Clip``; one row of runs on images has an ``Image``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write(step, values).")

    def flush(self) -> None:
        """Make the rows on this machine survive a power failure. Called before each checkpoint."""

    def close(self) -> None:
        """Finish. No other method is called afterwards."""


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row."""
    return {name: float(x) for name, x in values.items() if not isinstance(x, Histogram | Image | Clip)}
