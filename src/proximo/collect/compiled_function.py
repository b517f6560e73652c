"""A function that is compiled ahead of its calls, once for each size of its arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax

from proximo.jax_setup import compile_lowered

TRACING = threading.Lock()
"""Functions are traced one after the other: the code of users may have caches and counters."""


class CompiledFunction:
    """A function that is compiled at its first call with each size of its arguments.

    A call finds its program by a number, because comparing the shapes of all arguments takes longer than running a small network.
    It donates the arguments with the indices ``donate``. If it is ``brief``, it compiles faster and runs slowly.
    """

    def __init__(self, function: Callable[..., Any], donate: tuple[int, ...] = (), brief: bool = False):
        self._function, self._donate, self._brief = function, donate, brief
        self._programs: dict[int, Any] = {}

    def program(self, size: int, *arguments: Any) -> Any:
        """The program for ``arguments``, or for ``jax.ShapeDtypeStruct`` in their places, compiled once for each ``size``."""
        if size not in self._programs:
            with TRACING:
                lowered = jax.jit(self._function, donate_argnums=self._donate).lower(*arguments)
            self._programs[size] = compile_lowered(lowered, self._brief)
        return self._programs[size]

    def shapes(self, *arguments: Any) -> Any:
        """The result with ``jax.ShapeDtypeStruct`` in the places of its arrays. Nothing is compiled."""
        return jax.eval_shape(self._function, *arguments)

    def __call__(self, size: int, *arguments: Any) -> Any:
        return self.program(size, *arguments)(*arguments)
