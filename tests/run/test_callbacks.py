"""Callbacks are told what happens, in order and per seed; they end a training, and their state is saved with it."""

import copy
import dataclasses
import itertools
import json
import types

import numpy as np
import pytest

import proximo
from commands import BATCH, SMALL, copied, final_state, rows
from proximo.callbacks import BestModel, Checkpoints, EarlyStopping, Video
from proximo.errors import ConfigError, RunDirectoryError
from proximo.run import checkpoint, retention
from proximo.run.callbacks import Evaluation, Info
from proximo.run.evaluation import Evaluator

UPDATES = SMALL["total_steps"] // BATCH
ENV = "toys:RandomEnds"
SETTINGS = {**SMALL, "eval_every": 4 * BATCH}


def trained(folder, *callbacks, env=ENV, **settings):
    return proximo.train(env, callbacks=callbacks, runs_dir=str(folder), name="r", **{**SETTINGS, **settings})


@pytest.fixture
def nan_evaluations(monkeypatch):
    """The first and the third evaluation of a run return NaN."""
    count, played = itertools.count(1), Evaluator.__call__

    def nan_at_first(self, *arguments):
        episodes = played(self, *arguments)
        return dataclasses.replace(episodes, episode_return=episodes.episode_return * (np.nan if next(count) in (1, 3) else 1.0))

    monkeypatch.setattr(Evaluator, "__call__", nan_at_first)


def test_an_evaluation_of_nan_is_never_the_best(tmp_path, nan_evaluations):
    told, stop = Told(), EarlyStopping(patience=UPDATES)
    [result] = trained(tmp_path / "runs", told, stop, BestModel(tmp_path / "best"))
    returns = [evaluation.mean_return for evaluation in told.of("evaluation")]
    assert np.isnan(returns).nonzero()[0].tolist() == [0, 2]
    best, is_best = -np.inf, []
    for reached in returns:
        is_best.append(reached >= best)
        best = np.nanmax([best, reached])
    assert [evaluation.is_best for evaluation in told.of("evaluation")] == is_best
    step = [evaluation.step for evaluation in told.of("evaluation") if evaluation.is_best][-1]
    assert result.best == {"step": step, "mean_return": best}
    assert retention.best_step(result.run_dir) == proximo.load(tmp_path / "best").step == step
    assert stop.best == best
    [longer] = proximo.resume(
        result.run_dir, callbacks=[told, stop, BestModel(tmp_path / "best")], total_steps=SMALL["total_steps"] + BATCH
    )
    assert longer.best["mean_return"] >= best


@pytest.mark.parametrize("reached", [np.nan, np.inf, -np.inf])
def test_early_stopping_ignores_returns_that_are_not_finite(reached):
    stop = EarlyStopping(at=100.0, patience=3)
    returns = (reached, 1.0, reached, reached, reached)
    assert [stop.on_evaluation(types.SimpleNamespace(mean_return=x)) for x in returns] == [False, False, False, False, True]
    assert stop.best == 1.0


class Told:
    """Notes every call."""

    def __init__(self, every=1):
        self.every, self.calls = every, []

    def on_start(self, info):
        self.calls.append(("start", info))

    def on_update(self, info):
        self.calls.append(("update", info))

    def on_evaluation(self, result):
        self.calls.append(("evaluation", result))

    def on_end(self, info):
        self.calls.append(("end", info))

    def of(self, kind):
        return [info for name, info in self.calls if name == kind]


