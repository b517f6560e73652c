"""TensorBoard events: every finite value is written once, also over a resume and a changed clock."""

import io

import numpy as np
from PIL import Image

from proximo.tracking.histograms import Histogram
from proximo.tracking.tensorboard import TensorBoard
from proximo.tracking.tracker import Image as Picture
from proximo.tracking.tracker import TrackedRun


def board(run_dir, settings=None, resumed_at=None):
    return TensorBoard(TrackedRun(run_dir, settings or {}, resumed_at, print))


def written(run_dir):
    """All events in the files, in the order in which TensorBoard reads them."""
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(run_dir.glob("events.*")):
        data = file.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            yield Event.FromString(data[12 : 12 + length])
            data = data[length + 16 :]


def events(run_dir):
    """All scalars, and the steps from which a reader purges."""
    scalars, purges = [], []
    for event in written(run_dir):
        scalars += [(event.step, value.tag, round(value.simple_value, 3)) for value in event.summary.value]
        purges += [event.step] if event.session_log.status else []
    return scalars, purges


def summaries(run_dir):
    """All summary values by tag."""
    return {value.tag: value for event in written(run_dir) for value in event.summary.value}


def test_settings_are_text_and_hyperparameters(tmp_path):
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    settings = {"env": {"id": "a:B"}, "ppo": {"gamma": 0.9, "normalize_reward": True, "learning_rate": "linear(1e-3, 0)"}}
    board(tmp_path, settings).close()
    found = summaries(tmp_path)
    assert b"    ppo:\n      gamma: 0.9\n" in found["settings/text_summary"].tensor.string_val[0]
    data = found["_hparams_/session_start_info"].metadata.plugin_data
    shown = HParamsPluginData.FromString(data.content).session_start_info.hparams
    assert (shown["gamma"].number_value, shown["normalize_reward"].bool_value) == (0.9, True)
    assert (shown["id"].string_value, shown["learning_rate"].string_value) == ("a:B", "linear(1e-3, 0)")
    experiment = HParamsPluginData.FromString(found["_hparams_/experiment"].metadata.plugin_data.content).experiment
    assert "eval/return_mean" in [info.name.tag for info in experiment.metric_infos]


def test_image_is_a_png_of_the_same_pixels_and_a_histogram_has_its_bins(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    tracker = board(tmp_path)
    tracker.write(8, {"observations": Picture(image), "histograms/x": Histogram.of(np.arange(3))})
    tracker.close()
    shown = summaries(tmp_path)
    histo, shown = shown["histograms/x"].histo, shown["observations"].image
    assert (histo.num, histo.sum, histo.sum_squares, *histo.bucket, *histo.bucket_limit) == (3, 3, 5, 1, 1, 1, 0.5, 1.5, 2.5)
    assert (shown.height, shown.width) == (5, 7)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(shown.encoded_image_string))), image)


def test_a_resume_writes_finite_values_once_and_its_file_sorts_last(tmp_path, monkeypatch):
    clock = 1_800_000_000.0
    monkeypatch.setattr("time.time", lambda: clock)
    for start, jump in ((0, 0.0), (10, 0.2), (20, -3600.0), (30, 0.0)):
        clock += jump
        tracker = board(tmp_path, resumed_at=start - 1 if start else None)
        for step in (start - 10, start - 1, start):
            tracker.write(step, {"a": np.float32(0.25), "bad": float("nan")} if step >= 0 else {})
        tracker.close()
    found = [(step, "a", 0.25) for step in (0, 10, 20, 30)], [10, 20, 30]
    assert events(tmp_path) == found, "TensorBoard reads event files by name"
    assert len(list(tmp_path.glob("events.*"))) == 4
