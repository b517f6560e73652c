"""Settings: their types and ranges, files, contradictions, and errors that say the fix."""

import pathlib

import gymnasium as gym
import jax
import numpy as np
import pytest

from proximo.config import BY_NAME, ENTRIES, LEAVES, Config, from_mapping, override, to_mapping
from proximo.config.coercion import ScheduleText
from proximo.config.schema import REMOVED, RENAMED, MemorySettings
from proximo.config.validation import CONDITIONS, validate
from proximo.errors import ConfigError

NUMPY = {"a": np.float64(0.5), "b": np.bool_(True), "c": {"d": np.arange(2)}, "e": pathlib.PurePosixPath("x/y"), "f": (1, (2, 3))}


def test_override_replaces_what_is_named_and_nothing_else():
    changed = override(Config(), {"gamma": 0.9, "hidden_sizes": "32,16", "id": "a:B", "memory_settings": "window=8"})
    assert (changed.ppo.gamma, changed.network.hidden_sizes, changed.env.id) == (0.9, (32, 16), "a:B")
    assert override(changed, {"gamma": 0.99, "hidden_sizes": (64, 64), "id": "", "memory_settings.window": 32}) == Config()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_envs", "16", 16),
        ("normalize_reward", "auto", "auto"),
        ("hidden_sizes", "64,64", (64, 64)),
        ("hidden_sizes", "none", ()),
        ("drop_observations", "mission, camera.label", ("mission", "camera.label")),
        ("wrappers", "a.b:C(x=1, y=[2, 3]),d:E", ("a.b:C(x=1, y=[2, 3])", "d:E")),
        ("wrappers", [gym.wrappers.TimeAwareObservation], ("gymnasium.wrappers.stateful_observation:TimeAwareObservation",)),
        ("runs_dir", pathlib.PurePosixPath("some/runs"), "some/runs"),
        ("env_settings", "a=1,b=0.5,c=true,d=x,e=[0, 1e-3],f={g: [x, true]}",
         {"a": 1, "b": 0.5, "c": True, "d": "x", "e": [0, 1e-3], "f": {"g": ["x", True]}}),
        ("env_settings", NUMPY, {"a": 0.5, "b": True, "c": {"d": [0, 1]}, "e": "x/y", "f": [1, [2, 3]]}),
        ("memory_settings", "window=8,gate=identity", MemorySettings(window=8, gate="identity")),
    ],
)  # fmt: skip
def test_values_are_read_from_text_and_from_python(name, value, expected):
    got = LEAVES[name].value_in(override(Config(), {name: value}))
    assert got == expected
    assert (type(got), repr(got)) == (type(expected), repr(expected))  # a NumPy scalar equals its number


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3e-4", (3e-4, 3e-4, 1.0, 1.0)), ("linear( 1 ,0.5, 0.25 )", (1.0, 0.5, 1.0, 0.25)),
        ("polynomial(1, 0, 2)", (1.0, 0.0, 2.0, 1.0)), ("exponential(1e-2, 1e-4, 1.5)", (1e-2, 1e-4, 0.0, 1.5)),
        *((wrong, None) for wrong in (
            "", "x", "linear(1)", "linear(1, 0, 0)", "linear(1, 0, inf)", "linear(1, 0, 1, 1)", "polynomial(1, 0)", "polynomial(1, 0, 0)",
            "exponential(1, 0)", "exponential(1)", "exponential(-1, -2)", "linear(1, 0", "cosine(1, 0)", "1, 2",
        )),
    ],
)  # fmt: skip
def test_schedules_are_read_from_text_and_kept_in_files(text, numbers):
    if numbers is None:
        with pytest.raises(ValueError, match=r"."):
            ScheduleText(text)
        return
    schedule = ScheduleText(text)
    assert (schedule.initial, schedule.final, schedule.power, schedule.fraction) == numbers
    assert schedule.plain() == (text if "(" in text else numbers[0])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_envs", "many", r"^num_envs = 'many': expected a whole number\.$"),
        ("num_envs", 0, r"^num_envs = 0: expected at least 1\.$"),
        ("num_envs", 10**400, r"^num_envs = 10+…: expected a finite number\.$"),
        ("seed", 2**32, r"seed = 4294967296: expected at most 4,294,967,295"),
        ("max_grad_norm", 0, r"expected more than 0"),
        ("learning_rate", "cosine(1, 0)", r"expected a number, linear\(from, to\), polynomial\(from, to, power\), exponential\("),
        ("learning_rate", "linear(1e-3, -1)", r"expected at least 0"),
        ("normalize_reward", "perhaps", r"expected true or false, or auto"),
        ("memory", "grru", r"^memory = 'grru': expected one of none, gru, lstm, mingru, lru, gtrxl, or custom code: an object, or its "
         r"name as my_package\.module:Name \(did you mean 'gru'\?\)\.$"),
        ("optimizer", "sgd", r"^optimizer = 'sgd': expected one of adam, adamw, or custom code: .* my_package\.module:Name or optax:sgd\.$"),
        ("privileged", 3, r"expected names such as one,two"),
        ("critic_hidden_sizes", "as policy", r"expected whole numbers such as 64,64, or none, or same"),
        ("activation", jax.nn.gelu, r"expected one of celu, elu, .* tanh \(did you mean 'gelu'\?\)"),
        ("env_settings", "a=[1,b=2", r"expected key=value pairs"),
        ("env_settings", {"a": 1, "b": print}, r"^env_settings: b = <built-in function print>: expected a value that config.yaml can"),
        ("env_settings", {"size": "\x1b[2J"}, r"env_settings = {'size': '\\x1b\[2J'}: expected text without control characters"),
        ("memory_settings", "windo=8", r"^memory_settings has no entry 'windo' \(did you mean 'window'\?\); expected layers, horizon, "),
        ("memory_settings", {"window": 0}, r"^memory_settings.window = 0: expected at least 1\.$"),
        ("memory_settings", 8, r"^memory_settings = 8: expected key=value pairs with the keys layers, horizon, window, heads, gate\.$"),
        ("name", 3, r"expected text"),
        ("num_enfs", 1, r"^Unknown setting 'num_enfs' \(did you mean 'num_envs'\?\)\.$"),
        ("n-steps", 1, r"n_steps is called num_steps here"),
        ("memory_window", 8, r"^Unknown setting 'memory_window': it is the entry window of memory_settings, as in --memory-settings "
         r"window=VALUE or memory_settings = {'window': VALUE}\.$"),
    ],
)  # fmt: skip
def test_wrong_name_or_value_raises_with_what_was_expected(name, value, message):
    with pytest.raises(ConfigError, match=message):
        override(Config(), {name: value})


