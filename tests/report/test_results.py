"""The figures of the table of results, intervals compared with bootstraps that draw by index, and curves."""

import itertools

import numpy as np
import pytest
from scipy import stats

from made_runs import BATCH, SPEED, made_group, made_rows, made_run, write_rows
from proximo.report.curves import charts_of, common_grid, on_grid
from proximo.report.results import (
    as_json,
    interquartile_band,
    interquartile_interval,
    notes,
    probability_of_improvement,
    rank_weights,
)
from proximo.report.runs import read_runs, sections_of

ENVS = ("gymnax:CartPole-v1", "gymnax:Acrobot-v1")


def evaluated(run_dir, *returns, success=(0.5,)):
    """A run with these evaluations, at equal distances; later evaluations repeat the last ``success``."""
    made_run(run_dir, seed=int(run_dir.name.removeprefix("seed-")))
    rows = [row for row in made_rows(20, 100, 0) if "eval/return_mean" not in row]
    steps = np.linspace(0, 20 * BATCH, len(returns) + 1)[1:].astype(int).tolist()
    rates = [*success, *success[-1:] * len(returns)]
    rows += [{"step": s, "eval/return_mean": r, "eval/success_rate": p} for s, r, p in zip(steps, returns, rates, strict=False)]
    write_rows(run_dir, sorted(rows, key=lambda row: row["step"]))


def grouped(paths, folder, by=()):
    return sections_of(read_runs(list(map(str, paths)), folder), by)


def test_final_and_best_are_interquartile_means_over_runs(tmp_path):
    for seed, returns in enumerate([(5.0, 1.0), (3.0, 2.0), (9.0, 3.0), (4.0, 100.0)]):
        evaluated(tmp_path / "g" / f"seed-{seed}", *returns)
    [row] = as_json(grouped([tmp_path / "g"], tmp_path))["table"]
    assert row["final"]["iqm"] == pytest.approx(2.5)  # of 1, 2, 3, 100
    assert row["best"]["iqm"] == pytest.approx(7.0)  # of 3, 5, 9, 100
    low, high = row["final"]["ci95"]
    assert low < 2.5 < high
    assert (row["success_rate"], row["steps"], row["status"]) == (0.5, 20 * BATCH, {"finished": 4})
    assert row["seconds"] == pytest.approx(20 * BATCH / SPEED)
    assert row["steps_per_second"] == pytest.approx(SPEED)


def test_without_evaluations_the_last_episodes_count(tmp_path):
    run_dir = made_run(tmp_path / "r", eval_episodes=0)
    rows = [row for row in made_rows(20, 100, 0) if "eval/return_mean" not in row]
    write_rows(run_dir, rows)
    [row] = as_json(grouped([run_dir], tmp_path))["table"]
    assert row["measure"] == "rollout/return_mean"
    assert row["final"] == {"iqm": rows[-1]["rollout/return_mean"], "ci95": None}
    assert row["best"] == {"iqm": None, "ci95": None}


@pytest.fixture
def failing(tmp_path):
    """Two seeds of the first group failed before their first evaluation, one in its first update; one is running."""
    for seed, returns in enumerate([(400.0, 480.0), (450.0, 500.0)]):
        evaluated(tmp_path / "a" / f"seed-{seed}", *returns)
        evaluated(tmp_path / "b" / f"seed-{seed}", 100.0, 200.0 + seed)
    begun = [row for row in made_rows(4, 100, 3) if "eval/return_mean" not in row]
    for seed, rows in ((2, []), (3, begun), (4, begun)):
        write_rows(made_run(tmp_path / "a" / f"seed-{seed}", seed=seed), rows)
    for seed in (2, 3):
        (tmp_path / "a" / f"seed-{seed}" / "failure.txt").write_text("NaN")
    return grouped([tmp_path / "a", tmp_path / "b"], tmp_path, ["name"])[0]


def test_seed_failed_before_first_evaluation_counts_as_worst(failing):
    worst = min(run.series("rollout/return_mean").value.min() for run in failing.runs if run.rows)
    assert worst < 100
    results = as_json([failing])
    a, b = results["table"]
    assert a["final"]["iqm"] == a["best"]["iqm"] == pytest.approx((worst + 480) / 2)
    assert a["final"]["ci95"][0] == worst
    assert (a["success_rate"], b["success_rate"]) == (0.25, 0.5)
    assert (a["failed_without_result"], a["failed_count_as"], a["left_out"]) == (2, worst, 1)
    assert (b["failed_without_result"], b["failed_count_as"], b["left_out"]) == (0, None, 0)
    [pair] = results["improvement"]
    assert pair["probability"] == 0.5, "two of four seeds lose against every seed of the other group"
    failed, left_out = notes(results["table"])
    assert failed.startswith("gymnax:CartPole-v1, a: 2 of 5 runs failed without a result and count as ")
    assert left_out == "gymnax:CartPole-v1, a: 1 of 5 runs have no evaluation and are left out."


