"""``benchmarks/suite.py``: which seeds are trained, skipped and resumed, and its table."""

import argparse
import functools
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

import proximo
import suite
import suite_seed
from proximo.config.presets import load_kind
from proximo.errors import EnvError
from suite_seed import config_of, described
from suite_tasks import Suite, Task, differences, load_suite, read_results

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ENV = "toys:RandomEnds"
SETTINGS = {"total_steps": 2048, "num_envs": 4, "num_steps": 16, "hidden_sizes": "4", "num_epochs": 1}
FAKE_SEED = """
import signal, sys, time
sys.path.insert(0, {benchmarks!r})
from pathlib import Path
from suite_tasks import add_result
_, task, seed = sys.argv[1:4]
if task == "broken":
    sys.exit("this task fails")
if task == "endless":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    time.sleep(60)
row = {{"score": float(seed), "last_100": None, "wall_seconds": 1.0}}
described = {{"steps": 8, "settings": {{}}, "metric": "return_mean", "policy": "greedy", "episodes": 1, "unseen": {{}}}}
add_result(Path(sys.argv[sys.argv.index("--out") + 1]), {{"suite": "toy"}}, task, described, int(seed), row)
"""


def written(folder, tasks, **more):
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump({"title": "Toys", "tasks": tasks, **more}, sort_keys=False))
    return path


def arguments(folder, file, **more):
    given = {"suite": "toy", "file": file, "work": folder / "work", "out": folder / "out.json", "jobs": 2, "minutes": 1.0}
    return argparse.Namespace(**{**given, **more})


@pytest.fixture
def fake_seeds(monkeypatch, tmp_path):
    """Replace the process of a seed by one that only writes a row."""
    (tmp_path / "suite_seed.py").write_text(FAKE_SEED.format(benchmarks=str(BENCHMARKS)))
    monkeypatch.setattr(suite, "HERE", tmp_path)


def test_seeds_that_are_missing_or_given_are_trained_lowest_first(fake_seeds, tmp_path, monkeypatch, capsys):
    file = written(tmp_path, {"a": {"seeds": 2}, "b": {"seeds": 1, "first_seed": 100}, "broken": {"seeds": 1}})
    given, loaded = arguments(tmp_path, file), suite.load_suite(file)

    def pending():
        return suite.pending(loaded, suite.read_results(given.out))

    def run(*seeds):
        flags = ["--out", str(given.out), "--work", str(given.work), "--seeds", *seeds]
        monkeypatch.setattr(sys, "argv", ["", str(file), *flags])
        return suite.main()

    assert pending() == [("a", 20), ("b", 100), ("broken", 20), ("a", 21)]
    assert run("21", "100") == 0
    assert pending() == [("a", 20), ("broken", 20)]
    for seeds, sentence in (("21", "7"), r"There is no seed 7: expected some of 20, 21, 100\."), (("21", "--show"), "2"):
        with pytest.raises(SystemExit, match=sentence):
            run(*seeds)
    assert suite.train(given, pending()) == 1
    assert "this task fails" in capsys.readouterr().out
    assert pending() == [("broken", 20)]


def test_end_of_the_time_stops_running_seeds_and_starts_no_others(fake_seeds, tmp_path, capsys):
    file = written(tmp_path, {"endless": {"seeds": 1}, "a": {"seeds": 1}})
    assert suite.train(arguments(tmp_path, file, jobs=1, minutes=0.02), [("endless", 0), ("a", 0)]) == 0
    log = tmp_path / "work" / "toy" / "endless-0.log"
    started, stopped = capsys.readouterr().out.splitlines()
    assert started == f"endless seed 0: started; its log is {log}"
    assert stopped == "endless seed 0: stopped, the next start continues it"
    assert not (tmp_path / "out.json").exists()


class Interrupt:
    """Sends this process a Ctrl-C after some updates."""

    every = 20

    def on_update(self, info):
        os.kill(os.getpid(), signal.SIGINT)


