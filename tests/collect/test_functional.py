"""A training as pure functions: its pieces, put together, are the training; how it is divided into calls, or together with others, changes nothing."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.collect import Functions, JaxTrainer, jax_vector, make_functions, make_train
from proximo.collect.learning import fresh_policy
from proximo.errors import ConfigError, EnvError
from proximo.ppo import make_hyperparameters
from proximo.spaces import Box, Discrete

import toys
from helpers import CAPACITY, bits, difference, small_collector, small_config, trainer


def scanned(functions, updates):
    """Any number of updates as one function of the state."""

    def step(state, _):
        state, rollout, episodes = functions.collect(state)
        state, metrics = functions.update(state, rollout)
        return state, {**metrics, **episodes}

    return jax.jit(lambda state: jax.lax.scan(step, state, length=updates))


def test_scanned_collect_and_update_equal_the_updates_of_the_trainer():
    functions = make_functions(small_config(memory="gru", sequence_length=4, normalize_reward=True), toys.RandomEnds())
    t = trainer("gru")
    ours, metrics = scanned(functions, 3)(t.init(0))
    expected, theirs = t.advance(t.init(0), 3)
    assert difference(ours.learner.policy, expected.learner.policy) < 1e-5
    assert difference(ours.collector.observation, expected.collector.observation) < 1e-5
    assert set(metrics) == set(theirs)
    assert difference(metrics["train/loss"], theirs["train/loss"][:3]) < 1e-4


@pytest.fixture(scope="module")
def functions():
    return Functions(*map(jax.jit, make_functions(small_config(), toys.RandomEnds())))


def test_collect_and_update_change_only_their_part_of_the_state(functions):
    state = functions.init(jax.random.key(0))
    collected, rollout, episodes = functions.collect(state)
    assert bits(collected.learner.policy) == bits(state.learner.policy)
    assert {name.partition("/")[0] for name in episodes} == {"rollout"}
    learned, metrics = functions.update(collected, rollout)
    assert bits(learned.collector.observation) == bits(collected.collector.observation)
    assert bits(learned.learner.policy) != bits(collected.learner.policy)
    assert "train/approx_kl" in metrics
    # The update learns from replaced rewards; NaN stops it and is reported.
    more, _ = functions.update(collected, dataclasses.replace(rollout, reward=rollout.reward + 1.0))
    assert difference(learned.learner.policy, more.learner.policy) > 1e-6
    after, metrics = functions.update(collected, dataclasses.replace(rollout, reward=rollout.reward * jnp.nan))
    assert not after.healthy
    assert metrics["bad/reward"] == 1
    assert bits(after.learner.policy) == bits(state.learner.policy)


def test_what_is_no_environment_raises():
    for given, message in (
        ("gymnax:CartPole-v1", r"^env = 'gymnax:CartPole-v1': expected an environment: .* pass a name to proximo.make_env"),
        (toys.RandomEnds, r"^env = <class 'toys.RandomEnds'>: expected an environment: call a class"),
        (object(), r"^<x> is neither a JAX nor a Gymnasium environment: it lacks observation_space"),
    ):
        with pytest.raises(EnvError, match=message):
            inspect.unwrap(jax_vector.check_env)(given, "<x>")


@pytest.mark.parametrize(
    "made", [make_functions, make_train, lambda config, env: proximo.PPO(env, preset=False, log_std_init=-1.0)]
)
def test_settings_unused_by_the_policy_raise_before_anything_runs(made):
    with pytest.raises(EnvError, match=r"^log_std_init = -1 is for continuous actions \(Box\), not Discrete\(2\): set it to 0\."):
        made(small_config(log_std_init=-1.0), toys.AnySpaces(Box((3,)), Discrete(2)))


@pytest.mark.parametrize(("axis", "kind"), [("data", "Auto"), ("envs", "Explicit")])
def test_a_mesh_that_cannot_divide_environments_raises(axis, kind):
    mesh = jax.make_mesh((1,), (axis,), axis_types=(getattr(jax.sharding.AxisType, kind),))
    for make in (make_functions, make_train):
        with pytest.raises(ConfigError, match=r"expected an axis 'envs' and automatic axes, as jax.make_mesh"):
            make(small_config(), toys.RandomEnds(), mesh=mesh)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_updates_in_one_call_equal_as_many_calls(memory):
    t = trainer(memory)
    together, metrics = t.advance(t.init(0), 3)
    state, rows = t.init(0), []
    for _ in range(3):
        # Through the host and back, as a checkpoint goes.
        state = jax.tree.map(lambda x: x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(np.asarray(x)), state)
        assert bits(together) != bits(state)
        state, row = t.advance(state, 1)
        rows.append(row)
    assert bits(together) == bits(state)
    for name, column in metrics.items():
        assert column[:3].tobytes() == np.stack([row[name][0] for row in rows]).tobytes()


def test_environments_differ_and_metrics_after_the_last_update_stay_zero():
    t = trainer("none")
    state = t.init(0)
    observation = np.asarray(state.collector.observation)
    assert len(np.unique(observation, axis=0)) == len(observation)
    after, metrics = t.advance(state, 3)
    assert after.learner.steps.tolist() == [96, 0]
    assert metrics["train/loss"].shape == (CAPACITY,)
    assert metrics["train/loss"][3] == 0.0
    assert jnp.all(metrics["train/loss"][:3] != 0.0)


@pytest.mark.parametrize("method", ["advance", "inspect"])
def test_matmul_precision_reaches_every_matrix_product(method):
    def products(precision):
        collector = small_collector(matmul_precision=precision)
        trainer = JaxTrainer(collector)
        called = {"advance": lambda s: trainer.advance(s, jnp.int32(1), 1), "inspect": lambda s: trainer.inspect(s, s)}[method]
        lowered = jax.jit(called).lower(collector.init(jax.random.key(0)))
        return [line for line in lowered.as_text().splitlines() if "dot_general" in line]

    highest = products("highest")
    assert highest
    assert all("HIGHEST" in line for line in highest)
    assert not any("HIGHEST" in line for line in products("default"))


def test_a_whole_training_can_be_vmapped_over_learning_rates():
    config = small_config(total_steps=96)
    train = make_train(config, toys.RandomEnds())
    each = [make_hyperparameters(small_config(learning_rate=r, total_steps=96).ppo) for r in ("0", "1e-3", "1e-2")]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    key = jax.random.key(0)
    states, metrics = jax.jit(jax.vmap(train, in_axes=(None, 0)))(key, stacked)
    assert metrics["train/learning_rate"][:, 0].tolist() == pytest.approx([0.0, 1e-3, 1e-2])
    assert metrics["train/loss"].shape == (3, 3)
    start = fresh_policy(jax.random.split(key, 3)[0], toys.RandomEnds(), config)
    moved = [float(difference(jax.tree.map(lambda x, n=n: x[n], states.learner.policy.actor), start.actor)) for n in range(3)]
    assert moved[0] == 0.0
    assert 0.0 < moved[1] < moved[2]
