"""Animated GIFs, encoded by Pillow."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from proximo.rendering.recorder import Recorder, worded_errors
from proximo.storage.atomic_files import write_atomic

MAX_FPS = 50.0
"""Browsers slow down frames that are shorter than two hundredths of a second."""


class Gif(Recorder):
    """An animated GIF that repeats forever. Equal consecutive frames become one frame that is shown longer."""

    def __init__(self, path: Path, fps: float):
        super().__init__(path, min(fps, MAX_FPS))
        self._frames: list[Any] = []

    def _write(self, frame: np.ndarray) -> None:
        self._frames.append(_with_palette(frame))

    def close(self) -> None:
        if self._frames:
            with worded_errors(self.path):
                write_atomic(self.path, _encode(self._frames, self.fps))

    def drop(self) -> None:
        self._frames.clear()


def _with_palette(frame: np.ndarray) -> Any:
    # With a palette, a waiting frame takes one byte per pixel. This palette gives smaller files than Pillow's default (decision 0014).
    from PIL import Image

    return Image.fromarray(frame).quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def _encode(frames: list[Any], fps: float) -> bytes:
    # A GIF counts hundredths of a second: at 30 frames per second, frames last 30, 40 and 30 ms.
    ends = [10 * round(100 * i / fps) for i in range(len(frames) + 1)]
    milliseconds = [end - start for start, end in itertools.pairwise(ends)]
    data = io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], duration=milliseconds, loop=0)
    return data.getvalue()


def gif_of(frames: list[np.ndarray], fps: float) -> bytes:
    """``frames``, uint8 [height, width, 3] each and of one size, as the bytes of an animated GIF."""
    return _encode([_with_palette(frame) for frame in frames], min(fps, MAX_FPS))
