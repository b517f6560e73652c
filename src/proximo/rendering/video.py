"""Video files, MP4 and GIF, encoded by the ffmpeg that imageio-ffmpeg brings."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np

from proximo.errors import ProximoError, instead_of_os_errors

MIN_PIXELS = 400
"""Small frames are enlarged by the largest whole factor with which no side has more pixels than this."""
MAX_GIF_FPS = 50.0
"""Browsers slow down frames that are shorter than two hundredths of a second."""
ENDINGS = (".mp4", ".gif")
QUIET = ("-y", "-loglevel", "error")
H264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
"""Arguments of ffmpeg for an MP4 that every browser and phone plays."""
LOSSLESS = ["-c:v", "libx264rgb", "-preset", "ultrafast", "-qp", "0", "-f", "matroska"]
THUMBNAIL = 200
"""Most pixels of the longer side of a small GIF."""


class VideoError(ProximoError):
    """A video cannot be written."""


class Video:
    """Writes frames into the file ``path`` by a process of ffmpeg with ``threads`` (0: one for each core).

    imageio would ignore that ffmpeg fails, and forks this process, in which JAX has threads (decision 0014).
    """

    def __init__(self, path: Path, fps: float, threads: int = 0):
        ending = path.suffix.lower()
        if ending not in ENDINGS:
            raise VideoError(f"{path}: expected a name that ends in {' or '.join(ENDINGS)}.")
        self.path, self._is_gif, self._threads = path, ending == ".gif", threads
        self.fps = min(fps, MAX_GIF_FPS) if self._is_gif else fps
        with worded_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read after ffmpeg has ended)
        self._executable = ffmpeg()
        self._temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
        self._frames = self._temporary.with_suffix(".frames") if self._is_gif else self._temporary
        self._shape: tuple[int, ...] | None = None  # of the first frame, to which others are resized
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, frame: np.ndarray) -> None:
        """Append a frame, uint8 [height, width, 3]."""
        self._shape = self._shape or frame.shape
        if frame.shape != self._shape:
            from PIL import Image

            frame = np.array(Image.fromarray(frame).resize((self._shape[1], self._shape[0])))
        with worded_errors(self.path):
            if self._process is None:
                height, width, _ = self._shape
                factor = max(1, MIN_PIXELS // max(height, width))
                # Even sides, because h264 requires these.
                large = ":".join(str(side * factor + side * factor % 2) for side in (width, height))
                source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
                enlarged = ["-vf", f"scale={large}:flags=neighbor,format=rgb24"]
                target = ["-threads", str(self._threads), f"file:{self._frames}"]  # a name may have a colon
                command = [self._executable, *QUIET, *source, *enlarged, *(LOSSLESS if self._is_gif else H264), *target]
                # A new session, so that Ctrl-C does not reach ffmpeg. No Python runs between fork and exec: threads of JAX could make it hang.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True
                )
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(frame.tobytes())
            except BrokenPipeError:
                self._wait(self._process)
                raise

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for ffmpeg to end. Raises ``VideoError`` with its error message if it has failed."""
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if process.wait():
            self._errors.seek(0)
            raise _failed(self.path, self._errors.read())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Complete the file and give it its name. After an exception, or without a frame, no file is written."""
        if self._process is None:
            return
        try:
            if kind is None:
                with worded_errors(self.path):
                    self._wait(self._process)
                    if self._is_gif:
                        _converted(self.path, self._frames, f"file:{self._temporary}")
                    os.replace(self._temporary, self.path)
        finally:
            self._process.kill()
            self._process.wait()
            for file in (self._temporary, self._frames):
                file.unlink(missing_ok=True)


def gif_of(path: Path, stride: int, fps: float) -> bytes:
    """Every ``stride``-th frame of the video ``path``, made smaller, as the bytes of an animated GIF."""
    rate = min(fps, MAX_GIF_FPS)
    small = f"scale={THUMBNAIL}:{THUMBNAIL}:force_original_aspect_ratio=decrease"
    return _converted(path, path, "-", f"select=not(mod(n\\,{stride})),setpts=N/({rate:g}*TB),fps={rate:g},{small}")


def _converted(path: Path, source: Path, target: str, filters: str = "null") -> bytes:
    """Convert the video ``source`` to a GIF for ``path``, with one palette, for which all frames are read twice.
    Returns what ffmpeg writes to standard output."""
    graph = f"[0]{filters},palettegen=stats_mode=diff[palette];[1]{filters}[frames];[frames][palette]paletteuse=dither=none"
    command = [ffmpeg(), *QUIET, *["-i", f"file:{source}"] * 2, "-filter_complex", graph, "-f", "gif", target]
    made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False)
    if made.returncode:
        raise _failed(path, made.stderr)
    return made.stdout


def _failed(path: Path, errors: bytes) -> VideoError:
    lines = errors.decode(errors="replace").strip().splitlines() or ["no reason given"]
    reason = next((x for x in lines if "No space left" in x), lines[-1])  # the last line does not name a full disk
    return VideoError(f"Cannot write {path}: ffmpeg has failed ({reason}).")


def videos(run_dir: Path) -> Path:
    """The folder of the videos of a run."""
    return run_dir / "videos"


def worded_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    """In this context, an ``OSError`` becomes a ``VideoError``."""
    return instead_of_os_errors(VideoError, f"Cannot write {path}", "choose another --out.")


def ffmpeg() -> str:
    """The path of ffmpeg. Raises ``VideoError`` if there is none."""
    try:
        import imageio_ffmpeg

        executable = shutil.which(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        executable = None
    if executable is None:
        raise VideoError(
            "No ffmpeg was found to write a video: run `pip install imageio-ffmpeg`, which brings one, or set IMAGEIO_FFMPEG_EXE to its path."
        )
    return executable
