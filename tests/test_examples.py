"""The examples run. The code of the documentation pages is tested in tests/docs."""

import ast
import functools
import json
import re
import types
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.checks import quick_check
from proximo.cli import main
from proximo.distributions.gaussian import Gaussian
from proximo.envs import make_env
from proximo.math.advantages import generalized_advantages

from adapted import played, trained

ROOT = Path(__file__).parents[1]


class Visited(NamedTuple):
    """The parts of a rollout that the curiosity example reads."""

    observation: jax.Array
    last_observation: jax.Array
    valid: jax.Array


class Plain:
    """A policy without a normalizer."""

    def normalize(self, x):
        return x


@functools.cache
def _module(name, old="", new=""):
    """An example, perhaps as if it was started with another default."""
    module = types.ModuleType(name)
    exec((ROOT / "examples" / f"{name}.py").read_text().replace(old, new), module.__dict__)
    return module


@functools.cache
def _one_file_on_pendulum():
    example = _module("ppo_in_one_file", 'default="CartPole-v1"', 'default="Pendulum-v1"')
    assert example.CONTINUOUS
    return example


@pytest.fixture(scope="module")
def recurrent():
    """The module, parameters whose actions depend on the memory, and a rollout in which half of the environments are at the time limit."""
    example = _module("recurrent_ppo_in_one_file")
    parameters = example.make_parameters(jax.random.key(0))
    actor = parameters.actor
    parameters = parameters._replace(actor=actor._replace(weight=100 * actor.weight))
    actors = jax.vmap(example.reset)(jax.random.split(jax.random.key(1), example.NUM_ENVS))
    time = jnp.where(jnp.arange(example.NUM_ENVS) < 8, example.ENV_PARAMS.max_steps - 2, 0)
    actors = actors._replace(state=actors.state._replace(time=time))
    _, rollout = jax.jit(example.collect)(jax.random.key(2), parameters, actors)
    return example, parameters, rollout


@pytest.mark.learning
def test_sweep_trains_every_learning_rate_in_one_program(capsys):
    """On an environment of gymnax."""
    result = _module("sweep").main(total_steps=4_096)
    assert len(result) == 3
    assert all(8 < mean < 500 for mean in result.values())
    assert capsys.readouterr().out.count("learning rate") == 3


@pytest.mark.learning
def test_learning_rate_finder_suggests_the_rate_at_its_limit(capsys):
    example = _module("learning_rate_finder")
    finder = example.LearningRateFinder()
    for rate in np.geomspace(example.LOW, example.HIGH, 41):
        finder.rows.append({"learning_rate": rate, "clip_fraction": min(1.0, 10 * rate), "approx_kl": 0.0})
    assert finder.suggestion == pytest.approx(0.005, rel=0.02)
    finder.rows = finder.rows[:20]
    assert finder.suggestion is None
    example.main("gymnax:CartPole-v1", 4_096)
    assert "suggestion:" in capsys.readouterr().out


def test_learning_rate_finder_fits_the_nearest_non_decreasing_values():
    values, rng = np.array([1.0, 3.0, 2.0, 2.0, 5.0, 4.0]), np.random.default_rng(0)
    fitted = _module("learning_rate_finder").non_decreasing(values)
    assert (np.diff(fitted) >= 0).all()
    others = np.sort(fitted + rng.normal(0, 0.3, (2000, len(values))), axis=1)
    assert (np.square(others - values).sum(1) >= np.square(fitted - values).sum() - 1e-12).all()


@pytest.mark.learning
def test_curiosity_rewards_new_observations_only(capsys):
    """On an environment of gymnax."""
    example = _module("curiosity")
    result = example.main(total_steps=4 * 2048, seeds=1)
    assert set(result) == {0.0, 1.0}
    assert all(-200 <= mean <= 0 for row in result.values() for mean in row.tolist())
    assert capsys.readouterr().out.count("curiosity") == 2
    key = jax.random.key(0)
    seen, new = jax.random.normal(key, (8, 16, 2)), 3.0 + jax.random.normal(key, (8, 16, 2))
    curiosity, explore = example.start(key, 2), jax.jit(lambda curiosity, rollout: example.explore(curiosity, Plain(), rollout))
    rewards = []
    for reached in (*[seen] * 40, new):
        rollout = Visited(reached, reached[-1], jnp.ones(reached.shape[:2], bool))
        curiosity, reward = explore(curiosity, rollout)
        rewards.append(float(reward.mean()))
    assert rewards[-2] < 0.3 * rewards[0]
    assert rewards[-1] > 2 * rewards[-2]


