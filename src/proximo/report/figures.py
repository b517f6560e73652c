"""The picture of an agent's learning curve, without pyplot, which would search for a display."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from proximo.errors import ConfigError
from proximo.report.read import EVALUATION, TRAINING

CURVES = (
    (TRAINING, "training episodes, sampled actions", "#0072b2", ""),
    (EVALUATION, "evaluations, most probable actions", "#d55e00", "o"),
)


class LearningCurve(Figure):
    """A figure that notebooks display."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def draw_learning_curve(rows: Sequence[dict[str, Any]], title: str, path: str | Path | None = None) -> Figure:
    """Draw the mean returns in ``rows`` of metrics, also to the file ``path``, if given. Raises ``ConfigError`` if they have none."""
    figure = LearningCurve(figsize=(7.0, 4.0), dpi=110, layout="constrained")
    axes = figure.subplots()
    for name, label, color, marker in CURVES:
        if points := [(row["step"], row[name]) for row in rows if row.get(name) is not None]:
            marker = "o" if len(points) == 1 else marker
            axes.plot(*zip(*points, strict=True), color=color, linewidth=1.6, marker=marker, markersize=4, label=label)
    if not axes.lines:
        raise ConfigError("The agent has no returns to plot: call learn first, with more steps if no episode has ended.")
    axes.set_title(title.replace("$", r"\$"), fontsize=11)  # no mathematical notation
    axes.set_xlabel("environment steps", fontsize=9)
    axes.set_ylabel("mean return", fontsize=9)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.tick_params(labelsize=9)
    axes.grid(color="#d9dce1", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    if path is not None:
        figure.savefig(path)
    return figure
