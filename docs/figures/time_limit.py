"""Targets of the value function near a time limit, treated as a truncation and as a failure."""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from proximo.math.advantages import generalized_advantages

GAMMA, STEPS = 0.99, 200
TRUE = 1 / (1 - GAMMA)


def targets(is_failure: bool) -> np.ndarray:
    """Targets of an episode with reward 1 that a limit ends after ``STEPS`` steps, with λ = 1 and a correct value function."""
    last = jnp.arange(STEPS) == STEPS - 1
    value = jnp.full(STEPS, TRUE)
    advantage = generalized_advantages(
        reward=jnp.ones(STEPS), value=value, last_value=jnp.float32(TRUE), bootstrap_value=jnp.where(last & ~jnp.array(is_failure), TRUE, 0.0),
        terminated=last & is_failure, truncated=last & (not is_failure), valid=jnp.ones(STEPS, bool), gamma=jnp.float32(GAMMA),
        gae_lambda=jnp.float32(1.0),
    )  # fmt: skip
    return np.asarray(advantage + value)


def draw() -> Figure:
    """Both over the remaining steps."""
    figure = Figure(figsize=(5.6, 2.6))
    axes = figure.subplots()
    left = STEPS - np.arange(STEPS)
    axes.plot(left, targets(False), color="#00796b", linewidth=2, label="truncation: the true value")
    axes.plot(left, targets(True), color="#b04a2f", linewidth=2, label="treated as a termination")
    wrong = targets(True)[STEPS - 50]
    axes.plot([50], [wrong], "o", color="#b04a2f")
    axes.annotate(f"{wrong:.1f} instead of {TRUE:.0f}", (50, wrong), (80, 12), arrowprops={"arrowstyle": "->"}, fontsize=8)
    axes.set(
        xlabel="steps until the limit, which the policy does not observe",
        ylabel="target of the value",
        ylim=(0, 108),
        xlim=(STEPS, 0),
    )
    axes.legend(frameon=False, loc="lower left", fontsize=8, bbox_to_anchor=(0, 0.1))
    return figure
