"""Settings: layers, types, ranges, and errors that say the fix."""

import dataclasses
import pathlib

import gymnasium as gym
import jax
import numpy as np
import pytest

from proximo import config as c
from proximo.config import LEAVES, Config, from_mapping, override, to_mapping
from proximo.config.coercion import coerce
from proximo.config.schedule_text import ScheduleText
from proximo.config.schema import REMOVED
from proximo.config.validation import validate
from proximo.errors import ConfigError


def test_names_of_settings_are_unique_over_all_groups():
    names = [f.name for group in c.GROUPS.values() for f in dataclasses.fields(group)]
    assert len(names) == len(set(names)) == len(c.LEAVES)


def test_defaults_satisfy_their_own_ranges():
    for leaf in LEAVES.values():
        assert coerce(leaf, leaf.default) == leaf.default


def test_a_path_may_be_given_for_text():
    assert override(Config(), {"runs_dir": pathlib.Path("some") / "runs"}).run.runs_dir == str(pathlib.Path("some", "runs"))


def test_override_replaces_what_is_named_and_nothing_else():
    changed = override(Config(), {"gamma": 0.9, "hidden_sizes": "32,16", "id": "a:B"})
    assert (changed.ppo.gamma, changed.network.hidden_sizes, changed.env.id) == (0.9, (32, 16), "a:B")
    assert override(changed, {"gamma": 0.99, "hidden_sizes": (64, 64), "id": ""}) == Config()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_envs", "16", 16),
        ("total_steps", "1_000_000", 1_000_000),
        ("total_steps", "1e6", 1_000_000),
        ("total_steps", 1e6, 1_000_000),
        ("gamma", "0.9", 0.9),
        ("gamma", 1, 1.0),
        ("normalize_reward", "true", True),
        ("normalize_reward", "off", False),
        ("normalize_reward", "auto", "auto"),
        ("hidden_sizes", "64,64", (64, 64)),
        ("hidden_sizes", [32], (32,)),
        ("hidden_sizes", "()", ()),
        ("hidden_sizes", "none", ()),
        ("privileged", "none", ()),
        ("drop_observations", "mission, camera.label", ("mission", "camera.label")),
        ("wrappers", "a.b:C(x=1, y=[2, 3]),d:E", ("a.b:C(x=1, y=[2, 3])", "d:E")),
        ("wrappers", ["a.b:C(x=1, y=(2, 3))"], ("a.b:C(x=1, y=(2, 3))",)),
        ("wrappers", [gym.wrappers.TimeAwareObservation], ("gymnasium.wrappers.stateful_observation:TimeAwareObservation",)),
        ("critic_hidden_sizes", "same", "same"),
        ("critic_hidden_sizes", [256, 256], (256, 256)),
        ("critic_head_sizes", "none", ()),
        ("activation", "gelu", "gelu"),
        ("hidden_sizes", 64, (64,)),
        ("env_settings", "a=1,b=0.5,c=true,d=x", {"a": 1, "b": 0.5, "c": True, "d": "x"}),
        ("env_settings", {"a": 1}, {"a": 1}),
        (
            "env_settings",
            "a=[10],b=[0, 1, x],c={d: [1e-3, true]},e=2",
            {"a": [10], "b": [0, 1, "x"], "c": {"d": [1e-3, True]}, "e": 2},
        ),
        (
            "env_settings",
            {
                "a": np.float64(0.5),
                "b": np.bool_(True),
                "c": {"d": np.arange(2)},
                "e": pathlib.PurePosixPath("x/y"),
                "f": (1, (2, 3)),
            },
            {"a": 0.5, "b": True, "c": {"d": [0, 1]}, "e": "x/y", "f": [1, [2, 3]]},
        ),
        ("memory", "gru", "gru"),
        ("learning_rate", 3e-4, ScheduleText("0.0003")),
        ("learning_rate", "linear(1e-3, 0)", ScheduleText("linear(1e-3, 0)")),
    ],
)
def test_values_are_read_from_text_and_from_python(name, value, expected):
    got = coerce(LEAVES[name], value)
    assert got == expected
    assert (type(got), repr(got)) == (type(expected), repr(expected))  # a NumPy scalar equals its number


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_envs", "many", r"^num_envs = 'many': expected a whole number\.$"),
        ("num_envs", 2.5, r"expected a whole number"),
        ("num_envs", True, r"expected a whole number"),
        ("num_envs", 0, r"^num_envs = 0: expected at least 1\.$"),
        ("num_envs", None, r"expected a whole number"),
        ("num_envs", 10**400, r"^num_envs = 10+…: expected a finite number\.$"),
        ("hidden_sizes", [64, 10**400], r"expected a finite number"),
        ("gamma", 1.5, r"^gamma = 1.5: expected at most 1\.$"),
        ("gamma", "x", r"expected a number"),
        ("gamma", "nan", r"expected a finite number"),
        ("max_grad_norm", 0, r"expected more than 0"),
        (
            "learning_rate",
            "linear(1e-3)",
            r"expected a number, linear\(from, to\), polynomial\(from, to, power\), exponential\(",
        ),
        ("learning_rate", "exponential(1e-3, 0)", r"exponential\(from, to\) with both above 0, or a function"),
        ("learning_rate", "cosine(1, 0)", r"expected a number, linear"),
        ("learning_rate", -1e-3, r"expected at least 0"),
        ("learning_rate", "linear(1e-3, -1)", r"expected at least 0"),
        ("normalize_reward", "perhaps", r"expected auto, true or false"),
        ("layer_norm", "perhaps", r"expected true or false"),
        ("memory", "GRU", r"\(did you mean 'gru'\?\)"),
        (
            "memory",
            "grru",
            r"^memory = 'grru': expected one of none, gru, lstm, mingru, lru, gtrxl, or custom code: an object, or its name as "
            r"my_package\.module:Name \(did you mean 'gru'\?\)\.$",
        ),
        (
            "optimizer",
            "sgd",
            r"^optimizer = 'sgd': expected one of adam, adamw, or custom code: .* my_package\.module:Name or optax:sgd\.$",
        ),
        ("privileged", 3, r"expected names such as one,two"),
        ("memory", 3, r"expected one of none, gru, lstm, mingru, lru, gtrxl"),
        ("hidden_sizes", "64,wide", r"expected whole numbers such as 64,64, or none"),
        ("critic_hidden_sizes", "as policy", r"expected whole numbers such as 64,64, none, or same"),
        ("activation", "reluu", r"expected one of celu, elu, .* tanh \(did you mean 'relu'\?\)"),
        ("activation", jax.nn.gelu, r"expected one of celu, elu, .* tanh \(did you mean 'gelu'\?\)"),
        ("hidden_sizes", "64,0", r"expected at least 1"),
        ("env_settings", "a", r"expected key=value pairs"),
        (
            "env_settings",
            {"a": 1, "b": print},
            r"^env_settings: b = <built-in function print>: expected a value that config.yaml can store",
        ),
        ("eval_env_settings", {"a": [1j]}, r"^eval_env_settings: a = \[1j\]: .* in proximo.PPO, lambda: MyEnv\(a=…\)\.$"),
        ("env_settings", "a=[1,b=2", r"expected key=value pairs"),
        ("sequence_length", -2, r"^sequence_length = -2: expected at least -1"),
        ("name", 3, r"expected text"),
    ],
)
def test_wrong_value_raises_with_what_was_expected(name, value, message):
    with pytest.raises(ConfigError, match=message):
        override(Config(), {name: value})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num_enfs", r"^Unknown setting 'num_enfs' \(did you mean 'num_envs'\?\)\.$"),
        ("learning-rat", r"did you mean 'learning_rate'"),
        ("clip_range", r"^Unknown setting 'clip_range': clip_range is called clip_eps here"),
        ("lr", r"lr is called learning_rate here"),
        ("n-steps", r"n_steps is called num_steps here"),
        ("qqqq", r"^Unknown setting 'qqqq'\.$"),
    ],
)
def test_unknown_setting_raises_with_the_nearest_name(name, message):
    with pytest.raises(ConfigError, match=message):
        override(Config(), {name: 1})


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ([1], r"file.yaml: expected groups of settings \(env, ppo, network, run\), found list"),
        ({"pppo": {}}, r"unknown group 'pppo' \(did you mean 'ppo'\?\)"),
        ({"gamma": 0.9}, r"gamma is at the top level; it belongs under `ppo:`"),
        ({"ppo": 3}, r"under 'ppo' expected settings as name: value, found 3"),
        ({"ppo": {"gama": 0.9}}, r"Unknown setting 'gama' under 'ppo' in file.yaml \(did you mean 'gamma'\?\)"),
        ({"env": {"gamma": 0.9}}, r"gamma is under `env:`; it belongs under `ppo:`"),
        ({"ppo": {"gamma": "x"}}, r"gamma = 'x': expected a number"),
    ],
)
def test_invalid_file_raises_with_file_and_place(mapping, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping(mapping, Config(), "file.yaml")


def test_a_file_may_have_removed_settings_with_the_value_that_changes_nothing():
    assert from_mapping({"env": REMOVED}, Config(), "file.yaml") == Config()
    with pytest.raises(ConfigError, match="Unknown setting 'ray' under 'env' in"):
        from_mapping({"env": {"ray": "local"}}, Config(), "file.yaml")


def test_resolved_settings_are_themselves_valid_settings():
    config = override(
        Config(),
        {
            "id": "a:B",
            "learning_rate": "linear(1e-3,0)",
            "hidden_sizes": (8,),
            "env_settings": "a=1",
            "memory": "gru",
            "critic_hidden_sizes": "9,9",
        },
    )
    again = from_mapping(to_mapping(config), Config(), "config.yaml")
    assert to_mapping(again) == to_mapping(config)
    assert again.ppo.learning_rate == config.ppo.learning_rate
    assert again.network == config.network


def valid(**settings):
    return validate(override(Config(), {"id": "a:B", **settings}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": ""}, r"No environment given: name one, as in `proximo train CartPole-v1`"),
        (
            {"num_envs": 4, "num_steps": 10, "num_minibatches": 3},
            r"num_minibatches = 3 does not divide the 40 steps .*choose a divisor of 40",
        ),
        (
            {"memory": "gru", "num_envs": 4, "num_steps": 16, "sequence_length": 8, "num_minibatches": 3},
            r"num_minibatches = 3 does not divide the 8 sequences .*/ sequence_length 8\)",
        ),
        (
            {"memory": "gru", "sequence_length": 7},
            r"sequence_length = 7 does not divide num_steps = 128: choose a divisor, such as 4, or 0 for the whole rollout",
        ),
        ({"memory": "gru", "sequence_length": 300}, r"sequence_length = 300 .* as 128"),
        ({"num_envs": 1, "num_steps": 4, "num_minibatches": 4}, r"A minibatch of one step cannot be normalized"),
        ({"total_steps": 100}, r"total_steps = 100 is less than one rollout .*= 1024\)"),
        ({"weight_decay": 0.1}, r"weight_decay = 0.1 needs optimizer = adamw"),
        ({"dual_clip": 0.5}, r"^dual_clip = 0.5: expected a ratio above 1 \(the paper has 3\), or 0 for off\.$"),
        ({"objective": "kl_penalty", "dual_clip": 3}, r"^dual_clip = 3 needs objective = clip, not kl_penalty\.$"),
        ({"kl_coef": 2}, r"^kl_coef = 2 needs objective = kl_penalty, not clip\.$"),
        ({"kl_target": 0}, r"^kl_target = 0 needs objective = kl_penalty, not clip\.$"),
        (
            {"objective": "kl_penalty", "num_epochs": 1, "num_minibatches": 1},
            r"^kl_target = 0.01 needs two gradient steps in each update, .* raise num_epochs or num_minibatches above 1, or set kl_target to 0\.$",
        ),
        (
            {"desired_kl": 0.02, "num_epochs": 1, "num_minibatches": 1},
            r"^desired_kl = 0.02 needs two gradient steps .* or set desired_kl to 0\.$",
        ),
        ({"shared_sizes": 8}, r"^shared_sizes = 8 needs towers = shared, not separate\.$"),
        (
            {"critic_hidden_sizes": "none", "towers": "shared"},
            r"^critic_hidden_sizes = none needs towers = separate, not shared\.$",
        ),
        ({"privileged": "a", "towers": "shared"}, r"^privileged needs towers = separate: a shared tower"),
        (
            {"distribution": "beta", "action_mapping": "tanh"},
            r"^action_mapping = tanh is for Gaussian distributions, but distribution = beta: ",
        ),
        ({"distribution": "beta", "state_dependent_std": True}, r"^state_dependent_std = true is for Gaussian distributions"),
        ({"distribution": "beta", "log_std_init": -1}, r"^log_std_init = -1 is for Gaussian distributions"),
        ({"distribution": "beta", "sde_every": 4}, r"^sde_every = 4 is for Gaussian distributions"),
        ({"state_dependent_std": True, "sde_every": 4}, r"leave out state_dependent_std, or sde_every\.$"),
        (
            {"actor_critic": "custom_networks:Whole", "critic_learning_rate": "1e-3"},
            r"^critic_learning_rate = .* has no effect with actor_critic = .*: leave one of them out\.$",
        ),
        (
            {
                "extra_loss": "custom_networks:named_like_ours",
                "actor": "custom_networks:Actor",
                "critic": "custom_networks:Critic",
                "head_sizes": 32,
            },
            r"^head_sizes = 32 has no effect with actor = custom_networks:Actor and critic = custom_networks:Critic: leave one of them out\.$",
        ),
        ({"name": "a/b"}, r"name = 'a/b': expected a plain name"),
        ({"name": "a\nb"}, r"name = 'a\\nb': expected text without control characters"),
        (
            {"env_settings": {"size": "\x1b[2J"}},
            r"env_settings = {'size': '\\x1b\[2J'}: expected text without control characters",
        ),
        ({"learning_rate": "1e-3\n"}, r"learning_rate = '1e-3\\n': expected text without control characters"),
        ({"name": "last"}, r"and not 'last'"),
        ({"name": "a" * 201}, r"^name = 'aaaaaaaaaaaaaaaaaaaa'… has 201 bytes in UTF-8: expected at most 200"),
        ({"name": "ä" * 120}, r"has 240 bytes in UTF-8: expected at most 200"),
    ],
)
def test_contradicting_settings_raise_with_the_fix(settings, message):
    with pytest.raises(ConfigError, match=message):
        valid(**settings)


def test_compatible_variants_are_accepted():
    kl = valid(objective="kl_penalty", kl_coef=2, desired_kl=0.01, critic_learning_rate="1e-3", target_kl=0.1)
    assert (kl.ppo.kl_coef, kl.ppo.kl_target) == (2.0, 0.01)
    assert valid(objective="kl_penalty", kl_target=0, num_epochs=1, num_minibatches=1).ppo.kl_target == 0
    assert valid(privileged="a,b").network.privileged == ("a", "b")
    assert valid(action_mapping="tanh", state_dependent_std=True, dual_clip=3).ppo.dual_clip == 3.0


def test_sequence_length_is_one_without_memory():
    assert valid(sequence_length=7).sequence_length == 1
    assert valid(memory="gru").sequence_length == valid(memory="gru", sequence_length=-1).sequence_length == 128
    assert valid(memory="gru", sequence_length=8).sequence_length == 8


def test_training_makes_no_more_steps_than_requested():
    config = valid(num_envs=4, num_steps=10, total_steps=99)
    assert config.total_updates * config.batch_size == 80


def test_rows_cover_a_hundredth_of_the_run_and_calls_do_at_most_64_updates():
    for updates, in_row in ((500, 5), (50_000, 64), (1, 1)):
        config = valid(total_steps=1024 * updates)
        assert (config.updates_per_call, config.updates_per_row) == (64, in_row)
    config = valid(updates_per_call=7)
    assert (config.updates_per_call, config.updates_per_row) == (7, 7)


def test_rollout_too_large_for_the_step_counter_raises():
    with pytest.raises(ConfigError, match=r"= 2,560,000,000 steps: expected fewer than 2³¹"):
        validate(override(Config(), {"id": "x", "num_envs": 10**6, "num_steps": 2560, "total_steps": 10**12}))


def test_seeds_beyond_32_bits_raise():
    with pytest.raises(ConfigError, match=r"seed = 4294967296: expected at most 4,294,967,295"):
        override(Config(), {"seed": 2**32})
    with pytest.raises(ConfigError, match="expected no seed above 4294967295"):
        validate(override(Config(), {"id": "x", "seed": 2**32 - 1, "seeds": 2}))


@pytest.mark.parametrize(
    "settings",
    [
        {"burn_in": 4},
        {"refresh_memory": True},
        {"reset_memory": False},
        {"memory_size": 64},
        {"memory_layers": 2},
        {"diagnose_every": 5},
    ],
)
def test_memory_settings_without_memory_raise(settings):
    (name,) = settings
    with pytest.raises(ConfigError, match=rf"^{name} = .* needs a memory, but memory = none"):
        validate(override(Config(), {"id": "x", **settings}))


def test_burn_in_longer_than_the_sequences_raises():
    with pytest.raises(ConfigError, match="burn_in = 9 is longer than the sequences of 8 steps"):
        validate(override(Config(), {"id": "x", "memory": "gru", "sequence_length": 8, "burn_in": 9}))


def test_gtrxl_settings_with_another_memory_raise():
    with pytest.raises(ConfigError, match="memory_window = 8 needs memory = gtrxl, not gru"):
        validate(override(Config(), {"id": "x", "memory": "gru", "memory_window": 8}))
    with pytest.raises(ConfigError, match="memory_heads = 3 does not divide memory_size = 128"):
        validate(override(Config(), {"id": "x", "memory": "gtrxl", "memory_heads": 3}))


def test_memory_horizon_without_gates_raises():
    with pytest.raises(ConfigError, match="memory_horizon = 32 needs memory = gru or lstm, not lru"):
        validate(override(Config(), {"id": "x", "memory": "lru", "memory_horizon": 32}))
    with pytest.raises(ConfigError, match="memory_horizon = 1: expected 2 steps or more, or 0"):
        validate(override(Config(), {"id": "x", "memory": "gru", "memory_horizon": 1}))


def test_refresh_memory_needs_several_sequences_per_rollout():
    settings = {"id": "x", "memory": "gru", "refresh_memory": True}
    with pytest.raises(ConfigError, match="refresh_memory has no effect if a sequence is the whole rollout of 128 steps"):
        validate(override(Config(), settings))
    assert validate(override(Config(), {**settings, "sequence_length": 64})).ppo.refresh_memory
    assert validate(override(Config(), {**settings, "recompute_advantage": True})).ppo.refresh_memory
    once = {**settings, "sequence_length": 64, "num_epochs": 1}
    with pytest.raises(ConfigError, match="refresh_memory has no effect with num_epochs = 1"):
        validate(override(Config(), once))
    assert validate(override(Config(), {**once, "learner_lag": 1})).ppo.refresh_memory


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("verbose", "learn and train show a bar"),
        ("policy_kwargs", "give its entries as settings"),
        ("shared_lstm", "is called towers here"),
        ("batch_size", "called minibatch_size here"),
        ("stochastic", "take --stochastic"),
    ],
)
def test_setting_name_of_another_library_raises_with_the_equivalent(name, said):
    with pytest.raises(ConfigError, match=rf"^Unknown setting '{name}': .*{said}"):
        c.override(c.Config(), {name: 1})
