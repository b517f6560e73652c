"""The training loop: advance to the next update at which an event is due, then call the events."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from proximo.errors import EnvError, EnvironmentFault, ProximoError
from proximo.storage.run_directory import FAILURE
from proximo.threads import together
from proximo.tracking.reporter import Reporter
from proximo.training.backend import Backend, Snapshot, TimedCalls, copy_of
from proximo.training.clips import Clips
from proximo.training.events import Event, Histograms, Images, PeriodicEvaluation, Rows, UserCallbacks
from proximo.training.interrupts import GRACE_SECONDS, AbandonedError, Interrupts
from proximo.training.resuming import rewind
from proximo.training.saver import Saver
from proximo.training.seed_run import SeedRun
from proximo.types import TrainState

SNAPSHOT_SECONDS = 3.0
"""A state is copied before a call that is expected to take longer than this."""
HURRY_SECONDS = 3.0
"""How long the trackers may still write if the process ends at once."""


class Training:
    """Trains the seeds of one backend together: one seed, or several that are stacked. ``path`` is what the user resumes; None if no
    file is written. ``max_updates`` limits the updates of one call; None: about one second of updates."""

    def __init__(
        self,
        backend: Backend,
        seed_runs: Sequence[SeedRun],
        interrupts: Interrupts,
        reporter: Reporter,
        path: Path | None,
        max_updates: int | None = None,
    ):
        self.backend, self.seed_runs, self.interrupts, self.reporter = backend, seed_runs, interrupts, reporter
        self.path, self.config, self.peers = path, seed_runs[0].config, backend.peers
        self.total = self.config.total_updates
        self.call = functools.partial(interrupts.call, is_computing=backend.is_computing)
        """Calls a function of the backend that this process alone waits for."""
        self.shared_call = functools.partial(self.call, grace=self.peers.grace(GRACE_SECONDS))
        """Calls a function that all processes compute together."""
        self.timed_calls = TimedCalls(backend, self.shared_call, max_updates)
        for index, seed_run in enumerate(seed_runs):
            seed_run.index, seed_run.calls = index, self.timed_calls
        self.saver = Saver(self)
        # Callbacks come before the checkpoint, which contains their state.
        kinds = (Rows, Histograms, Images, PeriodicEvaluation, UserCallbacks)
        self.events: list[Event] = [*(kind(self) for kind in kinds), self.saver, Clips(self)]
        self.snapshot: Snapshot | None = None
        """The last state that can be saved; None while a short call uses it up."""
        self.started = False  # the first state is made, and all is compiled
        self.interrupted: int | None = None
        """Number of the signal for which all processes stop before the training is complete."""
        self.after_call: Callable[[], None] = lambda: None
        """Is called after each call of the backend, before the events."""
        backend.send_warnings_to(reporter.warned)

    def active(self) -> list[SeedRun]:
        """The seeds that still train."""
        return [seed_run for seed_run in self.seed_runs if seed_run.is_active]

    def calls(self, make_state: Callable[[], TrainState], step: int) -> Iterator[None]:
        """Train from ``make_state()``, which has learned from ``step`` environment steps, until the end or an interruption.

        Yields before each call of the backend, when ``snapshot`` has all that was learned. Closing the iterator ends the training.
        """
        with self._rescuing():
            now = self.snapshot = self._start(make_state, step)
            self.started = True
            for event in self.events:
                event.on_start(now)
            if now.update == self.total:  # the last evaluation of a resumed run was interrupted
                self._call_events(now)
            while now.update < self.total and self.active() and (count := self._agree_on_updates(now)):
                yield
                for event in self.events:
                    event.before_call(now)
                self.snapshot = self._kept(now, count)
                # Kept before rows are written: what is saved after a failure must not be older than they are.
                now = self.snapshot = self.timed_calls.advance(now, count)
                self.after_call()
                self._call_events(now)
            for event in reversed(self.events):
                event.on_end(now)
            if self.interrupted is not None:
                self.reporter.stopped(self._stop_message(now.update))

    def close(self) -> None:
        """Finish what other threads still write: the checkpoint and the clips."""
        with contextlib.ExitStack() as stack:
            for event in self.events:
                stack.callback(event.close)

    def _start(self, make_state: Callable[[], TrainState], step: int) -> Snapshot:
        update = step // self.config.batch_size
        self.peers.prepare(self.interrupts.request, self._how_to_resume())
        self.saver.saved_at = update or -1
        self.reporter.seeds_started([seed_run.run_dir for seed_run in self.seed_runs if seed_run.run_dir is not None], step)
        self.reporter.compiling()
        # Nothing is lost if this is cut short.
        state = self.call(self.backend.prepare, make_state, len(self.seed_runs), grace=0.0)
        self.reporter.compiled(self.backend.describe())
        # With a grace period: a process that has arrived here goes on with the others, which stop before the next update.
        self.call(self.peers.agree, None, "the first update")
        for seed_run in self.seed_runs:  # not before: a resume whose environments fail, or that is interrupted, changes nothing
            rewind(seed_run, self.reporter)
        return Snapshot(state, update, step)

    def _agree_on_updates(self, now: Snapshot) -> int:
        """The updates of the next call, as process 0 decides; 0: a process was asked to stop, so all stop."""
        boundary = min(self.total, *(event.next_after(now.update) for event in self.events))
        own = self.interrupts.requested, self.timed_calls.num_updates(now.update, boundary)
        every = self.peers.agree(own, "the next update")
        self.interrupted = next((requested for requested, _ in every if requested is not None), None)
        return 0 if self.interrupted is not None else every[0][1]

    def _call_events(self, now: Snapshot) -> None:
        for event in self.events:
            if self.active():
                event.on_update(now)

    def _kept(self, now: Snapshot, count: int) -> Snapshot | None:
        """The snapshot to save during the next call. If the call uses up the state, this is a copy, or None for a
        short call."""
        if not self.backend.donates:
            return now._replace()
        seconds = self.timed_calls.last_seconds_per_update * count
        is_long = self.peers.can_rescue and (not seconds or seconds > SNAPSHOT_SECONDS)
        return now._replace(state=copy_of(now.state)) if is_long else None

    @contextlib.contextmanager
    def _rescuing(self) -> Iterator[None]:
        """Save what was learned after any error."""
        try:
            yield
        except AbandonedError:  # the call that still runs cannot be ended from outside
            if self.snapshot is not None:
                self.saver.rescue(self.snapshot)
            self._leave()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            last = self.snapshot if self.peers.can_rescue else None
            if last is not None and last.update and self.saver.rescue(last, error):
                with contextlib.suppress(OSError):
                    self.reporter.stopped(self._stop_message(last.update))
            if self.started and isinstance(error, EnvError | EnvironmentFault):
                for seed_run in self.active():
                    seed_run.mark(FAILURE, f"{error}\n")
            if self.started and isinstance(error, EnvError):  # the training has begun, so this is no mistake in the command
                raise EnvironmentFault(str(error)) from error
            raise

    def _stop_message(self, update: int) -> str:
        last = ", the last one, not evaluated yet" if update == self.total else ""
        step = f"at step {update * self.config.batch_size:,}{last}"
        if self.path is None:
            return f"Stopped {step}."
        return f"Stopped {f'{step}, saved' if update else 'before the first update'}. {self._how_to_resume()}"

    def _how_to_resume(self) -> str:
        return "" if self.path is None else f"Go on with: {self.peers.how_to_resume(self.path)}"

    def _leave(self) -> NoReturn:
        """End the process, in which a call still runs; if it has other work, raise ``KeyboardInterrupt``."""
        with contextlib.suppress(ProximoError):  # of a checkpoint that another thread writes
            self.saver.finish()
        message = self._stop_message(max(self.saver.saved_at, 0))
        self.reporter.stopped(message)
        self.peers.linger()
        if not self.interrupts.owns_process:
            raise KeyboardInterrupt
        for seed_run in self.seed_runs:
            seed_run.trackers.patience = HURRY_SECONDS
        together(*(seed_run.trackers.close for seed_run in self.seed_runs))
        self.reporter.exiting(message)
        os._exit(128 + (self.interrupts.requested or 0))
