"""Ids of other libraries and of earlier versions are answered with the id to use here."""

import gymnasium
import pytest

from proximo.envs import listing, make_env, other_ids
from proximo.envs.registry import check_id
from proximo.errors import EnvError

ANSWERS = {
    "HalfCheetah-v2": "use 'HalfCheetah-v5', which has a preset. Gymnasium's page of the task says how the versions differ.",
    "Pusher-v4": "use 'Pusher-v5'",
    "MiniGrid-MemoryS9-v0": "use 'minigrid:MemoryS9', the same task",
    "MiniGrid-MultiRoom-N4-S5-v1": "use 'minigrid:MultiRoom-N4-S5-v1', the same task",
    "CartPole-Masked-v1": "CartPole with hidden velocities is 'CartPoleNoVel-v1' here",
    "PocMemoryEnv": "it is 'proximo:PocMemory' here",
    "Minigrid": "name one of its tasks, for example 'minigrid:MemoryS9'",
    "MemoryGym": "for example 'memory-gym:MysteryPath-Grid'",
    "procgen:procgen-coinrun-v0": "EnvPool has its games, for example 'envpool:CoinrunEasy-v0'",
    "dm_control/cartpole-balance-v0": "use MuJoCo Playground, for example 'playground:CartpoleBalance', or EnvPool, for example 'envpool:",
    "./reacher.py:Tank": "expected the name of a module instead of a file: 'reacher:Tank'.",
    "robots/reacher.py:Tank": "'robots.reacher:Tank'.",
    "../reacher.py:Tank": "'reacher:Tank', in the folder '..'.",
    "my_package.module.MyEnv": "expected a colon after the name of the module: 'my_package.module:MyEnv'.",
}


@pytest.mark.parametrize("env_id", ANSWERS)
@pytest.mark.parametrize("function", [make_env, check_id])
def test_an_id_from_elsewhere_is_answered(env_id, function):
    with pytest.raises(EnvError) as raised:
        function(env_id)
    assert str(raised.value).startswith(f"{env_id} cannot be made: ")
    assert ANSWERS[env_id] in str(raised.value)


def test_answers_name_environments_that_exist():
    assert all(f"{task}-v5" in gymnasium.registry for task in other_ids.MUJOCO)
    ids = {i for group in listing().values() for i in group}
    assert {"CartPoleNoVel-v1", "proximo:PocMemory"} <= ids
    for library, env_id in (("minigrid", "minigrid:MemoryS9"), ("envpool", "envpool:CoinrunEasy-v0")):
        assert env_id in ids or not [i for i in ids if i.startswith(f"{library}:")]


def test_earlier_version_that_can_be_made_is_a_warning_only():
    """Published results of version 4 can be repeated."""
    assert other_ids.answer("Hopper-v4") is None
    assert other_ids.newer_version("Hopper-v4").startswith("use 'Hopper-v5', which has a preset.")
    assert other_ids.newer_version("Hopper-v5") is None


def test_cause_precedes_the_hint():
    """An installed Shimmy registers the ids of the DeepMind Control Suite, which may then fail."""
    env_id = "dm_control/cartpole-balance-v0"

    def broken(**arguments):
        raise AttributeError("no flex_vertedge")

    gymnasium.register(env_id, broken)
    try:
        check_id(env_id)
        with pytest.raises(
            EnvError, match=rf"^{env_id} cannot be made: .*AttributeError: no flex_vertedge.*; for tasks of the Deep"
        ):
            make_env(env_id)
    finally:
        del gymnasium.registry[env_id]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "CartPoleNoVel-v1", "gymnax:CartPole-v1", "toys:RandomEnds", "gym_toys:Walk"])
def test_a_known_id_passes_without_an_environment(env_id, monkeypatch):
    monkeypatch.setattr("gymnasium.make", lambda *_, **__: pytest.fail("made"))
    check_id(env_id)
