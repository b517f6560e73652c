"""Ids of environments, and errors for unknown ids and invalid settings."""

import sys
import textwrap

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs import JaxEnvironment, listing, make_env
from proximo.envs.custom import as_jax_environment, from_class
from proximo.envs.jax.gymnax import names as gymnax_names
from proximo.envs.registry import TWINS, twin
from proximo.errors import ConfigError, EnvError
from proximo.spaces import Box, Discrete


def test_listed_ids_can_be_made():
    ids = listing()
    assert "gymnax:CartPole-v1" in ids["gymnax"]
    assert "proximo:PocMemory" in ids["proximo"]
    for env_id in ("gymnax:CartPole-v1", "gymnax:Pendulum-v1", *ids["proximo"]):
        assert isinstance(make_env(env_id), JaxEnvironment)


def test_settings_of_gymnax_change_its_spaces():
    assert make_env("gymnax:Pendulum-v1", {"max_torque": 8.0}).action_space == Box((1,), -8.0, 8.0)
    assert make_env("gymnax:Pendulum-v1").action_space == Box((1,), -2.0, 2.0)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", r"Unknown environment 'CartPol-v1' \(did you mean 'CartPole-v1'\?\)"),
        (
            "pocmem",
            r"\(did you mean 'proximo:PocMemory'\?\): expected Gymnasium's NAME-v1, .*`proximo envs` lists them\.$",
        ),
        ("toys:Walk-v0", r"the module 'toys' registers no environments: name one of its classes"),
        ("no-such-module:A-v0", r"\(did you mean 'no_such_module:A-v0'\?\): no library or module 'no-such-module' is installed"),
        ("FetchReach-v4", r"^Unknown environment 'FetchReach-v4'(?!.*Reacher)"),
        ("CartPole-v9", r"\(did you mean 'CartPole-v1'\?\)"),
        ("MultiAgent", r"Unknown environment 'MultiAgent': expected Gymnasium's"),
        ("gymnax:CartPoleNoVel-v0", r"\(did you mean 'CartPoleNoVel-v1'\?\)"),
        ("gymnax:CartPol-v1", r"gymnax has no environment 'CartPol-v1' \(did you mean 'CartPole-v1'\?\)"),
        ("proximo:PocMemry", r"proximo has no environment 'PocMemry' \(did you mean 'PocMemory'\?\)"),
        ("gymnx:CartPole-v1", r"Unknown environment 'gymnx:CartPole-v1' \(did you mean 'gymnax:CartPole-v1'\?\)"),
        ("toys:RandomEnd", r"Module 'toys' has no class 'RandomEnd' \(did you mean 'RandomEnds'\?\)"),
        ("no_such.module:Env", r"no library or module 'no_such.module'"),
        ("", r"Unknown environment ''.*expected Gymnasium's NAME-v1, gymnax:NAME"),
        ("json:loads", r"'json' is a part of Python or a program, which settings must not import"),
        ("venv.__main__:X-v0", r"'venv.__main__' is a part of Python or a program"),
        ("numpy:zeros", r"'numpy:zeros' is builtin_function_or_method: expected the class"),
        (
            "numpy:ndarray",
            r"'numpy:ndarray' is a class without reset and step: expected the class of a JAX or Gymnasium environment",
        ),
        ("numpy:pi", r"'numpy:pi' is float: expected the class"),
        (".foo:Bar", r"no library or module '.foo'"),
        ("test_registry:Spaceless", r"Spaceless has no observation_space: define it"),
        ("test_registry:returns_nothing", r"test_registry:returns_nothing returned None: expected an environment"),
        ("test_registry:Unsized", r"Unsized is a VectorEnv whose class has no argument num_envs: add one"),
        ("test_registry:Failing", r"test_registry:Failing\(\) raised RuntimeError: no screen \(test_registry.py, line \d+\)"),
    ],
)
def test_an_unknown_id_raises_with_the_nearest_name(env_id, message):
    with pytest.raises(EnvError, match=message):
        make_env(env_id)


