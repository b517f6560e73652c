"""Trials on environments in JAX, trained without run directories by the programs that ``train`` uses: a batch is one program,
vmapped over their numbers and seeds."""

from __future__ import annotations

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.envs import HostEnvironment
from proximo.ppo import make_hyperparameters
from proximo.run.evaluation import TUNING_STREAM
from proximo.run.program import Program, make_program
from proximo.run.reuse import environment
from proximo.tune.evaluated import Judge, Pace, Reached, Watch, bad_source, borders, reached, updates_of_a_call
from proximo.tune.host_trials import HostTrial
from proximo.types import TrainState

LEAST_COMPILE_SECONDS = 1.0


def settings_of_trials(program: Program, state: TrainState, configs: list[Config]) -> TrainState:
    """``state`` with the traced numbers of a config in each place."""
    numbers = jax.tree.map(lambda *x: jnp.stack(x), *(make_hyperparameters(config.ppo) for config in configs))
    numbers = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), numbers, state.learner.hyperparameters)
    return eqx.tree_at(lambda s: s.learner.hyperparameters, state, numbers)


class DeviceBatch:
    """Trials on an environment in JAX that share a program, each with all seeds.

    ``width`` is the number of trials that the program is compiled for: the places of trials that lack repeat the first one. The
    places of pruned trials are given up where that saves more time than compiling for fewer costs.
    """

    def __init__(self, configs: list[Config], seeds: list[int], width: int, watch: Watch):
        self.configs, self.seeds, self.width, self.watch = configs, seeds, width, watch
        program = make_program(configs[0], environment(configs[0]), stacked=True)
        assert isinstance(program, Program)
        self.program = program
        filled = [*range(len(configs)), *[0] * (width - len(configs))]
        self.places = [(trial, seed) for trial in filled for seed in seeds]
        self.failures: dict[int, str] = {}
        self.pace = Pace()
        """Of the whole width."""

    @property
    def full_seconds(self) -> float:
        """Seconds that the whole width trains for from beginning to end, as far as it is known."""
        return self.pace.seconds_per_update * self.configs[0].total_updates

    def train(self, evaluations: int, judge: Judge) -> None:
        """To the end, or until ``judge`` lets no trial go on."""
        state, done, live = self._start(), 0, set(range(len(self.configs)))
        marks = borders(self.configs[0], evaluations)
        for number, border in marks:
            state = self._advance(state, done, border)
            done, last = border, border == self.configs[0].total_updates
            live = set(judge(number, {trial: self._reached(state, trial, last) for trial in sorted(live)}))
            if last or not live:
                return
            state = self._narrowed(state, live, done)

    def _start(self) -> TrainState:
        state = self.watch.call(self.program.start, [seed for _, seed in self.places])
        state = settings_of_trials(self.program, state, [self.configs[trial] for trial, _ in self.places])
        self.watch.call(self.program.compile, state)
        return state

    def _advance(self, state: TrainState, done: int, border: int) -> TrainState:
        while done < border:
            share = len(self.places) / (self.width * len(self.seeds))
            wanted = updates_of_a_call(self.pace.seconds_per_update * share)
            count = min(wanted, border - done, self.program.capacity)
            started = time.monotonic()
            state, metrics = self.watch.call(self.program.advance, state, count)
            self.pace.add((time.monotonic() - started) / share, count)
            done += count
            self._note_failures(metrics)
            self.watch.advanced(done / self.configs[0].total_updates)
        return state

    def _note_failures(self, metrics: dict[str, np.ndarray]) -> None:
        for place, (trial, seed) in enumerate(self.places):
            source = bad_source(metrics, place)
            if source and trial not in self.failures:
                self.failures[trial] = f"NaN or infinity in the {source} (seed {seed})"

    def _reached(self, state: TrainState, trial: int, last: bool) -> Reached:
        if trial in self.failures:
            return Reached((), self.failures[trial])
        evaluator, policies, returns = self.program.evaluator, state.learner.policy, []
        assert evaluator is not None
        for seed in self.seeds:
            place = self.places.index((trial, seed))
            policy = jax.tree.map(lambda x, place=place: x[place], policies)
            returns.append(float(self.watch.call(evaluator, policy, seed, TUNING_STREAM).episode_return.mean()))
        return reached(returns, last)

    def _narrowed(self, state: TrainState, live: set[int], done: int) -> TrainState:
        """The state of fewer trials, where half or more have gone and enough time is left for it to pay."""
        now = len(self.places) // len(self.seeds)
        new = now
        while len(live) <= new // 2:
            new //= 2
        saved = self.pace.seconds_per_update * (self.configs[0].total_updates - done) * (now - new) / self.width
        if new == now or saved < 2 * max(self.program.compile_seconds, LEAST_COMPILE_SECONDS):
            return state
        chosen = [self.places.index((trial, seed)) for trial in sorted(live) for seed in self.seeds]
        chosen += [chosen[0]] * (new * len(self.seeds) - len(chosen))
        state = jax.tree.map(lambda x: x[np.array(chosen)], state)
        self.places = [self.places[place] for place in chosen]
        self.watch.call(self.program.compile, state)
        return state


def make_batch(configs: list[Config], seeds: list[int], width: int, watch: Watch) -> DeviceBatch | HostTrial:
    """What trains ``configs``, which a program serves together (of the host: one)."""
    if width == 1 and is_of_host(configs[0]):
        return HostTrial(configs[0], seeds, watch)
    return DeviceBatch(configs, seeds, width, watch)


def is_of_host(config: Config) -> bool:
    """Whether the environment is stepped on the host."""
    return isinstance(environment(config), HostEnvironment)
