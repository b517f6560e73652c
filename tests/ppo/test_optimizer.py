"""Custom optimizers, separate optimizers and norms of policy and value, and schedules."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from proximo import ppo
from proximo.collect.learning import check_policy
from proximo.config import PPOConfig
from proximo.config.coercion import ScheduleText
from proximo.errors import ConfigError
from proximo.ppo import init_learner, make_hyperparameters
from proximo.ppo.optimizer import critic_mask, gradient_transformation, split_policy, weight_mask
from proximo.settings import make_config

import toys
from helpers import collected, drawn_policy, parameters_of, small_config

ONE = {"num_epochs": 1, "num_minibatches": 1}


def plain_adam(learning_rate):
    return optax.adam(learning_rate, eps=1e-5)


def signs(learning_rate):
    """Steps of the length of the learning rate, against the sign of the gradient."""
    return optax.chain(optax.stateless(lambda g, _: jax.tree.map(jnp.sign, g)), optax.scale(-learning_rate))


MOMENTUM = optax.sgd(1e-3, momentum=0.9)


def learner(at=0.0, **settings):
    """A learner of these settings, ``at`` of whose training is over."""
    config = small_config(**settings)
    state = init_learner(jax.random.key(1), drawn_policy(toys.RandomEnds(), config), config, make_hyperparameters(config.ppo))
    return dataclasses.replace(state, steps=jnp.array([at * config.ppo.total_steps, 0], jnp.uint32))


def change(gradient=None, **settings):
    """How the first step changes the parameters, where the gradient is 1 or ``gradient``, and which of them only the value uses."""
    state = learner(**settings)
    trainable, _ = split_policy(state.policy)
    parameters, unflatten = ravel_pytree(trainable)
    is_critic = ravel_pytree(jax.tree.map(lambda x, c: jnp.full(x.shape, c), trainable, critic_mask(trainable)))[0]
    given = jnp.ones_like(parameters) if gradient is None else gradient(is_critic)
    updates, _ = jax.jit(lambda g, s, p: gradient_transformation(state).update(g, s, p))(given, state.optimizer, parameters)
    return np.asarray(updates), np.asarray(is_critic), (parameters, unflatten)


def after_update(**settings):
    state, metrics = jax.jit(ppo.update)(learner(**settings), collected("none")[1])
    return parameters_of(state), metrics


def test_custom_optimizers_and_schedules_equal_the_built_in_ones():
    schedule = "linear(1e-2, 0)"
    built_in, _ = after_update(learning_rate=schedule, clip_value_eps=0.2)
    functions = {"learning_rate": optax.linear_schedule(1e-2, 0.0, 1), "clip_value_eps": lambda progress: 0.2}
    for settings in ({"learning_rate": schedule, "clip_value_eps": 0.2, "optimizer": plain_adam}, functions):
        custom, metrics = after_update(**settings)
        np.testing.assert_allclose(custom, built_in, atol=1e-5)
        assert float(metrics["learning_rate"]) == pytest.approx(1e-2)
    # A transformation has its own learning rate.
    custom, metrics = after_update(optimizer=plain_adam(1e-2), clip_value_eps=0.2)
    np.testing.assert_allclose(custom, built_in, atol=1e-5)
    assert "learning_rate" not in metrics


@pytest.mark.parametrize(
    ("name", "code"), [("optax:sgd", optax.sgd), ("optax:nadam", optax.nadam), (f"{__name__}:MOMENTUM", MOMENTUM)]
)
def test_an_optimizer_may_be_named(name, code):
    assert learner(optimizer=name).static.ppo.optimizer is code


def test_adam_settings_are_used():
    """With β₁ = 0 and β₂ = 0 a step is the rate times g / (|g| + ε)."""
    updates, _, _ = change(learning_rate="1", optimizer_settings={"b1": 0.0, "b2": 0.0, "eps": 3.0}, max_grad_norm=1e9)
    np.testing.assert_allclose(updates, -0.25, rtol=1e-5)


def test_amsgrad_does_not_take_larger_steps_when_gradients_become_small():
    """After one gradient of 1, gradients of 1e-3. Adam's denominator forgets the first one."""

    def last_step(**settings):
        state = learner(learning_rate="1", max_grad_norm=1e9, optimizer_settings={"b1": 0.0, "b2": 0.5, **settings})
        transformation, parameters = gradient_transformation(state), ravel_pytree(split_policy(state.policy)[0])[0]
        updates, carried = None, state.optimizer
        for size in (1.0, *[1e-3] * 40):
            updates, carried = transformation.update(jnp.full_like(parameters, size), carried, parameters)
        return np.asarray(updates)

    np.testing.assert_allclose(last_step(), -1e-3 / (1e-3 + 1e-5), rtol=1e-2)
    np.testing.assert_allclose(last_step(amsgrad=True), -1e-3, rtol=1e-2)


