"""Drawing without a display: MuJoCo draws by EGL or OSMesa by itself, and an error names what to install."""

import os
import sys

import pytest

from proximo.errors import EnvError
from proximo.rendering import window

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have a display")


@pytest.fixture
def headless_mujoco(monkeypatch):
    """A process without a display that has imported MuJoCo. Calling the fixture sets which of its backends work."""
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})
    monkeypatch.setitem(sys.modules, "mujoco", sys)

    def works(*backends):
        tried = []
        monkeypatch.setattr(window, "mujoco_draws", lambda backend: tried.append(backend) or backend in backends)
        return tried

    return works


@pytest.mark.parametrize(
    ("works", "variables", "chosen", "tries"),
    [
        (("egl", "osmesa"), {}, "egl", 1),
        (("osmesa",), {}, "osmesa", 2),
        ((), {"MUJOCO_GL": "glfw"}, "glfw", 0),
        ((), {"DISPLAY": ":0"}, None, 0),
    ],
)
def test_mujoco_draws_by_the_first_backend_that_works_unless_the_user_chose(headless_mujoco, works, variables, chosen, tries):
    tried = headless_mujoco(*works)
    os.environ.update(variables)
    for _ in range(2):
        window.prepare_drawing("HalfCheetah-v5")
        assert (os.environ.get("MUJOCO_GL"), len(tried)) == (chosen, tries), "it is tried once"


def test_error_without_a_backend_names_the_variable_and_the_packages(headless_mujoco, monkeypatch):
    tried = headless_mujoco()
    with pytest.raises(EnvError, match=r"HalfCheetah-v5 cannot be drawn: .*`apt install libegl1 .*libosmesa6`.*MUJOCO_GL"):
        window.prepare_drawing("HalfCheetah-v5")
    tried.clear()
    monkeypatch.delitem(sys.modules, "mujoco")
    window.prepare_drawing("CartPole-v1")
    assert (tried, os.environ["SDL_VIDEODRIVER"]) == ([], "dummy")
