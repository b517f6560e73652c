"""Networks and losses of the user's in runs: kept by name, found again, given again, never imported for a stranger."""

import functools

import pytest

import proximo
from commands import BATCH, SMALL, copied, final_state, trained
from proximo.cli import main
from proximo.errors import CheckpointError, ConfigError
from proximo.publish import pull, push
from proximo.run import directory
from proximo.users_code import is_users_function

import own_networks as own

OWN = {"encoder": own.Encoder, "memory": own.Memory, "objective": own.simple_policy_optimization}
NAMES = {name: f"own_networks:{code.__name__}" for name, code in OWN.items()}
WITHOUT = {"hidden_sizes": (64, 64), "memory_size": 128}
"""What networks of proximo's have, at its default."""


def local_encoder(key, space):
    return own.Encoder(key, space)


local_encoder.__qualname__ = "somewhere.<locals>.local_encoder"


def run_of(runs_dir, name, **settings):
    """The run of a small training by objects, which a command line cannot give."""
    given = {**SMALL, **WITHOUT, **settings, "runs_dir": str(runs_dir), "name": name}
    [result] = proximo.train(config=proximo.make_config("proximo:PocMemory", given, preset=False))
    return result.run_dir


@pytest.fixture(scope="module")
def by_object(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("runs"), "object", sequence_length=4, **OWN)


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("runs"), "lost", encoder=local_encoder)


def test_a_name_trains_to_the_same_bits_as_the_object(by_object, tmp_path):
    config = directory.read_config(by_object)
    assert {name: getattr(config.network, name, getattr(config.ppo, name, None)) for name in NAMES} == NAMES
    by_name = trained(tmp_path, "name", "proximo:PocMemory", sequence_length=4, hidden_sizes="64,64", **NAMES)
    assert final_state(by_name) == final_state(by_object)


def test_verbs_take_a_run_with_networks_of_the_users(by_object, tmp_path, capsys):
    assert main(["eval", str(by_object), "--episodes", "4"]) == 0
    assert main(["export", str(by_object), "--format", "numpy", "--out", str(tmp_path / "out")]) == 0
    assert main(["report", str(by_object), "--out", str(tmp_path / "report.html")]) == 0


def test_a_run_with_networks_of_the_users_is_resumed_to_the_same_bits(by_object, tmp_path):
    class Stop:
        def on_evaluation(self, result):
            return result.step >= 10 * BATCH

    settings = {**SMALL, **WITHOUT, **OWN, "sequence_length": 4, "runs_dir": str(tmp_path), "name": "half"}
    [half] = proximo.train(config=proximo.make_config("proximo:PocMemory", settings, preset=False), callbacks=[Stop()])
    assert half.stopped
    proximo.resume(half.run_dir)
    assert final_state(half.run_dir) == final_state(by_object)


def test_an_object_without_a_name_is_given_again(lost, tmp_path):
    with pytest.raises(ConfigError, match=r"^encoder = <test_own_code.somewhere.local_encoder> was an object.*give it again"):
        proximo.load_policy(lost)
    policy = proximo.load_policy(lost, encoder=local_encoder)
    assert policy.network.own("encoder").layers
    assert proximo.load(lost, encoder=local_encoder).step == SMALL["total_steps"]
    more = copied(lost, tmp_path / "more")
    proximo.resume(more, encoder=local_encoder, total_steps=SMALL["total_steps"] + BATCH)
    with pytest.raises(ConfigError, match=r"this run has no object there, critic is auto"):
        proximo.load_policy(lost, critic=own.Critic)
    with pytest.raises(ConfigError, match=r"there is no setting 'encodr' \(did you mean 'encoder'\?\)"):
        proximo.load_policy(lost, encodr=own.Encoder)


def test_a_resume_cannot_give_up_the_users_code(by_object, lost, tmp_path):
    """The run stays as it was, whatever was tried."""
    run = copied(by_object, tmp_path)
    before = (run / "config.yaml").read_bytes()
    more = str(SMALL["total_steps"] + BATCH)
    assert main(["train", "--resume", str(run), "--total-steps", more, "--encoder", "mlp"]) == 2
    assert main(["train", "--resume", str(run), "--total-steps", more, "--objective", "clip"]) == 2
    assert main(["train", "--resume", str(run), "--total-steps", more, "--objective", "own_networks:no_loss"]) == 2
    with pytest.raises(ConfigError, match="objective cannot change when a run is resumed"):
        proximo.resume(run, objective=own.no_loss, total_steps=int(more))
    assert (run / "config.yaml").read_bytes() == before
    with pytest.raises(ConfigError, match=r"encoder = mlp: this run was trained with <.*>, and goes on with that: leave it out"):
        proximo.load_policy(lost, encoder="mlp")


def test_yaml_that_is_no_word_is_no_code(tmp_path):
    (tmp_path / "my.yaml").write_text("network: {encoder: 2024-01-01}")
    with pytest.raises(ConfigError, match=r"my.yaml: encoder = datetime.*: expected a word, or a name as"):
        proximo.make_config("CartPole-v1", file=tmp_path / "my.yaml")


def test_another_network_than_the_runs_own_does_not_fit(lost):
    with pytest.raises(CheckpointError):
        proximo.load_policy(lost, encoder=lambda key, space: own.Actor(key, space.size, 3))


def test_a_published_policy_names_its_code_and_is_pulled_with_trust_only(by_object, tmp_path):
    push(by_object, tmp_path / "out", episodes=2)
    assert "The encoder `own_networks:Encoder` is code that is not in this folder" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(
        ConfigError, match=r"asks for .*the encoder 'own_networks:Encoder', .*: modules that would be imported .*--trust-code"
    ):
        pull(tmp_path / "out", runs_dir=str(tmp_path / "runs"))
    assert not list((tmp_path / "runs").iterdir())
    pulled = pull(tmp_path / "out", runs_dir=str(tmp_path / "runs"), trust_code=True)
    assert proximo.load_policy(pulled).network.is_recurrent


def test_a_preset_goes_without_what_a_network_of_the_users_replaces():
    """The preset has a memory, its size and layers, and a horizon."""
    config = proximo.make_config("gymnax:CartPoleNoVel-v1", {"actor_critic": own.WholeWithMemory})
    assert (config.network.memory, config.sequence_length > 1) == ("none", True)
    assert proximo.make_config("gymnax:CartPoleNoVel-v1", {"memory": own.Memory}).network.memory_size == 128
    with pytest.raises(ConfigError, match=r"^memory_size = 64 needs memory = gru or .*, not own_networks:Memory"):
        proximo.make_config("gymnax:CartPoleNoVel-v1", {"memory": own.Memory, "memory_size": 64})
    with pytest.raises(
        ConfigError, match=r"^hidden_sizes = 32 means nothing beside encoder = own_networks:Encoder: leave one of them out"
    ):
        proximo.make_config("gymnax:CartPole-v1", {"encoder": own.Encoder, "hidden_sizes": (32,)})


def test_an_agent_with_networks_of_the_users_is_told_at_once_where_they_do_not_fit():
    with pytest.raises(ConfigError, match=r"unroll.* differ by"):
        proximo.PPO("toys:RandomEnds", preset=False, memory=own.ForgetfulDecay)


def test_what_wraps_itself_is_no_function_of_the_users():
    class Loop:
        def __call__(self):
            """Called by nobody."""

        def __getattr__(self, name):
            return self

    assert not is_users_function(Loop())
    assert is_users_function(functools.lru_cache(own.no_loss))
