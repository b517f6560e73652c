"""The space as a whole: every mistake in one sentence before anything runs, and a default that the base lies in."""

import math

import pytest

from proximo.config import Config, override
from proximo.config.validation import validate
from proximo.errors import ConfigError
from proximo.ppo import make_hyperparameters
from proximo.settings import make_config
from proximo.tuning.default_space import DEFAULT, default_space
from proximo.tuning.space import NOT_SEARCHED, read_space, with_settings

import toys

BASE = override(Config(), {"id": "toys:RandomEnds"})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"learning_rat": [1e-3]}, "Unknown setting 'learning_rat' in s.yaml (did you mean 'learning_rate'?)."),
        ({"clip_range": [0.1]}, "Unknown setting 'clip_range' in s.yaml: clip_range is called clip_eps here"),
        ({"ppo": {"gamma": [0.9]}}, "s.yaml: ppo is a group: name its settings without it"),
        ({"total_steps": [1000]}, "s.yaml: total_steps cannot be searched: trials would be compared on trainings of different lengths."),
        ({"seed": [1, 2]}, "s.yaml: seed cannot be searched: it is about runs and how they are evaluated."),
        ({"env_settings": ["a=1"]}, "s.yaml: env_settings cannot be searched: it changes the task"),
        ({"frame_stack": [1, 4]}, "s.yaml: frame_stack is for Gymnasium environments: it has no effect on toys:RandomEnds, a JAX environment"),
        ({"gamma": 0.9}, "s.yaml: gamma: 0.9 is neither a list of values, such as [64, 128], nor a range"),
        ({"gamma": [0.9, 1.5]}, "s.yaml: gamma = 1.5: expected at most 1."),
        ({"gamma": {"low": 0.9, "high": 1.5}}, "s.yaml: gamma = 1.5: expected at most 1."),
        ({"gamma": {"low": 0.9, "hihg": 1}}, "s.yaml: gamma: unknown word 'hihg' (did you mean 'high'?)"),
        ({"gamma": {"low": 0.9}}, "s.yaml: gamma: a range needs low and high."),
        ({"gamma": {"low": 0.9, "high": 0.9}}, "s.yaml: gamma: low = 0.9 is not below high = 0.9."),
        ({"gamma": {"low": 0.9, "high": 1.0, "one_minus": True}}, "gamma: one_minus is a logarithmic scale of 1 - value: expected high below 1"),
        ({"ent_coef": {"low": 0, "high": 0.1, "log": True}}, "ent_coef: a logarithmic scale needs low above 0, not 0 (zero: true adds 0"),
        ({"ent_coef": {"low": 0, "high": 0.1, "log": 1}}, "ent_coef: log = 1: expected true or false."),
        ({"ent_coef": {"low": 0.01, "high": 0.1, "zero": True}}, "ent_coef: zero: true adds 0 to a logarithmic scale"),
        ({"max_grad_norm": {"low": 0.1, "high": 1, "log": True, "zero": True}}, "max_grad_norm = 0: expected more than 0."),
        ({"vf_coef": {"low": 0, "high": 1, "step": -1}}, "vf_coef: step = -1: expected a number above 0, and at most 1, the length of the range."),
        ({"vf_coef": {"low": 0, "high": 1, "step": math.inf}}, "vf_coef: step = inf: expected a number above 0, and at most 1, the length of the range."),
        ({"vf_coef": {"low": 0, "high": 1, "step": math.nan}}, "vf_coef: step = nan: expected a number above 0"),
        ({"vf_coef": {"low": 0, "high": 1, "step": 1e-30}}, "vf_coef: step = 1e-30: expected a number above 0"),
        ({"vf_coef": {"low": 0, "high": 1, "step": 2}}, "vf_coef: step = 2: expected a number above 0, and at most 1, the length of the range."),
        ({"num_epochs": {"low": 2, "high": 20, "step": 0.5}}, "num_epochs: step = 0.5: expected a whole number above 0, and at most 18, the length of the range."),
        ({"num_epochs": {"low": 2, "high": 20, "step": 2.5}}, "num_epochs: step = 2.5: expected a whole number above 0"),
        ({"num_epochs": {"low": 2, "high": 20, "step": math.nan}}, "num_epochs: step = nan: expected a whole number above 0"),
        ({"ent_coef": {"low": 0.01, "high": 0.1, "log": True, "step": 0.01}}, "ent_coef: step = 0.01: a logarithmic scale has no step"),
        ({"num_epochs": {"low": 1.5, "high": 4}}, "num_epochs = 1.5: expected a whole number."),
        ({"activation": {"low": 1, "high": 4}}, "activation is not a number, so it has no range: give a list of values."),
        ({"minibatch_size": [64]}, "minibatch_size cannot be searched: it is another way to give num_minibatches: search that one."),
        ({"towers": ["shared", "separat"]}, "towers = 'separat': expected one of separate, shared (did you mean 'separate'?)."),
        ({"num_steps": []}, "num_steps: the list is empty."),
        ({"num_steps": [64, 128, 64]}, "num_steps: the list has 64 twice."),
        ({"learning_rate": {"low": "linear(1e-3, 0)", "high": 1}}, "learning_rate = 'linear(1e-3, 0)': the ends of a range are numbers"),
        ({"learning_rate": {"low": 1e-5, "high": 1e-2, "schedule": ["cosine"]}}, "schedule = ['cosine']: expected a list of constant, linear, base."),
        ({"gamma": {"low": 0.9, "high": 0.99, "schedule": ["linear"]}}, "gamma: only some settings may be schedules, and gamma is not one of them."),
    ],
)  # fmt: skip
def test_mistake_in_the_space_raises_one_sentence(content, sentence):
    with pytest.raises(ConfigError) as error:
        read_space(content, BASE, "s.yaml", in_jax=True)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_schedule_that_begins_at_zero_cannot_be_scaled():
    warming = override(BASE, {"learning_rate": "linear(0, 1e-3)"})
    with pytest.raises(ConfigError, match="begins at 0 and cannot be scaled"):
        read_space({"learning_rate": {"low": 1e-5, "high": 1e-2}}, warming, "s.yaml", in_jax=True)
    read_space({"learning_rate": {"low": 1e-5, "high": 1e-2, "schedule": ["constant"]}}, warming, "s.yaml", in_jax=True)


