"""Exclusive use of an agent: only one call at a time may change it."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar

from proximo.errors import ConfigError


class ExclusiveUse:
    """Context manager: only this call may change ``agent``, so that no call overwrites the result of another. Other calls may change it after
    ``pause``.

    Raises:
        ConfigError: another call is changing the agent.
    """

    _last: ClassVar[weakref.WeakKeyDictionary[Any, ExclusiveUse]] = weakref.WeakKeyDictionary()
    """The last use of each agent. Its values must not refer to the agents, or these would never be freed."""
    _lock = threading.Lock()

    def __init__(self, agent: Any):
        self._agent, self._is_busy = weakref.ref(agent), True

    def __enter__(self) -> ExclusiveUse:
        with self._lock:
            last = self._last.get(self._agent())
            if last is not None and last._is_busy:
                raise ConfigError(
                    "This agent is already learning in another call or thread: wait until that call ends, or use one agent for each thread."
                )
            self._last[self._agent()] = self
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def pause(self) -> None:
        """Let other calls change the agent."""
        self._is_busy = False

    def resume(self) -> None:
        """Continue after ``pause``. Raises a ``ConfigError`` if another call has changed the agent since."""
        with self._lock:
            if self._last[self._agent()] is not self:
                raise ConfigError("This agent has learned in another call since this call paused: start a new call.")
            self._is_busy = True