@pytest.mark.learning
def test_custom_environments_train_from_the_command_line(tmp_path, monkeypatch, capsys):
    """The Gymnasium environment is learned; the JAX environment has settings."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    grid, drift = "custom_gymnasium_environment:Grid", "custom_jax_environment:Drift"
    assert main(["check", grid]) == 0
    assert "can be trained" in capsys.readouterr().out
    assert main(["train", grid, "--total-steps=24000", "--num-workers=0", "--learning-rate=1e-3", "--eval-episodes=0"]) == 0
    assert main(["eval", "last", "--episodes", "100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["success_rate"] > 0.98
    assert main(["train", drift, "--smoke", "--env-settings", "wind=0.5"]) == 0
    assert f"{drift}: Box(2,) float32 → Box(1,) float32" in capsys.readouterr().out


def test_the_adapter_of_the_page_passes_checks_and_trains(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "custom-jax-environment.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    assert len(blocks[1].strip().splitlines()) <= 30
    (tmp_path / "hills.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(str(tmp_path))
    env = make_env("hills:BallOnHill", {"limit": 30})
    assert quick_check(env, "hills:BallOnHill")[0] == []
    rows, *_ = played(env, 30)
    ends = [row[3:] for row in rows]
    fallen = ends.index((True, False))
    assert fallen < 30
    assert ends[:fallen] == [(False, False)] * fallen
    cut, *_ = played(make_env("hills:BallOnHill", {"limit": fallen - 1}), fallen - 1)
    assert cut[-1][3:] == (False, True)
    at_limit, *_ = played(make_env("hills:BallOnHill", {"limit": fallen}), fallen)
    assert at_limit[-1][3:] == (True, False)
    assert trained(env)["rollout/episodes"].sum() > 0


@pytest.mark.learning
def test_the_custom_losses_are_learned_with(capsys):
    """On an environment of gymnax."""
    returns = _module("custom_losses").main(4_096)
    assert list(returns) == ["PPO", "SPO", "PPO with reconstruction"]
    assert min(returns.values()) > 15
    said = capsys.readouterr().out
    assert "'train/penalty'" in said
    assert "'train/reconstruction'" in said


def test_the_page_and_the_example_have_equal_losses():
    """Apart from types and docstrings."""

    def bodies(source):
        functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
        keep = {f.name: f for f in functions if f.name in ("spo", "reconstruction", "__init__", "__call__")}
        for f in keep.values():
            f.body = [n for n in f.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
        return {name: [ast.dump(n) for n in f.body] for name, f in keep.items()}

    page = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "custom-losses.md").read_text(), re.DOTALL))
    assert len(bodies(page)) == 4
    assert bodies(page) == bodies((ROOT / "examples" / "custom_losses.py").read_text())


@pytest.mark.learning
def test_all_three_levels_of_the_python_api_run(capsys):
    """On an environment of gymnax."""
    agent, run, loop = _module("python_api").main(4_096)
    assert min(agent, run, loop) > 15
    assert "would push" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "imports", "lines"),
    [
        ("ppo_in_one_file", {"argparse", "gymnax", "os"}, 300),
        ("recurrent_ppo_in_one_file", {"proximo.envs.tasks.poc_memory"}, 330),
    ],
)
def test_one_file_is_short_and_imports_no_algorithm(name, imports, lines):
    source = (ROOT / "examples" / f"{name}.py").read_text()
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names == imports | {"jax", "jax.numpy", "optax", "typing"}
    assert len(source.splitlines()) <= lines


@pytest.mark.parametrize("name", ["ppo_in_one_file", "recurrent_ppo_in_one_file"])
def test_advantages_of_the_one_file_are_those_of_the_library(name):
    example, rng = _module(name), np.random.default_rng(0)
    reward, final = rng.normal(size=(2, 40, 5)).astype(np.float32)
    value = rng.normal(size=(41, 5)).astype(np.float32)
    terminated, truncated = rng.random((40, 5)) < 0.1, rng.random((40, 5)) < 0.1
    truncated &= ~terminated
    next_value = np.where(terminated | truncated, final, value[1:])
    got = example.advantages(reward, value[:-1], next_value, terminated, truncated)
    bootstrap, valid = np.where(truncated, final, 0.0), np.ones_like(terminated)
    steps = (reward, value[:-1], value[-1], bootstrap, terminated, truncated, valid, example.GAMMA, example.GAE_LAMBDA)
    of_each = jax.vmap(generalized_advantages, in_axes=(1, 1, 0, 1, 1, 1, 1, None, None), out_axes=1)
    np.testing.assert_allclose(got, of_each(*map(jnp.asarray, steps)), rtol=1e-5, atol=1e-5)


def test_rollout_of_the_one_file_keeps_final_observations():
    """On gymnax's CartPole: environments at the time limit, and environments whose pole falls."""
    example = _module("ppo_in_one_file")
    envs = jax.vmap(example.reset)(jax.random.split(jax.random.key(0), example.NUM_ENVS))
    late = jnp.arange(example.NUM_ENVS) < 4
    envs = envs._replace(state=envs.state.replace(time=jnp.where(late, 497, 0)))
    parameters = example.make_parameters(jax.random.key(1))
    _, rollout = jax.jit(example.collect, static_argnums=3)(jax.random.key(2), parameters, envs, 100)
    ended = rollout.terminated | rollout.truncated
    continues = jnp.all(rollout.next_observation[:-1] == rollout.observation[1:], axis=-1)
    assert (continues == ~ended[:-1]).all()
    assert rollout.truncated[2].tolist() == late.tolist()
    assert rollout.truncated.sum() == late.sum()
    assert (rollout.terminated == (jnp.abs(rollout.next_observation[..., 2]) > 12 * 2 * jnp.pi / 360)).all()
    assert rollout.terminated.sum() > 8
    assert (rollout.episode_return[2, late] == 3).all()


