"""An encoder and a memory: what a tower of the policy consists of below its head."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from proximo.networks.custom.networks import CustomEncoder, PassThrough
from proximo.networks.encoders import Encoder
from proximo.networks.recurrent import MemoryCell
from proximo.types import Memory, Observation


class Torso(eqx.Module):
    """Encoder → memory, computed in ``compute_dtype``.

    Inputs and outputs have the parameters' type. A memory with ``full_precision`` is computed in it too.
    """

    encoder: Encoder | CustomEncoder | PassThrough
    cell: MemoryCell
    compute_dtype: str = eqx.field(static=True)

    def step(
        self, memory: Memory, x: Observation, episode_start: Bool[Array, " N"], valid: Bool[Array, " N"]
    ) -> tuple[Memory, Float[Array, "N features"]]:
        """One step of each environment.

        Args:
            memory: The memory of each environment before the step.
            x: Normalized observations.
            episode_start: Whether to reset the memory before the step.
            valid: False on padding steps, which leave the memory unchanged.

        Returns:
            The memory after the step, and the features.
        """
        return self._run("step", memory, x, episode_start, valid)

    def unroll(
        self, memory: Memory, x: Observation, episode_start: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> tuple[Memory, Float[Array, "T N features"]]:
        """``T`` steps of each environment; arguments and results are those of ``step`` with a leading time axis."""
        return self._run("unroll", memory, x, episode_start, valid)

    def _run(self, method: str, memory: Memory, x: Observation, episode_start: Array, valid: Array) -> tuple[Memory, Array]:
        if self.compute_dtype == "float32":
            return getattr(self.cell, method)(memory, self.encoder(x), episode_start, valid)
        parameter_dtype = jnp.result_type(float, *(leaf for leaf in jax.tree.leaves(self) if eqx.is_inexact_array(leaf)))
        encoder, x = _cast((self.encoder, x), self.compute_dtype)
        cell_dtype = parameter_dtype if self.cell.full_precision else self.compute_dtype
        cell, memory, features = _cast((self.cell, memory, encoder(x)), cell_dtype)
        return _cast(getattr(cell, method)(memory, features, episode_start, valid), parameter_dtype)


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)
