"""Which rows a sequence burns in on and which it learns from, by the function that cuts them: observations are row numbers here."""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from proximo.ppo.batch import sequences_of
from proximo.types import Rollout, Warmup

STEPS, LENGTH, BURN_IN = 16, 4, 3


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows that are burnt in on, rows that are learned from, the row before which the stored memory stands) by sequence."""
    flags = jnp.zeros((STEPS, 1), bool)
    numbers = jnp.zeros((STEPS, 1))
    before = jnp.arange(-BURN_IN, 0)[:, None]
    pieces = STEPS // LENGTH
    rollout = Rollout(
        observation=jnp.arange(STEPS)[:, None], first=flags, action=numbers, log_prob=numbers, value=numbers, reward=numbers,
        terminated=flags, truncated=flags, bootstrap=numbers, valid=~flags, memory=jnp.arange(pieces)[:, None] * LENGTH - BURN_IN,
        last_observation=jnp.zeros(1), last_first=flags[0], last_memory=(), last_value=jnp.zeros(1),
        warmup=Warmup(before, jnp.zeros((BURN_IN, 1), bool), jnp.ones((BURN_IN, 1), bool)),
    )  # fmt: skip
    sequences = sequences_of(rollout, LENGTH)
    assert sequences.warmup is not None
    return np.asarray(sequences.warmup.observation).T, np.asarray(sequences.observation).T, np.asarray(sequences.memory)


def draw() -> Figure:
    """A line for each sequence."""
    burnt, learned, memory = rows()
    figure = Figure(figsize=(7.2, 2.5))
    axes = figure.subplots()
    for j, (early, late) in enumerate(zip(burnt, learned, strict=True)):
        for row in (*early, *late):
            face = "#c9d3d6" if row in early else "#7cc4b8"
            axes.add_patch(Rectangle((row, j), 1, 0.8, facecolor=face, edgecolor="white"))
            axes.text(row + 0.5, j + 0.4, str(row), ha="center", va="center", fontsize=8)
        axes.plot([memory[j]], [j + 0.4], "o", color="#b04a2f", markersize=7, clip_on=False, zorder=3)
    axes.axvline(0, color="0.3", linestyle=":")
    axes.text(-0.1, -0.25, "the rollout before", ha="right", fontsize=8)
    axes.text(0.1, -0.25, "this rollout, T = 16", ha="left", fontsize=8)
    handles = [
        Patch(color="#c9d3d6", label="burn-in, B = 3: read without gradient, by the current parameters"),
        Patch(color="#7cc4b8", label="learned from, L = 4"),
        axes.plot([], [], "o", color="#b04a2f", label="memory[j], as stored when acting")[0],
    ]
    axes.legend(handles=handles, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, fontsize=7.5)
    axes.set(xlim=(-BURN_IN - 0.3, STEPS), ylim=(len(learned), -0.6), xticks=[])
    axes.set_yticks([j + 0.4 for j in range(len(learned))], [f"sequence {j}" for j in range(len(learned))])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure
