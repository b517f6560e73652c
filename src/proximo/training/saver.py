"""Saving of a training: checkpoints at boundaries, retries on a full disk, the last good state after a failure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from proximo.backends import Backend
from proximo.errors import CheckpointError, ProximoError, RunDirectoryError
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
        self._unwritable_since: float | None = None
        """Time of the first failed attempt to save; None after a successful one."""

    def start(self, update: int) -> None:
        """The training starts with the checkpoint of ``update``; 0: without one."""
        self.saved_at, self._saved_evaluations = update or -1, self._evaluations()

    def save(self, snapshot: Snapshot) -> None:
        """Write the rows that a resumed run could not write, then save each active seed. Does nothing if this state is saved already.

        Raises ``CheckpointError`` if a checkpoint cannot be written, and ``RunDirectoryError`` if a run directory was renamed or
        removed. The other seeds are saved first.
        """
        if self._is_saved(snapshot):
            return
        for seed_run in self.seed_runs:
            seed_run.write_window(snapshot.step, self.calls)
        failures: list[ProximoError] = []
        for index, _ in active(self.seed_runs):
            try:
                self._save_with_retries(index, snapshot)
            except (CheckpointError, RunDirectoryError) as error:
                failures.append(error)
        if failures:
            raise failures[0]
        self.saved_at, self._saved_evaluations = snapshot.update, self._evaluations()

    def save_seed(self, index: int, snapshot: Snapshot) -> None:
        """Save one seed, as ``save`` does."""
        self.seed_runs[index].write_window(snapshot.step, self.calls)
        if not self._is_saved(snapshot):
            self._save_with_retries(index, snapshot)

    def rescue(self, snapshot: Snapshot, failure: BaseException | None = None) -> bool:
        """Save the last good state after ``failure``, and return whether that succeeded. If it fails, warn instead of raising a second error."""
        try:
            self.save(snapshot)
        except (ProximoError, OSError) as error:
            if str(error) != str(failure):
                with contextlib.suppress(OSError):
                    self.reporter.warned(str(error))
            return False
        return True

    def _is_saved(self, snapshot: Snapshot) -> bool:
        return snapshot.update == self.saved_at and self._evaluations() == self._saved_evaluations

    def _evaluations(self) -> list[Any]:
        return [seed_run.last_evaluation for seed_run in self.seed_runs]

    def _save_with_retries(self, index: int, snapshot: Snapshot) -> None:
        """Retry for ``RETRY_SECONDS`` if the checkpoint cannot be written, because the disk may be full only briefly."""
        seed_run, state = self.seed_runs[index], self.backend.seed_state(snapshot.state, index)
        while True:
            try:
                seed_run.save(snapshot.step, state)
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
