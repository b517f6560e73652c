"""TensorBoard events: every finite value is written once, also over a resume, a changed clock or a full disk."""

import numpy as np

from disks import full_disk
from proximo.tracking.tensorboard import TensorBoard


def events(run_dir):
    """All scalars in the event files, and the steps from which a reader purges."""
    from tensorboardX.proto.event_pb2 import Event

    scalars, purges = [], []
    for file in sorted(run_dir.glob("events.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += length + 16
            scalars += [(event.step, value.tag, round(value.simple_value, 3)) for value in event.summary.value]
            purges += [event.step] if event.session_log.status else []
    return scalars, purges


def test_tensorboard_gets_each_finite_value(tmp_path):
    tracker = TensorBoard(tmp_path)
    tracker.write(10, {"train/loss": 0.5, "train/bad": float("nan")})
    tracker.write(20, {"train/loss": np.float32(0.25)})
    tracker.close()
    assert events(tmp_path) == ([(10, "train/loss", 0.5), (20, "train/loss", 0.25)], [])


def test_flushed_events_are_on_disk(tmp_path):
    tracker = TensorBoard(tmp_path)
    for step in range(200):
        tracker.write(step, {"train/loss": 1.0})
    tracker.flush()
    assert len(events(tmp_path)[0]) == 200
    tracker.close()


def test_resumed_tensorboard_hides_later_events(tmp_path):
    tracker = TensorBoard(tmp_path, purge_step=20)
    tracker.close()
    assert events(tmp_path)[1] == [20]


def test_full_disk_for_a_moment_costs_no_event(tmp_path):
    warnings = []
    tracker = TensorBoard(tmp_path, warned=warnings.append)
    tracker.write(0, {"a": 0.5})
    with full_disk():
        for step in range(1, 30):
            tracker.write(step, {"a": 0.5})
        tracker.flush()
    tracker.write(30, {"a": 0.5})
    tracker.close()
    assert [row[0] for row in events(tmp_path)[0]] == list(range(31))
    assert len(warnings) == 1, warnings


def test_events_of_a_resume_sort_last_after_clock_change(tmp_path, monkeypatch):
    clock = 1_800_000_000.0
    monkeypatch.setattr("time.time", lambda: clock)
    for start, jump in ((0, 0.0), (10, 0.2), (20, -3600.0), (30, 0.0)):
        clock += jump
        tracker = TensorBoard(tmp_path, start or None)
        tracker.write(start, {"a": 1.0})
        tracker.close()
    steps = [step for step, *_ in events(tmp_path)[0]]
    assert steps == [0, 10, 20, 30], "TensorBoard reads event files by name"
    assert len(list(tmp_path.glob("events.*"))) == 4
