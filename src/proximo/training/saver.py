"""Saving of a training: checkpoints, retries on a full disk, the last good state after a failure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proximo.errors import CheckpointError, ProximoError
from proximo.threads import in_thread
from proximo.training.backend import Snapshot
from proximo.training.events import Event, interval

if TYPE_CHECKING:
    from proximo.training.loop import Training

RETRY_SECONDS, RETRY_PAUSE_SECONDS = 10.0, 0.2
"""How long saving is retried if a checkpoint cannot be written, and the pause between attempts."""


class Saver(Event):
    """Saves the active seeds in another thread than the training: a disk needs as long as some updates. ``finish`` raises
    ``CheckpointError`` if a seed cannot be saved; the others are."""

    def __init__(self, training: Training):
        super().__init__(training)
        self.every = interval(training.config.run.checkpoint_every, training.config) or training.config.eval_updates
        self.saved_at = -1  # updates of the last checkpoint, also of a resumed one; -1 without any
        self._saved_evaluations = self._evaluations()
        self._is_unwritable = False  # whether a checkpoint could not be written in ``RETRY_SECONDS``

    def _evaluations(self) -> list[Any]:
        return [seed_run.last_evaluation for seed_run in self.seed_runs]

    def on_update(self, now: Snapshot) -> None:
        self.finish()  # after evaluation and callbacks, which a resume would not make up for
        if self.is_due(now.update) or any(run.is_best_at(now.step) for run in self.training.active()):
            self.save(now)

    def on_end(self, now: Snapshot) -> None:
        if self.training.interrupted is not None:
            self.save(now)
        self.finish()

    def save(self, now: Snapshot) -> None:
        """Write the rows that a resumed run could not write, and save each active seed, unless this state is saved already. The
        state is copied now; ``finish`` waits for the disk. Raises ``CheckpointError`` for the save before."""
        self.finish()
        if now.update == self.saved_at and self._evaluations() == self._saved_evaluations:
            return
        for seed_run in self.seed_runs:
            seed_run.write_window(now.step)
        active, seed_state = self.training.active(), self.backend.seed_state
        writers = [run.checkpoint_writer(now.step, seed_state(now.state, run.index)) for run in active]
        self._pending = in_thread(self._write_all, [*filter(None, writers)], now.update, self._evaluations())

    def rescue(self, last: Snapshot, failure: BaseException | None = None) -> bool:
        """Save the last good state after ``failure``, and return whether that succeeded. If not, warn."""
        try:
            with contextlib.suppress(ProximoError, OSError):  # of an earlier state: this one replaces it
                self.finish()
            self.save(last)
            self.finish()
        except (ProximoError, OSError) as error:
            if not isinstance(failure, CheckpointError):  # the user reads one sentence about the disk
                with contextlib.suppress(OSError):
                    self.reporter.warned(str(error))
            return False
        return True

    def _write_all(self, writers: list[Callable[[], None]], update: int, evaluations: list[Any]) -> None:
        """Call all ``writers``, and retry each for ``RETRY_SECONDS``: a disk may be full only briefly."""
        failures, failing_since = list[CheckpointError](), None
        while writers:
            try:
                writers[0]()
            except CheckpointError as error:
                if failing_since is None:
                    failing_since = time.monotonic()
                    with contextlib.suppress(OSError):
                        self.reporter.warned(f"{error} Retrying for {RETRY_SECONDS:.0f} s.")
                if not self._is_unwritable and time.monotonic() - failing_since <= RETRY_SECONDS:
                    time.sleep(RETRY_PAUSE_SECONDS)
                    continue
                self._is_unwritable = True  # what is saved after this failure is tried once
                failures.append(error)
            failing_since = None
            del writers[0]  # what is written is freed
        if failures:
            raise failures[0]
        self.saved_at, self._saved_evaluations = update, evaluations