def test_interrupted_seed_is_resumed_and_evaluated(monkeypatch, tmp_path):
    file = written(
        tmp_path, {"random ends": {"env": ENV, "episodes": 8, "settings": SETTINGS, "also_on": {"toys:RandomEnds": 0}}}
    )
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["", str(file), "random ends", "3", "--work", str(tmp_path / "work"), "--out", str(out)])
    with monkeypatch.context() as patch:
        patch.setattr(proximo, "train", functools.partial(proximo.train, callbacks=[Interrupt()]))
        with pytest.raises(SystemExit, match="130"):
            suite_seed.main()
    assert not out.exists()
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # it keeps the handlers of the tests
    suite_seed.main()
    record = json.loads(out.read_text())["tasks"]["random ends"]
    row = record["seeds"]["3"]
    assert row["sessions"] == 2
    assert record["steps"] == row["curve"][-1][0] == 2048
    assert record["settings"]["ppo"]["num_steps"] == 16
    assert row["score"] == row["evaluation"]["return_mean"] == row["also_on"][ENV]
    assert row["evaluation"]["episodes"] == 8

    out.unlink()
    sessions = tmp_path / "work" / "toy" / "toys-RandomEnds" / "random-ends-seed-3" / suite_seed.SESSIONS
    sessions.write_text(json.dumps(json.loads(sessions.read_text())[1:]))  # the first session was killed
    suite_seed.main()
    row = json.loads(out.read_text())["tasks"]["random ends"]["seeds"]["3"]
    assert (row["score"], row["steps_per_second"], row["wall_seconds"]) == (record["seeds"]["3"]["score"], None, None)

    file.write_text(file.read_text().replace("num_epochs: 1", "num_epochs: 2"))
    with pytest.raises(SystemExit, match=r"out.json has seeds of random ends with other settings \(num_epochs\)"):
        suite_seed.main()
    out.unlink()
    with pytest.raises(SystemExit, match="random-ends-seed-3 has other settings: remove it"):
        suite_seed.main()


def test_curve_and_last_episodes_weight_by_the_number_of_episodes():
    rows = [{"step": 10 * i, "rollout/episodes": i % 3, "rollout/return_mean": float(i)} for i in range(300)]
    curve = suite_seed.learning_curve(rows)
    assert len(curve) == suite_seed.CURVE_POINTS
    assert curve[0] == [20, pytest.approx(5 / 3, abs=1e-4)]
    last = suite_seed.last_episodes(rows)
    assert sum(row["rollout/episodes"] for row in last) == 101
    assert suite_seed.mean_return(last[-2:]) == pytest.approx((298 + 2 * 299) / 3)
    assert suite_seed.learning_curve([]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: {a: }", "s.yaml: expected a title, and tasks by name"),
        ("{title: t, tasks: [a]}", "expected a title"),
        ("{title: t, tasks: {a: 3}}", "a is 3; expected entries"),
        ("{title: t, tasks: {a: {seeds: 0}}}", "a has seeds: 0; expected their number"),
        ("{title: t, tasks: {a: {sedes: 1}}}", "a has unknown entries: sedes"),
    ],
)
def test_a_file_that_is_no_suite_or_result_says_what_is_wrong(text, message, tmp_path):
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(SystemExit, match=message):
        load_suite(tmp_path / "s.yaml")
    (tmp_path / "r.json").write_text("{}")
    with pytest.raises(SystemExit, match="no results of a suite"):
        read_results(tmp_path / "r.json")


