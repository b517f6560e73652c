"""Curves on common points show no more than was measured."""

import numpy as np
import pytest

from made_runs import BATCH, SPEED, made_group, made_rows, write_rows
from proximo.report.curves import charts_of, common_grid, on_grid
from proximo.report.runs import read_runs, sections_of


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


def one_section(path, folder):
    return sections_of(read_runs([str(path)], folder))[0]


def test_short_curves_have_every_measured_point_over_both_axes(tmp_path):
    group = made_group(tmp_path / "g", seeds=3)
    write_rows(group / "seed-0", [row | {"rollout/success_rate": 0.2} for row in made_rows(20, 100, 0)])
    section = one_section(group, tmp_path)
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
    [chart] = charts_of(one_section(group, tmp_path), 3)
    [found] = chart["step"]["groups"]
    np.testing.assert_array_equal(found["count"], [3] * 4 + [2] * 2 + [1] * 4)
    # No value is carried on beyond the run that ended at 4.
    np.testing.assert_allclose(found["middle"], [200 / 3] * 4 + [80, 80] + [np.nan] * 4)