def test_gymnasium_setting_is_searched_for_gymnasium_environments():
    assert read_space({"frame_stack": [1, 4]}, BASE, "s.yaml", in_jax=False).names == ("frame_stack",)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learning_rate": "1e-7", "gamma": 0.5, "num_epochs": 1, "num_steps": 16, "max_grad_norm": 50.0, "ent_coef": 0.5},
        {"learning_rate": "polynomial(1e-3, 1e-5, 2)", "clip_eps": "linear(0.3, 0.1)", "num_minibatches": 2},
    ],
)
def test_the_base_lies_in_the_default_space(settings):
    base = override(BASE, settings)
    space = default_space(base, toys.RandomEnds())
    parameters = space.parameters(base)
    assert parameters is not None
    again = with_settings(base, space.settings(parameters))
    assert again == base


def test_every_kind_of_environment_has_a_default_space():
    assert default_space(BASE, toys.RandomEnds()).names == tuple(DEFAULT)
    images = default_space(BASE, toys.AnySpaces(toys.IMAGE, toys.Discrete(2)))
    assert set(DEFAULT) - set(images.names) == {"normalize_observation"}
    signs = default_space(override(BASE, {"normalize_reward": "auto", "clip_reward": "sign"}), toys.RandomEnds())
    assert set(DEFAULT) - set(signs.names) == {"normalize_reward"}


@pytest.mark.parametrize(("given", "values"), [(False, (False, "auto")), ("auto", (False, "auto")), (True, (False, True))])
def test_normalization_of_the_base_is_searched_against_none(given, values):
    base = override(BASE, {"normalize_observation": given, "normalize_reward": given})
    found = {d.name: d for d in default_space(base, toys.RandomEnds()).dimensions}
    assert found["normalize_observation"].values == found["normalize_reward"].values == values


def test_default_space_excludes_values_that_cannot_be_trained():
    base = override(
        BASE, {"num_envs": 1, "num_steps": 32, "memory": "gru", "sequence_length": 8, "num_minibatches": 1, "total_steps": 300}
    )
    space = {d.name: d for d in default_space(validate(base), toys.RandomEnds()).dimensions}
    assert space["num_minibatches"].values == (1, 2, 4)
    assert space["num_steps"].values == (32, 64, 128, 256)


def test_default_settings_are_searchable_and_the_first_seven_traced():
    assert not set(DEFAULT) & set(NOT_SEARCHED)
    traced = vars(make_hyperparameters(BASE.ppo))
    assert [name in traced for name in DEFAULT] == [True] * 7 + [False] * 6


def test_settings_given_as_flags_are_not_searched():
    space = default_space(make_config("toys:RandomEnds"), toys.RandomEnds(), ["gamma", "num_envs"])
    assert space.names == tuple(name for name in DEFAULT if name != "gamma")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"learning_rate": lambda progress: 1e-3 * (1 - progress)}, "learning_rate"),
        ({"clip_eps": "linear(0, 0.2)"}, "clip_eps"),
        ({"num_steps": 100}, "num_steps"),
    ],
)
def test_a_fixed_setting_need_not_be_searchable(settings, name):
    space = default_space(make_config("toys:RandomEnds", settings, preset=False), toys.RandomEnds(), settings)
    assert space.names == tuple(searched for searched in DEFAULT if searched != name)


def test_range_of_a_fixed_setting_is_not_read_but_its_name_is():
    space = {"gamma": [0.9, 0.99], "learning_rate": {"low": 1}}
    assert read_space(space, BASE, "s.yaml", in_jax=True, fixed=["learning_rate"]).names == ("gamma",)
    with pytest.raises(ConfigError, match="total_steps cannot be searched"):
        read_space({"total_steps": [100]}, BASE, "s.yaml", in_jax=True, fixed=["total_steps"])


def test_default_space_has_rollouts_of_whole_minibatches():
    base = make_config("toys:RandomEnds", {"num_envs": 4, "num_steps": 96, "minibatch_size": 192}, preset=False)
    space = default_space(base, toys.RandomEnds(), ["minibatch_size"])
    assert "num_minibatches" not in space.names
    assert {d.name: d for d in space.dimensions}["num_steps"].values == (96,)
