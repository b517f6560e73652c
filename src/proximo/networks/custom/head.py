"""A custom family of action distributions, written for one action and vmapped over time and environments."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped, UInt32

from proximo.config.custom import Custom
from proximo.distributions import Distribution
from proximo.errors import ConfigError
from proximo.networks.custom.module import CustomModule, describe_shape, is_array, make_module, output_shape, vmap_leading
from proximo.networks.heads import ActorHead, one_hot
from proximo.signatures import is_integer
from proximo.spaces import ActionSpace, Box, MultiBinary, components

METHODS = ("sample", "mode", "log_prob", "entropy", "to_space")


class CustomDistribution(Distribution):
    """A batch of distributions of a custom family.

    The family has ``sample(parameters, key)``, ``mode(parameters)``, ``log_prob(parameters, action)`` and ``entropy(parameters)`` for one
    action.
    """

    parameters: Float[Array, "*batch parameters"]
    family: CustomModule

    def sample(self, noise: UInt32[Array, "*batch 2"]) -> Shaped[Array, "..."]:
        """An action for each distribution; ``noise`` contains the data of one random key for each."""

        def sample_one(parameters: Array, data: Array) -> Array:
            return self.family.module.sample(parameters, jax.random.wrap_key_data(data, impl="threefry2x32"))

        return self._each(sample_one, noise)

    def mode(self) -> Shaped[Array, "..."]:
        return self._each(self.family.module.mode)

    def log_prob(self, action: Shaped[Array, "..."]) -> Float[Array, "*batch"]:
        return self._each(self.family.module.log_prob, action)

    def entropy(self) -> Float[Array, "*batch"]:
        return self._each(self.family.module.entropy)

    def _each(self, function: Callable[..., Array], *arrays: Array) -> Array:
        return vmap_leading(function, self.parameters.ndim - 1, self.parameters, *arrays)


class CustomHead(ActorHead[ActionSpace]):
    """Reads the parameters from a readout and samples from a custom family. It does not support action masks."""

    family: CustomModule
    action_ndim: int = eqx.field(static=True)
    """Number of axes of one sampled action."""

    def __call__(self, features: Float[Array, "*batch features"], mask: None) -> CustomDistribution:
        return CustomDistribution(self.readout(features), self.family)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "*batch 2"]:
        return jax.random.bits(key, (*shape, 2), "uint32")

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        return vmap_leading(self.family.module.to_space, action.ndim - self.action_ndim, action)

    def from_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """Raises ``ConfigError`` if the family has no method ``from_space``."""
        if not hasattr(self.family.module, "from_space"):
            raise ConfigError(
                "distribution: the custom distribution has no method from_space(action): add it, the inverse of to_space, to learn from "
                "demonstrations."
            )
        return vmap_leading(self.family.module.from_space, action.ndim - len(self.space.shape), action)

    def features(self, action: Shaped[Array, "..."]) -> Float[Array, "*batch n"]:
        lead = action.shape[: action.ndim - self.action_ndim]
        taken = self.to_space(action).reshape((*lead, -1))
        if isinstance(self.space, Box | MultiBinary):
            return taken.astype(float)
        nvec, start = components(self.space)
        return one_hot(taken - np.array(start), nvec)


def make_family(value: str | Custom, space: ActionSpace) -> tuple[CustomModule, int, int]:
    """Make the custom family of a ``distribution`` setting.

    Returns:
        The family, the number of its parameters, and the number of axes of one sampled action.

    Raises:
        ConfigError: It cannot be made, or a method returns the wrong shape or type.
    """
    family = make_module("distribution", value, METHODS, space)
    count = getattr(family.module, "num_parameters", None)
    if not is_integer(count) or count < 1:
        raise ConfigError(
            f"distribution = {value}: num_parameters is {count!r}: expected the number of outputs of the actor, 1 or more."
        )
    count = int(count)
    parameters = jax.ShapeDtypeStruct((count,), jnp.float32)
    key = jax.eval_shape(jax.random.key, 0)
    sampled = output_shape(family, "sample(parameters, key)", "sample", parameters, key)
    mode = output_shape(family, "mode(parameters)", "mode", parameters)
    if not is_array(sampled) or describe_shape(sampled) != describe_shape(mode):
        raise ConfigError(
            f"distribution: sample gives {describe_shape(sampled)} and mode {describe_shape(mode)}: expected one array of the same shape and "
            "type from both."
        )
    for name, arguments in (("log_prob", (parameters, sampled)), ("entropy", (parameters,))):
        shape = output_shape(family, name, name, *arguments)
        if not is_array(shape, floating=True) or shape.shape:
            raise ConfigError(
                f"distribution: {name} gives {describe_shape(shape)}, expected one floating-point number, summed over the components."
            )
    taken = output_shape(family, "to_space(action)", "to_space", sampled)
    if not is_array(taken) or taken.shape != space.shape:
        raise ConfigError(
            f"distribution: to_space gives {describe_shape(taken)}, expected an action of {space}, of shape {space.shape}."
        )
    return family, count, len(sampled.shape)
