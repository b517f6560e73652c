"""``PPO`` learns as the command line does, and is saved and loaded exactly."""

import concurrent.futures
import gc
import hashlib
import json
import math
import os
import re
import signal
import threading
import weakref
from types import SimpleNamespace

import gymnasium as gym
import jax
import numpy as np
import pytest
import safetensors.numpy

import proximo
from commands import BATCH, GRU, SMALL, final_state, trained
from disks import full_disk
from proximo.agent import learn_in_calls
from proximo.errors import CheckpointError, ConfigError, EnvError, RunDirectoryError, TrainingError
from proximo.evaluation.episodes import Episodes
from proximo.storage import checkpoint, run_lookup
from proximo.tracking.reporter import Reporter
from proximo.training import loop
from proximo.training.backend import TimedCalls
from proximo.training.events import PeriodicEvaluation
from proximo.training.interrupts import Interrupts

import toys
from gym_toys import Countdown
from helpers import bits

SETTINGS = {n: x for n, x in SMALL.items() if n not in ("tensorboard", "total_steps")}
TOTAL = SMALL["total_steps"]
ADAPTIVE = {**GRU, "learning_rate": "1e-3", "objective": "kl_penalty", "desired_kl": 0.01}


def agent(env="toys:RandomEnds", **settings):
    return proximo.PPO(env, preset=False, **{**SETTINGS, **settings})


def leaves(learner):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(learner.policy.actor_critic)]


def test_learn_equals_the_command_line_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    learner = agent(**ADAPTIVE)
    assert learner.learn(TOTAL) is learner
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    run_dir = trained(tmp_path / "runs", "r", **ADAPTIVE)
    saved = learner.save(tmp_path / "saved")
    assert final_state(saved) == final_state(run_dir)
    steps = [row["step"] for row in learner.history if "eval/return_mean" in row]
    assert steps[-1] == TOTAL == learner.step


def test_a_full_disk_leaves_the_earlier_save(tmp_path):
    learner, folder = agent(head_sizes=[64]).learn(2 * BATCH), tmp_path / "saved"
    with full_disk(12_000), pytest.raises(CheckpointError, match=r"Cannot write"):  # room for the settings
        learner.save(folder)
    kept = final_state(learner.save(folder)), sorted(path.name for path in folder.iterdir())
    with full_disk(12_000), pytest.raises(CheckpointError, match=r"Cannot write"):
        learner.learn(2 * BATCH).save(folder)
    assert (final_state(folder), sorted(path.name for path in folder.iterdir())) == kept
    assert proximo.load(folder).step == 2 * BATCH
    assert checkpoint.steps(learner.save(folder) / "checkpoints") == [4 * BATCH]


def test_learning_in_two_parts_equals_learning_at_once(tmp_path):
    learner = agent(**ADAPTIVE).learn(10 * BATCH)
    assert float(learner._state.learner.adaptive.kl_coef) != 1.0
    assert float(learner._state.learner.adaptive.rate_factor) != 1.0
    again = proximo.load(learner.save(tmp_path / "saved"))
    assert (again.step, again.history) == (10 * BATCH, learner.history)
    whole = agent(**ADAPTIVE).learn(TOTAL)
    assert leaves(learner.learn(10 * BATCH)) == leaves(again.learn(10 * BATCH)) == leaves(whole)
    assert learner.step == again.step == whole.step == TOTAL
    assert final_state(again.save(tmp_path / "again")) == final_state(whole.save(tmp_path / "whole"))
    ours = theirs = whole.policy.init_memory(3)
    for start, observation in zip((True, False, True), np.random.default_rng(0).normal(size=(3, 3, 3)), strict=True):
        action, ours = whole.predict(observation, ours, [start] * 3)
        expected, theirs = whole.policy.predict(observation, theirs, [start] * 3)
        assert (bits(ours), action.tolist()) == (bits(theirs), expected.tolist())


