"""A pygame window that shows frames."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from proximo.rendering.display import is_headless
from proximo.rendering.play import PlayedStep
from proximo.rendering.watching import Subject

HIDDEN_DRIVERS = ("dummy", "offscreen")
MAX_SCREEN = 0.8
"""Largest part of the screen that a window takes."""


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
        """The size of the window: the frame, enlarged if it is small, or reduced so that it fits the screen."""
        height, width = frame.shape[:2]
        room_x, room_y = (MAX_SCREEN * side for side in self._pygame.display.get_desktop_sizes()[0])
        factor = min(room_x / width, room_y / height, max(1, 600 // max(height, width)))
        return round(width * factor), round(height * factor)

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()


def show(subject: Subject, play: Callable[[bool], Iterator[PlayedStep]], fps: float | None = None) -> None:
    """Show the episodes of ``play(window)`` until the user closes the window. Without ``fps``, an environment that can shows itself:
    ``window`` is true then."""
    if fps is None and "human" in getattr(subject.env, "render_modes", ()):
        for _ in play(True):
            pygame = sys.modules.get("pygame")  # Gymnasium's environments ignore that the user closes their window
            if pygame is not None and pygame.display.get_init() and _asked(pygame)[0]:
                break
        return
    with contextlib.closing(Window(fps or subject.fps)) as window:
        for row in play(False):
            frame = row.draw()
            assert frame is not None
            title = f"{subject.config.env.id} · episode {row.episode + 1} · step {row.step} · return {row.episode_return:.2f}"
            window.show(frame, title)
            if window.closed:
                break
