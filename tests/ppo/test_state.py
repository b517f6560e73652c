"""Which settings are traced, and which of these may be off."""

import jax
import pytest

from proximo.config import ENTRIES, LEAVES, PPOConfig
from proximo.config.schedule_text import ScheduleText
from proximo.config.schema import ObjectiveSettings
from proximo.networks import make_policy
from proximo.ppo import init_learner, make_hyperparameters
from proximo.ppo.hyperparameters import OPTIONAL, TRACED
from proximo.ppo.state import StaticSettings
from proximo.spaces import Box, Discrete

from helpers import small_config


def learner(**settings):
    config = small_config(**settings)
    policy = make_policy(jax.random.key(0), Box((3,)), Discrete(2), config.network, False)
    return init_learner(jax.random.key(1), policy, config, make_hyperparameters(config.ppo))


def test_each_ppo_setting_is_either_traced_or_static():
    state = learner(objective_settings={"dual_clip": 3, "kl_target": 0.02}, gamma=0.9)
    traced = {name for name in vars(state.hyperparameters) if getattr(state.hyperparameters, name) is not None}
    static = set(vars(state.static)) - {"off"}
    assert traced == set(TRACED)
    assert traced | static == {leaf.entry for leaf in (LEAVES | ENTRIES).values() if leaf.group == "ppo" and not leaf.entries} | {
        "diagnose_every"
    }
    assert not traced & static


def test_a_traced_number_leaves_the_static_settings_equal():
    assert (
        learner(gamma=0.9, objective_settings="dual_clip=3").static == learner(gamma=0.8, objective_settings="dual_clip=2").static
    )
    assert learner(objective_settings="dual_clip=3").static != learner().static


def test_make_hyperparameters_reads_the_settings_of_the_same_name():
    h = make_hyperparameters(
        PPOConfig(gamma=0.5, objective_settings=ObjectiveSettings(dual_clip=3.0), clip_eps=ScheduleText("linear(0.4, 0.1)"))
    )
    assert (float(h.gamma), float(h.dual_clip)) == (0.5, 3.0)
    assert (float(h.clip_eps.initial), float(h.clip_eps.final)) == (pytest.approx(0.4), pytest.approx(0.1))


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_an_optional_hyperparameter_is_off_at_zero_only(name):
    assert TRACED[name].default in (0.0, ScheduleText("0"))
    assert "0: " in TRACED[name].help
    assert getattr(learner().enabled_hyperparameters, name) is None
    on = learner(**{TRACED[name].name: "2"})
    assert getattr(on.enabled_hyperparameters, name) is getattr(on.hyperparameters, name)


def test_optional_hyperparameters_are_known():
    assert {"clip_value_eps", "critic_learning_rate", "critic_max_grad_norm", "desired_kl", "dual_clip", "target_kl"} == OPTIONAL


def test_static_settings_copy_the_settings_of_the_same_name():
    static = StaticSettings.of(small_config(num_epochs=7, clip_reward="sign", optimizer="adamw"))
    assert (static.num_epochs, static.clip_reward, static.optimizer) == (7, "sign", "adamw")
