"""How a rollout is split into sequences, and what a plain reshape would give."""

import jax.numpy as jnp
import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from proximo.ppo.minibatches import split_sequences

STEPS, ENVS, LENGTH = 12, 2, 4


def numbered() -> np.ndarray:
    """A rollout whose entries are (step, environment)."""
    return np.stack(np.meshgrid(np.arange(STEPS), np.arange(ENVS), indexing="ij"), axis=-1)


def pieces() -> dict[str, np.ndarray]:
    """The sequences as columns: by proximo, and by a plain reshape."""
    rollout = numbered()
    return {
        "split_sequences": np.asarray(split_sequences(jnp.asarray(rollout), LENGTH)),
        "reshape(L, -1)": rollout.reshape(LENGTH, -1, 2),
    }


def color(step: int, env: int):
    """One color for each piece."""
    return colormaps["tab10"]((step // LENGTH + env * STEPS // LENGTH) % 10, alpha=0.45)


def grid(axes, cells: np.ndarray, title: str, across: str, down: str) -> None:
    """Cells with their step in them, colored by the piece that they belong to."""
    rows, columns, _ = cells.shape
    for i in range(rows):
        for j in range(columns):
            step, env = cells[i, j]
            axes.add_patch(_square(j, i, color(step, env)))
            axes.text(j + 0.5, i + 0.5, f"{step}{'ab'[env]}", ha="center", va="center", fontsize=7 if rows > LENGTH else 8)
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", xlabel=across, ylabel=down, xticks=[], yticks=[])
    axes.set_title(title, fontsize=9)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _square(x: int, y: int, face):
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", linewidth=1.5)


def draw() -> Figure:
    """Rollout, sequences, and what is wrong with the reshape."""
    figure = Figure(figsize=(8.2, 3.6))
    left, right = figure.subfigures(1, 2, width_ratios=[1, 3.4])
    grid(left.subplots(), numbered(), "rollout [T, N]", "environments a, b", "steps, T = 12 ↓")
    for axes, (name, cells) in zip(right.subplots(1, 2), pieces().items(), strict=True):
        label = "right: consecutive steps" if name == "split_sequences" else "wrong: every third step"
        grid(axes, cells, f"{name} [L, S]\n{label}", "sequences, S = 6 →", "steps, L = 4 ↓")
    return figure
