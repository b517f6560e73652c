"""``Clip``: a video of episodes in memory, which a notebook displays."""

from __future__ import annotations

import base64
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proximo.errors import ConfigError
from proximo.rendering.video import recording, worded_errors
from proximo.rendering.watching import Subject, record


@dataclass(frozen=True)
class Clip:
    """A video of some episodes. A notebook displays it; ``save`` writes it to a file."""

    video: bytes = field(repr=False)
    """The content of an MP4 file (H.264)."""
    episodes: list[dict[str, Any]]
    """``{return, length, success, ended}`` of each episode. ``success`` is None if the environment does not report it, and ``ended`` is
    ``terminated``, ``truncated`` or ``cut``."""
    frames: int
    """Number of frames."""
    fps: float
    """Frames per second."""

    def save(self, path: str | Path) -> Path:
        """Write the video.

        Args:
            path: the file, which ends in ``.mp4``. Its folder is created.

        Returns:
            The path.

        Raises:
            ConfigError: ``path`` does not end in ``.mp4``.
            VideoError: the file cannot be written.
        """
        path = Path(path)
        if path.suffix.lower() != ".mp4":
            raise ConfigError(f"{path}: expected a name that ends in .mp4. agent.watch(path) also writes a .gif.")
        with worded_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.video)
        return path

    def __repr__(self) -> str:
        returns = ", ".join(f"{episode['return']:.4g}" for episode in self.episodes)
        return f"Clip(returns [{returns}], {self.frames} frames, {self.fps:g} per second)"

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.video).decode()
        return f'<video controls autoplay loop muted style="max-width: 100%" src="data:video/mp4;base64,{data}"></video>'


def make_clip(subject: Subject, episodes: int, seed: int, max_steps: int | None, fps: float | None) -> Clip:
    """Record ``episodes`` episodes of ``subject``; the arguments are those of ``PPO.render``. Raises ``EnvError`` if it cannot be drawn, and
    ``VideoError`` if there is no ffmpeg."""
    fps = fps or subject.fps
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        with recording(path, fps) as recorder:
            frames, played = record(subject, recorder, episodes, seed, max_steps)
        return Clip(path.read_bytes(), played, frames, fps)
