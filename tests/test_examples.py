"""The examples run. The code of the documentation pages is tested in tests/docs."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.checks.quick import quick_check
from proximo.cli import main
from proximo.envs import make_env
from proximo.math.advantages import generalized_advantages

from adapted import played, trained

ROOT = Path(__file__).parents[1]


class Visited(eqx.Module):
    """The parts of a rollout that the curiosity example reads."""

    observation: jax.Array
    last_observation: jax.Array
    valid: jax.Array


class Plain(eqx.Module):
    """A policy without a normalizer."""

    def normalize(self, x):
        return x


def _module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.learning
def test_sweep_trains_every_learning_rate_in_one_program(capsys):
    """On an environment of gymnax."""
    result = _module("sweep").main(total_steps=5_120)
    assert len(result) == 3
    assert all(8 < mean < 500 for mean in result.values())
    assert capsys.readouterr().out.count("learning rate") == 3


@pytest.mark.learning
def test_curiosity_rewards_new_observations_only(capsys):
    """On an environment of gymnax."""
    example = _module("curiosity")
    result = example.main(total_steps=10 * 2048, seeds=1)
    assert set(result) == {0.0, 1.0}
    assert all(-200 <= mean <= 0 for row in result.values() for mean in row.tolist())
    assert capsys.readouterr().out.count("curiosity") == 2
    key = jax.random.key(0)
    seen, new = jax.random.normal(key, (8, 16, 2)), 3.0 + jax.random.normal(key, (8, 16, 2))
    curiosity, explore = example.start(key, 2), jax.jit(example.explore)
    rewards = []
    for reached in (*[seen] * 40, new):
        rollout = Visited(reached, reached[-1], jnp.ones(reached.shape[:2], bool))
        curiosity, reward = explore(curiosity, Plain(), rollout)
        rewards.append(float(reward.mean()))
    assert rewards[-2] < 0.3 * rewards[0]
    assert rewards[-1] > 2 * rewards[-2]


@pytest.mark.learning
def test_custom_gymnasium_environment_passes_the_checks_and_is_learned(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    assert main(["check", "custom_gymnasium_environment:Grid"]) == 0
    assert "can be trained" in capsys.readouterr().out
    words = [
        "train",
        "custom_gymnasium_environment:Grid",
        "--total-steps",
        "40000",
        "--num-workers",
        "0",
        "--learning-rate",
        "1e-3",
    ]
    assert main(words) == 0
    assert main(["eval", "last", "--episodes", "200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["success_rate"] > 0.98


@pytest.mark.learning
def test_custom_jax_environment_trains_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "custom_jax_environment:Drift", "--smoke", "--env-settings", "wind=0.5"]) == 0
    said = capsys.readouterr().out
    assert "custom_jax_environment:Drift: Box(2,) float32 → Box(1,) float32" in said
    assert main(["eval", "last", "--episodes", "3"]) == 0
    assert "3 episodes each" in capsys.readouterr().out


def test_the_adapter_of_the_page_passes_checks_and_trains(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "custom-jax-environment.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    assert len(blocks[1].strip().splitlines()) <= 30
    (tmp_path / "hills.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(str(tmp_path))
    env = make_env("hills:BallOnHill", {"limit": 30})
    assert quick_check(env, "hills:BallOnHill").warnings == []
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
    returns = _module("custom_losses").main(8_192)
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
    agent, run, loop = _module("python_api").main(5_120)
    assert min(agent, run, loop) > 15
    assert "would push" in capsys.readouterr().out


def test_one_file_is_short_and_imports_nothing_from_proximo():
    source = (ROOT / "examples" / "ppo_in_one_file.py").read_text()
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert names | {node.module for node in nodes if isinstance(node, ast.ImportFrom)} == {
        "gymnax",
        "jax",
        "jax.numpy",
        "optax",
        "os",
        "typing",
    }
    assert len(source.splitlines()) < 280


def test_advantages_of_the_one_file_are_those_of_the_library():
    """Its environment is one of gymnax."""
    example, rng = _module("ppo_in_one_file"), np.random.default_rng(0)
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


@pytest.mark.learning
def test_ppo_in_one_file_learns(capsys):
    """CartPole of gymnax; random actions reach 22."""
    assert _module("ppo_in_one_file").main(total_steps=24 * 1024) > 150
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
