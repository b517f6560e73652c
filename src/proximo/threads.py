"""Work in other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any


def in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call ``function`` in a thread. The process may end while it runs; an executor's thread would delay the end."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Call all functions at the same time, each in a thread. Returns their results when all have ended, or raises the error of the first
    function in the list that failed."""
    calls = [in_thread(function) for function in functions]
    wait(calls)
    return [call.result() for call in calls]
