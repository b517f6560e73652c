"""Layers: default < preset < file < flag; what a higher layer makes meaningless; and what a resumed run may change."""

import dataclasses

import optax
import pytest
import yaml

from proximo.config import GROUPS, LEAVES, Config, override, presets, to_mapping
from proximo.config.coercion import ScheduleText
from proximo.config.loading import RESUMABLE, changed_for_resume, with_given
from proximo.config.schema import BY_NAME
from proximo.errors import ConfigError
from proximo.settings import make_config

ENV = "gymnax:CartPole-v1"


@pytest.fixture
def tune(monkeypatch):
    """Give ``ENV`` this preset, and no other environment one."""

    def change(**groups):
        monkeypatch.setattr(presets, "load", lambda env_id: {"provenance": "made up", **groups} if env_id == ENV else None)

    return change


@pytest.fixture
def file(tmp_path):
    """A function that writes a file of settings."""

    def write(text):
        path = tmp_path / "settings.yaml"
        path.write_bytes(text.encode(errors="surrogateescape"))
        return path

    return write


def test_flag_beats_file_beats_preset_beats_default(tune, file):
    tune(ppo={"gamma": 0.5, "gae_lambda": 0.5}, env={"num_envs": 4})
    path = file(f"provenance: mine\nenv: {{id: '{ENV}'}}\nppo: {{gae_lambda: 0.6, vf_coef: 0.6}}\n")
    for env in (ENV, ""):
        ppo = make_config(env, {"vf_coef": "0.7"}, path).ppo
        assert (ppo.gamma, ppo.gae_lambda, ppo.vf_coef, ppo.clip_value_eps) == (0.5, 0.6, 0.7, Config().ppo.clip_value_eps)
    assert make_config(ENV, {}, path, preset=False).ppo.gamma == Config().ppo.gamma
    assert make_config("proximo:PocMemory", {}, path).ppo.gamma == Config().ppo.gamma, "the flag's environment selects the preset"
    assert make_config(ENV, {}, file("")) == make_config(ENV)


def test_updates_and_minibatch_size_are_converted_with_the_final_sizes(file):
    path = file("ppo: {total_updates: 10, minibatch_size: 64}\n")
    config = make_config(ENV, {"num_envs": 8, "num_steps": 32}, path)
    assert (config.ppo.total_steps, config.ppo.num_minibatches, config.total_updates) == (2560, 4, 10)
    assert not {"total_updates", "minibatch_size"} & {name for group in to_mapping(config).values() for name in group}
    assert make_config(ENV, {"total_updates": 0, "total_steps": 4096}).ppo.total_steps == 4096
    later = make_config(ENV, {"num_envs": 8, "num_steps": 32, "total_steps": 512, "num_minibatches": 2}, path)
    assert (later.ppo.total_steps, later.ppo.num_minibatches) == (512, 2)


@pytest.mark.parametrize(
    ("env_id", "settings", "expected"),
    [
        ("ALE/Pong-v5", {}, ("atari", 4)),
        ("ale_py:PongNoFrameskip-v4", {"frame_stack": "1"}, ("atari", 1)),
        ("ALE/Pong-v5", {"preprocessing": "none"}, ("none", 1)),
        ("ale:pong", {}, ("none", 1)),  # preprocessed by ALE
    ],
)
@pytest.mark.parametrize("preset", [True, False])
def test_atari_ids_have_the_standard_preprocessing_by_default(env_id, settings, expected, preset, file):
    for given in ({"settings": settings}, {"file": file(yaml.safe_dump({"env": settings}))}):
        env = make_config(env_id, preset=preset, **given).env
        assert (env.preprocessing, env.frame_stack) == expected


