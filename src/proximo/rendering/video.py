"""Video files: MP4, encoded by the ffmpeg that imageio-ffmpeg brings, and the choice of a format by the name of a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from proximo.rendering.gif import Gif
from proximo.rendering.recorder import Recorder, VideoError, worded_errors

FORMATS = (".mp4", ".gif")


class Mp4(Recorder):
    """H.264 in yuv420p, which every browser and phone plays. A process of ffmpeg encodes the frames as they come.

    imageio would write the same file, but ignores it if ffmpeg fails, and forks this process, which can hang because of JAX's threads
    (decision 0014).
    """

    def __init__(self, path: Path, fps: float, threads: int = 0):
        super().__init__(path, fps)
        self._threads, self._executable = threads, ffmpeg()
        self._temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def _open(self) -> subprocess.Popen[bytes]:
        assert self._size is not None
        height, width = self._size
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
        target = ["-an", "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"]
        target += ["-threads", str(self._threads), "-movflags", "+faststart"]
        command = [
            self._executable,
            "-y",
            "-loglevel",
            "error",
            *source,
            *target,
            f"file:{self._temporary}",
        ]  # a name may have a colon
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read after the process has ended)
        # A new session, so that Ctrl-C does not reach ffmpeg. No Python runs between fork and exec: threads of JAX could make it hang.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True
        )

    def _write(self, frame: np.ndarray) -> None:
        self._process = self._process or self._open()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame.tobytes())
        except BrokenPipeError:
            self._wait()
            raise

    def _wait(self) -> None:
        """Wait for ffmpeg to end. Raises ``VideoError`` with its error message if it has failed."""
        process, errors = self._process, self._errors
        assert process is not None and process.stdin is not None and errors is not None  # noqa: PT018
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


def make_recorder(path: Path, fps: float) -> Recorder:
    """A recorder for a file that ends in ``.mp4`` or ``.gif``; its folder is created. Raises ``VideoError`` if the ending is
    unknown, the folder cannot be created, or there is no ffmpeg for an MP4."""
    if path.suffix.lower() not in FORMATS:
        raise VideoError(f"{path}: expected a name that ends in {' or '.join(FORMATS)}.")
    with worded_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return Mp4(path, fps) if path.suffix.lower() == ".mp4" else Gif(path, fps)


@contextlib.contextmanager
def recording(path: Path, fps: float) -> Iterator[Recorder]:
    """Context manager: ``make_recorder``, which completes the file, or leaves no file after an exception."""
    recorder = make_recorder(path, fps)
    try:
        yield recorder
        recorder.close()
    except BaseException:
        recorder.drop()
        raise


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
