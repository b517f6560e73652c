"""Frames on their way into a file: their size, the file's name until it is whole, what can go wrong."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from proximo.errors import ProximoError

SMALL = 400
"""Pixels: a smaller picture is enlarged by a whole factor, up to this."""


class VideoError(ProximoError):
    """A video cannot be written."""


def videos(run_dir: Path) -> Path:
    """Where the videos of a run lie."""
    return run_dir / "videos"


def fitted(frame: np.ndarray, size: tuple[int, int] | None = None) -> np.ndarray:
    """``frame`` in the (height, width) that a file has: even, as h264 wants it, and enlarged where it is small. Without ``size`` the one
    that is right for it."""
    height, width = frame.shape[:2]
    if size is None:
        factor = max(1, SMALL // max(height, width))
        size = tuple(side * factor + side * factor % 2 for side in (height, width))
    factor = min(size[0] // height, size[1] // width)
    if factor >= 1 and size[0] - factor * height <= 1 and size[1] - factor * width <= 1:
        large = frame.repeat(factor, axis=0).repeat(factor, axis=1) if factor > 1 else frame
        missing = ((0, size[0] - large.shape[0]), (0, size[1] - large.shape[1]), (0, 0))
        return np.pad(large, missing, mode="edge") if any(after for _, after in missing) else np.ascontiguousarray(large)
    from PIL import Image

    return np.array(Image.fromarray(frame).resize((size[1], size[0])))


def hidden(path: Path) -> Path:
    """Where the file is written until it is whole."""
    return path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """A system that does not let us write, or an ffmpeg that fails, as one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split("\n")[-1].split()) or type(error).__name__
        raise VideoError(f"Cannot write {path} ({reason}): choose another --out.") from error
