"""Which settings are traced, and which of these may be off."""

import dataclasses

import jax
import pytest

from proximo.config import LEAVES, PPOConfig
from proximo.config.schedule_text import ScheduleText
from proximo.networks import make_policy
from proximo.ppo import init_learner, make_hyperparameters
from proximo.ppo.state import OPTIONAL, StaticSettings
from proximo.spaces import Box, Discrete
from proximo.types import Hyperparameters

from helpers import small_config


def learner(**settings):
    config = small_config(**settings)
    policy = make_policy(jax.random.key(0), Box((3,)), Discrete(2), config.network, False)
    return init_learner(jax.random.key(1), policy, config, make_hyperparameters(config.ppo))


def test_hyperparameters_have_the_names_of_ppo_settings():
    names = {field.name for field in dataclasses.fields(Hyperparameters)}
    assert {LEAVES[name].group for name in names} == {"ppo"}
    assert names.isdisjoint({field.name for field in dataclasses.fields(StaticSettings)})


def test_make_hyperparameters_reads_the_settings_of_the_same_name():
    h = make_hyperparameters(PPOConfig(gamma=0.5, dual_clip=3.0, clip_eps=ScheduleText("linear(0.4, 0.1)")))
    assert (float(h.gamma), float(h.dual_clip)) == (0.5, 3.0)
    assert (float(h.clip_eps.initial), float(h.clip_eps.final)) == (pytest.approx(0.4), pytest.approx(0.1))


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_an_optional_hyperparameter_is_off_at_zero_only(name):
    assert LEAVES[name].default in (0.0, ScheduleText("0"))
    assert "0: " in LEAVES[name].help
    assert getattr(learner().enabled_hyperparameters, name) is None
    on = learner(**{name: "2"})
    assert getattr(on.enabled_hyperparameters, name) is getattr(on.hyperparameters, name)


def test_optional_hyperparameters_are_known():
    assert {"clip_value_eps", "critic_learning_rate", "desired_kl", "dual_clip", "target_kl"} == OPTIONAL


def test_static_settings_copy_the_settings_of_the_same_name():
    static = StaticSettings.of(small_config(num_epochs=7, clip_reward="sign", optimizer="adamw"))
    assert (static.num_epochs, static.clip_reward, static.optimizer) == (7, "sign", "adamw")
