"""TensorBoard events."""

from __future__ import annotations

import io
import math
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from proximo.serialization import dump_yaml
from proximo.storage.atomic_files import AppendedFile
from proximo.tracking.histograms import Histogram
from proximo.tracking.tracker import Tracker

RESULTS = ("eval/return_mean", "eval/success_rate", "rollout/return_mean", "time/steps_per_second")
"""The metrics that TensorBoard shows beside the hyperparameters of each run."""


class TensorBoard(Tracker):
    """Writes TensorBoard events to ``run_dir``. On a resume, events from ``purge_step`` on are hidden. ``settings`` are shown as text and
    as hyperparameters.

    Only the encoding is that of tensorboardX. Its writer is not used: its thread ends when the disk is full, and every later write then
    blocks forever.
    """

    def __init__(
        self,
        run_dir: Path,
        purge_step: int | None = None,
        warned: Callable[[str], None] = lambda message: None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        from tensorboardX.proto.event_pb2 import SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        self._file = AppendedFile(_new_events_file(run_dir), warned)
        self._add(step=purge_step or 0, file_version="brain.Event:2")
        if purge_step is not None:
            self._add(step=purge_step, session_log=SessionLog(status=SessionLog.START))
        if settings:
            self._write_settings(purge_step or 0, settings)

    def _write_settings(self, step: int, settings: Mapping[str, Mapping[str, Any]]) -> None:
        from tensorboardX.summary import hparams, text  # pyright: ignore[reportMissingImports]

        named = {name: value for group in settings.values() for name, value in group.items()}
        numbers = {name: x if isinstance(x, bool | int | float) else str(x) for name, x in named.items()}
        experiment, session, _ = hparams(numbers, dict.fromkeys(RESULTS))
        lines = dump_yaml({group: dict(values) for group, values in settings.items()}).splitlines()
        for summary in (experiment, session, text("settings", "\n".join(f"    {line}" for line in lines))):
            self._add(step=step, summary=summary)

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Add a scalar for each finite value; TensorBoard cannot draw the others."""
        self._add_values(step, [{"tag": name, "simple_value": float(x)} for name, x in values.items() if math.isfinite(x)])

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Add each histogram with its own bins."""

        def histo(h: Histogram) -> dict[str, Any]:
            ends = {"min": h.low, "max": h.high, "bucket_limit": h.edges[1:].tolist(), "bucket": h.counts.tolist()}
            return {**ends, "num": h.count, "sum": h.total, "sum_squares": h.squares}

        self._add_values(step, [{"tag": name, "histo": histo(h)} for name, h in histograms.items()])

    def write_clip(self, step: int, gif: Callable[[], bytes], size: tuple[int, int]) -> None:
        """Add the GIF as an image, as tensorboardX's ``add_video`` does, which needs moviepy."""
        image = {"height": size[0], "width": size[1], "colorspace": 3, "encoded_image_string": gif()}
        self._add_values(step, [{"tag": "videos/episode", "image": image}])

    def write_image(self, step: int, name: str, image: np.ndarray) -> None:
        """Add the image as a PNG."""
        from PIL import Image

        data = io.BytesIO()
        Image.fromarray(image).save(data, "PNG")
        height, width, _ = image.shape
        content = {"height": height, "width": width, "colorspace": 3, "encoded_image_string": data.getvalue()}
        self._add_values(step, [{"tag": name, "image": content}])

    def flush(self) -> None:
        """Return when the disk has all events."""
        self._file.sync()

    close = flush

    def _add_values(self, step: int, values: list[dict[str, Any]]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        self._add(step=int(step), summary=Summary(value=[Summary.Value(**value) for value in values]))

    def _add(self, **fields: Any) -> None:
        """Append an event as a TFRecord: its length and its bytes, each with a checksum."""
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.record_writer import masked_crc32c

        event = Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(event))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, event)]
        self._file.append(length + checksums[0] + event + checksums[1])


def _new_events_file(run_dir: Path) -> Path:
    """A path that sorts after all other event files, even if the clock was set back. TensorBoard reads the files by name."""
    stamps = [re.match(r"events\.out\.tfevents\.(\d{10})\.", path.name) for path in run_dir.glob("events.*")]
    latest = max((int(stamp[1]) for stamp in stamps if stamp), default=0)
    return run_dir / f"events.out.tfevents.{max(int(time.time()), latest + 1):010d}.{socket.gethostname()}"
