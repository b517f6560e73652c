"""The figures of the final table."""

import numpy as np
import pytest

from made_runs import BATCH, SPEED, made_group, made_rows, made_run, write_rows
from proximo.report import tables
from proximo.report.grouping import Group, Section, sections_of
from proximo.report.read import read_runs


def evaluated(run_dir, *returns):
    """A run with these evaluations, at equal distances."""
    made_run(run_dir, seed=int(run_dir.name.removeprefix("seed-")))
    rows = [row for row in made_rows(20, 100, 0) if "eval/return_mean" not in row]
    steps = np.linspace(0, 20 * BATCH, len(returns) + 1)[1:].astype(int).tolist()
    rows += [{"step": s, "eval/return_mean": r, "eval/success_rate": 0.5} for s, r in zip(steps, returns, strict=True)]
    write_rows(run_dir, sorted(rows, key=lambda row: row["step"]))


@pytest.fixture
def section(tmp_path):
    for seed, returns in enumerate([(5.0, 1.0), (3.0, 2.0), (9.0, 3.0), (4.0, 100.0)]):
        evaluated(tmp_path / "g" / f"seed-{seed}", *returns)
    return sections_of(read_runs([str(tmp_path / "g")], tmp_path))[0]


def test_final_and_best_are_interquartile_means_over_runs(section):
    [row] = tables.final_table(section)
    assert row.final.iqm == pytest.approx(2.5)  # of 1, 2, 3, 100
    assert row.best.iqm == pytest.approx(7.0)  # of 3, 5, 9, 100
    low, high = row.final.ci95
    assert low < 2.5 < high
    assert row.success_rate == 0.5
    assert (row.steps, row.statuses) == (20 * BATCH, {"finished": 4})
    assert row.seconds == pytest.approx(20 * BATCH / SPEED)
    assert row.steps_per_second == pytest.approx(SPEED)


def test_without_evaluations_the_last_episodes_count(tmp_path):
    run_dir = made_run(tmp_path / "r", eval_episodes=0)
    rows = [row for row in made_rows(20, 100, 0) if "eval/return_mean" not in row]
    write_rows(run_dir, rows)
    [section] = sections_of(read_runs([str(run_dir)], tmp_path))
    [row] = tables.final_table(section)
    assert tables.measure_of(section) == "rollout/return_mean"
    assert row.final == (rows[-1]["rollout/return_mean"], None)
    assert row.best == (None, None)


def test_a_failed_run_counts_with_what_it_reached(tmp_path):
    group = made_group(tmp_path / "g", seeds=2)
    write_rows(group / "seed-1", made_rows(5, 1000, 1))
    (group / "seed-1" / "failure.txt").write_text("NaN")
    [section] = sections_of(read_runs([str(group)], tmp_path))
    [row] = tables.final_table(section)
    assert row.statuses == {"finished": 1, "failed": 1}
    reached = [tables.final_score(run, "eval/return_mean") for run in section.runs]
    assert row.final.iqm == pytest.approx(np.mean(reached))
    assert reached[1] > 900


@pytest.fixture
def failing(tmp_path):
    """Two groups: two seeds of the first failed before their first evaluation, one of them in its first update; one is running."""
    for seed, returns in enumerate([(400.0, 480.0), (450.0, 500.0)]):
        evaluated(tmp_path / "a" / f"seed-{seed}", *returns)
        evaluated(tmp_path / "b" / f"seed-{seed}", 100.0, 200.0 + seed)
    begun = [row for row in made_rows(4, 100, 3) if "eval/return_mean" not in row]
    for seed, rows in ((2, []), (3, begun), (4, begun)):
        write_rows(made_run(tmp_path / "a" / f"seed-{seed}", seed=seed), rows)
    for seed in (2, 3):
        (tmp_path / "a" / f"seed-{seed}" / "failure.txt").write_text("NaN")
    return sections_of(read_runs([str(tmp_path / "a"), str(tmp_path / "b")], tmp_path), ["name"])


def test_seed_failed_before_first_evaluation_counts_as_worst(failing):
    [section] = failing
    a, b = tables.final_table(section)
    worst = min(run.values("rollout/return_mean").min() for run in section.runs if run.series)
    assert worst < 100
    assert a.final.iqm == pytest.approx((worst + 480) / 2)
    assert a.final.ci95[0] == worst
    assert a.best.iqm == pytest.approx((worst + 480) / 2)
    assert a.success_rate == 0.25
    assert (a.failed, a.worst, a.left_out) == (2, worst, 1)
    assert (b.failed, b.worst, b.left_out, b.success_rate) == (0, None, 0, 0.5)
    [pair] = tables.improvements(section)
    assert pair.probability == 0.5, "two of four seeds lose against every seed of the other group"
    failed, left_out = tables.notes(section)
    assert failed.startswith("gymnax:CartPole-v1, a: 2 of 5 runs failed without a result and count as ")
    assert left_out == "gymnax:CartPole-v1, a: 1 of 5 runs have no evaluation and are left out."
    row, _ = tables.as_json(failing)["table"]
    assert (row["failed_without_result"], row["failed_count_as"], row["left_out"]) == (2, worst, 1)


