"""The table and the curves of a suite: its results beside the published ones."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proximo.evaluation.episodes import bootstrap_interval
from suite_tasks import Suite, Task

MARK, OWN = "#c0392b", "#2563a8"
TITLE_WIDTH = 48
"""Characters that fit above a panel."""
FIRST_COLUMNS = "Task | Steps | Final policy of every seed | Mean (95 %) | Worst | Last 100 episodes | Collapsed"


def table(suite: Suite, results: dict[str, Any]) -> str:
    """Markdown: a row for each task with results, then the sources of the published columns."""
    shown = [
        row for name, task in suite.tasks.items() if (record := results["tasks"].get(name)) for row in _rows(name, task, record)
    ]
    columns = [column for column in suite.published if any(column in task.published for _, task, _ in shown)]
    has_criteria = any(task.has_criteria for _, task, _ in shown)
    header = " | ".join([FIRST_COLUMNS, *columns, *(("Mark", "Aim", "Reached") if has_criteria else ())])
    lines = [f"| {header} |", "|---" * (header.count("|") + 1) + "|"]
    for label, task, record in shown:
        published = [str(task.published.get(column, "–")) for column in columns]
        criteria = [*_criteria(task), reached(task, record)] if has_criteria else []
        lines.append("| " + " | ".join([label, *_cells(task, record), *published, *criteria]) + " |")
    return "\n".join([*lines, "", *(f"- {column}: {suite.published[column]}" for column in columns)])


def _rows(name: str, task: Task, record: dict[str, Any]) -> list[tuple[str, Task, dict[str, Any]]]:
    """What the table shows of a task: its row, and one for each other environment that its policies are evaluated on."""
    unit = "" if task.metric == "return_mean" else task.metric.replace("_", " ")
    rows = [(f"`{name}`" + (f" ({unit}; last episodes: return)" if unit else ""), task, record)]
    for env, aim in task.also_on.items():
        # A seed that was trained before ``env`` was added has not been evaluated there.
        scores = {seed: row["also_on"][env] for seed, row in record["seeds"].items() if env in row.get("also_on", {})}
        seeds = {seed: {"score": score, "last_100": None} for seed, score in scores.items()}
        if not seeds:
            continue
        label = f"`{name}` on `{env}`" + (f" ({unit})" if unit else "")
        rows.append((label, replace(task, mark=None, aim=aim, published={}), {**record, "seeds": seeds}))
    return rows


def _cells(task: Task, record: dict[str, Any]) -> list[str]:
    """Steps, every seed, mean with its interval, worst seed, last episodes, and collapsed seeds."""
    scores = scores_of(record)
    last = [row["last_100"] for row in record["seeds"].values() if row["last_100"] is not None]
    every = " ".join(map(number, scores)) + ("" if len(scores) >= task.seeds else f" ({len(scores)} of {task.seeds})")
    mean = number(scores.mean())
    if len(scores) > 1:
        low, high = bootstrap_interval(scores)
        mean += f" ({number(low)} … {number(high)})"
    last_100 = number(np.mean(last)) if last else "–"
    return [f"{record['steps']:,}", every, mean, number(scores.min()), last_100, str(collapsed(scores))]


def scores_of(record: dict[str, Any]) -> np.ndarray:
    """The score of each seed."""
    return np.array([row["score"] for row in record["seeds"].values()])


def collapsed(scores: np.ndarray) -> int:
    """Number of seeds that are below the median by more than half of its size."""
    median = np.median(scores)
    return int(np.sum(scores < median - abs(median) / 2))


def _criteria(task: Task) -> list[str]:
    """Mark and aim."""
    pairs = ((task.mark, task.mark_steps), (task.aim, task.aim_steps))
    return ["–" if figure is None else number(figure) + (f" by {steps:,}" if steps else "") for figure, steps in pairs]


def reached(task: Task, record: dict[str, Any]) -> str:
    """Whether the seeds reach the mark and the aim within their steps; "so far" if some are not trained yet."""
    scores = scores_of(record)
    score = scores.mean() if task.judged_by == "mean" else scores.min()
    so_far = "" if len(scores) >= task.seeds else " so far"

    def meets(figure: float | None, steps: int | None) -> bool:
        return figure is not None and score >= figure and record["steps"] <= (steps or math.inf)

    if meets(task.aim, task.aim_steps):
        return f"aim{so_far}"
    if task.mark is None:
        return "–" if task.aim is None else f"aim **missed**{so_far}"
    if not meets(task.mark, task.mark_steps):
        return f"**missed**{so_far}"
    return f"mark{so_far}" + ("" if task.aim is None else f", aim **missed**{so_far}")


def number(value: float) -> str:
    """Three decimals up to 1, two below 10, one below 1000, else none."""
    size = abs(round(value, 3))
    return f"{value:.{3 if size <= 1 else 2 if size < 10 else 1 if size < 1000 else 0}f}"


def plot(suite: Suite, results: dict[str, Any], path: Path) -> None:
    """One panel for each task: the mean training return over its seeds, its 95 % interval, each final policy, mark and aim."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [name for name in suite.tasks if results["tasks"].get(name, {}).get("seeds")]
    columns = min(4, len(shown)) or 1
    rows = -(-len(shown) // columns) or 1
    figure, axes = plt.subplots(rows, columns, figsize=(max(6.8, 3.4 * columns), 2.6 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, shown, strict=False):
        draw(axis, name, suite.tasks[name], results["tasks"][name])
    lines = "; red: mark (solid) and aim (dotted)" if any(suite.tasks[name].has_criteria for name in shown) else ""
    figure.suptitle(
        f"{suite.title}: mean return of training episodes, 95 % interval over seeds\ndots: final policies{lines}", fontsize=9
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(axis: Any, name: str, task: Task, record: dict[str, Any]) -> None:
    from matplotlib.ticker import EngFormatter

    curves = [np.array(row["curve"]) for row in record["seeds"].values() if row["curve"]]
    if curves:
        steps = np.linspace(max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves), 100)
        returns = np.array([np.interp(steps, *curve.T) for curve in curves])
        axis.plot(steps, returns.mean(axis=0), color=OWN, linewidth=1.3)
        if len(curves) > 1:
            low, high = np.transpose([bootstrap_interval(column) for column in returns.T])
            axis.fill_between(steps, low, high, color=OWN, alpha=0.2, linewidth=0)
    scores, of_scores = scores_of(record), axis if task.metric == "return_mean" else axis.twinx()
    of_scores.plot(np.full(len(scores), record["steps"]), scores, "o", markersize=3.5, color=OWN, alpha=0.7, clip_on=False)
    for figure, style in ((task.mark, "-"), (task.aim, ":")):
        if figure is not None:
            of_scores.axhline(figure, linestyle=style, color=MARK, linewidth=1)
    of_scores.tick_params(labelsize=7)
    if of_scores is not axis:
        of_scores.set_ylabel(f"{task.metric.replace('_', ' ')} (dots, lines)", fontsize=7)
        if task.metric == "success_rate":
            of_scores.set_ylim(0, 1.05)
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.set_xlabel("steps", fontsize=7)
    library, _, short = name.rpartition(":")
    label = short if "." in library else name  # of my_package.module:MyEnv, the panel has room for MyEnv only
    title = f"{label} ({len(scores)}\N{NO-BREAK SPACE}seed{'s' * (len(scores) > 1)})"
    axis.set_title(textwrap.fill(title, TITLE_WIDTH, break_on_hyphens=False), fontsize=8, loc="left")
    axis.tick_params(labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