def test_calls_driven_by_another_program_equal_learn():
    learner, seen = agent(), []
    for _ in learn_in_calls(learner, TOTAL, Interrupts(), max_updates=1):
        assert learner.config.ppo.total_steps == TOTAL
        seen.append(learner.step)
    assert seen == list(range(0, TOTAL, BATCH))
    assert leaves(learner) == leaves(agent().learn(TOTAL))
    # Closing calls late keeps what was learned since.
    calls = learn_in_calls(learner, TOTAL, Interrupts(), max_updates=1)
    for _ in range(3):
        next(calls)
    assert learner.step == TOTAL + 2 * BATCH
    learner.learn(BATCH)
    with pytest.raises(ConfigError, match="This agent has learned in another call since this call paused"):
        next(calls)
    calls.close()
    assert learner.step == TOTAL + 3 * BATCH


def test_without_a_key_samples_follow_from_the_seed():
    observation, learners = np.zeros((64, 3), np.float32), [agent(), agent(), agent(seed=1)]
    learners[2]._state = learners[0]._current_state()  # the same policy with another seed
    first, again, other = ([learner.predict(observation, deterministic=False)[0] for _ in range(2)] for learner in learners)
    np.testing.assert_array_equal(first, again)
    assert (first[0] != first[1]).any()
    assert (first[0] != other[0]).any()


def test_loaded_object_has_its_settings_and_preprocessing(tmp_path):
    settings = {"env_settings": {"length": 6}, "frame_stack": 2, "max_episode_steps": 9}
    learner = agent(Countdown, **settings)
    saved = learner.save(tmp_path / "saved")
    again = proximo.load(saved, env=Countdown)
    assert again.env.observation_space == learner.env.observation_space
    assert again.config.env == learner.config.env
    assert again.evaluate(2).length.tolist() == learner.evaluate(2).length.tolist() == [6, 6]
    assert proximo.load(saved, env=Countdown(length=7)).evaluate(2).length.tolist() == [7, 7]
    learner.set_env(lambda: Countdown(length=8))
    assert learner.config.env.frame_stack == 2


@pytest.mark.parametrize("env", [toys.RandomEnds(), lambda: toys.RandomEnds(), Countdown])
def test_environment_may_be_an_object(tmp_path, env):
    learner = agent(env).learn(BATCH)
    assert learner.config.env.id.startswith("<")
    saved = learner.save(tmp_path / "saved")
    with pytest.raises(EnvError, match="was given as an object, so it has no id by which it can be found again"):
        proximo.load(saved)
    again = proximo.load(saved, env=env)
    assert leaves(again) == leaves(learner)
    assert again.learn(BATCH).step == 2 * BATCH


def switched(folder=None):
    """Train an agent and switch its environment, twice. Returns the state at the start of each training. With
    ``folder``, the agent is saved and loaded around each switch."""
    learner = agent()
    first_collectors = [learner._current_state().collector]
    learner.learn(2 * BATCH)
    for i in range(2):
        learner = learner if folder is None else proximo.load(learner.save(folder / f"before-{i}"))
        before = learner._state.learner.reward_normalizer
        assert np.abs(before.running_return).max() > 0
        assert learner._evaluation is not None
        learner.set_env("toys:RandomEnds")
        assert learner._evaluation is None
        learner = learner if folder is None else proximo.load(learner.save(folder / f"after-{i}"))
        after = learner._state.learner.reward_normalizer
        assert np.abs(after.running_return).max() == 0
        assert bits(after.statistics) == bits(before.statistics)
        first_collectors.append(learner._state.collector)
        learner.learn(2 * BATCH)
    return leaves(learner), [
        (np.asarray(c.observation), np.asarray(jax.random.key_data(c.key)).tobytes()) for c in first_collectors
    ]


def test_set_env_continues_random_numbers_and_can_be_resumed(tmp_path):
    learned, first_collectors = switched()
    observations = np.concatenate([observation for observation, _ in first_collectors])
    assert len(np.unique(observations, axis=0)) == len(observations) == 3 * SETTINGS["num_envs"]
    assert len({key for _, key in first_collectors}) == 3
    assert switched()[0] == switched(tmp_path)[0] == learned