@pytest.mark.parametrize(
    ("lower", "given", "expected"),
    [
        ({"memory": "gru", "memory_settings": {"horizon": 16}, "memory_size": 48, "burn_in": 2}, {"memory": "none"},
         {"memory_settings.horizon": 0, "memory_size": 128, "burn_in": 0}),
        ({"memory": "gru", "memory_settings": {"horizon": 16, "layers": 2}, "memory_size": 48, "burn_in": 2}, {"memory": "lru"},
         {"memory_settings.horizon": 0, "memory_settings.layers": 2, "memory_size": 48, "burn_in": 2}),
        ({"memory": "gtrxl", "memory_settings": {"window": 16, "heads": 2}}, {"memory": "none"},
         {"memory_settings.window": 32, "memory_settings.heads": 4}),
        ({"memory": "gru", "memory_settings": {"horizon": 16}}, {"memory": "lru", "memory_settings": {"layers": 2}},
         {"memory_settings.horizon": 0, "memory_settings.layers": 2}),
        ({"optimizer": "adamw", "optimizer_settings": {"weight_decay": 0.1, "eps": 1e-8}}, {"optimizer": "adam"},
         {"optimizer_settings.weight_decay": 0, "optimizer_settings.eps": 1e-8}),
        ({"learning_rate": "linear(1e-3, 0)", "max_grad_norm": 1}, {"optimizer": optax.adam(1e-3)},
         {"learning_rate": ScheduleText("3e-4"), "max_grad_norm": 1}),
        ({"towers": "shared", "shared_sizes": [8]}, {"critic_hidden_sizes": "8"}, {"towers": "separate", "shared_sizes": ()}),
        ({"critic_hidden_sizes": [8]}, {"towers": "shared"}, {"critic_hidden_sizes": "same"}),
        ({"state_dependent_std": True, "log_std_init": -1}, {"sde_every": 4}, {"state_dependent_std": False, "log_std_init": -1}),
        ({"log_std_init": -1}, {"distribution": "beta"}, {"log_std_init": 0}),
        ({"memory": "gru", "sequence_length": 8, "refresh_memory": True}, {"num_epochs": 1}, {"refresh_memory": False}),
    ],
)  # fmt: skip
def test_a_higher_layer_drops_what_it_makes_meaningless(tune, file, lower, given, expected):
    """In a preset, and in a file below flags; the same settings together are an error or have no effect."""
    groups = {group: {name: value for name, value in lower.items() if LEAVES[name].group == group} for group in GROUPS}
    tune(**groups)
    config = make_config(ENV, given)
    path = file(yaml.safe_dump(groups))
    tune()
    for found in (config, make_config(ENV, given, path)):
        assert {name: BY_NAME[name].value_in(found) for name in expected} == expected
        assert not [name for name in found.origins if LEAVES[name].value_in(found) == LEAVES[name].default and name in expected]


def test_contradictions_in_one_layer_are_errors_also_under_another_layer(tune, file):
    tune(network={"memory": "gru"})
    with pytest.raises(ConfigError, match=r"memory_settings.horizon = 8 has no effect with memory = lru"):
        make_config(ENV, {"memory": "lru", "memory_settings": {"horizon": 8}})
    with pytest.raises(ConfigError, match=r"privileged = a has no effect with towers = shared"):
        make_config(ENV, {"gamma": 0.9}, file("network: {towers: shared, privileged: a}"))
    with pytest.raises(ConfigError, match=r"memory_size = 64 has no effect with memory = none"):
        with_given(make_config(ENV, {"memory": "gru", "memory_size": 64}), {"memory": "none"})


PATTERNS = ("ale:pong", "ale_py:ALE/Pong-v5", "PongNoFrameskip-v4", "minigrid:MultiRoom-N4-S5", "playground:CheetahRun")


@pytest.mark.parametrize("env_id", [*presets.names(), *PATTERNS])
def test_every_preset_is_valid_and_has_provenance(env_id):
    config = make_config(env_id)
    assert config.env.id == env_id
    assert config.total_updates * config.batch_size > 0.9 * config.ppo.total_steps
    preset = presets.load(env_id)
    assert preset["provenance"]
    assert set(preset) <= {*GROUPS, "provenance", "memories"}
    assert {"normalize_observation", "normalize_reward"} <= set(preset["ppo"])


def test_family_of_presets_has_exceptions_and_yields_to_a_preset_of_one_environment(tmp_path):
    pong, breakout = presets.load("ale:pong"), presets.load("ale:breakout")
    assert pong["provenance"].startswith(f"{breakout['provenance']} Pong has ")
    assert pong["ppo"]["num_epochs"] == 3 != breakout["ppo"]["num_epochs"]
    assert pong["ppo"]["normalize_reward"] is breakout["ppo"]["normalize_reward"] is False
    assert presets.load("minigrid:MemoryS9")["network"]["memory"] == "gtrxl"
    assert [name for name in ("Unknown-v5", "ale:", "minigrid") if presets.load(name)] == ["ale:"]
    for name in ("CartPole-v1", "HalfCheetah-v5"):
        assert presets.load(f"gymnasium:{name}") == presets.load(name) is not None
    for name in ("LunarLanderContinuous-v3", "Swimmer-v5"):
        assert presets.load(f"envpool:{name}") == presets.load(name), (
            "EnvPool has Gymnasium's, except those for single environments"
        )
    assert presets.load("envpool:Pong-v5")
    (tmp_path / "MyEnv.yaml").write_text("ppo: {gamma: 0.5}")
    assert presets.load(f"{tmp_path}:MyEnv") is None, "an id with a path reads no file there"
    for env_id in ("envpool:HalfCheetah-v5", "envpool:CarRacing-v3", "envpool:Unknown-v5", "other:Swimmer-v5"):
        assert presets.load(env_id) is None


