"""The optimizer: Adam, with decoupled weight decay and a learning rate for the critic where they are set; or custom optimizers."""

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
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Scalar

Mask = Callable[[PyTree], PyTree]
"""Marks parameters of a tree."""


class Learned(NamedTuple):
    """What gradient steps change: the trainable parameters, and the state of the optimizer."""

    parameters: Float[Array, " P"]
    optimizer_state: PyTree


class Optimizer:
    """Takes gradient steps on the policy of a learner. The trainable parameters are one vector, on which
    Adam is faster than on many small arrays (docs/decisions/0015-flat-parameters.md)."""

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

    def step(self, learned: Learned, loss: Callable[[ActorCritic], tuple[Scalar, Metrics]]) -> tuple[Learned, Metrics]:
        """One step along the gradient of ``loss``. Its metrics get ``grad_norm``, before the gradient is clipped."""
        gradient_of = jax.value_and_grad(lambda p: loss(self.policy(learned._replace(parameters=p))), has_aux=True)
        (_, metrics), part = gradient_of(learned.parameters)
        gradient = mean_of_devices(part)
        updates, optimizer_state = gradient_transformation(self._state).update(
            gradient, learned.optimizer_state, learned.parameters
        )
        stepped = Learned(jax.tree.map(jnp.add, learned.parameters, updates), optimizer_state)
        return stepped, {**metrics, "grad_norm": jnp.linalg.norm(gradient)}


def gradient_transformation(state: LearnerState) -> optax.GradientTransformation:
    """From the gradient to the change of the parameters, as vectors: clipping, then Adam or a custom optimizer."""
    h, static, rate = state.hyperparameters, state.static.ppo, state.learning_rate
    critic_rate = None if h.critic_learning_rate is None else h.critic_learning_rate(state.progress)
    policy, critic = static.optimizer, static.critic_optimizer
    critic = policy if critic == "same" else critic
    clip = clipping(state)
    if not (isinstance(policy, str) and isinstance(critic, str)):
        return optax.chain(clip, custom_optimizers(state, rate, critic_rate))
    # Both optimizers change each parameter independently of the others, so policy and value share one Adam.
    rate = rate if critic_rate is None else jnp.where(_as_vector(critic_mask, state.policy), critic_rate, rate)
    decayed = None
    if "adamw" in (policy, critic):
        decayed = _as_vector(weight_mask, state.policy)
        if policy != critic:
            decayed = decayed & (_as_vector(critic_mask, state.policy) == (critic == "adamw"))
    return optax.chain(clip, adam(state, rate, None if decayed is None else lambda _: decayed))


def clipping(state: LearnerState) -> optax.GradientTransformation:
    """Scales a gradient down to the norm ``max_grad_norm``; the critic's part separately with ``critic_max_grad_norm``."""
    h = state.hyperparameters
    clip = optax.clip_by_global_norm(h.max_grad_norm)
    if h.critic_max_grad_norm is None:
        return clip
    clip_critic, is_critic = optax.clip_by_global_norm(h.critic_max_grad_norm), _as_vector(critic_mask, state.policy)

    def clip_parts(gradient: Any, _: Any = None) -> Any:
        policy, _ = clip.update(jnp.where(is_critic, 0.0, gradient), optax.EmptyState())
        critic, _ = clip_critic.update(jnp.where(is_critic, gradient, 0.0), optax.EmptyState())
        return jax.tree.map(jnp.add, policy, critic)

    return optax.stateless(clip_parts)


def adam(state: LearnerState, rate: Array, decayed: Mask | None) -> optax.GradientTransformation:
    """Adam, then weight decay where ``decayed(parameters)``, then the learning rate.

    Weight decay is decoupled: it does not enter Adam's moments (Loshchilov & Hutter 2019, arXiv:1711.05101,
    algorithm 2). Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1; with ``amsgrad`` Reddi et al. 2018,
    arXiv:1904.09237, algorithm 2, with the bias correction of Adam.
    """

    def decay(update: Any, parameter: Any, is_decayed: Any) -> Any:
        # Not a factor of 0 for the others: a constant of a custom network may be infinite.
        return update + jnp.where(is_decayed, state.hyperparameters.weight_decay * parameter, 0.0)

    settings = state.static.ppo.optimizer_settings
    scale = optax.scale_by_amsgrad if settings.amsgrad else optax.scale_by_adam
    direction = scale(settings.b1, settings.b2, settings.eps)
    if decayed is None:
        return optax.chain(direction, optax.identity(), optax.scale(-rate))
    decaying = optax.stateless(lambda updates, parameters: jax.tree.map(decay, updates, parameters, decayed(parameters)))
    return optax.chain(direction, decaying, optax.scale(-rate))


