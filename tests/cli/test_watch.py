"""``proximo watch``: a run by any of its names, an environment untrained, into a file or a window; bad input in one sentence."""

import json
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

import proximo
from proximo.cli import main
from proximo.envs.tasks import PocMemory
from proximo.rendering import window


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def watched(capsys, runs, *words):
    assert main(["watch", *words, "--runs-dir", str(runs), "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert "Traceback" not in err
    return json.loads(out)


def frames(path):
    return imageio_ffmpeg.count_frames_and_secs(str(path))[0]


def test_json_is_one_object_of_the_episodes_of_eval_and_what_was_written(runs, capsys):
    result = watched(capsys, runs, "r@best", "--episodes", "4", "--seed", "3")
    assert list(result) == ["run", "step", "env", "agent", "seed", "episodes", "files", "frames", "fps"]
    assert (result["env"], result["agent"], result["fps"]) == ("proximo:PocMemory", "greedy", 4)
    assert result["files"] == [f"{runs}/proximo-PocMemory/r/videos/watch-{result['step']}.mp4"]
    judged, episodes = proximo.evaluate("r@best", 4, seed=3, runs_dir=str(runs)), result["episodes"]
    assert [episode["length"] for episode in episodes] == judged.length.tolist()
    assert [episode["success"] for episode in episodes] == judged.success.tolist()
    np.testing.assert_allclose([episode["return"] for episode in episodes], judged.episode_return, rtol=1e-5)
    assert result["frames"] == judged.length.sum() + 4 == frames(result["files"][0])


class Other(PocMemory):
    """Another environment with the same spaces."""


def test_lines_name_the_seed_each_episode_and_the_file(runs, capsys):
    assert main(["watch", "g", "--runs-dir", str(runs), "--episodes", "2", "--max-steps", "3"]) == 0
    seed, heading, *episodes, file = capsys.readouterr().out.splitlines()
    assert seed == "showing seed-0 (others: seed-1)"
    assert heading.startswith(f"{runs}/proximo-PocMemory/g/seed-0 on proximo:PocMemory at step ")
    assert heading.endswith(", greedy")
    assert all(line.startswith("episode ") and line.endswith(", length 3, cut after 3 steps") for line in episodes)
    assert (len(episodes), file.endswith(".mp4 (8 frames, 4 per second)")) == (2, True)
    assert watched(capsys, runs, "g/seed-1", "--gif", "--episodes", "1")["run"] == f"{runs}/proximo-PocMemory/g/seed-1"


def test_requested_formats_are_written_and_another_environment_replaces_no_video(runs, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("proximo.rendering.window.has_display", lambda: True)  # they are written where a window could open, too
    mp4, gif = watched(capsys, runs, "r", "--episodes", "1", "--gif", "--video")["files"]
    assert (Path(mp4).suffix, gif) == (".mp4", mp4.replace(".mp4", ".gif"))
    path = tmp_path / "deep" / "x.gif"
    assert watched(capsys, runs, "r", "--episodes", "1", "--out", str(path))["files"] == [str(path)]
    assert path.exists()
    [other] = watched(capsys, runs, "r", "--gif", "--episodes", "1", "--env", "test_watch:Other")["files"]
    assert other == gif.replace(".gif", "-test_watch-Other.gif")


def test_untrained_environment_is_watched_with_random_actions(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = watched(capsys, tmp_path, "gym_toys:DrawnWalk", "--agent", "random", "--fps", "9")
    assert (result["run"], result["step"], result["agent"], result["fps"]) == (None, None, "random", 9)
    assert result["files"] == ["gym_toys-DrawnWalk-random.mp4"]
    assert frames(tmp_path / "gym_toys-DrawnWalk-random.mp4") == result["frames"]


def test_requested_levels_and_parameters_are_used(runs, capsys):
    settings = ["--gif", "--episodes", "5"]
    usual, other = (
        watched(capsys, runs, "r", *settings, *words) for words in ([], ["--levels", "7:8", "--env-settings", "freeze_steps=9"])
    )
    kinds = [{(e["return"], e["length"]) for e in result["episodes"]} for result in (usual, other)]
    assert len(kinds[1]) == 1 < len(kinds[0])
    assert other["episodes"][0]["length"] > 9 > min(e["length"] for e in usual["episodes"])


def test_window_shows_every_frame_until_it_is_closed(runs, capsys, monkeypatch):
    shown = []

    class Screen:
        """Stands for a display."""

        def __init__(self, fps):
            self.fps, self.closed = fps, False

        def show(self, frame, title):
            shown.append((self.fps, title))
            self.closed = len(shown) == 6

        def close(self):
            shown.append("closed")

    monkeypatch.setattr(window, "has_display", lambda: True)
    monkeypatch.setattr(window, "Window", Screen)
    result = watched(capsys, runs, "r", "--fps", "60", "--episodes", "5")
    assert (result["files"], result["frames"], len(shown), shown[-1]) == ([], 6, 7, "closed")
    assert shown[2][0] == 60
    assert shown[2][1].startswith("proximo:PocMemory · episode 1 · step 2 · return ")


def test_window_displays_the_given_frame(monkeypatch):
    """By SDL's driver without a screen."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shown = window.Window(200.0)
    frame = np.zeros((100, 200, 3), np.uint8)
    frame[:, 100:] = (250, 100, 10)
    shown.show(frame, "a title")
    import pygame

    width, height = pygame.display.get_surface().get_size()
    assert width == 2 * height >= 200
    assert pygame.display.get_surface().get_at((width - 5, 5))[:3] == (250, 100, 10)
    assert pygame.display.get_surface().get_at((5, 5))[:3] == (0, 0, 0)
    assert pygame.display.get_caption()[0] == "a title"
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE))
    shown.show(frame, "a title")
    assert shown.closed
    shown.close()


def test_environment_with_a_builtin_window_opens_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(window, "has_display", lambda: True)
    result = watched(capsys, tmp_path, "CartPole-v1", "--agent", "random", "--episodes", "1", "--max-steps", "4")
    assert (result["files"], result["frames"]) == ([], 5)


def test_has_display_is_false_without_a_screen(monkeypatch):
    assert not window.has_display()
    monkeypatch.setenv("DISPLAY", ":993")
    assert not window.has_display()  # nobody listens there
