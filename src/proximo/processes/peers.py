"""The processes of a training: what they agree on, and what they know of each other."""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proximo.errors import ConfigError, TrainingError, command
from proximo.processes.coordination import Store, abandon, disconnect, set_last_words
from proximo.processes.watchdog import Phase, Watchdog

WAIT_SECONDS = 0.2
"""How long one request to the store waits, so that Python's signal handlers run in between."""


class PeerLeftError(Exception):
    """Another process has left the training in order, because it was asked to stop."""


class Peers:
    """The processes of a training. Without ``join`` this process is alone, and every method answers at once.

    All processes must call ``agree`` and ``from_first`` equally often and in the same order.
    """

    def __init__(self, index: int = 0, count: int = 1, is_launched: bool = False, flags: tuple[str, ...] = ()):
        self.index, self.count, self.is_launched, self.flags = index, count, is_launched, flags
        self._number = 0
        self._store: Store | None = None
        self.watchdog: Watchdog | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run directory and prints."""
        return self.index == 0

    def agree(self, value: Any, doing: str) -> list[Any]:
        """Give ``value``, which JSON can store, to all processes, and wait for theirs.

        Args:
            value: what this process contributes.
            doing: what follows, in words, for the message if a process does not arrive here.

        Returns:
            The values of all processes, in their order.

        Raises:
            PeerLeftError: another process has left.
            TrainingError: another process is at another place of the training.
        """
        if self._store is None:
            return [value]
        if self.watchdog is None:
            raise ConfigError("The processes have separated after a failure: start them again.")
        self.arrived(doing)
        self._number += 1
        own, all_of_them = f"value/{self._number}", f"values/{self._number}"
        self._store.set(f"{own}/{self.index}", json.dumps([doing, value]))
        if self.is_first:
            given = ", ".join(self._wait_for(f"{own}/{index}") for index in range(self.count))
            self._store.set(all_of_them, f"[{given}]")
            # A process that is at this number has read the numbers before.
            self._store.delete(f"values/{self._number - 1}")
            self._store.delete(f"{own}/")
        every = json.loads(self._wait_for(all_of_them))
        for index, (place, _) in enumerate(every):
            if place != doing:
                raise TrainingError(
                    f"Process {index} is at {place}, and process {self.index} at {doing}: they have run different code."
                )
        return [found for _, found in every]

    def from_first(self, value: Any, doing: str) -> Any:
        """The ``value`` of process 0. Other processes may give anything, for example None."""
        return self.agree(value if self.is_first else None, doing)[0]

    def check_equal(self, values: Mapping[str, Any]) -> None:
        """Raise ``ConfigError`` if ``values``, by name, differ between processes."""
        every = self.agree(dict(values), "the comparison of settings")
        for index, found in enumerate(every):
            for name, expected in every[0].items():
                if found.get(name) != expected:
                    raise ConfigError(
                        f"{name} is {found.get(name)} in process {index} and {expected} in process 0: start all processes with the same "
                        "settings and the same versions."
                    )

    def arrived(self, doing: str) -> None:
        """Report that this process has reached ``doing``, where it waits for the others."""
        if self.watchdog is not None:
            self.watchdog.arrive(doing)

    def enter(self, phase: Phase) -> None:
        """Report whether this process now makes environments, compiles or trains. The watchdog has a different time limit for each."""
        if self.watchdog is not None:
            self.watchdog.enter(phase)

    def _wait_for(self, key: str) -> str:
        assert self._store is not None
        assert self.watchdog is not None
        while True:
            if (found := self._store.get(key, WAIT_SECONDS)) is not None:
                return found
            if self.watchdog.someone_left:
                raise PeerLeftError

    def how_to_resume(self, path: Any) -> str:
        """The command that resumes the run at ``path`` with all processes."""
        if self.count == 1:
            return command("proximo", "train", "--resume", path)
        if self.is_launched:
            return command("proximo", "launch", "-n", self.count, "--", "train", "--resume", path)
        each = ", with its own --process-id" if self.flags else ""
        return f"{command('proximo', 'train', '--resume', path, '--distributed', *self.flags)}   (in each of the {self.count} processes{each})"

    def watch(self, on_request: Callable[[int], None], how_to_continue: str) -> None:
        """From now on, call ``on_request`` with the number of a signal that another process has received; and end the training with
        ``how_to_continue`` if a process is lost."""
        if self.watchdog is not None:
            self.watchdog.on_request, self.watchdog.how_to_continue = on_request, how_to_continue
            gone = f"process {self.index} ends, because process 0 has ended. {how_to_continue}"
            set_last_words(gone)

    def requested(self, number: int) -> None:
        """Tell the others that this process was asked to stop by signal ``number``."""
        if self.watchdog is not None:
            self.watchdog.request(number)

    def fail(self, error: BaseException) -> None:
        """Report to the others that this process has failed; they then end. If ``error`` may come from the loss of another process,
        first wait for the watchdog, which can name the lost process."""
        if self.watchdog is not None:
            self.watchdog.fail(error)
            self.watchdog.stop()
            self.watchdog = None
            abandon()

    @contextlib.contextmanager
    def failing_together(self) -> Iterator[None]:
        """Context manager: an exception in the block ends the training in all processes."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def leave(self) -> None:
        """This process ends in order before the others have agreed to it. Process 0 waits for the others, because it has the store."""
        if self.watchdog is not None:
            self.watchdog.leave()

    def finish(self) -> None:
        """The training is complete in all processes: disconnect them."""
        if self.watchdog is not None:
            self.agree(None, "the end")
            self.watchdog.stop()
            self.watchdog = self._store = None
            disconnect()


_current = Peers()


def current() -> Peers:
    """The processes that train with this one."""
    return _current


def require_one(what: str) -> None:
    """Raise ``ConfigError`` if other processes train with this one, which ``what`` does not support."""
    if _current.count > 1:
        raise ConfigError(f"{what} uses one process, but {_current.count} have joined: use proximo.train.")


def start(
    index: int, count: int, heartbeat: float, start_timeout: float, launcher: int | None, flags: tuple[str, ...] = ()
) -> Peers:
    """Make the processes that ``current`` returns, after JAX has connected them. ``flags`` are those with which a user starts this one
    again; none are needed where a launcher or a cluster gives them."""
    global _current
    peers = Peers(index, count, launcher is not None, flags)
    peers._store = Store()
    peers.watchdog = Watchdog(Store(), index, count, heartbeat, start_timeout, launcher)
    peers.watchdog.start()
    _current = peers
    set_last_words(f"process {index} ends, because process 0 has ended.")
    atexit.register(_end)
    return peers


def _end() -> None:
    """At the end of Python: leave the others in order, or tell them of the exception that has ended the program."""
    error = getattr(sys, "last_value", None)
    if error is not None:
        _current.fail(error)
    _current.finish()
