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
        has_inverse = hasattr(self.family.module, "from_space")
        self.family.expect(has_inverse, "it has no method from_space(action), the inverse of to_space: add it to pretrain")
        return vmap_leading(self.family.module.from_space, action.ndim - len(self.space.shape), action)

    def features(self, action: Shaped[Array, "..."]) -> Float[Array, "*batch n"]:
        taken = self.to_space(action)
        taken = taken.reshape((*action.shape[: action.ndim - self.action_ndim], -1))
        if isinstance(self.space, Box | MultiBinary):
            return taken.astype(float)
        nvec, start = components(self.space)
        return one_hot(taken - np.array(start), nvec)


def make_family(value: str | Custom, space: ActionSpace) -> tuple[CustomModule, int, int]:
    """The custom family of a ``distribution`` setting, the number of its parameters, and the number of axes
    of one sampled action.

    Raises ``ConfigError`` if it cannot be made, or if a method returns another shape.
    """
    family = make_module("distribution", value, METHODS, space)
    count: Any = getattr(family.module, "num_parameters", None)
    family.expect(is_integer(count) and count > 0, f"num_parameters is {count!r}: expected the number of outputs of the actor")
    parameters, key = jax.ShapeDtypeStruct((int(count),), jnp.float32), jax.eval_shape(jax.random.key, 0)
    action, mode = family.outputs("sample", "sample", parameters, key), family.outputs("mode", "mode", parameters)
    same = is_array(action) and describe_shape(action) == describe_shape(mode)
    family.expect(same, f"sample gives {describe_shape(action)} and mode {describe_shape(mode)}: expected the same from both")
    for name, arguments, shape in (
        ("log_prob", (parameters, action), ()),
        ("entropy", (parameters,), ()),
        ("to_space", (action,), space.shape),
    ):
        out = family.outputs(name, name, *arguments)
        fits = is_array(out, floating=name != "to_space") and out.shape == shape
        meaning = f"an action of {space}" if name == "to_space" else "one floating-point number, summed over the components"
        family.expect(fits, f"{name} gives {describe_shape(out)}, expected {meaning}, of shape {shape}")
    return family, int(count), len(action.shape)
