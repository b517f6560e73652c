"""Episodes to watch: an agent plays one after the other, and every step can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.envs.gymnasium.actions import allowed_actions
from proximo.evaluation.policy import Carried, Policy
from proximo.rendering.gymnasium_player import GymnasiumPlayer
from proximo.rendering.jax_player import JaxPlayer
from proximo.rendering.player import Draw, Observed, Player
from proximo.spaces import ACTION_MASK, from_any


@dataclass(frozen=True)
class PlayedStep:
    """An episode after ``step`` steps; step 0 is its reset."""

    episode: int
    step: int
    draw: Draw
    episode_return: float
    """The sum of rewards so far."""
    ended: str = ""
    """``terminated``, ``truncated``, or ``cut`` by the player; empty while the episode goes on."""
    success: bool | None = None
    """At the end of an episode, if the environment reports it. None if the player cut the episode off."""


Agent = Callable[[Observed, bool, float, Callable[[], Key[Array, ""]]], np.ndarray]
"""Acts in one environment, step by step: ``agent(observation, episode_start, reward, key) -> action``. Observation and action have a
leading axis of 1, the reward is that of the last action, and ``key()`` returns the key to sample by."""


class PolicyAgent:
    """Acts by a trained policy. Its memory is reset at the start of an episode, unless the policy was trained with ``reset_memory: false``."""

    def __init__(self, policy: Policy, deterministic: bool = True):
        self.policy, self.deterministic = policy, deterministic
        self._memory: Carried = policy.init_memory()

    def __call__(
        self, observation: Observed, episode_start: bool, reward: float, key: Callable[[], Key[Array, ""]]
    ) -> np.ndarray:
        action, self._memory = self.policy.predict(
            observation,
            self._memory,
            [episode_start],
            deterministic=self.deterministic,
            key=None if self.deterministic else key(),
            reward=np.array([reward], np.float32),
        )
        return action


class RandomAgent:
    """Takes every allowed action of ``env`` with the same probability."""

    def __init__(self, env: Environment, seed: int):
        self._action_space, self._rng = from_any(env.action_space, "action"), np.random.default_rng(seed)

    def __call__(
        self, observation: Observed, episode_start: bool, reward: float, key: Callable[[], Key[Array, ""]]
    ) -> np.ndarray:
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        return allowed_actions(self._action_space, self._rng, None if mask is None else np.asarray(mask), 1)


def play(player: Player, agent: Agent, episodes: int, max_steps: int) -> Iterator[PlayedStep]:
    """Play ``episodes`` episodes. Yields each reset and each step. An episode is cut off after ``max_steps``."""
    reward = 0.0  # of the last action, also across episodes: a policy that keeps its memory observes it
    for episode in range(episodes):
        observation, episode_start, episode_return, step = player.reset(episode), True, 0.0, 0
        yield PlayedStep(episode, step, player.picture(), episode_return)
        ended = ""
        while not ended:
            action = agent(observation, episode_start, reward, player.key)
            after = player.step(action)
            observation, episode_start, reward, step = after.observation, False, after.reward, step + 1
            episode_return += reward
            ended = "terminated" if after.terminated else "truncated" if after.truncated else "cut" if step >= max_steps else ""
            success = after.success if ended in ("terminated", "truncated") else None
            yield PlayedStep(episode, step, player.picture(), episode_return, ended, success)


def make_player(env: Environment, config: Config, seed: int, stream: int, window: bool = False) -> Player:
    """One environment to play on. Raises ``EnvError`` if it cannot be drawn, as far as that is known."""
    if isinstance(env, GymnasiumEnvironment):
        return GymnasiumPlayer(env, config, seed, stream, window)
    return JaxPlayer(env, config, seed, stream)
