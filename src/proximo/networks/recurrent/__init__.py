"""Memories of a policy: one file per cell, one protocol (``protocol.MemoryCell``)."""

from importlib import import_module
from typing import Any

import jax
from jaxtyping import Array, Key

from proximo.config import NetworkConfig
from proximo.config.schema import MEMORIES
from proximo.networks.recurrent.protocol import MemoryCell, NoMemory, Stack


def _cell(path: str) -> Any:
    module, name = path.split(":")
    return getattr(import_module(f"{__name__}.{module}"), name)


CELLS = {word: _cell(path) for word, path in MEMORIES.items()}
"""Cells by the word of the ``memory`` setting. ``create(key, in_size, config)`` makes one."""


def make_memory(key: Key[Array, ""], in_size: int, config: NetworkConfig) -> tuple[MemoryCell, int]:
    """The built-in memory that ``config.memory`` names, and its number of outputs."""
    if config.memory == "none":
        return NoMemory(), in_size
    create, size = CELLS[str(config.memory)].create, config.memory_size
    sizes = [in_size] + [size] * (config.memory_settings.layers - 1)
    cells = tuple(create(k, n, config) for k, n in zip(jax.random.split(key, len(sizes)), sizes, strict=True))
    return (cells[0] if len(cells) == 1 else Stack(cells)), size
