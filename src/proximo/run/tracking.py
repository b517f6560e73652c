"""What ``track`` names: sinks by name or of one's own, kept apart from the training so that they can neither slow nor end it."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from proximo.errors import ConfigError, lacking, nearest
from proximo.run.csv_table import CsvTable
from proximo.run.histograms import Histogram
from proximo.run.sinks import HISTOGRAMS, METRICS, Sink, TrackedRun, read_rows
from proximo.serialization import read_json
from proximo.users_code import imported

NAMES = ("csv", "wandb")
PATIENCE_SECONDS, HURRY_SECONDS = 60.0, 3.0
"""How long the end of a training waits for what a sink still has to upload; and when it was interrupted twice."""
_FORMS = "csv, wandb or my_package.module:MySink, several by commas, or none"


def names_in(track: str) -> list[str]:
    """The sinks that the setting names. Raises ``ConfigError`` for one that is none."""
    names = [name.strip() for name in track.split(",") if name.strip()]
    if names in ([], ["none"]):
        return []
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"track = {track!r} names {name} {names.count(name)} times: once is enough.")
        if name not in NAMES and ":" not in name:
            raise ConfigError(f"track = {track!r}: there is no {name!r}{nearest(name, NAMES)}; expected {_FORMS}.")
    return names


def hold(track: str) -> None:
    """Raise ``ConfigError`` or ``EnvError`` where a sink is not there; before anything is compiled."""
    for name in names_in(track):
        if name == "wandb":
            spec = importlib.util.find_spec("wandb")
            if spec is None or spec.origin is None:  # a folder of that name, as Weights & Biases makes one, is no library
                raise lacking("track = wandb", "wandb")
        elif name not in NAMES:
            _own(name)


def _own(name: str) -> Callable[[TrackedRun], Sink]:
    """The class that ``module:Class`` names."""
    module_name, _, class_name = name.rpartition(":")
    module = imported(module_name, f"track = {name!r}")
    found = getattr(module, class_name, None)
    if not callable(found) or not callable(getattr(found, "write", None)):
        what = f"nothing of that name{nearest(class_name, vars(module))}" if found is None else repr(found)
        raise ConfigError(
            f"track = {name!r}: expected a class with write(step, values) (docs/tracking.md has an example), found {what}."
        )
    return cast("Callable[[TrackedRun], Sink]", found)


def opened(track: str, run: TrackedRun) -> list[Sink]:
    """The sinks that ``track`` names, for ``run``."""
    return [_open(name, run) for name in names_in(track)]


def _open(name: str, run: TrackedRun) -> Sink:
    if name == "csv":
        return CsvTable(run)
    if name == "wandb":
        from proximo.run.weights_and_biases import WeightsAndBiases  # what it needs is imported in its own thread

        return Background(name, WeightsAndBiases, run)
    return Background(name, _own(name), run)


class Background(Sink):
    """A sink in a thread of its own, made there too. When it fails, ``run.warned`` is told once and the rest is left out.

    A row that is written is on record in ``.tracked-NAME.json``. So a resumed run gives the sink what it has missed, and leaves out
    what it has: rows that were dropped because no checkpoint followed are written anew, and it has them already.
    """

    def __init__(self, name: str, make: Callable[[TrackedRun], Sink], run: TrackedRun):
        self.name, self.run, self.patience = name, run, PATIENCE_SECONDS
        self._failed = False
        self._ended_at: float | None = None
        self._queue: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._record = _Record(run.run_dir / f".tracked-{name.replace(':', '-')}.json", fresh=run.resumed_at is None)
        # Read now: what is written from here on comes by the queue.
        missed = [] if run.resumed_at is None else _earlier(run.run_dir, run.resumed_at)
        self._thread = threading.Thread(target=self._work, args=(make, missed), name=f"track {name}", daemon=True)
        self._thread.start()

    def write(self, step: int, values: Any) -> None:
        """Hand the row over."""
        self._put("write", step, dict(values))

    def write_histograms(self, step: int, histograms: Any) -> None:
        """Hand the histograms over."""
        self._put("write_histograms", step, dict(histograms))

    def flush(self) -> None:
        """Hand the request over: it is not waited for, what is missed is written when the run is resumed."""
        self._put("flush")

    def end(self) -> None:
        """Nothing comes any more. From now on it has so long as its patience lasts, beside all others that have ended."""
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._queue.put(None)

    def close(self) -> None:
        """Wait until all is written, but not for ever."""
        self.end()
        assert self._ended_at is not None
        self._thread.join(max(0.0, self._ended_at + self.patience - time.monotonic()))
        if self._thread.is_alive() and not self._failed:
            self.run.warned(f"{self.name} has not taken everything within {self.patience:.0f} s: the rest may be missing there.")

    def _put(self, method: str, *arguments: Any) -> None:
        if not self._failed:
            self._queue.put((method, arguments))

    def _work(self, make: Callable[[TrackedRun], Sink], missed: list[tuple[str, tuple[Any, ...]]]) -> None:
        try:
            sink = make(self.run)
            if getattr(sink, "knows_its_rows", False):
                self._record.forget()
            for method, arguments in missed:
                self._hand(sink, method, arguments)
            while (item := self._queue.get()) is not None:
                self._hand(sink, *item)
            getattr(sink, "close", _nothing)()
        except (Exception, SystemExit) as error:
            self._failed = True
            what = " ".join(str(error).split()) or "no reason given"
            self.run.warned(
                f"{self.name} has failed ({type(error).__name__}: {what}): it gets nothing more, the training goes on."
            )

    def _hand(self, sink: Sink, method: str, arguments: tuple[Any, ...]) -> None:
        if method == "flush":
            getattr(sink, "flush", _nothing)()
        elif self._record.is_new(method, arguments[0]):
            getattr(sink, method, _nothing)(*arguments)
            self._record.note(method, arguments[0])


def _nothing(*_: Any) -> None:
    """For the methods that a class without our base need not have."""


def _earlier(run_dir: Path, step: int) -> list[tuple[str, tuple[Any, ...]]]:
    """What was written until ``step``, in that order."""
    rows: list[tuple[str, tuple[Any, ...]]] = []
    for row in read_rows(run_dir / METRICS):
        values = {name: float("nan") if value is None else value for name, value in row.items() if name != "step"}
        rows.append(("write", (row["step"], values)))
    for row in read_rows(run_dir / HISTOGRAMS):
        made = {name: Histogram.from_json(value) for name, value in row.items() if name != "step"}
        rows.append(("write_histograms", (row["step"], made)))
    return sorted((row for row in rows if row[1][0] <= step), key=lambda row: row[1][0])


class _Record:
    """Which rows a sink has: of each kind the last step, and how many at that step (a training's row and an evaluation's)."""

    def __init__(self, path: Path, fresh: bool):
        self._path = path
        self._last: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """The same, of the rows that came in this session."""
        if not fresh:
            try:
                self._last = {kind: (int(step), int(count)) for kind, (step, count) in read_json(path.read_bytes()).items()}
            except (OSError, ValueError, TypeError, AttributeError):
                self._last = {}

    def forget(self) -> None:
        """The sink has nothing, or knows by itself what it has."""
        self._last = {}

    def is_new(self, kind: str, step: int) -> bool:
        """Whether the sink has not got this row, which is the next one of its kind."""
        before, count = self._seen.get(kind, (-1, 0))
        self._seen[kind] = (step, count + 1 if step == before else 1)
        return self._seen[kind] > self._last.get(kind, (-1, 0))

    def note(self, kind: str, step: int) -> None:
        """The sink has got it."""
        self._last[kind] = self._seen[kind]
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(self._last))  # not waited for: a loss of power may cost a row twice, not a second each
        os.replace(temporary, self._path)