def test_policy_and_value_may_have_different_optimizers():
    updates, is_critic, _ = change(learning_rate="1e-2", critic_learning_rate="1e-3", critic_optimizer=signs)
    np.testing.assert_allclose(updates[is_critic], -1e-3, rtol=1e-5)
    np.testing.assert_allclose(updates[~is_critic], -1e-2, rtol=1e-2)  # Adam's first step, but for ε
    assert 0 < is_critic.sum() < is_critic.size
    # Each follows its own schedule: Adam's first step on a gradient of ones is the learning rate.
    rates = {"critic_learning_rate": "linear(4e-3, 0)", "learning_rate": "linear(1e-2, 1e-3)", "max_grad_norm": 1e9}
    updates, is_critic, _ = change(at=0.5, **rates)
    np.testing.assert_allclose(updates, np.where(is_critic, -2e-3, -5.5e-3), rtol=1e-4)


@pytest.mark.parametrize(("optimizer", "critic"), [("adamw", "adam"), ("adam", "adamw"), ("adamw", "same")])
def test_weight_decay_acts_on_the_part_with_adamw(optimizer, critic):
    settings = {"optimizer": optimizer, "critic_optimizer": critic, "max_grad_norm": 1e9}
    decayed, is_critic, (parameters, unflatten) = change(**settings, optimizer_settings={"weight_decay": 0.5})
    plain, _, _ = change(**settings)
    trainable = unflatten(parameters)
    is_weight = ravel_pytree(jax.tree.map(lambda x, w: jnp.full(x.shape, w), trainable, weight_mask(trainable)))[0]
    part = {"same": np.ones_like(is_critic), "adam": ~is_critic, "adamw": is_critic}[critic]
    expected = np.where(part & np.asarray(is_weight), -3e-4 * 0.5 * np.asarray(parameters), 0.0)
    np.testing.assert_allclose(decayed - plain, expected, atol=1e-8)


@pytest.mark.parametrize("critic_norm", [2.0, 50.0])
def test_the_critic_may_have_a_gradient_norm_of_its_own(critic_norm):
    """SGD with the rate 1 shows the clipped gradient."""
    updates, is_critic, _ = change(
        lambda critic: jnp.where(critic, 4.0, 0.5) / jnp.sqrt(jnp.sum(critic) * 1.0),
        optimizer=optax.sgd, learning_rate="1", max_grad_norm=0.1, critic_max_grad_norm=critic_norm,
    )  # fmt: skip
    assert np.linalg.norm(updates[is_critic]) == pytest.approx(min(4.0, critic_norm), rel=1e-4)
    assert np.linalg.norm(updates[~is_critic]) == pytest.approx(0.1, rel=1e-4)


class OfRemaining:
    def __call__(self, progress_remaining):
        return 0.2 * progress_remaining


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda progress_remaining: 0.2 * progress_remaining, (0.2, 0.05)),
        (OfRemaining(), (0.2, 0.05)),
        (jax.jit(lambda remaining, power=2: remaining**power), (1.0, 0.0625)),
        (lambda progress: 0.2 * (1 - progress), (0.2, 0.05)),
        (optax.exponential_decay(1e-3, 1, 0.1), (1e-3, 1e-3 * 0.1**0.75)),
        (optax.constant_schedule(1e-3), (1e-3, 1e-3)),
    ],
)
def test_a_parameter_called_remaining_receives_the_remaining_share(function, values):
    schedule = make_hyperparameters(small_config(clip_eps=function).ppo).clip_eps
    assert [float(schedule(jnp.float32(share))) for share in (0.0, 0.75)] == pytest.approx(values)


