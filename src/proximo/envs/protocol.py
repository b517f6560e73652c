"""What an environment is: read this to write a JAX environment, or an adapter (``registry.py`` has the steps)."""

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt8

from proximo.envs.gymnasium.environment import GymnasiumEnvironment


@runtime_checkable
class JaxEnvironment(Protocol):
    """One environment in JAX: two pure functions and two spaces, without a base class.

    ``reset`` and ``step`` describe a single environment without autoreset. proximo vectorizes them, resets environments
    whose episode ended, applies ``max_episode_steps`` and counts episodes. They are compiled together with the policy and
    the learner, so they must not branch on traced values, change ``self`` or draw from NumPy.

    An environment that also has ``render`` (``Renders``) can be watched. docs/custom-jax-environment.md has an example.

    An environment of several agents, which share the policy, has an attribute ``num_agents`` above 1. Its actions, and the
    observations, rewards and both flags that it returns, have a leading axis of agents; the spaces are those of one agent. An agent
    whose episode has ended is absent until the episodes of all agents have ended, and the environment is reset. A method
    ``world_state(state, params)`` may return an array that the value function reads as the entry ``state``.
    """

    observation_space: Any
    """A space of proximo, Gymnasium or gymnax: Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple. An entry
    ``action_mask`` of a Dict marks the allowed actions."""
    action_space: Any
    """A space of proximo, Gymnasium or gymnax: Discrete, MultiDiscrete, MultiBinary, a Box of floating-point numbers, or a Dict or
    Tuple of these."""
    default_params: PyTree
    """A pytree of numbers that is passed to every call as a traced argument. It may be missing."""

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        """Start an episode.

        Args:
            key: random key of this episode's start.
            params: parameters, of the structure of ``default_params``.

        Returns:
            ``(state, observation)``. The state is any pytree whose shapes and types stay the same.
        """
        ...

    def step(
        self, key: Key[Array, ""], state: PyTree, action: PyTree, params: PyTree
    ) -> tuple[PyTree, PyTree, Float[Array, ""], Bool[Array, ""], Bool[Array, ""], dict[str, Any]]:
        """Take one step.

        Args:
            key: random key of this step.
            state: the state that the last call returned.
            action: an action of ``action_space``; of a Dict or Tuple, in its structure.
            params: parameters, of the structure of ``default_params``.

        Returns:
            ``(state, observation, reward, terminated, truncated, info)``. The observation is the one after this step, even
            if the episode ends with it. ``terminated`` means that the task is over, ``truncated`` that only a limit was
            reached. ``info["success"]`` (bool, optional) is read in the last step of an episode.
            With several agents it is one for each, or one for all of them, which is read when the last of their episodes ends.
        """
        ...


@runtime_checkable
class Renders(Protocol):
    """A JAX environment that can draw its states, for ``proximo watch`` and for clips during training."""

    def render(self, state: PyTree, params: PyTree) -> UInt8[np.ndarray, "height width 3"]:
        """Draw one state.

        It is called outside of compiled programs and may use any drawing library. An attribute ``render_fps`` sets the frames per
        second; without it clips have 30.

        Args:
            state: a state whose arrays are NumPy arrays.
            params: parameters, of the structure of ``default_params``.

        Returns:
            A picture, of the same size for every state.
        """
        ...


Environment: TypeAlias = JaxEnvironment | GymnasiumEnvironment
"""An environment of either kind, as ``make_env`` returns it."""
