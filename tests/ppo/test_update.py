"""One update on a small rollout: every setting reaches the parameters, as the formulas say; and which settings are traced."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from proximo import ppo
from proximo.config import BY_NAME
from proximo.config.coercion import ScheduleText
from proximo.errors import ConfigError
from proximo.math.masked_statistics import count
from proximo.networks import make_policy
from proximo.ppo import algorithm, init_learner, make_hyperparameters
from proximo.ppo.hyperparameters import TRACED
from proximo.ppo.metrics import RESERVED
from proximo.ppo.optimizer import split_policy, weight_mask
from proximo.ppo.rollout_processing import prepare_batch, scale_rewards
from proximo.spaces import Box, Discrete
from proximo.types import Rollout, steps_to_float

from helpers import bits, collected, difference, drawn, parameters_of, small_config

T, N = 8, 4
update = jax.jit(ppo.update)
ONE = {"num_epochs": 1, "num_minibatches": 1}


def learner(at=0.0, **settings):
    """A learner in the middle of its training (``at`` of it is over), without memory."""
    config = small_config(normalize_observation=False, num_steps=T, num_envs=N, total_steps=3200, **settings)
    policy = drawn(lambda key: make_policy(key, Box((3,)), Discrete(2), config.network, False))
    state = init_learner(jax.random.key(1), policy, config, make_hyperparameters(config.ppo))
    return dataclasses.replace(state, steps=jnp.array([at * 3200, 0], jnp.uint32))


@functools.cache
def rollout():
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    ends = jnp.asarray(rng.random((T, N)) < 0.2)
    return Rollout(
        observation=numbers(T, N, 3), episode_start=jnp.roll(ends, 1, 0), action=jnp.asarray(rng.integers(0, 2, (T, N)), jnp.int32),
        log_prob=jnp.log(jnp.asarray(rng.uniform(0.2, 0.8, (T, N)), jnp.float32)), value=numbers(T, N), reward=numbers(T, N),
        terminated=ends, truncated=jnp.zeros((T, N), bool), bootstrap_value=jnp.zeros((T, N)), valid=jnp.ones((T, N), bool),
        memory=((),), last_observation=numbers(N, 3), last_episode_start=ends[-1], last_memory=((),), last_value=numbers(N),
    )  # fmt: skip


def learned(at=0.0, on=None, **settings):
    """The parameters after one update, and its metrics."""
    state, metrics = update(learner(at, **settings), on or rollout())
    return parameters_of(state), metrics


def equal(a, b):
    return bool(np.allclose(a, b, rtol=1e-5, atol=1e-7))


@pytest.mark.parametrize(("name", "start"), [("learning_rate", 1e-2), ("clip_eps", 0.4), ("ent_coef", 0.2)])
def test_schedule_at_half_progress_equals_its_constant(name, start):
    scheduled, half, whole = (
        learned(at=0.5, **{"learning_rate": 1e-2, name: value})[0] for value in (f"linear({start}, 0)", start / 2, start)
    )
    assert equal(scheduled, half)
    assert not equal(scheduled, whole)


def test_update_learns_from_scaled_rewards():
    state = learner(normalize_reward=True)
    _, scaled = scale_rewards(state, rollout())
    assert not equal(scaled.reward, rollout().reward)
    assert equal(learned(normalize_reward=True)[0], learned(on=scaled)[0])
    assert not equal(learned(normalize_reward=True)[0], learned()[0])


@pytest.mark.parametrize("over", ["none", "batch", "minibatch"])
def test_normalized_advantages_do_not_depend_on_reward_scale(over):
    nothing = jnp.zeros((T, N))
    plain = dataclasses.replace(rollout(), value=nothing, last_value=jnp.zeros(N))
    larger = dataclasses.replace(plain, reward=10 * plain.reward)
    settings = {"normalize_advantage": over, "vf_coef": 0.0, "max_grad_norm": 1e9, **ONE}
    _, a = learned(on=plain, **settings)
    _, b = learned(on=larger, **settings)
    ratio = float(b["grad_norm"] / a["grad_norm"])
    assert ratio == pytest.approx(10.0 if over == "none" else 1.0, rel=1e-4)


def test_batch_and_minibatch_normalization_differ():
    assert equal(learned(normalize_advantage="batch", **ONE)[0], learned(normalize_advantage="minibatch", **ONE)[0])
    assert not equal(learned(normalize_advantage="batch")[0], learned(normalize_advantage="minibatch")[0])


def test_every_epoch_and_every_update_shuffles_anew(monkeypatch):
    seen = []
    real = algorithm.minibatch_indices

    def spy(key, *arguments):
        index = real(key, *arguments)
        jax.debug.callback(lambda order: seen.append(order.reshape(-1).tolist()), index)
        return index

    monkeypatch.setattr(algorithm, "minibatch_indices", spy)
    first, update = learner(), jax.jit(lambda *given: ppo.update(*given))  # traced with the spy
    state, _ = update(first, rollout())
    assert float(steps_to_float(state.steps)) == T * N
    assert bits(state.key) != bits(first.key)
    update(state, rollout())
    jax.effects_barrier()
    assert len(seen) == 4
    assert all(sorted(order) == list(range(T * N)) for order in seen)
    assert len({tuple(order) for order in seen}) == 4


def test_names_of_the_update_are_reserved():
    """A custom loss could otherwise replace such a metric without a word."""
    state = learner(critic_learning_rate="1e-3", objective="kl_penalty", desired_kl=0.01)
    batch = prepare_batch(state, rollout())
    _, of_loss = jax.eval_shape(lambda: algorithm.loss(state.policy, state, batch, count(batch.valid), state.key))
    _, of_update = jax.eval_shape(update, state, rollout())
    assert of_update.keys() - of_loss.keys() <= RESERVED


def test_grad_norm_is_that_of_the_gradient_before_clipping():
    state = learner(normalize_advantage="none", max_grad_norm=1e-3, **ONE)
    batch = prepare_batch(state, rollout())
    gradient = jax.jit(jax.grad(lambda policy: algorithm.loss(policy, state, batch, count(batch.valid), state.key)[0]))(
        state.policy
    )
    expected = float(jnp.linalg.norm(ravel_pytree(split_policy(gradient)[0])[0]))
    _, metrics = update(state, rollout())
    assert float(metrics["grad_norm"]) == pytest.approx(expected, rel=1e-4)
    assert expected > 1e-2


@pytest.mark.parametrize("settings", [{"memory": "lru"}, {"memory": "gtrxl"}, {"sde_every": 4}], ids=["lru", "gtrxl", "sde"])
def test_only_weight_matrices_are_decayed(settings):
    config = small_config(optimizer="adamw", optimizer_settings={"weight_decay": 0.1}, **settings)
    policy = drawn(lambda key: make_policy(key, Box((3,)), Box((2,)), config.network, True))
    trainable, _ = split_policy(policy)
    marks = weight_mask(trainable)
    for path, mark in jax.tree_util.tree_leaves_with_path(marks):
        name = jax.tree_util.keystr(path)
        assert mark == name.endswith(".weight"), name
    named = {jax.tree_util.keystr(path[-1:]) for path, _ in jax.tree_util.tree_leaves_with_path(marks)}
    assert {".weight", ".bias", ".log_std"} <= named


def test_adamw_without_a_weight_matrix_raises():
    config = small_config(optimizer="adamw", optimizer_settings={"weight_decay": 0.1})
    policy = learner().policy
    without = jax.tree.map(lambda x: x.ravel() if eqx.is_array(x) else x, policy)
    with pytest.raises(ConfigError, match=r"weight_decay = 0.1 decays arrays .* this policy has none: rename"):
        init_learner(jax.random.key(0), without, config, make_hyperparameters(config.ppo))


def test_refreshed_memory_changes_the_second_epoch():
    given, rollout = collected("gru")

    def learned(refresh):
        sizes = {"memory": "gru", "sequence_length": 4, "num_minibatches": 1, "learning_rate": 0.05}
        config = small_config(**sizes, refresh_memory=refresh)
        state = init_learner(jax.random.key(1), given.policy, config, make_hyperparameters(config.ppo))
        return parameters_of(update(state, rollout)[0])

    assert np.abs(learned(True) - learned(False)).max() > 1e-4


def test_tiny_target_kl_stops_parameters_and_moments_after_one_step_huge_never():
    """One update under each of two values of ``target_kl``, vmapped, which the settings leave off, and one of a single gradient step."""
    given, rollout = collected("none")

    def start(epochs):
        config = small_config(num_minibatches=1, num_epochs=epochs, learning_rate=1e-2)
        return init_learner(jax.random.key(1), given.policy, config, make_hyperparameters(config.ppo))

    def under(target_kl):
        h = dataclasses.replace(start(4).hyperparameters, target_kl=target_kl)
        return ppo.update(dataclasses.replace(start(4), hyperparameters=h), rollout)

    learner, metrics = jax.jit(jax.vmap(under))(jnp.array([1e-6, 1e6]))
    once, of_one_step = update(start(1), rollout)
    assert metrics["gradient_steps"].tolist() == [1.0, 4.0]
    (steps,) = [leaf for leaf in jax.tree.leaves(learner.optimizer) if jnp.issubdtype(leaf.dtype, jnp.integer)]
    assert steps.tolist() == [1, 4]
    first, ran_on = (jax.tree.map(lambda x, n=n: x[n], learner) for n in (0, 1))
    assert difference((first.policy, first.optimizer), (once.policy, once.optimizer)) < 1e-6
    assert difference(ran_on.policy.actor, once.policy.actor) > 1e-3
    # The normalizer and the steps advance.
    assert jnp.array_equal(learner.policy.normalizer.mean[0], learner.policy.normalizer.mean[1])
    assert learner.steps[:, 0].tolist() == [32, 32]
    # Metrics average the taken steps and the stopping one: its KL is what stopped.
    assert metrics["approx_kl"][0] > 1e-6
    assert np.isfinite(metrics["approx_kl"]).all()
    assert float(of_one_step["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert metrics["ratio_max"][1] > metrics["ratio_max"][0] > 1.0


def test_each_ppo_setting_is_either_traced_or_static():
    state = learner(objective_settings={"dual_clip": 3, "kl_target": 0.02}, gamma=0.9)
    traced = {name for name in vars(state.hyperparameters) if getattr(state.hyperparameters, name) is not None}
    leaves = [leaf for leaf in BY_NAME.values() if leaf.group == "ppo" and not leaf.entries]
    assert {leaf.entry for leaf in leaves if leaf.value_in(state.static) is None} == traced
    assert traced >= {leaf.entry for leaf in leaves if leaf.traced and not leaf.zero_is_off}
    # A traced number leaves the static settings equal.
    other = learner(objective_settings={"dual_clip": 2, "kl_target": 0.02}, gamma=0.8)
    assert other.static == state.static != learner().static


@pytest.mark.parametrize("name", [name for name, leaf in TRACED.items() if leaf.zero_is_off])
def test_an_optional_hyperparameter_is_off_at_zero_only(name):
    assert TRACED[name].default in (0.0, ScheduleText("0"))
    assert "0: " in TRACED[name].help
    assert getattr(learner().hyperparameters, name) is None
    assert getattr(learner(**{TRACED[name].name: "2"}).hyperparameters, name) is not None
