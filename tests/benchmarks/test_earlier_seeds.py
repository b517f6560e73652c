"""``benchmarks/earlier_seeds.py``: the seeds that the suites no longer have."""

import json

import earlier_seeds as script


def content(gamma, *seeds):
    """A results file: each seed is (number, score, date)."""
    records = {str(number): {"score": score, "date": date} for number, score, date in seeds}
    return {"suite": "s", "tasks": {"T-v1": {"settings": {"ppo": {"gamma": gamma}}, "steps": 10, "seeds": records}}}


def test_earlier_trainings_are_grouped_by_settings_and_a_retraining_is_a_group_of_its_own(monkeypatch, tmp_path):
    history = [
        ("a", content(0.9, (0, 1.0, "day 1"))),
        ("b", content(0.9, (0, 1.0, "day 1"), (1, 2.0, "day 2"))),
        ("c", content(0.9, (0, 5.0, "day 3"))),  # the code has changed
        ("d", content(0.8, (0, 6.0, "day 4"))),
        ("e", content(0.8, (0, 7.0, "day 5"))),
    ]
    path = tmp_path / "suite_s.json"
    path.write_text(json.dumps(history[-1][1]))
    monkeypatch.setattr(script, "versions", lambda _: iter(history))
    groups = script.earlier(path)
    assert [(g["settings"], {s: r["score"] for s, r in g["seeds"].items()}) for g in groups] == [
        ({"gamma": 0.9}, {"0": 1.0, "1": 2.0}),
        ({"gamma": 0.9}, {"0": 5.0}),
        ({}, {"0": 6.0}),
    ]
