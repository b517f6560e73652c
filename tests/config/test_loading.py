"""Where a setting comes from: default < preset < file < flag; and what a resumed run may change."""

import pytest
import yaml

from proximo.config import GROUPS, LEAVES, Config, override, presets, to_mapping
from proximo.config.loading import END_NOTE, RESUMABLE, changed_for_resume, read_file, shortened
from proximo.errors import ConfigError, EnvError
from proximo.settings import make_config

ENV = "gymnax:CartPole-v1"


@pytest.fixture
def tuned(monkeypatch):
    """A preset that sets two values."""
    preset = {"provenance": "made up", "ppo": {"gamma": 0.5, "gae_lambda": 0.5}, "env": {"num_envs": 4}}
    monkeypatch.setattr(presets, "load", lambda env_id: preset | {} if env_id == ENV else None)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("provenance: mine\nppo: {gae_lambda: 0.6, vf_coef: 0.6}\n")
    return path


def test_flag_beats_file_beats_preset_beats_default(tuned, file):
    ppo = make_config(ENV, {"vf_coef": "0.7"}, file).ppo
    assert (ppo.gamma, ppo.gae_lambda, ppo.vf_coef, ppo.clip_value_eps) == (0.5, 0.6, 0.7, Config().ppo.clip_value_eps)


def test_values_without_a_preset_are_the_defaults(tuned, file):
    assert make_config(ENV, {}, file, preset=False).ppo.gamma == Config().ppo.gamma
    assert make_config("proximo:PocMemory", {}, file, preset=False).env.num_envs == Config().env.num_envs


@pytest.mark.parametrize("content", ["ppo: {gamma: 0.5}", "- a list"])
def test_an_id_with_a_path_reads_no_file_there(tmp_path, content):
    (tmp_path / "MyEnv.yaml").write_text(content)
    assert presets.load(f"{tmp_path}:MyEnv") is None
    with pytest.raises(EnvError, match=r"^Unknown environment '.*:MyEnv': no library or module '.*' is on Python's path"):
        make_config(f"{tmp_path}:MyEnv")


def test_environment_of_the_file_selects_the_preset(tuned, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(f"env: {{id: '{ENV}'}}")
    assert make_config(file=path).ppo.gamma == 0.5
    # A flag's environment wins over the file's, and so does its preset.
    assert make_config("proximo:PocMemory", {}, path).ppo.gamma == Config().ppo.gamma


def test_updates_and_minibatch_size_are_converted_with_the_final_sizes(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("ppo: {total_updates: 10, minibatch_size: 64}\n")
    config = make_config(ENV, {"num_envs": 8, "num_steps": 32}, path)
    assert (config.ppo.total_steps, config.ppo.num_minibatches, config.total_updates) == (2560, 4, 10)
    assert not {"total_updates", "minibatch_size"} & {name for group in to_mapping(config).values() for name in group}
    assert make_config(ENV, {"total_updates": 0, "total_steps": 4096}).ppo.total_steps == 4096
    later = make_config(ENV, {"num_envs": 8, "num_steps": 32, "total_steps": 512, "num_minibatches": 2}, path)
    assert (later.ppo.total_steps, later.ppo.num_minibatches) == (512, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"total_updates": 3, "total_steps": 4096}, r"^total_updates = 3 and total_steps = 4096: give one of them\.$"),
        ({"minibatch_size": "64", "num_minibatches": 2}, r"^minibatch_size = '64' and num_minibatches = 2: give one of them\.$"),
        ({"minibatch_size": 100}, r"^minibatch_size = 100: expected a divisor of the 1024 steps of a rollout \(num_envs 8 × num_steps 128\)\.$"),
        ({"minibatch_size": 8, "memory": "gru", "sequence_length": 16}, r" and a multiple of sequence_length = 16\.$"),
    ],
)  # fmt: skip
def test_alternatives_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_config("toys:RandomEnds", settings, preset=False)


