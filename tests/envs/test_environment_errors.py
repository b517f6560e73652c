"""Environments that cannot be made: each is answered by one sentence."""

import sys
import textwrap
from unittest import mock

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs import Preprocessing, listing, make_env, unknown_ids
from proximo.envs.custom import as_jax_environment
from proximo.envs.libraries import check_type, is_installed
from proximo.envs.registry import check_id
from proximo.errors import ConfigError, EnvError, ProximoError
from proximo.spaces import Box, Discrete

import gym_toys
import toys


def returns_nothing():
    toys.RandomEnds()


def needs_size(size):
    return toys.RandomEnds()


def fail(self):
    raise RuntimeError("no screen\n\nand more")


Spaceless = type("Spaceless", (), {name: vars(gym_toys.Unbased)[name] for name in ("reset", "step")})
Unsized = type("Unsized", (gym.vector.VectorEnv,), {"__init__": lambda self: None})
Failing = type("Failing", (toys.RandomEnds,), {"__init__": fail})


UNKNOWN = [
    ("gymnasium.wrappers:RescaleAction", r"cannot be made: missing a required argument: 'env'; give a wrapper as --wrapper gymnasium"),
    ("test_environment_errors:needs_size",
     r"cannot be made: missing a required argument: 'size'; set it with --env-settings, or give it a default\.$"),
    ("pocmem", r"\(did you mean 'proximo:PocMemory'\?\): expected an id that `proximo envs` lists, or my_package.module:MyEnv\.$"),
    ("MultiAgent", r"Unknown environment 'MultiAgent': expected Gymnasium's NAME-v1, gymnax:NAME"),
    ("", r"Unknown environment ''.*expected Gymnasium's NAME-v1"),
    ("FetchReach-v4", r"^Unknown environment 'FetchReach-v4'(?!.*Reacher)"),
    ("toys:Walk-v0", r"the module 'toys' registers no environments: name one of its classes"),
    ("no-such-module:A-v0", r"\(did you mean 'no_such_module:A-v0'\?\): no library or module 'no-such-module' is installed"),
    ("Pendulum-v2", r"\(did you mean 'Pendulum-v1'\?\)"),
    ("gymnx:Thermo", r"^Unknown environment 'gymnx:Thermo': no library or module 'gymnx'"),
    ("gymnx:CartPole-v1", r"Unknown environment 'gymnx:CartPole-v1' \(did you mean 'gymnax:CartPole-v1'\?\)"),
    ("gymnax:CartPoleNoVel-v0", r"\(did you mean 'CartPoleNoVel-v1'\?\)"),
    ("gymnax:CartPol-v1", r"gymnax has no environment 'CartPol-v1' \(did you mean 'CartPole-v1'\?\)"),
    ("ale:brekout", r"ale has no environment 'brekout' \(did you mean 'breakout'\?\)"),
    ("toys:RandomEnd", r"Module 'toys' has no class 'RandomEnd' \(did you mean 'RandomEnds'\?\)"),
    ("no_such.module:Env", r"Unknown environment .*no library or module 'no_such.module'"),
    ("a b:Grid", "Unknown environment"),
    (".foo:Bar", r"no library or module '.foo'"),
    ("json:loads", r"'json' is a part of Python or a program, which settings must not import"),
    ("venv.__main__:X-v0", r"'venv.__main__' is a part of Python or a program"),
    ("numpy:zeros", r"'numpy:zeros' is builtin_function_or_method: expected the class"),
    ("numpy:ndarray", r"'numpy:ndarray' is a class without reset and step: expected the class of a JAX or Gymnasium environment"),
    ("test_environment_errors:Spaceless", r"Spaceless has no observation_space: define it"),
    ("test_environment_errors:returns_nothing", r"test_environment_errors:returns_nothing is None: it lacks observation_space"),
    ("test_environment_errors:Unsized", r"Unsized cannot be made: got an unexpected keyword argument 'num_envs'; add this argument to the VectorEnv\.$"),
    ("test_environment_errors:Failing", r"^Making test_environment_errors:Failing raised RuntimeError: no screen \(test_environment_errors.py, line \d+\)"),
]  # fmt: skip
ANSWERED = [
    ("HalfCheetah-v2", r"use 'HalfCheetah-v5'. Gymnasium's page of the task shows how the versions differ."),
    ("Pusher-v4", r"use 'Pusher-v5'"),
    ("MiniGrid-MemoryS9-v0", r"use 'minigrid:MemoryS9', the same task"),
    ("MiniGrid-MultiRoom-N4-S5-v1", r"use 'minigrid:MultiRoom-N4-S5-v1', the same task"),
    ("CartPole-Masked-v1", r"CartPole with hidden velocities is 'CartPoleNoVel-v1' here"),
    ("PocMemoryEnv", r"it is 'proximo:PocMemory' here"),
    ("Minigrid", r"name one of its tasks, for example 'minigrid:MemoryS9'"),
    ("MemoryGym", r"for example 'memory-gym:MysteryPath-Grid'"),
    ("procgen:procgen-coinrun-v0", r"EnvPool has its games, for example 'envpool:CoinrunEasy-v0'"),
    ("dm_control/cartpole-balance-v0", r"use MuJoCo Playground, for example 'playground:CartpoleBalance', or EnvPool"),
    ("./reacher.py:Tank", r"expected the name of a module instead of a file: 'reacher:Tank'\."),
    ("robots/reacher.py:Tank", r"'robots.reacher:Tank'\."),
    ("../reacher.py:Tank", r"'reacher:Tank', in the folder '\.\.'\."),
    ("my_package.module.MyEnv", r"expected a colon after the name of the module: 'my_package.module:MyEnv'\."),
]
SETTINGS = [
    *(("proximo:PocMemory", {"max_steps": value}, r"env_settings: max_steps = .*: expected a whole number") for value in (2.7, True, [1], "many")),
    *(("proximo:RepeatPrevious", {name: value}, "expected a lag of 1") for name, value in (("lag", 0), ("symbols", 1), ("max_steps", 4))),
    ("gymnax:Pendulum-v1", {"max_torqe": 1.0}, r"gymnax:Pendulum-v1 has no parameter 'max_torqe' \(did you mean 'max_torque'\?\)"),
    ("Pendulum-v1", {"gravitation": 0.0}, r"Pendulum-v1 has no parameter 'gravitation'; it has render_mode, g"),
    *(row for row in [("envpool:CartPole-v1", {"max_steps": 3}, r"envpool:CartPole-v1 has no parameter 'max_steps'")] if is_installed("envpool")),
    ("ale:pong", {"noops": 3}, r"ale:pong has no parameter 'noops'.*it has .*noop_max"),
    ("minigrid:MemoryS9", {"view": 4}, "odd number"),
    ("minigrid:MemoryS9", {"actions": 8}, "1 … 7"),
    ("minigrid:MemoryS9", {"levels": "traim"}, "train"),
    ("minigrid:MemoryS9", {"vew": 3}, "view"),
    ("minigrid:MemoryS9", {"image": 1}, "image = 1: expected true or false"),
    ("minigrid:MemoryS9", {"levels": 3}, "levels = 3: expected text"),
    ("minigrid:MemoryS9", {"new_cell_bonus": -0.1}, "0 or more"),
    ("minigrid:MemoryS9", {"new_cell_bonus": float("inf")}, "new_cell_bonus = inf: expected a finite number"),
    ("minigrid:Empty-5x5", {"levels": "held_out"}, r"levels = held_out: none of 1000 levels .* use all"),
]  # fmt: skip
PREPROCESSED = [
    ("CartPole-v1", {}, {"preprocessing": "atari"}, "CartPole-v1 is not an Atari game"),
    ("ALE/Pong-v5", {"obs_type": "ram"}, {"preprocessing": "atari"}, r"ALE/Pong-v5 observes the memory of the game \(obs_type\): set preprocessing"),
    ("ale:pong", {}, {"levels": "0:5"}, r"ale:pong is a vector environment: preprocessing, frame_stack, .* need single environments"),
    ("gym_toys:Parts", {}, {"frame_stack": 2}, r"frame_stack: the observations of gym_toys:Parts are Dict.*: expected a Box"),
    ("CartPole-v1", {}, {"life_loss": True}, r"life_loss = true: CartPole-v1 does not report lives in its info"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("env_id", "settings", "preprocessing", "sentence"),
    [
        *((env_id, {}, {}, sentence) for env_id, sentence in UNKNOWN),
        *((env_id, settings, {}, sentence) for env_id, settings, sentence in SETTINGS),
        *PREPROCESSED,
    ],
)
def test_an_environment_that_cannot_be_made_raises_its_sentence(env_id, settings, preprocessing, sentence):
    with pytest.raises(ProximoError, match=sentence):
        make_env(env_id, settings, Preprocessing(**preprocessing))


@pytest.mark.parametrize("default", [np.zeros(2), (0.0, 1.0), None])
def test_text_is_refused_for_a_parameter_that_is_no_text(default):
    with pytest.raises(ConfigError, match=r"^env_settings: goal = '0\.5': expected a number or true/false\.$"):
        check_type("goal", "0.5", default)


@pytest.mark.parametrize(("env_id", "sentence"), ANSWERED)
def test_an_id_from_elsewhere_is_answered_before_an_environment_is_made(env_id, sentence):
    with pytest.raises(EnvError, match=rf"^{env_id} cannot be made: .*{sentence}"):
        check_id(env_id)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "CartPoleNoVel-v1", "gymnax:CartPole-v1", "toys:RandomEnds", "gym_toys:Walk"])