def test_continuous_actions_of_the_one_file_are_those_of_the_library_and_are_scaled_to_the_bounds():
    """The torque of gymnax's pendulum is limited to ±2; its state has the last one."""
    example, rng = _one_file_on_pendulum(), np.random.default_rng(0)
    mean, action = jnp.asarray(rng.normal(size=(2, 7, 3)).astype(np.float32))
    log_std = jnp.asarray(rng.normal(size=3).astype(np.float32))
    ours, theirs = example.Gaussian(mean, log_std), Gaussian(mean, log_std)
    np.testing.assert_allclose(ours.log_prob(action), theirs.log_prob(action), rtol=1e-5)
    np.testing.assert_allclose(np.full(7, ours.entropy()), theirs.entropy(), rtol=1e-5)
    env = example.reset(jax.random.key(0))
    for action, torque in [(0.25, 0.5), (-1.0, -2.0), (3.0, 2.0)]:
        after, transition = example.step(jax.random.key(1), env, jnp.array([action]))
        speed = 1.5 * 10.0 * jnp.sin(env.state.theta) + 3.0 * torque
        assert after.state.theta_dot - env.state.theta_dot == pytest.approx(0.05 * float(speed), abs=1e-5)
        assert transition.action.tolist() == [action]


def test_recurrent_one_file_starts_with_ratio_one(recurrent):
    """Acting and learning compute the same, with resets inside sequences; with a deliberate mistake they do not."""
    example, parameters, rollout = recurrent
    batch = example.make_batch(rollout)
    assert batch.observation.shape == (64, 8, 3)
    assert batch.episode_start[:, 1:].any(axis=1).sum() > 16
    unroll = jax.jit(jax.vmap(example.unroll, in_axes=(None, 0, 0, 0)))

    def errors(memory, observation, episode_start):
        log_probs, value = unroll(parameters, memory, observation, episode_start)
        log_ratio = example.of_action(log_probs, batch.action) - batch.log_prob
        return float(jnp.abs(log_ratio).max()), float(jnp.abs(value - example.split_sequences(rollout.value)).max())

    assert max(errors(batch.memory, batch.observation, batch.episode_start)) < 1e-5
    assert min(errors(batch.memory, batch.observation, jnp.roll(batch.episode_start, 1, axis=1))) > 1e-2
    assert min(errors(0 * batch.memory, batch.observation, batch.episode_start)) > 1e-2
    assert min(errors(batch.memory, rollout.observation.reshape(batch.observation.shape), batch.episode_start)) > 1e-2


