"""Which steps a sequence reads as burn-in and which it learns from; observations are step numbers here."""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from proximo.ppo.minibatches import sequences_of
from proximo.types import BurnIn, Rollout

STEPS, LENGTH, BURN_IN = 16, 4, 3


def steps() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By sequence: steps of the burn-in, steps that are learned from, and the step before which the memory is stored."""
    flags = jnp.zeros((STEPS, 1), bool)
    numbers = jnp.zeros((STEPS, 1))
    before = jnp.arange(-BURN_IN, 0)[:, None]
    pieces = STEPS // LENGTH
    rollout = Rollout(
        observation=jnp.arange(STEPS)[:, None], episode_start=flags, action=numbers, log_prob=numbers, value=numbers, reward=numbers,
        terminated=flags, truncated=flags, bootstrap_value=numbers, valid=~flags, memory=jnp.arange(pieces)[:, None] * LENGTH - BURN_IN,
        last_observation=jnp.zeros(1), last_episode_start=flags[0], last_memory=(), last_value=jnp.zeros(1),
        burn_in_steps=BurnIn(before, jnp.zeros((BURN_IN, 1), bool), jnp.ones((BURN_IN, 1), bool)),
    )  # fmt: skip
    sequences = sequences_of(rollout, LENGTH)
    assert sequences.burn_in_steps is not None
    return np.asarray(sequences.burn_in_steps.observation).T, np.asarray(sequences.observation).T, np.asarray(sequences.memory)


def draw() -> Figure:
    """One line for each sequence."""
    burn_in, learned, memory = steps()
    figure = Figure(figsize=(7.2, 2.5))
    axes = figure.subplots()
    for j, (before, after) in enumerate(zip(burn_in, learned, strict=True)):
        for step in (*before, *after):
            face = "#c9d3d6" if step in before else "#7cc4b8"
            axes.add_patch(Rectangle((step, j), 1, 0.8, facecolor=face, edgecolor="white"))
            axes.text(step + 0.5, j + 0.4, str(step), ha="center", va="center", fontsize=8)
        axes.plot([memory[j]], [j + 0.4], "o", color="#b04a2f", markersize=7, clip_on=False, zorder=3)
    axes.axvline(0, color="0.3", linestyle=":")
    axes.text(-0.1, -0.25, "previous rollout", ha="right", fontsize=8)
    axes.text(0.1, -0.25, "this rollout, T = 16", ha="left", fontsize=8)
    handles = [
        Patch(color="#c9d3d6", label="burn-in, B = 3: read by the current parameters, without gradient"),
        Patch(color="#7cc4b8", label="learned from, L = 4"),
        axes.plot([], [], "o", color="#b04a2f", label="memory, as stored by the collector")[0],
    ]
    axes.legend(handles=handles, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, fontsize=7.5)
    axes.set(xlim=(-BURN_IN - 0.3, STEPS), ylim=(len(learned), -0.6), xticks=[])
    axes.set_yticks([j + 0.4 for j in range(len(learned))], [f"sequence {j}" for j in range(len(learned))])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure
