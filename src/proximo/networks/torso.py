"""Encoder, memory and shared layers: what a tower of the policy consists of below its heads."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from proximo.networks.custom.networks import PassThrough
from proximo.networks.encoders import Encoder
from proximo.networks.layers import MLP
from proximo.networks.recurrent import MemoryCell
from proximo.types import Memory, Observation

Method = Literal["step", "unroll"]


class Torso(eqx.Module):
    """Encoder → memory (both computed in ``compute_dtype``) → layers that policy and value share (``shared_sizes``).

    Inputs and outputs have the parameters' type. The shared layers, and a memory with ``full_precision``, are
    computed in it too.
    """

    encoder: Encoder | PassThrough
    cell: MemoryCell
    shared: MLP
    compute_dtype: str = eqx.field(static=True)

    def run(
        self, method: Method, memory: Memory, x: Observation, episode_start: Bool[Array, "..."], valid: Bool[Array, "..."]
    ) -> tuple[Memory, Float[Array, "... features"]]:
        """The memory after a step, or with ``"unroll"`` after ``T`` steps, and the features of the normalized observations ``x``.

        The other arguments, and all shapes, are those of ``MemoryCell.step`` and ``unroll``.
        """
        if self.compute_dtype == "float32":
            memory, features = getattr(self.cell, method)(memory, self.encoder(x), episode_start, valid)
        else:
            parameter_dtype = jnp.result_type(float, *filter(eqx.is_inexact_array, jax.tree.leaves(self)))
            encoder, x = _cast((self.encoder, x), self.compute_dtype)
            cell_dtype = parameter_dtype if self.cell.full_precision else self.compute_dtype
            cell, memory, features = _cast((self.cell, memory, encoder(x)), cell_dtype)
            memory, features = _cast(getattr(cell, method)(memory, features, episode_start, valid), parameter_dtype)
        return memory, self.shared(features)


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)
