"""Encoder, memory and shared layers: what a tower of the policy consists of below its heads."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from proximo.networks.custom.networks import CustomEncoder, PassThrough
from proximo.networks.encoders import Encoder
from proximo.networks.layers import MLP
from proximo.networks.recurrent import MemoryCell
from proximo.types import Memory, Observation

Method = Literal["step", "unroll"]


class Torso(eqx.Module):
    """Encoder → memory → layers that policy and value share (``shared_sizes``). Encoder and memory are computed in ``compute_dtype``.

    Inputs and outputs have the parameters' type. The shared layers, and a memory with ``full_precision``, are computed in it too.
    """

    encoder: Encoder | CustomEncoder | PassThrough
    cell: MemoryCell
    shared: MLP
    compute_dtype: str = eqx.field(static=True)

    def run(
        self, method: Method, memory: Memory, x: Observation, episode_start: Bool[Array, "..."], valid: Bool[Array, "..."]
    ) -> tuple[Memory, Float[Array, "... features"]]:
        """One step of each environment, or with ``"unroll"`` ``T`` steps at once, along a leading axis of all arguments but ``memory``.

        Args:
            method: ``"step"`` or ``"unroll"``.
            memory: The memory of each environment before the (first) step.
            x: Normalized observations.
            episode_start: Whether to reset the memory before the step.
            valid: False on padding steps, which leave the memory unchanged.

        Returns:
            The memory after the (last) step, and the features.
        """
        memory, features = self._run_memory(method, memory, x, episode_start, valid)
        return memory, self.shared(features)

    def _run_memory(
        self, method: Method, memory: Memory, x: Observation, episode_start: Array, valid: Array
    ) -> tuple[Memory, Array]:
        if self.compute_dtype == "float32":
            return getattr(self.cell, method)(memory, self.encoder(x), episode_start, valid)
        parameter_dtype = jnp.result_type(float, *(leaf for leaf in jax.tree.leaves(self) if eqx.is_inexact_array(leaf)))
        encoder, x = _cast((self.encoder, x), self.compute_dtype)
        cell_dtype = parameter_dtype if self.cell.full_precision else self.compute_dtype
        cell, memory, features = _cast((self.cell, memory, encoder(x)), cell_dtype)
        return _cast(getattr(cell, method)(memory, features, episode_start, valid), parameter_dtype)


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)