def test_table_compares_the_seeds_with_marks_and_published_scores():
    tasks = {
        "a": Task(env="a", seeds=4, mark=50, aim=60, aim_steps=999, published={"Others": "70 ± 3"}, also_on={"new": 1}),
        "b": Task(env="b", seeds=2, mark=-1, judged_by="worst", metric="success_rate", also_on={"d": 0.5}),
        "c": Task(env="c"),
    }
    scores = {"a": [100, 100, 100, 10], "b": [-2.0]}
    row = {"last_100": 5.0, "also_on": {"d": 0.75}}
    results = {
        name: {"steps": 1000, "seeds": {str(i): {"score": x, **row} for i, x in enumerate(values)}}
        for name, values in scores.items()
    }
    text = suite.table(Suite("Toys", "", {"Others": "a page", "Nobody": "another"}, tasks), {"tasks": results})
    assert text.splitlines()[2:] == [
        "| `a` | 1,000 | 100.0 100.0 100.0 10.0 | 77.5 (32.5 … 100.0) | 10.0 | 5.00 | 1 | 70 ± 3 | 50.0 | 60.0 by 999 | mark, aim **missed** |",
        "| `b` (success rate; last episodes: return) | 1,000 | -2.00 (1 of 2) | -2.00 | -2.00 | 5.00 | 0 | – | -1.000 | – | **missed** so far |",
        "| `b` on `d` (success rate) | 1,000 | 0.750 (1 of 2) | 0.750 | 0.750 | – | 0 | – | – | 0.500 | aim so far |",
        "",
        "- Others: a page",
    ]


def test_curves_of_several_seeds_are_drawn(tmp_path):
    path = tmp_path / "curves.png"
    seeds = {str(seed): {"score": 1.0 + seed, "curve": [[10, 0.0], [20 + seed, 1.0 + seed]]} for seed in range(3)}
    suite.plot(Suite("Toys", "", {}, {"a": Task(env="a", mark=1)}), {"tasks": {"a": {"steps": 20, "seeds": seeds}}}, path)
    assert path.read_bytes().startswith(b"\x89PNG")


CANDIDATES = {
    "reference": None,
    "preset": {"preset": True},
    "other": {"discrete": {"vf_coef": 0.3, "gamma": 0.5, "num_envs": 4}, "memory": {"vf_coef": 0.3, "gamma": 0.5, "num_envs": 2}},
    "one kind": {"discrete": {"num_envs": 3}},
}


def test_candidates_change_the_defaults_of_kinds(tmp_path):
    tasks = {"gymnax:CartPole-v1": {"kind": "discrete", "settings": {"gamma": 0.7}}, "CartPole-v1": {"kind": "memory"}}
    loaded = load_suite(written(tmp_path, tasks, candidates=CANDIDATES))
    found = {}
    for name, task in loaded.tasks.items():
        config = config_of(task, name, 0, tmp_path)
        found[name] = (config.env.num_envs, config.ppo.num_epochs, config.ppo.vf_coef, config.ppo.gamma)
    presets = [proximo.make_config(env) for env in tasks]
    kinds = [load_kind("discrete"), load_kind("memory")]
    (envs, epochs), (envs_memory, epochs_memory) = ((kind["env"]["num_envs"], kind["ppo"]["num_epochs"]) for kind in kinds)
    assert found == {
        "gymnax:CartPole-v1, reference": (envs, epochs, 0.5, 0.7),
        "CartPole-v1, reference": (envs_memory, epochs_memory, 0.5, 0.99),
        "gymnax:CartPole-v1, preset": (presets[0].env.num_envs, presets[0].ppo.num_epochs, presets[0].ppo.vf_coef, 0.7),
        "CartPole-v1, preset": (presets[1].env.num_envs, presets[1].ppo.num_epochs, presets[1].ppo.vf_coef, presets[1].ppo.gamma),
        "gymnax:CartPole-v1, other": (4, epochs, 0.3, 0.7),
        "CartPole-v1, other": (2, epochs_memory, 0.3, 0.5),
        "gymnax:CartPole-v1, one kind": (3, epochs, 0.5, 0.7),
    }
    assert list(loaded.only(["CartPole-v1"], ["other", "preset"]).tasks) == ["CartPole-v1, preset", "CartPole-v1, other"]
    assert list(loaded.only(None, ["reference"]).tasks) == ["gymnax:CartPole-v1, reference", "CartPole-v1, reference"]
    for arguments, message in (
        ((None, ["nobody"]), "There is no candidate nobody: expected reference, preset, other, one kind"),
        ((["other"],), "There is no task other: expected gymnax:CartPole-v1, CartPole-v1"),
    ):
        with pytest.raises(SystemExit, match=message):
            loaded.only(*arguments)
    plain = load_suite(written(tmp_path, {"a": {}, "a, b": {}}))
    assert list(plain.only(["a"]).tasks) == ["a"]
    with pytest.raises(SystemExit, match=r"toy\.yaml: a: expected kind: images, memory, continuous, discrete, because"):
        load_suite(written(tmp_path, {"a": {}}, candidates=CANDIDATES))
    with pytest.raises(SystemExit, match="the candidate typo has discreet: expected preset, images"):
        load_suite(written(tmp_path, tasks, candidates={"typo": {"discreet": {}}}))


