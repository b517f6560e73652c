"""Flattens observations (dictionaries and tuples of arrays) to lists of arrays, and back."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.spaces import Dict, LeafSpace, Space, Tuple, tree, zeros


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: its path of keys, its space, and the shape and type in which it is stored."""

    path: tuple[str | int, ...]
    space: LeafSpace
    shape: tuple[int, ...]
    dtype: np.dtype

    def of(self, observation: Any) -> Any:
        """Return this leaf of ``observation``."""
        for key in self.path:
            observation = observation[key]
        return observation

    @property
    def name(self) -> str:
        """The path as Python indices, for example ``['camera']``; empty if the observation is a single array."""
        return "".join(f"[{key!r}]" for key in self.path)


def leaves(space: Space, path: tuple[str | int, ...] = ()) -> list[Leaf]:
    """Return the leaves of ``space`` in the order of JAX: dictionaries by key, tuples by index."""
    if isinstance(space, Dict | Tuple):
        parts = space.spaces if isinstance(space, Dict) else enumerate(space.spaces)
        return [leaf for key, part in parts for leaf in leaves(part, (*path, key))]
    stored = zeros(space, ())
    return [Leaf(path, space, stored.shape, stored.dtype)]


def unflatten(space: Space, arrays: Iterable[Any]) -> Any:
    """Return the observation whose leaves are ``arrays``, in the order of ``leaves(space)``."""
    left = iter(arrays)
    return tree(lambda _: next(left), space)


def final_observation(info: dict[str, Any], number: int | np.integer) -> Any:
    """Return the final observation of environment ``number`` from the ``info`` of a vector environment; None if there is none.

    ``info["final_obs"]`` has an observation for each environment, as in Gymnasium's own vector environments, or is a batch of observations.
    """

    def one(batch: Any) -> Any:
        if isinstance(batch, dict):
            return {key: one(part) for key, part in batch.items()}
        return tuple(map(one, batch)) if isinstance(batch, tuple) else batch[number]

    return one(info["final_obs"]) if info.get("final_obs") is not None else None
