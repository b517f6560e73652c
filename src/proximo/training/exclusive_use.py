"""Exclusive use of an agent: only one call at a time may change it."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar

from proximo.errors import ConfigError


class ExclusiveUse:
    """The right of one call to change ``agent``, so that no call overwrites the result of another. Other calls get it while ``busy`` is false.

    Raises:
        ConfigError: another call is changing the agent.
    """

    _last: ClassVar[weakref.WeakKeyDictionary[Any, ExclusiveUse]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, agent: Any):
        with self._lock:
            last = self._last.get(agent)
            if last is not None and last.busy:
                raise ConfigError(
                    "This agent is already learning in another call or thread: wait until that call ends, or use one agent for each thread."
                )
            self._last[agent] = self
            self.busy = True

    def resume(self, agent: Any) -> None:
        """Continue after a pause. Raises a ``ConfigError`` if another call has changed the agent since."""
        with self._lock:
            if self._last[agent] is not self:
                raise ConfigError("This agent has learned in another call since this call paused: start a new call.")
            self.busy = True