def test_id_of_an_installed_package_is_found_without_its_import(tmp_path, monkeypatch):
    code = """
        import gymnasium
        gymnasium.register("yard/Crane-v1", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
        gymnasium.register("yard/Crane-v2", entry_point="robot_yard:Crane")
        for suffix in ("", "Dense"):
            gymnasium.register(f"Lift{suffix}-v3", entry_point="robot_yard:Lift")
    """
    files = {
        "robot_yard/__init__.py": textwrap.dedent(code),
        "robot_yard-1.dist-info/METADATA": "Name: robot-yard\nVersion: 1\nRequires-Dist: gymnasium>=1\n",
        "robot_yard-1.dist-info/RECORD": "robot_yard/__init__.py,,\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    registered = dict(gym.registry)
    try:
        for env_id, typed in (("Crane-v2", "yard/Crane-v2"), ("yard/Crane-v1", "yard/Crane-v1"), ("Lift-v3", "Lift-v3")):
            with pytest.raises(
                EnvError, match=rf"\(did you mean 'robot_yard:{typed}'\?\): robot_yard registers this id when it is imported"
            ):
                make_env(env_id)
        assert "robot_yard" not in sys.modules
        for env_id, typed in (("Crane-v1", "yard/Crane-v2"), ("Crain-v2", "yard/Crane-v2"), ("LiftDens-v3", "LiftDense-v3")):
            with pytest.raises(
                EnvError, match=rf"\(did you mean 'robot_yard:{typed}'\?\): expected an id that robot_yard registers"
            ):
                make_env(f"robot_yard:{env_id}")
    finally:
        gym.registry.clear()
        gym.registry.update(registered)
        sys.modules.pop("robot_yard", None)


@pytest.mark.parametrize(
    ("env_id", "settings", "message"),
    [
        ("proximo:PocMemory", {"max_step": 3}, r"has no parameter 'max_step' \(did you mean 'max_steps'\?\)"),
        ("proximo:PocMemory", {"max_steps": "many"}, r"max_steps = 'many': expected a whole number"),
        (
            "gymnax:Pendulum-v1",
            {"max_torqe": 1.0},
            r"gymnax:Pendulum-v1 has no parameter 'max_torqe' \(did you mean 'max_torque'\?\)",
        ),
        ("toys:RandomEnds", {"size": 3}, r"toys:RandomEnds has no parameter 'size'"),
    ],
)
def test_an_unknown_environment_setting_raises(env_id, settings, message):
    with pytest.raises(ConfigError, match=message):
        make_env(env_id, settings)


class Minimal:
    """A JAX environment without parameters, and with an argument ``size``."""

    action_space = Discrete(2)

    def __init__(self, size=2):
        self.observation_space = Box((size,))

    def reset(self, key, params):
        return jnp.int32(0), jnp.zeros(self.observation_space.shape)

    def step(self, key, state, action, params):
        return state, jnp.zeros(self.observation_space.shape), 1.0, False, False, {}


def test_settings_are_arguments_of_a_user_environment():
    env = from_class(Minimal, {"size": 5}, "minimal")
    assert env.observation_space == Box((5,))
    assert env.default_params == ()


def test_every_twin_is_an_id_of_both_libraries():
    import gymnasium

    for env_id in TWINS:
        assert env_id in gymnasium.registry
        assert twin(env_id).removeprefix("gymnax:") in gymnax_names()
    assert twin("LunarLander-v3") is None


def test_an_unsupported_space_raises_with_its_name():
    env = Minimal()
    env.action_space = "left or right"
    with pytest.raises(EnvError, match=r"The action space 'left or right' is not supported"):
        as_jax_environment(env, "minimal")


class FrozenEnvironment(eqx.Module):
    """A custom environment as an Equinox module, whose attributes cannot be set."""

    observation_space = Box((1,))
    action_space = Discrete(2)

    def reset(self, key, params):
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key, state, action, params):
        return state, jnp.zeros(1), 1.0, False, False, {}


