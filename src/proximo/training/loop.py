"""The training loop: advance to the next boundary; then log, evaluate, report to callbacks, save and record clips."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from proximo.backends import Backend, copy_of
from proximo.errors import ProximoError
from proximo.rendering.pictures import observation_images, reads_images
from proximo.tracking.reporter import Reporter
from proximo.tracking.tracker import Image
from proximo.training.boundaries import Boundaries
from proximo.training.callback_calls import CallbackCalls
from proximo.training.clips import Clips
from proximo.training.interrupts import GRACE_SECONDS, AbandonedError, Interrupts, together
from proximo.training.non_finite import first_non_finite, non_finite_message
from proximo.training.periodic_evaluation import PeriodicEvaluation
from proximo.training.saver import Saver
from proximo.training.seed_run import SeedRun, active
from proximo.training.timed_calls import Snapshot, TimedCalls
from proximo.types import TrainState

SNAPSHOT_SECONDS = 3.0
"""A state is copied before a call that is expected to take longer than this."""
HISTOGRAM_GRACE_SECONDS = 1.0
"""How long an interrupted training waits for histograms."""


class Training:
    """Trains the seeds of one backend together: one seed, or several that are stacked.

    Args:
        backend: computes the updates.
        seed_runs: one for each seed of the backend.
        interrupts: carries the request to stop.
        reporter: receives progress and warnings.
        path: what the user resumes; None if no file is written.
        max_updates: maximum number of updates in one call; None: those of about one second.
    """

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
        self.path, self.config = path, seed_runs[0].config
        self.boundaries = Boundaries(self.config)
        self.peers = backend.peers
        self._call = functools.partial(interrupts.call, is_computing=backend.is_computing)
        shared_call = functools.partial(self._call, grace=self.peers.grace(GRACE_SECONDS))
        self.timed_calls = TimedCalls(backend, shared_call, max_updates)
        self.saver = Saver(backend, seed_runs, reporter, self.timed_calls)
        self.evaluation = PeriodicEvaluation(backend, seed_runs, reporter, self._call)
        self.callback_calls = CallbackCalls(backend, seed_runs)
        clips = path is not None and self.boundaries.clip_every and self.peers.is_first
        self.clips = Clips(backend, reporter.warned) if clips else None
        self.snapshot: Snapshot | None = None
        """The last state that can be saved; None while a short call uses it up."""
        self.before_first_call: Callable[[], None] = lambda: None
        """Is called when the first state is made and the programs are compiled, before anything is written."""
        self.after_call: Callable[[], None] = lambda: None
        """Is called after each call of the backend, when ``snapshot`` has what was learned, and before callbacks."""
        self._requested: int | None = None
        """Number of the signal for which all processes stop; None: they go on."""
        backend.send_warnings_to(reporter.warned)

    def calls(self, make_state: Callable[[], TrainState], step: int) -> Iterator[None]:
        """Train from the state of ``make_state()``, which has learned from ``step`` environment steps, until the end or an
        interruption.

        Yields before each call of the backend, when ``snapshot`` has all that was learned. Closing the iterator ends the training
        there.
        """
        now = self._start(make_state, step)
        try:
            self.callback_calls.call("on_start", now, range(len(self.seed_runs)))
            if now.update == self.boundaries.total:  # the last evaluation of a resumed run was interrupted
                self.snapshot = now
                self._at_boundary(now)
            while now.update < self.boundaries.total and active(self.seed_runs) and (count := self._agree_on_updates(now)):
                self.snapshot = now
                yield
                now = self.snapshot = self._advance(now, count)
                self.after_call()
                self._at_boundary(now)
            self.snapshot = now
            self._finish(now)
        except AbandonedError:
            # The call that still runs cannot be ended from outside.
            if self.snapshot is not None:
                now = self.snapshot
                self.saver.rescue(now)
            self._leave()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            # Save what was learned, even if an environment, the memory for an evaluation, a reporter or a callback has failed.
            last = self.snapshot if self.peers.can_rescue else None
            if last is not None and last.update and self.saver.rescue(last, error):
                with contextlib.suppress(OSError):
                    self.reporter.stopped(self._stop_message(last.update))
            raise
        self.callback_calls.state_is_gone()

    def close(self) -> None:
        """Finish the checkpoint that is still being written, and the clips that are still being encoded."""
        try:
            self.saver.finish()
        finally:
            if self.clips is not None:
                self.clips.close()

    @property
    def interrupted(self) -> int | None:
        """Number of the signal that stopped the training; None if it is complete or none did."""
        is_complete = self.snapshot is not None and self.snapshot.update >= self.boundaries.total
        return None if is_complete else self._requested

    def _start(self, make_state: Callable[[], TrainState], step: int) -> Snapshot:
        """Make the first state, and compile."""
        update = step // self.config.batch_size
        self.peers.watchdog.prepare(self.interrupts.request, self._how_to_resume())
        self.saver.start(update)
        self.reporter.seeds_started([seed_run.run_dir for seed_run in self.seed_runs if seed_run.run_dir is not None], step)
        self.reporter.compiling()
        try:
            state = self._call(
                self.backend.prepare, make_state, len(self.seed_runs), grace=0.0
            )  # nothing is lost if this is cut short
            self.reporter.compiled(self.backend.describe())
            # Not without a grace period: a process that has arrived here goes on with the others, which stop before the next update.
            self._call(self.peers.agree, None, "the first update")
        except AbandonedError:
            self._leave()
        self.before_first_call()
        return Snapshot(state, update, step)

    def _agree_on_updates(self, now: Snapshot) -> int:
        """The number of updates of the next call, which process 0 decides; 0: a process was asked to stop, so all stop."""
        own = self.interrupts.requested, self.timed_calls.num_updates(now.update, self._next_boundary(now.update))
        every = self.peers.agree(own, "the next update")
        self._requested = next((requested for requested, _ in every if requested is not None), None)
        return 0 if self._requested is not None else every[0][1]

    def _advance(self, now: Snapshot, count: int) -> Snapshot:
        """Compute ``count`` updates, and record their metrics."""
        self.snapshot = self._kept(now, count)
        self.callback_calls.state_is_gone()
        seen = self._inspect(self.backend.inspect_before, now.state) if self.boundaries.inspects_after(now.update) else None
        after, metrics, seconds = self.timed_calls.advance(now, count)
        self.snapshot = after  # before rows are written: what is saved after a failure must not be older than they are
        for i, seed_run in active(self.seed_runs):
            good, source = first_non_finite(metrics, i)
            seed_run.record({name: x[i, :good] for name, x in metrics.items()}, now.step, self.timed_calls)
            if source:
                self._fail(seed_run, source, now.step + good * self.config.batch_size, self.timed_calls.last_updates - good)
        if seen is not None:
            of_seeds = self._inspect(self.backend.inspect_after, after.state, seen) or []
            for seed_run, histograms in zip(self.seed_runs, of_seeds, strict=False):
                if seed_run.is_active:
                    seed_run.trackers.write(after.step, histograms)
        if not now.update:
            self._write_images(after)
        returns = [x for _, seed_run in active(self.seed_runs) if (x := seed_run.window.recent_return) is not None]
        steps = (after.step - now.step) * len(self.seed_runs)
        self.reporter.advanced(after.step, steps / seconds, sum(returns) / len(returns) if returns else None)
        return after

    def _write_images(self, now: Snapshot) -> None:
        """Show the trackers an observation of each seed, where observations are images."""
        for i, seed_run in active(self.seed_runs) if reads_images(now.state.learner.policy) else ():
            state = self.backend.seed_state(now.state, i)
            observation = self.backend.observation(state)
            images = {} if observation is None else observation_images(state.learner.policy, observation)
            if images:
                seed_run.trackers.write(now.step, {name: Image(pixels) for name, pixels in images.items()})

    def _inspect(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function`` for histograms. None if an interruption cut it short: histograms must not cost what was learned."""
        try:
            return self._call(function, *arguments, grace=self.peers.grace(HISTOGRAM_GRACE_SECONDS))
        except AbandonedError:
            return None

    def _next_boundary(self, update: int) -> int:
        """The first update after which something is due."""
        callbacks = [every for _, seed_run in active(self.seed_runs) for every in seed_run.callbacks.intervals]
        return self.boundaries.next_after(update, callbacks)

    def _kept(self, now: Snapshot, count: int) -> Snapshot | None:
        """What can be saved while the next call runs. If the call uses the state up, this is a copy, made only before long calls."""
        if not self.backend.donates:
            return now
        seconds = self.timed_calls.last_seconds_per_update * count
        is_long = self.peers.can_rescue and (not seconds or seconds > SNAPSHOT_SECONDS)
        return now._replace(state=copy_of(now.state)) if is_long else None

    def _fail(self, seed_run: SeedRun, source: str, step: int, later: int) -> None:
        """End a seed because of NaN or infinity in the update that follows ``step``. Its state is frozen in the ``later`` updates of the
        call."""
        seed_run.write_window(step, self.timed_calls, later)
        with contextlib.suppress(ProximoError):  # this failure matters more
            self.saver.finish()
        seed_run.fail(non_finite_message(self.config, source, step, seed_run.run_dir, self.backend.fault()))
        if active(self.seed_runs):
            self.reporter.warned(f"{seed_run.failure} The other seeds continue.")

    def _at_boundary(self, now: Snapshot) -> None:
        """Write rows, evaluate, report to callbacks, save and record clips, whatever is due."""
        if not active(self.seed_runs):
            return
        self.saver.wait()  # callbacks may read the folder of checkpoints
        boundaries, update = self.boundaries, now.update
        evaluates, saves = (boundaries.is_due(every, update) for every in (boundaries.evaluate_every, boundaries.save_every))
        evaluates = evaluates and self.evaluation.num_episodes(now) > 0
        if evaluates or saves:
            for seed_run in self.seed_runs:
                seed_run.write_window(now.step, self.timed_calls)
        improved = self.evaluation.evaluate(now) if evaluates else set()
        # Callbacks come before the checkpoint, which contains their state.
        asked = self.callback_calls.boundary(now, evaluates, improved)
        stopped = self.peers.from_first(lambda: asked, "a callback")
        self.saver.finish()  # after evaluation and callbacks, which a resume would not make up for
        if saves or improved:
            self.saver.save(now)
        if update < boundaries.total:
            for i in stopped:
                self._stop_seed(now, i)
        if self.path is not None and boundaries.is_due(boundaries.clip_every, update):
            together(self.peers, "a clip", self._record_clips, now)

    def _record_clips(self, now: Snapshot) -> None:
        """Record a clip of each seed, in the process that writes."""
        if self.clips is not None:
            for i, seed_run in active(self.seed_runs):
                self._call(self.clips.record, seed_run, self.backend.policy(now.state, i), now.step)

    def _stop_seed(self, now: Snapshot, index: int) -> None:
        """End a seed because one of its callbacks asks for it."""
        seed_run = self.seed_runs[index]
        self.saver.save_seed(index, now)
        self.callback_calls.call("on_end", now, [index])
        seed_run.stop(now.step)
        place = f" of {seed_run.run_dir}" if seed_run.run_dir is not None else ""
        self.reporter.stopped(f"A callback has stopped the training{place} at step {now.step:,}.")

    def _finish(self, now: Snapshot) -> None:
        """Save if the training was interrupted, and report the end to the callbacks."""
        stopped = self._requested is not None and now.update < self.boundaries.total and bool(active(self.seed_runs))
        if stopped:
            self.saver.save(now)
        self.saver.finish()
        if stopped:
            self.reporter.stopped(self._stop_message(now.update))
        self.callback_calls.call("on_end", now, [i for i, _ in active(self.seed_runs)])

    def _stop_message(self, update: int) -> str:
        last = ", the last one, not evaluated yet" if update == self.boundaries.total else ""
        step = f"at step {update * self.config.batch_size:,}{last}"
        if self.path is None:
            return f"Stopped {step}."
        return f"Stopped {f'{step}, saved' if update else 'before the first update'}. {self._how_to_resume()}"

    def _how_to_resume(self) -> str:
        return "" if self.path is None else f"Go on with: {self.peers.how_to_resume(self.path)}"

    def _leave(self) -> NoReturn:
        """End the process although a call still runs in it. If the process has other work, raise ``KeyboardInterrupt`` and leave the call running."""
        with contextlib.suppress(ProximoError):  # of a checkpoint that another thread writes
            self.saver.finish()
        message = self._stop_message(max(self.saver.saved_at, 0))
        self.reporter.stopped(message)
        self.peers.watchdog.linger()
        if not self.interrupts.owns_process:
            raise KeyboardInterrupt
        for seed_run in self.seed_runs:
            seed_run.trackers.end(hurry=True)  # all at the same time
        for seed_run in self.seed_runs:
            seed_run.close(hurry=True)
        self.reporter.exiting(message)
        os._exit(128 + (self.interrupts.requested or 0))
