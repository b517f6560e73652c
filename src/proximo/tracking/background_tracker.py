"""``BackgroundTracker``: runs a tracker in its own thread, so that it can neither slow nor stop the training."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proximo.tracking.tracker import TrackedRun, Tracker

PATIENCE_SECONDS, HURRY_SECONDS = 60.0, 3.0
"""How long the end of a training waits for a tracker: normally, and after a second interruption by the user."""
Row = tuple[int, Mapping[str, Any]]


class BackgroundTracker(Tracker):
    """A tracker that is created as ``make(run)``, and called, in its own thread. If it fails, it warns once and receives no more rows.
    ``rows`` are the rows from before a resume, which it receives first."""

    def __init__(self, name: str, make: Callable[[TrackedRun], Any], run: TrackedRun, rows: Sequence[Row] = ()):
        self.name, self.run, self.patience = name, run, PATIENCE_SECONDS
        self._failed = False
        self._ended_at: float | None = None
        self._queue: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        for row in rows:
            self._queue.put(row)
        self._thread = threading.Thread(target=self._work, args=(make,), name=f"track {name}", daemon=True)
        self._thread.start()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Pass the row to the thread."""
        if not self._failed:
            self._queue.put((step, values))

    def end(self, hurry: bool = False) -> None:
        """Let the thread finish. Its time limit, ``patience``, starts with the first call, so that the limits of all trackers run at the
        same time."""
        if hurry:
            self.patience = HURRY_SECONDS
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._queue.put(None)

    def close(self) -> None:
        """Wait until everything is written, at most until the ``patience`` ends."""
        self.end()
        assert self._ended_at is not None
        self._thread.join(max(0.0, self._ended_at + self.patience - time.monotonic()))
        if self._thread.is_alive() and not self._failed:
            self.run.warned(
                f"{self.name} has not written everything within {self.patience:.0f} s: the last rows may be missing there."
            )

    def _work(self, make: Callable[[TrackedRun], Any]) -> None:
        try:
            tracker = make(self.run)
            while (row := self._queue.get()) is not None:
                tracker.write(*row)
            if hasattr(tracker, "close"):
                tracker.close()
        except (Exception, SystemExit) as error:
            self._failed = True
            reason = " ".join(str(error).split()) or "no reason given"
            self.run.warned(
                f"{self.name} has failed ({type(error).__name__}: {reason}): it receives no more rows, and the training continues."
            )
