"""The results of a report: the score of each group, its confidence interval, and which group is better."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from proximo.report.curves import TRAINING
from proximo.report.grouping import Group, Section
from proximo.report.read import EVALUATION, RunRecord
from proximo.report.statistics import interquartile_interval, probability_of_improvement

MAX_PAIRED = 5
"""Up to this number of groups, all pairs are compared; with more, each group is compared with the best one."""


class Score(NamedTuple):
    """Interquartile mean over runs and its 95 % interval. None if nothing was measured; no interval for a single run."""

    iqm: float | None
    ci95: list[float] | None


class Row(NamedTuple):
    """One group in the table of results.

    ``seconds`` and ``steps_per_second`` are means over its runs. ``failed`` is the number of failed runs without a result, which count as
    ``worst``. ``left_out`` is the number of other runs without a result.
    """

    group: Group
    statuses: dict[str, int]
    final: Score
    best: Score
    success_rate: float | None
    steps: int
    seconds: float | None
    steps_per_second: float | None
    failed: int
    worst: float | None
    left_out: int


class Improvement(NamedTuple):
    """P(a run of ``x`` beats a run of ``y``), a mean over ``environments``, and its 95 % interval."""

    x: str
    y: str
    probability: float
    ci95: list[float]
    environments: int = 1


def measure_of(section: Section) -> str:
    """The metric that ranks the runs of an environment: the evaluation return, or the training return if no run was evaluated."""
    return EVALUATION if any(EVALUATION in run.series for run in section.runs) else TRAINING


def final_score(run: RunRecord, measure: str) -> float:
    """The last value; NaN if there is none."""
    values = run.values(measure)
    return float(values[-1]) if len(values) and not (run.invalid and measure == EVALUATION) else math.nan


def best_score(run: RunRecord) -> float:
    """The best evaluation return; NaN if there is none."""
    return float(run.values(EVALUATION).max(initial=-math.inf)) if EVALUATION in run.series else math.nan


def has_failed(run: RunRecord) -> bool:
    """Whether the run failed, or its last evaluation is NaN. Without a score, such a run counts as the worst."""
    return run.status == "failed" or run.invalid


def worst_return(section: Section) -> float:
    """The lowest return that any run of the environment has measured, in evaluation or in training; NaN if there is none.

    It is the score of failed runs without a result. Without them, the remaining runs would look too good.
    """
    lowest = [run.values(name).min() for run in section.runs for name in (EVALUATION, TRAINING) if name in run.series]
    return float(min(lowest, default=math.nan))


def _scores(runs: Sequence[RunRecord], score: Callable[[RunRecord], float], worst: float) -> np.ndarray:
    """The finite scores of ``runs``. Failed runs without a score count as ``worst``; other runs without one are left out."""
    scores = np.array([worst if has_failed(run) and not math.isfinite(score(run)) else score(run) for run in runs], np.float64)
    return scores[np.isfinite(scores)]


def success(run: RunRecord) -> float:
    """The success rate of the last evaluation, 0 if it reports none. Without an evaluation: 0 for a failed run, else NaN."""
    found, evaluated = (run.series.get(name) for name in ("eval/success_rate", EVALUATION))
    if evaluated is None:
        return 0.0 if has_failed(run) else math.nan
    return float(found.value[-1]) if found is not None and found.step[-1] == evaluated.step[-1] else 0.0


def speed(run: RunRecord) -> float:
    """Environment steps per second over all sessions; NaN if unknown."""
    return (run.step - run.first_step) / run.seconds if run.seconds > 0 else math.nan


def _mean(values: Sequence[float]) -> float | None:
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else None


def final_row(group: Group, measure: str, worst: float) -> Row:
    """The row of a group. Runs that ended early count with their last score, failed runs without a score as ``worst``.

    Without them, the group would look too good.
    """
    runs = group.runs
    unmeasured = [run for run in runs if not math.isfinite(final_score(run, measure))]
    failed = sum(map(has_failed, unmeasured)) if math.isfinite(worst) else 0
    return Row(
        group=group,
        statuses=dict(Counter(run.status for run in runs)),
        final=Score(*interquartile_interval(_scores(runs, lambda run: final_score(run, measure), worst))),
        best=Score(*interquartile_interval(_scores(runs, best_score, worst if measure == EVALUATION else math.nan))),
        success_rate=_mean([success(run) for run in runs]) if any("eval/success_rate" in run.series for run in runs) else None,
        steps=round(sum(run.step for run in runs) / len(runs)),
        seconds=_mean([run.seconds for run in runs]),
        steps_per_second=_mean([speed(run) for run in runs]),
        failed=failed,
        worst=worst if failed else None,
        left_out=len(unmeasured) - failed,
    )


def final_table(section: Section) -> list[Row]:
    """One row for each group, in their order."""
    measure, worst = measure_of(section), worst_return(section)
    return [final_row(group, measure, worst) for group in section.groups]


def notes(section: Section) -> list[str]:
    """Notes on groups with runs that have no result: how many of these runs count as the worst, and how many are left out."""
    kind = "evaluation" if measure_of(section) == EVALUATION else "finished episode"
    found = []
    for row in final_table(section):
        runs = f"{section.environment}, {row.group.label}:"
        if row.failed:
            counted = f"count as {row.worst:.4g}, the lowest return measured in this environment"
            found.append(f"{runs} {row.failed} of {len(row.group.runs)} runs failed without a result and {counted}.")
        if row.left_out and row.final.iqm is not None:
            found.append(f"{runs} {row.left_out} of {len(row.group.runs)} runs have no {kind} and are left out.")
    return found


def _final_scores(section: Section) -> dict[str, np.ndarray]:
    """The scores of each group, by its label."""
    measure, worst = measure_of(section), worst_return(section)
    return {group.label: _scores(group.runs, lambda run: final_score(run, measure), worst) for group in section.groups}


def improvements(section: Section) -> list[Improvement]:
    """Comparisons of groups with at least two runs; the group with the higher final score is ``x``.

    All pairs are compared if there are few groups, else the best with each other one.
    """
    scores = _final_scores(section)
    ranked = sorted(
        (label for label, found in scores.items() if len(found) > 1),
        key=lambda label: -(interquartile_interval(list(scores[label]))[0] or 0.0),
    )
    pairs = itertools.combinations(ranked, 2) if len(ranked) <= MAX_PAIRED else ((ranked[0], other) for other in ranked[1:])
    return [Improvement(x, y, *probability_of_improvement([(scores[x], scores[y])])) for x, y in pairs]


def overall_improvements(sections: Sequence[Section]) -> list[Improvement]:
    """Comparisons over several environments: of each pair of groups that both have at least two runs in two or more environments."""
    scores = [{label: found for label, found in _final_scores(section).items() if len(found) > 1} for section in sections]
    labels = list(dict.fromkeys(label for found in scores for label in found))
    result = []
    for x, y in itertools.combinations(labels, 2):
        tasks = [(found[x], found[y]) for found in scores if x in found and y in found]
        if len(tasks) > 1:
            probability, interval = probability_of_improvement(tasks)
            if probability < 0.5:
                x, y, probability, interval = y, x, 1 - probability, [1 - interval[1], 1 - interval[0]]
            result.append(Improvement(x, y, probability, interval, len(tasks)))
    return result


def as_json(sections: Sequence[Section]) -> dict[str, Any]:
    """The table of results and the probabilities of improvement, for ``--json``."""
    table = [
        {
            "environment": section.environment,
            "group": row.group.label,
            "runs": len(row.group.runs),
            "status": row.statuses,
            "measure": measure_of(section),
            "final": row.final._asdict(),
            "best": row.best._asdict(),
            **{name: getattr(row, name) for name in ("success_rate", "steps", "seconds", "steps_per_second")},
            "failed_without_result": row.failed,
            "failed_count_as": row.worst,
            "left_out": row.left_out,
            "settings": {name: row.group.setting(name) for name in section.differing},
        }
        for section in sections
        for row in final_table(section)
    ]
    pairs = [{"environment": s.environment, **_pair(found)} for s in sections for found in improvements(s)]
    overall = [{"environments": found.environments, **_pair(found)} for found in overall_improvements(sections)]
    return {"table": table, "improvement": pairs, "improvement_over_environments": overall}


def _pair(found: Improvement) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ("x", "y", "probability", "ci95")}
