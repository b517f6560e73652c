"""A function ``forward(x) -> (distribution, value)`` of N observations as the networks of a policy, for classes of other libraries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, Shaped

from proximo.config import Config, NetworkConfig
from proximo.config.custom import Custom
from proximo.custom_code import custom_code_errors
from proximo.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Distribution,
    Gaussian,
    ProductCategorical,
    StateDependentGaussian,
    TanhGaussian,
)
from proximo.errors import ConfigError
from proximo.networks.custom.module import CustomModule, describe_shape, is_array
from proximo.networks.heads import ActorHead, BernoulliHead, BetaHead, CategoricalHead, GaussianHead, ProductHead
from proximo.networks.recurrent.protocol import NoMemory
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary, MultiDiscrete, Space, zeros
from proximo.types import Observation

EXAMPLES = 3
"""Number of observations for which ``forward`` is called to find the shapes of its results."""


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """The value of ``actor_critic`` that calls a function with stacked observations instead of vmapping it."""

    modules: dict[str, CustomModule]
    """What is trained."""
    forward: Callable[[dict[str, Any], Observation], tuple[Distribution, Array]]
    """``forward(modules, x[N ...]) -> (distribution, value[N])``, with the user's objects."""
    predict: Callable[[Any, Any, bool], np.ndarray] | None
    """``predict(policy, x[N ...], deterministic) -> action[N ...]`` of an ``ActorCritic``: the actions of evaluations on Gymnasium environments,
    outside JAX. None: those of ``forward``."""
    sde_every: int
    """Steps for which a ``StateDependentGaussian`` keeps its noise."""


class ForwardNetwork(eqx.Module):
    """Takes the place of the encoder. Its features are the distribution and the value."""

    modules: dict[str, CustomModule]
    given: Forward = eqx.field(static=True)
    space: Space = eqx.field(static=True)

    def __call__(self, x: Observation) -> tuple[Distribution, Float[Array, "*batch"]]:
        ndim = jax.tree.leaves(x)[0].ndim - jax.tree.leaves(zeros(self.space, ()))[0].ndim
        lead = jax.tree.leaves(x)[0].shape[:ndim]
        flat = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[ndim:])), x)
        distribution, value = self.given.forward(objects(self.modules), flat)
        if isinstance(distribution, Gaussian):
            distribution = dataclasses.replace(distribution, log_std=jnp.broadcast_to(distribution.log_std, distribution.mean.shape))
        shared: dict[str, Any] = {}  # has no leading axis
        if isinstance(distribution, StateDependentGaussian):
            shared = {"matrix_log_std": distribution.matrix_log_std}
            distribution = dataclasses.replace(distribution, matrix_log_std=value)
        distribution, value = jax.tree.map(lambda y: y.reshape((*lead, *y.shape[1:])), (distribution, value))
        return dataclasses.replace(distribution, **shared), value


class ForwardHead(ActorHead[ActionSpace]):
    """The head for a distribution that ``forward`` has made. It does not support action masks."""

    family: ActorHead
    """Draws the noise, and maps samples to the space."""
    sde: tuple[int, int, int] | None = eqx.field(static=True)
    """For ``StateDependentGaussian``: steps for which the noise is kept, features, components."""

    def __call__(self, features: Any, mask: None) -> Distribution:
        return features[0]

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> PyTree[Array]:
        return self.family.noise(key, shape) if self.sde is None else StateDependentGaussian.matrices(key, shape, *self.sde)

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        return (self.family if self._is_scaled else super()).to_space(action)

    def from_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        return (self.family if self._is_scaled else super()).from_space(action)

    def features(self, action: Shaped[Array, "..."]) -> Float[Array, "*batch n"]:
        return self.family.features(action)

    @property
    def _is_scaled(self) -> bool:
        """Whether samples are scaled to the bounds. Those of a Gaussian are actions of the environment, which are only clipped."""
        return not isinstance(self.family, GaussianHead) or self.family.mapping == "tanh"


class ForwardValue(eqx.Module):
    """The critic: the value that ``forward`` has computed."""

    def __call__(self, features: Any) -> Float[Array, "*batch 1"]:
        return features[1][..., None]