def test_files_of_earlier_versions_are_read():
    old = {"env": REMOVED, "network": {"memory_window": 8, "memory_gate": "identity"}, "ppo": {"adam_eps": 1e-8}}
    new = {"memory_settings": {"window": 8, "gate": "identity"}, "optimizer_settings": "eps=1e-8"}
    assert from_mapping(old, Config(), "file.yaml") == override(Config(), new)
    assert set(RENAMED.values()) == set(ENTRIES)


def test_resolved_settings_are_themselves_valid_settings():
    settings = {
        "id": "a:B", "learning_rate": "linear(1e-3,0)", "hidden_sizes": (8,), "env_settings": "a=1", "memory": "gru",
        "critic_hidden_sizes": "9,9", "memory_settings": "layers=2", "optimizer_settings": {"eps": 1e-8},
    }  # fmt: skip
    config = override(Config(), settings)
    assert from_mapping(to_mapping(config), Config(), "config.yaml") == config


def valid(**settings):
    return validate(override(Config(), {"id": "a:B", **settings}))


GRU = {"memory": "gru", "num_envs": 4, "num_steps": 16, "sequence_length": 8}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": ""}, r"No environment given: name one, as in `proximo train CartPole-v1`"),
        ({"num_envs": 4, "num_steps": 10, "num_minibatches": 3}, r"^num_minibatches = 3 does not divide the 40 steps .*: choose a divisor, such as 2\.$"),
        ({**GRU, "burn_in": 9}, r"^burn_in = 9: expected at most the 8 steps of a sequence"),
        ({**GRU, "refresh_memory": True, "sequence_length": 0}, r"^refresh_memory = true has no effect with sequence_length = 0 and num_st"),
        ({"num_envs": 100_000, "num_steps": 100_000}, r"^num_envs = 100000 × num_steps = 100000: expected fewer than 2³¹ steps"),
        ({"minibatch_size": 8, "memory": "gru", "sequence_length": 16}, r"^sequence_length = 16 does not divide minibatch_size = 8: choose a divisor, such as 8\.$"),
        ({"minibatch_size": "64", "num_minibatches": 2}, r"^minibatch_size = '64' and num_minibatches = 2: give one of them\.$"),
        ({"num_envs": 1, "num_steps": 4, "num_minibatches": 4}, r"A minibatch of one step cannot be normalized"),
        ({"total_steps": 100}, r"total_steps = 100 is less than one rollout .*= 1024\)"),
        ({"seed": 2**32 - 1, "seeds": 2}, r"expected no seed above 4294967295"),
        ({"rpo_alpha": 0.1, "desired_kl": 0.01}, r"^rpo_alpha = 0.1 with desired_kl = 0.01: its noise counts as divergence"),
        ({"objective_settings": "dual_clip=0.5"}, r"^objective_settings.dual_clip = 0.5: expected a ratio above 1 \(the paper has 3\)"),
        ({"desired_kl": 0.02, "num_epochs": 1, "num_minibatches": 1}, r"^desired_kl = 0.02 needs two gradient steps .* or set desired_kl"),
        ({"memory": "gru", "memory_settings": "horizon=1"}, r"^memory_settings.horizon = 1: expected 2 steps or more, or 0\.$"),
        ({"memory": "lru", "memory_settings": "horizon=9"}, r"^memory_settings.horizon = 9 has no effect with memory = lru: leave it out, "
         r"or set memory to gru or lstm\.$"),
        ({"actor_critic": "custom_networks:Whole", "critic_learning_rate": "1e-3"}, r"^critic_learning_rate = 1e-3 has no effect with "
         r"actor_critic = custom_networks:Whole: leave one of them out\.$"),
        ({"actor": "custom_networks:Actor", "critic": "custom_networks:Critic", "head_sizes": 32}, r"^head_sizes = 32 has no effect with "
         r"actor = custom_networks:Actor and critic = custom_networks:Critic: leave one of them out\.$"),
        ({"eval_episodes": 0, "eval_num_envs": 4}, r"^eval_num_envs = 4 has no effect with eval_episodes = 0: set eval_episodes to 1 or"),
        ({"track": "wnadb"}, r"^track = 'wnadb': there is no tracker 'wnadb' \(did you mean 'wandb'\?\); expected csv, wandb or"),
        ({"name": "a/b"}, r"name = 'a/b': expected a plain name"),
        ({"name": "ä" * 120}, r"expected a plain name of at most 200 bytes"),
    ],
)  # fmt: skip
def test_contradicting_settings_raise_with_the_fix(settings, message):
    with pytest.raises(ConfigError, match=message):
        valid(**settings)


