"""What a policy remembers with: one file a cell, all behind one protocol."""

import jax
from jaxtyping import Array, Key

from proximo.config import NetworkConfig
from proximo.networks.memory.gru import GRU
from proximo.networks.memory.lstm import LSTM
from proximo.networks.memory.memory import MemoryCell, NoMemory, Stack, select

CELLS = {"gru": GRU, "lstm": LSTM}


def make_memory(key: Key[Array, ""], in_size: int, config: NetworkConfig) -> tuple[MemoryCell, int]:
    """The memory that ``config`` asks for, reading ``in_size`` features, and its number of outputs."""
    if config.memory == "none":
        return NoMemory(), in_size
    sizes = (in_size, *[config.memory_size] * config.memory_layers)
    keys = jax.random.split(key, config.memory_layers)
    cells = tuple(CELLS[config.memory].create(k, size, config.memory_size) for k, size in zip(keys, sizes, strict=False))
    return (cells[0] if len(cells) == 1 else Stack(cells)), config.memory_size


__all__ = ["CELLS", "GRU", "LSTM", "MemoryCell", "NoMemory", "Stack", "make_memory", "select"]
