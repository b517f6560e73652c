"""Video files: every frame can be read back, and a file that cannot be written raises a worded error."""

import io
import stat
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from proximo.rendering import video
from proximo.rendering.video import Video, VideoError, gif_of

COUNT = 12


def shade(k, size=(48, 64)):
    """A frame of one gray, another one for each ``k``."""
    return np.full((*size, 3), 20 * k, np.uint8)


def written(path, frames, fps=10.0):
    with Video(path, fps) as file:
        for frame in frames:
            file.add(frame)
    return path


def read(path):
    """All frames of an mp4."""
    frames = imageio_ffmpeg.read_frames(str(path))
    size = next(frames)["size"]
    return [np.frombuffer(frame, np.uint8).reshape(size[1], size[0], 3) for frame in frames]


def test_mp4_has_every_frame_in_order_and_fps_of_them_in_a_second(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(Path("run:1.mp4"), [shade(k) for k in range(COUNT)], 12.5).absolute()  # a name may have a colon
    np.testing.assert_allclose([frame.mean() for frame in read(path)], [20 * k for k in range(COUNT)], atol=6)
    count, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
    assert (count, seconds) == (COUNT, pytest.approx(COUNT / 12.5, abs=0.02))
    back = read(written(tmp_path / "a.mp4", [shade(3), shade(6, (90, 20)), shade(9)]))
    assert len({frame.shape for frame in back}) == 1, "a frame of another size is resized to the first"
    np.testing.assert_allclose([frame.mean() for frame in back], [60, 120, 180], atol=6)


@pytest.mark.parametrize("size", [(48, 64), (31, 57), (401, 299), (10, 10)])
def test_sides_are_even_and_small_frames_are_enlarged(tmp_path, size):
    frame, factor = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8), max(1, 400 // max(size))
    [large] = read(written(tmp_path / "a.mp4", [frame]))
    assert list(large.shape[:2]) == [factor * side + factor * side % 2 for side in size]
    image = np.asarray(Image.open(written(tmp_path / "a.gif", [frame // 128 * 255])).convert("RGB"))
    if not any(factor * side % 2 for side in size):  # sharp, without an average of two pixels
        assert np.array_equal(image[::factor, ::factor], frame // 128 * 255)


def test_gif_has_its_frames_and_rate(tmp_path):
    image = Image.open(written(tmp_path / "a.gif", [shade(k) for k in range(COUNT)], 5.0))
    assert image.n_frames == COUNT
    assert image.info["duration"] == 200
    assert image.info["loop"] == 0
    video = written(tmp_path / "a.mp4", [shade(k % 12) for k in range(90)])
    thirty = Image.open(io.BytesIO(gif_of(video, 3, 30.0)))
    lasting = [(thirty.seek(k), thirty.info["duration"])[1] for k in range(30)]
    assert (sum(lasting), {*lasting}, thirty.n_frames, thirty.size) == (1000, {30, 40}, 30, (200, 150))
    assert Image.open(io.BytesIO(gif_of(video, 1, 100.0))).info["duration"] == 20  # browsers would play less slowly


def test_impossible_folder_and_unknown_format_raise(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VideoError, match=r"Cannot write .*a\.mp4 \(.*\): choose another --out"):
        Video(tmp_path / "file" / "a.mp4", 10.0)
    with pytest.raises(VideoError, match=r"a\.avi: expected a name that ends in \.mp4 or \.gif"):
        Video(tmp_path / "a.avi", 10.0)


@pytest.mark.parametrize(
    ("reads", "frames", "reason"), [("cat > /dev/null", 1, "No space left on device"), ("echo first >&2", 100, "no such codec")]
)
def test_failing_ffmpeg_raises_with_its_error_message_and_leaves_no_file(tmp_path, monkeypatch, reads, frames, reason):
    """At the end, as when the disk fills up at the last moment, and at once."""
    failing = tmp_path / "ffmpeg"
    failing.write_text(f"#!/bin/sh\n{reads}\necho '{reason}' >&2\nexit 3\n")
    failing.chmod(failing.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(video, "ffmpeg", lambda: str(failing))

    def record():
        with Video(tmp_path / "a.mp4", 10.0) as file:
            for _ in range(frames):
                file.add(shade(1, (400, 400)))

    with pytest.raises(VideoError, match=rf"a\.mp4: ffmpeg has failed \({reason}\)"):
        record()
    assert [path.name for path in tmp_path.iterdir()] == ["ffmpeg"]
