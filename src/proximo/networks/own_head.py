"""A family of distributions of the user's, given for one action: vmapped here over rows and environments."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped, UInt32

from proximo.distributions import Distribution
from proximo.errors import ConfigError
from proximo.networks.heads import ActorHead, ToNumbers
from proximo.networks.own import Held, described, make, over_rows, shape_of
from proximo.own_code import Own
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary

METHODS = ("sample", "mode", "log_prob", "entropy", "to_space")


class OwnDistribution(Distribution):
    """``family.sample(parameters, key)``, ``mode(parameters)``, ``log_prob(parameters, action)``, ``entropy(parameters)``, row by row."""

    parameters: Float[Array, "*batch parameters"]
    family: Held

    def sample(self, noise: UInt32[Array, "*batch 2"]) -> Shaped[Array, "..."]:
        """``noise`` is the data of a key for each row."""

        def one(parameters: Array, data: Array) -> Array:
            return self.family.module.sample(parameters, jax.random.wrap_key_data(data, impl="threefry2x32"))

        return over_rows(one, self._ndim, self.parameters, noise)

    def mode(self) -> Shaped[Array, "..."]:
        return over_rows(self.family.module.mode, self._ndim, self.parameters)

    def log_prob(self, action: Shaped[Array, "..."]) -> Float[Array, "*batch"]:
        return over_rows(self.family.module.log_prob, self._ndim, self.parameters, action)

    def entropy(self) -> Float[Array, "*batch"]:
        return over_rows(self.family.module.entropy, self._ndim, self.parameters)

    @property
    def _ndim(self) -> int:
        return self.parameters.ndim - 1


class OwnHead(ActorHead):
    """Parameters from a readout, all else from a family of the user's."""

    readout: ToNumbers
    family: Held
    space: ActionSpace = eqx.field(static=True)
    action_ndim: int = eqx.field(static=True)

    @property
    def mask_size(self) -> int:
        return 0

    @property
    def num_parameters(self) -> int:
        """Numbers that the family takes for one action."""
        return int(self.family.module.num_parameters)

    def __call__(self, features: Float[Array, "*batch features"], mask: None) -> OwnDistribution:
        return OwnDistribution(self.readout(features), self.family)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "*batch 2"]:
        return jax.random.bits(key, (*shape, 2), "uint32")

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        return over_rows(self.family.module.to_space, action.ndim - self.action_ndim, action)

    def features(self, action: Shaped[Array, "..."]) -> Float[Array, "*batch n"]:
        lead = action.shape[: action.ndim - self.action_ndim]
        taken = self.to_space(action).reshape((*lead, -1))
        if isinstance(self.space, Box | MultiBinary):
            return taken.astype(float)
        nvec, start = (
            ((self.space.n,), (self.space.start,)) if isinstance(self.space, Discrete) else (self.space.nvec, self.space.start)
        )
        return jnp.concatenate([jax.nn.one_hot(taken[..., i] - start[i], n) for i, n in enumerate(nvec)], axis=-1)


def make_family(value: str | Own, space: ActionSpace) -> tuple[Held, int, int]:
    """The user's family for actions of ``space``, how many parameters it takes, and the axes of an action as it is sampled. Raises
    ``ConfigError`` where a method gives another shape than it must."""
    family = make("distribution", value, METHODS, space)
    count = getattr(family.module, "num_parameters", None)
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ConfigError(
            f"distribution = {value}: num_parameters is {count!r}: expected how many numbers the actor has to give."
        )
    count = int(count)
    parameters = jax.ShapeDtypeStruct((count,), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    sampled = shape_of(family, "sample(parameters, key)", lambda f, p, k: f.sample(p, k), parameters, key)
    mode = shape_of(family, "mode(parameters)", lambda f, p: f.mode(p), parameters)
    if not isinstance(sampled, jax.ShapeDtypeStruct) or described(sampled) != described(mode):
        raise ConfigError(
            f"distribution: sample gives {described(sampled)} and mode {described(mode)}: expected one array, alike in both."
        )
    for name, arguments in (("log_prob", (parameters, sampled)), ("entropy", (parameters,))):
        shape = shape_of(family, name, lambda f, *a, name=name: getattr(f, name)(*a), *arguments)
        if not isinstance(shape, jax.ShapeDtypeStruct) or shape.shape or not jnp.issubdtype(shape.dtype, jnp.floating):
            raise ConfigError(
                f"distribution: {name} gives {described(shape)}, expected one floating-point number: summed over the components."
            )
    taken = shape_of(family, "to_space(action)", lambda f, a: f.to_space(a), sampled)
    if not isinstance(taken, jax.ShapeDtypeStruct) or taken.shape != space.shape:
        raise ConfigError(
            f"distribution: to_space gives {described(taken)}, expected an action of {space}, of the shape {space.shape}."
        )
    return family, count, len(sampled.shape)