FAMILIES: dict[type[Distribution], tuple[type, Callable[[Any], ActorHead]]] = {
    Categorical: (Discrete, lambda space: CategoricalHead(ForwardValue(), space)),
    ProductCategorical: (MultiDiscrete, lambda space: ProductHead(ForwardValue(), space)),
    Bernoulli: (MultiBinary, lambda space: BernoulliHead(ForwardValue(), space)),
    Beta: (Box, lambda space: BetaHead(ForwardValue(), space)),
    TanhGaussian: (Box, lambda space: GaussianHead(ForwardValue(), space, None, "tanh")),  # pyright: ignore[reportArgumentType]
    Gaussian: (Box, lambda space: GaussianHead(ForwardValue(), space, None, "clip")),  # pyright: ignore[reportArgumentType]
}
"""The kind of actions of each family of distributions, and its head."""




def objects(modules: dict[str, CustomModule]) -> dict[str, Any]:
    """The user's objects with the current parameters."""
    return {name: custom.module for name, custom in modules.items()}


def forward_of(config: NetworkConfig) -> Forward | None:
    """The ``Forward`` of the settings, if their networks are one."""
    value = config.actor_critic
    return value.value if isinstance(value, Custom) and isinstance(value.value, Forward) else None


def custom_predict(config: Config) -> Callable[[Any, Any, bool], np.ndarray] | None:
    """``Forward.predict`` of the settings, if they have one."""
    given = forward_of(config.network)
    return None if given is None else given.predict


def make_forward_parts(given: Forward, space: Space, action_space: ActionSpace) -> tuple[ForwardNetwork, NoMemory, ForwardHead]:
    """The encoder, the memory and the actor head of ``given``; ``ForwardValue`` is the critic.

    Raises:
        ConfigError: ``forward`` raises, or returns anything else than a distribution for ``action_space`` and a vector of values.
    """
    x = jax.tree.map(jnp.asarray, zeros(space, (EXAMPLES,)))
    with custom_code_errors("forward(x)", ConfigError):
        out = jax.eval_shape(lambda modules: given.forward(objects(modules), x), given.modules)
    if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[0], Distribution):
        raise ConfigError(
            f"forward(x) returns {describe_shape(out)}: expected (distribution, value) with a distribution of proximo.distributions, "
            "such as Categorical(logits)."
        )
    distribution, value = out
    if not is_array(value, floating=True) or value.shape != (EXAMPLES,):
        raise ConfigError(
            f"forward(x) returns the value {describe_shape(value)} for {EXAMPLES} observations: expected one floating-point number for each, as "
            "self.critic(x).flatten() gives them."
        )
    kind, make = next((FAMILIES[family] for family in FAMILIES if isinstance(distribution, family)), (None, None))
    name = type(distribution).__name__
    if make is None or not isinstance(action_space, kind):
        fitting = ", ".join(family.__name__ for family, (space, _) in FAMILIES.items() if isinstance(action_space, space))
        raise ConfigError(f"forward(x) returns {name}, but the actions are {action_space}: expected {fitting}.")
    sde = None
    if isinstance(distribution, StateDependentGaussian):
        sde = (given.sde_every, *distribution.matrix_log_std.shape)
    network, head = ForwardNetwork(given.modules, given, space), ForwardHead(ForwardValue(), action_space, make(action_space), sde)
    sizes = (action_space.n,) if isinstance(action_space, Discrete) else (action_space.size,)
    if isinstance(action_space, MultiDiscrete):
        sizes = (action_space.size, max(action_space.nvec))
    shape = jax.tree.leaves(distribution)[0].shape
    with custom_code_errors(f"The distribution that forward(x) returns, {name},", ConfigError):
        log_prob = jax.eval_shape(lambda network: network(x)[0].log_prob(network(x)[0].mode()), network)
    if shape != (EXAMPLES, *sizes) or log_prob.shape != (EXAMPLES,):
        raise ConfigError(
            f"forward(x) returns {name} with parameters of shape {shape} for {EXAMPLES} observations: expected {(EXAMPLES, *sizes)}, for "
            f"the actions {action_space}."
        )
    return network, NoMemory(), head
