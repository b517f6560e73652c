"""Where ``first`` resets the memory: a GRU is unrolled over one sequence with the ends of two episodes in it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from proximo.config import NetworkConfig
from proximo.networks.memory import make_memory

FIRST = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0], bool)
VALID = np.ones(len(FIRST), bool)
EPISODES = {0: "episode 1 (began earlier)", 4: "episode 2", 10: "episode 3 (goes on)"}


def states() -> tuple[np.ndarray, np.ndarray]:
    """Four units before each row, as they came and as the row reads them."""
    key = jax.random.key(4)
    cell, _ = make_memory(key, 3, NetworkConfig(memory="gru", memory_size=4))
    x = jax.random.normal(jax.random.fold_in(key, 1), (len(FIRST), 1, 3))
    state = jax.tree.map(lambda leaf: leaf + 0.6 * jnp.array([1.0, -1.0, 0.5, -0.5]), cell.init(1))
    came, read = [], []
    for t in range(len(FIRST)):
        before = np.asarray(jax.tree.leaves(state)[0])[0]
        came.append(before)
        read.append(np.where(FIRST[t], 0.0, before))
        state, _ = cell.step(state, x[t], jnp.asarray(FIRST[t : t + 1]), jnp.asarray(VALID[t : t + 1]))
    return np.array(came), np.array(read)


def draw() -> Figure:
    """The units over the rows, cut where an episode begins."""
    _, read = states()
    figure = Figure(figsize=(7.2, 2.6))
    axes = figure.subplots()
    rows = np.arange(len(FIRST))
    begins = [0, *np.flatnonzero(FIRST), len(FIRST)]
    for unit in range(read.shape[1]):
        for start, stop in itertools.pairwise(begins):
            axes.plot(rows[start:stop], read[start:stop, unit], "o-", color=f"C{unit}", markersize=3)
    axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    for start in np.flatnonzero(FIRST):
        axes.axvline(start, color="0.3", linewidth=1, linestyle=":")
        axes.text(start + 0.08, -0.98, "first: empty before this row is read", fontsize=7.5, ha="left")
    for start, said in EPISODES.items():
        axes.text(start + (0.08 if start else -0.4), 0.86, said, fontsize=8, color="0.3")
    axes.annotate("the stored memory[j]", (0, read[0, 0]), (0.7, 0.66), fontsize=7.5, arrowprops={"arrowstyle": "->"})
    axes.set(xlabel="rows of one sequence", ylabel="units of the memory", xlim=(-0.5, len(FIRST) - 0.5), ylim=(-1.05, 1.05))
    axes.set_xticks(rows)
    return figure
