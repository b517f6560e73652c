"""Clips of a training: they show the policy of their step, and never disturb the training."""

import io

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from commands import copied, final_state, rows, train_words, trained
from proximo.cli import main
from proximo.rendering.play import PlayedStep
from proximo.rendering.video import THUMBNAIL, VideoError
from proximo.tracking.tracker import Tracker
from proximo.training import clips
from tracking.test_tensorboard import written

pytestmark = pytest.mark.slow  # too slow for the gate: run by hand

EVERY = {"video_every": 320, "total_steps": 640, "keep_checkpoints": 20}


def videos(run_dir):
    return sorted(path.name for path in (run_dir / "videos").iterdir()) if (run_dir / "videos").exists() else []


def frames(path):
    return imageio_ffmpeg.count_frames_and_secs(str(path))[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"), "clips", "toys:Drawn", **EVERY, tensorboard="true")


def test_clip_is_written_at_each_boundary_and_shown_by_tensorboard_as_an_animated_gif(run):
    assert videos(run) == ["320.mp4", "640.mp4"]
    found = [(event.step, value) for event in written(run) for value in event.summary.value if value.HasField("image")]
    assert [(step, value.tag) for step, value in found] == [(320, "videos/episode"), (640, "videos/episode")]
    for step, value in found:
        image = value.image
        gif = Image.open(io.BytesIO(image.encoded_image_string))
        assert gif.n_frames == frames(run / "videos" / f"{step}.mp4") >= 2
        assert gif.size == (image.width, image.height)
        assert max(gif.size) <= THUMBNAIL


def test_clips_do_not_change_a_training(run, tmp_path):
    without = trained(tmp_path, "none", "toys:Drawn", total_steps=640)
    assert videos(without) == []
    assert final_state(without) == final_state(run)
    assert rows(without) == rows(run)


@pytest.mark.parametrize(
    ("env", "settings"), [("toys:Drawn", {"seeds_mode": "vmap"}), ("gym_toys:DrawnWalk", {"num_workers": 0})]
)
def test_every_seed_has_its_own_clips(tmp_path, env, settings):
    assert main(train_words(tmp_path, "r", env, **EVERY, seeds=2, **settings)) == 0
    assert all(videos(next(tmp_path.glob(f"*/r/seed-{i}"))) == ["320.mp4", "640.mp4"] for i in (0, 1))


def test_resume_may_change_video_every_and_removes_later_clips(run, tmp_path):
    again = copied(run, tmp_path)
    (again / "videos" / "watch-640.mp4").write_bytes(b"made by watch")
    assert main(["train", "--resume", f"{again}@320", "--video-every", "160"]) == 0
    assert videos(again) == ["320.mp4", "480.mp4", "640.mp4", "watch-640.mp4"]
    assert final_state(again) == final_state(run)


def _dried(self, *_):
    raise RuntimeError("the paint has dried")


def _missing():
    raise VideoError("No ffmpeg was found.")


@pytest.mark.parametrize(
    ("env", "broken", "replaced", "sentence"),
    [
        ("toys:Drawn", "toys.Drawn.render", _dried, "toys:Drawn.render raised RuntimeError: the paint has dried"),
        ("toys:Drawn", "toys.Drawn.render", None, "toys:Drawn cannot be watched"),
        ("gym_toys:DrawnWalk", "gym_toys.DrawnWalk.render", _dried, "Drawing gym_toys:DrawnWalk raised RuntimeError: the paint has dried"),
        ("toys:Drawn", "proximo.rendering.video.ffmpeg", _missing, "warning: No more clips (video_every): No ffmpeg was found."),
    ],
)  # fmt: skip
def test_failing_renderer_or_encoder_is_one_warning(tmp_path, capsys, monkeypatch, env, broken, replaced, sentence):
    monkeypatch.setattr(broken, replaced) if replaced else monkeypatch.delattr(broken)
    settings = {"num_workers": 0} if "gym" in env else {}
    assert main([*train_words(tmp_path, "r", env, video_every=160, **settings), "--quiet"]) == 0
    [warning] = [line for line in capsys.readouterr().err.splitlines() if "clips" in line]
    assert sentence in warning
    run_dir = next(tmp_path.glob("*/r"))
    assert videos(run_dir) == []
    assert rows(run_dir)[-1]["step"] == 640


def test_tensorboard_gets_every_nth_frame_of_a_long_clip(tmp_path):
    class Written(Tracker):
        def write(self, step, values):
            (clip,) = values.values()
            self.clip = step, clip.gif()

    tracker, ends = Written(), ["" for _ in range(229)] + ["cut"]
    steps = [PlayedStep(0, k, lambda k=k: np.full((200, 400, 3), k, np.uint8), 0.0, end) for k, end in enumerate(ends)]
    clips._write(tmp_path / "7.mp4", 7, 30.0, tracker, steps)
    assert frames(tmp_path / "7.mp4") == 230
    step, gif = tracker.clip
    image = Image.open(io.BytesIO(gif))
    assert (step, image.size) == (7, (200, 100))
    assert clips.GIF_FRAMES / 2 < image.n_frames <= clips.GIF_FRAMES
