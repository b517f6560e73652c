"""Which settings are traced, and which of these may be off."""

import jax
import pytest

from proximo.config import ENTRIES, LEAVES
from proximo.config.schedule_text import ScheduleText
from proximo.networks import make_policy
from proximo.ppo import init_learner, make_hyperparameters
from proximo.ppo.hyperparameters import OPTIONAL, TRACED
from proximo.spaces import Box, Discrete

from helpers import small_config


def learner(**settings):
    config = small_config(**settings)
    policy = make_policy(jax.random.key(0), Box((3,)), Discrete(2), config.network, False)
    return init_learner(jax.random.key(1), policy, config, make_hyperparameters(config.ppo))


def test_each_ppo_setting_is_either_traced_or_static():
    state = learner(objective_settings={"dual_clip": 3, "kl_target": 0.02}, gamma=0.9)
    traced = {name for name in vars(state.hyperparameters) if getattr(state.hyperparameters, name) is not None}
    assert traced == set(TRACED)
    leaves = [leaf for leaf in (LEAVES | ENTRIES).values() if leaf.group == "ppo" and not leaf.entries]
    assert {leaf.entry for leaf in leaves if leaf.value_in(state.static) is None} == traced
    # A traced number leaves the static settings equal.
    other = learner(objective_settings={"dual_clip": 2, "kl_target": 0.02}, gamma=0.8)
    assert other.static == state.static != learner().static


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_an_optional_hyperparameter_is_off_at_zero_only(name):
    assert TRACED[name].default in (0.0, ScheduleText("0"))
    assert "0: " in TRACED[name].help
    assert getattr(learner().enabled_hyperparameters, name) is None
    on = learner(**{TRACED[name].name: "2"})
    assert getattr(on.enabled_hyperparameters, name) is getattr(on.hyperparameters, name)
