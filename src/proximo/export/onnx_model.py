"""The ONNX model of a policy, translated by jax2onnx."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import jax2onnx
import onnx
from jaxtyping import Array

from proximo.errors import ConfigError
from proximo.export.mends import mended, translating
from proximo.export.policy_function import PolicyFunction
from proximo.export.runtime import ExportedPolicy
from proximo.spaces import Box, zeros

OPSET = 18


def build(function: PolicyFunction, batch: int | None, properties: dict[str, str]) -> tuple[bytes, ExportedPolicy]:
    """Translate ``function`` to an ONNX model for ``batch`` environments (None: any number), with texts by
    name.

    Returns the content of the file, and the policy that was loaded from it. Raises ``ConfigError`` if it
    cannot be translated.
    """
    actor_critic, inputs = mended(function.actor_critic), function.inputs(1)
    sizes: list[Any] = [(batch or "N", *x.shape[1:]) for x in inputs.values()]
    shapes = [jax.ShapeDtypeStruct(size, x.dtype) for size, x in zip(sizes, inputs.values(), strict=True)]
    outputs = list(jax.eval_shape(lambda arrays: function(actor_critic, arrays), inputs))

    def translated(*arrays: Array) -> list[Array]:
        made = function(actor_critic, dict(zip(inputs, arrays, strict=True)))
        return [jnp.copy(made[name]) for name in outputs]  # jax2onnx cannot name one value twice

    try:
        with translating():
            model = jax2onnx.to_onnx(translated, shapes, opset=OPSET, input_names=list(inputs), output_names=outputs)
        onnx.helper.set_model_props(model, {**properties, "proximo.interface": json.dumps(_interface(function))})
        content = model.SerializeToString()
        exported = ExportedPolicy(content)
        exported.run(function.inputs(batch or 1))
    except Exception as error:  # JAX, jax2onnx and ONNX Runtime raise a dozen types of errors
        reason = f"{type(error).__name__}: {error}".split("\n")[0].rstrip(".")
        hint = "" if batch else ". If it computes with the number of environments, fix it with --batch"
        raise ConfigError(f"jax2onnx cannot export this policy ({reason}){hint}.") from error
    return content, exported


def _interface(function: PolicyFunction) -> dict[str, Any]:
    """What ``ExportedPolicy`` must know of the inputs and outputs besides their shapes and types."""
    observation, action_space = zeros(function.space, (1,)), function.policy.env.action_space
    paths = [path for path, _ in jax.tree.leaves_with_path(observation)]
    keys = [[getattr(key, "key", getattr(key, "idx", None)) for key in path] for path in paths]
    return {
        "observation": dict(zip(function.observation_names, keys, strict=True)),
        "memory": {name: x[0].tolist() if x.any() else 0 for name, x in function.init_memory(1).items()},
        "reset_memory": function.actor_critic.reset_memory,
        "noise": None if function.deterministic else function.noise_family,
        "action_dtype": action_space.dtype if isinstance(action_space, Box) else "int32",
    }