def test_scores_of_candidates_are_relative_to_the_preset(tmp_path, monkeypatch, capsys):
    tasks = {"a": {"kind": "discrete", "random": 10.0}, "b": {"kind": "discrete", "random": 0.0}}
    scores = {
        "a, preset": {1: 110, 2: 90, 3: 500},
        "b, preset": {1: 4},
        "a, other": {1: 100, 2: 55},
        "b, other": {1: 2, 9: 99},
        "b, one kind": {1: 1},
    }
    results = {
        task: {"seeds": {str(seed): {"score": score, "wall_seconds": 900.0} for seed, score in seeds.items()}}
        for task, seeds in scores.items()
    }
    (tmp_path / "out.json").write_text(json.dumps({"tasks": results}))
    file = written(tmp_path, tasks, candidates=CANDIDATES)
    rows = {
        "preset": "| preset | 1.000 (0.358, 3) | 1.000 (1.000, 1) | 1.000 | 1.00 |",
        "other": "| other | 0.750 (0.500, 2) | 0.500 (0.500, 1) | 0.625 | 1.00 |",
        "one kind": "| one kind | – | 0.250 (0.250, 1) | 0.250 of 1 | 0.25 |",
    }
    for chosen in (list(rows), ["other"]):
        flags = ["--show", "--out", str(tmp_path / "out.json"), "--candidate", *chosen]
        monkeypatch.setattr(sys, "argv", ["", str(file), *flags])
        assert suite.main() == 0
        header, _, *found = capsys.readouterr().out.splitlines()
        assert header == "| Candidate | a | b | Mean | Hours |"
        assert found == [rows[candidate] for candidate in chosen]


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_recorded_results_are_of_todays_settings(path):
    """Whoever changes a preset trains its seeds again, or removes their results."""
    tasks, recorded = load_suite(path).tasks, read_results(BENCHMARKS / f"results/suite_{path.stem}.json")["tasks"]
    assert set(recorded) <= set(tasks), "results of a task that the suite does not have"
    for name, task in tasks.items():
        try:
            config = config_of(task, name, task.first_seed, Path("runs"))
        except EnvError as error:  # without a preset, the environment is made
            if "needs a library that is not installed" in str(error):
                continue
            raise
        assert config.total_updates > 1, name
        assert name not in recorded or not differences(recorded[name], described(task, config)), name


def test_missing_setting_is_compared_as_its_default():
    def record(**ppo):
        return {"settings": {"ppo": ppo}, "metric": "return_mean", "policy": "greedy", "episodes": 1, "unseen": {}}

    assert differences(record(), record(gamma=0.99, critic_max_grad_norm=0.0)) == []
    assert differences(record(gamma=0.9), record(critic_max_grad_norm=0.5)) == ["critic_max_grad_norm", "gamma"]
    assert differences(record(removed_long_ago=1), record()) == []
    assert differences(record(), {**record(), "episodes": 2}) == ["episodes"]
