"""TensorBoard events."""

import io
import math
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from PIL import Image as Picture
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import hparams, make_image, text

from proximo.serialization import dump_yaml
from proximo.storage.atomic_files import AppendedFile
from proximo.tracking.histograms import Histogram
from proximo.tracking.tracker import Clip, Image, TrackedRun, Tracker

RESULTS = ("eval/return_mean", "eval/success_rate", "rollout/return_mean", "time/steps_per_second")
"""The metrics that TensorBoard shows beside the hyperparameters of each run."""


class TensorBoard(Tracker):
    """Writes TensorBoard events, and the settings as text and as hyperparameters. After a resume, earlier files keep their
    events up to the step of the resume; later ones are hidden.

    The writer of tensorboardX is not used: its thread ends on a full disk, and every later write blocks forever.
    """

    def __init__(self, run: TrackedRun):
        earlier = sorted(path.name for path in run.run_dir.glob("events.*"))
        # TensorBoard reads the files by name: the new one sorts last, even if the clock was set back.
        first = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}"
        name = f"{earlier[-1]}+" if earlier else first
        self._file = AppendedFile(run.run_dir / name, run.warned)
        self._first = 0 if run.resumed_at is None or not earlier else run.resumed_at + 1
        """Earlier files have the rows before this step."""
        self._add(step=self._first, file_version="brain.Event:2")
        if self._first:
            self._add(step=self._first, session_log=SessionLog(status=SessionLog.START))
        if not run.settings:
            return
        settings = (setting for group in run.settings.values() for setting in group.items())
        shown = {name: x if isinstance(x, bool | int | float) else str(x) for name, x in settings}
        experiment, session, _ = hparams(shown, dict.fromkeys(RESULTS))
        lines = dump_yaml(run.settings).splitlines()
        for summary in (experiment, session, text("settings", "\n".join(f"    {line}" for line in lines))):
            self._add(step=self._first, summary=summary)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Add all values: finite numbers, as TensorBoard cannot draw the others; histograms; images; clips as animated images."""
        if step >= self._first:
            found = {name: _value(x) for name, x in values.items()}
            shown = [Summary.Value(tag=name, **value) for name, value in found.items() if value]
            self._add(step=int(step), summary=Summary(value=shown))

    def close(self) -> None:
        """Return when the disk has all events."""
        self._file.sync()

    flush = close

    def _add(self, **fields: Any) -> None:
        """Append an event as a TFRecord: its length and its bytes, each with a checksum."""
        event = Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(event))
        self._file.append(b"".join(part + struct.pack("<I", masked_crc32c(part)) for part in (length, event)))


def _value(x: Any) -> dict[str, Any] | None:
    """The fields of a value of ``Summary``; None if there is nothing to draw."""
    if isinstance(x, Histogram):
        ends = {"min": x.low, "max": x.high, "bucket_limit": x.edges[1:].tolist(), "bucket": x.counts.tolist()}
        return {"histo": {**ends, "num": int(x.counts.sum()), "sum": x.total, "sum_squares": x.squares}}
    if isinstance(x, Image):
        return {"image": make_image(x.pixels)}
    if isinstance(x, Clip):
        if x.gif is None:
            return None
        data = x.gif()
        width, height = Picture.open(io.BytesIO(data)).size
        return {"image": {"height": height, "width": width, "colorspace": 3, "encoded_image_string": data}}
    return {"simple_value": float(x)} if math.isfinite(x) else None