def test_every_hook_is_called_in_order(tmp_path):
    told = Told()
    [result] = trained(tmp_path, told)
    assert result.callbacks == (told,)
    assert not result.stopped
    kinds = [name for name, _ in told.calls]
    assert (kinds[0], kinds[-1]) == ("start", "end")
    assert [info.step for info in told.of("update")] == [BATCH * (i + 1) for i in range(UPDATES)]
    assert [info.step for info in told.of("evaluation")] == [4 * BATCH * (i + 1) for i in range(UPDATES // 4)]
    first = told.of("start")[0]
    assert (first.step, first.seed, first.run_dir, first.total_steps) == (0, 0, result.run_dir, SMALL["total_steps"])
    assert all(isinstance(info, Info) for _, info in told.calls)


def test_the_figures_are_those_that_the_run_writes(tmp_path):
    told = Told(every=SMALL["updates_per_call"])
    [result] = trained(tmp_path, told)
    written = {row["step"]: row for row in rows(result.run_dir) if "train/loss" in row}
    assert [info.step for info in told.of("update")] == sorted(written)
    for info in told.of("update"):
        ours = {name: x for name, x in info.metrics.items() if not np.isnan(x)}
        assert ours == {name: x for name, x in written[info.step].items() if name != "step" and x is not None}
    judged = {row["step"]: row["eval/mean_return"] for row in rows(result.run_dir) if "eval/mean_return" in row}
    assert {e.step: e.mean_return for e in told.of("evaluation")} == judged
    best = -np.inf
    for evaluation in told.of("evaluation"):
        assert isinstance(evaluation, Evaluation)
        assert evaluation.is_best == (evaluation.mean_return >= best)
        best = max(best, evaluation.mean_return)


def test_listening_changes_no_bit(tmp_path):
    [with_one] = trained(tmp_path / "with", Told(), Told(every=3))
    [without] = trained(tmp_path / "without")
    assert rows(with_one.run_dir) == rows(without.run_dir)
    assert final_state(with_one.run_dir) == final_state(without.run_dir)


class StopAt(Told):
    def __init__(self, step, hook="update"):
        super().__init__()
        self.step, self.hook = step, hook

    def on_update(self, info):
        super().on_update(info)
        return self.hook == "update" and info.step >= self.step

    def on_evaluation(self, result):
        super().on_evaluation(result)
        return self.hook == "evaluation" and result.step >= self.step


@pytest.mark.parametrize(("hook", "at"), [("update", 7 * BATCH), ("evaluation", 8 * BATCH)])
def test_a_callback_ends_the_training_where_it_asks_and_it_can_go_on(tmp_path, hook, at):
    stop = StopAt(5 * BATCH + 1 if hook == "evaluation" else at, hook)
    [result] = trained(tmp_path, stop)
    assert result.stopped
    assert checkpoint.steps(result.run_dir / "checkpoints")[-1] == at
    assert stop.calls[-1][0] == "end"
    assert stop.calls[-1][1].step == at
    proximo.resume(result.run_dir)
    [whole] = trained(tmp_path / "whole")
    assert final_state(result.run_dir) == final_state(whole.run_dir)


def test_a_callback_that_stops_at_the_very_end_has_stopped_nothing(tmp_path):
    [result] = trained(tmp_path, StopAt(SMALL["total_steps"]))
    assert not result.stopped


@pytest.mark.parametrize("mode", ["vmap", "serial"])
def test_each_seed_has_its_own_and_ends_alone(tmp_path, mode):
    class StopSeed(StopAt):
        def on_update(self, info):
            super().on_update(info)
            return info.seed == 1 and info.step >= self.step

    given = StopSeed(6 * BATCH)
    results = trained(tmp_path, given, seeds=2, seeds_mode=mode)
    assert given.calls == []
    assert [r.stopped for r in results] == [False, True]
    assert [[i.step for i in r.callbacks[0].of("end")] for r in results] == [[SMALL["total_steps"]], [6 * BATCH]]
    assert {info.seed for info in results[1].callbacks[0].of("update")} == {1}
    last = [checkpoint.steps(r.run_dir / "checkpoints")[-1] for r in results]
    assert last == [SMALL["total_steps"], 6 * BATCH]


class Counter:
    def __init__(self):
        self.count, self.restored = 0, None

    def on_update(self, info):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.restored = copy.deepcopy(state)
        self.count = state["count"]


def test_the_state_of_callbacks_goes_on_with_the_run(tmp_path):
    [result] = trained(tmp_path, Counter(), StopAt(6 * BATCH))
    run_dir = copied(result.run_dir, tmp_path / "copy")
    counter, told = Counter(), StopAt(10**9)
    proximo.resume(run_dir, callbacks=[counter, told])
    assert counter.restored == {"count": 6}
    assert counter.count == UPDATES
    assert told.calls[0][1].step == 6 * BATCH


@pytest.mark.parametrize("border", [4, 6])
def test_what_is_saved_at_a_border_has_heard_of_it(tmp_path, border):
    """Also where a checkpoint falls due there: the evaluation of step 4 is not told twice, and not lost."""
    [result] = trained(tmp_path, Counter(), StopAt(border * BATCH))
    info = checkpoint.verify(result.run_dir / "checkpoints" / str(border * BATCH))["info"]
    assert info["callbacks"][0] == {"name": "Counter", "state": {"count": border}}


def test_other_callbacks_than_before_are_told_of(tmp_path):
    [result] = trained(tmp_path, StopAt(6 * BATCH), Counter())

    class Warned(proximo.run.progress.Reporter):
        said = ()

        def warned(self, message):
            self.said += (message,)

    reporter = Warned()
    proximo.resume(result.run_dir, callbacks=[Counter()], reporter=reporter)
    assert any(
        "the callbacks were StopAt, Counter and are Counter now: none is given its saved state" in s for s in reporter.said
    )


def test_without_a_reporter_they_are_a_warning_of_pythons(tmp_path):
    [result] = trained(tmp_path, StopAt(6 * BATCH), Counter())
    with pytest.warns(UserWarning, match="the callbacks were StopAt, Counter and are none now: none is given its saved state"):
        proximo.resume(result.run_dir)


def test_the_policy_of_a_hook_stays_and_is_to_be_taken_there(tmp_path):
    taken = []

    class Take:
        def on_update(self, info):
            if info.step == 2 * BATCH:
                taken.extend((info, info.policy, info.save(tmp_path / "saved")))

    trained(tmp_path / "runs", Take())
    info, policy, saved = taken
    again = proximo.load_policy(saved)
    assert policy.step == again.step == 2 * BATCH
    observation = np.zeros((2, *policy.env.observation_space.shape), np.float32)
    actions = [p(p.init_memory(2), observation, [True, True])[1] for p in (policy, again)]
    np.testing.assert_array_equal(*actions)
    with pytest.raises(ConfigError, match=f"The state of step {2 * BATCH} was asked for when training had gone on"):
        info.policy  # noqa: B018


def test_an_error_in_a_callback_is_raised_and_what_was_learned_is_saved(tmp_path):
    class Broken:
        def on_update(self, info):
            if info.step == 5 * BATCH:
                raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        trained(tmp_path, Broken())
    [run_dir] = tmp_path.glob("*/r")
    assert checkpoint.steps(run_dir / "checkpoints")[-1] == 5 * BATCH


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (object(), "object has none of on_start, on_update, on_evaluation, on_end"),
        (Told, "Told is a class: expected an object of it, as Told()"),
        (type("Typo", (), {"on_updates": print})(), "Typo has none of .* (did you mean 'on_update'?)"),
        (Told(every=0), "Told.every = 0: expected a number of updates, 1 or more"),
    ],
)
def test_what_is_no_callback_is_one_sentence(tmp_path, callback, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        trained(tmp_path, callback)
    assert not list(tmp_path.iterdir())


def test_a_state_that_json_cannot_hold_is_one_sentence(tmp_path):
    class Odd(Counter):
        def state_dict(self):
            return {"count": np.float32(1)}

    with pytest.raises(ConfigError, match=r"Odd.state_dict\(\) returns a value that is not JSON"):
        trained(tmp_path, Odd())


def evaluation(mean_return):
    return Evaluation(0, None, 0, 0, moment=None, mean_return=mean_return)


def stops_at(callback, returns):
    """The place of the return that ends it."""
    for i, x in enumerate(returns):
        callback_state = json.loads(json.dumps(callback.state_dict()))
        callback.load_state_dict(callback_state)
        if callback.on_evaluation(evaluation(x)):
            return i
    return None


@pytest.mark.parametrize(
    ("settings", "returns", "expected"),
    [
        ({"at": 5.0}, [1, 4.9, 5.0, 9], 2),
        ({"patience": 2}, [1, 2, 2, 3, 3, 3, 4], 5),
        ({"patience": 2, "min_delta": 1.0}, [1, 1.5, 2.5, 3.4, 3.5], 4),
        ({"at": 9.0, "patience": 1}, [1, 2, 2], 2),
        ({"at": 9.0}, [1, 2, 3], None),
        ({"at": np.float32(5), "patience": np.int64(3)}, [1, 4.9, 5.0], 2),
    ],
)
def test_early_stopping(settings, returns, expected):
    assert stops_at(EarlyStopping(**settings), returns) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"patience": 0},
        {"at": 1.0, "min_delta": -1.0},
        {"at": ""},
        {"at": False},
        {"at": float("nan")},
        {"at": 1, "min_delta": "0"},
    ],
)
def test_early_stopping_out_of_range_is_one_sentence(settings):
    with pytest.raises(ConfigError, match="EarlyStopping: "):
        EarlyStopping(**settings)


