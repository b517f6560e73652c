"""The space and the plan of a study: mistakes, seeds, draws and their settings, and its folder."""

from dataclasses import replace

import optuna
import pytest

from proximo.config import LEAVES, Config, override
from proximo.config.coercion import coerce
from proximo.config.validation import validate
from proximo.errors import CheckpointError, ConfigError
from proximo.ppo import make_hyperparameters
from proximo.settings import make_config
from proximo.tuning.plan import Record, draw, open_journal, read_plan
from proximo.tuning.space import (
    DEFAULT,
    NOT_SEARCHED,
    as_mapping,
    base_parameters,
    default_space,
    drawn_settings,
    plain,
    read_space,
)

import toys
from studies import config, plan

GAMMA = "gamma: [0.9, 0.99]\n"


@pytest.mark.parametrize(
    ("space", "settings", "search", "sentence"),
    [
        (GAMMA, {}, {"trials": 0}, "trials = 0: expected a whole number of 1 … 100000."),
        (GAMMA, {}, {"seeds": 1.5}, "seeds = 1.5: expected a whole number of 1 … 100."),
        (GAMMA, {}, {"pruner": "medium"}, "pruner = 'medium': expected one of median, halving, none (did you mean 'median'?)."),
        (GAMMA, {"id": "gym_toys:Countdown"}, {}, "together = 3: gym_toys:Countdown is a Gymnasium environment, where trials train one"),
        (GAMMA, {"eval_episodes": 0}, {}, "eval_episodes = 0: trials are compared by evaluations"),
        (GAMMA, {}, {"fixed": ["gamma"]}, "There is nothing to search: the space is empty, or every setting of it was given as a flag."),
        ("", {}, {}, "There is nothing to search"),
        ("- gamma", {}, {}, "expected settings with their values, such as `num_steps: [64, 128]`, found list."),
        ("gamma: [0.9, 0.99]\ngamma: [1]", {}, {}, "is not valid YAML: gamma is given 2 times"),
        ("num_minibatches: [3, 7]", {}, {}, "can be trained; the last one: num_minibatches = "),
        ("optimizer_settings.weight_decay: [0.1]", {}, {}, "the last one: optimizer_settings.weight_decay = 0.1 has no effect with"),
    ],
)  # fmt: skip
def test_mistake_raises_one_sentence_before_anything_runs(tmp_path, space, settings, search, sentence):
    with pytest.raises(ConfigError) as error:
        plan(tmp_path, space, override(config(), settings), **search)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_seeds_are_disjoint_and_begin_at_100_unless_one_is_given(tmp_path):
    base = override(config(), {"seed": 3, "seeds": 10})
    p = plan(tmp_path, GAMMA, base, seeds=2, together=4)
    assert [list(p.seeds_of(kind)) for kind in ("trial", "final", "test")] == [[100, 101], [*range(102, 110)], [*range(110, 118)]]
    assert (p.base.run.seeds, p.base.run.seeds_mode) == (1, "auto")
    assert plan(tmp_path, GAMMA, base, fixed=["seed"]).seeds_of("trial")[0] == 3


