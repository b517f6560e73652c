"""One searched setting: what is drawn, and what setting it is."""

import math
import warnings

import pytest

from proximo.config import LEAVES, Config, override
from proximo.config.coercion import coerce
from proximo.config.schedule_text import ScheduleText
from proximo.tuning.dimension import Choices, Range
from proximo.tuning.space import read_space

BASE = override(Config(), {"id": "toys:RandomEnds", "learning_rate": "linear(1e-3, 1e-4)"})


def dimension(name, given, base=BASE):
    return read_space({name: given}, base, "a file", in_jax=True).dimensions[0]


def drawn(d, x, **more):
    """The setting where ``x`` is drawn for the number."""
    number = next(key for key in d.distributions() if not key.endswith(".schedule"))
    return d.value({number: x, **more})


def test_a_range_on_one_minus_is_logarithmic_near_one():
    d = dimension("gamma", {"low": 0.9, "high": 0.999, "one_minus": True})
    (name, distribution) = next(iter(d.distributions().items()))
    assert (name, distribution.log) == ("1-gamma", True)
    assert (distribution.low, distribution.high) == (0.001, 0.1)
    assert drawn(d, 0.01) == 0.99
    assert drawn(d, distribution.low) == 0.999


def test_draws_below_a_logarithmic_range_are_zero():
    d = dimension("ent_coef", {"low": 1e-4, "high": 1e-2, "log": True, "zero": True})
    distribution = d.distributions()["ent_coef"]
    share = math.log(1e-4 / distribution.low) / math.log(1e-2 / distribution.low)
    assert 0.15 < share < 0.3
    assert drawn(d, distribution.low) == 0
    assert drawn(d, 9.9e-5) == 0
    assert drawn(d, 1e-4) == 1e-4
    assert drawn(d, d.parameters(ScheduleText("0"))["ent_coef"]) == 0


def test_a_number_on_the_grid_belongs_to_the_range():
    d = dimension("gae_lambda", {"low": 0.1, "high": 0.9, "step": 0.1})
    assert [k for k in range(1, 10) if d.parameters(k / 10) is None] == []
    assert d.parameters(0.25) is None


@pytest.mark.parametrize(
    ("name", "low", "high", "step", "last"),
    [
        ("gae_lambda", 0.1, 0.95, 0.1, 0.9),
        ("gae_lambda", 0, 1, 0.3, 0.9),
        ("gae_lambda", 0.1, 0.4, 0.1, 0.4),
        ("num_epochs", 2, 11, 4, 10),
        ("gae_lambda", 0.8, 0.9, 0.1, 0.9),
        ("vf_coef", 0.1, 0.3, 0.2, 0.3),
    ],
)
def test_a_range_ends_at_its_last_step_without_a_warning(name, low, high, step, last):
    with warnings.catch_warnings(action="error"):
        d = dimension(name, {"low": low, "high": high, "step": step})
        assert (d.high, d.distributions()[name].high) == (last, last)
    assert type(d.high) is type(LEAVES[name].default)


def test_whole_numbers_stay_whole_with_their_step():
    d = dimension("num_epochs", {"low": 2, "high": 10, "step": 4})
    assert d.distributions()["num_epochs"].step == 4
    assert isinstance(drawn(d, 6), int)
    assert d.parameters(6) == {"num_epochs": 6}
    assert d.parameters(7) is None


def test_a_schedule_is_constant_linear_or_scaled_from_the_base():
    d = dimension("learning_rate", {"low": 1e-5, "high": 1e-2, "log": True, "schedule": ["constant", "linear", "base"]})
    forms = {shape: drawn(d, 5e-3, **{"learning_rate.schedule": shape}) for shape in ("constant", "linear", "base")}
    assert forms == {"constant": 5e-3, "linear": "linear(0.005, 0)", "base": "linear(0.005, 0.0005)"}


def test_range_without_a_form_keeps_that_of_the_base():
    d = dimension("learning_rate", {"low": 1e-5, "high": 1e-2, "log": True})
    assert list(d.distributions()) == ["learning_rate"]
    assert drawn(d, 2e-3) == "linear(0.002, 0.0002)"
    constant = override(BASE, {"learning_rate": "1e-3"})
    assert drawn(dimension("learning_rate", {"low": 1e-5, "high": 1e-2}, constant), 2e-3) == 2e-3


