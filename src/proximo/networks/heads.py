"""From features to a distribution over actions, or to a value."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, Shaped

from proximo.config import NetworkConfig
from proximo.distributions import Categorical, Distribution, Gaussian
from proximo.errors import EnvError
from proximo.networks.layers import MLP, Linear
from proximo.spaces import Box, Discrete, Space


class Readout(eqx.Module):
    """Hidden layers and a last linear one."""

    hidden: MLP
    output: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, out_size: int, gain: float, config: NetworkConfig) -> Readout:
        """``gain`` scales the last layer's orthogonal weights."""
        key_hidden, key_output = jax.random.split(key)
        hidden = MLP.create(key_hidden, in_size, config.head_sizes, config.activation)
        return cls(hidden, Linear.create(key_output, (in_size, *config.head_sizes)[-1], out_size, gain))

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch out_size"]:
        return self.output(self.hidden(features))


class ActorHead(eqx.Module):
    """A family of distributions: its parameters from features, its noise, and the way of its samples into the space."""

    @abc.abstractmethod
    def __call__(self, features: Float[Array, "*batch features"]) -> Distribution:
        """The distribution at ``features``."""

    @abc.abstractmethod
    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> PyTree[Array]:
        """Noise for a batch of ``shape``, for ``Distribution.sample``."""

    @abc.abstractmethod
    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """What the environment receives for a sampled ``action``."""


class CategoricalHead(ActorHead):
    """Logits from a readout."""

    readout: Readout
    n: int = eqx.field(static=True)

    def __call__(self, features: Float[Array, "*batch features"]) -> Categorical:
        return Categorical(self.readout(features))

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch n"]:
        return Categorical.noise(key, shape, self.n)

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        return action


class GaussianHead(ActorHead):
    """Means from a readout, a standard deviation for each component that does not depend on the observation.

    The sample lives in -1 … 1 where the space is bounded on both sides and is clipped, or squashed by tanh, and then
    scaled to the bounds. The clipped or squashed value is never stored: the ratio of probabilities is that of the
    samples (for tanh the Jacobian cancels in it; the entropy is that of the Gaussian).
    """

    readout: Readout
    log_std: Float[Array, " n"]
    space: Box = eqx.field(static=True)
    mapping: str = eqx.field(static=True)

    def __call__(self, features: Float[Array, "*batch features"]) -> Gaussian:
        return Gaussian(self.readout(features), self.log_std)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch n"]:
        return Gaussian.noise(key, shape, self.space.size)

    def to_space(self, action: Float[Array, "*batch n"]) -> Float[Array, "..."]:
        action = action.reshape((*action.shape[:-1], *self.space.shape))
        low, high = self.space.bounds()
        bounded = np.isfinite(low) & np.isfinite(high)
        unit = jnp.tanh(action) if self.mapping == "tanh" else jnp.clip(action, -1.0, 1.0)
        half_range = np.where(bounded, np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0), 1.0) / 2
        middle = np.where(bounded, np.where(bounded, low, 0.0) + half_range, 0.0)
        scaled = middle.astype(np.float32) + half_range.astype(np.float32) * unit
        return jnp.where(bounded, scaled, jnp.clip(action, low.astype(np.float32), high.astype(np.float32)))


def make_actor(key: Key[Array, ""], in_size: int, space: Space, config: NetworkConfig) -> ActorHead:
    """The head for actions of ``space``. Raises ``EnvError`` when no family serves it."""
    if isinstance(space, Discrete):
        return CategoricalHead(Readout.create(key, in_size, space.n, 0.01, config), space.n)
    if not np.issubdtype(np.dtype(space.dtype), np.floating):
        raise EnvError(f"The action space {space} is not supported: expected Discrete, or Box of floating-point numbers.")
    readout = Readout.create(key, in_size, space.size, 0.01, config)
    return GaussianHead(readout, jnp.full(space.size, config.log_std_init), space, config.action_mapping)
