"""Callbacks are called in order and per seed, may stop a training, and their state is saved with it."""

import collections
import copy
import dataclasses
import itertools
import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import proximo
from commands import BATCH, SMALL, copied, final_state, rows
from proximo.callbacks import BestModel, Checkpoints, EarlyStopping, Video
from proximo.errors import CheckpointError, ConfigError
from proximo.evaluation.evaluators import JaxEvaluator
from proximo.report.runs import read_run
from proximo.storage import checkpoint
from proximo.training.callbacks import Evaluation, Info, SeedCallbacks, callbacks_of_seeds

TOTAL = SMALL["total_steps"]
UPDATES = TOTAL // BATCH
ENV = "toys:RandomEnds"
SETTINGS = {**SMALL, "eval_every": 4 * BATCH}


def trained(folder, *callbacks, env=ENV, **settings):
    return proximo.train(env, callbacks=callbacks, runs_dir=str(folder), name="r", **{**SETTINGS, **settings})


class Recorder:
    """Records every call, and asks to stop in the hook ``stops`` from the step ``at`` on."""

    def __init__(self, every=1, stops="", at=0):
        self.every, self.stops, self.at, self.calls = every, stops, at, []

    def _record(self, kind, info):
        self.calls.append((kind, info))
        return kind == self.stops and info.step >= self.at

    def on_start(self, info):
        self._record("start", info)

    def on_update(self, info):
        return self._record("update", info)

    def on_evaluation(self, result):
        return self._record("evaluation", result)

    def on_end(self, info):
        self._record("end", info)

    def of(self, kind):
        return [info for name, info in self.calls if name == kind]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without callbacks."""
    [result] = trained(tmp_path_factory.mktemp("plain"))
    return result.run_dir


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The result of a training with callbacks after every update, every row, and every third update."""
    recorders = Recorder(stops="update", at=TOTAL), Recorder(SMALL["updates_per_call"]), Recorder(np.int64(3))
    [result] = trained(tmp_path_factory.mktemp("recorded"), *recorders)
    assert result.callbacks == recorders
    return result


