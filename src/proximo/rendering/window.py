"""A window that shows frames, and what pygame and MuJoCo need to draw on a machine without a display."""

import os
import subprocess
import sys
from typing import Any

import numpy as np

from proximo.errors import EnvError

MUJOCO_BACKENDS = ("egl", "osmesa")
"""Values of ``MUJOCO_GL`` that need no display, in the order of trial: on the GPU, on the CPU."""
TRIAL_SECONDS = 60.0
HIDDEN_DRIVERS = ("dummy", "offscreen")
MAX_SCREEN = 0.8
"""Largest part of the screen that a window takes."""


def is_headless() -> bool:
    """Whether this is a Linux process without a display. Other systems always have one."""
    return sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def prepare_pygame() -> None:
    """Have pygame look for no sound card, nor for a missing screen."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if is_headless():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def prepare_drawing(env_id: str) -> None:
    """Prepare this process to draw the Gymnasium environment ``env_id``, which has been made once, without a
    window. MuJoCo draws by EGL or OSMesa, unless the user has set ``MUJOCO_GL``."""
    prepare_pygame()
    if is_headless() and "mujoco" in sys.modules and not os.environ.get("MUJOCO_GL"):
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


def _pygame() -> Any:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    import pygame

    return pygame


def has_display() -> bool:
    """Whether a window can be shown: there is a screen, and SDL can open it."""
    if os.environ.get("SDL_VIDEODRIVER") in HIDDEN_DRIVERS or is_headless():
        return False
    try:
        pygame = _pygame()
        pygame.display.init()
        seen = pygame.display.get_driver() not in HIDDEN_DRIVERS
        pygame.display.quit()
    except Exception:  # no library or no access to the screen: the caller writes a file instead
        return False
    return seen


def _asked(pygame: Any) -> tuple[bool, bool]:
    """Whether the window was closed since the last call, and whether the pause was toggled."""
    closed = toggled = False
    for event in pygame.event.get((pygame.QUIT, pygame.KEYDOWN)):
        key = event.key if event.type == pygame.KEYDOWN else None
        closed |= event.type == pygame.QUIT or key in (pygame.K_ESCAPE, pygame.K_q)
        toggled ^= key == pygame.K_SPACE
    return closed, toggled


def was_closed() -> bool:
    """Whether the user has closed the window that an environment opened by pygame."""
    pygame = sys.modules.get("pygame")
    return pygame is not None and pygame.display.get_init() and _asked(pygame)[0]


class Window:
    """Shows frames at ``fps``. Its button, Escape and q close it; the space bar pauses."""

    def __init__(self, fps: float):
        self.fps, self.closed, self._pygame = fps, False, _pygame()
        self._pygame.display.init()
        self._clock = self._pygame.time.Clock()
        self._screen: Any = None

    def show(self, frame: np.ndarray, title: str) -> None:
        """Show a frame for its duration. Sets ``closed`` if the user closed the window."""
        pygame = self._pygame
        if self._screen is None:
            self._screen = pygame.display.set_mode(self._size(frame), pygame.RESIZABLE)
        pygame.display.set_caption(title)
        pygame.transform.scale(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), self._screen.get_size(), self._screen)
        pygame.display.flip()
        self._clock.tick(self.fps)
        self.closed, paused = _asked(pygame)
        while paused and not self.closed:
            self._clock.tick(20)
            self.closed, toggled = _asked(pygame)
            paused ^= toggled

    def _size(self, frame: np.ndarray) -> tuple[int, int]:
        """The size of the window: the frame, enlarged if it is small, reduced so that it fits the screen."""
        height, width = frame.shape[:2]
        room_x, room_y = (MAX_SCREEN * side for side in self._pygame.display.get_desktop_sizes()[0])
        factor = min(room_x / width, room_y / height, max(1, 600 // max(height, width)))
        return round(width * factor), round(height * factor)

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()