@pytest.mark.parametrize(
    ("function", "share"),
    [(lambda progress: 0.2 * progress, "completed"), (lambda remaining: 0.2 * (1 - remaining), "remaining")],
)
def test_a_schedule_that_grows_from_zero_warns(function, share):
    with pytest.warns(UserWarning, match=rf"^clip_eps = .* is 0 at the start .* receives the {share} share"):
        make_hyperparameters(small_config(clip_eps=function).ppo)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": lambda rate: rate}, r"^optimizer: the function returns \w+, expected an optax transformation"),
        ({"optimizer": dict}, r"^optimizer = "),
        ({"optimizer": "optax:ScaleState"}, r"^optimizer = 'optax:ScaleState' is type: expected an optax transf"),
        ({"optimizer": f"{__name__}:ONE"}, r"^optimizer = .* is dict: expected an optax transformation"),
        ({"optimizer": lambda: optax.sgd(1.0)}, r"^The custom code of optimizer raised TypeError"),
        ({"optimizer": optax.polyak_sgd()}, r"^The custom code of optimizer raised TypeError: .*'value'"),
        ({"critic_optimizer": optax.polyak_sgd()}, r"^The custom code of critic_optimizer raised TypeError: .*'value'"),
        ({"learning_rate": lambda progress: jnp.ones(2)}, r"^The function of learning_rate raised Type"),
        ({"learning_rate": lambda: 1.0}, r"^The function of learning_rate raised TypeError"),
        ({"learning_rate": lambda x: 0.5 - x}, r"returns 0\.5, .*, -0\.5 .*: expected at least 0\."),
        ({"clip_eps": lambda x: x / (1.0 - x)}, r"returns 0, .*, inf from the start .*: expected a finite number\."),
        ({"learning_rate": optax.linear_schedule(1e-3, 0.0, 2_500)}, r"^learning_rate = .* counts steps.* give it one step"),
        ({"clip_eps": optax.piecewise_constant_schedule(0.2, {1_000: 0.5})}, r"^clip_eps = .* counts steps"),
        ({"optimizer": plain_adam(1e-3), "learning_rate": "1e-2"}, r"^learning_rate = 1e-2 has no effect .*its own"),
        ({"critic_optimizer": plain_adam(1e-3), "critic_learning_rate": 1}, r"^critic_learning_rate = 1 has no effect"),
        ({"optimizer": optax.sgd, "optimizer_settings": "eps=1e-8"}, r"^optimizer_settings = eps=1e-08 has no effect"),
        ({"optimizer_settings": {"b1": 1}}, r"^optimizer_settings.b1 = 1: expected at most 0.999999"),
    ],
)
def test_wrong_optimizers_and_schedules_are_answered(settings, message):
    with pytest.raises(ConfigError, match=message):
        check_policy(toys.RandomEnds(), make_config("CartPole-v1", settings, preset=False))


def schedule(text):
    return make_hyperparameters(PPOConfig(learning_rate=ScheduleText(text))).learning_rate


@pytest.mark.parametrize(
    ("text", "progress", "expected"),
    [
        ("3e-4", 1.0, 3e-4),
        ("linear(1e-3, 0)", -0.5, 1e-3),
        ("linear(1e-3, 0)", 0.25, 7.5e-4),
        ("linear(1e-3, 0)", 1.5, 0.0),
        ("linear(1e-3, 2e-3)", 0.5, 1.5e-3),
        ("linear(1, 0, 0.5)", 0.25, 0.5),
        ("linear(1, 0, 0.5)", 0.75, 0.0),
        ("polynomial(1, 0, 2)", 0.5, 0.25),
        ("polynomial(1e-3, 1e-5, 2, 0.5)", 0.25, 2.575e-4),
        ("polynomial(1, 0, 0.5)", 0.75, 0.5),
        ("exponential(1e-5, 1e-1)", 0.25, 1e-4),
        ("exponential(1e-2, 1e-4, 0.5)", 0.25, 1e-3),
        ("exponential(1e-2, 1e-4, 0.5)", 0.75, 1e-4),
    ],
)
def test_schedule_by_hand(text, progress, expected):
    assert float(schedule(text)(jnp.float32(progress))) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_schedules_of_every_form_can_be_vmapped_over_together():
    texts = ["2e-3", "linear(1e-3, 0)", "polynomial(1e-3, 0, 2)", "exponential(1e-4, 1e-2)"]
    together = jax.tree.map(lambda *x: jnp.stack(x), *map(schedule, texts))
    found = jax.vmap(lambda schedule: schedule(jnp.float32(0.5)))(together)
    assert found.tolist() == pytest.approx([2e-3, 5e-4, 2.5e-4, 1e-3], rel=1e-5)