def test_last_evaluation_with_nan_or_without_success_is_not_replaced_by_an_earlier_one(tmp_path):
    """A Gymnasium environment may report ``success`` only in successful episodes."""
    evaluated(tmp_path / "g" / "seed-0", 5.0, 7.0)
    evaluated(tmp_path / "g" / "seed-1", 9.0, None, success=(0.5, None))
    evaluated(tmp_path / "g" / "seed-2", 1.0, 2.0, success=(0.5, None))
    [row] = as_json(grouped([tmp_path / "g"], tmp_path))["table"]
    assert row["final"]["iqm"] == pytest.approx((7.0 + 2.0 + row["failed_count_as"]) / 3)
    assert row["best"]["iqm"] == pytest.approx(6.0)
    assert (row["failed_without_result"], row["success_rate"]) == (1, pytest.approx(0.5 / 3))


def compared(tmp_path, **levels):
    """Groups by name, each of four seeds around its level, in as many environments as it has levels."""
    paths = []
    for name, found in levels.items():
        for env, level in zip(ENVS, found, strict=False):
            paths.append(made_group(tmp_path / env / name, level=level, env=env, name=name))
    return as_json(grouped(paths, tmp_path, ["name"]))


def test_all_groups_of_several_runs_are_compared_with_the_better_first(tmp_path):
    results = compared(tmp_path, low=[50.0], high=[500.0], mid=[200.0])
    pairs = results["improvement"]
    assert [(pair["x"], pair["y"]) for pair in pairs] == [("high", "low"), ("mid", "low"), ("high", "mid")]
    assert (pairs[0]["probability"], pairs[0]["ci95"]) == (1.0, [1.0, 1.0])
    assert results["improvement_over_environments"] == []
    single = grouped([tmp_path / ENVS[0] / name / "seed-0" for name in ("low", "mid")], tmp_path, ["name"])
    assert as_json(single)["improvement"] == []


def test_overall_probability_is_the_mean_over_environments(tmp_path):
    results = compared(tmp_path, a=[100.0, 500.0], b=[110.0, 50.0])
    [pair] = results["improvement_over_environments"]
    single = [found["probability"] if found["x"] == "a" else 1 - found["probability"] for found in results["improvement"]]
    assert (pair["x"], pair["y"], pair["environments"]) == ("a", "b", 2)
    assert pair["probability"] == pytest.approx(np.mean(single))
    assert pair["ci95"][0] <= pair["probability"] <= pair["ci95"][1]
    found = [(row["environment"], row["group"]) for row in results["table"]]
    assert found == [(env, name) for env in ENVS for name in "ab"]


def iqm(x, axis=0):
    return stats.trim_mean(x, 0.25, axis=axis)


@pytest.mark.parametrize("runs", [1, 3, 4, 11])
def test_weights_of_ranks_give_the_trimmed_mean_of_the_resample(runs):
    rng = np.random.default_rng(runs)
    x = np.sort(rng.normal(size=runs))
    draws = itertools.product(range(runs), repeat=runs) if runs < 5 else rng.integers(0, runs, (200, runs))
    for draw in map(list, draws):
        np.testing.assert_allclose(rank_weights(np.bincount(draw, minlength=runs)) @ x, iqm(x[draw]), atol=1e-12)


@pytest.mark.parametrize("runs", [3, 10])
def test_the_interval_is_that_of_a_bootstrap_by_index(runs):
    x = np.random.default_rng(runs).normal(size=runs)
    found = interquartile_interval(x)
    drawn = iqm(x[np.random.default_rng(1).integers(0, runs, (20_000, runs))], axis=1)
    assert found["iqm"] == pytest.approx(iqm(x))
    # 2,000 resamples place a percentile to a sixteenth of the deviation.
    np.testing.assert_allclose(found["ci95"], np.percentile(drawn, [2.5, 97.5]), atol=0.25 * drawn.std())


