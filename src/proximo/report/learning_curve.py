"""The learning curve of an agent in memory."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from proximo.errors import ConfigError
from proximo.report.curves import TRAINING
from proximo.report.figure import COLORS
from proximo.report.read import EVALUATION

CURVES = ((TRAINING, "training episodes, sampled actions"), (EVALUATION, "evaluations, most probable actions"))


class LearningCurve(Figure):
    """A figure that notebooks display, also without pyplot, which would search for a display and keep the figure in memory."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def draw_learning_curve(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Draw the mean returns in ``rows`` of metrics over the environment steps. Raises ``ConfigError`` if they have none."""
    points = {name: [(row["step"], row[name]) for row in rows if row.get(name) is not None] for name, _ in CURVES}
    if not any(points.values()):
        raise ConfigError("The agent has no returns to plot: call learn first, with more steps if no episode has ended.")
    figure = LearningCurve(figsize=(7.0, 4.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (name, label), color, marker in zip(CURVES, COLORS, ("", "o"), strict=False):
        if points[name]:
            marker = "o" if len(points[name]) == 1 else marker
            axes.plot(*zip(*points[name], strict=True), color=color, linewidth=1.6, marker=marker, markersize=4, label=label)
    axes.set_title(title, fontsize=11, parse_math=False)
    axes.set_xlabel("environment steps", fontsize=9)
    axes.set_ylabel("mean return", fontsize=9)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.tick_params(labelsize=9)
    axes.grid(color="#d9dce1", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return figure
