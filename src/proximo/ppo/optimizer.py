"""The optimizer: Adam, with decoupled weight decay and a learning rate for the critic where they are set; or custom optimizers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from proximo.config.custom import is_transformation
from proximo.errors import ConfigError
from proximo.math.across_devices import mean_of_devices
from proximo.networks import ActorCritic
from proximo.ppo.adaptive import learning_rate
from proximo.ppo.state import LearnerState
from proximo.types import Metrics


class Learned(NamedTuple):
    """What gradient steps change: the trainable parameters, and the state of the optimizer."""

    parameters: Float[Array, " P"]
    optimizer_state: PyTree


class Optimizer:
    """Takes gradient steps on the policy of a learner.

    The trainable parameters are one vector, on which Adam is faster than on many small arrays
    (docs/decisions/0015-flat-parameters.md).
    """

    def __init__(self, state: LearnerState):
        trainable, self._constants = split_policy(state.policy)
        parameters, self._unflatten = ravel_pytree(trainable)
        self._state = state
        self.start = Learned(parameters, state.optimizer)

    def init(self) -> PyTree:
        """The state of the optimizer before the first update."""
        return gradient_transformation(self._state).init(self.start.parameters)

    def policy(self, learned: Learned) -> ActorCritic:
        """The policy with the parameters of ``learned``."""
        return eqx.combine(self._unflatten(learned.parameters), self._constants)

    def step(self, learned: Learned, loss: Callable[[ActorCritic], tuple[Float[Array, ""], Metrics]]) -> tuple[Learned, Metrics]:
        """One step along the gradient of ``loss``. Its metrics get ``grad_norm``, before the gradient is clipped."""
        gradient_of = jax.value_and_grad(lambda p: loss(self.policy(learned._replace(parameters=p))), has_aux=True)
        (_, metrics), part = gradient_of(learned.parameters)
        gradient = mean_of_devices(part)
        updates, optimizer_state = gradient_transformation(self._state).update(
            gradient, learned.optimizer_state, learned.parameters
        )
        stepped = Learned(jax.tree.map(jnp.add, learned.parameters, updates), optimizer_state)
        return stepped, metrics | {"grad_norm": jnp.linalg.norm(gradient)}


def gradient_transformation(state: LearnerState) -> optax.GradientTransformation:
    """From the gradient to the change of the parameters: clipping, then Adam or a custom optimizer."""
    static = state.static
    are_words = isinstance(static.optimizer, str) and isinstance(static.critic_optimizer, str)
    return optax.chain(clipping(state), adam(state) if are_words else custom_optimizers(state))


def clipping(state: LearnerState) -> optax.GradientTransformation:
    """Scales a gradient down to the norm ``max_grad_norm``; the critic's part separately with ``critic_max_grad_norm``."""
    h = state.enabled_hyperparameters
    clip = optax.clip_by_global_norm(h.max_grad_norm)
    if h.critic_max_grad_norm is None:
        return clip
    clip_critic, is_critic = optax.clip_by_global_norm(h.critic_max_grad_norm), _as_vector(critic_mask, state.policy)

    def clip_parts(gradient: Any, _: Any = None) -> Any:
        policy, _ = clip.update(jnp.where(is_critic, 0.0, gradient), optax.EmptyState())
        critic, _ = clip_critic.update(jnp.where(is_critic, gradient, 0.0), optax.EmptyState())
        return jax.tree.map(jnp.add, policy, critic)

    return optax.stateless(clip_parts)


def adam(state: LearnerState) -> optax.GradientTransformation:
    """Adam, then weight decay, then the learning rate. Each acts on every parameter alone, so policy and value share one Adam.

    Weight decay is decoupled: it does not enter Adam's moments (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).
    Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1.
    """
    h, static, rate, decay = state.enabled_hyperparameters, state.static, learning_rate(state), optax.identity()
    if h.critic_learning_rate is not None:
        rate = jnp.where(_as_vector(critic_mask, state.policy), critic_learning_rate(state), rate)
    words = [static.optimizer, static.optimizer if static.critic_optimizer == "same" else static.critic_optimizer]
    if "adamw" in words:
        decayed = _as_vector(weight_mask, state.policy)
        if words[0] != words[1]:
            decayed = decayed & (_as_vector(critic_mask, state.policy) == (words[1] == "adamw"))

        def decayed_weights(updates: Any, parameters: Any) -> Any:
            # Not a factor of 0 for the others: a constant of a custom network may be infinite.
            return updates + jnp.where(decayed, h.weight_decay * parameters, 0.0)

        decay = optax.stateless(decayed_weights)
    return optax.chain(scale_by_adam(state), decay, optax.scale(-rate))


