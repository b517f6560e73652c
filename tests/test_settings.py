"""Settings of environments without a preset: defaults by the kind of environment."""

import dataclasses
import inspect

import gymnasium as gym
import pytest

import proximo
import proximo.envs
from commands import train_words
from proximo.cli import main
from proximo.collect import devices
from proximo.config import Config, override, presets, to_mapping
from proximo.config.loading import Layer
from proximo.config.validation import validate
from proximo.errors import ConfigError, EnvError
from proximo.serialization import dump_yaml
from proximo.settings import make_config, with_defaults
from proximo.spaces import Box
from proximo.training.run_summary import describe_settings

from gym_toys import Countdown
from helpers import small_config
from toys import AnySpaces, ContinuousRandomEnds, RandomEnds

UNIT = Box((1,), -1.0, 1.0)


@pytest.mark.parametrize(
    ("env", "settings", "kind"),
    [("toys:RandomEnds", {}, "discrete"), ("toys:ContinuousRandomEnds", {}, "continuous"), ("gym_toys:Countdown", {"memory": "gru"}, "memory"),
     ("gym_toys:Parts", {"memory": "gru"}, "images"), ("gym_toys:Parts", {"encoder": "mlp"}, "discrete"),
     (ContinuousRandomEnds(), {}, "continuous"), (Countdown, {}, "discrete"), (AnySpaces(Box((12, 12, 2), 0, 255, "uint8"), UNIT), {}, "images")],
)  # fmt: skip
def test_spaces_memory_and_encoder_determine_the_kind(env, settings, kind):
    config = make_config(env, settings) if isinstance(env, str) else proximo.PPO(env).config
    assert config.started_from == f"the defaults for {presets.KINDS[kind]}"
    pairs = {
        name: value for group in presets.load_kind(kind).values() if isinstance(group, dict) for name, value in group.items()
    }
    assert override(config, pairs) == config
    plain = proximo.PPO(Countdown, preset=False, num_steps=16).config
    assert (plain.started_from, plain.ppo.num_epochs) == ("", Config().ppo.num_epochs)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [({}, 32), ({"num_envs": 8}, 256), ({"num_envs": 1}, 2048), ({"num_envs": 24}, 85), ({"num_envs": 512}, 32), ({"num_envs": 8, "num_steps": 16}, 16)],
)  # fmt: skip
def test_rollout_keeps_its_size_if_only_the_number_of_environments_is_given(settings, steps):
    assert make_config("toys:ContinuousRandomEnds", settings).ppo.num_steps == steps


@pytest.mark.parametrize(
    ("settings", "clip_eps"),
    [({}, "0.3"), ({"objective": "spo"}, "0.3"), ({"objective": "clip"}, "0.2"), ({"objective": "kl_penalty", "clip_eps": 0.4}, "0.4")],
)  # fmt: skip
def test_clip_eps_of_a_kind_is_for_its_objective(settings, clip_eps):
    assert str(make_config("toys:ContinuousRandomEnds", settings).ppo.clip_eps) == clip_eps


def test_vector_environments_begin_episodes_themselves():
    one = make_config("toys:ContinuousRandomEnds").env
    several = proximo.PPO(gym.vector.SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 4)).config
    assert (one.num_envs, one.stagger_steps) == (64, 1000)
    assert (several.env.num_envs, several.ppo.num_steps, several.env.stagger_steps) == (4, 512, 0)
    assert several.started_from == "the defaults for continuous control"
    both = dataclasses.replace(proximo.envs.make_env("Pendulum-v1"), make_vector=gym.make_vec)
    assert with_defaults([Layer({"id": "Pendulum-v1"})], both).env.stagger_steps == 0, "its own vector environment is faster"


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 32), ({"num_envs": 3, "num_steps": 7}, 1), ({"memory": "gru", "num_steps": 127}, 2),
        ({"num_envs": 4, "num_steps": 64}, 4),  # minibatches of 64 steps, as in a rollout of the default size
        ({"num_envs": 4, "num_steps": 32, "num_minibatches": 2}, 2), ({"num_envs": 4, "num_steps": 32, "minibatch_size": 32}, 4),
    ],
)  # fmt: skip
def test_number_of_minibatches_fits_the_rollout(settings, count):
    assert make_config("toys:ContinuousRandomEnds", settings).ppo.num_minibatches == count


