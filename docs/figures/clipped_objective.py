"""The clipped objective of one row and its gradient, by the function that trains."""

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

from proximo.math.losses import clipped_surrogate

EPS = 0.2


def objective(log_ratio, advantage):
    """What is maximised."""
    return -clipped_surrogate(log_ratio, jnp.full_like(log_ratio, advantage), jnp.float32(EPS))


def draw() -> Figure:
    """A panel for a good action and one for a bad one."""
    figure = Figure(figsize=(7.2, 2.9))
    panels = figure.subplots(1, 2)
    ratio = jnp.linspace(0.4, 1.8, 561)
    for axes, advantage, said in zip(
        panels, (1.0, -1.0), ("better than expected, A > 0", "worse than expected, A < 0"), strict=True
    ):
        value = objective(jnp.log(ratio), advantage)
        slope = jax.vmap(jax.grad(objective), in_axes=(0, None))(jnp.log(ratio), advantage)
        axes.plot(ratio, ratio * advantage, color="0.7", linestyle="--", label="r A")
        axes.plot(ratio, value, color="#00796b", linewidth=2, label="min(r A, clip(r) A)")
        flat = ratio[slope == 0]
        axes.axvspan(float(flat.min()), float(flat.max()), color="#00796b", alpha=0.1, linewidth=0, label="no gradient")
        axes.axvline(1.0, color="0.4", linewidth=0.8)
        axes.plot([1.0], [advantage], "o", color="#00796b")
        axes.set(title=f"An action {said}", xlabel="probability ratio r", xlim=(0.4, 1.8))
        axes.set_xticks([0.4, 1 - EPS, 1.0, 1 + EPS, 1.8], ["0.4", "1 − ε", "1", "1 + ε", "1.8"])
        axes.legend(frameon=False, loc="best")
    panels[0].set_ylabel("objective of the row")
    figure.tight_layout()
    return figure
