"""The intermediate form of an exported policy: operations of ``runtime.OPERATIONS`` on values whose sizes may depend on N.

The builder folds constants, merges equal operations, and delays broadcasts until an operation needs the whole array, because
element-wise operations broadcast by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proximo.export import runtime
from proximo.export.sizes import Affine, BatchDependentError, NotExportedError, Shape, Size, is_static, product

SMALL = 64
"""Equal constants of at most this many entries are merged."""
# Operations that return their other input if one input is this constant.
NEUTRAL = {"add": 0, "multiply": 1, "logical_and": True, "logical_or": False}


@dataclass(frozen=True, eq=False)
class Value:
    """An array of the program."""

    shape: Shape
    dtype: str
    constant: np.ndarray | None = None
    base: Value | None = None
    """The value that this one is a delayed broadcast of; None if it is not one."""

    @property
    def core(self) -> Value:
        """The value that this one is a delayed broadcast of, or itself."""
        return self.base or self

    @property
    def uniform(self) -> Any:
        """The number that all entries equal, if it is known; else None."""
        constant = self.core.constant
        if constant is None or not constant.size:
            return None
        first = constant.flat[0]
        return first if constant.size == 1 or (constant == first).all() else None


@dataclass(frozen=True)
class Node:
    """An operation and its output."""

    operation: str
    inputs: tuple[Value, ...]
    attributes: dict[str, Any]
    output: Value


@dataclass(frozen=True)
class Program:
    """Named inputs, nodes in order, named outputs."""

    inputs: dict[str, Value]
    nodes: list[Node]
    outputs: dict[str, Value]

    def constants(self) -> list[Value]:
        """The constants that are read, in order."""
        read = [x for node in self.nodes for x in node.inputs] + list(self.outputs.values())
        return list({id(x): x for x in read if x.constant is not None}.values())


def common_shape(shapes: Sequence[Shape]) -> Shape:
    """The shape that ``shapes`` broadcast to."""
    rank = max(map(len, shapes), default=0)
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*aligned, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise NotExportedError(f"shapes {shapes} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


@dataclass
class Builder:
    """Makes a program, operation by operation."""

    nodes: list[Node] = field(default_factory=list)
    _made: dict[Any, Any] = field(default_factory=dict)
    _producer: dict[int, Node] = field(default_factory=dict)

    def constant(self, array: Any) -> Value:
        """A known array."""
        array = np.asarray(array)
        made = Value(array.shape, array.dtype.name, array)
        if array.size > SMALL:
            return made
        return self._made.setdefault(("constant", made.dtype, made.shape, array.tobytes()), made)

    def scalar(self, size: Size, dtype: str) -> Value:
        """A number, which may depend on N."""
        if isinstance(size, Affine):
            return self.emit("size", [], (), dtype, size=size, to=dtype)
        return self.constant(np.asarray(size, dtype))

    def range(self, size: Size, dtype: str = "int32") -> Value:
        """0, 1 … ``size - 1``."""
        return self.emit("range", [], (size,), dtype, size=size, to=dtype)

    def emit(self, operation: str, inputs: Sequence[Value], shape: Shape, dtype: str, **attributes: Any) -> Value:
        """An operation, or its result if all inputs are constants."""
        whole = tuple(self.whole(x) for x in inputs)
        key = (operation, *(id(x) for x in whole), repr(attributes))
        if key in self._made:
            return self._made[key][0]
        if all(x.constant is not None for x in whole) and is_static((shape, *attributes.values())):
            with np.errstate(all="ignore"):
                known = runtime.OPERATIONS[operation].function(*(x.constant for x in whole), **attributes)
            made = self.constant(np.asarray(known, dtype))
        else:
            made = Value(shape, dtype)
            self.nodes.append(Node(operation, whole, attributes, made))
            self._producer[id(made)] = self.nodes[-1]
        self._made[key] = made, whole  # the inputs are stored so that no other object gets their ids
        return made

    def whole(self, x: Value) -> Value:
        """``x`` with its delayed broadcast applied."""
        return x if x.base is None else self.emit("broadcast", [x.base], x.shape, x.dtype, sizes=x.shape)

    def broadcast(self, x: Value, shape: Shape) -> Value:
        """``x`` with leading axes, and those of size 1, repeated."""
        return x if x.shape == shape else Value(shape, x.dtype, base=x.core)

    def elementwise(self, operation: str, *inputs: Value, dtype: str | None = None) -> Value:
        """An element-wise operation, with broadcasting."""
        shape = common_shape([x.shape for x in inputs])
        if operation in NEUTRAL:
            for x, other in (inputs, inputs[::-1]):
                if x.uniform is not None and x.uniform == NEUTRAL[operation]:
                    return self.broadcast(other, shape)
        cores = [x.core for x in inputs]
        made = self.emit(operation, cores, common_shape([x.shape for x in cores]), dtype or inputs[0].dtype)
        return self.broadcast(made, shape)

    def where(self, condition: Value, this: Value, other: Value) -> Value:
        """``this`` where the condition is true, else ``other``."""
        known = condition.uniform
        if known is not None:
            return self.broadcast(this if known else other, common_shape([condition.shape, this.shape, other.shape]))
        return self.elementwise("where", condition, this, other, dtype=this.dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        """``x`` in another type."""
        if x.dtype == dtype:
            return x
        return self.broadcast(self.emit("cast", [x.core], x.core.shape, dtype, to=dtype), x.shape)

    def reshape(self, x: Value, shape: Shape) -> Value:
        """The same entries in order."""
        if x.shape == shape:
            return x
        if product(x.shape) != product(shape):
            raise BatchDependentError("a size in it is no multiple of the number of environments plus a constant")
        if x.base is not None and product(x.base.shape) == 1:
            return self.broadcast(self.reshape(x.base, ()), shape)
        producer = self._producer.get(id(x))
        if producer is not None and producer.operation == "reshape":
            return self.reshape(producer.inputs[0], shape)
        return self.emit("reshape", [x], shape, x.dtype, sizes=shape)

    def placed(self, x: Value, axes: Sequence[int], shape: Shape) -> Value:
        """``x`` broadcast to ``shape``. Axis i of ``x`` becomes axis ``axes[i]``; ``axes`` must ascend."""
        core = x.core
        sizes_of_x = (1,) * (len(x.shape) - len(core.shape)) + core.shape
        sizes: list[Size] = [1] * len(shape)
        for axis, size in zip(axes, sizes_of_x, strict=True):
            sizes[axis] = size
        return self.broadcast(self.reshape(core, tuple(sizes)), shape)

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        """``x`` with its axes in another order."""
        axes = tuple(axes)
        shape = tuple(x.shape[axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            return x
        if x.base is not None and product(x.base.shape) == 1:
            return self.reshape(x, shape)
        return self.emit("transpose", [x], shape, x.dtype, axes=axes)

    def slice(self, x: Value, starts: Shape, stops: Shape, steps: Sequence[int], shape: Shape) -> Value:
        """A part of every axis."""
        if shape == x.shape and all(step == 1 for step in steps):
            return x
        return self.emit("slice", [x], shape, x.dtype, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))

    def part(self, x: Value, axis: int, start: Size, stop: Size) -> Value:
        """``start … stop - 1`` of one axis."""
        starts, stops, shape = [0] * len(x.shape), list(x.shape), list(x.shape)
        starts[axis], stops[axis], shape[axis] = start, stop, stop - start  # pyright: ignore[reportCallIssue, reportArgumentType]
        return self.slice(x, tuple(starts), tuple(stops), [1] * len(x.shape), tuple(shape))

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """``parts`` joined along ``axis``."""
        shape = list(parts[0].shape)
        shape[axis] = sum((part.shape[axis] for part in parts[1:]), start=parts[0].shape[axis])
        return parts[0] if len(parts) == 1 else self.emit("concatenate", parts, tuple(shape), parts[0].dtype, axis=axis)

    def pad(self, x: Value, value: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """``x`` padded with ``value``. Negative widths remove entries."""
        cut = [(max(0, -a), size - max(0, -b)) for a, b, size in zip(low, high, x.shape, strict=True)]
        starts, stops = zip(*cut, strict=True) if cut else ((), ())
        inner = tuple(stop - start for start, stop in cut)
        x = self.slice(x, starts, stops, [1] * len(cut), inner)
        low, high = tuple(max(0, a) for a in low), tuple(max(0, b) for b in high)
        if not any(low + high):
            return x
        shape = tuple(size + a + b for size, a, b in zip(inner, low, high, strict=True))
        return self.emit("pad", [x, value], shape, x.dtype, low=low, high=high)

    def take(self, x: Value, places: Value, axis: int) -> Value:
        """Entries of one axis at ``places``, which must exist."""
        shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
        return self.emit("take", [x, places], shape, x.dtype, axis=axis)

    def finish(self, inputs: dict[str, Value], outputs: dict[str, Value]) -> Program:
        """The program that computes ``outputs``, without operations that none of them needs."""
        outputs = {name: self.whole(x) for name, x in outputs.items()}
        needed, kept = {id(x) for x in outputs.values()}, []
        for node in reversed(self.nodes):
            if id(node.output) in needed:
                needed |= {id(x) for x in node.inputs}
                kept.append(node)
        return Program(inputs, kept[::-1], outputs)