def test_a_known_id_passes_without_an_environment(env_id, monkeypatch):
    monkeypatch.setattr("gymnasium.make", lambda *_, **__: pytest.fail("made"))
    check_id(env_id)


def test_answers_name_environments_that_exist_and_an_earlier_version_that_can_be_made_is_a_warning_only():
    """Published results of version 4 can be repeated."""
    assert all(f"{task}-v5" in gym.registry for task in unknown_ids.MUJOCO)
    ids = {i for group in listing().values() for i in group}
    assert {"CartPoleNoVel-v1", "proximo:PocMemory"} <= ids
    for library, env_id in (("minigrid", "minigrid:MemoryS9"), ("envpool", "envpool:CoinrunEasy-v0")):
        assert env_id in ids or not [i for i in ids if i.startswith(f"{library}:")]
    assert unknown_ids.elsewhere("Hopper-v4") is None
    assert unknown_ids.newer_version("Hopper-v4").startswith("use 'Hopper-v5'.")
    assert unknown_ids.newer_version("Hopper-v5") is None


@mock.patch.dict(gym.registry)
def test_cause_precedes_the_hint():
    """An installed Shimmy registers the ids of the DeepMind Control Suite, which may then fail."""
    env_id = "dm_control/cartpole-balance-v0"

    def broken(**arguments):
        raise AttributeError("no flex_vertedge")

    gym.register(env_id, broken)
    check_id(env_id)
    with pytest.raises(EnvError, match=rf"^{env_id} cannot be made: .*AttributeError: no flex_vertedge.*; for tasks of the Deep"):
        make_env(env_id)


