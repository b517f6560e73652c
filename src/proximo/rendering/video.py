"""Video files, MP4 and GIF, encoded by the ffmpeg that imageio-ffmpeg brings."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from proximo.errors import ProximoError

MIN_PIXELS = 400
"""Small frames are enlarged by the largest whole factor with which the longer side has at most this many pixels."""
MAX_GIF_FPS = 50.0
"""Browsers slow down frames that are shorter than two hundredths of a second."""
ENDINGS = (".mp4", ".gif")
H264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
"""Arguments of ffmpeg for an MP4 that every browser and phone plays."""
LOSSLESS = ["-c:v", "libx264rgb", "-preset", "ultrafast", "-qp", "0", "-f", "matroska"]
PALETTE = "[0]palettegen=stats_mode=diff[palette];[1][palette]paletteuse=dither=none"
"""Filter for a GIF: one palette for all frames, of the colors that change. It reads the frames twice, so they are in a lossless file first."""


class VideoError(ProximoError):
    """A video cannot be written."""


class Video:
    """Writes frames into a file, one by one, by a process of ffmpeg. Frames that differ in size from the first one are resized to it.

    imageio would write the same file, but ignores it if ffmpeg fails, and forks this process, which can hang because of JAX's threads
    (decision 0014).

    Args:
        path: the file; its folder is created.
        fps: frames per second.
        threads: threads of ffmpeg; 0: one for each core.
        enlarge: whether small frames are enlarged.

    Raises:
        VideoError: the ending is neither ``.mp4`` nor ``.gif``, the folder cannot be created, or there is no ffmpeg.
    """

    def __init__(self, path: Path, fps: float, threads: int = 0, enlarge: bool = True):
        self._is_gif = path.suffix.lower() == ".gif"
        if path.suffix.lower() not in ENDINGS:
            raise VideoError(f"{path}: expected a name that ends in {' or '.join(ENDINGS)}.")
        with worded_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.fps = path, min(fps, MAX_GIF_FPS) if self._is_gif else fps
        self._threads, self._enlarge, self._executable = threads, enlarge, ffmpeg()
        self._temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
        self._frames = self._temporary.with_suffix(".frames") if self._is_gif else self._temporary
        """The file of the frames as they come."""
        self._size: tuple[int, int] | None = None
        """(height, width), known after the first frame."""
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def add(self, frame: np.ndarray) -> np.ndarray:
        """Append a frame, uint8 [height, width, 3], and return it as it was written."""
        frame = fitted(frame, self._size) if self._enlarge or self._size else np.ascontiguousarray(frame)
        self._size = (frame.shape[0], frame.shape[1])
        with worded_errors(self.path):
            if self._process is None:
                height, width = self._size
                source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
                self._process = self._start([*source, *(LOSSLESS if self._is_gif else H264)], self._frames)
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(frame.tobytes())
            except BrokenPipeError:
                self._wait()
                raise
        return frame

    def _start(self, arguments: list[str], file: Path) -> subprocess.Popen[bytes]:
        """Start ffmpeg, which writes ``file``."""
        target = ["-threads", str(self._threads), f"file:{file}"]  # a name may have a colon
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read after the process has ended)
        # A new session, so that Ctrl-C does not reach ffmpeg. No Python runs between fork and exec: threads of JAX could make it hang.
        return subprocess.Popen(
            [self._executable, "-y", "-loglevel", "error", *arguments, *target],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
        )  # fmt: skip

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
        """Complete the file, which gets its name only now. Without a frame there is no file."""
        if self._process is not None:
            with worded_errors(self.path):
                self._wait()
                if self._is_gif:
                    source = ["-i", f"file:{self._frames}"]
                    self._process = self._start([*source, *source, "-filter_complex", PALETTE, "-f", "gif"], self._temporary)
                    self._wait()
                    self._frames.unlink()
                os.replace(self._temporary, self.path)

    def drop(self) -> None:
        """Leave no file."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for file in (self._temporary, self._frames):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def recording(path: Path, fps: float, enlarge: bool = True, threads: int = 0) -> Iterator[Video]:
    """Context manager: a ``Video``, which is completed, or leaves no file after an exception."""
    video = Video(path, fps, threads, enlarge)
    try:
        yield video
        video.close()
    except BaseException:
        video.drop()
        raise


def gif_of(frames: Iterable[np.ndarray], fps: float) -> bytes:
    """``frames``, uint8 [height, width, 3] each, as the bytes of an animated GIF of their size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frames.gif"
        with recording(path, fps, enlarge=False) as video:
            for frame in frames:
                video.add(frame)
        return path.read_bytes()


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


def ffmpeg() -> str:
    """The path of ffmpeg. Raises ``VideoError`` if there is none."""
    try:
        import imageio_ffmpeg

        executable = shutil.which(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError, OSError):
        executable = None
    if executable is None:
        raise VideoError(
            "No ffmpeg was found to write a video: run `pip install imageio-ffmpeg`, which brings one, or set IMAGEIO_FFMPEG_EXE to its path."
        )
    return executable
