"""The optimizer: Adam, with decoupled weight decay and a learning rate for the critic where they are set."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from proximo.math.schedules import scheduled
from proximo.networks import ActorCritic
from proximo.ppo.adaptive import learning_rate
from proximo.ppo.state import LearnerState


def make_optimizer(state: LearnerState) -> optax.GradientTransformation:
    """The optimizer of one update: clipping and Adam, then weight decay, then the learning rate.

    Weight decay is decoupled: it does not enter Adam's moments (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).

    Args:
        state: the learner, for its hyperparameters and its progress along their schedules.

    Returns:
        A transformation of gradients with respect to the vector of ``flatten_policy``.
    """
    h = state.enabled_hyperparameters
    rate, decay = learning_rate(state), optax.identity()
    if h.critic_learning_rate is not None:
        rate = jnp.where(_as_vector(is_critic_only, state.policy), scheduled(h.critic_learning_rate, state.progress), rate)
    if state.static.optimizer == "adamw":
        decay = optax.add_decayed_weights(h.weight_decay * _as_vector(is_weight, state.policy))
    return optax.chain(clipped_adam(h.max_grad_norm), decay, optax.scale(-rate))


def clipped_adam(max_grad_norm: Float[Array, ""]) -> optax.GradientTransformation:
    """Clipping to a global norm, then Adam with ε = 1e-5.

    Args:
        max_grad_norm: largest norm of the gradient of all parameters together.

    Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1.
    """
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam(eps=1e-5))


def flatten_policy(policy: ActorCritic) -> tuple[Float[Array, " P"], Callable[[Float[Array, " P"]], ActorCritic]]:
    """The trainable parameters as one vector, on which Adam is faster than on many small arrays (docs/decisions/0015-flat-parameters.md).

    Args:
        policy: a policy with ``P`` trainable numbers.

    Returns:
        The vector, and a function that returns ``policy`` with the parameters of another vector.
    """
    trainable, constants = split_policy(policy)
    vector, unflatten = ravel_pytree(trainable)
    return vector, lambda vector: eqx.combine(unflatten(vector), constants)


def split_policy(policy: ActorCritic) -> tuple[PyTree, PyTree]:
    """Split a policy into what gradients change and what they do not.

    Args:
        policy: the policy.

    Returns:
        Two trees like ``policy``: the trainable parameters, and the rest (statistics of the normalizer, static parts). Each has None
        in the place of the other. ``equinox.combine`` joins them.
    """
    trainable = jax.tree.map(eqx.is_inexact_array, policy)
    trainable = dataclasses.replace(trainable, normalizer=jax.tree.map(lambda _: False, policy.normalizer))
    return eqx.partition(policy, trainable)


def is_critic_only(trainable: ActorCritic) -> PyTree[bool]:
    """Mark the parameters that only the value uses: the critic's head and, with separate towers, the second torso."""
    others = jax.tree.map(lambda _: False, trainable)
    critic = jax.tree.map(lambda _: True, (trainable.critic, trainable.torsos[1:]))
    return dataclasses.replace(others, critic=critic[0], torsos=(*others.torsos[:1], *critic[1]))


def is_weight(trainable: PyTree[Array]) -> PyTree[bool]:
    """Mark the parameters that ``weight_decay`` decays: weight matrices and convolution kernels.

    These are the arrays of two or more axes whose name begins with ``weight`` or ``kernel`` (in Flax, Equinox and proximo). Biases,
    ``log_std``, normalization gains and the eigenvalues of an LRU are not decayed, because zero is not a neutral value for them.
    """

    def is_weight_matrix(path: tuple[Any, ...], parameter: Array) -> bool:
        # The last two names: an nnx parameter is an attribute of its variable.
        names = [str(getattr(key, "name", getattr(key, "key", ""))) for key in path[-2:]]
        return parameter.ndim >= 2 and any(name.startswith(("weight", "kernel")) for name in names)

    return jax.tree_util.tree_map_with_path(is_weight_matrix, trainable)


def _as_vector(mark: Callable[[PyTree], PyTree[bool]], policy: ActorCritic) -> Bool[Array, " P"]:
    """The marks of ``mark`` for each number of the vector of ``flatten_policy``."""
    trainable, _ = split_policy(policy)
    return ravel_pytree(jax.tree.map(lambda x, marked: jnp.full(x.shape, marked), trainable, mark(trainable)))[0]
