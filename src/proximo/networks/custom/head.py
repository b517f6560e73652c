"""A custom family of action distributions, written for one action and vmapped over time and environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped, UInt32

from proximo.config.custom import Custom
from proximo.distributions import Distribution
from proximo.networks.custom.module import CustomModule, describe_shape, is_array, make_module, vmap_leading
from proximo.networks.heads import ActorHead, one_hot
from proximo.signatures import is_integer
from proximo.spaces import ActionSpace, Box, MultiBinary, components

METHODS = ("sample", "mode", "log_prob", "entropy", "to_space")


class CustomDistribution(Distribution):
    """A batch of distributions of a custom family, whose methods are written for one action."""

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
    """Reads the parameters from a readout and samples from a custom family."""

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
        self.family.expect(
            hasattr(self.family.module, "from_space"),
            "it has no method from_space(action): add it, the inverse of to_space, to learn from demonstrations",
        )
        return vmap_leading(self.family.module.from_space, action.ndim - len(self.space.shape), action)

    def features(self, action: Shaped[Array, "..."]) -> Float[Array, "*batch n"]:
        taken = self.to_space(action)
        taken = taken.reshape((*action.shape[: action.ndim - self.action_ndim], -1))
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
    count: Any = getattr(family.module, "num_parameters", None)
    family.expect(is_integer(count) and count > 0, f"num_parameters is {count!r}: expected the number of outputs of the actor")
    parameters, key = jax.ShapeDtypeStruct((int(count),), jnp.float32), jax.eval_shape(jax.random.key, 0)
    sampled = family.outputs("sample(parameters, key)", "sample", parameters, key)
    given, mode = describe_shape(sampled), describe_shape(family.outputs("mode(parameters)", "mode", parameters))
    family.expect(
        is_array(sampled) and given == mode,
        f"sample gives {given} and mode {mode}: expected one array of the same shape and type from both",
    )
    for name, arguments in (("log_prob", (parameters, sampled)), ("entropy", (parameters,))):
        out = family.outputs(name, name, *arguments)
        family.expect(
            is_array(out, floating=True) and out.shape == (),
            f"{name} gives {describe_shape(out)}, expected one floating-point number, summed over the components",
        )
    taken = family.outputs("to_space(action)", "to_space", sampled)
    family.expect(
        is_array(taken) and taken.shape == space.shape,
        f"to_space gives {describe_shape(taken)}, expected an action of {space}, of shape {space.shape}",
    )
    return family, int(count), len(sampled.shape)
