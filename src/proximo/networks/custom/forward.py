"""A function ``forward(x) -> (distribution, value)`` of N observations as the networks of a policy, for classes of other libraries."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from proximo.config import NetworkConfig
from proximo.config.custom import Custom
from proximo.custom_code import custom_code_errors
from proximo.distributions import Beta, Distribution, Gaussian, StateDependentGaussian, TanhGaussian
from proximo.errors import ConfigError
from proximo.networks.actor_critic import Method, Torso
from proximo.networks.custom.module import CustomModule, describe_shape, is_array
from proximo.networks.custom.networks import PassThrough
from proximo.networks.heads import ActorHead, GaussianHead, make_actor, num_parameters
from proximo.networks.layers import MLP
from proximo.networks.recurrent.protocol import NoMemory
from proximo.spaces import ActionSpace, Space, zeros
from proximo.types import Memory, Observation

EXAMPLES = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """The value of ``actor_critic`` that calls a function with stacked observations instead of vmapping it."""

    modules: dict[str, CustomModule]
    """What is trained."""
    forward: Callable[[dict[str, CustomModule], Observation], Any]
    """``forward(modules, x[N ...]) -> (distribution, value[N])``."""
    predict: Callable[[Any, Any, bool], np.ndarray] | None
    """``predict(policy, x[N ...], deterministic) -> action[N ...]`` of an ``ActorCritic``: the actions of
    evaluations on Gymnasium environments, outside JAX. None: those of ``forward``."""

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
        return memory, jax.tree.map(lambda y: y.reshape((*lead, *y.shape[1:])), (distribution, value))


class ForwardValue(eqx.Module):
    """The critic: the value that ``forward`` has computed."""

    def __call__(self, features: Any) -> Float[Array, "*batch 1"]:
        return features[1][..., None]


class ActionHead(GaussianHead):
    """A Gaussian whose samples are actions, which are only clipped to the bounds."""

    to_space, from_space = ActorHead.to_space, ActorHead.from_space


@functools.cache
def forward_head(built_in: type[ActorHead]) -> Callable[..., ActorHead]:
    """The head for a distribution that ``forward`` has made, with the noise and the actions of ``built_in``."""

    class ForwardHead(built_in):
        def __call__(self, features: Any, mask: None) -> Distribution:
            return features[0]

    return ForwardHead


def make_forward_parts(given: Forward, space: Space, action_space: ActionSpace) -> tuple[ForwardTorso, ActorHead]:
    """The torso and the actor head of ``given``; ``ForwardValue`` is the critic.

    Raises ``ConfigError`` if ``forward`` returns anything else than a distribution of ``action_space`` and a
    vector of values.
    """
    with custom_code_errors("forward(x)", ConfigError):
        out = jax.eval_shape(given.forward, given.modules, jax.tree.map(jnp.asarray, zeros(space, (EXAMPLES,))))
    distribution, value = out if isinstance(out, tuple) and len(out) == 2 else (out, None)
    mapping = "tanh" if isinstance(distribution, TanhGaussian) else "clip"
    config = NetworkConfig(distribution="beta" if isinstance(distribution, Beta) else "auto", action_mapping=mapping)
    head = make_actor(lambda parameters: parameters, action_space, config)
    expected = jax.eval_shape(lambda: head(jnp.zeros((EXAMPLES, num_parameters(action_space, config))), None))
    shapes = [jax.tree.leaves(made)[0].shape for made in (distribution, expected)]
    is_fitting = isinstance(distribution, type(expected)) and shapes[0] == shapes[1]
    if value is None or not is_fitting or not is_array(value, floating=True) or value.shape != (EXAMPLES,):
        returned = " and ".join(map(describe_shape, out if isinstance(out, tuple) else (out,)))
        raise ConfigError(
            f"forward(x) returns {returned} for {EXAMPLES} observations: expected (distribution, value), a {describe_shape(expected)} for the "
            f"actions {action_space}, and ({EXAMPLES},) float32, as from self.critic(x).flatten()."
        )
    torso = ForwardTorso(PassThrough(space), NoMemory(), MLP((), (), "identity"), "float32", given.modules, given)
    if not isinstance(head, GaussianHead):
        return torso, forward_head(type(head))(ForwardValue(), action_space)
    return torso, forward_head(GaussianHead if mapping == "tanh" else ActionHead)(ForwardValue(), action_space, None, mapping)