def scale_by_adam(state: LearnerState) -> optax.GradientTransformation:
    """Adam without its learning rate."""
    return optax.scale_by_adam(state.static.b1, state.static.b2, state.static.eps)


def custom_optimizers(state: LearnerState) -> optax.GradientTransformation:
    """The optimizers of policy and value, one of them custom. They get each parameter in its own shape."""
    static, (trainable, _) = state.static, split_policy(state.policy)
    parts: dict[Hashable, optax.GradientTransformation] = {"policy": part_optimizer("optimizer", state, learning_rate(state))}
    if static.critic_optimizer != "same":
        parts["critic"] = part_optimizer("critic_optimizer", state, critic_learning_rate(state))
    elif state.enabled_hyperparameters.critic_learning_rate is not None:
        parts["critic"] = part_optimizer("optimizer", state, critic_learning_rate(state))
    else:
        return on_vector(parts["policy"], trainable)
    labels = jax.tree.map(lambda is_critic: "critic" if is_critic else "policy", critic_mask(trainable))
    return on_vector(optax.partition(parts, labels), trainable)


def part_optimizer(setting: str, state: LearnerState, rate: Float[Array, ""]) -> optax.GradientTransformation:
    """The optimizer of policy or value that ``setting`` gives, with the learning rate ``rate``."""
    optimizer = getattr(state.static, setting)
    if isinstance(optimizer, str):
        weight_decay = state.hyperparameters.weight_decay
        decay = optax.add_decayed_weights(weight_decay, weight_mask) if optimizer == "adamw" else optax.identity()
        return optax.chain(scale_by_adam(state), decay, optax.scale(-rate))
    made = optimizer if is_transformation(optimizer) else optimizer(rate)
    if not is_transformation(made):
        raise ConfigError(f"{setting}: the function returns {type(made).__name__}, expected an optax transformation.")
    return made


def on_vector(transformation: optax.GradientTransformation, tree: PyTree) -> optax.GradientTransformation:
    """``transformation`` of trees like ``tree`` for vectors that contain all their parameters."""
    _, unflatten = ravel_pytree(tree)

    def update(gradient: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        updates, state = transformation.update(unflatten(gradient), state, unflatten(parameters))
        return ravel_pytree(updates)[0], state

    return optax.GradientTransformation(lambda parameters: transformation.init(unflatten(parameters)), update)  # pyright: ignore[reportArgumentType]


def critic_learning_rate(state: LearnerState) -> Float[Array, ""]:
    """The current learning rate of the parameters that only the value uses."""
    schedule = state.enabled_hyperparameters.critic_learning_rate
    return learning_rate(state) if schedule is None else schedule(state.progress)


def split_policy(policy: ActorCritic) -> tuple[PyTree, PyTree]:
    """The trainable parameters of a policy, and the rest (statistics of the normalizer, static parts).

    Both are trees like ``policy``, with None in the place of the other part. ``equinox.combine`` joins them.
    """
    trainable = jax.tree.map(eqx.is_inexact_array, policy)
    trainable = dataclasses.replace(trainable, normalizer=jax.tree.map(lambda _: False, policy.normalizer))
    return eqx.partition(policy, trainable)


def critic_mask(trainable: ActorCritic) -> PyTree[bool]:
    """Mark the parameters that only the value uses: the critic, and with separate towers the second torso."""
    others = jax.tree.map(lambda _: False, trainable)
    critic = jax.tree.map(lambda _: True, (trainable.critic, trainable.torsos[1:]))
    return dataclasses.replace(others, critic=critic[0], torsos=(*others.torsos[:1], *critic[1]))


def weight_mask(trainable: PyTree[Array]) -> PyTree[bool]:
    """Mark the parameters that ``weight_decay`` decays: weight matrices and convolution kernels.

    These are the arrays of two or more axes whose name begins with ``weight`` or ``kernel`` (in Flax, Equinox and
    proximo). Zero is not a neutral value for others, such as biases and the eigenvalues of an LRU.
    """

    def is_weight_matrix(path: tuple[Any, ...], parameter: Array) -> bool:
        # The last two names: an nnx parameter is an attribute of its variable.
        names = [str(getattr(key, "name", getattr(key, "key", ""))) for key in path[-2:]]
        return parameter.ndim >= 2 and any(name.startswith(("weight", "kernel")) for name in names)

    return jax.tree_util.tree_map_with_path(is_weight_matrix, trainable)


def _as_vector(mask: Callable[[PyTree], PyTree[bool]], policy: ActorCritic) -> Bool[Array, " P"]:
    """The mask for each number of the vector of parameters."""
    trainable, _ = split_policy(policy)
    return ravel_pytree(jax.tree.map(lambda x, marked: jnp.full(x.shape, marked), trainable, mask(trainable)))[0]
