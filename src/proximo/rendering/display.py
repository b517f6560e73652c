"""Drawing on a machine without a display: what pygame and MuJoCo need for it."""

import os
import subprocess
import sys

from proximo.errors import EnvError

MUJOCO_BACKENDS = ("egl", "osmesa")
"""Values of ``MUJOCO_GL`` that need no display, in the order of trial: on the GPU, on the CPU."""
TRIAL_SECONDS = 60.0


def is_headless() -> bool:
    """Whether this is a Linux process without a display. Other systems always have one."""
    return sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def prepare_drawing(env_id: str) -> None:
    """Prepare this process to draw the Gymnasium environment ``env_id``, which has been made once, without a
    window. pygame looks for no sound card, nor for a missing screen; MuJoCo draws by EGL or OSMesa, unless
    the user has set ``MUJOCO_GL``."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if not is_headless():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "mujoco" in sys.modules and not os.environ.get("MUJOCO_GL"):
        works = next((backend for backend in MUJOCO_BACKENDS if mujoco_draws(backend)), None)
        if works is None:
            raise EnvError(
                f"{env_id} cannot be drawn: this machine has no display, and MuJoCo can draw neither by EGL nor by OSMesa. Install one of them "
                "(on Debian and Ubuntu: `apt install libegl1 libgl1-mesa-dri` or `apt install libosmesa6`), or set MUJOCO_GL to egl, osmesa or "
                "glfw."
            )
        os.environ["MUJOCO_GL"] = works


def mujoco_draws(backend: str) -> bool:
    """Whether MuJoCo can draw by ``backend``. This is tried in another process: a failed attempt would decide
    for this one by which library PyOpenGL draws."""
    trial = (
        f"from mujoco.{backend} import GLContext; context = GLContext(16, 16); context.make_current(); import mujoco; "
        "mujoco.MjrContext(mujoco.MjModel.from_xml_string('<mujoco/>'), mujoco.mjtFontScale.mjFONTSCALE_100)"
    )
    environment, command = {**os.environ, "MUJOCO_GL": backend}, [sys.executable, "-P", "-c", trial]
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=TRIAL_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
