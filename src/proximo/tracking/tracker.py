"""``Tracker``: where the metrics of a run are written. Each kind has a file; ``run_trackers`` opens those of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from proximo.tracking.histograms import Histogram


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


class Tracker:
    """Receives the metrics of a run. A custom tracker must define ``write``; everything else is optional. ``step`` counts environment steps."""

    knows_its_rows = False
    """Whether the tracker itself skips rows that it already has. It then receives all rows again when the run is resumed."""

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Record a row.

        Args:
            step: environment steps so far.
            values: numbers by the names of ``metrics.jsonl``, such as ``train/loss``; NaN if there was nothing to measure.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write(step, values).")

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Record histograms by name. Runs with ``histograms`` call it."""

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Show a recorded episode. Runs with ``video_every`` call it.

        Args:
            step: environment steps so far.
            gif: returns an animated GIF.
            size: (height, width) of the GIF in pixels.
        """

    def write_image(self, step: int, name: str, image: np.ndarray) -> None:
        """Show an observation, as the policy reads it. Called once, after the first updates, where observations are images.

        Args:
            step: environment steps so far.
            name: ``observations``, or ``observations/camera`` for an entry of a dict.
            image: uint8 [height, width, 3].
        """

    def flush(self) -> None:
        """Make everything written so far survive the end of this process. Called before each checkpoint."""

    def end(self, hurry: bool = False) -> None:
        """Begin to finish, without waiting; in a ``hurry`` with less time. Called once or more before ``close``."""

    def close(self) -> None:
        """Finish. No other method is called afterwards."""
