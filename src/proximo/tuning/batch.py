"""Trains a batch of trials, without run directories, by the backend that `train` uses."""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.collect.devices import on_one_device
from proximo.collect.environment import environment
from proximo.collect.program_cache import program_key
from proximo.config import Config
from proximo.errors import ConfigError
from proximo.evaluation.episodes import TUNING_STREAM
from proximo.ppo import make_hyperparameters
from proximo.training.backend import Snapshot, TimedCalls
from proximo.training.backends import make_backend
from proximo.training.events import first_non_finite
from proximo.training.interrupts import Interrupts
from proximo.types import TrainState

MIN_COMPILE_SECONDS = 1.0


class StoppedError(Exception):
    """The user asked to stop. The batch is lost; a resume trains it again."""


def with_hyperparameters(state: TrainState, configs: list[Config]) -> TrainState:
    """A stacked ``state`` with the hyperparameters of one of ``configs`` in each slot."""
    own = (make_hyperparameters(config.ppo) for config in configs)
    numbers = jax.tree.map(lambda like, *x: jnp.array(x, like.dtype), state.learner.hyperparameters, *own)
    return eqx.tree_at(lambda s: s.learner.hyperparameters, state, numbers)


class Batch:
    """Trials that share a compiled program, each with all ``seeds``. Their settings ``configs`` differ in hyperparameters.

    A backend that stacks seeds trains all trials and seeds together, each in a slot of one state, in a program for ``width`` trials;
    missing trials repeat the first one. Another backend trains one trial, seed after seed, whose score at an evaluation is the mean over
    the seeds so far: a bad trial is pruned within its first seed.
    """

    def __init__(self, configs: list[Config], seeds: Sequence[int], width: int, interrupts: Interrupts):
        self.configs, self.seeds, self.width, self.interrupts = configs, seeds, width, interrupts
        self.total_updates = configs[0].total_updates
        env = environment(configs[0])
        self.backend = make_backend(configs[0], env, stacked=True)
        keys = {program_key(config, env, True, None) for config in configs}
        if len(keys) > 1:  # a trial would train with the settings of another one
            raise ConfigError(f"{len(configs)} trials of a batch need {len(keys)} compiled programs, expected 1.")
        self.timed = TimedCalls(self.backend, self._call)
        """Its speed is measured for the slots that are trained now."""
        filled = [*range(len(configs)), *[0] * (width - len(configs))]
        together = [(trial, seed) for trial in filled for seed in seeds]
        self.groups = [together] if self.backend.stacked else [[slot] for slot in together]
        self.slots: list[tuple[int, int]] = self.groups[0]
        """The slots that are trained now: (trial, seed)."""
        self.live = set(range(len(configs)))
        """The trials that continue. The user of ``train`` removes others at an evaluation."""
        self._failures: dict[int, str] = {}

    @property
    def full_seconds(self) -> float:
        """Seconds that the whole width and all seeds take from beginning to end, as far as it is known."""
        whole, now = (self.backend.seeds_of_a_device(len(slots)) for slots in (self.groups[0], self.slots))
        return self.timed.seconds_per_update * self.total_updates * len(self.groups) * whole / now

    def train(self, evaluations: int) -> Generator[tuple[float, int, dict[int, list[float] | str]]]:
        """Train to the end, or until no trial is ``live``. Yields the share that is done, the number of the next of the ``evaluations``
        of a seed, and its results if it is over: by trial, its mean returns by seed, or why it failed."""
        total, returns = self.total_updates, dict[int, Any].fromkeys(self.live, ())
        # At most as many as updates.
        boundaries = {max(1, round(total * i / evaluations)): i for i in range(1, evaluations + 1)}
        with contextlib.closing(self.backend):
            for index, slots in enumerate(self.groups):
                self.slots = slots
                now = Snapshot(self._call(self.backend.prepare, self._start, len(slots)), 0, 0)
                for boundary, number in boundaries.items():
                    evaluation = index * evaluations + number
                    while now.update < boundary and not self.live <= self._failures.keys():
                        now = self.timed.advance(now, self.timed.num_updates(now.update, boundary))
                        for slot, (trial, seed) in enumerate(self.slots):
                            if source := first_non_finite(now.metrics, slot)[1]:
                                self._failures.setdefault(trial, f"NaN or infinity in the {source} (seed {seed})")
                        yield (index + now.update / total) / len(self.groups), evaluation, {}
                    results = {trial: self._result(now.state, trial, returns[trial]) for trial in sorted(self.live)}
                    yield (index + boundary / total) / len(self.groups), evaluation, results
                    if not self.live:
                        return
                    if boundary == total:
                        returns = results
                    elif self.backend.stacked:
                        now = now._replace(state=self._narrowed(now.state, boundary))

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        result = self.interrupts.call(function, *arguments, is_computing=self.backend.is_computing)
        if self.interrupts.requested is not None:
            raise StoppedError
        return result

    def _start(self) -> TrainState:
        state = self.backend.start([seed for _, seed in self.slots])
        configs = self.backend.filled([self.configs[trial] for trial, _ in self.slots])
        return with_hyperparameters(state, configs) if self.backend.stacked else state

    def _result(self, state: TrainState, trial: int, before: Any) -> list[float] | str:
        returns = [*before]  # on the seeds that were trained before
        for slot in dict.fromkeys(slot for slot in self.slots if slot[0] == trial and trial not in self._failures):
            policy = self.backend.seed_state(state, self.slots.index(slot)).learner.policy
            episodes = self._call(self.backend.evaluate, policy, slot[1], TUNING_STREAM)
            returns.append(float(episodes.episode_return.mean()))
        if not np.isfinite(returns).all():
            self._failures[trial] = "an evaluation gave NaN or infinity"
        return self._failures.get(trial, returns)

    def _narrowed(self, state: TrainState, done: int) -> TrainState:
        """The state of fewer trials, if half or more are pruned and this saves more time than compiling costs."""
        now = new = len(self.slots) // len(self.seeds)
        while len(self.live) <= new // 2:
            new //= 2
        share = self.backend.seeds_of_a_device(new * len(self.seeds)) / self.backend.seeds_of_a_device(len(self.slots))
        saved = self.timed.seconds_per_update * (self.total_updates - done) * (1 - share)
        if new == now or saved < 2 * max(self.backend.compile_seconds, MIN_COMPILE_SECONDS):
            return state
        chosen = [self.slots.index((trial, seed)) for trial in sorted(self.live) for seed in self.seeds]
        chosen += [chosen[0]] * (new * len(self.seeds) - len(chosen))
        rows = np.array(self.backend.filled(chosen))
        state = on_one_device(jax.tree.map(lambda x: x[rows], state))  # they may be divided over fewer cores
        self.slots = [self.slots[slot] for slot in chosen]
        self.timed.seconds *= share
        return self._call(self.backend.prepare, lambda: state, len(self.slots))