def test_recurrent_one_file_truncates_gradients_at_resets_and_ends_of_sequences(recurrent):
    """A value depends on all earlier observations of its episode in its sequence, and on the memory before it."""
    example, parameters, _ = recurrent
    length, start = example.SEQUENCE_LENGTH, 3
    key_memory, key_observation = jax.random.split(jax.random.key(3))
    memory = jax.random.normal(key_memory, (example.NUM_UNITS,))
    observation = jax.random.normal(key_observation, (length, 3))
    values = lambda m, o: example.unroll(parameters, m, o, jnp.arange(length) == start)[1]  # noqa: E731
    of_memory, of_observation = jax.jit(jax.jacobian(values, argnums=(0, 1)))(memory, observation)
    later, earlier = np.indices((length, length))
    expected = (earlier <= later) & ((earlier >= start) == (later >= start))
    assert (np.abs(of_observation).max(axis=-1) > 0).tolist() == expected.tolist()
    assert (np.abs(of_memory).max(axis=-1) > 0).tolist() == [True] * start + [False] * (length - start)


def test_recurrent_one_file_values_final_observations_with_the_memory_after_the_step(recurrent):
    example, parameters, rollout = recurrent
    ended = rollout.terminated | rollout.truncated
    assert (rollout.episode_start[1:] == ended[:-1]).all()
    np.testing.assert_allclose(rollout.next_value[:-1][~ended[:-1]], rollout.value[1:][~ended[:-1]], atol=1e-5)
    assert rollout.truncated[1].tolist() == [True] * 8 + [False] * 8
    memory, _, _ = example.step(parameters, rollout.memory[1], rollout.observation[1], rollout.episode_start[1])
    final = rollout.observation[1].at[:, 1].add(0.2 * (2 * rollout.action[1] - 1))  # the goals are hidden by then
    _, _, value = example.step(parameters, memory, final, jnp.zeros(example.NUM_ENVS, bool))
    np.testing.assert_allclose(rollout.next_value[1, :8], value[:8], atol=1e-5)
    assert rollout.terminated.sum() > 8


@pytest.mark.learning
@pytest.mark.parametrize(
    ("name", "arguments", "least"),
    [
        ("ppo_in_one_file", {"total_steps": 24 * 1024}, 150),  # CartPole of gymnax; random actions reach 22
        ("recurrent_ppo_in_one_file", {"seed": 100}, 0.9),  # sampled actions; without a memory at most 0.73 succeed
    ],
)
def test_one_file_learns(name, arguments, least, capsys):
    assert _module(name).main(**arguments) >= least
    assert "evaluated: return" in capsys.readouterr().out


@pytest.mark.slow
def test_ppo_in_one_file_reaches_the_return_of_the_library():
    """Five seeds of each, on gymnax's CartPole."""
    example, keys = _module("ppo_in_one_file"), jax.random.split(jax.random.key(0), 5)
    parameters, _ = jax.jit(jax.vmap(lambda key: example.train(key, 97)))(keys)
    ours = jax.jit(jax.vmap(example.evaluate))(keys, parameters).mean(axis=1)
    agents = [proximo.PPO("gymnax:CartPole-v1", seed=seed, eval_episodes=0).learn(100_000) for seed in range(5)]
    theirs = [agent.evaluate(100).summary()["return_mean"] for agent in agents]
    assert min(*ours, *theirs) > 475
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=5.0)


@pytest.mark.slow
@pytest.mark.parametrize(("recurrent", "least"), [(True, 0.9), (False, -250)])
def test_one_file_learns_with_every_seed(recurrent, least):
    """Five seeds with a memory, or on gymnax's pendulum, where random actions reach about -1,200."""
    example = _module("recurrent_ppo_in_one_file") if recurrent else _one_file_on_pendulum()
    updates = 23 if recurrent else example.TOTAL_STEPS // (example.NUM_STEPS * example.NUM_ENVS)
    keys = jax.vmap(jax.random.key)(jnp.arange(100, 105))
    parameters, _ = jax.jit(jax.vmap(lambda key: example.train(key, updates)))(keys)
    result = jax.jit(jax.vmap(example.evaluate))(keys, parameters)
    assert (result[1] if recurrent else result).mean(axis=1).min() >= least