def test_set_env_on_gymnasium_uses_new_seeds():
    class Seeded(Countdown):
        def reset(self, *, seed=None, options=None):
            given.extend([] if seed is None else [seed])
            return super().reset(seed=seed)

    given = []

    def seeds_of_training():
        learner, seeds = agent(Seeded, eval_episodes=0, num_workers=0), []
        for _ in range(3):
            given.clear()
            learner.learn(BATCH)
            seeds += given
            learner.set_env(lambda: Seeded())
            assert np.abs(learner._state.learner.reward_normalizer.running_return).max() == 0
        return seeds, leaves(learner)

    seeds, learned = seeds_of_training()
    assert len(set(seeds)) == len(seeds) == 3 * SETTINGS["num_envs"]
    assert seeds_of_training() == (seeds, learned)


def test_ctrl_c_while_compiling_and_learning_keeps_what_was_learned():
    class Interrupted(Reporter):
        def compiling(self):
            if not learner.step:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

        def advanced(self, steps, steps_per_second, recent_return):
            if steps >= 4 * BATCH:
                signal.raise_signal(signal.SIGINT)

    learner = agent(hidden_sizes="9")
    with pytest.raises(KeyboardInterrupt):
        learner.learn(10**6, reporter=Interrupted())
    assert learner.learn(BATCH).step == BATCH
    with pytest.raises(KeyboardInterrupt):
        learner.learn(TOTAL, reporter=Interrupted())
    assert 4 * BATCH <= learner.step < TOTAL
    assert learner.learn(BATCH).step > 4 * BATCH


class Paying(toys.RandomEnds):
    def __init__(self):
        self.default_params = {"reward": 1.0, "key": jax.random.key(0)}

    def step(self, key, state, action, params):
        state, observation, _, terminated, truncated, info = super().step(key, state, action, toys.RandomEnds.default_params)
        return state, observation, jax.numpy.asarray(params["reward"]), terminated, truncated, info


def test_parameters_of_an_environment_may_change_between_trainings():
    env, returns = Paying(), []
    for reward in (1.0, 5.0):
        env.default_params = {"reward": reward, "key": jax.random.key(1)}
        learner = agent(env, eval_episodes=0).learn(TOTAL)
        returns.append((learner.history[-1]["rollout/return_mean"], learner.evaluate(2).summary()["return_mean"]))
    np.testing.assert_allclose(returns[1], np.multiply(5.0, returns[0]), rtol=1e-5)


def test_the_agent_acts_and_is_saved_while_it_learns(tmp_path):
    """A JAX environment's call uses up the state that it begins with. Other threads, callbacks and policies that were kept have their own.
    Only one call learns."""
    learner, observation = agent(updates_per_call=1, eval_episodes=0), np.zeros(3, np.float32)
    kept, steps, ended = [learner.policy], [], threading.Event()
    assert learner.policy is kept[0], "until the agent changes"
    with pytest.raises(ConfigError, match="total_steps = 1"):
        learner.learn(1)

    def act():
        count = 0
        while not ended.is_set():
            learner.predict(observation)
            count += 1
        return count

    def use(info):
        assert info.run_dir is None
        kept.append(learner.policy)
        steps.append((info.step, learner.step, proximo.load(learner.save(tmp_path / "saved")).step))
        for change in (lambda: learner.learn(BATCH), lambda: learner.set_env("toys:RandomEnds")):
            with pytest.raises(ConfigError, match=r"^This agent is already learning in another call or thread"):
                threads.submit(change).result()
        return info.step >= 3 * BATCH

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        acting = threads.submit(act)
        try:
            learner.learn(TOTAL, callbacks=[SimpleNamespace(on_update=use)])
        finally:
            ended.set()
    assert acting.result() > 0
    assert steps == [(n * BATCH,) * 3 for n in range(1, 4)]
    assert learner.policy is learner.policy is not kept[0]
    assert (kept[0].step, learner.policy.step, learner.policy.config) == (0, 3 * BATCH, learner.config)
    assert len({tuple(bits(policy.actor_critic)) for policy in kept}) == len(kept) == 4


