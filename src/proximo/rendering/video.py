"""Video files: MP4, encoded by the ffmpeg that imageio-ffmpeg brings, and the choice of a format by the name of a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from proximo.rendering.frames import VideoError, fitted, unfinished, worded_errors
from proximo.rendering.gif import Gif

FORMATS = (".mp4", ".gif")


class Recorder(Protocol):
    """Writes frames into a file, one by one. Frames that differ in size from the first one are resized to it."""

    def add(self, frame: np.ndarray) -> np.ndarray:
        """Append a frame, uint8 [height, width, 3], and return it as it was written."""
        ...

    def close(self) -> None:
        """Complete the file, which gets its name only now."""
        ...

    def drop(self) -> None:
        """Leave no file."""
        ...


class Mp4:
    """H.264 in yuv420p, which every browser and phone plays. A process of ffmpeg encodes the frames as they come.

    imageio would write the same file, but ignores it if ffmpeg fails, and forks this process in a way that can hang beside the threads of
    JAX (decision 0014).
    """

    def __init__(self, path: Path, fps: float, threads: int = 0):
        self.path, self.fps, self.threads = path, fps, threads
        self.size: tuple[int, int] | None = None
        """(height, width), known after the first frame."""
        self._executable = ffmpeg()
        self._temporary = unfinished(path)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def _open(self) -> subprocess.Popen[bytes]:
        assert self.size is not None
        height, width = self.size
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
        target = ["-an", "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"]
        target += ["-threads", str(self.threads), "-movflags", "+faststart"]
        command = [self._executable, "-y", "-loglevel", "error", *source, *target, str(self._temporary)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read after the process has ended)
        # A new session, so that Ctrl-C does not reach ffmpeg. No Python runs between fork and exec: threads of JAX could make it hang.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True
        )

    def add(self, frame: np.ndarray) -> np.ndarray:
        frame = fitted(frame, self.size)
        self.size = (frame.shape[0], frame.shape[1])
        with worded_errors(self.path):
            self._process = self._process or self._open()
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(frame.tobytes())
            except BrokenPipeError:
                self._wait()
                raise
        return frame

    def _wait(self) -> None:
        """Wait for ffmpeg to end. Raises ``VideoError`` with its error message if it has failed."""
        process, errors = self._process, self._errors
        assert process is not None
        assert process.stdin is not None
        assert errors is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if process.wait():
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
            reason = next(
                (line for line in lines if "No space left" in line), lines[-1]
            )  # the last line does not name a full disk
            raise VideoError(f"Cannot write {self.path}: ffmpeg has failed ({reason}).")

    def close(self) -> None:
        if self._process is None:
            return
        with worded_errors(self.path):
            self._wait()
            os.replace(self._temporary, self.path)

    def drop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._temporary.unlink(missing_ok=True)


def recorder(path: Path, fps: float) -> Recorder:
    """A recorder that writes ``path``, in the format that its suffix names.

    Args:
        path: a file that ends in ``.mp4`` or ``.gif``; its folder is created.
        fps: frames per second.

    Raises:
        VideoError: the suffix is unknown, the folder cannot be created, or there is no ffmpeg for an MP4.
    """
    if path.suffix.lower() not in FORMATS:
        raise VideoError(f"{path}: expected a name that ends in {' or '.join(FORMATS)}.")
    with worded_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return Mp4(path, fps) if path.suffix.lower() == ".mp4" else Gif(path, fps)


def ffmpeg() -> str:
    """The path of ffmpeg. Raises ``VideoError`` if there is none."""
    try:
        import imageio_ffmpeg

        executable = shutil.which(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError, OSError):
        executable = None
    if executable is None:
        raise VideoError(
            "No ffmpeg was found to write an MP4: run `pip install imageio-ffmpeg`, which brings one, or set IMAGEIO_FFMPEG_EXE to its path. "
            "--gif needs none."
        )
    return executable
