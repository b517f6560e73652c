"""What jax2onnx cannot translate, in other operations. They act in an export only."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jaxtyping import Array

from proximo.networks import ActorCritic
from proximo.networks.recurrent.gtrxl import GTrXL, Window
from proximo.networks.recurrent.linear_recurrence import rms_normalized
from proximo.networks.recurrent.lru import LRU


class RealLRU(LRU):
    """An LRU that computes with pairs of real numbers: ONNX Runtime has no complex ones."""

    def step(self, state: Array, x: Array, episode_start: Array, valid: Array) -> tuple[Array, Array]:
        u = self.input(x)
        v = rms_normalized(u)
        radius = jnp.where(episode_start[:, None], 0.0, jnp.exp(-jnp.exp(self.log_decay)))
        cos, sin = radius * jnp.cos(self.phase), radius * jnp.sin(self.phase)
        real, imag = jnp.split(state, 2, axis=-1)
        turned = jnp.concatenate([cos * real - sin * imag, sin * real + cos * imag], axis=-1)
        h = turned + self.write(v) * jnp.tile(jnp.exp(self.log_gamma), 2)
        return h, self._out(h, u, v)

    def read(self, h: Array, u: Array) -> Array:
        return self.reader(h) + self.skip * u


class ShiftingGTrXL(GTrXL):
    """A GTrXL that shifts its window by one step, without a scatter and a gather."""

    def step(self, state: Window, x: Array, episode_start: Array, valid: Array) -> tuple[Window, Array]:
        x = (x if self.embed is None else self.embed(x))[:, None]
        length = jnp.where(episode_start, 0, state.length)
        filled = jnp.arange(self.window) >= self.window - length[:, None]
        inputs = jnp.concatenate([jnp.where(filled[..., None], state.inputs, 0.0), x], axis=1)
        visible = jnp.concatenate([filled, valid[:, None]], axis=1)[:, None]
        out = self.outputs(x, inputs, visible, distance=None)
        return Window(inputs[:, 1:], jnp.minimum(length + 1, self.window)), out[:, 0]


MENDED: dict[type, type] = {LRU: RealLRU, GTrXL: ShiftingGTrXL}


def mended(actor_critic: ActorCritic) -> ActorCritic:
    """``actor_critic`` with its cells replaced where jax2onnx cannot translate them."""

    def replaced(x: Any) -> Any:
        return MENDED[type(x)](**{field.name: getattr(x, field.name) for field in dataclasses.fields(x)}) if is_cell(x) else x

    def is_cell(x: Any) -> bool:
        return type(x) in MENDED

    return jax.tree.map(replaced, actor_critic, is_leaf=is_cell)


@contextlib.contextmanager
def translating() -> Iterator[None]:
    """``jax.lax.platform_dependent`` takes its default branch, products are precise, and jax2onnx logs nothing."""

    def chosen(*arguments: Any, default: Callable[..., Any], **of_platforms: Any) -> Any:
        return default(*arguments)

    disabled, handlers = logging.root.manager.disable, [*logging.root.handlers]
    logging.disable()
    try:
        with mock.patch.object(jax.lax, "platform_dependent", chosen), jax.default_matmul_precision("highest"):
            yield
    finally:
        logging.disable(disabled)
        logging.root.handlers[:] = handlers  # jax2onnx adds one
