"""Weights & Biases, as one of the sinks that ``track`` names."""

from __future__ import annotations

import contextlib
import json
import math
import netrc
import os
import re
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat
from urllib.parse import urlparse

from proximo.run.files import write_atomic
from proximo.run.histograms import Histogram
from proximo.run.sinks import Sink, TrackedRun
from proximo.serialization import read_json

AXIS = "environment_steps"
START_SECONDS = 30
FILE = "wandb.json"
_SEED = re.compile(r"seed-\d+")
_TOLD: set[Path] = set()
"""Groups of seeds that were said to be tracked offline."""
_LOCK = threading.Lock()
KEY_VARIABLES = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")


class WeightsAndBiases(Sink):
    """A run whose axis is the environment step. Its id is kept in ``wandb.json`` of the run directory, so that a resume goes on
    with it. Made in a thread of ``tracking.Background``: what fails or waits here does not reach the training.

    Rows carry the environment step as their own number, which the server counts by: those that it has are left out. Where there
    is no server, a resume begins a new folder ``wandb/offline-run-…`` with all rows from the start, because folders of one
    id replace each other when they are uploaded.
    """

    knows_its_rows = True

    def __init__(self, run: TrackedRun):
        import wandb

        self._wandb, self._run_dir, self._file = wandb, run.run_dir, run.run_dir / FILE
        kept = {} if run.resumed_at is None else _read(self._file)
        self._id: str = kept.get("id") or secrets.token_hex(4)
        self._run = self._begin(run)
        self._next = int(self._run.step)
        """Rows before this step are there already."""
        self._pending: tuple[int, dict[str, Any]] | None = None
        self._videos: set[str] = set(kept.get("videos", ())) if self._next else set()
        self._keep()

    def _begin(self, run: TrackedRun) -> Any:
        wandb, settings = self._wandb, run.settings
        mode = os.environ.get("WANDB_MODE") or None
        if mode is None and not has_key():
            mode = "offline"
            self._tell_offline(run, "Weights & Biases has no key here (`wandb login`, or WANDB_API_KEY)")
        alone, env = not _SEED.fullmatch(run.run_dir.name), settings["env"]["id"]
        name = run.run_dir if alone else run.run_dir.parent
        options: dict[str, Any] = {
            "id": self._id,
            "resume": "allow" if mode in (None, "online") else None,
            "dir": str(run.run_dir),
            "project": os.environ.get("WANDB_PROJECT") or "proximo",
            "name": f"{env}/{name.name}" + ("" if alone else f"/{run.run_dir.name}"),
            "group": None if alone else f"{env}/{name.name}",
            "config": settings,
            "reinit": "create_new",
        }
        quiet = {"silent": True, "console": "off", "save_code": False, "init_timeout": START_SECONDS}
        try:
            started = wandb.init(mode=mode, settings=wandb.Settings(**quiet), **options)
        except Exception as error:
            if mode in ("offline", "disabled"):
                raise
            self._tell_offline(run, f"Weights & Biases cannot be reached ({' '.join(str(error).split())})")
            started = wandb.init(mode="offline", settings=wandb.Settings(**quiet), **{**options, "resume": None})
        started.define_metric(AXIS, hidden=True)
        started.define_metric("*", step_metric=AXIS)
        return started

    @staticmethod
    def _tell_offline(run: TrackedRun, why: str) -> None:
        """Once for all seeds of a group, whose runs begin side by side."""
        seed = _SEED.fullmatch(run.run_dir.name) is not None
        place = run.run_dir.parent if seed else run.run_dir
        folder = place / "seed-*" if seed else place
        if seed:
            with _LOCK:
                if place in _TOLD:
                    return
                _TOLD.add(place)
        run.warned(f"{why}: {place} is tracked offline; `wandb sync {folder / 'wandb' / 'latest-run'}` uploads it.")

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Add the finite numbers to the row of ``step``, with the clips that have come up since."""
        self._add(step, {name: float(value) for name, value in values.items() if math.isfinite(value)})
        for path in sorted((self._run_dir / "videos").glob("*.mp4")):
            if path.name not in self._videos and _step_in(path.stem, step) <= step:
                self._videos.add(path.name)
                self._add(step, {"videos/" + (re.sub(r"[-_]*\d+$", "", path.stem) or "clip"): self._wandb.Video(str(path))})

    def write_histograms(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """Add them to the row of ``step``."""
        made = {name: self._wandb.Histogram(np_histogram=(h.counts, h.edges)) for name, h in histograms.items()}
        self._add(step, made)

    def _add(self, step: int, values: dict[str, Any]) -> None:
        # Together: a row that is there is whole.
        if self._pending is not None and self._pending[0] != step:
            self.flush()
        self._pending = (step, {**(self._pending[1] if self._pending else {AXIS: step}), **values})

    def flush(self) -> None:
        """Hand over the row that is being gathered."""
        pending, self._pending = self._pending, None
        if pending is not None and pending[0] >= self._next:
            self._run.log(pending[1], step=pending[0])
            self._next = pending[0]  # more may be added to it
            self._keep()

    def close(self) -> None:
        """Hand over the rest, and wait for the upload."""
        self.flush()
        self._run.finish()

    def _keep(self) -> None:
        url = None if getattr(self._run, "offline", True) else self._run.url
        kept = {"id": self._id, "url": url, "videos": sorted(self._videos)}
        with contextlib.suppress(OSError):
            write_atomic(self._file, json.dumps(kept) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = read_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) and isinstance(kept.get("id"), str) else {}


def _step_in(stem: str, otherwise: int) -> int:
    """The step that ends a clip's name."""
    found = re.findall(r"\d+", stem)
    return int(found[-1]) if found else otherwise


def has_key() -> bool:
    """Whether Weights & Biases finds a key without asking: in the environment, or where ``wandb login`` has put it."""
    if any(os.environ.get(name) for name in KEY_VARIABLES):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    for path in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if path and netrc.netrc(os.path.expanduser(path)).authenticators(host):
                return True
    return False
