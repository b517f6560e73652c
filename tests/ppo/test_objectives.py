"""What an update makes small, and the numbers that follow the divergence: by hand, against exact divergences, and in the parameters."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo import ppo
from proximo.collect import JaxTrainer
from proximo.collect.learning import check_policy
from proximo.distributions import Categorical, Gaussian, TanhGaussian
from proximo.errors import ConfigError
from proximo.ppo import init_learner, make_hyperparameters
from proximo.ppo.loss import clip, kl_penalty, spo
from proximo.ppo.metrics import largest_divergence
from proximo.ppo.minibatches import Minibatch, unroll
from proximo.ppo.optimizer import critic_mask, split_policy
from proximo.ppo.state import COEF_RANGE, RATE_RANGE, adapt

import toys
from helpers import bits, difference, parameters_of, small_collector, small_config

PENALTY = {"objective": "kl_penalty"}


def minibatch(log_ratio, advantage, dual_clip=None, kl_coef=None, clip_eps=0.2):
    """Rows with these ratios and advantages, as the objectives read them."""
    log_ratio, advantage = (jnp.asarray(x, jnp.float32).reshape(1, -1) for x in (log_ratio, advantage))
    none = jnp.zeros_like(advantage)
    return Minibatch(
        observation=none, episode_start=none > 1, action=none, log_prob=none, value=none, advantage=advantage, target=none, valid=none < 1,
        memory=(), burn_in_steps=None, distribution=Categorical(jnp.zeros((*none.shape, 2))), log_ratio=log_ratio, new_value=none,
        num_valid=jnp.float32(none.size), settings=small_config().ppo,
        index=jnp.int32(0), ent_coef=jnp.float32(0), clip_eps=jnp.float32(clip_eps), clip_value_eps=None, kl_coef=None if kl_coef is None else jnp.asarray(kl_coef, jnp.float32),
        hyperparameters=dataclasses.replace(
            make_hyperparameters(small_config().ppo), dual_clip=None if dual_clip is None else jnp.float32(dual_clip)
        ),
    )  # fmt: skip


def loss(objective, log_ratio, advantage, **settings):
    return objective(rollout_of()[1].learner.policy, minibatch(log_ratio, advantage, **settings))[0]


def test_the_penalised_loss_by_hand():
    # r = 2, A = 1: -2 + 3 (1 - log 2); r = ½, A = -1: ½ + 3 (-½ + log 2).
    got = loss(kl_penalty, np.log([2.0, 0.5]), [1.0, -1.0], kl_coef=3.0)
    assert float(got) == pytest.approx((-2 + 3 * (1 - np.log(2)) + 0.5 + 3 * (-0.5 + np.log(2))) / 2, rel=1e-6)


def test_the_quadratic_surrogate_by_hand_and_where_it_is_largest():
    # r = 2, A = 1: 1 / .4 - 2; r = ½, A = -1: ¼ / .4 + ½.
    assert float(loss(spo, np.log([2.0, 0.5]), [1.0, -1.0])) == pytest.approx((2.5 - 2 + 0.625 + 0.5) / 2, rel=1e-6)
    slope = jax.grad(lambda x: loss(spo, x, [3.0, -3.0]))
    np.testing.assert_allclose(slope(jnp.log(jnp.array([1.2, 0.8]))), 0.0, atol=1e-6)
    assert (np.sign(slope(jnp.log(jnp.array([1.3, 0.7])))) == [1, -1]).all()  # a step brings both back
    assert (np.sign(slope(jnp.log(jnp.array([1.1, 0.9])))) == [-1, 1]).all()
    assert np.isfinite(slope(jnp.array([80.0, -80.0]))).all()


def exact_kl(old, new):
    return jnp.sum(jnp.exp(jax.nn.log_softmax(old)) * (jax.nn.log_softmax(old) - jax.nn.log_softmax(new)))


def test_expected_penalty_and_gradient_match_exact_categorical_kl():
    # Probabilities ½, ¼, ¼: four rows, as often as each is drawn.
    old, actions = jnp.log(jnp.array([0.5, 0.25, 0.25])), jnp.array([0, 0, 1, 2])
    new = jnp.array([0.1, 0.9, -0.4])

    def penalty(logits):
        log_ratio = Categorical(logits).log_prob(actions) - Categorical(old).log_prob(actions)
        return loss(kl_penalty, log_ratio, jnp.zeros(4), kl_coef=0.7)

    value, gradient = jax.value_and_grad(penalty)(new)
    expected, slope = jax.value_and_grad(lambda logits: 0.7 * exact_kl(old, logits))(new)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5)
    # That way round, and not the other.
    assert float(expected) != pytest.approx(0.7 * float(exact_kl(new, old)), rel=0.05)


def test_dual_clip_zeroes_only_the_gradients_that_it_bounds():
    rng = np.random.default_rng(0)
    log_ratio, advantage = jnp.asarray(rng.normal(size=400), jnp.float32), jnp.asarray(rng.normal(size=400), jnp.float32)
    plain = jax.grad(lambda x: loss(clip, x, advantage))(log_ratio)
    dual = jax.grad(lambda x: loss(clip, x, advantage, dual_clip=1.5))(log_ratio)
    bounded = np.asarray((advantage < 0) & (jnp.exp(log_ratio) > 1.5))
    assert 20 < bounded.sum() < 200
    assert not np.asarray(dual)[bounded].any()
    assert np.asarray(plain)[bounded].all()
    np.testing.assert_array_equal(np.asarray(dual)[~bounded], np.asarray(plain)[~bounded])
    # By hand: only a negative advantage at a ratio beyond 3 is bounded, at -3 A.
    for ratio, advantage, *expected in ((5, -1, 5, 3), (5, 1, -1.2, -1.2), (2, -1, 2, 2), (0.1, -1, 0.8, 0.8), (3, -2, 6, 6)):
        both = [float(loss(clip, np.log([ratio]), [advantage], dual_clip=bound)) for bound in (None, 3.0)]
        np.testing.assert_allclose(both, expected, rtol=1e-5)


@functools.cache
def rollout_of(**settings):
    """A collector, its first state, and the rollout that the first policy collects."""
    collector = small_collector(**{"learning_rate": 1e-2, "towers": "separate", **settings})
    state = jax.jit(collector.init)(jax.random.key(0))
    _, rollout, _ = jax.jit(collector.collect)(state.learner.policy, state.collector)
    return collector, state, rollout


def learner(**settings):
    """A learner of these settings, and the rollout of one policy for all of them."""
    config = small_config(**{"learning_rate": 1e-2, "normalize_observation": True, "towers": "separate", **settings})
    _, state, rollout = rollout_of()
    return init_learner(jax.random.key(1), state.learner.policy, config, make_hyperparameters(config.ppo)), rollout


def adapted(state, *updates, active=((1, 1), (1, 1))):
    """The learner after updates of two epochs of two minibatches with these divergences, or with this one in the second epoch."""
    for kl in updates:
        metrics = {
            "approx_kl": jnp.asarray(kl if np.ndim(kl) else [[0, 0], [kl, kl]], jnp.float32),
            "active": jnp.asarray(active, jnp.float32),
        }
        state = dataclasses.replace(state, adaptive=adapt(state, largest_divergence(metrics)))
    return state


def test_beta_halves_or_doubles_beyond_a_factor_of_1_5():
    for target in (0.03, 0):  # without a target it is constant
        state, _ = learner(**PENALTY, objective_settings={"kl_target": target, "kl_coef": 0.8})
        for divergence, factor in ((0.019, 0.5), (0.021, 1.0), (0.03, 1.0), (0.044, 1.0), (0.046, 2.0), (5.0, 2.0)):
            beta = float(adapted(state, divergence).adaptive.kl_coef)
            assert beta == pytest.approx(0.8 * factor if target else 0.8)
    state, _ = learner(**PENALTY)
    for divergence, end in ((0.0, COEF_RANGE[0]), (9.0, COEF_RANGE[1])):  # it never vanishes, and comes back
        state = adapted(state, *[divergence] * 50)
        assert float(state.adaptive.kl_coef) == pytest.approx(end)


def test_divergence_is_an_epoch_mean_of_taken_steps():
    state, _ = learner(**PENALTY, objective_settings={"kl_target": 0.03, "kl_coef": 0.8})
    for kl, active, expected in (
        ([[0.0, 0.0], [0.0, 0.08]], [[1, 1], [1, 1]], 0.8),  # 0.04 in the mean
        ([[0.0, 0.03], [9.0, 9.0]], [[1, 0], [0, 0]], 0.4),  # the second step has ended it
        ([[0.0, 0.2], [0.0, 0.0]], [[1, 0], [0, 0]], 1.6),
    ):
        assert float(adapted(state, kl, active=active).adaptive.kl_coef) == pytest.approx(expected)


@functools.cache
def update(**settings):
    state, rollout = learner(**settings)
    return state, *jax.jit(ppo.update)(state, rollout)


def test_update_uses_and_reports_the_previous_beta():
    state, after, metrics = update(**PENALTY, objective_settings="kl_coef=0.8,kl_target=1e-6")
    assert float(metrics["kl_coef"]) == pytest.approx(0.8)
    assert float(metrics["approx_kl"]) > 1e-6
    assert float(after.adaptive.kl_coef) == pytest.approx(1.6)
    again = dataclasses.replace(state, adaptive=after.adaptive)
    _, second = jax.jit(ppo.update)(again, learner()[1])
    assert float(second["kl_coef"]) == pytest.approx(1.6)
    assert float(second["policy_loss"]) > float(metrics["policy_loss"])
    assert "kl_coef" not in update()[2]


@pytest.mark.parametrize("rate", ["1e-3", "linear(1e-3, 0)"])
def test_rate_changes_beyond_a_factor_of_two_from_desired_kl_within_its_range(rate):
    state, _ = learner(desired_kl=0.01, learning_rate=rate)
    assert float(state.learning_rate) == pytest.approx(1e-3)
    for divergence, factor in ((0.004, 1.5), (0.006, 1.0), (0.019, 1.0), (0.021, 1 / 1.5)):
        assert float(adapted(state, divergence).learning_rate) == pytest.approx(1e-3 * factor)
    for divergence, bound in ((0.0, RATE_RANGE[1]), (9.0, RATE_RANGE[0])):
        there = adapted(state, *[divergence] * 30)
        assert float(there.learning_rate) == pytest.approx(bound)
        assert float(adapted(there, 9.0 - divergence).learning_rate) == pytest.approx(bound * 1.5 ** np.sign(divergence - 1))


def test_a_schedule_below_the_range_is_adapted_from_its_lower_end():
    state, _ = learner(desired_kl=0.01, learning_rate=1e-6)
    for times in range(3):
        assert float(adapted(state, *[0.0] * times).learning_rate) == pytest.approx(RATE_RANGE[0] * 1.5**times)


def test_adapted_rate_is_applied_and_reported():
    state, rollout = learner(desired_kl=0.01, learning_rate=1e-3, num_epochs=1, num_minibatches=1)
    state = dataclasses.replace(state, adaptive=dataclasses.replace(state.adaptive, rate_factor=jnp.float32(3.0)))
    after, metrics = jax.jit(ppo.update)(state, rollout)
    assert float(metrics["learning_rate"]) == pytest.approx(3e-3)
    # The first direction of Adam is the gradient's sign, but for ε.
    assert np.abs(parameters_of(after) - parameters_of(state)).max() == pytest.approx(3e-3, rel=1e-2)


@pytest.mark.parametrize(("towers", "memory"), [("separate", "gru"), ("shared", "none")])
def test_zero_rate_freezes_exactly_its_parameters(towers, memory):
    _, state, rollout = rollout_of(towers=towers, memory=memory, critic_learning_rate="1e-2")
    program = jax.jit(ppo.update)
    none = make_hyperparameters(small_config(learning_rate="0").ppo).learning_rate
    policy, torsos = state.learner.policy, {"separate": 2, "shared": 1}[towers]
    critics = {id(leaf) for part in (policy.critic, policy.torsos[1:]) for leaf in jax.tree.leaves(part)}
    for still in ("learning_rate", "critic_learning_rate"):
        h = dataclasses.replace(state.learner.hyperparameters, **{still: none})
        after, metrics = program(dataclasses.replace(state.learner, hyperparameters=h), rollout)
        assert float(metrics[still]) == 0.0
        pairs = list(zip(jax.tree.leaves(split_policy(policy)[0]), jax.tree.leaves(split_policy(after.policy)[0]), strict=True))
        changed = [bits(a) != bits(b) for a, b in pairs]
        of_value = [id(a) in critics for a, _ in pairs]
        assert changed == [mine == (still == "learning_rate") for mine in of_value]
        assert 0 < sum(of_value) < len(of_value)
    assert len(policy.torsos) == torsos
    assert jax.tree.leaves(critic_mask(split_policy(policy)[0])) == of_value


def test_vmapped_seeds_and_split_calls_give_equal_states():
    settings = {**PENALTY, "desired_kl": 0.01, "critic_learning_rate": "3e-3", "learning_rate": "1e-3"}
    alone = small_collector(**settings)
    program = jax.jit(lambda state, n: JaxTrainer(alone).advance(state, n, 3))
    keys = jax.random.split(jax.random.key(3), 2)
    start = jax.jit(alone.init)(keys[1])
    whole, metrics = program(start, jnp.int32(3))
    part, _ = program(start, jnp.int32(2))
    assert bits(program(part, jnp.int32(1))[0]) == bits(whole)
    assert np.all(np.isfinite(metrics["train/loss"]))

    collector = small_collector(seeds_axis=True, **settings)
    together = jax.jit(jax.vmap(lambda state: JaxTrainer(collector).advance(state, jnp.int32(3), 3), axis_name="seeds"))
    this = jax.tree.map(lambda x: x[1], together(jax.jit(collector.init_seeds)(keys))[0])
    assert difference(this.learner.policy, whole.learner.policy) < 1e-3
    assert difference(this.learner.adaptive, whole.learner.adaptive) < 1e-5
    assert float(whole.learner.adaptive.kl_coef) == pytest.approx(1 / 8)
    assert float(whole.learner.adaptive.rate_factor) > 1.0


@pytest.mark.parametrize(("mapping", "family"), [("clip", Gaussian), ("tanh", TanhGaussian)])
def test_rpo_moves_the_means_differently_in_each_minibatch(mapping, family):
    seen = []

    def read(policy, minibatch):
        moved = minibatch.distribution.mean - unroll(policy, minibatch).distribution.mean
        assert type(minibatch.distribution) is family
        jax.debug.callback(lambda x: seen.append(x[0]), moved)
        return jnp.zeros(()), {}

    settings = {
        "num_epochs": 2,
        "num_minibatches": 2,
        "num_steps": 64,
        "num_envs": 8,
        "memory": "none",
        "action_mapping": mapping,
    }
    collector = small_collector(toys.ContinuousRandomEnds(), objective=read, rpo_alpha=0.5, **settings)
    _, metrics = jax.jit(JaxTrainer(collector).update)(jax.jit(collector.init)(jax.random.key(0)))
    jax.effects_barrier()
    moved = np.stack(seen)
    assert moved.shape == (4, 256, 2)
    assert 0.49 < np.abs(moved).max() <= 0.5 + 1e-6
    np.testing.assert_allclose(moved.std(1), 0.5 / np.sqrt(3), rtol=0.1)  # of each component
    assert len(np.unique(moved.round(6))) > 0.9 * moved.size
    assert float(metrics["train/ratio_max"]) > 1.1  # from the first gradient step on
    with pytest.raises(ConfigError, match="the distribution Categorical: set rpo_alpha to 0"):
        check_policy(toys.RandomEnds(), small_config(rpo_alpha=0.5))
