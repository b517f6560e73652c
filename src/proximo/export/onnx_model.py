"""The ONNX model of a policy, by jax2onnx. What it cannot translate is computed in another way, in an export only."""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import jax2onnx
import onnx
from jaxtyping import Array

from proximo.errors import ConfigError
from proximo.export.policy_function import PolicyFunction
from proximo.export.runtime import ExportedPolicy
from proximo.networks import ActorCritic
from proximo.networks.recurrent.gtrxl import GTrXL, Window
from proximo.networks.recurrent.linear_recurrence import rms_normalized
from proximo.networks.recurrent.lru import LRU
from proximo.spaces import Box, Joint, action_dtype, zeros

OPSET = 18


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

    def replaced(x):
        kind = MENDED.get(type(x))
        return kind(**{field.name: getattr(x, field.name) for field in dataclasses.fields(x)}) if kind else x

    return jax.tree.map(replaced, actor_critic, is_leaf=lambda x: type(x) in MENDED)


@contextlib.contextmanager
def translating() -> Iterator[None]:
    """``platform_dependent`` takes its default branch, products are precise, and jax2onnx logs nothing."""

    def chosen(*arguments, default, **of_platforms):
        return default(*arguments)

    disabled, handlers = logging.root.manager.disable, [*logging.root.handlers]
    logging.disable()
    try:
        with mock.patch.object(jax.lax, "platform_dependent", chosen), jax.default_matmul_precision("highest"):
            yield
    finally:
        logging.disable(disabled)
        logging.root.handlers[:] = handlers  # jax2onnx adds one


def build(function: PolicyFunction, batch: int | None, properties: dict[str, str]) -> tuple[bytes, ExportedPolicy]:
    """Translate ``function`` to an ONNX model for ``batch`` environments (None: any number), with texts by
    name. Returns the file's content, and the policy loaded from it. Raises ``ConfigError`` if it cannot be
    translated."""
    actor_critic, inputs = mended(function.actor_critic), function.inputs(1)
    shapes = [jax.ShapeDtypeStruct((batch or "N", *x.shape[1:]), x.dtype) for x in inputs.values()]  # pyright: ignore[reportArgumentType]
    outputs = list(jax.eval_shape(lambda arrays: function(actor_critic, arrays), inputs))
    # What ExportedPolicy must know besides shapes and types. The keys lead to each part of the observation.
    actor, action_space = actor_critic.actor, function.policy.env.action_space
    paths = [path for path, _ in jax.tree.leaves_with_path(zeros(function.space, (1,)))]
    keys = [[getattr(key, "key", getattr(key, "idx", None)) for key in path] for path in paths]
    interface = {
        "observation": dict(zip(function.observation_names, keys, strict=True)),
        "memory": {name: x[0].tolist() if x.any() else 0 for name, x in function.init_memory(1).items()},
        "reset_memory": actor_critic.reset_memory,
        "noise": None if function.deterministic else actor.noise_family,
        "action_dtype": str(action_dtype(action_space)) if isinstance(action_space, Box | Joint) else "int32",
        "action_parts": [
            {"path": part.path, "shape": part.space.shape, "dtype": str(action_dtype(part.space))} for part in action_space.parts
        ]
        if isinstance(action_space, Joint)
        else None,
    }

    def translated(*arrays):
        made = function(actor_critic, dict(zip(inputs, arrays, strict=True)))
        return [jnp.copy(made[name]) for name in outputs]  # jax2onnx cannot name one value twice

    try:
        with translating():
            model = jax2onnx.to_onnx(translated, shapes, opset=OPSET, input_names=list(inputs), output_names=outputs)
        onnx.helper.set_model_props(model, {**properties, "proximo.interface": json.dumps(interface)})
        content = model.SerializeToString()
        exported = ExportedPolicy(content)
        exported.run(function.inputs(batch or 1))
    except Exception as error:  # JAX, jax2onnx and ONNX Runtime raise a dozen types of errors
        reason = f"{type(error).__name__}: {error}".split("\n")[0].rstrip(".")
        hint = "" if batch else ". If it computes with the number of environments, fix it with --batch"
        raise ConfigError(f"jax2onnx cannot export this policy ({reason}){hint}.") from error
    return content, exported