@pytest.mark.parametrize(
    ("text", "scaled"),
    [("polynomial(1e-2, 1e-4, 2)", "polynomial(0.001, 1e-05, 2)"), ("linear(1e-2, 0, 0.5)", "linear(0.001, 0, 0.5)"),
     ("polynomial(1e-2, 0, 2, 0.5)", "polynomial(0.001, 0, 2, 0.5)")],
)  # fmt: skip
def test_every_form_of_a_schedule_is_scaled_as_a_whole(text, scaled):
    base = override(BASE, {"learning_rate": text})
    value = drawn(dimension("learning_rate", {"low": 1e-5, "high": 1e-2}, base), 1e-3)
    assert value == scaled
    given, was = ScheduleText(value), ScheduleText(text)
    assert (given.power, given.fraction) == (was.power, was.fraction)


def test_drawn_numbers_have_four_digits_and_stay_in_their_range():
    d = dimension("vf_coef", {"low": 0.33333333, "high": 0.66666666})
    assert drawn(d, 0.51234567) == 0.5123
    assert drawn(d, 0.33333333) == 0.33333333
    large = dimension("max_grad_norm", {"low": 0.1, "high": 1000.0, "log": True})
    assert drawn(large, 123.456789) == 123.5


def test_a_narrow_range_and_one_with_a_step_have_more_digits():
    narrow = dimension("gamma", {"low": 0.999, "high": 0.99999})
    assert drawn(narrow, 0.99912345678) == 0.9991235
    stepped = dimension("gamma", {"low": 0.99, "high": 0.999, "step": 0.00025})
    assert drawn(stepped, 0.99 + 3 * 0.00025) == 0.99075


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("gamma", {"low": 0.9, "high": 0.999, "one_minus": True}, 0.99),
        ("num_steps", [64, 128], 128),
        ("hidden_sizes", [[64, 64], [256]], (256,)),
        ("normalize_reward", [False, True], True),
        ("clip_eps", {"low": 0.1, "high": 0.3}, ScheduleText("0.2")),
        ("learning_rate", {"low": 1e-5, "high": 1e-2, "schedule": ["constant", "linear"]}, ScheduleText("linear(1e-3, 0)")),
        ("learning_rate", {"low": 1e-5, "high": 1e-2}, ScheduleText("linear(1e-3, 1e-4)")),
    ],
)
def test_parameters_of_a_setting_reproduce_the_setting(name, given, value):
    d = dimension(name, given)
    parameters = d.parameters(value)
    assert coerce(LEAVES[name], d.value(parameters)) == value
    for key, drawn in parameters.items():
        distribution = d.distributions()[key]
        assert distribution._contains(distribution.to_internal_repr(drawn))


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("gamma", {"low": 0.9, "high": 0.999}, 0.8),
        ("num_steps", [64, 128], 32),
        ("learning_rate", {"low": 1e-5, "high": 1e-2, "schedule": ["constant"]}, ScheduleText("linear(1e-3, 0)")),
        ("clip_eps", {"low": 0.1, "high": 0.3}, ScheduleText("linear(0.2, 0)")),
    ],
)
def test_setting_outside_the_range_needs_a_widened_range(name, given, value):
    d = dimension(name, given)
    assert d.parameters(value) is None
    assert d.widened(value).parameters(value) is not None


def test_widening_stays_within_the_scale():
    d = dimension("max_grad_norm", {"low": 0.1, "high": 1, "log": True})
    assert d.widened(5.0).high == 5.0
    assert dimension("gamma", {"low": 0.9, "high": 0.99, "one_minus": True}).widened(1.0).high == 0.99


def test_listed_numbers_are_drawn_by_rank_and_words_directly():
    steps = dimension("num_steps", [512, 64, 128])
    assert steps.values == (64, 128, 512)
    (name, distribution) = next(iter(steps.distributions().items()))
    assert (name, distribution.low, distribution.high) == ("num_steps.rank", 0, 2)
    assert steps.value({"num_steps.rank": 2}) == 512
    assert steps.parameters(128) == {"num_steps.rank": 1}
    words = dimension("normalize_advantage", ["none", "batch", "minibatch"])
    assert words.value({"normalize_advantage": "batch"}) == "batch"
    assert dimension("normalize_reward", [False, True]).value({"normalize_reward": False}) is False


def test_a_dimension_in_yaml_is_read_as_itself():
    for name, given in (
        ("ent_coef", {"low": 1e-4, "high": 1e-2, "log": True, "zero": True}),
        ("learning_rate", {"low": 1e-5, "high": 1e-2, "log": True, "schedule": ["constant", "linear"]}),
        ("num_epochs", {"low": 2, "high": 10, "step": 4}),
        ("hidden_sizes", [[64, 64], [256]]),
        ("clip_eps", {"low": 0.1, "high": 0.3}),
    ):
        d = dimension(name, given)
        assert isinstance(d, Choices if isinstance(given, list) else Range)
        assert dimension(name, d.as_yaml()) == d
