"""The table and the curves of a suite: its results beside the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from proximo.evaluation.episodes import bootstrap_interval
from suite_tasks import Suite, Task

MARK, OWN = "#c0392b", "#2563a8"


def table(suite: Suite, results: dict[str, Any]) -> str:
    """Markdown: a row for each task with results, then the sources of the published columns."""
    shown = {name: task for name, task in suite.tasks.items() if results["tasks"].get(name, {}).get("seeds")}
    columns = [column for column in suite.published if any(column in task.published for task in shown.values())]
    header = ["Task", "Steps", "Seeds", "Final policy (95 %)", "Worst", "Last 100 episodes", "Collapsed", *columns, "Reached"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for name, task in shown.items():
        published = [task.published.get(column, "–") for column in columns]
        lines.append(
            "| "
            + " | ".join([f"`{name}`", *_cells(task, results["tasks"][name]), *published, reached(task, results, name)])
            + " |"
        )
    sources = [f"- {column}: {suite.published[column]}" for column in columns]
    return "\n".join([*lines, "", *sources])


def _cells(task: Task, record: dict[str, Any]) -> list[str]:
    """Steps, number of seeds, mean with its interval, worst seed, last episodes, and collapsed seeds."""
    scores = scores_of(record)
    last = [row["last_100"] for row in record["seeds"].values() if row["last_100"] is not None]
    complete = len(scores) >= task.seeds
    count = f"{len(scores)}" if complete else f"{len(scores)} of {task.seeds}"
    low, high = bootstrap_interval(scores) if len(scores) > 1 else (scores[0], scores[0])
    mean = f"{number(scores.mean())} ({number(low)} … {number(high)})" if len(scores) > 1 else number(scores[0])
    return [
        f"{record['steps']:,}",
        count,
        mean,
        number(scores.min()),
        number(np.mean(last)) if last else "–",
        str(collapsed(scores)),
    ]


def scores_of(record: dict[str, Any]) -> np.ndarray:
    """The score of each seed."""
    return np.array([row["score"] for row in record["seeds"].values()])


def collapsed(scores: np.ndarray) -> int:
    """Number of seeds that are below the median by more than half of its size."""
    median = np.median(scores)
    return int(np.sum(scores < median - abs(median) / 2))


def reached(task: Task, results: dict[str, Any], name: str) -> str:
    """The strictest mark that the seeds reach."""
    scores = scores_of(results["tasks"][name])
    score = scores.mean() if task.judged_by == "mean" else scores.min()
    for word, figure in (("aim", task.aim), ("mark", task.mark)):
        if figure is not None and score >= figure:
            return f"{word} {number(figure)}"
    return "–" if task.mark is None and task.aim is None else "**missed**"


def number(value: float) -> str:
    """Three decimals up to 1, one decimal up to 1000, else none."""
    return f"{value:.3f}" if abs(value) <= 1 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"


def plot(suite: Suite, results: dict[str, Any], path: Path) -> None:
    """One panel for each task: the mean training return over its seeds, its 95 % interval, each final policy, mark and aim."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [name for name in suite.tasks if results["tasks"].get(name, {}).get("seeds")]
    columns = min(4, len(shown)) or 1
    figure, axes = plt.subplots(
        -(-len(shown) // columns) or 1, columns, figsize=(3.4 * columns, 2.6 * (-(-len(shown) // columns) or 1)), squeeze=False
    )
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, shown, strict=False):
        draw(axis, name, suite.tasks[name], results["tasks"][name])
    figure.suptitle(
        f"{suite.title}: mean return of training episodes, 95 % interval over seeds; dots: final policies", fontsize=9
    )
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(axis: Any, name: str, task: Task, record: dict[str, Any]) -> None:
    curves = [np.array(row["curve"]) for row in record["seeds"].values() if row["curve"]]
    if curves:
        steps = np.linspace(max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves), 100)
        returns = np.array([np.interp(steps, *curve.T) for curve in curves])
        axis.plot(steps, returns.mean(axis=0), color=OWN, linewidth=1.3)
        if len(curves) > 1:
            low, high = np.transpose([bootstrap_interval(column, 500) for column in returns.T])
            axis.fill_between(steps, low, high, color=OWN, alpha=0.2, linewidth=0)
    if task.metric == "return_mean":
        scores = scores_of(record)
        axis.plot(np.full(len(scores), record["steps"]), scores, "o", markersize=3.5, color=OWN, alpha=0.7, clip_on=False)
        for figure, style in ((task.mark, "-"), (task.aim, ":")):
            if figure is not None:
                axis.axhline(figure, linestyle=style, color=MARK, linewidth=1)
    axis.set_title(f"{name} ({len(record['seeds'])} seeds)", fontsize=8, loc="left")
    axis.tick_params(labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
