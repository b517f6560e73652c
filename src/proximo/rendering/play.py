"""Episodes to watch: an agent plays one after the other in one environment, and every step can be drawn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from proximo.envs import Environment
from proximo.evaluation.policy import Policy
from proximo.networks.custom.forward import Forward
from proximo.rendering.pictures import Draw
from proximo.rendering.players import Player
from proximo.spaces import ACTION_MASK, allowed_action

DEFAULT_FPS = 30.0
Agent = Callable[[Any, bool, float, Callable[[], Key[Array, ""]]], np.ndarray]
"""``agent(observation, episode_start, reward, key) -> action``. Observation and action have a leading axis of 1, the reward is the one
of the last action, and ``key()`` returns the random key that samples the action."""


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

    @property
    def outcome(self) -> dict[str, Any]:
        """``{return, length, success, ended}`` of the episode so far."""
        return {"return": self.episode_return, "length": self.step, "success": self.success, "ended": self.ended}


def policy_agent(policy: Policy, deterministic: bool = True) -> Agent:
    """Acts with a trained policy."""
    memory, predict = policy.init_memory(), getattr(Forward.of(policy.config.network), "predict", None)

    def act(observation: Any, episode_start: bool, reward: float, key: Callable[[], Key[Array, ""]]) -> np.ndarray:
        nonlocal memory
        if predict is not None:
            return predict(policy.actor_critic, observation, deterministic)
        how = {"deterministic": deterministic, "key": None if deterministic else key(), "reward": np.array([reward], np.float32)}
        action, memory = policy.predict(observation, memory, [episode_start], **how)
        return action

    return act


def random_agent(env: Environment, seed: int) -> Agent:
    """Takes every allowed action of ``env`` with the same probability."""
    action_space, rng = env.action_space, np.random.default_rng(seed)

    def act(observation: Any, *_: Any) -> np.ndarray:
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        return np.stack([allowed_action(action_space, rng, mask)])

    return act


def play(player: Player, agent: Agent, episodes: int, max_steps: int) -> Iterator[PlayedStep]:
    """Play ``episodes`` episodes. Yields each reset and each step. An episode is cut off after ``max_steps``."""
    reward = 0.0  # of the last action, also across episodes: a policy that keeps its memory observes it
    for episode in range(episodes):
        observation, episode_return, step, ended = player.reset(episode), 0.0, 0, ""
        yield PlayedStep(episode, step, player.picture(), episode_return)
        while not ended:
            action = agent(observation, step == 0, reward, player.key)
            observation, reward, terminated, truncated, success = player.step(action)
            step, episode_return = step + 1, episode_return + reward
            ended = "terminated" if terminated else "truncated" if truncated else "cut" if step >= max_steps else ""
            has_end = ended in ("terminated", "truncated")
            yield PlayedStep(episode, step, player.picture(), episode_return, ended, success if has_end else None)


def fps_of(env: Environment) -> float:
    """Frames per second that an environment is shown with: its own, 1 … 60, or ``DEFAULT_FPS``."""
    declared = getattr(env, "render_fps", 0.0)
    return float(min(max(declared, 1.0), 60.0)) if declared else DEFAULT_FPS
