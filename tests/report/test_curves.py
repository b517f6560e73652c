"""Curves that are thinned and laid upon a common grid say no more than was measured."""

import numpy as np
import pytest

from made_runs import BATCH, made_group, made_rows, made_run, write_rows
from proximo.report.curves import (
    METRICS,
    all_curves,
    chart_data,
    common_grid,
    curves,
    max_points,
    middle_of,
    on_grid,
    thinned,
)
from proximo.report.grouping import sections_of
from proximo.report.read import read_runs


@pytest.mark.parametrize("rows", [2, 299, 300, 301, 1000, 12_345])
def test_thinned_curve_is_short_and_keeps_its_end_and_mean(rows):
    rng = np.random.default_rng(rows)
    x, y = np.sort(rng.uniform(size=rows)), rng.normal(size=rows)
    (at,), mean = thinned([x], y, 300)
    assert len(at) == len(mean) <= 300
    assert at[-1] == x[-1]
    assert (np.diff(at) > 0).all()
    counts = np.diff(np.searchsorted(x, at), prepend=-1)
    assert (mean * counts).sum() == pytest.approx(y.sum())


def test_thinned_point_is_the_mean_of_the_rows_it_replaces():
    (at,), mean = thinned([np.arange(7.0)], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 100.0]), 4)
    np.testing.assert_array_equal(at, [0, 2, 4, 6])
    np.testing.assert_array_equal(mean, [1, 4, 8, 55.5])


def test_last_evaluation_of_a_thinned_curve_is_not_averaged(tmp_path):
    run_dir = made_run(tmp_path / "r", updates=40)
    write_rows(run_dir, [{"step": i, "eval/return_mean": float(i), "train/entropy": float(i)} for i in range(1, 41)])
    [section] = sections_of(read_runs([str(run_dir)], tmp_path))
    ends = [curves(section.groups[0], metric, 10).lines[0].y[-1] for metric in ("eval/return_mean", "train/entropy")]
    assert ends == [40.0, 38.5]


def test_a_curve_ends_where_its_run_has_ended():
    grid = np.arange(0.0, 10.0)
    found = on_grid(grid, np.array([2.0, 4.0, 6.0]), np.array([0.0, 2.0, 4.0]))
    np.testing.assert_allclose(found, [np.nan, np.nan, 0, 1, 2, 3, 4, np.nan, np.nan, np.nan])


def test_common_grid_keeps_short_runs_exactly_and_every_end():
    short = common_grid([np.array([1.0, 2.0]), np.array([2.0, 3.0])], 10)
    np.testing.assert_array_equal(short, [1, 2, 3])
    long = common_grid([np.linspace(0, 97.3, 400), np.linspace(0, 55.5, 300)], 100)
    assert len(long) <= 102
    assert {97.3, 55.5} <= set(long)


def test_middle_curve_ends_when_fewer_than_half_of_runs_remain():
    def line(end):
        x = np.arange(1.0, end + 1)
        return x, 10 * np.ones_like(x) * end

    middle = middle_of([line(4), line(6), line(10)], 100)
    assert middle.x[-1] == 6
    np.testing.assert_array_equal(middle.count, [3, 3, 3, 3, 2, 2])
    # No value is carried on beyond the run that ended at 4.
    np.testing.assert_allclose(middle.middle, [200 / 3] * 4 + [80, 80])


def test_curve_of_a_failed_seed_ends_and_the_others_continue(tmp_path):
    group = made_group(tmp_path / "g", seeds=3)
    write_rows(group / "seed-2", made_rows(6, 100, 2))
    [section] = sections_of(read_runs([str(group)], tmp_path))
    drawn = curves(section.groups[0], "train/entropy")
    assert [line.x["step"][-1] // BATCH for line in drawn.lines] == [20, 20, 6]
    np.testing.assert_array_equal(drawn.middles["step"].count, [3] * 6 + [2] * 14)


def test_curves_over_wall_time_have_seconds(tmp_path):
    [section] = sections_of(read_runs([str(made_group(tmp_path / "g"))], tmp_path))
    drawn = curves(section.groups[0], "eval/return_mean")
    assert drawn.middles["seconds"].x[-1] == pytest.approx(20 * BATCH / 5000)


def test_runs_without_a_clock_have_no_wall_time(tmp_path):
    run_dir = made_run(tmp_path / "r")
    write_rows(run_dir, [{k: v for k, v in row.items() if not k.startswith("time/")} for row in made_rows(20, 100, 0)])
    [section] = sections_of(read_runs([str(run_dir)], tmp_path))
    [group] = chart_data(METRICS[0], all_curves(section, 300)[METRICS[0]])["groups"]
    assert set(group["lines"][0]) == {"name", "y", "step"}


def test_many_runs_have_fewer_points_each():
    assert [max_points(runs) for runs in (1, 20, 100, 10_000)] == [300, 300, 80, 40]


def test_charts_are_those_that_any_run_has_measured(tmp_path):
    group = made_group(tmp_path / "g", seeds=2)
    write_rows(group / "seed-0", [row | {"rollout/success_rate": 0.2} for row in made_rows(20, 100, 0)])
    [section] = sections_of(read_runs([str(group)], tmp_path))
    drawn = {metric.name: found for metric, found in all_curves(section, 300).items()}
    assert [len(found.lines) for found in drawn["rollout/success_rate"]] == [1]
    assert "eval/success_rate" not in drawn
