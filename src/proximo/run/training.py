"""The training loop: from border to border, with what happens at each."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from proximo.config import own_code
from proximo.drivers.learning import BAD_SOURCES
from proximo.errors import CheckpointError, ProximoError, RunDirectoryError, command
from proximo.run.callbacks import Evaluation, Info
from proximo.run.clips import Clips
from proximo.run.episodes import MOST_STEPS
from proximo.run.evaluation import SELECTION_STREAM
from proximo.run.interrupts import AbandonedError, Interrupts
from proximo.run.member import Member, Result
from proximo.run.moment import StateOf
from proximo.run.program import HostProgram, Program, copy_of
from proximo.run.progress import Reporter
from proximo.types import TrainState

CALL_SECONDS = 1.0
SNAPSHOT_SECONDS = 3.0
LOOK_GRACE_SECONDS = 1.0
SAVE_SECONDS, SAVE_PAUSE_SECONDS = 10.0, 0.2
"""How long saving is retried if a checkpoint cannot be written, and the pause between attempts."""


class Training:
    """Trains the seeds of one program together: one seed, or all of them vmapped. ``path`` is what the user resumes, None where
    nothing is written. ``most_updates`` bounds those of one call; None: about a second of them."""

    def __init__(
        self,
        program: Program | HostProgram,
        members: Sequence[Member],
        interrupts: Interrupts,
        reporter: Reporter,
        path: Path | None,
        most_updates: int | None = None,
    ):
        self.program, self.members, self.interrupts, self.reporter = program, members, interrupts, reporter
        self.path, self.most_updates = path, most_updates
        self.config = members[0].config
        self.standing: tuple[TrainState, int] | None = None
        """The state that can be saved, and how many updates have led to it."""
        self.seconds = 0.0
        self.steps_done = 0
        self.saved_at = -1
        self.unsaved_evaluation = False
        self.unwritable_since: float | None = None
        """Time of the first failed attempt to save; None after a successful one."""
        self.warned_of_unfinished = False
        self._moment = -1
        """The update whose state callbacks may take the policy from."""
        self.clips = (
            Clips(self.config, program.env, reporter.warned) if path is not None and self.config.run.video_every else None
        )
        if isinstance(program, HostProgram):
            program.notify(reporter.warned)

    def close(self) -> None:
        """Finish what is written beside the training."""
        if self.clips is not None:
            self.clips.close()

    def run(self, make_state: Callable[[], TrainState], step: int) -> list[Result]:
        """From the state that is made, of ``step``, to the end, or to the border at which an interruption was asked for."""
        for _ in self.calls(make_state, step):
            pass
        assert self.standing is not None
        ended = self.standing[1] >= self.config.total_updates
        return self._results(None if ended else self.interrupts.requested)

    def calls(self, make_state: Callable[[], TrainState], step: int) -> Iterator[None]:
        """``run``, at the pace of another: yields before each call of the program, when ``standing`` has all that was learned until then.
        Closed there, it ends there."""
        update, total = step // self.config.batch_size, self.config.total_updates
        self.saved_at = update if update else -1
        self.reporter.begun([member.run_dir for member in self.members if member.run_dir is not None], step)
        self.reporter.compiling()
        try:
            # Nothing is lost when these are cut short.
            state = self.interrupts.call(make_state, grace=0.0)
            self.interrupts.call(self.program.compile, state, grace=0.0, computes=self.program.computes)
            self.reporter.compiled(self.program.how())
        except AbandonedError:
            self._leave(update)
        per_update = 0.0
        try:
            for i, member in self.going:
                member.listeners.start(self._info(state, update, i))
            if update == total:  # its last evaluation was interrupted
                self.standing = (state, update)
                self._at_border(state, update)
            while update < total and self.interrupts.requested is None and self.going:
                self.standing = (state, update)
                yield
                count = self._until_border(update, per_update)
                # Where updates are long, one that an interruption cuts short is lost; what stood before it is not.
                self.standing = self._copied(state, update, not per_update or per_update * count > SNAPSHOT_SECONDS)
                state, per_update, done = self._advance(state, update, count)
                update += done
                self.standing = (state, update)
                self._at_border(state, update)
            self.standing = (state, update)
            if self.interrupts.requested is not None and update < total:
                self._save(state, update)
                self.reporter.stopped(self._stop_message(update))
            for i, member in enumerate(self.members):
                if member.failure is None and not member.stopped:
                    member.listeners.end(self._info(state, update, i))
        except AbandonedError:
            # The call that is still running cannot be ended from outside: save what stands, and leave it behind.
            if self.standing is not None:
                update = self.standing[1]
                self._rescue(self.standing)
            self._leave(update)
        except (Exception, KeyboardInterrupt) as error:
            # What was learned before stands, whatever has failed: an environment, memory for an evaluation, a terminal, a callback.
            if self.standing is not None and update and self._rescue(self.standing, error):
                with contextlib.suppress(OSError):
                    self.reporter.stopped(self._stop_message(update))
            raise
        self._moment = -1

    def _copied(self, state: TrainState, update: int, long: bool) -> tuple[TrainState, int] | None:
        """What can be saved while the next call runs: a copy where that call uses ``state`` up, made only before ``long`` ones."""
        if not self.program.donates:
            return state, update
        return (copy_of(state), update) if long else None

    @property
    def going(self) -> list[tuple[int, Member]]:
        """The members that nothing has ended, with their place in the program."""
        return [(i, member) for i, member in enumerate(self.members) if member.goes_on]

    def _until_border(self, update: int, per_update: float) -> int:
        """How many updates the next call does: about a second of them, but not beyond a row, evaluation or checkpoint."""
        wanted = self.most_updates or (max(1, int(CALL_SECONDS / per_update)) if per_update else 1)
        if self._is_looked_at(update):
            return 1
        borders = [self.config.total_updates, update + self.program.capacity - self.window_rows]
        if every := self.config.histograms_every:
            borders.append((update // every + 1) * every - 1)
        clips = (self.video_updates,) if self.clips is not None else ()
        borders += [border for _, member in self.going for border in member.listeners.borders(update)]
        borders += [(update // every + 1) * every for every in (self.config.eval_updates, self.checkpoint_updates, *clips)]
        return max(1, min(wanted, min(borders) - update, self.program.capacity))

    def _is_looked_at(self, update: int) -> bool:
        """Whether histograms are made of the update behind ``update``."""
        every = self.config.histograms_every
        return bool(every) and (update + 1) % every == 0

    @property
    def window_rows(self) -> int:
        """Updates since the last row was written."""
        return max((len(member.window) for _, member in self.going), default=0)

    @property
    def checkpoint_updates(self) -> int:
        """Updates between checkpoints."""
        every = self.config.run.checkpoint_every
        return max(1, round(every / self.config.batch_size)) if every else self.config.eval_updates

    @property
    def video_updates(self) -> int:
        """Updates between clips."""
        return max(1, round(self.config.run.video_every / self.config.batch_size))

    def _advance(self, state: TrainState, update: int, wanted: int) -> tuple[TrainState, float, int]:
        """Up to ``wanted`` updates: the state behind them, seconds for each, and how many they were."""
        self._moment = -1
        seen = self._look(self.program.look_before, state) if self._is_looked_at(update) else None
        started = time.monotonic()
        state, metrics = self.interrupts.call(self.program.advance, state, wanted, computes=self.program.computes)
        count = next(iter(metrics.values())).shape[1]
        seconds = time.monotonic() - started
        self.seconds += seconds
        self.steps_done += count * self.config.batch_size * len(self.members)
        for i, member in self.going:
            rows = {name: x[i] for name, x in metrics.items()}
            bad = np.array([rows[f"bad/{source}"] for source in BAD_SOURCES]) > 0
            good = int(bad.any(axis=0).argmax()) if bad.any() else count
            rows = {name: x[:good] for name, x in rows.items()}
            member.window.add(rows)
            member.listeners.add(rows)
            if good < count:
                # What comes later follows from the first source.
                self._fail(member, BAD_SOURCES[int(bad[:, good].argmax())], update + good)
        if seen is not None:
            self._write_histograms(state, (update + count) * self.config.batch_size, seen)
        recent = [m.window.recent_return for _, m in self.going if m.window.recent_return is not None]
        recent_return = sum(recent) / len(recent) if recent else None
        speed = count * self.config.batch_size * len(self.members) / seconds
        self.reporter.advanced((update + count) * self.config.batch_size, speed, recent_return)
        return state, seconds / count, count

    def _look(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``function`` sees of a state; None where an interruption cuts it short, which must cost nothing that was learned."""
        try:
            return self.interrupts.call(function, *arguments, grace=LOOK_GRACE_SECONDS, computes=self.program.computes)
        except AbandonedError:
            return None

    def _write_histograms(self, state: TrainState, step: int, seen: Any) -> None:
        """Of the update that has led to ``state``, for each seed that it has not ended."""
        made = self._look(self.program.look_behind, state, seen) or []
        for i, member in self.going:
            if i < len(made):
                member.write_histograms(step, made[i])

    def _fail(self, member: Member, source: str, update: int) -> None:
        """Note that NaN or infinity from ``source`` has ended a member after ``update``; its state is frozen since."""
        step = update * self.config.batch_size
        self._write_rows(step, [member])
        hint = {
            "observation": "the environment returned it: look at its reset and step",
            "reward": "the environment returned it, or one too large for the statistics that scale it: look at its step",
            "loss": "lower learning_rate, or set normalize_observation and normalize_reward",
            "gradient": "its norm overflows: lower vf_coef and the scale of rewards, or set normalize_reward",
            "parameters": "lower learning_rate or max_grad_norm, or scale observations that are too large for their statistics",
        }[source]
        losses = [f"{name} = {value}" for name, value in own_code(self.config).items() if name in ("objective", "extra_loss")]
        if losses and source in ("loss", "gradient"):
            hint = f"look at {' and '.join(losses)}, or {hint}"
        hint = self.program.blame() or hint
        place = f" of {member.run_dir}" if member.run_dir is not None else ""
        member.fail(f"NaN or infinity in the {source} between steps {step} and {step + self.config.batch_size}{place} ({hint}).")
        if self.going:
            self.reporter.warned(f"{member.failure} The other seeds go on.")

    def _at_border(self, state: TrainState, update: int) -> None:
        """Write the row, evaluate, save, record a clip: whatever falls on this update."""
        if not self.going:
            return
        step, last = update * self.config.batch_size, update == self.config.total_updates
        evaluate = self.program.evaluator is not None and (last or update % self.config.eval_updates == 0)
        save = last or update % self.checkpoint_updates == 0
        if self.window_rows >= self.program.capacity or evaluate or save:
            self._write_rows(step)
        improved = self._evaluate(state, update) if evaluate else set()
        # Told first: what callbacks have come to by this border is saved with it.
        stopped = self._tell(state, update, evaluate, improved)
        if save or improved:
            self._save(state, update)
        for i in () if last else stopped:
            self._end_by_callback(state, update, i)
        if self.clips is not None and (last or update % self.video_updates == 0):
            self._record(self.clips, state, step)

    def _tell(self, state: TrainState, update: int, evaluated: bool, improved: set[int]) -> list[int]:
        """Tell the callbacks; the places of the members whose callbacks ask to end."""
        stopped = []
        for i, member in self.going:
            stop = False
            if evaluated and member.last_evaluation is not None:
                summary = {name: x for name, x in member.last_evaluation.items() if name != "step"}
                told = {"mean_return": summary["mean_return"], "summary": summary, "is_best": i in improved}
                stop = member.listeners.evaluation(self._info(state, update, i, Evaluation, **told))
            stop |= member.listeners.update(update, lambda metrics, i=i: self._info(state, update, i, metrics=metrics))
            if stop:
                stopped.append(i)
        return stopped

    def _end_by_callback(self, state: TrainState, update: int, index: int) -> None:
        member, step = self.members[index], update * self.config.batch_size
        self._write_rows(step, [member])
        if update != self.saved_at or self.unsaved_evaluation:
            self._save_member(member, step, self.program.member(state, index))
        member.listeners.end(self._info(state, update, index))
        member.stopped = True
        place = f" of {member.run_dir}" if member.run_dir is not None else ""
        self.reporter.stopped(f"A callback has ended the training{place} at step {step:,}.")

    def _info(self, state: TrainState, update: int, index: int, kind: type[Info] = Info, **told: Any) -> Any:
        """What a callback is given. Its policy can be taken until the next update uses the state up."""
        member, step = self.members[index], update * self.config.batch_size
        self._moment = update
        total = self.config.total_updates * self.config.batch_size
        moment = StateOf(self.program, member, state, index, step, lambda: self._moment == update)
        return kind(member.config.run.seed, member.run_dir, step, total, moment=moment, **told)

    def _record(self, clips: Clips, state: TrainState, step: int) -> None:
        """A clip of every member."""
        for i, member in self.going:
            policy = self.program.member(state, i).learner.policy
            self.interrupts.call(clips.record, member, policy, step, computes=self.program.computes)

    def _write_rows(self, step: int, members: list[Member] | None = None) -> None:
        """A row of what has happened since the last one, for each seed (or for ``members``)."""
        for member in self.members if members is None else members:
            if len(member.window):
                speed = self.steps_done / len(self.members) / self.seconds
                timing = {"time/steps_per_second": speed, "time/seconds": self.seconds}
                member.write(step, {**member.window.merge(), **timing})

    def _evaluate(self, state: TrainState, update: int) -> set[int]:
        """Evaluate every member on the same fixed environment seeds; the places of those that are better than ever."""
        evaluator, step = self.program.evaluator, update * self.config.batch_size
        assert evaluator is not None
        improved = set()
        self.reporter.evaluating()
        for i, member in self.going:
            policy = self.program.member(state, i).learner.policy
            seed, computes = member.config.run.seed, self.program.computes
            episodes = self.interrupts.call(evaluator, policy, seed, SELECTION_STREAM, computes=computes)
            if episodes.unfinished and not self.warned_of_unfinished:
                self.warned_of_unfinished = True
                self.reporter.warned(
                    f"{episodes.unfinished} episodes of the evaluation were still running after "
                    f"{self.config.run.eval_max_steps or MOST_STEPS:,} steps and count as they stood: set max_episode_steps."
                )
            summary = episodes.summary()
            member.last_evaluation = {"step": step, **summary}
            names = ("mean_return", "std_return", "iqm_return", "mean_length", "success_rate")
            member.write(step, {f"eval/{n}": summary[n] for n in names if summary[n] is not None})
            # NaN is never the best: no later evaluation would compare as better.
            reached = summary["mean_return"]
            if math.isfinite(reached) and (member.best is None or reached >= member.best["mean_return"]):
                member.best = {"step": step, "mean_return": reached}
                improved.add(i)
        self.unsaved_evaluation = True
        self.reporter.evaluated(step, [m.last_evaluation for _, m in self.going if m.last_evaluation])
        return improved

    def _save(self, state: TrainState, update: int) -> None:
        """Checkpoint every member, and write what a resumed run could not tell any more."""
        if update == self.saved_at and not self.unsaved_evaluation:
            return
        self._write_rows(update * self.config.batch_size)
        failures: list[ProximoError] = []
        for i, member in self.going:
            try:
                self._save_member(member, update * self.config.batch_size, self.program.member(state, i))
            except (CheckpointError, RunDirectoryError) as error:  # the other seeds are still saved
                failures.append(error)
        if failures:
            raise failures[0]
        self.saved_at, self.unsaved_evaluation = update, False

    def _save_member(self, member: Member, step: int, state: TrainState) -> None:
        """Save, and retry for ``SAVE_SECONDS`` if the checkpoint cannot be written: the disk may be full only briefly. Raises ``CheckpointError``."""
        while True:
            try:
                member.save(step, state)
            except CheckpointError as error:
                if self.unwritable_since is None:
                    self.unwritable_since = time.monotonic()
                    with contextlib.suppress(OSError):
                        self.reporter.warned(f"{error} Retrying for {SAVE_SECONDS:.0f} s.")
                if time.monotonic() - self.unwritable_since > SAVE_SECONDS:
                    raise
                time.sleep(SAVE_PAUSE_SECONDS)
            else:
                self.unwritable_since = None
                return

    def _rescue(self, standing: tuple[TrainState, int], failure: BaseException | None = None) -> bool:
        """Save the last good state after ``failure``, and return whether that succeeded. If it fails, warn instead of raising a second error."""
        try:
            self._save(*standing)
        except (ProximoError, OSError) as error:
            if str(error) != str(failure):
                with contextlib.suppress(OSError):
                    self.reporter.warned(str(error))
            return False
        return True

    def _stop_message(self, update: int) -> str:
        last = ", the last one, not evaluated yet" if update == self.config.total_updates else ""
        step = f"at step {update * self.config.batch_size:,}{last}"
        if self.path is None:
            return f"Stopped {step}."
        place = self.members[0].place if len(self.members) == 1 else None  # the folder may have been renamed
        return (
            f"Stopped {f'{step}, saved' if update else 'before the first update'}. Go on with: "
            f"{command('proximo', 'train', '--resume', place or self.path)}"
        )

    def _leave(self, update: int) -> NoReturn:
        """End the process although a call is still running in it; where the process is not ours, leave the call to itself."""
        message = self._stop_message(max(self.saved_at, 0))
        self.reporter.stopped(message)
        if not self.interrupts.owns_process:
            raise KeyboardInterrupt
        for member in self.members:
            member.close(hurry=True)
        self.reporter.left(message)
        os._exit(128 + (self.interrupts.requested or 0))

    def _results(self, interrupted: int | None) -> list[Result]:
        results = []
        for member in self.members:
            if member.failure is not None or member.run_dir is None:
                continue
            evaluation = member.last_evaluation
            results.append(
                Result(
                    run_dir=member.run_dir,
                    steps=self.steps_done // len(self.members),
                    seconds=self.seconds,
                    compile_seconds=self.program.compile_seconds,
                    steps_per_second=self.steps_done / len(self.members) / self.seconds if self.seconds else 0.0,
                    mean_return=evaluation["mean_return"] if evaluation else member.window.recent_return,
                    best=member.best,
                    interrupted=None if member.stopped else interrupted,
                    stopped=member.stopped,
                    callbacks=member.listeners.callbacks,
                )
            )
        return results
