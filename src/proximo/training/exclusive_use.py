"""Exclusive use of an agent: only one call at a time may change it."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from proximo.errors import ConfigError

_in_use: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = threading.Lock()


@contextlib.contextmanager
def exclusive_use(agent: Any) -> Iterator[None]:
    """Context manager: only this call may change ``agent``, so that no call overwrites the result of another. Raises ``ConfigError`` if
    another call is changing it."""
    with _lock:
        if agent in _in_use:
            raise ConfigError(
                "This agent is already learning in another call or thread: wait until that call ends, or use one agent for each thread."
            )
        _in_use.add(agent)
    try:
        yield
    finally:
        _in_use.discard(agent)
