"""The results of a report: scores of groups with confidence intervals, and which group is better.

Source of the statistics: Agarwal et al. 2021, arXiv:2108.13264.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from proximo.report.runs import EVALUATION, SUCCESS, RunRecord, Section, differing
from proximo.serialization import JsonObject

RESAMPLES = 2000
LIMITS = [50, 1949]
"""Ranks of the 2.5 and 97.5 % percentiles among the resamples."""


def rank_weights(counts: np.ndarray) -> np.ndarray:
    """Weight of each rank in the interquartile mean of a resample with ``counts [..., runs]`` draws of each.

    The sorted draws occupy the interval ``0 … runs``. A quarter on each side, rounded down, is cut, as by scipy.
    """
    runs = counts.shape[-1]
    cut = int(0.25 * runs)
    upto = np.clip(counts.cumsum(axis=-1), cut, runs - cut)
    return np.diff(upto, axis=-1, prepend=cut) / (runs - 2 * cut)


@functools.cache
def _resamples(runs: int) -> np.ndarray:
    """``[runs, RESAMPLES]``: weights of the ranks of ``runs`` values, for resamples with a fixed seed."""
    return rank_weights(np.random.default_rng(0).multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES)).T


def interquartile_band(values: np.ndarray) -> dict[str, np.ndarray]:
    """At each point: the interquartile mean ``middle`` over runs, its 95 % interval from ``low`` to ``high`` by the
    percentile bootstrap (NaN for one run), and the number ``count`` of runs. ``values`` are ``[runs, points]``, or NaN.

    Resamples draw ranks instead of values, which gives the same distribution, without sorting each resample.
    """
    counts, ordered = np.isfinite(values).sum(axis=0), np.sort(values, axis=0)  # NaN goes last
    band = np.full((3, len(counts)), np.nan)
    for count in np.unique(counts[counts > 0]):
        at = counts == count
        present = ordered[:count, at]
        band[0, at] = rank_weights(np.ones(count)) @ present
        if count > 1:
            # einsum, because the threads of a matrix product cost more than such a small product.
            means = np.einsum("rp,rd->pd", present, _resamples(int(count)))
            band[1:, at] = np.partition(means, LIMITS, axis=1)[:, LIMITS].T
    return {"middle": band[0], "low": band[1], "high": band[2], "count": counts}


def interquartile_interval(values: Sequence[float]) -> JsonObject:
    """The interquartile mean ``iqm``, None without values, and its 95 % interval ``ci95``, None for fewer than two values."""
    middle, low, high, _ = interquartile_band(np.reshape(values, (-1, 1))).values()
    interval = [float(low[0]), float(high[0])]
    return {"iqm": float(middle[0]) if len(values) else None, "ci95": interval if len(values) > 1 else None}


def probability_of_improvement(tasks: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, list[float]]:
    """P(X > Y), a mean over environments, and its 95 % interval. Ties count half. Source: Agarwal et al., section 4.3.

    ``tasks`` has the scores of X and of Y for each environment, in which the stratified bootstrap draws from them.
    """
    rng = np.random.default_rng(0)
    means, resampled = [], []
    for x, y in tasks:
        wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
        drawn_x, drawn_y = (rng.multinomial(len(z), np.full(len(z), 1 / len(z)), size=RESAMPLES) / len(z) for z in (x, y))
        means.append(wins.mean())
        resampled.append(((drawn_x @ wins) * drawn_y).sum(axis=1))
    return float(np.mean(means)), np.partition(np.mean(resampled, axis=0), LIMITS)[LIMITS].tolist()


def summary(section: Section, label: str, runs: Sequence[RunRecord]) -> JsonObject:
    """The results of ``runs`` of a section, in the form of ``--json``.

    Runs that ended early count with their last score, and failed runs without a score with the lowest return of any run
    of the environment: without them, the group would look too good. Other runs without a score are left out.
    """
    scores = zip(*(_scores(section, run) for run in runs), strict=True)
    final, best, success, measured = ([x for x in column if not math.isnan(x)] for column in scores)
    failed = len(final) - round(sum(measured))
    timed = [run for run in runs if run.seconds.any()]
    return {
        "environment": section.environment,
        "group": label,
        "runs": len(runs),
        "status": dict(Counter(run.status for run in runs)),
        "measure": section.measure,
        "scores": final,
        "final": interquartile_interval(final),
        "best": interquartile_interval(best),
        "success_rate": _mean(success) if any(len(run.series(SUCCESS).value) for run in runs) else None,
        "steps": round(sum(run.step for run in runs) / len(runs)),
        "seconds": _mean([run.seconds[-1] for run in timed]),
        "steps_per_second": _mean([(run.step - run.first_step) / run.seconds[-1] for run in timed]),
        "failed_without_result": failed,
        "failed_count_as": section.worst if failed else None,
        "left_out": len(runs) - len(final),
        "settings": {n: " | ".join(dict.fromkeys(run.setting(n) for run in runs)) for n in differing(section.runs)},
    }


def _scores(section: Section, run: RunRecord) -> tuple[float, float, float, bool]:
    """The last and the best return and the last success rate of a run, NaN without one; and whether the last return was measured.
    If not, it is the lowest return in the environment, or NaN."""
    is_evaluated, nan = section.measure == EVALUATION, math.nan
    has_failed = run.status == "failed" or run.ends_with_nan
    worst = section.worst if has_failed else nan
    values, evaluations, success = (run.series(name) for name in (section.measure, EVALUATION, SUCCESS))
    is_measured = len(values.value) > 0 and not (is_evaluated and run.ends_with_nan)
    final = float(values.value[-1]) if is_measured else worst
    best = float(evaluations.value.max()) if len(evaluations.value) else worst if is_evaluated else nan
    if not len(evaluations.value) or run.ends_with_nan:
        return final, best, 0.0 if has_failed else nan, is_measured
    reported = success.value[success.step == evaluations.step[-1]].tolist()
    return final, best, [0.0, *reported][-1], is_measured


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def notes(table: Sequence[JsonObject]) -> list[str]:
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


def improvements(tables: Sequence[Sequence[JsonObject]]) -> list[JsonObject]:
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


def as_json(sections: Sequence[Section]) -> JsonObject:
    """The table of results and the probabilities of improvement, in each environment and over several."""
    tables = [[summary(section, *group) for group in section.groups.items()] for section in sections]
    return {
        "table": list(itertools.chain(*tables)),
        "improvement": [{"environment": table[0]["environment"], **pair} for table in tables for pair in improvements([table])],
        "improvement_over_environments": improvements(tables) if len(tables) > 1 else [],
    }
