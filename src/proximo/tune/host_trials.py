"""Trials on environments of the host, which are stepped one training at a time."""

from __future__ import annotations

import contextlib
import time

from proximo.config import Config
from proximo.run.evaluation import TUNING_STREAM
from proximo.run.program import HostProgram, make_program
from proximo.run.reuse import environment
from proximo.tune.evaluated import Judge, Pace, Reached, Watch, bad_source, borders, reached, updates_of_a_call
from proximo.types import TrainState


class HostTrial:
    """One trial on an environment of the host: seed after seed, each to its end. At an evaluation its score is the mean over the
    seeds before and the present one, so that a bad trial is pruned within its first."""

    width = 1

    def __init__(self, config: Config, seeds: list[int], watch: Watch):
        self.config, self.seeds, self.watch = config, seeds, watch
        program = make_program(config, environment(config), stacked=False)
        assert isinstance(program, HostProgram)
        self.program = program
        self.pace = Pace()

    @property
    def full_seconds(self) -> float:
        """Seconds that all seeds train for, as far as it is known."""
        return self.pace.seconds_per_update * self.config.total_updates * len(self.seeds)

    def train(self, evaluations: int, judge: Judge) -> None:
        """To the end of all seeds, or until ``judge`` lets it go on no more."""
        with contextlib.closing(self.program):
            before: tuple[float, ...] = ()
            for i, seed in enumerate(self.seeds):
                last = self._train_seed(i, seed, before, evaluations, judge)
                if last is None:
                    return
                before = last.returns

    def _train_seed(self, index: int, seed: int, before: tuple[float, ...], evaluations: int, judge: Judge) -> Reached | None:
        state, done, total = self.watch.call(self.program.start, [seed]), 0, self.config.total_updates
        self.watch.call(self.program.compile, state, computes=self.program.computes)
        now = None
        for number, border in borders(self.config, evaluations):
            state, failure = self._advance(state, done, border, index)
            done, final = border, border == total and index == len(self.seeds) - 1
            if failure:
                now = Reached((), f"NaN or infinity in the {failure} (seed {seed})")
            else:
                evaluator = self.program.evaluator
                assert evaluator is not None
                episodes = self.watch.call(evaluator, state.learner.policy, seed, TUNING_STREAM, computes=lambda: False)
                now = reached([*before, float(episodes.episode_return.mean())], final)
            if 0 not in judge(index * evaluations + number, {0: now}):
                return None
        return now

    def _advance(self, state: TrainState, done: int, border: int, index: int) -> tuple[TrainState, str]:
        """The state, and what was not finite."""
        total = self.config.total_updates
        while done < border:
            count = min(updates_of_a_call(self.pace.seconds_per_update), border - done, self.program.capacity)
            started = time.monotonic()
            state, metrics = self.watch.call(self.program.advance, state, count, computes=self.program.computes)
            count = next(iter(metrics.values())).shape[1]
            self.pace.add(time.monotonic() - started, count)
            done += count
            self.watch.advanced((index + done / total) / len(self.seeds))
            if source := bad_source(metrics, 0):
                return state, source
        return state, ""
