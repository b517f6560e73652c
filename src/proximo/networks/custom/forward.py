"""A function ``forward(x) -> (distribution, value)`` of N observations as the networks of a policy, for classes of other libraries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

from proximo import distributions
from proximo.config import NetworkConfig
from proximo.config.custom import Custom
from proximo.custom_code import custom_code_errors
from proximo.distributions import Distribution, Gaussian, StateDependentGaussian, TanhGaussian
from proximo.errors import ConfigError
from proximo.networks.custom.module import CustomModule, describe_shape, is_array
from proximo.networks.custom.networks import PassThrough
from proximo.networks.heads import ActorHead, BernoulliHead, BetaHead, CategoricalHead, GaussianHead, ProductHead
from proximo.networks.layers import MLP
from proximo.networks.recurrent.protocol import NoMemory
from proximo.networks.torso import Method, Torso
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary, MultiDiscrete, Space, flatdim, zeros
from proximo.types import Memory, Observation

EXAMPLES = 3
FAMILIES: dict[type[Distribution], tuple[type, type[ActorHead[Any]]]] = {
    distributions.ProductCategorical: (MultiDiscrete, ProductHead),
    distributions.Categorical: (Discrete, CategoricalHead),
    distributions.Bernoulli: (MultiBinary, BernoulliHead),
    distributions.Beta: (Box, BetaHead),
    Gaussian: (Box, GaussianHead),
}
"""The kind of actions of each family of distributions, and the head that draws its noise."""


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """The value of ``actor_critic`` that calls a function with stacked observations instead of vmapping it."""

    modules: dict[str, CustomModule]
    """What is trained."""
    forward: Callable[[dict[str, CustomModule], Observation], Any]
    """``forward(modules, x[N ...]) -> (distribution, value[N])``."""
    predict: Callable[[Any, Any, bool], np.ndarray] | None
    """``predict(policy, x[N ...], deterministic) -> action[N ...]`` of an ``ActorCritic``: the actions of evaluations on Gymnasium environments,
    outside JAX. None: those of ``forward``."""
    sde_every: int
    """Steps for which a ``StateDependentGaussian`` keeps its noise."""

    @classmethod
    def of(cls, config: NetworkConfig) -> Forward | None:
        """The value of ``actor_critic`` if it is a ``Forward``."""
        value = config.actor_critic
        return value.value if isinstance(value, Custom) and isinstance(value.value, cls) else None


class ForwardTorso(Torso):
    """Calls ``forward``. Its features are the distribution and the value."""

    modules: dict[str, CustomModule]
    given: Forward = eqx.field(static=True)

    def run(
        self, method: Method, memory: Memory, x: Observation, episode_start: Bool[Array, "..."], valid: Bool[Array, "..."]
    ) -> tuple[Memory, Any]:
        lead = episode_start.shape
        ndim = len(lead)
        flat = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[ndim:])), x)
        distribution, value = self.given.forward(self.modules, flat)
        if isinstance(distribution, Gaussian):
            log_std = jnp.broadcast_to(distribution.log_std, distribution.mean.shape)
            distribution = dataclasses.replace(distribution, log_std=log_std)

        def with_lead(path: tuple[Any, ...], y: Array) -> Array:
            is_shared = getattr(path[-1], "name", "") == "matrix_log_std"  # of StateDependentGaussian: for all observations
            return y if is_shared else y.reshape((*lead, *y.shape[1:]))

        return memory, jax.tree_util.tree_map_with_path(with_lead, (distribution, value))


class ForwardValue(eqx.Module):
    """The critic: the value that ``forward`` has computed."""

    def __call__(self, features: Any) -> Float[Array, "*batch 1"]:
        return features[1][..., None]


class ForwardHead(ActorHead[ActionSpace]):
    """The head for a distribution that ``forward`` has made. It does not support action masks."""

    family: type[ActorHead[Any]] = eqx.field(static=True)
    """The head that draws the noise."""
    mapping: str = eqx.field(static=True)
    """Of a Gaussian: ``tanh``, or ``clip`` for samples that are actions of the environment, and are only clipped."""
    matrices: tuple[int, int, int] | None = eqx.field(static=True)
    """For ``StateDependentGaussian``: steps for which the noise is kept, features, components."""

    def __call__(self, features: Any, mask: None) -> Distribution:
        return features[0]

    @property
    def _head(self) -> ActorHead[Any]:
        options: tuple[Any, ...] = (jnp.zeros(flatdim(self.space)), self.mapping) if self.mapping else ()
        return self.family(ForwardValue(), self.space, *options)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> PyTree[Array]:
        return StateDependentGaussian.matrices(key, shape, *self.matrices) if self.matrices else self._head.noise(key, shape)

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        return (super() if self.mapping == "clip" else self._head).to_space(action)

    def from_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        return (super() if self.mapping == "clip" else self._head).from_space(action)


def make_forward_parts(given: Forward, space: Space, action_space: ActionSpace) -> tuple[ForwardTorso, ForwardHead]:
    """The torso and the actor head of ``given``; ``ForwardValue`` is the critic.

    Raises:
        ConfigError: ``forward`` raises, or returns anything else than a distribution of ``action_space`` and a vector of values.
    """
    x = jax.tree.map(jnp.asarray, zeros(space, (EXAMPLES,)))
    with custom_code_errors("forward(x)", ConfigError):
        out = jax.eval_shape(lambda modules: given.forward(modules, x), given.modules)
    distribution, value = out if isinstance(out, tuple) and len(out) == 2 else (None, None)
    kind, family = next((FAMILIES[family] for family in FAMILIES if isinstance(distribution, family)), (None, None))
    if kind is None or family is None or not isinstance(action_space, kind):
        fitting = " or ".join(family.__name__ for family, (of, _) in FAMILIES.items() if isinstance(action_space, of))
        got = describe_shape(out) if distribution is None else type(distribution).__name__
        raise ConfigError(
            f"forward(x) returns {got}: expected (distribution, value) with a {fitting} for the actions {action_space}."
        )
    if value is None or not is_array(value, floating=True) or value.shape != (EXAMPLES,):
        raise ConfigError(
            f"forward(x) returns the value {describe_shape(value)} for {EXAMPLES} observations: expected one floating-point number for each, as "
            "from self.critic(x).flatten()."
        )
    sizes = (action_space.n,) if isinstance(action_space, Discrete) else (action_space.size,)
    sizes += (max(action_space.nvec),) if isinstance(action_space, MultiDiscrete) else ()
    if (shape := jax.tree.leaves(distribution)[0].shape) != (EXAMPLES, *sizes):
        raise ConfigError(
            f"forward(x) returns {type(distribution).__name__} with parameters of shape {shape} for {EXAMPLES} observations: expected "
            f"{(EXAMPLES, *sizes)} for the actions {action_space}."
        )
    mapping = "tanh" if isinstance(distribution, TanhGaussian) else "clip" if isinstance(distribution, Gaussian) else ""
    matrix = distribution.matrix_log_std.shape if isinstance(distribution, StateDependentGaussian) else None
    matrices = None if matrix is None else (given.sde_every, matrix[0], matrix[1])
    head = ForwardHead(ForwardValue(), action_space, family, mapping, matrices)
    return ForwardTorso(PassThrough(space), NoMemory(), MLP.empty(), "float32", given.modules, given), head
