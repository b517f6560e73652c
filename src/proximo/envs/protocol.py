"""What a JAX environment is: two pure functions and two spaces, no base class."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt8


@runtime_checkable
class JaxEnvironment(Protocol):
    """One environment, without autoreset and without a batch axis: proximo vectorises, resets, limits time and counts.

    ``default_params`` is a pytree of numbers that is passed to every call, traced; ``()`` where there are none.
    ``info["success"]`` (bool), where given, is read in an episode's last row. One that can be watched has ``render`` too (``Renders``).
    """

    observation_space: Any
    """A space of proximo, Gymnasium or gymnax: Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple. A Dict's entry
    ``action_mask`` says which actions are allowed."""
    action_space: Any
    """A space of proximo, Gymnasium or gymnax: Discrete, MultiDiscrete, MultiBinary, or Box of floating-point numbers."""
    default_params: PyTree

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, PyTree]:
        """``(state, observation)`` of a fresh episode."""
        ...

    def step(
        self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree
    ) -> tuple[PyTree, PyTree, Float[Array, ""], Bool[Array, ""], Bool[Array, ""], dict[str, Any]]:
        """``(state, observation, reward, terminated, truncated, info)``, the observation being that of the step even where
        the episode ends with it."""
        ...


@runtime_checkable
class Renders(Protocol):
    """The part of the protocol that may be left out: what `proximo watch` and clips of a training show."""

    def render(self, state: PyTree, params: PyTree) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of one state, of the same size every time. Called outside of compiled programs, with arrays of NumPy in the
        state; it may draw with whatever it likes. An attribute ``render_fps`` says how many a second are shown, else 30."""
        ...
