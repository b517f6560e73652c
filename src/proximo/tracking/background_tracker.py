"""``BackgroundTracker``: runs a tracker in its own thread, so that it can neither slow nor stop the training."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proximo.serialization import json_object
from proximo.storage.run_directory import HISTOGRAMS, METRICS
from proximo.tracking.histograms import Histogram
from proximo.tracking.json_lines import read_rows
from proximo.tracking.tracker import TrackedRun, Tracker

PATIENCE_SECONDS, HURRY_SECONDS = 60.0, 3.0
"""How long the end of a training waits for a tracker: normally, and after a second interruption by the user."""


def failure(name: str, error: BaseException) -> str:
    """The warning for a tracker that raised ``error``."""
    reason = " ".join(str(error).split()) or "no reason given"
    return f"{name} has failed ({type(error).__name__}: {reason}): it receives no more rows, and the training continues."


class BackgroundTracker(Tracker):
    """A tracker that is created and called in its own thread. If it fails, it warns once and receives no more rows.

    ``.tracked-NAME.json`` records which rows the tracker has. A resumed run therefore gives it the rows that it missed and skips those that it
    has: rows after the checkpoint are written again, and the tracker already has them.
    """

    def __init__(self, name: str, make: Callable[[TrackedRun], Tracker], run: TrackedRun):
        self.name, self.run, self.patience = name, run, PATIENCE_SECONDS
        self._failed = False
        self._ended_at: float | None = None
        self._queue: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._written = _WrittenRows(run.run_dir / f".tracked-{name.replace(':', '-')}.json", fresh=run.resumed_at is None)
        # Read now: rows that are written later come through the queue.
        missed = [] if run.resumed_at is None else earlier_rows(run.run_dir, run.resumed_at)
        self._thread = threading.Thread(target=self._work, args=(make, missed), name=f"track {name}", daemon=True)
        self._thread.start()

    def write(self, step: int, values: Any) -> None:
        """Pass the row to the thread."""
        self._put("write", step, dict(values))

    def write_histograms(self, step: int, histograms: Any) -> None:
        """Pass the histograms to the thread."""
        self._put("write_histograms", step, dict(histograms))

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Pass the clip to the thread, which encodes it if the tracker asks for it."""
        self._put("write_clip", step, gif, size)

    def write_image(self, step: int, name: str, image: Any) -> None:
        """Pass the image to the thread."""
        self._put("write_image", step, name, image)

    def flush(self) -> None:
        """Pass the request to the thread, without waiting: a resume writes the rows that were missed."""
        self._put("flush")

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

    def _put(self, method: str, *arguments: Any) -> None:
        if not self._failed:
            self._queue.put((method, arguments))

    def _work(self, make: Callable[[TrackedRun], Tracker], missed: list[tuple[str, tuple[Any, ...]]]) -> None:
        try:
            tracker = make(self.run)
            if getattr(tracker, "knows_its_rows", False):
                self._written.forget()
            for method, arguments in missed:
                self._pass_on(tracker, method, arguments)
            while (item := self._queue.get()) is not None:
                self._pass_on(tracker, *item)
            getattr(tracker, "close", _nothing)()
        except (Exception, SystemExit) as error:
            self._failed = True
            self.run.warned(failure(self.name, error))

    def _pass_on(self, tracker: Tracker, method: str, arguments: tuple[Any, ...]) -> None:
        if method == "flush":
            getattr(tracker, "flush", _nothing)()
        elif self._written.is_new(method, arguments[0]):
            getattr(tracker, method, _nothing)(*arguments)
            self._written.note(method, arguments[0])


def _nothing(*_: Any) -> None:
    """Stands for methods that a custom tracker does not define."""


def earlier_rows(run_dir: Path, step: int) -> list[tuple[str, tuple[Any, ...]]]:
    """The calls of a tracker that write all rows up to ``step``, by step."""
    rows: list[tuple[str, tuple[Any, ...]]] = []
    for row in read_rows(run_dir / METRICS):
        values = {name: float("nan") if value is None else value for name, value in row.items() if name != "step"}
        rows.append(("write", (row["step"], values)))
    for row in read_rows(run_dir / HISTOGRAMS):
        made = {name: Histogram.from_json(value) for name, value in row.items() if name != "step"}
        rows.append(("write_histograms", (row["step"], made)))
    return sorted((row for row in rows if row[1][0] <= step), key=lambda row: row[1][0])


class _WrittenRows:
    """Which rows a tracker has: for each kind the last step, and how many rows of that step (one of the training, one of an evaluation)."""

    def __init__(self, path: Path, fresh: bool):
        self._path = path
        self._last: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """The same for the rows of this session."""
        if not fresh:
            with contextlib.suppress(ValueError, TypeError):
                self._last = {kind: (int(step), int(count)) for kind, (step, count) in json_object(path).items()}

    def forget(self) -> None:
        """Treat every row as new."""
        self._last = {}

    def is_new(self, kind: str, step: int) -> bool:
        """Whether the tracker lacks this row, the next one of its kind."""
        before, count = self._seen.get(kind, (-1, 0))
        self._seen[kind] = (step, count + 1 if step == before else 1)
        return self._seen[kind] > self._last.get(kind, (-1, 0))

    def note(self, kind: str, step: int) -> None:
        """Record that the tracker has the row."""
        self._last[kind] = self._seen[kind]
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        # Without fsync, each row is written faster. A power failure may repeat a row.
        with contextlib.suppress(OSError):  # on a full disk, a row may be repeated too
            temporary.write_text(json.dumps(self._last))
            os.replace(temporary, self._path)