def test_checkpoints_and_the_best_model_are_whole_runs(tmp_path):
    told = Told()
    trained(tmp_path / "runs", Checkpoints(tmp_path / "all", every=8), BestModel(tmp_path / "best"), told)
    assert sorted(int(p.name) for p in (tmp_path / "all").iterdir()) == [8 * BATCH, 16 * BATCH]
    best = [e.step for e in told.of("evaluation") if e.is_best][-1]
    assert proximo.load_policy(tmp_path / "best").step == best
    agent = proximo.load(tmp_path / "all" / str(8 * BATCH))
    assert agent.step == 8 * BATCH
    proximo.resume(tmp_path / "all" / str(8 * BATCH))
    [whole] = (tmp_path / "runs").glob("*/r")
    assert final_state(tmp_path / "all" / str(8 * BATCH)) == final_state(whole)


def test_seeds_save_beside_each_other(tmp_path):
    trained(tmp_path / "runs", BestModel(tmp_path / "best"), seeds=2)
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["seed-0", "seed-1"]


def test_a_run_of_its_own_is_not_saved_over(tmp_path):
    [result] = trained(tmp_path)
    with pytest.raises(ConfigError, match="is a run of its own"):
        trained(tmp_path / "other", BestModel(result.run_dir))


def test_a_video_is_filmed_every_so_many_updates(tmp_path):
    trained(tmp_path / "runs", Video(tmp_path / "clips", every=10, max_steps=5), env="proximo:PocMemory")
    assert sorted(path.name for path in (tmp_path / "clips").iterdir()) == [f"{10 * BATCH}.mp4", f"{20 * BATCH}.mp4"]


def test_a_taken_name_is_still_one_sentence(tmp_path):
    trained(tmp_path)
    with pytest.raises(RunDirectoryError, match="exists already"):
        trained(tmp_path, Told())


class Deaf:
    def on_update(self):
        """Takes nothing."""


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (EarlyStopping(at=4), r"^callbacks = EarlyStopping: expected a list of them"),
        ([EarlyStopping(at=4)], r"^callbacks: EarlyStopping hears of evaluations, and eval_episodes = 0 asks for none"),
        ([Deaf()], r"^callbacks: Deaf\.on_update is called as on_update\(info\): too many positional arguments\.$"),
    ],
)
def test_callbacks_that_would_hear_nothing_are_a_sentence(callbacks, message):
    with pytest.raises(ConfigError, match=message):
        proximo.PPO("toys:RandomEnds", preset=False, num_envs=4, num_steps=8, eval_episodes=0).learn(64, callbacks=callbacks)


@pytest.mark.parametrize("settings", [{"at": "x"}, {"at": 1.0, "min_delta": -1}, {"at": True}])
def test_what_is_no_number_stops_nothing(settings):
    with pytest.raises(ConfigError, match=r"^EarlyStopping: (at|min_delta) = .*: expected a number"):
        EarlyStopping(**settings)
