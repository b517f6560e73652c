"""What a policy remembers with: one file a cell, all behind one protocol."""

import jax
from jaxtyping import Array, Key

from proximo.config import NetworkConfig
from proximo.networks.memory.gru import GRU
from proximo.networks.memory.gtrxl import GTrXL
from proximo.networks.memory.lru import LRU
from proximo.networks.memory.lstm import LSTM
from proximo.networks.memory.memory import MemoryCell, NoMemory, Stack, select
from proximo.networks.memory.mingru import MinGRU

CELLS = {"gru": GRU, "lstm": LSTM, "mingru": MinGRU, "lru": LRU}


def make_memory(key: Key[Array, ""], in_size: int, config: NetworkConfig) -> tuple[MemoryCell, int]:
    """The memory that ``config`` asks for, reading ``in_size`` features, and its number of outputs."""
    if config.memory == "none":
        return NoMemory(), in_size
    size = config.memory_size

    def layer(key: Key[Array, ""], features: int) -> MemoryCell:
        if config.memory == "gtrxl":
            return GTrXL.create(key, features, size, config.memory_heads, config.memory_window, config.memory_gate)
        horizon = {"horizon": config.memory_horizon} if config.memory_horizon else {}  # only gated recurrences have one
        return CELLS[str(config.memory)].create(key, features, size, **horizon)

    keys = jax.random.split(key, config.memory_layers)
    cells = tuple(layer(k, features) for k, features in zip(keys, (in_size, *[size] * config.memory_layers), strict=False))
    return (cells[0] if len(cells) == 1 else Stack(cells)), size


__all__ = ["CELLS", "GRU", "LRU", "LSTM", "GTrXL", "MemoryCell", "MinGRU", "NoMemory", "Stack", "make_memory", "select"]
