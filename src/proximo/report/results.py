"""The results of a report: the score of each group, its confidence interval, and which group is better."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from proximo.report.grouping import Section, differing
from proximo.report.read import EVALUATION, SUCCESS, RunRecord
from proximo.report.statistics import interquartile_interval, probability_of_improvement


def summary(section: Section, label: str, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """The results of ``runs`` of a section, in the form of ``--json``.

    Runs that ended early count with their last score, and failed runs without a score with the lowest return of any run of
    the environment: without them, the group would look too good. Other runs without a score are left out.
    """
    has_failed = [run.status == "failed" or run.ends_with_nan for run in runs]

    def scores(values: Sequence[float], worst: float) -> list[float]:
        counted = (worst if math.isnan(x) and failed else x for x, failed in zip(values, has_failed, strict=True))
        return [x for x in counted if not math.isnan(x)]

    is_evaluated = section.measure == EVALUATION
    last = [(run.series(section.measure).value.tolist() or [math.nan])[-1] for run in runs]
    final = [math.nan if is_evaluated and run.ends_with_nan else x for run, x in zip(runs, last, strict=True)]
    best = [max(run.series(EVALUATION).value.tolist(), default=math.nan) for run in runs]
    counted, timed = scores(final, section.worst), [run for run in runs if run.seconds.any()]
    failed = len(counted) - sum(not math.isnan(score) for score in final)
    success = [_success(run, failed) for run, failed in zip(runs, has_failed, strict=True)]
    return {
        "environment": section.environment,
        "group": label,
        "runs": len(runs),
        "status": dict(Counter(run.status for run in runs)),
        "measure": section.measure,
        "scores": counted,
        "final": interquartile_interval(counted),
        "best": interquartile_interval(scores(best, section.worst if is_evaluated else math.nan)),
        "success_rate": _mean(success) if any(len(run.series(SUCCESS).value) for run in runs) else None,
        "steps": round(sum(run.step for run in runs) / len(runs)),
        "seconds": _mean(run.seconds[-1] for run in timed),
        "steps_per_second": _mean((run.step - run.first_step) / run.seconds[-1] for run in timed),
        "failed_without_result": failed,
        "failed_count_as": section.worst if failed else None,
        "left_out": len(runs) - len(counted),
        "settings": {name: " | ".join(dict.fromkeys(run.setting(name) for run in runs)) for name in differing(section.runs)},
    }


def _success(run: RunRecord, has_failed: bool) -> float:
    """The success rate of the last evaluation; 0 if it has none. Without an evaluation: 0 if the run failed, else NaN."""
    evaluated, found = run.series(EVALUATION).step[-1:], run.series(SUCCESS)
    if not len(evaluated) or run.ends_with_nan:
        return 0.0 if has_failed else math.nan
    return float(found.value[-1]) if len(found.step) and found.step[-1] == evaluated else 0.0


def _mean(values: Iterable[float]) -> float | None:
    finite = [value for value in values if not math.isnan(value)]
    return float(np.mean(finite)) if finite else None


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
    """P(a run of ``x`` beats a run of ``y``) for pairs of groups with at least two scores each; ``x`` wins more often.
    ``tables`` has the results of each environment. If there are several, groups of at least two of them are compared."""
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
