"""Code of the user's that is told how a training goes, and may end it: plain data in, ``True`` out to stop.

A callback is any object with one or more of these methods; no base class is asked for:

    on_start(info)          before the first update of this session
    on_update(info)         behind every ``every`` updates (an attribute of the object; 1 where it has none)
    on_evaluation(result)   behind every evaluation
    on_end(info)            when the training is over, or was stopped

``info`` is an ``Info``, ``result`` an ``Evaluation``. Where ``on_update`` or ``on_evaluation`` returns true, the training of that seed ends there,
saved. With several seeds each has a copy of its own (``copy.deepcopy``). What ``state_dict()`` gives, a JSON object, is saved with every
checkpoint; ``load_state_dict(state)`` is called with it when the run is resumed with the same callbacks.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from proximo.errors import ConfigError, nearest
from proximo.run.policy import Policy
from proximo.run.progress import Window
from proximo.serialization import read_json

HOOKS = ("on_start", "on_update", "on_evaluation", "on_end")


class Moment(Protocol):
    """What only the training itself has, while a hook runs."""

    def policy(self) -> Policy: ...

    def save(self, folder: Path) -> Path: ...


@dataclass(frozen=True)
class Info:
    """How far the training of a seed is."""

    seed: int
    run_dir: Path | None
    """None where nothing is written, as by ``PPO.learn``."""
    step: int
    """Environment steps learned from."""
    total_steps: int
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the updates since the last call, by the names of ``metrics.jsonl``: means, episodes weighted by their number."""
    moment: Moment = field(repr=False, kw_only=True)

    @property
    def is_one_of_several(self) -> bool:
        """Whether it is a seed of a group."""
        return self.run_dir is not None and self.run_dir.name == f"seed-{self.seed}"

    @property
    def policy(self) -> Policy:
        """The policy of this moment, which later updates leave as it is. To be taken within the hook: ``ConfigError`` afterwards."""
        return self.moment.policy()

    def save(self, folder: str | Path) -> Path:
        """Write the whole state of this moment as a run directory, as ``PPO.save`` does; within the hook, as ``policy``."""
        return self.moment.save(Path(folder))


@dataclass(frozen=True)
class Evaluation(Info):
    """What an evaluation has come to: whole greedy episodes on seeds that are the same each time."""

    mean_return: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    """``mean_return``, ``std_return``, ``iqm_return``, ``ci95``, ``mean_length``, ``success_rate`` and what else ``proximo eval --json`` has."""
    is_best: bool = False
    """Whether no evaluation of this run was better before."""


def check(callbacks: Sequence[Any], evaluated: bool = True) -> tuple[Any, ...]:
    """``callbacks``, if each has a hook and an ``every`` of 1 or more, and something to hear of: without evaluations those that hear of nothing else
    are a mistake. Raises ``ConfigError``."""
    if not isinstance(callbacks, list | tuple):
        raise ConfigError(f"callbacks = {type(callbacks).__name__}: expected a list of them, as [EarlyStopping(at=475)].")
    for callback in callbacks:
        name = type(callback).__name__
        if not evaluated and hasattr(callback, "on_evaluation") and not hasattr(callback, "on_update"):
            raise ConfigError(f"callbacks: {name} hears of evaluations, and eval_episodes = 0 asks for none.")
        if isinstance(callback, type):
            raise ConfigError(f"callbacks: {callback.__name__} is a class: expected an object of it, as {callback.__name__}().")
        if not any(callable(getattr(callback, hook, None)) for hook in HOOKS):
            hints = [near for method in dir(callback) if method.startswith("on") and (near := nearest(method, HOOKS))]
            raise ConfigError(f"callbacks: {name} has none of {', '.join(HOOKS)}{hints[0] if hints else ''}.")
        for hook in HOOKS:
            _hold_hook(name, hook, getattr(callback, hook, None))
        every = getattr(callback, "every", 1)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError(f"callbacks: {name}.every = {every!r}: expected a number of updates, 1 or more.")
    return tuple(callbacks)


def _hold_hook(name: str, hook: str, method: Any) -> None:
    if not callable(method):
        return
    argument = "result" if hook == "on_evaluation" else "info"
    try:
        inspect.signature(method).bind(None)
    except TypeError as error:
        raise ConfigError(f"callbacks: {name}.{hook} is called as {hook}({argument}): {error}.") from None
    except ValueError:  # one of C, which tells no signature
        return


class Listeners:
    """The callbacks of one seed."""

    def __init__(self, callbacks: Sequence[Any], copied: bool = False):
        self.callbacks = tuple(copy.deepcopy(callback) for callback in callbacks) if copied else tuple(callbacks)
        self._windows = [Window() if hasattr(callback, "on_update") else None for callback in self.callbacks]

    def borders(self, update: int) -> list[int]:
        """The next update behind which each is to be told."""
        return [(update // every + 1) * every for every in self._every()]

    def _every(self) -> list[int]:
        heard = zip(self.callbacks, self._windows, strict=True)
        return [getattr(callback, "every", 1) for callback, window in heard if window is not None]

    def add(self, metrics: Any) -> None:
        """Note the metrics of some updates, arrays with an entry for each."""
        for window in self._windows:
            if window is not None:
                window.add(metrics)

    def start(self, info: Info) -> None:
        """Tell all that it begins."""
        self._tell("on_start", info)

    def update(self, update: int, info: Callable[[dict[str, float]], Info]) -> bool:
        """Tell those whose turn it is behind ``update``; whether any asks to stop."""
        stop = False
        for callback, window in zip(self.callbacks, self._windows, strict=True):
            if window is not None and len(window) and update % getattr(callback, "every", 1) == 0:
                stop |= bool(callback.on_update(info(window.merge())))
        return stop

    def evaluation(self, result: Evaluation) -> bool:
        """Tell all; whether any asks to stop."""
        return self._tell("on_evaluation", result)

    def end(self, info: Info) -> None:
        """Tell all that it is over."""
        self._tell("on_end", info)

    def _tell(self, hook: str, info: Info) -> bool:
        asked = [bool(getattr(callback, hook)(info)) for callback in self.callbacks if hasattr(callback, hook)]
        return any(asked)

    def state(self) -> list[dict[str, Any]]:
        """Name and state of each, as a checkpoint keeps them. Raises ``ConfigError`` for a state that JSON cannot hold."""
        return [{"name": type(callback).__name__, "state": _state(callback)} for callback in self.callbacks]

    def restore(self, saved: Sequence[dict[str, Any]]) -> str | None:
        """Give each the state that a checkpoint has of it; a sentence where those are others."""
        names, before = [type(callback).__name__ for callback in self.callbacks], [entry["name"] for entry in saved]
        if names != before:
            was, now = (", ".join(listed) or "none" for listed in (before, names))
            return f"the callbacks were {was} and are {now} now: none is given its saved state."
        for callback, entry in zip(self.callbacks, saved, strict=True):
            if entry["state"] is not None:
                callback.load_state_dict(entry["state"])
        return None


def _state(callback: Any) -> Any:
    if not hasattr(callback, "state_dict"):
        return None
    state = callback.state_dict()
    try:
        return read_json(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"callbacks: {type(callback).__name__}.state_dict() returns a value that is not JSON ({error}): expected dictionaries, lists, strings, finite numbers, booleans or None."
        ) from error
