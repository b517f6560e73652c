"""Evaluated return of the seeds of one LunarLander-v3 training with its preset: every seed, and their interquartile mean."""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from proximo.evaluation.episodes import interquartile_mean

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "lunarlander_seeds.json"
SOLVED = 200
"""Gymnasium calls the task solved at this return."""


def curves() -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the return of each seed at these steps."""
    seeds = np.array(list(json.loads(RESULTS.read_text())["seeds"].values()))
    return seeds[0, :, 0], seeds[:, :, 1]


def draw() -> Figure:
    """One line for each seed, and one for their interquartile mean."""
    steps, returns = curves()
    figure = Figure(figsize=(5.6, 3.6))
    axes = figure.subplots()
    for line in returns:
        axes.plot(steps / 1e6, line, color="#7cc4b8", linewidth=1)
    axes.plot(
        steps / 1e6,
        np.apply_along_axis(interquartile_mean, 0, returns),
        color="#00796b",
        linewidth=2.5,
        label="interquartile mean",
    )
    axes.axhline(SOLVED, color="0.5", linestyle=":", linewidth=1)
    axes.text(steps[-1] / 1e6, SOLVED + 6, "solved", color="0.4", fontsize=8, ha="right")
    axes.set(
        xlabel="million environment steps",
        ylabel="evaluated return",
        title=f"LunarLander-v3, {len(returns)} seeds",
        xlim=(0, None),
    )
    axes.legend(frameon=False, loc="lower right")
    return figure