def test_every_hook_is_called_in_order(recorded):
    recorder, _, third = recorded.callbacks
    kinds = [name for name, _ in recorder.calls]
    assert (kinds[0], kinds[-1]) == ("start", "end")
    assert not recorded.stopped, "after the last update, a request to stop changes nothing"
    assert [info.step for info in recorder.of("update")] == [BATCH * (i + 1) for i in range(UPDATES)]
    assert [info.step for info in third.of("update")] == [3 * BATCH * (i + 1) for i in range(UPDATES // 3)]
    assert [info.step for info in recorder.of("evaluation")] == [4 * BATCH * (i + 1) for i in range(UPDATES // 4)]
    first = recorder.of("start")[0]
    assert (first.step, first.seed, first.run_dir, first.total_steps) == (0, 0, recorded.run_dir, TOTAL)
    assert all(isinstance(info, Info) for _, info in recorder.calls)


def test_metrics_of_hooks_equal_the_rows_of_the_run(recorded):
    recorder = recorded.callbacks[1]
    written = {row["step"]: row for row in rows(recorded.run_dir) if "train/loss" in row}
    assert [info.step for info in recorder.of("update")] == sorted(written)
    for info in recorder.of("update"):
        timed = {name: x for name, x in written[info.step].items() if name.startswith("time/")}
        assert {"step": info.step, **info.metrics, **timed} == written[info.step], "None where nothing was measured"
    evaluated = {row["step"]: row["eval/return_mean"] for row in rows(recorded.run_dir) if "eval/return_mean" in row}
    assert {e.step: e.return_mean for e in recorder.of("evaluation")} == evaluated
    best = -np.inf
    for evaluation in recorder.of("evaluation"):
        assert isinstance(evaluation, Evaluation)
        assert evaluation.is_best == (evaluation.return_mean >= best)
        best = max(best, evaluation.return_mean)


def test_callbacks_change_no_bit(recorded, plain):
    assert rows(recorded.run_dir) == rows(plain)
    assert final_state(recorded.run_dir) == final_state(plain)


def test_evaluation_of_nan_is_never_the_best(tmp_path, monkeypatch):
    """The first and the third evaluation of the run return NaN."""
    count, played = itertools.count(1), JaxEvaluator.__call__

    def nan_at_first(self, *arguments, **named):
        episodes = played(self, *arguments, **named)
        return dataclasses.replace(episodes, episode_return=episodes.episode_return * (np.nan if next(count) in (1, 3) else 1.0))

    monkeypatch.setattr(JaxEvaluator, "__call__", nan_at_first)
    recorder, stop = Recorder(), EarlyStopping(patience=UPDATES)
    [result] = trained(tmp_path / "runs", recorder, stop, BestModel(tmp_path / "best"))
    returns = [evaluation.return_mean for evaluation in recorder.of("evaluation")]
    assert np.isnan(returns).nonzero()[0].tolist() == [0, 2]
    best, is_best = -np.inf, []
    for reached in returns:
        is_best.append(reached >= best)
        best = np.nanmax([best, reached])
    assert [evaluation.is_best for evaluation in recorder.of("evaluation")] == is_best
    step = [evaluation.step for evaluation in recorder.of("evaluation") if evaluation.is_best][-1]
    assert result.best == {"step": step, "return_mean": best}
    assert checkpoint.best_step(result.run_dir) == proximo.load(tmp_path / "best").step == step
    assert stop.best == best
    callbacks = [recorder, stop, BestModel(tmp_path / "best")]
    [longer] = proximo.resume(result.run_dir, callbacks=callbacks, total_steps=TOTAL + BATCH)
    assert longer.best["return_mean"] >= best


@pytest.mark.parametrize("mode", ["vmap", "serial"])
def test_each_seed_has_its_own_callbacks_and_stops_alone(tmp_path, mode):
    class StopSeed(Recorder):
        def on_update(self, info):
            return super().on_update(info) and info.seed == 1

    given = StopSeed(stops="update", at=6 * BATCH)
    results = trained(tmp_path / "runs", given, BestModel(tmp_path / "best"), seeds=2, seeds_mode=mode)
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["seed-0", "seed-1"]
    assert given.calls == []
    assert [r.stopped for r in results] == [False, True]
    assert [r.steps for r in results] == [TOTAL, 6 * BATCH]
    assert [[i.step for i in r.callbacks[0].of("end")] for r in results] == [[TOTAL], [6 * BATCH]]
    assert {info.seed for info in results[1].callbacks[0].of("update")} == {1}
    assert [last_step(r) for r in results] == [TOTAL, 6 * BATCH]
    # A resume of the group continues the others. By its own name, the stopped one continues, too.
    group = results[0].run_dir.parent
    left = r"seed-1 is not resumed, because a callback has stopped it \(stopped.txt has the step\)"
    with pytest.warns(UserWarning, match=left):
        proximo.resume(group, total_steps=TOTAL + BATCH)
    assert [last_step(r) for r in results] == [TOTAL + BATCH, 6 * BATCH]
    proximo.resume(results[1].run_dir)
    assert last_step(results[1]) == TOTAL
    for result in results:
        (result.run_dir / "stopped.txt").write_text("stopped")
    with pytest.raises(CheckpointError, match="has failed or was stopped: resume one of them by its own name"):
        proximo.resume(group)


def last_step(result):
    return checkpoint.steps(result.run_dir / "checkpoints")[-1]


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


@pytest.mark.parametrize(("hook", "update"), [("update", 4), ("update", 7), ("evaluation", 8)])
def test_callback_stops_a_training_which_resumes_with_the_state_of_its_callbacks(tmp_path, plain, hook, update):
    """Also where an evaluation and a checkpoint are due: neither is repeated or lost."""
    stop, at = Recorder(stops=hook, at=update * BATCH - 3), update * BATCH
    [result] = trained(tmp_path, Counter(), stop)
    assert result.stopped
    assert last_step(result) == at
    assert (stop.calls[-1][0], stop.calls[-1][1].step) == ("end", at)
    saved = checkpoint.load(result.run_dir / "checkpoints" / str(at)).info["callbacks"][0]
    assert saved == {"name": "Counter", "state": {"count": update}}
    stopped = read_run(result.run_dir)
    assert (stopped.status, stopped.why) == ("stopped", f"A callback has stopped the training at step {at}.")
    other = copied(result.run_dir, tmp_path / "other")
    counter, recorder = Counter(), Recorder()
    proximo.resume(result.run_dir, callbacks=[counter, recorder])
    assert (counter.restored, counter.count) == ({"count": update}, UPDATES)
    assert recorder.calls[0][1].step == at
    assert read_run(result.run_dir).status == "finished"
    assert final_state(result.run_dir) == final_state(plain)
    warning = "the callbacks were Counter, Recorder and are now Counter, so their saved state is not loaded"
    with pytest.warns(UserWarning, match=warning):
        proximo.resume(other, callbacks=[Counter()])


def test_policy_of_a_hook_is_a_copy_available_within_it(tmp_path):
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
    actions = [p.predict(observation)[0] for p in (policy, again)]
    np.testing.assert_array_equal(*actions)
    with pytest.raises(ConfigError, match=f"The state of step {2 * BATCH} was read after training had continued"):
        info.policy  # noqa: B018


@pytest.mark.parametrize("hook", ["on_update", "on_evaluation"])
@pytest.mark.parametrize("result", [True, False, None, np.True_, jax.numpy.array(True), 0.5, np.zeros(2, bool)])
def test_a_hook_stops_with_a_boolean_alone(hook, result):
    callbacks = SeedCallbacks([SimpleNamespace(**{hook: lambda info: result})])
    if result is None or (np.asarray(result).dtype == bool and np.ndim(result) == 0):
        assert callbacks.call(hook, None) == bool(result)
        return
    sentence = rf"callbacks: SimpleNamespace.{hook} returned .*: expected True to stop the training, or False or None to go on\.$"
    with pytest.raises(ConfigError, match=sentence):
        callbacks.call(hook, None)


def test_a_hook_may_be_a_function_in_c_and_every_may_change():
    calls = collections.deque()
    callback = SimpleNamespace(every=2, on_update=calls.append)
    [callbacks] = callbacks_of_seeds([callback], proximo.Config())
    for update in range(1, 13):
        callbacks.add({"rollout/episodes": np.zeros(1)})
        for due, _ in callbacks.updated(update):
            due.on_update(update)
        callback.every = 2 if update < 6 else 3
    assert list(calls) == [2, 4, 6, 9, 12]
    assert callbacks.intervals == [3]


LOCKED = SimpleNamespace(on_end=print, lock=threading.Lock())
NO_JSON = SimpleNamespace(state_dict=lambda: {"count": np.float32(1)})


def refused(callbacks, **settings):
    return lambda: trained(Path("runs"), *callbacks, **settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: proximo.train(ENV, callbacks=None), "callbacks = NoneType: expected a list, for example [EarlyStopping(at=475)]."),
        (refused([object()]), "object has none of on_start, on_update, on_evaluation, on_end"),
        (refused([Recorder]), "Recorder is a class: expected an object, for example Recorder()"),
        (refused([SimpleNamespace(on_updates=print)]), "(did you mean 'on_update'?)"),
        (refused([Recorder(every=0)]), "Recorder.every = 0: expected a number of updates, 1 or more"),
        (refused([EarlyStopping(at=4)], eval_episodes=0), "EarlyStopping needs evaluations, but eval_episodes = 0"),
        (refused([SimpleNamespace(on_update=lambda: None)]), "SimpleNamespace.on_update is called as on_update(info): too many"),
        (refused([SimpleNamespace(on_end=print, state_dict=dict)]), "SimpleNamespace has state_dict, but no load_state_dict"),
        (refused([LOCKED], seeds=2), "which failed (TypeError: cannot pickle '_thread.lock' object): leave out"),
        (EarlyStopping, "EarlyStopping: expected at (a mean return to stop at) or patience"),
        (lambda: EarlyStopping(patience=0), "patience = 0: expected a whole number of 1"),
        (lambda: EarlyStopping(at=1, min_delta="0"), "EarlyStopping: min_delta = '0': expected a number, 0 or more"),
        (lambda: EarlyStopping(at=1, min_delta=-1), "EarlyStopping: min_delta = -1: expected a number, 0 or more"),
        (lambda: EarlyStopping(at=False), "EarlyStopping: at = False: expected a number"),
        (lambda: EarlyStopping(at=float("nan")), "EarlyStopping: at = nan: expected a number"),
        (lambda: Checkpoints(3), "folder = 3: expected the path of a folder, not the working folder"),
        (lambda: BestModel("."), "folder = '.': expected the path of a folder, not the working folder"),
        (lambda: Video(None), "folder = None: expected the path of a folder, not the working folder"),
        (lambda: Video("videos", max_steps=0), "max_steps = 0: expected a whole number of 1"),
        (SeedCallbacks([NO_JSON]).state, "SimpleNamespace.state_dict() returns a value that is not JSON"),
    ],
)  # fmt: skip
def test_callbacks_arguments_and_states_that_do_not_fit_raise_before_a_run_is_made(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()
    assert not list(tmp_path.iterdir())


def evaluation(return_mean, step=0):
    return Evaluation(0, None, step, 0, config=None, _training=None, _now=None, _run=None, return_mean=return_mean)


def stops_at(callback, returns):
    """Index of the return that stops the training."""
    callback.on_start(evaluation(0.0))
    for i, x in enumerate(returns):
        callback.on_start(evaluation(0.0, step=1))  # a resumed training
        callback.load_state_dict(json.loads(json.dumps(callback.state_dict())))
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
        ({"at": 9.0, "patience": 3}, [np.nan, 1, np.inf, -np.inf, np.nan], 4),
        ({"at": np.float32(5), "patience": np.int64(3)}, [1, 4.9, 5.0], 2),
    ],
)
def test_early_stopping_in_one_training_after_another(settings, returns, expected):
    stop = EarlyStopping(**settings)
    assert stops_at(stop, returns) == expected
    assert stops_at(stop, returns) == expected


def test_checkpoints_and_best_model_are_whole_runs(tmp_path, plain):
    recorder = Recorder()
    trained(tmp_path / "runs", Checkpoints(tmp_path / "all", every=8), BestModel(tmp_path / "best"), recorder)
    assert sorted(int(p.name) for p in (tmp_path / "all").iterdir()) == [8 * BATCH, 16 * BATCH]
    best = [e.step for e in recorder.of("evaluation") if e.is_best][-1]
    assert proximo.load_policy(tmp_path / "best").step == best
    saved = tmp_path / "all" / str(8 * BATCH)
    assert proximo.load(saved).step == 8 * BATCH
    proximo.resume(saved)
    assert final_state(saved) == final_state(plain)


def test_video_is_recorded_at_its_interval(tmp_path):
    video = Video(tmp_path / "clips", every=2, max_steps=5)
    trained(tmp_path / "runs", video, env="proximo:PocMemory", total_steps=5 * BATCH, eval_episodes=0)
    assert {path.name for path in (tmp_path / "clips").iterdir()} == {f"{2 * BATCH}.mp4", f"{4 * BATCH}.mp4"}
