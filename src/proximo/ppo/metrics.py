"""The metrics of an update, from the metrics of its gradient steps.

To add a metric of the update, return it for each gradient step from ``ppo_loss`` in ``ppo/loss.py``, or from
``ratio_metrics`` there if a custom loss in the place of the whole loss has it, too; ``minibatch.mean`` is the same on
all devices. Or return it once from ``summarize``, by ``masked_mean``, which is the same on all devices, and list it
in ``RESERVED``. Rows have means over gradient steps and updates; for an extreme, change ``summarize``, and
``_merged`` in ``tracking/metrics_window.py``, which merges the updates of a row. Metrics of episodes are computed in
``collect``: in ``jax_collector.py`` and, for Gymnasium environments, in ``episode_tally.py``. Each metric needs a row
in docs/metrics.md. If only some setting records it, add this to ``tests/docs/test_metrics_page.py``.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.config.custom import is_transformation
from proximo.errors import ConfigError
from proximo.math.across_devices import largest, smallest
from proximo.math.masked_statistics import explained_variance, masked_mean
from proximo.ppo.minibatches import Batch
from proximo.ppo.state import LearnerState
from proximo.types import Metrics, Scalar

RESERVED = frozenset({
    "loss", "extra_loss", "grad_norm", "active", "gradient_steps", "value_mean", "advantage_mean", "explained_variance",
    "learning_rate", "critic_learning_rate", "clip_eps", "ent_coef", "kl_coef",
})  # fmt: skip
"""Names that no custom loss may give to a metric, in addition to those of the loss itself."""


def joined(metrics: Metrics, custom: Metrics) -> Metrics:
    """``metrics`` and the ``custom`` metrics of a loss. Raises ``ConfigError`` if a name is taken."""
    for name in custom:
        if name in metrics or name in RESERVED:
            raise ConfigError(f"A custom loss returns the metric {name!r}, which exists already: give it another name.")
    return {**metrics, **custom}


def summarize(state: LearnerState, batch: Batch, step_metrics: Metrics) -> Metrics:
    """Reduce the metrics of the gradient steps (``K M``: epochs, minibatches) to metrics of the update. Most
    are means over the steps taken and the step at which ``target_kl`` stopped the update. Others are
    extremes of the ratio, and the current values of scheduled hyperparameters. ``state`` is the learner
    before the update, and ``batch`` the whole rollout."""
    taken = taken_steps(step_metrics["active"])
    averaged = {name: x for name, x in step_metrics.items() if name not in ("active", "ratio_min", "ratio_max")}
    h, progress = state.hyperparameters, state.progress
    metrics = {
        "ratio_min": smallest(jnp.min(jnp.where(taken, step_metrics["ratio_min"], jnp.inf))),
        "ratio_max": largest(jnp.max(jnp.where(taken, step_metrics["ratio_max"], -jnp.inf))),
        "gradient_steps": jnp.sum(step_metrics["active"]),
        "value_mean": masked_mean(batch.value, batch.valid),
        "advantage_mean": masked_mean(batch.target - batch.value, batch.valid),
        "explained_variance": explained_variance(batch.value, batch.target, batch.valid),
        "clip_eps": h.clip_eps(progress),
        "ent_coef": h.ent_coef(progress),
    }
    if not is_transformation(state.static.ppo.optimizer):
        metrics["learning_rate"] = state.learning_rate
    if h.critic_learning_rate is not None:
        metrics["critic_learning_rate"] = h.critic_learning_rate(progress)
    if state.adaptive.kl_coef is not None:
        metrics["kl_coef"] = state.adaptive.kl_coef
    return {**metrics, **{name: mean_of_steps(x, taken) for name, x in averaged.items()}}


def largest_divergence(step_metrics: Metrics) -> Scalar:
    """The divergence that an update has caused: the mean approximate KL of the epoch where it was largest. ``step_metrics``
    are those of the gradient steps, ``K M``."""
    return jnp.max(jax.vmap(mean_of_steps)(step_metrics["approx_kl"], taken_steps(step_metrics["active"])))


def mean_of_steps(x: Float[Array, "*steps"], taken: Bool[Array, "*steps"]) -> Scalar:
    """Mean of a metric over the gradient steps that count; it is the same on all devices."""
    return jnp.sum(jnp.where(taken, x, 0.0)) / jnp.maximum(jnp.sum(taken), 1)


def taken_steps(active: Float[Array, "K M"]) -> Bool[Array, "K M"]:
    """The gradient steps that count in metrics: those that were taken, and the one that exceeded ``target_kl``."""
    return jnp.concatenate([jnp.ones(1), active.reshape(-1)[:-1]]).reshape(active.shape) > 0