@mock.patch.dict(gym.registry)
def test_misspelled_id_of_a_package_names_one_that_it_registers(tmp_path, monkeypatch):
    code = """
        import functools, gymnasium
        gymnasium.register("yard/Crane-v1", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
        gymnasium.register("yard/Crane-v2", entry_point="robot_yard:Crane")
        for suffix in ("", "Dense"):
            gymnasium.register(f"Lift{suffix}-v3", entry_point="robot_yard:Lift")
        gymnasium.register("Winch-v1", entry_point=functools.partial(lambda: None))
    """
    (tmp_path / "robot_yard.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    crane = "yard/Crane-v2"
    for env_id, typed in (("Crane-v1", crane), ("Crain-v2", crane), ("LiftDens-v3", "LiftDense-v3"), ("Wench-v1", "Winch-v1")):
        with pytest.raises(EnvError, match=rf"\(did you mean 'robot_yard:{typed}'\?\): expected an id that robot_yard registers"):
            make_env(f"robot_yard:{env_id}")
    sys.modules.pop("robot_yard", None)


BROKEN = [("import nowhere", "ModuleNotFound"), ("raise ValueError", "ValueError"), ("def f(:", "SyntaxError")]


@pytest.mark.parametrize("find", ["module:Grid", "module:Grid-v0"])
@pytest.mark.parametrize(("code", "error"), BROKEN)
def test_error_in_a_package_raises_one_sentence(tmp_path, monkeypatch, code, error, find):
    """And not that the package does not exist: of ids of Gymnasium's registry, too, which it may register."""
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package" / "__init__.py").write_text(code)
    (tmp_path / "broken_package" / "module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvError, match=rf"Importing broken_package(.module)? raised {error}.*__init__.py, line 1"):
        make_env(f"broken_package.{find}")


def test_an_unsupported_space_raises_with_its_name():
    class Spoken:
        observation_space, action_space = Box((1,)), "left or right"
        reset = step = staticmethod(lambda *_: jnp.zeros(1))

    with pytest.raises(EnvError, match=r"The action space 'left or right' is not supported"):
        as_jax_environment(Spoken(), "spoken")
    with pytest.raises(EnvError, match=r"spoken is neither a JAX nor a Gymnasium environment: it lacks action_space, reset"):
        as_jax_environment(type("Silent", (), {"observation_space": Discrete(2)})(), "spoken")
    Spoken.reset = lambda self, key: (key, key)
    with pytest.raises(EnvError, match=r"^spoken\.reset\(key\) does not accept the 2 arguments \(key, params\)\.$"):
        as_jax_environment(Spoken(), "spoken")


def test_missing_extra_is_named(monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] in ("Box2D", "lunar_lander") or n.endswith("lunar_lander")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)  # importing it is an ImportError
    with pytest.raises(EnvError, match=r"LunarLander-v3 needs a library that is not installed: pip install 'proximo\[box2d\]'"):
        make_env("LunarLander-v3")
