"""Saving of a training: checkpoints at boundaries, retries on a full disk, the last good state after a failure."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proximo.errors import CheckpointError, ProximoError
from proximo.threads import in_thread
from proximo.training.events import Event, interval
from proximo.training.timed_calls import Snapshot

if TYPE_CHECKING:
    from proximo.training.loop import Training

RETRY_SECONDS, RETRY_PAUSE_SECONDS = 10.0, 0.2
"""How long saving is retried if a checkpoint cannot be written, and the pause between attempts."""


class Saver(Event):
    """Saves the active seeds of a training, in another thread than the training: a disk needs as long as some updates."""

    def __init__(self, training: Training):
        super().__init__(training)
        self.every = interval(training.config.run.checkpoint_every, training.config) or training.config.eval_updates
        self.saved_at = -1
        """Updates of the last checkpoint, also of a resumed one; -1 without any."""
        self._saved_evaluations: list[Any] = []
        self._pending: concurrent.futures.Future[None] | None = None
        """The save that another thread writes."""
        self._unwritable_since: float | None = None
        """Time of the first failed attempt to save; None after a successful one."""

    def start(self, update: int) -> None:
        """The training starts with the checkpoint of ``update``; 0: without one."""
        self.saved_at, self._saved_evaluations = update or -1, self._evaluations()

    def is_due(self, update: int) -> bool:
        """After each call: an error of the save before is raised soon, and a best evaluation is saved."""
        return True

    def on_update(self, now: Snapshot) -> None:
        """Save if it is due, or if an evaluation is the best so far."""
        self.finish()  # after evaluation and callbacks, which a resume would not make up for
        if super().is_due(now.update) or any(seed_run.is_best_at(now.step) for _, seed_run in self.training.active()):
            self.save(now)

    def on_end(self, now: Snapshot) -> None:
        """Save if the training was interrupted."""
        if self.training.stops_early(now):
            self.save(now)
        self.finish()

    def close(self) -> None:
        """Wait until the disk has everything."""
        self.finish()

    def save(self, snapshot: Snapshot) -> None:
        """Write the rows that a resumed run could not write, and save each active seed. Does nothing if this state is saved already. The state is
        copied now; ``finish`` waits for the disk.

        Raises:
            CheckpointError: as ``finish``, for the save before this one.
        """
        self.finish()
        if self._is_saved(snapshot):
            return
        for seed_run in self.seed_runs:
            seed_run.write_window(snapshot.step, self.training.timed_calls)
        writers = [self._writer(index, snapshot) for index, _ in self.training.active()]
        self._pending = in_thread(self._write_all, [*filter(None, writers)], snapshot.update, self._evaluations())

    def wait(self) -> None:
        """Wait until what ``save`` has begun is on the disk, or has failed."""
        if self._pending is not None:
            concurrent.futures.wait([self._pending])

    def finish(self) -> None:
        """Wait until what ``save`` has begun is on the disk.

        Raises:
            CheckpointError: a checkpoint cannot be written. The other seeds are saved.
        """
        self.wait()  # Ctrl-C may end this, and `rescue` waits again
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def save_seed(self, index: int, snapshot: Snapshot) -> None:
        """Save one seed, and return when the disk has it. Raises as ``finish`` does."""
        self.finish()
        self.seed_runs[index].write_window(snapshot.step, self.training.timed_calls)
        if not self._is_saved(snapshot) and (write := self._writer(index, snapshot)):
            self._with_retries(write)

    def rescue(self, snapshot: Snapshot, failure: BaseException | None = None) -> bool:
        """Save the last good state after ``failure``, and return whether that succeeded. If it fails, warn instead of raising a second error."""
        try:
            with contextlib.suppress(ProximoError, OSError):  # of an earlier state: this one replaces it
                self.finish()
            self.save(snapshot)
            self.finish()
        except (ProximoError, OSError) as error:
            if not isinstance(failure, CheckpointError):  # the user reads one sentence about the disk
                with contextlib.suppress(OSError):
                    self.reporter.warned(str(error))
            return False
        return True

    def _is_saved(self, snapshot: Snapshot) -> bool:
        return snapshot.update == self.saved_at and self._evaluations() == self._saved_evaluations

    def _evaluations(self) -> list[Any]:
        return [seed_run.last_evaluation for seed_run in self.seed_runs]

    def _writer(self, index: int, snapshot: Snapshot) -> Callable[[], None] | None:
        return self.seed_runs[index].checkpoint_writer(snapshot.step, self.backend.seed_state(snapshot.state, index))

    def _write_all(self, writers: list[Callable[[], None]], update: int, evaluations: list[Any]) -> None:
        """Write the checkpoint of each seed, in another thread than the training."""
        failures: list[CheckpointError] = []
        while writers:
            try:
                self._with_retries(writers.pop(0))  # what is written is freed
            except CheckpointError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        self.saved_at, self._saved_evaluations = update, evaluations

    def _with_retries(self, write: Callable[[], None]) -> None:
        """Retry for ``RETRY_SECONDS`` if the checkpoint cannot be written, because the disk may be full only briefly."""
        while True:
            try:
                write()
            except CheckpointError as error:
                if self._unwritable_since is None:
                    self._unwritable_since = time.monotonic()
                    with contextlib.suppress(OSError):
                        self.reporter.warned(f"{error} Retrying for {RETRY_SECONDS:.0f} s.")
                if time.monotonic() - self._unwritable_since > RETRY_SECONDS:
                    raise
                time.sleep(RETRY_PAUSE_SECONDS)
            else:
                self._unwritable_since = None
                return
