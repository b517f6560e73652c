"""Callbacks: user code that receives the progress of a training and may stop it.

A callback is any object with at least one of these methods. It needs no base class:

    class PrintReturn:
        every = 10

        def on_update(self, info):
            print(info.step, info.metrics["rollout/return_mean"])

    proximo.train("CartPole-v1", callbacks=[PrintReturn()])

| Method | Is called |
|---|---|
| `on_start(info)` | before the first update of this session |
| `on_update(info)` | after every `every` updates; `every` is an attribute of the object, 1 by default |
| `on_evaluation(result)` | after every evaluation |
| `on_end(info)` | when the training is complete or was stopped |

`info` is an `Info`, `result` an `Evaluation`. If `on_update` or `on_evaluation` returns True, the training of that seed is saved
and stops. With several seeds, each seed has its own copy of the callback (`copy.deepcopy`).

A callback with state has two more methods. `state_dict()` returns a JSON object, which is saved with every
checkpoint. `load_state_dict(state)` receives it when the run is resumed with the same callbacks.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.errors import ConfigError, is_integer, nearest, shown
from proximo.evaluation.policy import Policy
from proximo.serialization import jsonable, read_json
from proximo.storage.run_directory import save_run
from proximo.tracking.metrics_window import MetricsWindow
from proximo.training.backend import Backend, Snapshot, copy_of

HOOKS = ("on_start", "on_update", "on_evaluation", "on_end")


@dataclass(frozen=True)
class Info:
    """The progress of one seed, the argument of a callback's methods."""

    seed: int
    """The seed."""
    run_dir: Path | None
    """Run directory of the seed; None in ``PPO.learn``, which writes no file."""
    step: int
    """Environment steps learned from."""
    total_steps: int
    """Environment steps of the complete training."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """In ``on_update``: means over the updates since the last call, with the names of ``metrics.jsonl``. Means of episodes are weighted by
    the number of episodes. A value that was not measured is None, for example the mean return if no episode has ended."""
    config: Config = field(repr=False, kw_only=True)
    """The settings of the seed."""
    _training: Any = field(repr=False, kw_only=True)
    """The ``Training`` that calls."""
    _now: Snapshot = field(repr=False, kw_only=True)
    _run: Any = field(repr=False, kw_only=True)
    """The ``SeedRun``."""

    @property
    def is_one_of_several(self) -> bool:
        """Whether the seed belongs to a group of seeds."""
        return self.run_dir is not None and self.run_dir.name == f"seed-{self.seed}"

    @property
    def policy(self) -> Policy:
        """A copy of the current policy, which later updates do not change.

        Raises:
            ConfigError: training has continued since the callback was called.
        """
        backend = self._backend()
        return Policy(copy_of(backend.policy(self._now.state, self._run.index)), backend.env, self.config, self.step)

    def save(self, folder: str | Path) -> Path:
        """Save the whole training state as a run directory, as ``PPO.save`` does. Of several processes, all must call this method.

        Args:
            folder: where to save; what was saved there before is replaced.

        Returns:
            The folder.

        Raises:
            ConfigError: training has continued since the callback was called, or ``folder`` contains other files.
            CheckpointError: the folder cannot be written.
        """
        backend = self._backend()
        state = backend.seed_state(self._now.state, self._run.index)
        if backend.peers.is_first:
            save_run(Path(folder), self.config, self.step, state, self._run.last_evaluation)
        return Path(folder)

    def _backend(self) -> Backend:
        if self._training.snapshot is not self._now:  # the next update uses the state up
            raise ConfigError(
                f"The state of step {self.step} was read after training had continued: use policy and save within the callback."
            )
        return self._training.backend


@dataclass(frozen=True)
class Evaluation(Info):
    """The result of an evaluation during training: whole episodes of the greedy policy, on the same environment seeds every time."""

    return_mean: float = 0.0
    """Mean return of the episodes."""
    summary: dict[str, Any] = field(default_factory=dict)
    """``return_mean``, ``return_std``, ``return_iqm``, ``ci95``, ``length_mean``, ``success_rate`` and the
    other entries of ``proximo eval --json``."""
    is_best: bool = False
    """Whether no earlier evaluation of this run was better."""


def callbacks_of_seeds(callbacks: Sequence[Any], config: Config, seeds: int = 1) -> list[SeedCallbacks]:
    """The callbacks of each seed: ``callbacks`` itself for one seed, otherwise copies. Raises
    ``ConfigError`` if they are no list, or if an object has no hook or an invalid
    ``every``, cannot be copied, or needs evaluations and the training has none."""
    if not isinstance(callbacks, list | tuple):
        raise ConfigError(f"callbacks = {type(callbacks).__name__}: expected a list, for example [EarlyStopping(at=475)].")
    for callback in callbacks:
        name = callback.__name__ if isinstance(callback, type) else type(callback).__name__
        if problem := _problem(callback, name, config):
            raise ConfigError(f"callbacks: {name}{problem}.")
    try:
        return [SeedCallbacks(callbacks if seeds == 1 else map(copy.deepcopy, callbacks)) for _ in range(seeds)]
    except Exception as error:
        raise ConfigError(
            f"callbacks: each of several seeds has a copy of each callback, which failed ({type(error).__name__}: {error}): leave out of "
            "their attributes what cannot be copied, such as open files and locks, or train each seed alone."
        ) from error


def _problem(callback: Any, name: str, config: Config) -> str:
    """What is wrong with a callback; empty: nothing."""
    hooks = {hook: getattr(callback, hook) for hook in HOOKS if _has(callback, hook)}
    if not hooks:
        hints = [near for method in dir(callback) if method.startswith("on") and (near := nearest(method, HOOKS))]
        return f" has none of {', '.join(HOOKS)}{hints[0] if hints else ''}"
    if isinstance(callback, type):
        return f" is a class: expected an object, for example {name}()"
    if not config.run.eval_episodes and "on_evaluation" in hooks and "on_update" not in hooks:
        return " needs evaluations, but eval_episodes = 0: set eval_episodes to 1 or more"
    for hook, method in hooks.items():
        try:
            inspect.signature(method).bind(None)
        except TypeError as error:
            return f".{hook} is called as {hook}({'result' if hook == 'on_evaluation' else 'info'}): {error}"
        except ValueError:  # a function in C, which may have no signature
            pass
    if hasattr(callback, "state_dict") and not hasattr(callback, "load_state_dict"):
        return " has state_dict, but no load_state_dict, which a resume calls: define both, or none"
    every = getattr(callback, "every", 1)
    return "" if is_integer(every) and every >= 1 else f".every = {every!r}: expected a number of updates, 1 or more"


def _has(callback: Any, hook: str) -> bool:
    return callable(getattr(callback, hook, None))


class SeedCallbacks:
    """The callbacks of one seed."""

    def __init__(self, callbacks: Iterable[Any] = ()):
        self.objects = tuple(callbacks)
        self._updated = [(callback, MetricsWindow()) for callback in self.objects if _has(callback, "on_update")]
        """The callbacks with ``on_update``, and the metrics since its last call."""

    @property
    def intervals(self) -> list[int]:
        return [getattr(callback, "every", 1) for callback, _ in self._updated]

    def add(self, metrics: Any) -> None:
        for _, window in self._updated:
            window.add(metrics)

    def updated(self, update: int) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The callbacks whose ``on_update`` is due, and the metrics since its last call."""
        for callback, window in self._updated:
            if len(window) and update % getattr(callback, "every", 1) == 0:
                yield callback, jsonable(window.merge())

    def call(self, hook: str, info: Info) -> bool:
        """Call another hook of all callbacks, and return whether any asks to stop."""
        return any([asks_to_stop(callback, hook, info) for callback in self.objects if _has(callback, hook)])

    def state(self) -> list[dict[str, Any]]:
        """Name and state of each callback. Raises ``ConfigError`` for a state that is not JSON."""
        states = []
        for callback in self.objects:
            name, state = type(callback).__name__, callback.state_dict() if hasattr(callback, "state_dict") else None
            try:
                states.append({"name": name, "state": read_json(json.dumps(state, allow_nan=False))})
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"callbacks: {name}.state_dict() returns a value that is not JSON ({error}): expected dictionaries, lists, strings, finite "
                    "numbers, booleans or None."
                ) from error
        return states

    def restore(self, saved: Sequence[dict[str, Any]]) -> str | None:
        """Load the saved states, or return a warning if the saved callbacks have other names."""
        names, saved_names = [type(callback).__name__ for callback in self.objects], [entry["name"] for entry in saved]
        if names != saved_names:
            then, now = (", ".join(listed) or "none" for listed in (saved_names, names))
            return f"the callbacks were {then} and are now {now}, so their saved state is not loaded."
        for callback, entry in zip(self.objects, saved, strict=True):
            if entry["state"] is not None:
                callback.load_state_dict(entry["state"])
        return None


def asks_to_stop(callback: Any, hook: str, info: Info) -> bool:
    """Call a hook, and return whether it asks to stop. Raises ``ConfigError`` for another result."""
    result = getattr(callback, hook)(info)
    if result is None or hook not in ("on_update", "on_evaluation"):
        return False
    if isinstance(result, bool) or (getattr(result, "dtype", None) == np.bool_ and np.ndim(result) == 0):
        return bool(result)
    raise ConfigError(
        f"callbacks: {type(callback).__name__}.{hook} returned {shown(result)}: expected True to stop the training, or False or None to go on."
    )
