"""Runs a study: draws and trains batches of trials until trials or time are used up, then runs the final round."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import Trial

from proximo.collect.environment import environment
from proximo.collect.program_cache import program_key
from proximo.config import LEAVES, override
from proximo.errors import ConfigError, EnvError, command
from proximo.tuning.batch import Batch
from proximo.tuning.dimension import Parameters
from proximo.tuning.plan import StudyPlan
from proximo.tuning.progress import Reporter
from proximo.tuning.pruning import OUT_OF_TIME, TrialSelection
from proximo.tuning.record import FINAL, TEST, Record, best_of, finalists, open_study, records
from proximo.tuning.sampling import draw, explores, make_pruner, make_sampler, shared_part
from proximo.tuning.space import fit_together, setting_values
from proximo.tuning.trial import TrialResult, Watch

BATCH = "batch"
"""Attribute of a trial: the first trial of its batch."""
NO_MEMORY = "there was not enough memory"
MIN_SHARE = 0.03
"""After this share of a batch, its measured speed is used to predict its end."""


class OutOfTimeError(Exception):
    """A batch cannot end in time."""


def shaping(plan: StudyPlan, env: Any) -> set[str]:
    """The searched settings whose values change the compiled program for ``env``. All trials of a batch share them.

    These are all settings that are not traced, even if their values give one program in the base: ``sequence_length`` 0 and 32 are equal
    for 32 steps, and differ in a batch of 64 steps. Only traced settings change the program independently of the others.
    """

    def key(name: str, value: Any) -> Any:
        return program_key(override(plan.base, {name: value}), env, True, None)  # pyright: ignore[reportArgumentType]

    return {
        d.name
        for d in plan.space.dimensions
        if not LEAVES[d.name].traced or len({key(d.name, value) for value in d.examples()}) > 1
    }


class Study:
    """A study in ``folder``. ``deadline`` is a time of ``time.monotonic``; the search ends early enough for the final round."""

    def __init__(self, folder: Path, plan: StudyPlan, watch: Watch, reporter: Reporter, deadline: float = math.inf):
        self.folder, self.plan, self.watch, self.reporter, self.deadline = folder, plan, watch, reporter, deadline
        self.study = open_study(folder, make_pruner(plan.pruner))
        self.env = environment(plan.base)
        self.shaping = shaping(plan, self.env)
        self.base_parameters = plan.space.parameters(plan.base)
        self._seconds: list[float] = []

    @property
    def trials(self) -> list[Record]:
        """All trials so far."""
        return records(self.study)

    def search(self) -> None:
        """Train batches until trials or time are used up. Raises ``StoppedError`` if the user stops it; the trials of the batch
        stay marked as running."""
        while batch := self._next_batch():
            started = time.monotonic()
            self._train(batch)
            self._seconds.append(time.monotonic() - started)

    def final_round(self) -> None:
        """Train the best trials again on seeds that the search has not used, and the base if it may still be better. The best of
        them wins. Then train the winner on test seeds, because its score in the final round is the highest of several, and too
        high on average."""
        tried: set[int] = set()
        late: list[str] = []
        while left := [t for t in finalists(self.trials, self.plan.finalists) if t.number not in tried]:
            trial = left[0]
            tried.add(trial.number)
            if trial.final is not None:
                continue
            if time.monotonic() + trial.full_seconds > self.deadline:
                late.append(trial.name)
                continue
            self.reporter.final_round(trial, len(self.plan.final_seeds))
            self.study.set_user_attr(f"{FINAL}{trial.number}", self._returns_on(self.plan.final_seeds, trial))
        best = best_of(self.trials)
        if best is not None and best.final and best.test is None:
            if time.monotonic() + best.full_seconds > self.deadline:
                late.append(f"the winner ({best.name}) on its test seeds")
            else:
                self.reporter.test(best, len(self.plan.test_seeds))
                self.study.set_user_attr(f"{TEST}{best.number}", self._returns_on(self.plan.test_seeds, best))
        if late:
            way = command("proximo", "tune", "--resume", self.folder)
            self.reporter.warned(f"time ran out before the final round of {', '.join(late)}. Go on with: {way}")
        elif self.plan.finalists and not tried:
            self.reporter.warned("there was no final round: no trial besides the base was trained to its end.")

    def _returns_on(self, seeds: list[int], trial: Record) -> list[float]:
        """The scores of the trial by seed; an empty list if a seed ended with NaN."""
        found: list[TrialResult] = []

        def select(evaluation: int, results: dict[int, TrialResult]) -> Collection[int]:
            found.append(results[0])
            return () if results[0].failure or results[0].final else results

        self.watch.advanced = self.reporter.advanced
        Batch([self.plan.config(trial.number, trial.settings)], seeds, 1, self.watch).train(1, select)
        return list(found[-1].returns)

    def _next_batch(self) -> dict[int, Trial]:
        """The trials of the next batch by number: those that an interruption has left, and as many new ones as fit. Empty if the
        study is over."""
        trials = self.study.get_trials(deepcopy=False)
        left = [t.number for t in trials if not t.state.is_finished()]
        first = min(left, default=len(trials))
        if not left and (first >= self.plan.trials or (first and self._time_is_up())):
            return {}
        begun = trials[first].user_attrs.get(BATCH, first) if left else first
        size = self.plan.together if first or self.base_parameters is not None else 1
        numbers = left + list(range(len(trials), min(self.plan.trials, begun + size)))
        shared = self._shared(first)
        return {number: self._ask(number, begun, shared) for number in numbers}

    def _shared(self, first: int) -> Parameters:
        """The parameters that a batch has in common: those that change the compiled program (all, if trials train one by one). If
        the first trial was drawn before an interruption, they are its parameters."""
        space, alone = self.plan.space, self.plan.together == 1
        names = {key for d in space.dimensions if alone or d.name in self.shaping for key in d.distributions()}
        if first == 0:
            return {key: value for key, value in (self.base_parameters or {}).items() if key in names}
        trials = self.study.get_trials(deepcopy=False)
        drawn = trials[first].params if first < len(trials) else {}
        if names <= set(drawn):
            return {key: drawn[key] for key in names}
        at_random = not alone and explores(first // self.plan.together)
        fits = partial(fit_together, self.plan.base, self.env)
        return shared_part(self.study, space, names, self.plan.base.run.seed, first, at_random, fits)

    def _ask(self, number: int, begun: int, shared: Parameters) -> Trial:
        """Trial ``number`` with its parameters. It is a new one, or one that an interrupted process has begun."""
        plan, trials = self.plan, self.study.get_trials(deepcopy=False)
        fixed = shared if number else self.base_parameters or {}
        self.study.sampler = make_sampler(plan.base.run.seed, number, fixed)
        # Only its constructor can continue a trial that was begun; Optuna has no other public way.
        trial = Trial(self.study, trials[number]._trial_id) if number < len(trials) else self.study.ask()
        trial.set_user_attr(BATCH, begun)
        drawn = draw(trial, plan.space) if number or self.base_parameters is not None else {}
        settings = plan.space.settings(drawn) if number else setting_values(plan.base, plan.space.names)
        if begun == 0 and self.base_parameters is not None:
            settings |= setting_values(plan.base, self.shaping)  # drawn ones are rounded, and would need another program
        trial.set_user_attr("settings", settings)
        return trial

    def _train(self, batch: dict[int, Trial]) -> None:
        settings = {number: dict(trial.user_attrs["settings"]) for number, trial in batch.items()}
        selection = TrialSelection(
            batch,
            settings,
            deadline=lambda: self.search_deadline,
            finished=lambda trial: self.reporter.finished(trial, best_of(self.trials), self.seconds_left()),
            width=self.plan.together,
            base_in_space=self.base_parameters is not None,
        )
        unfit = [n for n in batch if n and not fit_together(self.plan.base, self.env, settings[n])]
        for number in unfit:
            selection.finish(number, "failed", TrialResult((), "its settings do not fit together"))
        numbers = [n for n in batch if n not in unfit]
        if not numbers:
            return
        shared = {name: value for name, value in settings[numbers[0]].items() if name in self.shaping}
        self.reporter.batch(numbers, shared)
        width = 1 if self.base_parameters is None and numbers == [0] else self.plan.together
        try:
            configs = [self.plan.config(number, settings[number]) for number in numbers]
            trainer = Batch(configs, self.plan.trial_seeds, width, self.watch)
        except (ConfigError, EnvError) as error:
            for number in numbers:
                selection.finish(number, "failed", TrialResult((), str(error)))
            return
        selection.begin(numbers, trainer)
        self.watch.advanced = lambda share: self._advanced(share, trainer, cuts=0 not in numbers)
        try:
            trainer.train(self.plan.evaluations, selection)
        except OutOfTimeError:
            for number in sorted(selection.live):
                selection.finish(number, "pruned", replace(selection.last[number], failure=OUT_OF_TIME))
        except Exception as error:
            if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
                raise
            for number in sorted(selection.live):
                selection.finish(number, "failed", TrialResult((), NO_MEMORY))

    def _advanced(self, share: float, trainer: Batch, cuts: bool) -> None:
        """Report how far a batch is. With ``cuts``, end it if it cannot end before the final round has to begin."""
        self.reporter.advanced(share)
        if cuts and share > MIN_SHARE and time.monotonic() + (1 - share) * trainer.full_seconds > self.search_deadline:
            raise OutOfTimeError

    def _time_is_up(self) -> bool:
        """Whether another batch would probably not end before the final round has to begin."""
        usual = sum(self._seconds) / len(self._seconds) if self._seconds else 0.0
        return time.monotonic() + usual > self.search_deadline

    @property
    def search_deadline(self) -> float:
        """When the final round has to begin."""
        return self.deadline - self._final_seconds(self.trials)

    def _final_seconds(self, trials: list[Record]) -> float:
        chosen = finalists(trials, self.plan.finalists)
        left, best = [t for t in chosen if t.final is None], best_of(trials)
        tested = not left and (best is None or best.test is not None)
        test = 0.0 if tested else max((t.full_seconds for t in chosen), default=0.0)
        return sum(t.full_seconds for t in left) + test

    def seconds_left(self) -> float | None:
        """Estimated by the seconds of the trials so far; None before the first one."""
        trials = self.trials
        done = [t.seconds for t in trials if t.state != "running"]
        if not done:
            return None
        rest = sum(done) / len(done) * (self.plan.trials - len(done)) + self._final_seconds(trials)
        return max(0.0, min(rest, self.deadline - time.monotonic()))
