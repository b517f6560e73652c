"""Two pictures of a study, drawn by Optuna: the history of scores, and the importance of settings."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

HISTORY, IMPORTANCE = "history.png", "importance.png"
MIN_TRIALS = 20
"""With fewer trials importance would be noise."""


def draw_pictures(folder: Path, study: optuna.Study, title: str) -> None:
    """Draw ``history.png``, and ``importance.png`` if there are enough trials. Pruned trials are not counted."""
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as drawn

    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    # Optuna changes pyplot's style, and warns that its pictures are experimental. pyplot must not open a window.
    with warnings.catch_warnings(), plt.rc_context(), plt.ioff():
        warnings.simplefilter("ignore")
        pictures: dict[str, Callable[[optuna.Study], Any]] = {HISTORY: drawn.plot_optimization_history}
        if len(done) >= MIN_TRIALS and len({t.value for t in done}) > 1:
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            pictures[IMPORTANCE] = functools.partial(drawn.plot_param_importances, evaluator=evaluator)
        for name, draw in pictures.items():
            axes = draw(study)
            axes.set_title("", loc="left")
            axes.set_title(title)
            if name == IMPORTANCE:
                names = [label.get_text().removeprefix("1-").removesuffix(".rank") for label in axes.get_yticklabels()]
                axes.set_yticks(axes.get_yticks(), names)
            axes.figure.savefig(folder / name, dpi=120, bbox_inches="tight")
            plt.close(axes.figure)
