"""Where ``episode_start`` resets the memory: a GRU reads one sequence in which two episodes end."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from proximo.config import NetworkConfig
from proximo.networks.recurrent import make_memory

EPISODE_START = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0], bool)
VALID = np.ones(len(EPISODE_START), bool)
EPISODES = {0: "episode 1 (began earlier)", 4: "episode 2", 10: "episode 3 (continues)"}


def states() -> tuple[np.ndarray, np.ndarray]:
    """Four units before each step: as carried over, and as the step reads them."""
    key = jax.random.key(4)
    cell, _ = make_memory(key, 3, NetworkConfig(memory="gru", memory_size=4))
    x = jax.random.normal(jax.random.fold_in(key, 1), (len(EPISODE_START), 1, 3))
    state = jax.tree.map(lambda leaf: leaf + 0.6 * jnp.array([1.0, -1.0, 0.5, -0.5]), cell.init(1))
    carried, read = [], []
    for t in range(len(EPISODE_START)):
        before = np.asarray(jax.tree.leaves(state)[0])[0]
        carried.append(before)
        read.append(np.where(EPISODE_START[t], 0.0, before))
        state, _ = cell.step(state, x[t], jnp.asarray(EPISODE_START[t : t + 1]), jnp.asarray(VALID[t : t + 1]))
    return np.array(carried), np.array(read)


def draw() -> Figure:
    """The units over the steps, interrupted where an episode begins."""
    _, read = states()
    figure = Figure(figsize=(7.2, 2.6))
    axes = figure.subplots()
    steps = np.arange(len(EPISODE_START))
    begins = [0, *np.flatnonzero(EPISODE_START), len(EPISODE_START)]
    for unit in range(read.shape[1]):
        for start, stop in itertools.pairwise(begins):
            axes.plot(steps[start:stop], read[start:stop, unit], "o-", color=f"C{unit}", markersize=3)
    axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    for start in np.flatnonzero(EPISODE_START):
        axes.axvline(start, color="0.3", linewidth=1, linestyle=":")
        axes.text(start + 0.08, -0.98, "episode_start: reset before this step", fontsize=7.5, ha="left")
    for start, label in EPISODES.items():
        axes.text(start + (0.08 if start else -0.4), 0.86, label, fontsize=8, color="0.3")
    axes.annotate("stored memory", (0, read[0, 0]), (0.7, 0.66), fontsize=7.5, arrowprops={"arrowstyle": "->"})
    axes.set(
        xlabel="steps of one sequence", ylabel="units of the memory", xlim=(-0.5, len(EPISODE_START) - 0.5), ylim=(-1.05, 1.05)
    )
    axes.set_xticks(steps)
    return figure