def test_fixed_minibatch_size_applies_to_every_trial(tmp_path):
    base = validate(override(config(), {"minibatch_size": 64}))
    p = plan(tmp_path, "num_steps: [16, 32, 64]\nnum_minibatches: [1, 2]\ngamma: [0.9, 0.99]\n", base, ["minibatch_size"])
    assert list(p.space) == ["num_steps", "gamma"]
    for steps in (16, 32, 64):
        trial = p.config(Record(1, drawn_settings({"num_steps": steps, "gamma": 0.9}, p.space, p.base) | p.constant)).ppo
        assert (trial.num_steps, trial.num_minibatches) == (steps, 8 * steps // 64)


def test_plan_is_read_from_the_journal_as_it_was_stored(tmp_path):
    p = plan(tmp_path, GAMMA + "learning_rate: {low: 1e-4, high: 1e-1, log: true}\n", trials=9, fixed=["minibatch_size"])
    journal = open_journal(tmp_path)
    p.store(journal)
    assert read_plan(open_journal(tmp_path), tmp_path) == p
    replace(p, trials=12).store(journal)
    assert read_plan(open_journal(tmp_path), tmp_path).trials == 12


@pytest.mark.parametrize(
    "stored", [None, {}, {"base": {"ppo": {"gama": 1}}, "space": {}}, {"base": {}, "space": {"gamma": [0.9]}, "trails": 3}]
)
def test_study_of_another_version_is_refused_with_a_way_to_go_on(tmp_path, stored):
    journal = open_journal(tmp_path)
    if stored is not None:
        journal.set_user_attr("plan", stored)
    with pytest.raises(CheckpointError) as error:
        read_plan(journal, tmp_path)
    assert str(error.value) == (
        f"{tmp_path} was written by another version of proximo and cannot be continued. Start a new study from its best settings, "
        f"with --config {tmp_path}/preset.yaml."
    )


DRAWN = """learning_rate: {low: 1e-5, high: 1e-1, log: true}
num_steps: [16, 32, 64, 128]
normalize_reward: [false, true]
num_minibatches: [2, 3]
"""


def filled(p, count, score):
    """A study of ``count`` random trials with ``score(parameters)``."""
    study = optuna.create_study(direction="maximize")
    for number in range(count):
        _, trial = draw(p, study, number, {}, at_random=True)
        study.tell(trial, score(trial.params))
    return study


def rate(parameters):
    return -abs(parameters["learning_rate"] - 1e-3) + parameters["normalize_reward"]


def test_draw_can_be_trained_and_depends_on_seed_number_and_trials_only(tmp_path):
    p = plan(tmp_path, DRAWN)
    study = filled(p, 12, rate)
    assert {t.params["num_minibatches"] for t in study.trials if t.state.name == "COMPLETE"} == {2}, "3 divides no rollout"
    draws = [draw(p, filled(p, 12, rate), 12, {"num_steps": 32})[0] for _ in range(2)]
    assert draws[0] == draws[1]
    assert draws[0]["num_steps"] == 32
    other = replace(p, base=replace(p.base, run=replace(p.base.run, seed=101)))
    assert draw(other, filled(p, 12, rate), 12, {"num_steps": 32})[0] != draws[0]
    rates = [draw(p, study, number, {"num_steps": 16, "normalize_reward": True})[0]["learning_rate"] for number in range(12, 20)]
    assert len(set(rates)) == 8


BASE = override(Config(), {"id": "toys:RandomEnds", "learning_rate": "linear(1e-3, 1e-4)"})
SPACE = {
    "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
    "gae_lambda": {"low": 0.0, "high": 0.9, "step": 0.3},
    "num_epochs": {"low": 2, "high": 10, "step": 4},
    "num_steps": [512, 64, 128],
    "hidden_sizes": [[64, 64], [256]],
    "ent_coef": [0, "linear(0.01, 0)"],
    "normalize_reward": [False, True],
}


def read(mapping, base=BASE, **options):
    return read_space(mapping, base, "s.yaml", **{"in_jax": True, **options})


def test_draws_are_settings_of_the_space():
    space, study = read(SPACE), optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    draws = [drawn_settings(study.ask(space).params, space, BASE) for _ in range(60)]
    found = {name: {settings[name] for settings in draws} for name in SPACE}
    rates = [coerce(LEAVES["learning_rate"], text).initial for text in found.pop("learning_rate")]
    assert 1e-5 <= min(rates) < max(rates) <= 1e-2
    assert sum(rate < 3e-4 for rate in rates) > 20, "on a logarithmic scale"
    assert found == {
        "gae_lambda": {0.0, 0.3, 0.6, 0.9}, "num_epochs": {2, 6, 10}, "num_steps": {64, 128, 512}, "hidden_sizes": {"64,64", "256"},
        "ent_coef": {0, "linear(0.01, 0)"}, "normalize_reward": {False, True},
    }  # fmt: skip
    assert {type(value) for value in found["normalize_reward"]} == {bool}
    for settings in draws:
        override(BASE, settings)
    assert read(as_mapping(space)) == space, "its form in YAML is read as itself"
    assert as_mapping(space)["gae_lambda"] == SPACE["gae_lambda"]
    assert plain([]) == "", "as in journals: Optuna refuses other choices when a study goes on"


@pytest.mark.parametrize(
    ("base", "drawn", "setting"),
    [
        ("1e-3", 0.00123456789, 0.00123457), ("linear(1e-3, 1e-4)", 5e-3, "linear(0.005, 0.0005)"),
        ("linear(1e-2, 0, 0.5)", 1e-3, "linear(0.001, 0, 0.5)"), ("polynomial(1e-2, 1e-4, 2)", 1e-3, "polynomial(0.001, 1e-05, 2)"),
        ("exponential(1e-2, 1e-4)", 1e-3, "exponential(0.001, 1e-05)"),
    ],
)  # fmt: skip
def test_range_scales_the_schedule_of_the_base(base, drawn, setting):
    config = override(BASE, {"learning_rate": base})
    space = read({"learning_rate": {"low": 1e-5, "high": 1e-2}}, config)
    assert drawn_settings({"learning_rate": drawn}, space, config) == {"learning_rate": setting}


@pytest.mark.parametrize(
    ("settings", "inside"),
    [({}, True), ({"learning_rate": "linear(2e-3, 2e-4)"}, True), ({"learning_rate": "1"}, False), ({"num_steps": 32}, False)],
)
def test_parameters_of_the_base_reproduce_its_settings(settings, inside):
    within = {"num_epochs": 6, "num_steps": 64, "hidden_sizes": 256, "gae_lambda": 0.3, "normalize_reward": True}
    config = override(BASE, {**within, **settings})
    space = read(SPACE, config)
    parameters = base_parameters(space, config)
    assert (parameters is not None) == inside
    assert not inside or override(config, drawn_settings(parameters, space, config)) == config


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"learning_rat": [1e-3]}, "Unknown setting 'learning_rat' in s.yaml (did you mean 'learning_rate'?)."),
        ({"clip_range": [0.1]}, "Unknown setting 'clip_range' in s.yaml: clip_range is called clip_eps here"),
        ({"ppo": {"gamma": [0.9]}}, "s.yaml: ppo is a group: name its settings without it"),
        ({"total_steps": [1000]}, "s.yaml: total_steps cannot be searched: trials would be compared on trainings of different lengths."),
        ({"seed": [1, 2]}, "s.yaml: seed cannot be searched: it is about runs and how they are evaluated."),
        ({"minibatch_size": [64]}, "s.yaml: minibatch_size cannot be searched: it is another way to give num_minibatches: search that one."),
        ({"frame_stack": [1, 4]}, "s.yaml: frame_stack cannot be searched: it is for Gymnasium environments, and this is a JAX environment."),
        ({"gamma": 0.9}, "s.yaml: gamma: 0.9 is neither a list of values, such as [64, 128], nor a range"),
        ({"gamma": [0.9, 1.5]}, "s.yaml: gamma = 1.5: expected at most 1."),
        ({"gamma": {"low": 0.9, "hihg": 1}}, "s.yaml: gamma: unknown word 'hihg' (did you mean 'high'?); expected low, high, step, log."),
        ({"gamma": {"min": 0.9, "max": 1}}, "s.yaml: gamma: unknown word 'min'"),
        ({"gamma": {"low": 0.9, "high": 1, 1: 2}}, "s.yaml: gamma: unknown word 1; expected low, high, step, log."),
        ({"gamma": {"low": 0.9}}, "s.yaml: gamma = None: expected a number."),
        ({"gamma": {"low": 0.9, "high": 0.8}}, "s.yaml: gamma: `low <= high` must hold"),
        ({"ent_coef": {"low": 0, "high": 0.1, "log": True}}, "s.yaml: ent_coef: `low > 0` must hold for `log=True`"),
        ({"vf_coef": {"low": 0.1, "high": 1, "log": True, "step": 0.1}}, "s.yaml: vf_coef: The parameter `step` is not supported when `log`"),
        ({"num_epochs": {"low": 1.5, "high": 4}}, "s.yaml: num_epochs = 1.5: expected a whole number."),
        ({"hidden_sizes": {"low": 1, "high": 4}}, "s.yaml: hidden_sizes: a range has numbers: give a list of values."),
        ({"clip_eps": {"low": 0.1, "high": 0.2}}, "s.yaml: clip_eps: a range scales linear(0, 0.2) of the base, which is not possible"),
        ({"num_steps": []}, "s.yaml: num_steps: The `choices` must contain one or more elements."),
    ],
)  # fmt: skip
def test_mistake_in_the_space_raises_one_sentence(content, sentence):
    with pytest.raises(ConfigError) as error:
        read(content, override(BASE, {"clip_eps": "linear(0, 0.2)"}))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learning_rate": "1e-7", "gamma": 0.5, "num_epochs": 1, "num_steps": 16, "max_grad_norm": 50.0, "ent_coef": 0.5},
        {"learning_rate": "polynomial(1e-3, 1e-5, 2)", "clip_eps": "linear(0.3, 0.1)", "num_minibatches": 2, "normalize_reward": True},
    ],
)  # fmt: skip
def test_the_base_lies_in_the_default_space(settings):
    base = override(BASE, settings)
    space = default_space(base, toys.RandomEnds(), ())
    assert override(base, drawn_settings(base_parameters(space, base), space, base)) == base


def test_default_space_has_traced_settings_and_no_idle_normalization():
    traced = vars(make_hyperparameters(BASE.ppo))
    assert [name in traced for name in DEFAULT] == [True] * 7 + [False] * 6
    assert not set(DEFAULT) & set(NOT_SEARCHED)

    def missing(base, env, fixed=()):
        return set(DEFAULT) - set(default_space(base, env, fixed))

    assert list(default_space(BASE, toys.RandomEnds(), ())) == list(DEFAULT)
    assert missing(BASE, toys.AnySpaces(toys.IMAGE, toys.Discrete(2))) == {"normalize_observation"}
    signs = override(BASE, {"normalize_reward": "auto", "clip_reward": "sign"})
    assert missing(signs, toys.RandomEnds()) == {"normalize_reward"}
    schedule = {"learning_rate": lambda progress: 1e-3 * (1 - progress)}  # a fixed setting need not be searchable
    for settings, name in ((schedule, "learning_rate"), ({"minibatch_size": 64}, "num_minibatches")):
        base = make_config("toys:RandomEnds", settings, preset=False)
        assert missing(base, toys.RandomEnds(), settings) == {name}
