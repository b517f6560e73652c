"""Environments of several agents with PettingZoo's interface, in the form in which they are stepped."""

from typing import Any

import gymnasium as gym
import numpy as np

from proximo.envs.gymnasium.action_masks import flat_mask
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, AGENT_ID, OBSERVATION, STATE

PADDING = "pad them with SuperSuit (pad_observations_v0, pad_action_space_v0) in a function that makes the environment."


def has_agents(env: Any) -> bool:
    """Whether ``env`` has PettingZoo's interface, whose spaces are methods with the name of an agent as argument."""
    return hasattr(env, "possible_agents") and callable(getattr(env, "observation_space", None))


class ParallelEnv:
    """A PettingZoo environment whose agents have one observation space and one action space, and act at the same time.

    Args:
        env: what ``parallel_env`` of PettingZoo returns, or an AEC environment that can be made parallel.
        env_id: its id, for messages.
        mask_size: numbers in ``info["action_mask"]`` of each agent, which becomes an entry of its observation; 0: none.
        agent_id: whether to add an entry ``agent_id``.
        needs_state: whether to add an entry ``state``, if the observation has none: the environment's ``state()`` or, without
            this method, the observations of all agents, zeros for those that have none in this step.

    Raises:
        EnvError: the agents take turns, or their spaces differ.
    """

    def __init__(self, env: Any, env_id: str, mask_size: int = 0, agent_id: bool = False, needs_state: bool = False):
        self.env, self.mask_size = _at_the_same_time(env, env_id), mask_size
        self.metadata, self.render_mode = getattr(env, "metadata", None) or {}, getattr(env, "render_mode", None)
        self.names: tuple[str, ...] = tuple(self.env.possible_agents)
        """Names of all agents, in the order of their columns."""
        if not self.names:
            raise EnvError(f"{env_id} has no agents: its possible_agents is empty.")
        self.observation_space: gym.Space = self._common(self.env.observation_space, "observation", env_id)
        self.action_space: gym.Space = self._common(self.env.action_space, "action", env_id)
        self._ids = dict(zip(self.names, np.eye(len(self.names), dtype=np.float32), strict=True))
        self._seen = self.observation_space
        """The space of what the environment returns."""
        entries: dict[str, gym.Space] = {ACTION_MASK: gym.spaces.MultiBinary(mask_size)} if mask_size else {}
        if agent_id:
            entries[AGENT_ID] = gym.spaces.Box(0.0, 1.0, (len(self.names),), np.float32)
        if needs_state and STATE not in getattr(self._seen, "spaces", ()):
            size = len(self.names) * gym.spaces.flatdim(self._seen)
            joined = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
            entries[STATE] = getattr(self.env, "state_space", None) or joined
        self.entries = entries
        """The spaces of the entries that are added to each observation."""
        if entries:
            parts = self._seen.spaces if isinstance(self._seen, gym.spaces.Dict) else {OBSERVATION: self._seen}
            self.observation_space = gym.spaces.Dict({**parts, **entries})

    def _common(self, space_of: Any, role: str, env_id: str) -> Any:
        first, *others = [space_of(name) for name in self.names]
        for name, space in zip(self.names[1:], others, strict=True):
            if space != first:
                raise EnvError(
                    f"The agents of {env_id} have different {role} spaces, {first} ({self.names[0]}) and {space} ({name}): {PADDING}"
                )
        return first

    @property
    def present(self) -> frozenset[str]:
        """Names of the agents that act in the next step."""
        present = frozenset(self.env.agents)
        if unknown := sorted(present.difference(self.names)):
            raise EnvError(f"has agents that are not in its possible_agents: {', '.join(unknown)}.")
        return present

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode. Returns observations and infos by agent."""
        observations, infos = self.env.reset(seed=seed)
        return self._observed(observations, infos), infos

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Step with an action of each present agent. Returns observations, rewards, both flags and infos by agent."""
        observations, *results, infos = self.env.step(actions)
        return self._observed(observations, infos), *results, infos

    def _observed(self, observations: dict[str, Any], infos: dict[str, Any]) -> dict[str, Any]:
        if not self.entries:
            return observations
        state, found = self._state(observations) if STATE in self.entries else None, {}
        for name, seen in observations.items():
            found[name] = parts = dict(seen) if isinstance(seen, dict) else {OBSERVATION: seen}
            if self.mask_size:
                parts[ACTION_MASK] = self._mask(name, infos.get(name, {}))
            if AGENT_ID in self.entries:
                parts[AGENT_ID] = self._ids[name]
            if state is not None:
                parts[STATE] = state
        return found

    def _mask(self, name: str, info: dict[str, Any]) -> np.ndarray:
        if ACTION_MASK in info:
            return flat_mask(info[ACTION_MASK])
        if name in self.env.agents:
            raise EnvError(
                f"returned no {ACTION_MASK} in the info of {name}, but its first reset did: return one at every reset and step."
            )
        return np.ones(self.mask_size, np.int8)  # its episode is over

    def _state(self, observations: dict[str, Any]) -> np.ndarray:
        if getattr(self.env, "state_space", None) is not None:
            return self.env.state()
        absent = np.zeros(gym.spaces.flatdim(self._seen), np.float32)
        flat: list[Any] = [
            gym.spaces.flatten(self._seen, observations[name]) if name in observations else absent for name in self.names
        ]
        return np.concatenate(flat).astype(np.float32)

    def render(self) -> Any:
        """Draw the environment, as PettingZoo does."""
        return self.env.render()

    def close(self) -> None:
        """End the environment."""
        self.env.close()


def _at_the_same_time(env: Any, env_id: str) -> Any:
    """``env`` with PettingZoo's parallel interface."""
    if not hasattr(env, "agent_iter"):
        return env
    if not (getattr(env, "metadata", None) or {}).get("is_parallelizable"):
        raise EnvError(
            f"The agents of {env_id} take turns: expected agents that act at the same time. If an AEC environment updates only at the "
            'end of a cycle, set metadata["is_parallelizable"] = True.'
        )
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(env)
