"""Building of an ONNX graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from proximo.export.sizes import Affine, Size

BATCH = "episode_start"
"""The input whose length is the number of environments."""


def element_type(dtype: str) -> int:
    """ONNX's number for a type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


class Graph:
    """Nodes and constants of an ONNX graph. Arrays are known by their names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._names = map("v{}".format, itertools.count())
        self._known: dict[Any, str] = {}

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        name = next(self._names)
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, array: Any, dtype: str | None = None) -> str:
        """The name of a known array; equal arrays share one."""
        array = np.ascontiguousarray(np.asarray(array, dtype)).reshape(np.shape(array))
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = next(self._names)
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def sizes(self, shape: Sequence[Size]) -> str:
        """Numbers that may depend on N, as one array of int64."""
        if not any(isinstance(size, Affine) for size in shape):
            return self.constant(np.array(shape, np.int64))
        key = ("sizes", tuple(shape))
        if key not in self._known:
            parts = [self._scaled(size) if isinstance(size, Affine) else self.constant([size], "int64") for size in shape]
            self._known[key] = parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)
        return self._known[key]

    def _scaled(self, size: Affine) -> str:
        if "N" not in self._known:
            self._known["N"] = self.add("Shape", BATCH)
        result = self._known["N"]
        result = result if size.times == 1 else self.add("Mul", result, self.constant([size.times], "int64"))
        return result if size.plus == 0 else self.add("Add", result, self.constant([size.plus], "int64"))

    def scalar(self, size: Size, dtype: str) -> str:
        """A scalar that may depend on N."""
        if not isinstance(size, Affine):
            return self.constant(size, dtype)
        return self.add("Cast", self.add("Squeeze", self.sizes([size])), to=element_type(dtype))

    def cast(self, x: str, dtype: str) -> str:
        """``x`` in another type."""
        return self.add("Cast", x, to=element_type(dtype))
