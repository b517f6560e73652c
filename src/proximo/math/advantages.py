"""Generalized advantage estimation that distinguishes terminations, truncations and padding."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from proximo.types import Scalar

Numbers = Float[Array, " T"]
Flags = Bool[Array, " T"]


def generalized_advantages(
    reward: Numbers,
    value: Numbers,
    last_value: Scalar,
    bootstrap_value: Numbers,
    terminated: Flags,
    truncated: Flags,
    valid: Flags,
    gamma: Scalar,
    gae_lambda: Scalar,
) -> Numbers:
    """Advantages of one environment's transitions: ``A_t = δ_t + γλ A_{t+1}``, ``δ_t = r_t + γ V(s_{t+1}) -
    V(s_t)``.

    ``V(s_{t+1})`` is 0 after a termination, ``bootstrap_value[t]`` after a truncation, and otherwise the
    value of the next step (``last_value`` after the last one). The sum over later steps ends at ``terminated
    | truncated`` and at padding.

    Args:
        reward: T: ``r_t``, in the units of the value.
        value: T: ``V(s_t)``.
        last_value: value of the observation after the last transition.
        bootstrap_value: T: value of the true final observation where an episode was truncated.
        terminated: T: the episode has ended, and nothing follows.
        truncated: T: the episode was cut short, for instance by a time limit.
        valid: T: False on padding.
        gamma: discount factor ``γ``, 0 … 1.
        gae_lambda: ``λ``, 0 … 1.

    Returns:
        T: the advantages; 0 on padding.

    Source: Schulman et al. 2016, arXiv:1506.02438, equations 11-16; time limits as in Pardo et al. 2018,
    arXiv:1712.00378.
    """
    value_after = jnp.where(truncated, bootstrap_value, jnp.append(value[1:], last_value))
    value_after = jnp.where(terminated, 0.0, value_after)
    delta = jnp.where(valid, reward + gamma * value_after - value, 0.0)
    decay = jnp.where(terminated | truncated | ~valid, 0.0, gamma * gae_lambda)

    def backwards(advantage, step):
        delta_t, decay_t = step
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    _, advantages = jax.lax.scan(backwards, jnp.zeros_like(last_value), (delta, decay), reverse=True, unroll=16)
    return advantages