def test_group_of_only_failed_seeds_counts_as_worst(failing):
    [section] = failing
    group = section.groups[0]
    only = Section(section.environment, [Group("f", group.runs[2:4], []), section.groups[1]], [])
    row, other = tables.final_table(only)
    assert row.final.iqm == row.worst < other.final.iqm
    [pair] = tables.improvements(only)
    assert (pair.y, pair.probability) == ("f", 1.0)


def test_nan_last_evaluation_is_not_replaced_by_an_earlier_one(tmp_path):
    for seed, returns in enumerate([(5.0, 7.0), (9.0, None)]):
        evaluated(tmp_path / "g" / f"seed-{seed}", *returns)
    [section] = sections_of(read_runs([str(tmp_path / "g")], tmp_path))
    [row] = tables.final_table(section)
    assert row.final.iqm == pytest.approx((7.0 + row.worst) / 2)
    assert row.best.iqm == pytest.approx(8.0)
    assert row.failed == 1


def test_evaluation_without_reported_success_counts_as_zero(tmp_path):
    """A Gymnasium environment may report ``success`` only in successful episodes."""
    evaluated(tmp_path / "g" / "seed-0", 1.0, 2.0)
    evaluated(tmp_path / "g" / "seed-1", 1.0, 2.0)
    path = tmp_path / "g" / "seed-1" / "metrics.jsonl"
    *lines, last = path.read_text().splitlines()
    path.write_text("\n".join([*lines, last.replace(', "eval/success_rate": 0.5', "")]) + "\n")
    [section] = sections_of(read_runs([str(tmp_path / "g")], tmp_path))
    assert tables.final_table(section)[0].success_rate == 0.25


def sections(tmp_path, **groups):
    """Groups by name, each of four seeds around its level, in as many environments as it has levels."""
    paths = []
    for name, levels in groups.items():
        for i, level in enumerate(levels):
            env = ("gymnax:CartPole-v1", "gymnax:Acrobot-v1")[i]
            paths.append(str(made_group(tmp_path / f"e{i}" / name, level=level, env=env, name=name)))
    return sections_of(read_runs(paths, tmp_path), ["name"])


def test_better_group_is_listed_first(tmp_path):
    [section] = sections(tmp_path, low=[50.0], high=[500.0])
    [pair] = tables.improvements(section)
    assert (pair.x, pair.y, pair.probability, pair.ci95) == ("high", "low", 1.0, [1.0, 1.0])


def test_groups_of_one_run_are_not_compared(tmp_path):
    made_run(tmp_path / "a", gamma=0.9)
    made_run(tmp_path / "b", gamma=0.8)
    [section] = sections_of(read_runs([str(tmp_path / "a"), str(tmp_path / "b")], tmp_path))
    assert len(section.groups) == 2
    assert tables.improvements(section) == []


def test_few_groups_are_compared_pairwise_and_many_with_the_best(tmp_path):
    [few] = sections(tmp_path / "few", **{f"g{i}": [100.0 + 50 * i] for i in range(4)})
    assert len(tables.improvements(few)) == 6
    [many] = sections(tmp_path / "many", **{f"g{i}": [100.0 + 50 * i] for i in range(7)})
    assert [pair.x for pair in tables.improvements(many)] == ["g6"] * 6


def test_overall_probability_is_the_mean_over_environments(tmp_path):
    both = sections(tmp_path, a=[100.0, 500.0], b=[110.0, 50.0])
    [pair] = tables.overall_improvements(both)
    single = {}
    for section in both:
        [found] = tables.improvements(section)
        single[section.environment] = found.probability if found.x == "a" else 1 - found.probability
    assert (pair.x, pair.y, pair.environments) == ("a", "b", 2)
    assert pair.probability == pytest.approx(np.mean(list(single.values())))
    assert pair.ci95[0] <= pair.probability <= pair.ci95[1]
    assert tables.overall_improvements(both[:1]) == []


def test_the_object_of_json_has_every_group_and_pair(tmp_path):
    found = tables.as_json(sections(tmp_path, a=[100.0, 500.0], b=[110.0, 50.0]))
    assert [(row["environment"], row["group"]) for row in found["table"]] == [
        (env, name) for env in ("gymnax:CartPole-v1", "gymnax:Acrobot-v1") for name in "ab"
    ]
    assert {"runs", "status", "measure", "final", "best", "success_rate", "seconds", "settings"} <= set(found["table"][0])
    assert len(found["improvement"]) == 2
    assert [pair["environments"] for pair in found["improvement_over_environments"]] == [2]
