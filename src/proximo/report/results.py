"""The results of a report: the score of each group, its confidence interval, and which group is better."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from proximo.report.grouping import Section, differing
from proximo.report.read import EVALUATION, SUCCESS, RunRecord
from proximo.report.statistics import interquartile_interval, probability_of_improvement


def summary(section: Section, label: str, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """The results of ``runs`` of a section, in the form of ``--json``.

    Runs that ended early count with their last score, and failed runs without a score with the lowest return of any run
    of the environment: without them, the group would look too good. Other runs without a score are left out.
    """
    scores = [_scores(section, run) for run in runs]
    final = _numbers(score.final for score in scores)
    success = _numbers(score.success for score in scores)
    failed = len(final) - sum(score.is_measured for score in scores)
    timed = [run for run in runs if run.seconds.any()]
    return {
        "environment": section.environment,
        "group": label,
        "runs": len(runs),
        "status": dict(Counter(run.status for run in runs)),
        "measure": section.measure,
        "scores": final,
        "final": interquartile_interval(final),
        "best": interquartile_interval(_numbers(score.best for score in scores)),
        "success_rate": _mean(success) if any(len(run.series(SUCCESS).value) for run in runs) else None,
        "steps": round(sum(run.step for run in runs) / len(runs)),
        "seconds": _mean([run.seconds[-1] for run in timed]),
        "steps_per_second": _mean([(run.step - run.first_step) / run.seconds[-1] for run in timed]),
        "failed_without_result": failed,
        "failed_count_as": section.worst if failed else None,
        "left_out": len(runs) - len(final),
        "settings": {n: " | ".join(dict.fromkeys(run.setting(n) for run in runs)) for n in differing(section.runs)},
    }


class _Scores(NamedTuple):
    """The last and the best return and the last success rate of a run; NaN without one."""

    final: float
    best: float
    success: float
    is_measured: bool  # else ``final`` is the lowest return in the environment, or NaN


def _scores(section: Section, run: RunRecord) -> _Scores:
    is_evaluated, nan = section.measure == EVALUATION, math.nan
    has_failed = run.status == "failed" or run.ends_with_nan
    worst = section.worst if has_failed else nan
    values, evaluations, success = (run.series(name) for name in (section.measure, EVALUATION, SUCCESS))
    is_measured = len(values.value) > 0 and not (is_evaluated and run.ends_with_nan)
    final = float(values.value[-1]) if is_measured else worst
    best = float(evaluations.value.max()) if len(evaluations.value) else worst if is_evaluated else nan
    if not len(evaluations.value) or run.ends_with_nan:
        return _Scores(final, best, 0.0 if has_failed else nan, is_measured)
    reported = success.value[success.step == evaluations.step[-1]].tolist()
    return _Scores(final, best, [0.0, *reported][-1], is_measured)


def _numbers(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def notes(table: Sequence[dict[str, Any]]) -> list[str]:
    """How many runs without a result count as the worst, and how many are left out."""
    found = []
    for row in table:
        runs = f"{row['environment']}, {row['group']}:"
        if failed := row["failed_without_result"]:
            counted = f"count as {row['failed_count_as']:.4g}, the lowest return measured in this environment"
            found.append(f"{runs} {failed} of {row['runs']} runs failed without a result and {counted}.")
        if row["left_out"] and row["scores"]:
            kind = "evaluation" if row["measure"] == EVALUATION else "finished episode"
            found.append(f"{runs} {row['left_out']} of {row['runs']} runs have no {kind} and are left out.")
    return found


def improvements(tables: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """P(a run of ``x`` beats a run of ``y``) for pairs of groups with two scores or more; ``x`` wins more often.
    ``tables`` has the results of each environment. If there are several, groups of two or more of them are compared."""
    scores = [{row["group"]: np.array(row["scores"]) for row in table if len(row["scores"]) > 1} for table in tables]
    pairs = []
    for x, y in itertools.combinations(dict.fromkeys(itertools.chain(*scores)), 2):
        tasks = [(found[x], found[y]) for found in scores if x in found and y in found]
        if len(tasks) >= min(2, len(tables)):
            probability, interval = probability_of_improvement(tasks)
            if probability < 0.5:
                x, y, probability, interval = y, x, 1 - probability, [1 - interval[1], 1 - interval[0]]
            pairs.append({"x": x, "y": y, "probability": probability, "ci95": interval, "environments": len(tasks)})
    return pairs


def as_json(sections: Sequence[Section]) -> dict[str, Any]:
    """The table of results and the probabilities of improvement, in each environment and over several."""
    tables = [[summary(section, *group) for group in section.groups.items()] for section in sections]
    return {
        "table": list(itertools.chain(*tables)),
        "improvement": [{"environment": table[0]["environment"], **pair} for table in tables for pair in improvements([table])],
        "improvement_over_environments": improvements(tables) if len(tables) > 1 else [],
    }