def test_points_use_only_the_runs_that_reach_them_and_not_their_neighbours():
    nan = np.nan
    values = np.array([[1.0, 1.0, nan, nan], [3.0, nan, nan, 7.0], [5.0, 5.0, nan, nan]])
    band = interquartile_band(values)
    np.testing.assert_array_equal(band["count"], [3, 2, 0, 1])
    np.testing.assert_allclose(band["middle"], [3.0, 3.0, nan, 7.0])
    np.testing.assert_array_equal(np.isnan(band["low"]), [False, False, True, True])
    np.testing.assert_allclose([band["low"][1], band["high"][1]], [1.0, 5.0])
    for i in range(4):
        alone = interquartile_band(values[:, [i]])
        np.testing.assert_allclose([alone[name][0] for name in band], [band[name][i] for name in band])


TASKS = [
    (np.array([1.0, 2.0, 3.0, 3.0]), np.array([0.0, 2.0, 3.0])),
    (np.array([110.0, 90.0, 100.0]), np.array([95.0, 105.0, 80.0, 100.0])),
]


@pytest.mark.parametrize("tasks", [TASKS[:1], TASKS])
def test_probability_of_improvement_equals_the_brute_force_result(tasks):
    def wins(x, y):
        return np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y])

    rng = np.random.default_rng(5)
    drawn = [np.mean([wins(rng.choice(x, len(x)), rng.choice(y, len(y))) for x, y in tasks]) for _ in range(1000)]
    probability, interval = probability_of_improvement(tasks)
    assert probability == pytest.approx(np.mean([wins(x, y) for x, y in tasks]))
    np.testing.assert_allclose(interval, np.percentile(drawn, [2.5, 97.5]), atol=0.06)


@pytest.mark.parametrize("rows", [1, 240, 241, 12_345])
def test_thinned_curve_keeps_its_ends_and_the_sum_of_its_values(rows):
    rng = np.random.default_rng(rows)
    x, y = np.sort(rng.uniform(size=rows)), rng.normal(size=rows)
    grid = common_grid([x], 240)
    assert len(grid) == min(rows, 240)
    assert (grid[0], grid[-1]) == (x[0], x[-1])
    counts = np.diff([0, *np.searchsorted(x, grid, side="right")])
    assert (on_grid(grid, x, y) * counts).sum() == pytest.approx(y.sum())
    found = on_grid(np.array([0, 2, 4, 6, 8]), np.array([1, 2, 6]), np.array([1.0, 3.0, 10.0]))
    np.testing.assert_allclose(found, [np.nan, 2, 6, 10, np.nan]), "the mean since the previous point, or interpolated"


def test_short_curves_have_every_measured_point_over_both_axes(tmp_path):
    group = made_group(tmp_path / "g", seeds=3)
    write_rows(group / "seed-0", [row | {"rollout/success_rate": 0.2} for row in made_rows(20, 100, 0)])
    section = grouped([group], tmp_path)[0]
    chart, training, success = charts_of(section, 3)
    assert [x["title"] for x in (chart, training, success)] == ["Evaluation return", "Training return", "Training success"]
    assert [line["name"] for line in success["step"]["groups"][0]["lines"]] == ["g/seed-0"]
    for axis, unit in (("step", BATCH), ("seconds", BATCH / SPEED)):
        np.testing.assert_allclose(chart[axis]["x"], unit * np.array([5, 10, 15, 20]))
        [group] = chart[axis]["groups"]
        for line, run in zip(group["lines"], section.runs, strict=True):
            np.testing.assert_allclose(line["y"], run.series("eval/return_mean").value)
        np.testing.assert_allclose(group["middle"], np.mean([line["y"] for line in group["lines"]], axis=0))
        assert (group["low"] <= group["middle"]).all()
        assert (group["middle"] <= group["high"]).all()


def test_mean_ends_when_fewer_than_half_of_the_runs_remain(tmp_path):
    group = made_group(tmp_path / "g", seeds=3)
    for seed, updates in enumerate((4, 6, 10)):
        write_rows(group / f"seed-{seed}", [{"step": i, "eval/return_mean": 10.0 * updates} for i in range(1, updates + 1)])
    [chart] = charts_of(grouped([group], tmp_path)[0], 3)
    [found] = chart["step"]["groups"]
    np.testing.assert_array_equal(found["count"], [3] * 4 + [2] * 2 + [1] * 4)
    # No value is carried on beyond the run that ended at 4.
    np.testing.assert_allclose(found["middle"], [200 / 3] * 4 + [80, 80] + [np.nan] * 4)