def test_a_resumed_run_may_be_extended_by_updates():
    config = make_config("toys:RandomEnds", {"total_updates": 2})
    assert changed_for_resume(config, {"total_updates": 3}).total_updates == 3


@pytest.mark.parametrize(
    ("env_id", "settings", "expected"),
    [
        ("ALE/Pong-v5", {}, ("atari", 4)),
        ("PongNoFrameskip-v4", {"preprocessing": "atari"}, ("atari", 4)),
        ("ale_py:PongNoFrameskip-v4", {"frame_stack": "1"}, ("atari", 1)),
        ("ALE/Pong-v5", {"preprocessing": "none"}, ("none", 1)),
        ("ale:pong", {}, ("none", 1)),  # preprocessed by ALE
        ("CartPole-v1", {}, ("none", 1)),
    ],
)
@pytest.mark.parametrize("preset", [True, False])
def test_atari_ids_have_the_standard_preprocessing_by_default(env_id, settings, expected, preset):
    env = make_config(env_id, settings, preset=preset).env
    assert (env.preprocessing, env.frame_stack) == expected


def test_file_may_switch_off_the_preprocessing_of_an_atari_id(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("env: {id: ALE/Pong-v5, preprocessing: none}")
    assert make_config(file=path).env.frame_stack == 1


def test_preset_keeps_the_settings_of_a_critic_with_adamw(monkeypatch):
    preset = {"ppo": {"optimizer": "adamw", "weight_decay": 0.1}}
    monkeypatch.setattr(presets, "load", lambda env_id: preset | {} if env_id == ENV else None)
    assert make_config(ENV, {"optimizer": "adam"}).ppo.weight_decay == 0
    assert make_config(ENV, {"optimizer": "adam", "critic_optimizer": "adamw"}).ppo.weight_decay == 0.1


PATTERNS = (
    "ale:pong",
    "ALE/Pong-v5",
    "ale_py:ALE/Pong-v5",
    "PongNoFrameskip-v4",
    "minigrid:MultiRoom-N4-S5",
    "playground:CheetahRun",
)


@pytest.mark.parametrize("env_id", [*presets.names(), *PATTERNS])
def test_every_preset_is_valid_and_has_provenance(env_id):
    config = make_config(env_id)
    assert config.env.id == env_id
    assert config.total_updates * config.batch_size > 0.9 * config.ppo.total_steps
    preset = presets.load(env_id)
    assert preset["provenance"]
    assert set(preset) <= {*GROUPS, "provenance", "memories"}
    assert {"normalize_observation", "normalize_reward"} <= set(preset["ppo"])


def test_family_of_presets_has_exceptions_and_yields_to_a_preset_of_one_environment():
    half_cheetah, swimmer = presets.load("HalfCheetah-v5"), presets.load("Swimmer-v5")
    assert swimmer["provenance"].startswith("Tianshou")
    assert swimmer["ppo"]["gamma"] == 0.9999 != half_cheetah["ppo"].get("gamma")
    assert swimmer["ppo"]["normalize_reward"] is half_cheetah["ppo"]["normalize_reward"] is True
    assert presets.load("minigrid:MemoryS9")["network"]["memory"] == "gtrxl"
    assert presets.load("minigrid:Empty-5x5")["env"]["env_settings"] == {"view": 7}
    assert [name for name in ("Unknown-v5", "ale:", "minigrid") if presets.has_preset(name)] == ["ale:"]
    for name in ("gymnasium:CartPole-v1", "gymnasium:HalfCheetah-v5"):
        assert presets.has_preset(name)
        assert presets.load(name) == presets.load(name.removeprefix("gymnasium:"))
    assert presets.load("Unknown-v5") is None


def test_preset_has_settings_for_another_memory(tmp_path):
    env_id = "craftax:Craftax-Symbolic-v1"
    gru, none, gtrxl, lstm = (
        make_config(env_id, **kind) for kind in ({}, {"memory": "none"}, {"memory": "gtrxl"}, {"memory": "lstm"})
    )
    assert (gru.network.memory, gru.network.towers, gru.network.head_sizes) == ("gru", "shared", (512, 512))
    assert (none.network.memory, none.network.towers, none.network.hidden_sizes) == ("none", "separate", (512, 512, 512))
    assert (gtrxl.ppo.gamma, gtrxl.ppo.num_steps, gtrxl.network.memory_window) == (0.999, 128, 128)
    assert gtrxl.ppo.learning_rate == gru.ppo.learning_rate, "the other settings are those of the preset"
    assert override(lstm, {"memory": "gru"}) == gru
    assert make_config(env_id, memory="none", activation="relu").network.activation == "relu", "a given setting overrides it"
    for memory, settings in presets.load(env_id)["memories"].items():
        assert settings["provenance"], memory
    file = tmp_path / "file.yaml"
    file.write_text("network: {memory: gtrxl}")
    assert make_config(env_id, file=file) == gtrxl


def test_envpool_has_gymnasiums_presets_except_those_for_single_environments():
    for name in ("LunarLander-v3", "Hopper-v5"):
        assert presets.load(f"envpool:{name}") == presets.load(name)
    for env_id in ("envpool:LunarLander-v3", "envpool:Pong-v5"):
        assert presets.has_preset(env_id)
    for env_id in ("envpool:HalfCheetah-v5", "envpool:CarRacing-v3", "envpool:Unknown-v5", "other:Hopper-v5"):
        assert presets.load(env_id) is None
        assert not presets.has_preset(env_id)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("- 1", "expected groups of settings .*, found list"),
        ("7", "found int"),
        ("ppo: 3", "under 'ppo' expected settings as name: value, found 3"),
        ("ppo: {gama: 1}", r"Unknown setting 'gama' under 'ppo' in .*did you mean 'gamma'"),
        (
            "ppo: {learning_rate: linear(1e-3, 0)}",
            r"Unknown setting '0\)' under 'ppo' in .*: in braces of YAML, a schedule needs quotation marks",
        ),
        ("pppo: {}", r"unknown group 'pppo' \(did you mean 'ppo'\?\)"),
        ("gamma: 1", "gamma is at the top level; it belongs under `ppo:`"),
        ("env: {gamma: 1}", "gamma is under `env:`; it belongs under `ppo:`"),
        (f"{END_NOTE}\nppo: {{gamma: 0.9}}\n", "settings.yaml is damaged: its end is missing, expected '# end of config.yaml'"),
        ("ppo: {gamma: high}", "gamma = 'high': expected a number"),
        ("ppo: {num_epochs: 1.5}", "num_epochs = 1.5: expected a whole number"),
        (
            "network: {memory: gruu}",
            r"memory = 'gruu': expected one of none, gru, lstm, mingru, lru, gtrxl, or custom code: .*\(did you mean 'gru'\?\)",
        ),
        ("ppo: [", "is not valid YAML"),
        ("\udcff", "is not valid YAML"),
        (None, "Cannot read --config .*No such file"),
    ],
)
def test_wrong_content_of_a_file_raises(tmp_path, content, words):
    path = tmp_path / "settings.yaml"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=words):
        make_config(ENV, {}, path)


