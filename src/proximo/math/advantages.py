"""Generalised advantage estimation with terminations, truncations and filler rows kept apart."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def generalized_advantages(
    reward: Float[Array, " T"],
    value: Float[Array, " T"],
    last_value: Float[Array, ""],
    bootstrap: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    truncated: Bool[Array, " T"],
    valid: Bool[Array, " T"],
    gamma: Float[Array, ""],
    gae_lambda: Float[Array, ""],
) -> Float[Array, " T"]:
    """Advantages of one trajectory: ``A_t = δ_t + γλ A_{t+1}``, ``δ_t = r_t + γ V(s_{t+1}) - V(s_t)``.

    The trace is cut by ``terminated | truncated`` and beside filler rows. ``V(s_{t+1})`` is 0 after a termination,
    ``bootstrap[t]`` after a truncation, else the next row's value (``last_value`` after the last one).
    Filler rows have advantage 0. Source: Schulman et al. 2016, arXiv:1506.02438, equations 11-16; time limits as in
    Pardo et al. 2018, arXiv:1712.00378.
    """
    value_after = jnp.append(value[1:], last_value)
    value_after = jnp.where(truncated, bootstrap, value_after)
    value_after = jnp.where(terminated, 0.0, value_after)
    delta = jnp.where(valid, reward + gamma * value_after - value, 0.0)
    decay = jnp.where(terminated | truncated | ~valid, 0.0, gamma * gae_lambda)

    def backwards(advantage: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, decay_t = row
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    _, advantages = jax.lax.scan(backwards, jnp.zeros_like(last_value), (delta, decay), reverse=True, unroll=16)
    return advantages
