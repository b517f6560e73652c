"""Trains a batch of trials, without run directories, by the backend that `train` uses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.backends import make_backend
from proximo.collect.devices import on_one_device
from proximo.collect.environment import environment
from proximo.collect.program_cache import program_key
from proximo.config import Config
from proximo.evaluation.episodes import TUNING_STREAM
from proximo.ppo import make_hyperparameters
from proximo.training.non_finite import first_non_finite
from proximo.training.timed_calls import Snapshot, TimedCalls
from proximo.tuning.trial import Select, TrialResult, Watch, boundaries
from proximo.types import TrainState

MIN_COMPILE_SECONDS = 1.0
Slot = tuple[int, int]
"""(trial, seed)."""


def with_hyperparameters(state: TrainState, configs: list[Config]) -> TrainState:
    """A stacked ``state`` with the hyperparameters of one of ``configs`` in each slot."""
    numbers = jax.tree.map(lambda *x: jnp.stack(x), *(make_hyperparameters(config.ppo) for config in configs))
    numbers = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), numbers, state.learner.hyperparameters)
    return eqx.tree_at(lambda s: s.learner.hyperparameters, state, numbers)


class Batch:
    """Trials that share a compiled program, each with all ``seeds``. Their settings ``configs`` differ in hyperparameters only.

    A backend that stacks seeds trains all trials and seeds together, each in a slot of one state. The slots of pruned trials are given
    up if that saves more time than compiling for fewer slots costs. Another backend trains one trial, seed after seed. At an evaluation
    its score is the mean over the seeds so far, so that a bad trial is pruned within its first seed.

    The program is compiled for ``width`` trials; missing trials repeat the first one.
    """

    def __init__(self, configs: list[Config], seeds: list[int], width: int, watch: Watch):
        self.configs, self.seeds, self.width, self.watch = configs, seeds, width, watch
        env = environment(configs[0])
        self.backend = make_backend(configs[0], env, stacked=True)
        keys = {program_key(config, env, True, None) for config in configs}
        if len(keys) > 1:  # a trial would train with the settings of another one
            raise ValueError(f"The {len(configs)} trials of a batch need {len(keys)} compiled programs, expected 1.")
        self.timed = TimedCalls(self.backend, self._call)
        """Its speed is measured for the slots that are trained now."""
        if self.backend.stacked:
            filled = [*range(len(configs)), *[0] * (width - len(configs))]
            self.groups = [[(trial, seed) for trial in filled for seed in seeds]]
        else:
            self.groups = [[(0, seed)] for seed in seeds]
        self.slots: list[Slot] = self.groups[0]
        """The slots that are trained now."""
        self._returns: dict[int, tuple[float, ...]] = {trial: () for trial in range(len(configs))}
        """The returns of each trial on the seeds that were trained before."""
        self._failures: dict[int, str] = {}

    @property
    def full_seconds(self) -> float:
        """Seconds that the whole width and all seeds take from beginning to end, as far as it is known."""
        narrowed = self.backend.seeds_of_a_device(len(self.groups[0])) / self.backend.seeds_of_a_device(len(self.slots))
        return self.timed.seconds_per_update * self.total_updates * len(self.groups) * narrowed

    @property
    def total_updates(self) -> int:
        """Updates of a trial with one seed."""
        return self.configs[0].total_updates

    def train(self, evaluations: int, select: Select) -> None:
        """Train to the end, or until ``select`` lets no trial continue. The ``evaluations`` of a seed are evenly spaced."""
        live = set(range(len(self.configs)))
        with contextlib.closing(self.backend):
            for index, slots in enumerate(self.groups):
                self.slots = slots
                live = self._train_group(index, live, evaluations, select)
                if not live:
                    return

    def _train_group(self, index: int, live: set[int], evaluations: int, select: Select) -> set[int]:
        """Train the slots of one group to the end. Returns the trials that continue."""
        now = Snapshot(self._start(), 0, 0)
        results: dict[int, TrialResult] = {}
        for number, boundary in boundaries(self.configs[0], evaluations):
            now = self._advance(now, boundary, index)
            is_last = boundary == self.total_updates
            final = is_last and index == len(self.groups) - 1
            results = {trial: self._result(now.state, trial, final) for trial in sorted(live)}
            live = set(select(index * evaluations + number, results))
            if is_last or not live:
                break
            now = now._replace(state=self._narrowed(now.state, live, boundary))
        self._returns.update({trial: result.returns for trial, result in results.items()})
        return live

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.watch.call(function, *arguments, is_computing=self.backend.is_computing)

    def _start(self) -> TrainState:
        def make_state() -> TrainState:
            state = self.backend.start([seed for _, seed in self.slots])
            configs = self.backend.filled([self.configs[trial] for trial, _ in self.slots])
            return with_hyperparameters(state, configs) if self.backend.stacked else state

        return self._call(self.backend.prepare, make_state, len(self.slots))

    def _advance(self, now: Snapshot, boundary: int, group: int) -> Snapshot:
        """Train to ``boundary``, unless NaN or infinity ends every trial before."""
        while now.update < boundary and len(self._failures) < len(self.configs):
            now, metrics, _ = self.timed.advance(now, self.timed.num_updates(now.update, boundary))
            for slot, (trial, seed) in enumerate(self.slots):
                _, source = first_non_finite(metrics, slot)
                if source and trial not in self._failures:
                    self._failures[trial] = f"NaN or infinity in the {source} (seed {seed})"
            self.watch.advanced((group + now.update / self.total_updates) / len(self.groups))
        return now

    def _result(self, state: TrainState, trial: int, final: bool) -> TrialResult:
        if trial in self._failures:
            return TrialResult((), self._failures[trial])
        returns = list(self._returns[trial])
        for seed in dict.fromkeys(seed for slot_trial, seed in self.slots if slot_trial == trial):
            policy = self.backend.seed_state(state, self.slots.index((trial, seed))).learner.policy
            episodes = self._call(self.backend.evaluate, policy, seed, TUNING_STREAM)
            returns.append(float(episodes.episode_return.mean()))
        return TrialResult.of(returns, final)

    def _narrowed(self, state: TrainState, live: set[int], done: int) -> TrainState:
        """The state of fewer trials, if half or more are pruned and enough time is left to pay for compiling."""
        if not self.backend.stacked:
            return state
        now = new = len(self.slots) // len(self.seeds)
        while len(live) <= new // 2:
            new //= 2
        share = self.backend.seeds_of_a_device(new * len(self.seeds)) / self.backend.seeds_of_a_device(len(self.slots))
        saved = self.timed.seconds_per_update * (self.total_updates - done) * (1 - share)
        if new == now or saved < 2 * max(self.backend.compile_seconds, MIN_COMPILE_SECONDS):
            return state
        chosen = [self.slots.index((trial, seed)) for trial in sorted(live) for seed in self.seeds]
        chosen += [chosen[0]] * (new * len(self.seeds) - len(chosen))
        rows = np.array(self.backend.filled(chosen))
        state = on_one_device(jax.tree.map(lambda x: x[rows], state))  # they may be divided over fewer cores
        self.slots = [self.slots[slot] for slot in chosen]
        self.timed.seconds *= share
        return self._call(self.backend.prepare, lambda: state, len(self.slots))
