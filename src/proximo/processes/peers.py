"""The processes of a training, and what they agree on."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from proximo.errors import ConfigError, TrainingError, command
from proximo.processes import LAUNCHER
from proximo.processes.watchdog import Watchdog

HEARTBEAT_SECONDS = 100.0
WAIT_MILLISECONDS = 200
"""How long one request to the service waits, so that Python's signal handlers run in between."""


class Peers:
    """The processes of a training. Without ``join`` this process is alone, and every method answers at once.

    All processes must call ``agree``, ``from_first`` and ``check_equal`` equally often and in the same order.
    """

    def __init__(self, index: int = 0, count: int = 1, client: Any = None, heartbeat: float = HEARTBEAT_SECONDS):
        self.index, self.count, self._client = index, count, client
        self.watchdog = Watchdog(client, index, count, heartbeat)
        self._agreements = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run directory and prints."""
        return self.index == 0

    @property
    def can_rescue(self) -> bool:
        """Whether this process can save what was learned after a failure. Each of several has a part of the state."""
        return self.count == 1

    def grace(self, seconds: float) -> float:
        """How long a call that all processes share may outlast a request to stop: none of several may leave it alone."""
        return seconds if self.count == 1 else math.inf

    def part(self, number: int) -> range:
        """The part of ``number`` things that belongs to this process: an equal part for each."""
        return range(number * self.index // self.count, number * (self.index + 1) // self.count)

    def agree(self, value: Any, doing: str) -> list[Any]:
        """Give ``value``, which JSON can store, to all processes, and return the values of all, in their order. ``doing`` is what follows, in
        words, for the message if a process does not arrive here. Raises ``TrainingError`` if one is at another place of the training."""
        if self.count == 1:
            return [value]
        if not self.watchdog.is_watching:
            raise ConfigError("The processes have separated after a failure: start them again.")
        self._agreements += 1
        own, all_of_them = f"value/{self._agreements}", f"values/{self._agreements}"
        with self.watchdog.waiting(doing):
            self._client.key_value_set(f"{own}/{self.index}", json.dumps([doing, value]))
            if self.is_first:
                given = ", ".join(self._wait_for(f"{own}/{index}") for index in range(self.count))
                self._client.key_value_set(all_of_them, f"[{given}]")
                # A process that is at this number has read the numbers before.
                self._client.key_value_delete(f"values/{self._agreements - 1}")
                self._client.key_value_delete(f"{own}/")
            every = json.loads(self._wait_for(all_of_them))
        if len(places := {place for place, _ in every}) > 1:
            raise TrainingError(f"Processes have run different code: they are at {', '.join(sorted(places))}.")
        return [found for _, found in every]

    def _wait_for(self, key: str) -> str:
        while True:  # the watchdog ends this process if no answer comes
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                return self._client.blocking_key_value_get(key, WAIT_MILLISECONDS)

    def from_first(self, make: Callable[[], Any], doing: str) -> Any:
        """The value of ``make()``, which process 0 calls, in all processes. ``doing`` as in ``agree``."""
        return self.agree(make() if self.is_first else None, doing)[0]

    def check_equal(self, make: Callable[[], Mapping[str, Any]]) -> None:
        """Raise ``ConfigError`` if the values of ``make()``, by name, differ between processes."""
        if self.count == 1:
            return
        first, *others = self.agree({**make(), "the number of processes": self.count}, "the comparison of settings")
        for index, found in enumerate(others, 1):
            for name in (name for name in first if found.get(name) != first[name]):
                raise ConfigError(
                    f"{name} is {found.get(name)} in process {index} and {first[name]} in process 0: start all processes with the same "
                    "settings and the same versions."
                )

    def require_one(self, what: str) -> None:
        """Raise ``ConfigError`` if several processes train together, which ``what`` does not support."""
        if self.count > 1:
            raise ConfigError(f"{what} uses one process, but {self.count} have joined: use proximo.train.")

    def how_to_resume(self, path: Any) -> str:
        """The command that resumes the run at ``path`` with all processes."""
        resume = ("train", "--resume", path)
        if self.count == 1:
            return command("proximo", *resume)
        if LAUNCHER in os.environ:
            return command("proximo", "launch", "-n", self.count, "--", *resume)
        return f"{command('proximo', *resume, '--distributed')}   (in each of the {self.count} processes, with its other flags)"

    @contextlib.contextmanager
    def failing_together(self) -> Iterator[None]:
        """Context manager: an exception in the block ends the training in all processes."""
        try:
            yield
        except BaseException as error:
            self.watchdog.fail(error)
            raise

    def finish(self) -> None:
        """Disconnect the processes, which are all complete. Otherwise Python's exit would wait for some that are gone."""
        if self.watchdog.is_watching:
            self.agree(None, "the end")
            self.watchdog.stop()
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                jax.distributed.shutdown()


ALONE = Peers()
_current = ALONE


def current() -> Peers:
    """The processes that train with this one. A training asks once, and passes the object on."""
    return _current


def use(peers: Peers) -> Peers:
    """Let ``current`` return ``peers`` until Python ends; then finish, or report the exception that ended it."""
    global _current
    _current = peers

    @atexit.register
    def end() -> None:
        if (error := getattr(sys, "last_value", None)) is not None:
            peers.watchdog.fail(error)
        peers.finish()

    return peers
