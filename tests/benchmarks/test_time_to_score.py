"""The table of times to a published score."""

from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_table_states_what_was_extrapolated_and_the_worst_seed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import time_to_score

    rows = {str(seed): {"score": score} for seed, score in enumerate((500.0, 499.5))}
    monkeypatch.setattr(time_to_score, "read_results", lambda path: {"tasks": {"CartPole-v1": {"seeds": rows}}})
    first, following = ({"steps": 61_440, "wall_seconds": seconds} for seconds in (20.0, 8.0))
    peer = {"wall_seconds": 150.0, "steps": 100_000}
    measured = {"first": first, "next": following, "sb3": peer, "sb3_share": 0.1, "ratio": 7.5}
    text = time_to_score.table({"tasks": {"CartPole-v1": measured}})
    assert "| `CartPole-v1` | 500 | 61,440 | 499.5 of 2 | 0:20 | 0:08 | 2:30 (extrapolated), 100,000 steps | 7.5 |" in text
    assert "extrapolated" not in time_to_score.table({"tasks": {"CartPole-v1": {**measured, "sb3_share": 1.0}}})
