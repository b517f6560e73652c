"""Frames into an animated gif, by Pillow."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from proximo.run.frames import fitted, hidden, told


class Gif:
    """An animated gif, played for ever. Equal frames that follow each other become one that is shown for longer."""

    def __init__(self, path: Path, fps: float):
        self.path, self.fps = path, fps
        self._frames: list[Any] = []
        self._size: tuple[int, int] | None = None

    def add(self, frame: np.ndarray) -> np.ndarray:
        frame = fitted(frame, self._size)
        self._size = (frame.shape[0], frame.shape[1])
        self._frames.append(_with_palette(frame))
        return frame

    def close(self) -> None:
        unfinished = hidden(self.path)
        with told(self.path):
            if self._frames:
                unfinished.write_bytes(_gif(self._frames, self.fps))
                os.replace(unfinished, self.path)

    def drop(self) -> None:
        self._frames.clear()


def _with_palette(frame: np.ndarray) -> Any:
    from PIL import Image

    return Image.fromarray(frame).quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def _gif(frames: list[Any], fps: float) -> bytes:
    # A gif counts hundredths of a second, and browsers play what is faster than two of them slowly.
    milliseconds = max(20, round(100 / fps) * 10)
    data = io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], duration=milliseconds, loop=0)
    return data.getvalue()


def gif_of(frames: list[np.ndarray], fps: float) -> bytes:
    """An animated gif of ``frames`` in memory."""
    return _gif([_with_palette(frame) for frame in frames], fps)
