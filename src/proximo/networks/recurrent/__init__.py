"""Memories of a policy: one file per cell, one protocol (``protocol.MemoryCell``)."""

import jax
from jaxtyping import Array, Key

from proximo.config import NetworkConfig
from proximo.networks.recurrent.gru import GRU
from proximo.networks.recurrent.gtrxl import GTrXL
from proximo.networks.recurrent.lru import LRU
from proximo.networks.recurrent.lstm import LSTM
from proximo.networks.recurrent.mingru import MinGRU
from proximo.networks.recurrent.protocol import MemoryCell, NoMemory, Stack, select

CELLS = {"gru": GRU, "lstm": LSTM, "mingru": MinGRU, "lru": LRU}
"""Cells by the word of the ``memory`` setting; ``create(key, in_size, size)`` makes one. A GTrXL has more arguments."""


def make_memory(key: Key[Array, ""], in_size: int, config: NetworkConfig) -> tuple[MemoryCell, int]:
    """Make the built-in memory that ``config.memory`` names, with ``config.memory_layers`` layers.

    Args:
        key: Random key of the weights.
        in_size: Number of features that it reads.
        config: Network settings.

    Returns:
        The memory and its number of outputs.
    """
    if config.memory == "none":
        return NoMemory(), in_size
    size = config.memory_size

    def layer(key: Key[Array, ""], features: int) -> MemoryCell:
        if config.memory == "gtrxl":
            return GTrXL.create(key, features, size, config.memory_heads, config.memory_window, config.memory_gate)
        horizon = {"horizon": config.memory_horizon} if config.memory_horizon else {}  # GRU and LSTM only
        return CELLS[str(config.memory)].create(key, features, size, **horizon)

    keys = jax.random.split(key, config.memory_layers)
    cells = tuple(layer(k, features) for k, features in zip(keys, (in_size, *[size] * config.memory_layers), strict=False))
    return (cells[0] if len(cells) == 1 else Stack(cells)), size


__all__ = ["CELLS", "GRU", "LRU", "LSTM", "GTrXL", "MemoryCell", "MinGRU", "NoMemory", "Stack", "make_memory", "select"]
