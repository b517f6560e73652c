"""Frames into an mp4 by ffmpeg, the binary that imageio-ffmpeg brings; and what writes a file by its ending."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from proximo.run.frames import VideoError, fitted, hidden, told
from proximo.run.gif import Gif

FORMATS = (".mp4", ".gif")


class Recorder(Protocol):
    """Takes the frames of a file one by one; they may differ in size from the first, to which they are fitted."""

    def add(self, frame: np.ndarray) -> np.ndarray:
        """Append a frame, uint8 [height, width, 3]; as it stands in the file."""
        ...

    def close(self) -> None:
        """Finish the file, which only then has its name."""
        ...

    def drop(self) -> None:
        """Leave no file."""
        ...


class Mp4:
    """h264 in yuv420p, which every browser and phone plays; ffmpeg runs beside this process."""

    def __init__(self, path: Path, fps: float, threads: int = 0):
        self.path, self.fps, self.threads = path, fps, threads
        self.size: tuple[int, int] | None = None
        """(height, width), known with the first frame."""
        self._executable = ffmpeg()
        self._hidden = hidden(path)
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def _open(self) -> subprocess.Popen[bytes]:
        assert self.size is not None
        height, width = self.size
        # Started without Python between fork and exec, which threads of JAX could make hang, and out of reach of Ctrl-C.
        given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
        wanted = ["-an", "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"]
        wanted += ["-threads", str(self.threads), "-movflags", "+faststart"]
        command = [self._executable, "-y", "-loglevel", "error", *given, *wanted, str(self._hidden)]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process has ended)
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._said, start_new_session=True
        )

    def add(self, frame: np.ndarray) -> np.ndarray:
        frame = fitted(frame, self.size)
        self.size = (frame.shape[0], frame.shape[1])
        with told(self.path):
            self._process = self._process or self._open()
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(frame.tobytes())
            except BrokenPipeError:
                self._end()
                raise
        return frame

    def _end(self) -> None:
        """Wait for ffmpeg; raise ``VideoError`` with its last words where it has failed."""
        process, said = self._process, self._said
        assert process is not None
        assert process.stdin is not None
        assert said is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if process.wait():
            said.seek(0)
            words = said.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
            reason = next(
                (line for line in words if "No space left" in line), words[-1]
            )  # the last line does not name a full disk
            raise VideoError(f"Cannot write {self.path}: ffmpeg has failed ({reason}).")

    def close(self) -> None:
        if self._process is None:
            return
        with told(self.path):
            self._end()
            os.replace(self._hidden, self.path)

    def drop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._hidden.unlink(missing_ok=True)


def recorder(path: Path, fps: float) -> Recorder:
    """What writes ``path``, whose ending says the format. Raises ``VideoError`` where it cannot be written."""
    if path.suffix.lower() not in FORMATS:
        raise VideoError(f"{path}: expected a name that ends in {' or '.join(FORMATS)}.")
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return Mp4(path, fps) if path.suffix.lower() == ".mp4" else Gif(path, fps)


def ffmpeg() -> str:
    """The path of ffmpeg. Raises ``VideoError`` where there is none."""
    try:
        import imageio_ffmpeg

        executable = shutil.which(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError, OSError):
        executable = None
    if executable is None:
        raise VideoError(
            "No ffmpeg was found to write an mp4 with: pip install imageio-ffmpeg, which brings one, or set IMAGEIO_FFMPEG_EXE to its path; "
            "--gif does without."
        )
    return executable
