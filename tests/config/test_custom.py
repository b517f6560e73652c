"""Networks and losses of the user's in runs: kept by name, found again, given again, never imported for a stranger."""

import inspect
from pathlib import Path

import pytest

import proximo
from commands import BATCH, SMALL, copied, final_state, trained
from proximo.cli import main
from proximo.custom_code import is_of_library
from proximo.errors import CheckpointError, ConfigError
from proximo.publish import pull, push
from proximo.storage import run_directory

import custom_networks as networks

CUSTOM = {"encoder": networks.Encoder, "memory": networks.Memory, "objective": networks.simple_policy_optimization}
NAMES = {name: f"custom_networks:{code.__name__}" for name, code in CUSTOM.items()}
WITHOUT = {"hidden_sizes": (64, 64), "memory_size": 128}
"""What networks of proximo's have, at its default."""


def local_encoder(key, space):
    return networks.Encoder(key, space)


local_encoder.__qualname__ = "somewhere.<locals>.local_encoder"


def run_of(runs_dir, name, **settings):
    """The run of a small training by objects, which a command line cannot give."""
    given = {**SMALL, **WITHOUT, **settings, "runs_dir": str(runs_dir), "name": name}
    [result] = proximo.train(config=proximo.make_config("proximo:PocMemory", given, preset=False))
    return result.run_dir


@pytest.fixture(scope="module")
def by_object(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("runs"), "object", sequence_length=4, **CUSTOM)


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("runs"), "lost", encoder=local_encoder, eval_episodes=0)


def test_name_trains_to_the_same_bits_as_the_object(by_object, tmp_path):
    config = run_directory.read_config(by_object)
    assert {name: getattr(config.network, name, getattr(config.ppo, name, None)) for name in NAMES} == NAMES
    by_name = trained(tmp_path, "name", "proximo:PocMemory", sequence_length=4, hidden_sizes="64,64", **NAMES)
    assert final_state(by_name) == final_state(by_object)


def test_run_with_custom_networks_resumes_to_the_same_bits(by_object, tmp_path):
    class Stop:
        def on_evaluation(self, result):
            return result.step >= 10 * BATCH

    settings = {**SMALL, **WITHOUT, **CUSTOM, "sequence_length": 4, "runs_dir": str(tmp_path), "name": "half"}
    [half] = proximo.train(config=proximo.make_config("proximo:PocMemory", settings, preset=False), callbacks=[Stop()])
    assert half.stopped
    proximo.resume(half.run_dir)
    assert final_state(half.run_dir) == final_state(by_object)


def test_object_without_a_name_must_be_given_again(lost, tmp_path):
    with pytest.raises(ConfigError, match=r"^encoder = <test_custom.somewhere.local_encoder> was an object.*pass it again"):
        proximo.load_policy(lost)
    policy = proximo.load_policy(lost, encoder=local_encoder)
    assert policy.actor_critic.custom_part("encoder").layers
    assert proximo.load(lost, encoder=local_encoder).step == SMALL["total_steps"]
    more = copied(lost, tmp_path / "more")
    proximo.resume(more, encoder=local_encoder, total_steps=SMALL["total_steps"] + BATCH)
    with pytest.raises(ConfigError, match=r"this run has no custom object there, critic is auto"):
        proximo.load_policy(lost, critic=networks.Critic)
    with pytest.raises(ConfigError, match=r"there is no setting 'encodr' \(did you mean 'encoder'\?\)"):
        proximo.load_policy(lost, encodr=networks.Encoder)
    with pytest.raises(CheckpointError):  # another network than that of the run
        proximo.load_policy(lost, encoder=lambda key, space: networks.Actor(key, space.size, 3))


def test_resume_cannot_drop_custom_code(by_object, lost, tmp_path):
    """The run stays as it was, whatever was tried."""
    run = copied(by_object, tmp_path)
    before = (run / "config.yaml").read_bytes()
    more = str(SMALL["total_steps"] + BATCH)
    for flag, value in (("--encoder", "mlp"), ("--objective", "clip"), ("--objective", "custom_networks:no_loss")):
        assert main(["train", "--resume", str(run), "--total-steps", more, flag, value]) == 2
    with pytest.raises(ConfigError, match="objective cannot change when a run is resumed"):
        proximo.resume(run, objective=networks.no_loss, total_steps=int(more))
    assert (run / "config.yaml").read_bytes() == before
    with pytest.raises(ConfigError, match=r"encoder = mlp: this run was trained with <.*> and continues with it: leave it out"):
        proximo.load_policy(lost, encoder="mlp")


def test_pull_of_custom_code_requires_trust(by_object, tmp_path):
    push(by_object, tmp_path / "out", episodes=2)
    said = (tmp_path / "out" / "README.md").read_text()
    assert "The encoder `custom_networks:Encoder` is code that this folder does not contain" in said
    untrusted = r"the encoder 'custom_networks:Encoder', .*: modules to import from your Python path.*--trust-code"
    with pytest.raises(ConfigError, match=untrusted):
        pull(tmp_path / "out", runs_dir=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
    pulled = pull(tmp_path / "out", runs_dir=str(tmp_path / "runs"), trust_code=True)
    assert proximo.load_policy(pulled).actor_critic.is_recurrent


def test_preset_drops_settings_that_custom_networks_replace():
    """The preset has a memory, its size, and a limit for the gradient of the value function alone."""
    config = proximo.make_config("gymnax:CartPoleNoVel-v1", {"actor_critic": networks.WholeWithMemory})
    assert (config.network.memory, config.sequence_length > 1, config.ppo.critic_max_grad_norm) == ("none", True, 0.0)
    assert proximo.make_config("gymnax:CartPoleNoVel-v1", {"memory": networks.Memory}).network.memory_size == 128
    with pytest.raises(ConfigError, match=r"^memory_size = 64 has no effect with memory = custom_networks:Memory"):
        proximo.make_config("gymnax:CartPoleNoVel-v1", {"memory": networks.Memory, "memory_size": 64})


PACKAGE = Path(inspect.getsourcefile(proximo)).parent


@pytest.mark.parametrize(
    ("file", "expected"),
    [("/home/me/.local/lib/python3.11/site-packages/theirs/env.py", True), ("/usr/lib/python3/dist-packages/theirs.py", True),
     (f"{PACKAGE}/agent.py", True), ("<frozen importlib._bootstrap>", True), (None, True), (f"{PACKAGE}_envs/maze.py", False),
     ("/home/me/site-packages.py", False), ("<ipython-input-1>", False)],
)  # fmt: skip
def test_code_of_installed_packages_is_told_from_the_users(file, expected):
    assert is_of_library(file) is expected