def test_preset_has_settings_for_another_memory(file):
    env_id = "craftax:Craftax-Symbolic-v1"
    gru, none, gtrxl, lstm = (make_config(env_id, **kind) for kind in ({}, *({"memory": m} for m in ("none", "gtrxl", "lstm"))))
    assert (gru.network.memory, gru.network.towers, gru.network.head_sizes) == ("gru", "shared", (512, 512))
    assert (none.network.memory, none.network.towers, none.network.hidden_sizes) == ("none", "separate", (512, 512, 512))
    assert (gtrxl.ppo.gamma, gtrxl.ppo.num_steps, gtrxl.network.memory_settings.window) == (0.999, 128, 128)
    assert gtrxl.ppo.learning_rate == gru.ppo.learning_rate, "the other settings are those of the preset"
    assert override(lstm, {"memory": "gru"}) == gru
    assert all(settings["provenance"] for settings in presets.load(env_id)["memories"].values())
    assert make_config(env_id, file=file("network: {memory: gtrxl}")) == gtrxl


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("ppo: [", r"is not valid YAML"),
        ("ppo:\n  gamma: 0.9\n  gamma: 0.8\n", r"settings.yaml is not valid YAML: gamma is given 2 times"),
        ("\udcff", r"is not valid YAML"),
        ("[1]", r"settings.yaml: expected groups of settings \(env, ppo, network, run\), found list"),
        ("pppo: {}", r"unknown group 'pppo' \(did you mean 'ppo'\?\)"),
        ("gamma: 0.9", r"gamma is at the top level; it belongs under `ppo:`"),
        ("ppo: 3", r"under 'ppo' expected settings as name: value, found 3"),
        ("ppo: {gama: 0.9}", r"Unknown setting 'gama' under 'ppo' in .*settings.yaml \(did you mean 'gamma'\?\)"),
        ("ppo: {learning_rate: linear(1e-3, 0)}", r"Unknown setting '0\)' under .*: in braces of YAML, a schedule needs quotation marks"),
        ("env: {gamma: x}", r"settings.yaml: gamma is under `env:`; it belongs under `ppo:`"),
        ("ppo: {gamma: x}", r"settings.yaml: gamma = 'x': expected a number"),
        ("env: {ray: local}", r"Unknown setting 'ray' under 'env' in"),
        (None, r"Cannot read --config .*No such file"),
    ],
)  # fmt: skip
def test_wrong_file_raises_with_its_name_and_the_place(file, tmp_path, content, words):
    with pytest.raises(ConfigError, match=words):
        make_config(ENV, file=tmp_path / "missing.yaml" if content is None else file(content))


def test_resume_may_change_only_resumable_settings():
    config = make_config(ENV)
    changed = changed_for_resume(config, {"total_steps": "2e6", "keep_checkpoints": 5})
    assert (changed.ppo.total_steps, changed.run.keep_checkpoints) == (2_000_000, 5)
    assert changed_for_resume(config, {"total_updates": 3}).total_updates == 3
    for name in set(LEAVES) - RESUMABLE:
        what = "The environment" if name == "id" else name
        with pytest.raises(ConfigError, match=f"^{what} cannot change when a run is resumed"):
            changed_for_resume(config, {name: LEAVES[name].default})
    assert changed_for_resume(config, {"id": ENV}).env.id == ENV
    with pytest.raises(ConfigError, match="clip_range is called clip_eps here"):
        changed_for_resume(config, {"clip_range": 1})
    gymnasium = make_config("CartPole-v1")
    assert changed_for_resume(gymnasium, {"worker_settings.step_timeout": 5}).env.worker_settings.step_timeout == 5
    elsewhere = make_config(ENV, {"eval_env": "gymnax:CartPole-v1", "eval_env_settings": "x=1"})
    with pytest.raises(ConfigError, match=r"^eval_env.* has no effect with eval_episodes = 0"):
        changed_for_resume(elsewhere, {"eval_episodes": 0})  # and it is not dropped: a resume cannot change it


def test_given_entries_extend_those_of_the_preset_and_saved_ones_are_complete(tune, file):
    tune(env={"env_settings": {"levels": "train", "view": 3}})
    config = make_config(ENV, {"env_settings": "view=5,image=true"})
    assert config.env.env_settings == {"levels": "train", "view": 5, "image": True}
    assert make_config(ENV, {"env_settings": {}}).env.env_settings == {}
    path = file(yaml.safe_dump(to_mapping(config)))
    tune(env={"env_settings": {"of a newer version": 1}})
    assert make_config(file=path) == config
    assert make_config(file=path, settings={"env_settings": "image=false"}).env.env_settings["image"] is False


def test_origins_name_the_last_layer_that_gave_a_setting(file):
    path = file("ppo: {gae_lambda: 0.9, gamma: 0.9}")
    config = make_config(ENV, {"gamma": 0.8, "total_updates": 3}, path)
    preset = f"the preset of {ENV}"
    expected = {"gae_lambda": str(path), "gamma": "given", "total_steps": "given", "learning_rate": preset, "ent_coef": None}
    assert {name: config.origins.get(name) for name in expected} == expected
    assert config.started_from == f"{preset}, then {path}"
    assert config.given == {"id": ENV, "gamma": 0.8, "total_updates": 3}
    unset = make_config(ENV, {"total_updates": 0, "minibatch_size": 0})
    assert unset.origins["total_steps"] == unset.origins["num_minibatches"] == preset, "0 leaves the preset's value"
    resumed = changed_for_resume(dataclasses.replace(config, origins={}, given={}), {"total_updates": 5})
    assert (resumed.given, resumed.origins) == ({"total_updates": 5}, {"total_steps": "given"})
