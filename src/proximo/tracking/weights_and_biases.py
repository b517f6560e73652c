"""The tracker that writes to Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import math
import netrc
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat
from urllib.parse import urlparse

import numpy as np

from proximo.serialization import json_object
from proximo.storage.atomic_files import write_atomic
from proximo.tracking.histograms import Histogram
from proximo.tracking.tracker import TrackedRun, Tracker

AXIS = "environment_steps"
START_SECONDS = 30
FILE = "wandb.json"
_REPORTED: dict[Path, object] = {}
"""Groups of seeds whose offline tracking was reported, with the run that reported it."""
KEY_VARIABLES = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")


class WeightsAndBiases(Tracker):
    """Writes a run of Weights & Biases whose axis is the environment step.

    ``wandb.json`` of the run directory stores its id, so that a resume continues the same run. It works in a thread of
    ``BackgroundTracker``, so failures and delays do not affect the training.

    The environment step is the step of each row on the server, so rows that the server has are skipped. Without a server, a resume begins a
    new folder ``wandb/offline-run-…`` with all rows from the start, because folders of one id replace each other when they are uploaded.
    """

    knows_its_rows = True

    def __init__(self, run: TrackedRun):
        import wandb

        self._wandb, self._run_dir, self._file = wandb, run.run_dir, run.run_dir / FILE
        kept = {} if run.resumed_at is None else json_object(self._file)
        self._id = str(kept.get("id") or secrets.token_hex(4))
        self._run = self._begin(run)
        self._next = int(self._run.step)
        """The server already has the rows before this step."""
        self._pending: tuple[int, dict[str, Any]] | None = None
        self._videos: set[str] = set(kept.get("videos", ())) if self._next else set()
        self._store()

    def _begin(self, run: TrackedRun) -> Any:
        wandb, settings = self._wandb, run.settings
        mode = os.environ.get("WANDB_MODE") or None
        if mode is None and not has_key():
            mode = "offline"
            self._warn_offline(run, "Weights & Biases has no key here (`wandb login`, or WANDB_API_KEY)")
        env, group = settings["env"]["id"], _group(run)
        name = f"{env}/{(group or run.run_dir).name}"
        options: dict[str, Any] = {
            "id": self._id,
            "resume": "allow" if mode in (None, "online") else None,
            "dir": str(run.run_dir),
            "project": os.environ.get("WANDB_PROJECT") or "proximo",
            "name": f"{name}/{run.run_dir.name}" if group else name,
            "group": name if group else None,
            "config": settings,
            "reinit": "create_new",
        }
        quiet = {"silent": True, "console": "off", "save_code": False, "init_timeout": START_SECONDS}
        try:
            started = wandb.init(mode=mode, settings=wandb.Settings(**quiet), **options)
        except Exception as error:
            if mode in ("offline", "disabled"):
                raise
            self._warn_offline(run, f"Weights & Biases cannot be reached ({' '.join(str(error).split())})")
            started = wandb.init(mode="offline", settings=wandb.Settings(**quiet), **{**options, "resume": None})
        started.define_metric(AXIS, hidden=True)
        started.define_metric("*", step_metric=AXIS)
        return started

    @staticmethod
    def _warn_offline(run: TrackedRun, why: str) -> None:
        """Warn once for all seeds of a group, whose runs begin at the same time."""
        group = _group(run)
        if group and _REPORTED.setdefault(group, run) is not run:  # in one step, because the runs have threads of their own
            return
        place, folder = (group, group / "seed-*") if group else (run.run_dir, run.run_dir)
        run.warned(f"{why}: {place} is tracked offline; `wandb sync {folder / 'wandb' / 'latest-run'}` uploads it.")

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Add the finite numbers to the row of ``step``, with the clips that were recorded since the last row."""
        self._add(step, {name: float(value) for name, value in values.items() if math.isfinite(value)})
        for path in sorted((self._run_dir / "videos").glob("[!.]*.mp4")):
            if path.name not in self._videos and _step_in(path.stem, step) <= step:
                self._videos.add(path.name)
                self._add(step, {"videos/" + (re.sub(r"[-_]*\d+$", "", path.stem) or "clip"): self._wandb.Video(str(path))})

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Add the histograms to the row of ``step``."""
        made = {name: self._wandb.Histogram(np_histogram=(h.counts, h.edges)) for name, h in histograms.items()}
        self._add(step, made)

    def write_image(self, step: int, name: str, image: np.ndarray) -> None:
        """Add the image to the row of ``step``."""
        self._add(step, {name: self._wandb.Image(image)})

    def _add(self, step: int, values: dict[str, Any]) -> None:
        # One call for all values of a step, so that every row on the server is complete.
        if self._pending is not None and self._pending[0] != step:
            self.flush()
        self._pending = (step, {**(self._pending[1] if self._pending else {AXIS: step}), **values})

    def flush(self) -> None:
        """Log the row that is being collected."""
        pending, self._pending = self._pending, None
        if pending is not None and pending[0] >= self._next:
            self._run.log(pending[1], step=pending[0])
            self._next = pending[0]  # more values of this step may follow
            self._store()

    def close(self) -> None:
        """Log the rest and wait for the upload."""
        self.flush()
        self._run.finish()

    def _store(self) -> None:
        url = None if getattr(self._run, "offline", True) else self._run.url
        kept = {"id": self._id, "url": url, "videos": sorted(self._videos)}
        with contextlib.suppress(OSError):
            write_atomic(self._file, json.dumps(kept) + "\n")


def _group(run: TrackedRun) -> Path | None:
    """The folder of the group of seeds that ``run`` belongs to; None for a single run."""
    return run.run_dir.parent if re.fullmatch(r"seed-\d+", run.run_dir.name) else None


def _step_in(stem: str, otherwise: int) -> int:
    """The step at the end of the name of a clip; ``otherwise`` if there is none."""
    found = re.findall(r"\d+", stem)
    return int(found[-1]) if found else otherwise


def has_key() -> bool:
    """Whether Weights & Biases finds a key: in an environment variable, or where ``wandb login`` stores it."""
    if any(os.environ.get(name) for name in KEY_VARIABLES):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    for path in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if path and netrc.netrc(os.path.expanduser(path)).authenticators(host):
                return True
    return False
