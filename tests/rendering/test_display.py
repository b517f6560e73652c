"""Drawing without a display: MuJoCo draws by EGL or OSMesa by itself, and an error names what to install."""

import os
import sys

import pytest

from proximo.errors import EnvError
from proximo.rendering import display

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have a display")


@pytest.fixture
def headless_mujoco(monkeypatch):
    """A process without a display that has imported MuJoCo. Calling the fixture sets which of its backends work."""
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})
    monkeypatch.setitem(sys.modules, "mujoco", sys)

    def works(*backends):
        tried = []
        monkeypatch.setattr(display, "mujoco_draws", lambda backend: tried.append(backend) or backend in backends)
        return tried

    return works


@pytest.mark.parametrize(("works", "chosen"), [(("egl", "osmesa"), "egl"), (("osmesa",), "osmesa")])
def test_mujoco_draws_by_the_first_backend_that_works(headless_mujoco, works, chosen):
    tried = headless_mujoco(*works)
    display.prepare_drawing("HalfCheetah-v5")
    assert os.environ["MUJOCO_GL"] == chosen
    before = list(tried)
    display.prepare_drawing("HalfCheetah-v5")
    assert tried == before, "it is tried once"


def test_error_without_a_backend_names_the_variable_and_the_packages(headless_mujoco):
    headless_mujoco()
    with pytest.raises(EnvError, match=r"HalfCheetah-v5 cannot be drawn: .*`apt install libegl1 .*libosmesa6`.*MUJOCO_GL"):
        display.prepare_drawing("HalfCheetah-v5")


@pytest.mark.parametrize("variables", [{"MUJOCO_GL": "glfw"}, {"DISPLAY": ":0"}])
def test_choice_of_the_user_and_a_display_are_kept(headless_mujoco, variables):
    tried = headless_mujoco()
    os.environ.update(variables)
    display.prepare_drawing("HalfCheetah-v5")
    assert (tried, os.environ.get("MUJOCO_GL")) == ([], variables.get("MUJOCO_GL"))


def test_other_environments_do_not_try_mujoco(headless_mujoco, monkeypatch):
    tried = headless_mujoco()
    monkeypatch.delitem(sys.modules, "mujoco")
    display.prepare_drawing("CartPole-v1")
    assert (tried, os.environ["SDL_VIDEODRIVER"]) == ([], "dummy")