def test_only_an_evaluation_better_than_all_earlier_ones_is_the_best(tmp_path, monkeypatch):
    """Also in a further call of ``learn``, and of an agent that was loaded."""
    returns, best = iter([5.0, 9.0, 7.0, 9.5, 8.0, 9.75]), []

    seen = [SimpleNamespace(on_evaluation=lambda result: best.append(result.is_best))]
    played = lambda *_: (Episodes(np.array([next(returns)]), np.array([1]), None, 0).rows(), 0)  # noqa: E731
    monkeypatch.setattr(PeriodicEvaluation, "_play", played)
    learner = agent(eval_every=BATCH)
    learner.learn(2 * BATCH, callbacks=seen).learn(2 * BATCH, callbacks=seen)
    proximo.load(learner.save(tmp_path / "saved")).learn(2 * BATCH, callbacks=seen)
    assert best == [True, True, False, True, False, True]


def test_a_call_that_fails_costs_only_its_own_updates(monkeypatch):
    learner, calls, advance = agent(updates_per_call=1, eval_episodes=0), [], TimedCalls.advance

    def failing(self, now, num_updates):
        after = advance(self, now, num_updates)
        calls.append(after)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return after

    monkeypatch.setattr(TimedCalls, "advance", failing)
    monkeypatch.setattr(loop, "SNAPSHOT_SECONDS", math.inf)
    with pytest.raises(RuntimeError, match="out of memory"):
        learner.learn(6 * BATCH)
    assert learner.step == 2 * BATCH
    learner.learn(2 * BATCH)
    assert learner.step == 4 * BATCH
    logged = [row["step"] for row in learner.history]
    assert logged == sorted(logged)
    assert logged[-1] == learner.step


def newest(run_dir):
    """Path and metadata of the newest checkpoint."""
    found, _ = run_lookup.load_newest(run_dir / "checkpoints")
    meta = json.loads(found.files[checkpoint.META])
    del meta["sha256"]
    return found.path, meta


def test_loading_a_policy_with_nan_or_infinity_raises(tmp_path):
    saved = agent().save(tmp_path / "saved")
    path, meta = newest(saved)
    arrays = safetensors.numpy.load((path / checkpoint.STATE).read_bytes())
    name = next(name for name in arrays if name.startswith("learner.policy") and name.endswith("weight"))
    arrays[name] = np.array(arrays[name])
    for load, value in ((proximo.load, np.nan), (proximo.load_policy, np.inf)):
        arrays[name].flat[0] = value
        data = safetensors.numpy.save(arrays)
        meta["files"][checkpoint.STATE] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        (path / checkpoint.STATE).write_bytes(data)
        (path / checkpoint.META).write_bytes(checkpoint.signed(meta))  # the checksums are valid
        with pytest.raises(CheckpointError, match=r"has NaN or infinity in .*weight, so its policy cannot act"):
            load(saved)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: agent(track="csv"), ConfigError, "track is a setting of run directories: use proximo.train"),
        (lambda: agent(num_env=3), ConfigError, r"num_env.*called num_envs here"),
        (lambda: agent(3), EnvError, "is neither a JAX nor a Gymnasium environment"),
        (lambda: agent().learn(BATCH - 1), ConfigError, f"total_steps = {BATCH - 1}: expected a whole number of at least {BATCH}"),
        (lambda: agent(gym.vector.SyncVectorEnv([Countdown] * 3), num_envs=2), ConfigError, "num_envs = 2, but the .* has 3: leave out num_envs"),
        (lambda: agent().learn(1e5 + 0.5), ConfigError, "expected a whole number"),
        (lambda: agent(verbose="no"), ConfigError, "verbose = 'no': expected a whole number of 0 … 2"),
        (lambda: agent().render(fps="x"), ConfigError, "fps = 'x': expected a number"),
        (lambda: agent().evaluate("10"), ConfigError, r"^episodes = '10': expected a whole number of 1 …"),
        (lambda: proximo.evaluate_policy("last", modes=5), ConfigError, "modes = 5: expected a list of 'greedy'"),
        (lambda: proximo.evaluate_policy("last", modes=[["greedy"]]), ConfigError, "expected a list of 'greedy'"),
        (lambda: agent(privileged="goal", towers="separate"), EnvError, r"^privileged: the observation space Box.* has no entry 'goal'"),
        (lambda: agent().set_env("gymnax:Acrobot-v1"), ConfigError, r"^The (action|observation) space of gymnax:Acrobot-v1 is"),
        (lambda: agent().predict(np.zeros(4)), ConfigError, r"^An observation has the shape \(4,\): expected \(3,\), or N of them"),
        (lambda: proximo.load("nowhere"), CheckpointError, "No run 'nowhere'"),
    ],
)  # fmt: skip
def test_mistake_raises_one_sentence(make, error, message):
    with pytest.raises(error, match=message) as error_info:
        make()
    assert "\n" not in str(error_info.value)


