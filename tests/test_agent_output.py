"""What an agent shows and writes: progress, clips, a learning curve, a report, an export."""

import base64
import json
from types import SimpleNamespace

import imageio_ffmpeg
import jax
import numpy as np
import pytest
from PIL import Image

import proximo
from commands import BATCH, SMALL
from proximo import agent as module
from proximo.config import LEAVES
from proximo.config.schema import RUN_DIRECTORY
from proximo.errors import ConfigError
from proximo.export.runtime import ExportedPolicy
from proximo.rendering import window
from proximo.tracking import progress as training_progress

SETTINGS = {n: x for n, x in SMALL.items() if n not in ("tensorboard", "total_steps")}
ENV = "proximo:PocMemory"


def agent(**settings):
    return proximo.PPO(ENV, preset=False, **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def learned():
    return agent(seed=3).learn(10 * BATCH)


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    monkeypatch.setattr(window, "has_display", lambda: False)


def test_public_names_of_an_agent_are_those_of_its_documentation():
    public = {name for name in dir(proximo.PPO) if not name.startswith("_")}
    methods = {"learn", "predict", "forward", "evaluate", "set_env", "save", "render", "watch", "plot", "report", "export"}
    assert public == {*methods, "env", "policy"}


def test_help_lists_every_setting():
    for function, names in (
        (proximo.PPO, set(LEAVES) - {*RUN_DIRECTORY, "eval_env"}),  # eval_env is an argument of its own
        (proximo.train, set(LEAVES)),
        (proximo.make_config, set(LEAVES)),
    ):
        listed = {line.split("(")[0].strip() for line in function.__doc__.split("Settings:")[1].splitlines()}
        assert listed - {""} == names - {"id"}


@pytest.mark.parametrize(
    ("verbose", "progress", "shown"), [(1, None, True), (0, None, False), (0, True, True), (1, False, False)]
)
def test_notebook_shows_progress_unless_it_is_silenced(monkeypatch, verbose, progress, shown):
    contents = []
    monkeypatch.setattr(training_progress, "in_notebook", lambda: True)
    monkeypatch.setattr(training_progress, "display", contents.append)
    agent(verbose=verbose).learn(2 * BATCH, progress=progress)
    assert bool(contents) == shown


def frames(content, tmp_path):
    (tmp_path / "clip.mp4").write_bytes(content)
    return imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "clip.mp4"))[0]


def test_clip_is_the_first_episodes_of_an_evaluation(learned, tmp_path):
    clip = learned.render(2)
    expected = learned.evaluate(2).rows()
    assert [(x["return"], x["length"]) for x in clip.episodes] == [(pytest.approx(x["return"]), x["length"]) for x in expected]
    assert clip.frames == frames(clip.video, tmp_path) == sum(x["length"] + 1 for x in expected)
    assert repr(clip).startswith("Clip(returns [")
    encoded = clip._repr_html_().split("base64,")[1].split('"')[0]
    assert base64.b64decode(encoded) == clip.video == clip.save(tmp_path / "new" / "a.mp4").read_bytes()
    with pytest.raises(ConfigError, match=r"a\.avi: expected a name that ends in \.mp4"):
        clip.save(tmp_path / "a.avi")


def test_watch_writes_a_file_shows_a_clip_or_opens_a_window(learned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = learned.watch(episodes=1, max_steps=3)
    assert written.name == f"watch-{learned.step}.mp4"
    assert frames(written.read_bytes(), tmp_path) == 4
    assert learned.watch("a.gif", episodes=1, max_steps=3).exists()
    shown, files = [], sorted(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(module, "in_notebook", lambda: True)
        patch.setattr(module, "display", shown.append)
        assert learned.watch(episodes=1, max_steps=3) is None
    assert shown[0]["text/html"].startswith("<video")

    screen = {"closed": False, "show": lambda frame, title: shown.append(title), "close": lambda: shown.append("closed")}
    monkeypatch.setattr(window, "has_display", lambda: True)
    monkeypatch.setattr(window, "Window", lambda fps: SimpleNamespace(**screen))
    assert learned.watch(episodes=1, max_steps=3) is None
    assert [title.split(" · ")[2] for title in shown[1:-1]] == ["step 0", "step 1", "step 2", "step 3"]
    assert shown[-1] == "closed"
    assert sorted(tmp_path.iterdir()) == files


def test_plot_draws_the_returns_of_the_history(learned, tmp_path):
    figure = learned.plot(tmp_path / "curve.png")
    (axes,) = figure.axes
    assert axes.get_title() == f"{ENV}, seed 3"
    lines = {line.get_label().split(" ")[0]: line.get_xydata().tolist() for line in axes.get_lines()}
    for name, metric in (("training", "rollout/return_mean"), ("evaluations,", "eval/return_mean")):
        expected = [[row["step"], row[metric]] for row in learned.history if row.get(metric) is not None]
        assert lines[name] == expected
        assert len(expected) >= 5
    assert Image.open(tmp_path / "curve.png").size == (770, 440)
    assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"Cannot write .*curve\.xyz"):
        learned.plot(tmp_path / "curve.xyz")
    with pytest.raises(ConfigError, match="no returns to plot: call learn first"):
        agent().plot()


def test_report_is_of_the_saved_agent(learned, tmp_path):
    report = learned.report(tmp_path / "saved")
    assert report.html == tmp_path / "saved" / "report.html"
    assert ENV in report.html.read_text()
    assert repr(report) == f"Report({str(report.html)!r}: {ENV})"
    assert proximo.load(tmp_path / "saved").step == learned.step


def test_export_acts_as_the_agent(learned, tmp_path):
    done = learned.export(tmp_path / "export", batch=3)
    assert json.loads((done.folder / "metadata.json").read_text())["step"] == learned.step
    assert repr(done) == f"ExportResult({str(done.folder)!r}: README.md, metadata.json, policy.onnx, proximo_policy.py)"
    observation = np.asarray(jax.random.normal(jax.random.key(0), (3, 3)))
    exported = ExportedPolicy(str(done.folder / "policy.onnx"))
    np.testing.assert_array_equal(exported.predict(observation)[0], learned.predict(observation)[0])
    with pytest.raises(ConfigError, match="batch = 0: expected at least 1"):
        learned.export(tmp_path / "other", batch=0)


def test_repr_is_one_readable_line(learned):
    episodes = learned.evaluate(4)
    assert repr(learned.env) == "PocMemory(Box(3,) float32 → Discrete(2))"
    assert repr(proximo.make_env("CartPole-v1")) == "GymnasiumEnvironment('CartPole-v1': Box(4,) float32 → Discrete(2))"
    reached, length, success = episodes.episode_return, episodes.length.mean(), episodes.success.mean()
    returns = f"return {reached.mean():.4g} ± {reached.std():.2g}"
    assert repr(episodes) == f"Episodes(4 episodes: {returns}, length {length:.4g}, success rate {success:.3g})"
    both = proximo.evaluate_policy(learned, 4)
    sampled = both.episodes["sampled"]
    assert repr(both) == f"EvaluationResult({ENV!r} at step {learned.step}, greedy: {episodes!r}, sampled: {sampled!r})"
    assert both.episodes["greedy"].rows() == episodes.rows() == proximo.evaluate(learned, 4).rows()