def test_every_condition_names_settings_and_is_met_by_the_defaults():
    for condition in CONDITIONS:
        assert {*condition.names, *condition.others} <= BY_NAME.keys()
    assert override(Config(), {name: leaf.default for name, leaf in BY_NAME.items()}, join=False) == Config()
    assert valid() == override(Config(), {"id": "a:B"})


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "kl_penalty", "objective_settings": "kl_coef=2", "desired_kl": 0.01, "critic_learning_rate": "1e-3", "target_kl": 0.1},
        {"objective": "kl_penalty", "objective_settings": "kl_target=0", "num_epochs": 1, "num_minibatches": 1},
        {"action_mapping": "tanh", "state_dependent_std": True, "objective_settings": "dual_clip=3", "privileged": "a,b"},
        {**GRU, "refresh_memory": True},
        {**GRU, "refresh_memory": True, "num_epochs": 1, "learner_lag": 1},
        {"memory": "gru", "refresh_memory": True, "recompute_advantage": True},
    ],
)  # fmt: skip
def test_compatible_variants_are_accepted(settings):
    assert valid(**settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"sequence_length": 7}, {"sequence_length": 1}),  # without a memory
        ({"memory": "gru", "sequence_length": -1}, {"sequence_length": 128}), ({"memory": "gru", "sequence_length": 8}, {"sequence_length": 8}),
        ({"num_envs": 4, "num_steps": 10, "total_steps": 99}, {"total_updates": 2}),  # no more steps than requested
        *(({"total_steps": 1024 * n, "updates_per_call": asked}, {"updates_per_call": in_call, "updates_per_row": in_row})
          for n, asked, in_call, in_row in ((500, 0, 64, 5), (50_000, 0, 64, 64), (1, 0, 64, 1), (1, 7, 7, 7))),
    ],
)  # fmt: skip
def test_numbers_follow_from_the_settings(settings, expected):
    config = valid(**settings)
    assert {name: getattr(config, name) for name in expected} == expected
