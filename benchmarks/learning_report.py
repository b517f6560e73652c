"""The table and the plot of the results of learning.py: every seed and its marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARK, OWN = "#c0392b", "#2563a8"


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown with one row per task: marks, steps, every seed, the worst seed, and which marks are met."""
    lines = ["| Task | Marks | Steps | Seeds | Worst | Met |", "|---|---|---|---|---|---|"]
    for name, r in results.items():
        marks = "; ".join(f"{key.replace('must', 'mark')} {m['figure']:g} by {m['steps']:,}" for key, m in r["marks"].items())
        seeds = " ".join(number(row["score"], r) for row in r["seeds"])
        cells = (f"`{name}`", marks or "–", f"{r['steps']:,}", seeds, number(r["worst"], r), reached(r))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def reached(result: dict[str, Any]) -> str:
    """The strictest mark that is met."""
    marks = result["marks"]
    if not marks:
        return "–"
    if marks.get("aim", {}).get("holds"):
        return "aim"
    return "mark" if marks.get("must", {}).get("holds") else "missed" if "must" in marks else "aim missed"


def number(score: float, result: dict[str, Any]) -> str:
    """Three decimals if no score exceeds 1, otherwise one."""
    share = all(abs(row["score"]) <= 1.0 for row in result["seeds"])
    return f"{score:.3f}" if share else f"{score:.1f}"


def plot(results: dict[str, dict[str, Any]], path: Path) -> None:
    """One panel per task with a dot for each seed, a red line at the mark, and a dotted line at the aim."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 2 if len(results) > 6 else 1
    rows = -(-len(results) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(6.2 * columns, 0.95 * rows + 0.6), squeeze=False)
    for axis in axes.flat[len(results) :]:
        axis.set_visible(False)
    for axis, (name, r) in zip(axes.T.flat, results.items(), strict=False):
        draw(axis, name, r)
    figure.suptitle("final policy of every seed; red line: mark, dotted: aim (a red dot misses the mark)", fontsize=10)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.2 / (0.95 * rows + 0.6)))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(axis: Any, name: str, r: dict[str, Any]) -> None:
    scores = [row["score"] for row in r["seeds"]]
    marks = {key: m["figure"] for key, m in r["marks"].items()}
    for key, style in (("must", "-"), ("aim", ":")):
        if key in marks:
            axis.axvline(marks[key], linestyle=style, color=MARK, linewidth=1.3)
    for place, score in enumerate(scores):
        axis.plot(
            score, place, "o", markersize=4.5, color=MARK if score < marks.get("must", -float("inf")) else OWN, clip_on=False
        )
    low, high = min([*scores, *marks.values()]), max([*scores, *marks.values()])
    margin = max(0.08 * (high - low), 0.002 * abs(high))
    axis.set_xlim(low - margin, high + margin)
    axis.set_ylim(len(scores) - 0.5, -0.5)
    axis.set_yticks([])
    axis.tick_params(labelsize=7)
    metric = f"{r['metric'].replace('_', ' ')}, {r['policy']}, {r['steps']:,} steps, {len(scores)} seeds"
    axis.set_title(f"{name}: {metric}", fontsize=8, loc="left")
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
