"""A function ``forward(x) -> (distribution, value)`` of N observations, as the networks of a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from proximo.config import NetworkConfig
from proximo.config.custom import Custom
from proximo.custom_code import custom_code_errors
from proximo.distributions import Beta, Distribution, Gaussian, StateDependentGaussian, TanhGaussian
from proximo.errors import ConfigError
from proximo.networks.actor_critic import Method, Torso
from proximo.networks.custom.networks import CustomModule, CustomNetwork, describe_shape, is_array
from proximo.networks.heads import ActorHead, GaussianHead, Part, make_actor, num_parameters
from proximo.networks.recurrent.protocol import NoMemory
from proximo.spaces import LeafSpace, Space, zeros
from proximo.types import Memory, Observation

EXAMPLES = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """The value of ``actor_critic`` that calls a function with stacked observations."""

    modules: dict[str, CustomModule]
    """What is trained."""
    forward: Callable[[dict[str, CustomModule], Observation], Any]
    """``forward(modules, x[N ...]) -> (distribution, value[N])``."""
    predict: Callable[[Any, Any, bool], np.ndarray] | None
    """``predict(policy, x[N ...], deterministic) -> action[N ...]`` in evaluations on Gymnasium environments."""

    @classmethod
    def of(cls, config: NetworkConfig) -> Forward | None:
        """The value of ``actor_critic`` if it is a ``Forward``."""
        value = config.actor_critic
        return value.value if isinstance(value, Custom) and isinstance(value.value, cls) else None


class ForwardTorso(Torso):
    """Calls ``forward``, whose distribution and value are the features."""

    modules: dict[str, CustomModule]
    given: Forward = eqx.field(static=True)

    def run(
        self, method: Method, memory: Memory, x: Observation, episode_start: Array, valid: Array
    ) -> tuple[Memory, tuple[Distribution, Array]]:
        lead = episode_start.shape
        flat = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[len(lead) :])), x)
        distribution, value = self.given.forward(self.modules, flat)
        if isinstance(distribution, StateDependentGaussian):  # with noise that is drawn in each step, the same as this Gaussian
            distribution = Gaussian(distribution.mean, distribution.log_std)
        if isinstance(distribution, Gaussian):
            log_std = jnp.broadcast_to(distribution.log_std, distribution.mean.shape)
            distribution = dataclasses.replace(distribution, log_std=log_std)
        return memory, jax.tree.map(lambda y: y.reshape((*lead, *y.shape[1:])), (distribution, value[:, None]))


class ActionHead(GaussianHead):
    """A Gaussian whose samples are actions, which are only clipped to the bounds."""

    to_space, from_space = ActorHead.to_space, ActorHead.from_space


def make_forward_parts(given: Forward, space: Space, action_space: LeafSpace) -> tuple[tuple[Torso], ActorHead, Part]:
    """The torso, the actor head and the critic of ``given``. Raises ``ConfigError`` for another result of it."""
    with custom_code_errors("forward(x)", ConfigError):
        out = jax.eval_shape(given.forward, given.modules, jax.tree.map(jnp.asarray, zeros(space, (EXAMPLES,))))
    value: Any
    distribution, value = out if isinstance(out, tuple) and len(out) == 2 else (out, out)
    mapping = "tanh" if isinstance(distribution, TanhGaussian) else "clip"
    config = NetworkConfig(distribution="beta" if isinstance(distribution, Beta) else "auto", action_mapping=mapping)
    head = make_actor(Part(0), action_space, config)
    numbers = jax.ShapeDtypeStruct((EXAMPLES, num_parameters(action_space, config)), jnp.float32)
    expected = jax.eval_shape(lambda numbers: head.distribution(numbers, None), numbers)
    fits = isinstance(distribution, type(expected)) and is_array(value, floating=True) and value.shape == (EXAMPLES,)
    if not fits or jax.tree.leaves(distribution)[0].shape != jax.tree.leaves(expected)[0].shape:
        returned = " and ".join(map(describe_shape, out if isinstance(out, tuple) else (out,)))
        raise ConfigError(
            f"forward(x) returns {returned} for {EXAMPLES} observations: expected (distribution, value), a {describe_shape(expected)} for the "
            f"actions {action_space}, and ({EXAMPLES},) float32, as from self.critic(x).flatten()."
        )
    if isinstance(head, GaussianHead):  # without parameters: the standard deviation comes from forward
        kind = GaussianHead if mapping == "tanh" else ActionHead
        head = eqx.tree_at(lambda x: x.log_std, kind(Part(0), action_space, head.log_std, mapping), None)
    torso = ForwardTorso(CustomNetwork(space, None), NoMemory(), None, "float32", given.modules, given)
    return (torso,), head, Part(1)
