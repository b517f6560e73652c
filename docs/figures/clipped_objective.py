"""The clipped objective of one transition and its gradient, over the probability ratio, by the function that trains."""

import jax
import jax.numpy as jnp
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from proximo.math.loss_terms import clipped_surrogate

EPS = 0.2
LOW, HIGH = 0.4, 1.6
CLIPPED, UNCLIPPED, CLIP_RANGE = "#00796b", "0.5", "#e3eeec"


def objective(ratio: Array, advantage: float) -> Array:
    """L^CLIP, which training maximizes, at each probability ratio."""
    return -clipped_surrogate(jnp.log(ratio), jnp.full_like(ratio, advantage), jnp.float32(EPS))


def gradient(ratio: Array, advantage: float) -> Array:
    """Derivative of the objective with respect to the probability ratio, at each ratio."""
    return jax.vmap(jax.grad(objective), in_axes=(0, None))(ratio, advantage)


def ratios() -> Array:
    """Probability ratios from LOW to HIGH. None is an end of the clip range, where the objective has a kink."""
    return jnp.linspace(LOW, HIGH, 600)


def draw_panel(axes: Axes, clipped: Array, unclipped: Array, advantage: float) -> None:
    """One curve, in two parts where it jumps, with the clip range and the point where an update begins."""
    axes.axvspan(1 - EPS, 1 + EPS, color=CLIP_RANGE, linewidth=0, zorder=0)
    axes.axhline(0, color="0.8", linewidth=0.8, zorder=1)
    axes.plot(ratios(), unclipped, color=UNCLIPPED, linestyle=(0, (4, 2)), linewidth=1.2)
    is_flat = gradient(ratios(), advantage) == 0
    for part in (is_flat, ~is_flat):
        axes.plot(ratios()[part], clipped[part], color=CLIPPED, linewidth=2.2, solid_capstyle="butt", zorder=3)
    axes.plot([1], [advantage], "o", color=CLIPPED, zorder=4)
    axes.set_xticks([LOW, 1 - EPS, 1, 1 + EPS, HIGH], [f"{LOW}", "1 − ε", "1", "1 + ε", f"{HIGH}"])
    axes.set_yticks([0, advantage], ["0", "A"])
    axes.set_xlim(LOW, HIGH)


def draw() -> Figure:
    """Four panels: the objective above its gradient, for a positive and for a negative advantage."""
    figure = Figure(figsize=(7.4, 5.2), facecolor="white")
    panels = figure.subplots(2, 2, sharex=True)
    for (top, bottom), advantage in zip(panels.T, (1.0, -1.0), strict=True):
        draw_panel(top, objective(ratios(), advantage), ratios() * advantage, advantage)
        draw_panel(bottom, gradient(ratios(), advantage), jnp.full_like(ratios(), advantage), advantage)
        kink = 1 + EPS * advantage
        bottom.plot([kink, kink], [0, advantage], color=CLIPPED, linewidth=1, linestyle=":")
        bottom.set_xlabel(f"probability ratio r   (ε = {EPS})")
    panels[0, 0].set(title="A > 0: better than expected", ylabel="objective  $L^{CLIP}$", ylim=(0, 1.75))
    panels[0, 1].set(title="A < 0: worse than expected", ylim=(-1.75, 0))
    panels[1, 0].set(ylabel="gradient  $\\partial L^{CLIP}/\\,\\partial r$", ylim=(-0.25, 1.35))
    panels[1, 1].set(ylim=(-1.35, 0.25))
    labels = (
        (0, 0, 1.0, 0.08, "clip range", "0.35"), (0, 0, 1.4, 1.05, "clipped: flat", CLIPPED), (0, 0, 1.4, 1.56, "r A", UNCLIPPED),
        (0, 1, 1.0, -0.16, "clip range", "0.35"), (0, 1, 0.6, -0.97, "clipped: flat", CLIPPED), (0, 1, 0.52, -0.36, "r A", UNCLIPPED),
        (1, 0, 0.6, 1.07, "raises π(a | s)", CLIPPED), (1, 0, 1.4, -0.14, "no gradient", CLIPPED),
        (1, 0, 1.4, 1.07, "without the clip", UNCLIPPED), (1, 1, 1.4, -1.14, "lowers π(a | s)", CLIPPED),
        (1, 1, 0.6, 0.08, "no gradient", CLIPPED), (1, 1, 0.6, -1.14, "without the clip", UNCLIPPED),
    )  # fmt: skip
    for row, column, x, y, text, color in labels:
        panels[row, column].text(x, y, text, color=color, fontsize=8, ha="center")
    figure.tight_layout()
    return figure
