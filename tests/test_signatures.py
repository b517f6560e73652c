"""A call with wrong arguments raises an error that names the right ones; errors inside a function are unchanged."""

from __future__ import annotations

import pytest

import proximo
from proximo.errors import ConfigError
from proximo.signatures import answered

from helpers import small_config


@answered
def added(one, two=2, **more):
    return one + two


def test_fitting_call_is_unchanged():
    assert (added(1), added(1, two=3), added.__name__) == (3, 4, "added")
    with pytest.raises(TypeError, match="unsupported operand"):
        added(1, "2")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: added(), r"^added: missing a required argument: 'one'; it takes one, two, more\.$"),
        (lambda: added(1, 2, 3), r"^added: too many positional arguments; it takes one, two, more\.$"),
        (
            lambda: proximo.PPO("MlpPolicy", "CartPole-v1"),
            r"^PPO: too many positional arguments; .* The environment is the first argument, without 'MlpPolicy': proximo has no policy classes",
        ),
        (lambda: proximo.train("gymnax:CartPole-v1", "x"), r"^train: too many positional arguments"),
        (lambda: proximo.load(), r"^load: missing a required argument: 'run'"),
        (lambda: proximo.resume("x", "y"), r"^resume: too many positional arguments"),
        (
            lambda: proximo.make_config("gymnax:CartPole-v1", total_step=5),
            r"^Unknown setting 'total_step' \(did you mean 'total_steps'\?\)",
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
def test_call_that_does_not_fit_raises_config_error(call, says):
    with pytest.raises(ConfigError, match=says):
        call()


@pytest.mark.parametrize(
    ("method", "given", "says"),
    [
        (
            "learn",
            {"total_timesteps": 1000},
            r"it takes total_steps, callbacks, reporter, progress\. total_timesteps is called total_steps here\.$",
        ),
        ("learn", {"total_steps": 1, "progress_bar": True}, r" progress_bar: learn and train show a bar"),
        ("evaluate", {"n_eval_episodes": 3}, r" n_eval_episodes is called episodes here\.$"),
        (
            "predict",
            {"observation": 1, "state": None, "action_masks": 0},
            r" state is called memory here\. action_masks is called action_mask here\.$",
        ),
        ("predict", {"observation": 1, "stochastic": True}, r" stochastic: use deterministic, which is its opposite"),
    ],
)
def test_argument_of_another_library_raises_with_the_equivalent(method, given, says):
    with pytest.raises(ConfigError, match=rf"^PPO\.{method}: .*{says}"):
        getattr(proximo.PPO, method)(None, **given)


def test_importing_what_is_elsewhere_says_what_to_use():
    with pytest.raises(ImportError, match=r"^proximo has no A2C: proximo has one algorithm, proximo.PPO\.$"):
        _ = proximo.A2C
    with pytest.raises(ImportError, match=r"^proximo has no push: use `from proximo.publish import push`\.$"):
        _ = proximo.push
    assert proximo.JaxCollector
