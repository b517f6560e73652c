"""Video files, MP4 and GIF, encoded by the ffmpeg that imageio-ffmpeg brings."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from proximo.errors import ProximoError, instead_of_os_errors

MIN_PIXELS = 400
"""Small frames are enlarged by the largest whole factor with which the longer side has at most this many pixels."""
MAX_GIF_FPS = 50.0
"""Browsers slow down frames that are shorter than two hundredths of a second."""
ENDINGS = (".mp4", ".gif")
H264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
"""Arguments of ffmpeg for an MP4 that every browser and phone plays."""
LOSSLESS = ["-c:v", "libx264rgb", "-preset", "ultrafast", "-qp", "0", "-f", "matroska"]
PALETTE = "[0]palettegen=stats_mode=diff[palette];[1][palette]paletteuse=dither=none"
"""Filter for a GIF: one palette for all frames. It reads them twice, so they are in a lossless file first."""


class VideoError(ProximoError):
    """A video cannot be written."""


class Video:
    """Writes frames into the file ``path``, one by one, by a process of ffmpeg with ``threads`` (0: one for each core).

    imageio would ignore that ffmpeg fails, and forks this process, which can hang because of JAX's threads (decision 0014).
    """

    def __init__(self, path: Path, fps: float, threads: int = 0, enlarge: bool = True):
        ending = path.suffix.lower()
        if ending not in ENDINGS:
            raise VideoError(f"{path}: expected a name that ends in {' or '.join(ENDINGS)}.")
        self.path, self._is_gif, self._threads, self._enlarge = path, ending == ".gif", threads, enlarge
        self.fps = min(fps, MAX_GIF_FPS) if self._is_gif else fps
        with worded_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read after ffmpeg has ended)
        self._executable = ffmpeg()
        self._temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
        self._frames = self._temporary.with_suffix(".frames") if self._is_gif else self._temporary
        self._shape: tuple[int, ...] | None = None  # of the first frame, to which others are resized
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, frame: np.ndarray) -> np.ndarray:
        """Append a frame, uint8 [height, width, 3], and return it as it is written."""
        self._shape = self._shape or frame.shape
        if frame.shape != self._shape:
            from PIL import Image

            frame = np.array(Image.fromarray(frame).resize((self._shape[1], self._shape[0])))
        frame = enlarged(frame) if self._enlarge else frame
        with worded_errors(self.path):
            if self._process is None:
                size = f"{frame.shape[1]}x{frame.shape[0]}"
                source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{self.fps:g}", "-i", "-"]
                self._process = self._start([*source, *(LOSSLESS if self._is_gif else H264)], self._frames)
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(frame.tobytes())
            except BrokenPipeError:
                self._wait(self._process)
                raise
        return frame

    def _start(self, arguments: list[str], file: Path) -> subprocess.Popen[bytes]:
        target = ["-threads", str(self._threads), f"file:{file}"]  # a name may have a colon
        # A new session, so that Ctrl-C does not reach ffmpeg. No Python runs between fork and exec: threads of JAX could make it hang.
        return subprocess.Popen(
            [self._executable, "-y", "-loglevel", "error", *arguments, *target],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
        )  # fmt: skip

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for ffmpeg to end. Raises ``VideoError`` with its error message if it has failed."""
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if process.wait():
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
            reason = next((x for x in lines if "No space left" in x), lines[-1])  # the last line does not name a full disk
            raise VideoError(f"Cannot write {self.path}: ffmpeg has failed ({reason}).")

    def close(self) -> None:
        """Complete the file, which gets its name only now. Without a frame there is no file."""
        if self._process is None:
            return
        with worded_errors(self.path):
            self._wait(self._process)
            if self._is_gif:
                source = ["-i", f"file:{self._frames}"]
                self._process = self._start([*source, *source, "-filter_complex", PALETTE, "-f", "gif"], self._temporary)
                self._wait(self._process)
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


def enlarged(frame: np.ndarray) -> np.ndarray:
    """``frame``, enlarged if it is small, with even sides, because h264 requires these."""
    factor = max(1, MIN_PIXELS // max(frame.shape[:2]))
    large = frame.repeat(factor, axis=0).repeat(factor, axis=1) if factor > 1 else frame
    missing = [(0, side % 2) for side in large.shape[:2]]
    return np.pad(large, [*missing, (0, 0)], mode="edge") if (0, 1) in missing else large


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
