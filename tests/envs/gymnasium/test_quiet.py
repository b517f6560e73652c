"""Environments are made without the messages of their libraries. `.ci/extras` does so with the libraries themselves."""

import pickle
import sys
import types
import warnings

import gymnasium
import numpy as np
import pytest

from proximo import make_env
from proximo.envs.gymnasium.quiet import quiet


def walker(**rendering):
    """An environment of the fake library below, which warns when it is made."""
    sys.modules["mujoco"].handler("compiler attribute 'settotalmass' is deprecated and will be removed in a future release")
    sys.modules["mujoco"].handler("unstable")
    return rendering


def test_only_the_deprecation_of_mujoco_is_silent(monkeypatch):
    mujoco = types.SimpleNamespace(handler=print, get_mju_user_warning=lambda: mujoco.handler)
    mujoco.set_mju_user_warning = lambda handler: setattr(mujoco, "handler", handler)
    monkeypatch.setitem(sys.modules, "mujoco", mujoco)
    make = pickle.loads(pickle.dumps(quiet(walker, "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv")))
    with pytest.warns(RuntimeWarning) as seen:
        assert make(render_mode="rgb_array") == {"render_mode": "rgb_array"}
    assert [str(warning.message) for warning in seen] == ["unstable"]
    assert mujoco.handler is print, "later warnings, of a simulation, are those of MuJoCo"


def test_other_libraries_are_made_as_they_are():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quiet(walker, "my_package:Walker") is walker


class FakePool:
    """A specification or the environments of EnvPool, which make spaces with bounds in float64 when they are needed."""

    def __init__(self, task, **arguments):
        self.config, self.gymnasium_action_space = types.SimpleNamespace(_asdict=dict), gymnasium.spaces.Discrete(2)

    @property
    def gymnasium_observation_space(self):
        bound = np.full(2, 0.1)  # in float64
        return gymnasium.spaces.Box(-bound, bound)

    def reset(self):
        assert self.gymnasium_observation_space.shape == (2,)
        warnings.warn("unstable", stacklevel=1)
        return np.zeros((3, 2), "float32"), {}


def test_envpool_is_silent_about_its_bounds_in_float64(monkeypatch):
    library = types.SimpleNamespace(list_all_envs=lambda: ["Task-v1"], make_spec=FakePool, make=FakePool)
    monkeypatch.setitem(sys.modules, "envpool", library)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        FakePool("Task-v1").reset()
        assert len(seen) == 3
        seen.clear()
        make_env("envpool:Task-v1").make_vector(3).reset(seed=0)
    assert [str(warning.message) for warning in seen] == ["unstable"]