def test_save_replaces_only_what_was_saved_before(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(ConfigError, match=r"but no command\.txt: choose an empty folder"):
        agent().save(tmp_path)
    run_dir = trained(tmp_path / "runs", "r", total_steps=64)
    with pytest.raises(ConfigError, match="is the run of a training, which saving would replace"):
        proximo.load(run_dir).save(run_dir)
    saved = agent().save(tmp_path / "saved")
    expected = sorted(path.name for path in saved.iterdir())
    for folder in ("export", "videos"):
        (saved / folder).mkdir()
    (saved / "report.html").touch()
    assert agent(seed=5).save(saved) == saved
    assert sorted(path.name for path in saved.iterdir()) == expected


def test_two_agents_that_save_into_one_folder_raise_one_sentence(tmp_path, monkeypatch):
    learner, raised = agent(), []

    def write(*arguments, real=checkpoint.write):
        with pytest.raises(RunDirectoryError) as error:
            learner.save(tmp_path)
        raised.append(str(error.value))
        return real(*arguments)

    monkeypatch.setattr(checkpoint, "write", write)
    learner.save(tmp_path)
    [message] = raised
    assert message.startswith(f"{tmp_path} is in use by process {os.getpid()} on ")
    assert message.endswith("(an agent: save it into another folder).")


def test_settings_that_a_user_has_edited_raise_and_checkpoints_without_their_copy_load(tmp_path):
    saved = agent().save(tmp_path / "saved")
    config = (saved / "config.yaml").read_text()
    for name, now, before in (("learning_rate", "linear(3e-4, 0)", "0.0003"), ("activation", "relu", "tanh")):
        (saved / "config.yaml").write_text(re.sub(f" {name}: .*", f" {name}: {now}", config))
        message = rf"^{name} = {re.escape(now)} in .*config.yaml, but its checkpoint was trained with {before}: restore the value"
        for load in (proximo.load, proximo.load_policy):
            with pytest.raises(ConfigError, match=message):
                load(saved)
    path, _ = newest(saved)
    (saved / "config.yaml").write_text(config)
    (path / "config.yaml").write_text(config.replace("activation: tanh", "activation: relu"))
    with pytest.raises(CheckpointError, match=r"is damaged: config.yaml has the sha256"):
        proximo.load(saved)
    (path / "config.yaml").unlink()
    (saved / "config.yaml").write_text(config.replace("activation: tanh", "activation: relu"))
    assert proximo.load_policy(saved).config.network.activation == "relu"


def test_warnings_of_a_training_are_in_the_warnings():
    """Episodes of the evaluation that do not end."""
    learner = agent("proximo:PocMemory", eval_max_steps=2).learn(BATCH).learn(BATCH)
    assert sum("still running" in warning for warning in learner.warnings) == 1


def test_an_agent_learns_on_in_new_episodes_of_a_jax_environment():
    env = toys.Broken()
    env.default_params = {"observation": -1, "reward": 40}
    learner = proximo.PPO(env, preset=False, num_envs=2, num_steps=8, hidden_sizes=4, eval_episodes=0, verbose=0)
    with pytest.raises(TrainingError, match="NaN or infinity in the reward"):
        learner.learn(20 * 16)
    before = leaves(learner)
    assert learner.step == 4 * 16, "the fifth update has step 40"
    assert learner.learn(3 * 16).step == 7 * 16
    assert leaves(learner) != before


def test_an_agent_that_has_learned_is_freed():
    learner = agent().learn(BATCH)
    kept = weakref.ref(learner)
    del learner
    gc.collect()
    assert kept() is None