def test_number_of_minibatches_fits_every_device(monkeypatch):
    monkeypatch.setattr(devices, "available_devices", lambda: [None] * 4)
    settings = {"num_envs": 12, "num_steps": 100, "devices": "all"}
    assert make_config("toys:ContinuousRandomEnds", settings).ppo.num_minibatches == 15  # of 300 steps on each device


@pytest.mark.parametrize("flag", ["--json", "--show-config"])
def test_output_of_an_environment_is_no_part_of_the_answer(flag, capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(RandomEnds, "__init__", lambda self: print("made"), raising=False)
    assert main([*train_words(tmp_path, "r", eval_episodes=1, total_steps=32), flag]) == 0
    assert "made" not in capfd.readouterr().out


def test_saved_settings_and_presets_need_no_environment(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(proximo.envs, "make_env", None)
        assert make_config("HalfCheetah-v5").started_from == "the preset of HalfCheetah-v5"
    saved = validate(override(Config(), {"id": "not_installed:Env"}))
    file = tmp_path / "config.yaml"
    file.write_text(dump_yaml(to_mapping(saved)))
    assert make_config(file=file) == saved
    full = tmp_path / "full.yaml"
    full.write_text(dump_yaml(to_mapping(make_config("CartPole-v1", preset=False))))
    assert make_config(file=full).started_from == str(full), "the preset has no part in a file with all settings"
    part = tmp_path / "part.yaml"
    part.write_text("env: {num_envs: 4}")
    assert make_config("CartPole-v1", file=part).started_from == f"the preset of CartPole-v1, then {part}"
    with pytest.raises(EnvError, match="not_installed"):
        make_config("not_installed:Env")


def test_shown_settings_have_comments_with_origins_and_are_still_a_file(capsys, tmp_path):
    settings = ["--env-settings", "a=1", "--hidden-sizes", "32,16", "--name", "x: # y"]
    assert main(["train", "gymnax:CartPole-v1", *settings, "--show-config", "--runs-dir", str(tmp_path / "runs")]) == 0
    file = tmp_path / "config.yaml"
    file.write_text(capsys.readouterr().out)
    lines = file.read_text().splitlines()
    for line in ("  num_envs: 8  # the preset of gymnax:CartPole-v1", "  hidden_sizes:  # given", "  env_settings:  # given"):
        assert line in lines
    assert "  gae_lambda: 0.95" in lines, "a setting that no layer gave has no comment"
    given = {"env_settings": {"a": 1}, "hidden_sizes": "32,16", "name": "x: # y", "runs_dir": str(tmp_path / "runs")}
    assert make_config(file=file) == make_config("gymnax:CartPole-v1", given)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("env", "preset", "row"),
    [("toys:ContinuousRandomEnds", True, "the defaults for continuous control"), ("CartPole-v1", True, "the preset of CartPole-v1"),
     ("Acrobot-v1", False, "")],
)  # fmt: skip
def test_settings_name_what_they_started_from(env, preset, row):
    given = make_config(env, {"gamma": 0.9, "hidden_sizes": "8,8", "seed": 2}, preset=preset)
    config = override(given, {"seed": 3})  # as several seeds change it
    assert (config.started_from, describe_settings(config.given)) == (row, "gamma 0.9, hidden_sizes 8,8")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: make_config("gymnax:CartPole-v1", "run.yaml"),  # pyright: ignore[reportArgumentType]
         r"^settings = 'run.yaml': expected a dict of settings; a YAML file is file=…\.$"),
        (lambda: make_config("gymnax:CartPole-v1", total_step=5), r"^Unknown setting 'total_step' \(did you mean 'total_steps'\?\)"),
        (lambda: inspect.unwrap(proximo.make_env)(Countdown),  # without the types that tests check
         r"^env_id = <class .*: expected the id of an environment, such as CartPole-v1"),
        (lambda: proximo.PPO("gymnax:CartPole-v1", n_steps=8), r"^Unknown setting 'n_steps': n_steps is called num_steps here\.$"),
        (lambda: proximo.train(config="settings.yaml"),
         r"^config = 'settings\.yaml': expected a Config, which proximo\.make_config makes, also from a file\.$"),
        (lambda: proximo.tune("CartPole-v1", space={"gamma": [0.9, 0.99]}), r"^space = \{.*\}: expected the path of a YAML file\.$"),
        (lambda: proximo.train(config=small_config(), preset=False), r"^preset = False, but config has all settings already"),
    ],
)  # fmt: skip
def test_mistaken_argument_is_one_sentence(call, says):
    with pytest.raises((ConfigError, EnvError), match=says):
        call()