def custom_optimizers(state: LearnerState, rate: Array, critic_rate: Array | None) -> optax.GradientTransformation:
    """The optimizers of policy and value, one of them custom. They get each parameter in its own shape."""
    static, (trainable, _) = state.static.ppo, split_policy(state.policy)

    def made(setting: str, rate: Array) -> optax.GradientTransformation:
        optimizer = getattr(static, setting)
        if isinstance(optimizer, str):
            return adam(state, rate, weight_mask if optimizer == "adamw" else None)
        made = optimizer if is_transformation(optimizer) else optimizer(rate)
        if not is_transformation(made):
            raise ConfigError(f"{setting}: the function returns {type(made).__name__}, expected an optax transformation.")
        return made

    optimizer = made("optimizer", rate)
    if static.critic_optimizer != "same" or critic_rate is not None:
        setting = "optimizer" if static.critic_optimizer == "same" else "critic_optimizer"
        parts: dict[Hashable, Any] = {"policy": optimizer, "critic": made(setting, rate if critic_rate is None else critic_rate)}
        labels = jax.tree.map(lambda is_critic: "critic" if is_critic else "policy", critic_mask(trainable))
        optimizer = optax.partition(parts, labels)
    _, unflatten = ravel_pytree(trainable)

    def update(gradient: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(unflatten(gradient), state, unflatten(parameters))
        return ravel_pytree(updates)[0], state

    return optax.GradientTransformation(lambda parameters: optimizer.init(unflatten(parameters)), update)  # pyright: ignore[reportArgumentType]


def split_policy(policy: ActorCritic) -> tuple[PyTree, PyTree]:
    """The trainable parameters of a policy, and the rest (statistics of the normalizer, static parts). Both
    are trees like ``policy``, with None in the place of the other part. ``equinox.combine`` joins them."""
    trainable = jax.tree.map(eqx.is_inexact_array, policy)
    trainable = dataclasses.replace(trainable, normalizer=jax.tree.map(lambda _: False, policy.normalizer))
    return eqx.partition(policy, trainable)


def critic_mask(trainable: ActorCritic) -> PyTree[bool]:
    """Mark the parameters that only the value uses: the critic, and with separate towers the second torso."""
    others = jax.tree.map(lambda _: False, trainable)
    critic, torsos = jax.tree.map(lambda _: True, (trainable.critic, trainable.torsos[1:]))
    return dataclasses.replace(others, critic=critic, torsos=(*others.torsos[:1], *torsos))


def weight_mask(trainable: PyTree[Array]) -> PyTree[bool]:
    """Mark the parameters that ``weight_decay`` decays: weight matrices and convolution kernels. These are
    the arrays of two or more axes whose name begins with ``weight`` or ``kernel`` (in Flax, Equinox and
    proximo). Zero is not a neutral value for others, such as biases and the eigenvalues of an LRU."""

    def is_weight_matrix(path: tuple[Any, ...], parameter: Array) -> bool:
        # The last two names: an nnx parameter is an attribute of its variable.
        names = [str(getattr(key, "name", getattr(key, "key", ""))) for key in path[-2:]]
        return parameter.ndim >= 2 and any(name.startswith(("weight", "kernel")) for name in names)

    return jax.tree_util.tree_map_with_path(is_weight_matrix, trainable)


def _as_vector(mask: Mask, policy: ActorCritic) -> Bool[Array, " P"]:
    """The mask for each number of the vector of parameters."""
    trainable, _ = split_policy(policy)
    return ravel_pytree(jax.tree.map(lambda x, marked: jnp.full(x.shape, marked), trainable, mask(trainable)))[0]
