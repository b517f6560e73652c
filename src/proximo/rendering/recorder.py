"""``Recorder``: writes frames into a file. ``gif.py`` and ``video.py`` implement it."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from proximo.errors import ProximoError

MIN_PIXELS = 400
"""Small frames are enlarged by the largest whole factor with which the longer side has at most this many pixels."""


class VideoError(ProximoError):
    """A video cannot be written."""


class Recorder(abc.ABC):
    """Writes frames into a file, one by one. Frames that differ in size from the first one are resized to it."""

    def __init__(self, path: Path, fps: float):
        self.path, self.fps = path, fps
        self._size: tuple[int, int] | None = None
        """(height, width), known after the first frame."""

    def add(self, frame: np.ndarray) -> np.ndarray:
        """Append a frame, uint8 [height, width, 3], and return it as it was written."""
        frame = fitted(frame, self._size)
        self._size = (frame.shape[0], frame.shape[1])
        with worded_errors(self.path):
            self._write(frame)
        return frame

    @abc.abstractmethod
    def _write(self, frame: np.ndarray) -> None:
        """Append a frame of the size of the file."""

    @abc.abstractmethod
    def close(self) -> None:
        """Complete the file, which gets its name only now. Without a frame there is no file."""

    @abc.abstractmethod
    def drop(self) -> None:
        """Leave no file."""


def videos(run_dir: Path) -> Path:
    """The folder of the videos of a run."""
    return run_dir / "videos"


def fitted(frame: np.ndarray, size: tuple[int, int] | None = None) -> np.ndarray:
    """``frame`` in the ``size`` (height, width) of its file, contiguous. By default this is the size of ``frame``, enlarged if it is
    small, with even sides, because h264 requires these."""
    height, width = frame.shape[:2]
    if size is None:
        factor = max(1, MIN_PIXELS // max(height, width))
        size = tuple(side * factor + side * factor % 2 for side in (height, width))
    factor = min(size[0] // height, size[1] // width)
    if factor >= 1 and size[0] - factor * height <= 1 and size[1] - factor * width <= 1:
        large = frame.repeat(factor, axis=0).repeat(factor, axis=1) if factor > 1 else frame
        missing = ((0, size[0] - large.shape[0]), (0, size[1] - large.shape[1]), (0, 0))
        return np.pad(large, missing, mode="edge") if any(after for _, after in missing) else np.ascontiguousarray(large)
    from PIL import Image

    return np.array(Image.fromarray(frame).resize((size[1], size[0])))


@contextlib.contextmanager
def worded_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into a ``VideoError`` that names ``path`` and the reason."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split("\n")[-1].split()) or type(error).__name__
        raise VideoError(f"Cannot write {path} ({reason}): choose another --out.") from error
