"""Arguments of the public functions that take settings: a mistake is one sentence."""

import pytest

import proximo
from proximo.errors import ConfigError

from helpers import small_config


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: proximo.make_config("gymnax:CartPole-v1", total_step=5),
            r"^Unknown setting 'total_step' \(did you mean 'total_steps'\?\)",
        ),
        (
            lambda: proximo.PPO("gymnax:CartPole-v1", n_steps=8),
            r"^Unknown setting 'n_steps': n_steps is called num_steps here\.$",
        ),
        (
            lambda: proximo.train(config="settings.yaml"),
            r"^config = 'settings\.yaml': expected a Config, which proximo\.make_config makes, also from a file\.$",
        ),
        (
            lambda: proximo.tune("CartPole-v1", space={"gamma": [0.9, 0.99]}),
            r"^space = \{.*\}: expected the path of a YAML file\.$",
        ),
        (lambda: proximo.train(config=small_config(), preset=False), r"^preset = False, but config has all settings already"),
    ],
)
def test_mistaken_setting_raises_config_error(call, says):
    with pytest.raises(ConfigError, match=says):
        call()
