"""What a tower of the policy is made of, below its head."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from proximo.networks.encoders import Encoder
from proximo.networks.memory import MemoryCell
from proximo.networks.own import OwnEncoder, PassOn
from proximo.types import Memory, Observation


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


class Torso(eqx.Module):
    """Encoder and memory, computed in ``compute_dtype`` (memories of full precision: in the parameters' own type, in which all
    is that goes in and comes out)."""

    encoder: Encoder | OwnEncoder | PassOn
    cell: MemoryCell
    compute_dtype: str = eqx.field(static=True)

    def step(self, memory: Memory, x: Observation, first: Array, valid: Array) -> tuple[Memory, Array]:
        """Features of one row for each environment."""
        return self._run("step", memory, x, first, valid)

    def unroll(self, memory: Memory, x: Observation, first: Array, valid: Array) -> tuple[Memory, Array]:
        """Features of whole sequences."""
        return self._run("unroll", memory, x, first, valid)

    def _run(self, method: str, memory: Memory, x: Observation, first: Array, valid: Array) -> tuple[Memory, Array]:
        if self.compute_dtype == "float32":
            return getattr(self.cell, method)(memory, self.encoder(x), first, valid)
        own = jnp.result_type(float, *(leaf for leaf in jax.tree.leaves(self) if eqx.is_inexact_array(leaf)))
        encoder, x = _cast((self.encoder, x), self.compute_dtype)
        within = own if self.cell.full_precision else self.compute_dtype
        cell, memory, features = _cast((self.cell, memory, encoder(x)), within)
        return _cast(getattr(cell, method)(memory, features, first, valid), own)
