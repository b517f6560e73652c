"""Saving of a training: checkpoints at boundaries, retries on a full disk, the last good state after a failure."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from proximo.backends import Backend
from proximo.errors import CheckpointError, ProximoError, RunDirectoryError
from proximo.threads import in_thread
from proximo.tracking.reporter import Reporter
from proximo.training.seed_run import SeedRun, active
from proximo.training.timed_calls import Snapshot, TimedCalls

RETRY_SECONDS, RETRY_PAUSE_SECONDS = 10.0, 0.2
"""How long saving is retried if a checkpoint cannot be written, and the pause between attempts."""


class Saver:
    """Saves the active seeds of a training. ``calls`` are needed for the rows that are written before a checkpoint."""

    def __init__(self, backend: Backend, seed_runs: Sequence[SeedRun], reporter: Reporter, calls: TimedCalls):
        self.backend, self.seed_runs, self.reporter, self.calls = backend, seed_runs, reporter, calls
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

    def save(self, snapshot: Snapshot) -> None:
        """Write the rows that a resumed run could not write, and save each active seed. Does nothing if this state is saved already.

        The state is copied now and written in another thread, while the training goes on: a disk needs as long as some updates. ``finish`` waits
        for it.

        Raises:
            CheckpointError, RunDirectoryError: as ``finish``, for the save before this one.
        """
        self.finish()
        if self._is_saved(snapshot):
            return
        for seed_run in self.seed_runs:
            seed_run.write_window(snapshot.step, self.calls)
        writers = [self._writer(index, snapshot) for index, _ in active(self.seed_runs)]
        self._pending = in_thread(self._write_all, [*filter(None, writers)], snapshot.update, self._evaluations())

    def wait(self) -> None:
        """Wait until what ``save`` has begun is on the disk, or has failed."""
        if self._pending is not None:
            concurrent.futures.wait([self._pending])

    def finish(self) -> None:
        """Wait until what ``save`` has begun is on the disk.

        Raises:
            CheckpointError: a checkpoint cannot be written. The other seeds are saved.
            RunDirectoryError: a run directory was renamed or removed. The other seeds are saved.
        """
        self.wait()  # Ctrl-C may end this, and `rescue` waits again
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def save_seed(self, index: int, snapshot: Snapshot) -> None:
        """Save one seed, and return when the disk has it. Raises as ``finish`` does."""
        self.finish()
        self.seed_runs[index].write_window(snapshot.step, self.calls)
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
            if not isinstance(failure, CheckpointError | RunDirectoryError):  # the user reads one sentence about the disk
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
        """Write the checkpoint of each seed, in another thread than that of the training."""
        failures: list[ProximoError] = []
        while writers:
            try:
                self._with_retries(writers.pop(0))  # what is written is freed
            except (CheckpointError, RunDirectoryError) as error:
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
