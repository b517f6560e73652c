"""Weights & Biases: one run however often it is resumed, offline where there is no key or no server, each row once."""

import sys
import types

import numpy as np
import pytest

from proximo.tracking import weights_and_biases as module
from proximo.tracking.histograms import Histogram
from proximo.tracking.tracker import Clip, Image, TrackedRun
from proximo.tracking.weights_and_biases import AXIS, WeightsAndBiases, has_key

pytestmark = pytest.mark.slow  # the gate has its limit of time: run by hand
SETTINGS = {"env": {"id": "CartPole-v1"}, "ppo": {"gamma": 0.9}}


class Run:
    """A run whose rows have numbers that only grow; rows of a smaller one are refused."""

    def __init__(self, kept):
        self.kept, self.step, self.axes, self.finished = kept, max(kept, default=-1) + 1, [], False

    def define_metric(self, name, **options):
        self.axes.append((name, options))

    def log(self, values, step):
        assert step >= max(self.kept, default=0), "rows go on from the last one"
        self.kept.setdefault(step, {}).update(values)

    def finish(self):
        self.finished = True


@pytest.fixture
def server(monkeypatch):
    """What Weights & Biases keeps: the rows of runs by id, and with which options they were started."""
    kept = types.SimpleNamespace(rows={}, started=[], reachable=True)

    def init(*, mode, id, resume, settings, **options):
        if not (kept.reachable or mode == "offline"):
            raise ConnectionError("no route\nto host")
        if mode == "offline":
            kept.rows[id, "folder"] = {}  # a folder of its own each time
        kept.started.append({"mode": mode, "id": id, "resume": resume, **options})
        return Run(kept.rows.setdefault((id, "folder" if mode == "offline" else "server"), {}))

    library = types.ModuleType("wandb")
    library.init, library.Settings = init, lambda **named: named
    library.Image = lambda image: ("image", image.shape)
    library.Video = lambda path: ("video", path)
    library.Histogram = lambda np_histogram: ("histogram", np_histogram[0].tolist(), len(np_histogram[1]))
    monkeypatch.setitem(sys.modules, "wandb", library)
    for name in (*module.KEY_VARIABLES, "WANDB_MODE", "WANDB_PROJECT", "NETRC", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    return kept


def opened(run_dir, resumed_at=None, told=None):
    run_dir.mkdir(parents=True, exist_ok=True)
    return WeightsAndBiases(TrackedRun(run_dir, SETTINGS, resumed_at, ([] if told is None else told).append))


def written(tracker, *steps):
    for step in steps:
        tracker.write(step, {"train/loss": step / 10, "train/odd": float("nan")})
    return tracker


def test_rows_of_a_step_are_joined_with_every_kind_of_value(server, tmp_path):
    tracker = written(opened(tmp_path / "r"), 10, 20)
    for value in (3.0, Histogram.of(np.arange(3)), Image(np.zeros((2, 3, 3), np.uint8))):
        tracker.write(20, {type(value).__name__: value})
    tracker.write(10, {"late": Clip(tmp_path / "10.mp4")})
    tracker.close()
    first, last = server.rows[tracker._id, "server"].values()
    assert first == {AXIS: 10, "train/loss": 1.0}, "only finite numbers"
    others = {"float": 3.0, "Histogram": ("histogram", [1, 1, 1], 4), "Image": ("image", (2, 3, 3))}
    assert last == {AXIS: 20, "train/loss": 2.0, **others, "late": ("video", str(tmp_path / "10.mp4"))}
    assert ("*", {"step_metric": AXIS}) in tracker._run.axes
    assert tracker._run.finished


def test_settings_name_group_and_project_follow_the_run(server, tmp_path, monkeypatch):
    opened(tmp_path / "alone")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    opened(tmp_path / "several" / "seed-3")
    alone, seed = server.started
    assert (alone["project"], alone["name"], alone["group"]) == ("proximo", "CartPole-v1/alone", None)
    assert (seed["project"], seed["name"], seed["group"]) == ("mine", "CartPole-v1/several/seed-3", "CartPole-v1/several")
    assert (alone["config"], alone["id"] != seed["id"]) == (SETTINGS, True)
    assert alone["reinit"] == "create_new", "several seeds of a process are runs side by side"


@pytest.mark.parametrize("again", [(10, 20, 30), ()])
def test_resume_continues_the_run_and_writes_no_row_twice(server, tmp_path, again):
    first = written(opened(tmp_path / "r"), 10, 20)  # and then it is killed
    second = written(opened(tmp_path / "r", resumed_at=20), *again, 40)
    second.close()
    assert (second._id, server.started[1]["resume"]) == (first._id, "allow")
    assert sorted(server.rows[first._id, "server"]) == sorted({10, 20, 40, *again})


@pytest.mark.parametrize(
    ("has_key", "why"),
    [
        (False, "Weights & Biases has no key here (`wandb login`, or WANDB_API_KEY)"),
        (True, "Weights & Biases cannot be reached (no route to host)"),
    ],
)
def test_missing_key_or_server_warns_and_tracks_offline(server, tmp_path, monkeypatch, has_key, why):
    server.reachable, told = False, []
    monkeypatch.setattr(module, "has_key", lambda: has_key)
    for name in ("r", "g/seed-0", "g/seed-1"):
        written(opened(tmp_path / name, told=told), 10).close()
    assert [sorted(rows) for (_, where), rows in server.rows.items() if where == "folder"] == [[10]] * 3
    assert told == [
        f"{why}: {tmp_path / name} is tracked offline; `wandb sync {tmp_path / folder / 'wandb' / 'latest-run'}` uploads it."
        for name, folder in (("r", "r"), ("g", "g/seed-*"))  # once for a group of seeds
    ]


def test_library_writes_an_offline_run_after_a_resume(tmp_path, monkeypatch, capfd):
    pytest.importorskip("wandb")
    for name in (*module.KEY_VARIABLES, "NETRC", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    told = []
    written(opened(tmp_path / "r", told=told), 10, 20).close()
    tracker = written(opened(tmp_path / "r", 20, told), 10, 20)
    tracker.write(20, {"histograms/x": Histogram.of(np.arange(3))})
    written(tracker, 30).close()
    assert (len(told), capfd.readouterr()) == (2, ("", ""))
    newest = max((tmp_path / "r" / "wandb").glob("offline-run-*"), key=lambda folder: folder.stat().st_mtime_ns)
    assert (tmp_path / "r" / "wandb" / "latest-run").resolve() == newest
    data = next(newest.glob("*.wandb")).read_bytes()
    assert all(text.encode() in data for text in (tracker._id, "CartPole-v1/r", AXIS, "train/loss", "histograms/x"))


@pytest.mark.parametrize(("where", "found"), [("api.wandb.ai", True), ("elsewhere.example", False)])
def test_key_of_a_login_is_found(server, tmp_path, monkeypatch, where, found):
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not has_key()
    (tmp_path / ".netrc").write_text(f"machine {where}\n  login user\n  password {'x' * 40}\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert has_key() == found
    monkeypatch.setenv("WANDB_BASE_URL", "https://elsewhere.example")
    assert has_key() != found