def test_an_immutable_environment_without_parameters_is_accepted():
    env = from_class(FrozenEnvironment, {}, "frozen")
    assert env.default_params == ()


def rollout_of(env, action, steps):
    params = jax.tree.map(jnp.asarray, env.default_params)

    def run(key):
        state, _ = env.reset(key, params)
        return jax.lax.scan(
            lambda s, k: (lambda r: (r[0], r[1:5]))(env.step(k, s, action, params)), state, jax.random.split(key, steps)
        )[1]

    return [np.asarray(x) for x in jax.jit(run)(jax.random.key(0))]


def test_gymnax_does_not_autoreset_and_its_limit_truncates():
    observation, _, terminated, truncated = rollout_of(make_env("gymnax:MountainCar-v0"), jnp.int32(1), 205)
    assert np.flatnonzero(truncated)[0] == 199
    assert not terminated.any()
    # An autoreset would jump to another start.
    assert np.abs(np.diff(observation[:, 0])).max() < 0.07


def test_gymnax_terminates_where_the_pole_falls():
    _, reward, terminated, truncated = rollout_of(make_env("gymnax:CartPole-v1"), jnp.int32(1), 15)
    assert 5 < np.flatnonzero(terminated)[0] < 15
    assert not truncated.any()
    assert reward[0] == 1.0


def test_a_termination_at_the_time_limit_is_not_truncated():
    _, _, terminated, _ = rollout_of(make_env("gymnax:CartPole-v1"), jnp.int32(1), 15)
    end = int(np.flatnonzero(terminated)[0]) + 1
    at_limit = make_env("gymnax:CartPole-v1", {"max_steps_in_episode": end})
    _, _, terminated, truncated = rollout_of(at_limit, jnp.int32(1), end)
    assert terminated[-1]
    assert not truncated[-1]


def returns_nothing():
    Minimal()


class Spaceless:
    def reset(self, seed=None):
        return np.zeros(2), {}

    def step(self, action):
        return np.zeros(2), 0.0, False, False, {}


class Unsized(gym.vector.VectorEnv):
    def __init__(self):
        pass


class Failing(Minimal):
    def __init__(self):
        raise RuntimeError("no screen\n\nand more")


@pytest.mark.parametrize(
    ("code", "error"), [("def f(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("import nowhere", "ModuleNotFound")]
)
def test_error_in_a_custom_module_raises_one_sentence(tmp_path, monkeypatch, code, error):
    (tmp_path / f"grid_{error.lower()}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvError, match=rf"Importing grid_\w+ raised {error}.*grid_\w+.py, line 1"):
        make_env(f"grid_{error.lower()}:Grid")


@pytest.mark.parametrize("find", ["broken_package.module:Grid", "broken_package:Grid-v0"])
@pytest.mark.parametrize(("code", "error"), [("import nowhere", "ModuleNotFound"), ("raise ValueError('no data')", "ValueError")])
def test_error_in_a_package_raises_one_sentence(tmp_path, monkeypatch, code, error, find):
    """And not that the package does not exist: of ids of Gymnasium's registry, too, which it may register."""
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package" / "__init__.py").write_text(code)
    (tmp_path / "broken_package" / "module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvError, match=rf"Importing broken_package(.module)? raised {error}.*__init__.py, line 1"):
        make_env(find)


@pytest.mark.parametrize("find", ["nowhere.module:Grid", "toys.nowhere:Grid", "toys.nowhere.more:Grid", "a b:Grid"])
def test_a_module_that_does_not_exist_is_unknown(find):
    with pytest.raises(EnvError, match="Unknown environment"):
        make_env(find)


@pytest.mark.parametrize("value", [2.7, True, None, [1, 2], float("nan")])
def test_a_parameter_accepts_only_values_of_its_type(value):
    with pytest.raises(ConfigError, match=r"env_settings: max_steps = .*: expected a whole number"):
        make_env("proximo:PocMemory", {"max_steps": value})
