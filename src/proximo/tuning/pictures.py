"""Two pictures of a study: the history of scores, and the importance of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna

from proximo.tuning.record import Record, best_of

HISTORY, IMPORTANCE = "history.png", "importance.png"
MIN_TRIALS = 20
"""With fewer trials importance would be noise."""
INK, ACCENT, FAINT, BAD = "#222222", "#1f6fb4", "#9db7cc", "#c1443c"


def draw_pictures(folder: Path, study: optuna.Study, trials: list[Record], title: str) -> list[Path]:
    """Draw ``history.png``, and ``importance.png`` if there are enough trials. Returns the files."""
    written = [draw_history(folder / HISTORY, trials, title)]
    found = importance(study)
    return [*written, *([draw_importance(folder / IMPORTANCE, found, title)] if found else [])]


def importance(study: optuna.Study) -> dict[str, float]:
    """The share of each setting in the difference between the best tenth of the trials and the rest, by PED-ANOVA (Watanabe et
    al. 2023, arXiv:2304.10255). Pruned trials are not counted. Empty if there are too few others."""
    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(done) < MIN_TRIALS or len({t.value for t in done}) < 2:
        return {}
    found = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    return {name.removeprefix("1-").removesuffix(".rank"): float(x) for name, x in found.items() if np.isfinite(x)}


def draw_history(path: Path, trials: list[Record], title: str) -> Path:
    """The score of every trial, the best score so far, and the score of the base."""
    figure, axes = _figure(8.0, 4.8, grid="y")
    done = [t for t in trials if t.state == "done"]
    pruned = [t for t in trials if t.state == "pruned" and t.score is not None]
    if pruned:
        axes.scatter(
            [t.number for t in pruned],
            [t.score for t in pruned],
            s=22,
            facecolors="none",
            edgecolors=FAINT,
            label="pruned, at its last evaluation",
        )
    axes.scatter([t.number for t in done], [t.score for t in done], s=26, color=ACCENT, alpha=0.65, linewidths=0, label="trial")
    if done:
        best = np.maximum.accumulate(np.array([t.score for t in done], float))
        axes.step([t.number for t in done], best, where="post", color=INK, linewidth=1.4, label="best so far")
    if trials and trials[0].score is not None:
        axes.axhline(trials[0].score, color=BAD, linewidth=1.0, linestyle=(0, (4, 3)), label=f"base {trials[0].score:.4g}")
    failed = [t.number for t in trials if t.state == "failed"]
    if failed:
        axes.plot(failed, [0.015] * len(failed), "x", color=BAD, transform=axes.get_xaxis_transform(), label="failed")
    winner = best_of(trials)
    if winner is not None and winner.final:
        scores = np.array(winner.test or winner.final)
        mean = scores.mean()
        spread = np.array([[mean - scores.min()], [scores.max() - mean]])
        label = f"chosen, on {len(scores)} {'test' if winner.test else 'other'} seeds: {mean:.4g}"
        axes.errorbar([winner.number], [mean], yerr=spread, fmt="D", color="#2e8b57", markersize=6, capsize=3, label=label)
    axes.set(xlabel="trial", ylabel="mean return over the seeds", title=title)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)
    return _saved(figure, path)


def draw_importance(path: Path, found: dict[str, float], title: str) -> Path:
    """A bar for each setting, the most important one on top."""
    figure, axes = _figure(7.0, 1.2 + 0.32 * len(found), grid="x")
    items = sorted(found.items(), key=lambda item: item[1])
    bars = axes.barh([name for name, _ in items], [x for _, x in items], color=ACCENT, height=0.65)
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.set_xlim(0, 1.12 * max(found.values()))
    axes.set(xlabel="importance (PED-ANOVA: share in reaching the best tenth)", title=title)
    return _saved(figure, path)


def _figure(width: float, height: float, grid: Literal["both", "x", "y"]) -> tuple[Any, Any]:
    # No pyplot: it would choose a window where there is a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    return path
