"""Environments are made without the messages of their libraries. `.ci/extras` does so with the libraries themselves."""

import pickle
import sys
import types
import warnings

import pytest

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
