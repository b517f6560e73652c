"""A program as ``policy.npz``, which ``runtime.py`` runs with NumPy."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from proximo.export.program import Program, Value
from proximo.export.runtime import FORMAT, VERSION
from proximo.export.sizes import as_json


def render(program: Program, interface: Mapping[str, Any], initial: Mapping[str, np.ndarray], batch: int | None) -> bytes:
    """The content of the file. ``initial`` is the memory of one environment before the first step."""
    constants = program.constants()
    values = [*program.inputs.values(), *constants, *(node.output for node in program.nodes)]
    numbers = {id(x): i for i, x in enumerate(values)}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "batch": batch,
        "inputs": [{"name": name, **described(x)} for name, x in program.inputs.items()],
        "constants": [{"shape": list(x.shape), "dtype": x.dtype} for x in constants],
        "nodes": [
            [node.operation, [numbers[id(x)] for x in node.inputs], {k: as_json(v) for k, v in node.attributes.items()}]
            for node in program.nodes
        ],
        "outputs": [{"name": name, "value": numbers[id(x)], **described(x)} for name, x in program.outputs.items()],
        "interface": interface,
    }
    arrays: dict[str, Any] = {f"constant_{i}": np.asarray(x.constant) for i, x in enumerate(constants)}
    arrays |= {f"initial.{name}": x for name, x in initial.items()}
    arrays["program"] = np.frombuffer(json.dumps(content).encode(), np.uint8)
    data = io.BytesIO()
    np.savez(data, **{name: np.ascontiguousarray(x).reshape(np.shape(x)) for name, x in arrays.items()})  # pyright: ignore[reportArgumentType]
    return data.getvalue()


def described(x: Value) -> dict[str, Any]:
    """Shape and type of an input or output, as JSON."""
    return {"shape": as_json(x.shape), "dtype": x.dtype}
