"""The tracker that writes to Weights & Biases."""

import contextlib
import json
import math
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo.serialization import json_object
from proximo.storage.atomic_files import write_atomic
from proximo.tracking.histograms import Histogram
from proximo.tracking.tracker import Clip, Image, TrackedRun, Tracker

AXIS = "environment_steps"
START_SECONDS = 30
_REPORTED: dict[Path, object] = {}
"""Groups of seeds whose offline tracking was reported, with the run that reported it."""
KEY_VARIABLES = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")


class WeightsAndBiases(Tracker):
    """Writes a run of Weights & Biases whose axis is the environment step.

    ``wandb.json`` stores its id, so that a resume continues the same run. The environment step is the step of each row on
    the server, so rows that the server has are skipped. Without a server, a resume begins a new folder with all rows from
    the start, because folders of one id replace each other when they are uploaded.
    """

    def __init__(self, run: TrackedRun):
        import wandb

        self._wandb, file = wandb, run.run_dir / "wandb.json"
        kept = {} if run.resumed_at is None else json_object(file)
        self._id = str(kept.get("id") or secrets.token_hex(4))
        self._run = self._begin(run)
        self._run.define_metric(AXIS, hidden=True)
        self._run.define_metric("*", step_metric=AXIS)
        self._first = self._last = int(self._run.step)
        """The server has the rows before ``_first``. A clip that comes after later rows is added to row ``_last``."""
        url = None if getattr(self._run, "offline", True) else self._run.url
        with contextlib.suppress(OSError):
            write_atomic(file, json.dumps({"id": self._id, "url": url}) + "\n")

    def _begin(self, run: TrackedRun) -> Any:
        """Start online, or offline with a warning: without a key, or if the server cannot be reached."""
        group = run.run_dir.parent if re.fullmatch(r"seed-\d+", run.run_dir.name) else None
        name = f"{run.settings['env']['id']}/{(group or run.run_dir).name}"
        options: dict[str, Any] = {
            "id": self._id,
            "dir": str(run.run_dir),
            "project": os.environ.get("WANDB_PROJECT") or "proximo",
            "name": f"{name}/{run.run_dir.name}" if group else name,
            "group": name if group else None,
            "config": run.settings,
            "reinit": "create_new",
            "settings": self._wandb.Settings(silent=True, console="off", save_code=False, init_timeout=START_SECONDS),
        }
        mode = os.environ.get("WANDB_MODE") or None
        why = "Weights & Biases has no key here (`wandb login`, or WANDB_API_KEY)"
        if mode or has_key():
            try:
                return self._wandb.init(mode=mode, resume="allow" if mode in (None, "online") else None, **options)
            except Exception as error:
                if mode in ("offline", "disabled"):
                    raise
                why = f"Weights & Biases cannot be reached ({' '.join(str(error).split())})"
        # Once for all seeds of a group, which begin at the same time in threads of their own.
        if not group or _REPORTED.setdefault(group, run) is run:
            place, folder = (group, group / "seed-*") if group else (run.run_dir, run.run_dir)
            run.warned(f"{why}: {place} is tracked offline; `wandb sync {folder / 'wandb' / 'latest-run'}` uploads it.")
        return self._wandb.init(mode="offline", resume=None, **options)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Add the values to the row of ``step``, if the server may lack it. NaN and infinity are left out."""
        if step < self._first:
            return
        self._last, row = max(self._last, step), {}
        for name, x in values.items():
            if isinstance(x, Histogram):
                row[name] = self._wandb.Histogram(np_histogram=(x.counts, x.edges))
            elif isinstance(x, Image | Clip):
                row[name] = self._wandb.Image(x.pixels) if isinstance(x, Image) else self._wandb.Video(str(x.path))
            elif math.isfinite(x):
                row[name] = float(x)
        self._run.log({AXIS: self._last, **row}, step=self._last)

    def close(self) -> None:
        """Wait for the upload."""
        self._run.finish()


def has_key() -> bool:
    """Whether Weights & Biases finds a key: in an environment variable, or where ``wandb login`` stores it."""
    from requests.utils import get_netrc_auth  # a dependency of wandb

    server = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    return any(map(os.environ.get, KEY_VARIABLES)) or get_netrc_auth(server) is not None