def test_folder_as_config_file_raises(tmp_path):
    with pytest.raises(ConfigError, match=r"Cannot read --config .*Is a directory"):
        read_file(tmp_path)


def test_empty_file_changes_nothing(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    assert make_config(ENV, {}, tmp_path / "empty.yaml") == make_config(ENV)


def test_smoke_test_changes_only_the_length():
    config = make_config(ENV, {"num_envs": 4, "num_steps": 8, "num_minibatches": 1})
    short, whole = to_mapping(shortened(config)), to_mapping(config)
    assert short["ppo"].pop("total_steps") == 3 * 32
    assert [short["run"].pop(name) for name in ("eval_episodes", "eval_every", "eval_max_steps")] == [2, 3 * 32, 1000]
    del whole["ppo"]["total_steps"]
    for name in ("eval_episodes", "eval_every", "eval_max_steps"):
        del whole["run"][name]
    assert short == whole
    off = make_config(ENV, {"eval_episodes": 0})
    assert shortened(off).run.eval_episodes == 0


def test_resume_may_change_only_resumable_settings():
    config = make_config(ENV)
    changed = changed_for_resume(config, {"total_steps": "2e6", "keep_checkpoints": 5})
    assert (changed.ppo.total_steps, changed.run.keep_checkpoints) == (2_000_000, 5)
    for name in set(LEAVES) - RESUMABLE:
        what = "The environment" if name == "id" else name
        with pytest.raises(ConfigError, match=f"^{what} cannot change when a run is resumed"):
            changed_for_resume(config, {name: LEAVES[name].default})
    assert changed_for_resume(config, {"id": ENV}).env.id == ENV
    with pytest.raises(ConfigError, match="clip_range is called clip_eps here"):
        changed_for_resume(config, {"clip_range": 1})


def test_repeated_name_in_a_file_raises(tmp_path):
    (tmp_path / "a.yaml").write_text("env: {id: toys:RandomEnds}\nppo:\n  gamma: 0.9\n  gamma: 0.8\n")
    with pytest.raises(ConfigError, match=r"a.yaml is not valid YAML: gamma is given 2 times"):
        make_config(file=tmp_path / "a.yaml")


def test_wrong_value_in_a_file_raises_with_its_name(tmp_path):
    (tmp_path / "a.yaml").write_text("env: {id: toys:RandomEnds}\nppo: {gamma: abc}\n")
    with pytest.raises(ConfigError, match=r"a.yaml: gamma = 'abc': expected a number"):
        make_config(file=str(tmp_path / "a.yaml"))


def test_env_settings_extend_those_of_the_preset(monkeypatch):
    monkeypatch.setattr(presets, "load", lambda env_id: {"env": {"env_settings": {"levels": "train", "view": 3}}})
    assert make_config(ENV, {"env_settings": "view=5,image=true"}).env.env_settings == {
        "levels": "train",
        "view": 5,
        "image": True,
    }
    assert make_config(ENV, {"env_settings": {}}).env.env_settings == {}


def test_saved_settings_are_not_extended_by_a_newer_preset(monkeypatch, tmp_path):
    config = make_config(ENV, {"env_settings": "view=5"})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(to_mapping(config)))
    monkeypatch.setattr(presets, "load", lambda env_id: {"env": {"env_settings": {"levels": "train", "view": 3}}})
    assert make_config(file=path) == config
    assert make_config(file=path, settings={"env_settings": "image=true"}).env.env_settings == {"view": 5, "image": True}


@pytest.mark.parametrize("memory", ["none", "lru", "gtrxl"])
def test_another_memory_drops_settings_of_the_presets_memory(monkeypatch, tmp_path, memory):
    network = {"memory": "gru", "memory_horizon": 16, "memory_size": 48}
    size = 48 if memory != "none" else Config().network.memory_size
    monkeypatch.setattr(presets, "load", lambda env_id: {"network": dict(network), "ppo": {"burn_in": 2, "gamma": 0.5}})
    config = make_config(ENV, {"memory": memory})
    assert (config.network.memory, config.network.memory_horizon, config.network.memory_size) == (memory, 0, size)
    assert (config.ppo.burn_in, config.ppo.gamma) == (0 if memory == "none" else 2, 0.5)
    path = tmp_path / "settings.yaml"
    path.write_text(f"network: {{memory: {memory}}}")
    assert make_config(ENV, {}, path) == config
    assert make_config(ENV, {"memory": "lstm"}).network.memory_horizon == 16
    with pytest.raises(ConfigError, match="memory_horizon = 8 needs memory = gru or lstm"):  # asked for, not tuned: an error
        make_config(ENV, {"memory": memory, "memory_horizon": 8})
