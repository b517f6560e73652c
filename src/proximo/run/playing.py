"""Episodes to look at: an agent plays one after the other, and every row of them can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.envs.host.observations import allowed_actions
from proximo.run.host_stage import HostStage
from proximo.run.jax_stage import JaxStage
from proximo.run.policy import Carried, Policy
from proximo.run.stage import Draw, Observed, Stage
from proximo.spaces import ACTION_MASK, ActionSpace, from_any


@dataclass(frozen=True)
class Row:
    """What stands after ``step`` steps of an episode; 0 is its reset."""

    episode: int
    step: int
    draw: Draw
    reached: float
    """The return so far."""
    ended: str = ""
    """``terminated``, ``truncated``, or ``cut`` by us; nothing while the episode goes on."""
    success: bool | None = None
    """In the last row of an episode, if the environment reports it. None if the player cut the episode off."""


class Agent(Protocol):
    """Acts in one environment, row by row."""

    def __call__(self, observation: Observed, first: bool, reward: float, key: Callable[[], Key[Array, ""]]) -> np.ndarray:
        """An action [1, ...] for the observation (leading axis 1); ``reward`` is that of the last action, ``key()`` for what is drawn."""
        ...


class PolicyAgent:
    """A trained policy. Its memory is carried, and emptied where an episode begins; with ``reset_memory: false`` it is carried on."""

    def __init__(self, policy: Policy, stochastic: bool = False):
        self.policy, self.stochastic = policy, stochastic
        self._carried: Carried = policy.init_memory(1)

    def __call__(self, observation: Observed, first: bool, reward: float, key: Callable[[], Key[Array, ""]]) -> np.ndarray:
        drawn = key() if self.stochastic else None
        self._carried, action = self.policy(self._carried, observation, [first], np.array([reward], np.float32), drawn)
        return action


class RandomAgent:
    """Every action that is allowed with the same probability."""

    def __init__(self, action_space: ActionSpace, seed: int):
        self.action_space, self._rng = action_space, np.random.default_rng(seed)

    def __call__(self, observation: Observed, first: bool, reward: float, key: Callable[[], Key[Array, ""]]) -> np.ndarray:
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        return allowed_actions(self.action_space, self._rng, None if mask is None else np.asarray(mask), 1)


def random_agent(env: JaxEnvironment | HostEnvironment, seed: int) -> RandomAgent:
    """The one for the actions of ``env``."""
    return RandomAgent(from_any(env.action_space, "action"), seed)


def play(stage: Stage, agent: Agent, episodes: int, most_steps: int) -> Iterator[Row]:
    """Rows of ``episodes`` episodes, one more than each has steps; an episode is cut after ``most_steps``."""
    reward = 0.0  # of the last action, also across episodes: a policy that keeps its memory observes it
    for episode in range(episodes):
        observation, first, reached, step = stage.reset(episode), True, 0.0, 0
        yield Row(episode, step, stage.picture(), reached)
        ended = ""
        while not ended:
            action = agent(observation, first, reward, stage.key)
            after = stage.step(action)
            observation, first, reward, step = after.observation, False, after.reward, step + 1
            reached += reward
            ended = "terminated" if after.terminated else "truncated" if after.truncated else "cut" if step >= most_steps else ""
            success = after.success if ended in ("terminated", "truncated") else None
            yield Row(episode, step, stage.picture(), reached, ended, success)


def stage_of(
    env: JaxEnvironment | HostEnvironment, config: Config, seed: int, stream: int, window: bool = False
) -> HostStage | JaxStage:
    """An environment to play on. Raises ``EnvError`` where it is known that there is nothing to look at."""
    if isinstance(env, HostEnvironment):
        return HostStage(env, config, seed, stream, window)
    return JaxStage(env, config, seed, stream)


def episodes_of(
    env: JaxEnvironment | HostEnvironment,
    config: Config,
    agent: Agent,
    episodes: int,
    seed: int,
    stream: int,
    most_steps: int,
    window: bool = False,
) -> Iterator[Row]:
    """``play`` on an environment of its own, which ends with the iteration. The episodes are the first ones of an evaluation with
    ``seed`` in ``stream`` (where that one steps single environments, and for actions that are sampled the first of them alone).
    With ``window`` an environment that can shows itself."""
    stage = stage_of(env, config, seed, stream, window)
    try:
        yield from play(stage, agent, episodes, most_steps)
    finally:
        stage.close()
