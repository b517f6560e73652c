"""Translations of primitives that read and write at computed indices.

``gather`` and ``scatter`` in full generality (XLA's operation semantics) become one ``take`` or ``scatter`` on the flattened array. The
index of every entry is a sum over the axes: a start (computed) plus an offset within the slice (known).
"""

from __future__ import annotations

import numpy as np

from proximo.export.flat_jaxpr import Equation
from proximo.export.program import Builder, Value
from proximo.export.sizes import Shape, Size, product

HOW = {
    "scatter": "set", "scatter-add": "add", "scatter_add": "add", "scatter-mul": "multiply", "scatter_mul": "multiply",
    "scatter-min": "minimum", "scatter_min": "minimum", "scatter-max": "maximum", "scatter_max": "maximum",
}  # fmt: skip


def _integer(b: Builder, size: Size) -> Value:
    return b.scalar(size, "int32")


def _clipped(b: Builder, x: Value, last: Size) -> Value:
    """``x`` within 0 … ``last``."""
    return b.elementwise("minimum", b.elementwise("maximum", x, _integer(b, 0)), _integer(b, last))


def _within(b: Builder, x: Value, last: Size) -> Value:
    low = b.elementwise("greater_equal", x, _integer(b, 0), dtype="bool")
    return b.elementwise("logical_and", low, b.elementwise("less_equal", x, _integer(b, last), dtype="bool"))


def _starts(
    b: Builder, indices: Value, mapped: tuple[int, ...], batching: tuple[int, ...], of_indices: tuple[int, ...]
) -> dict[int, Value]:
    """The starts of the slices, by axis of the operand. Each is an array over all axes of ``indices`` except the last. Axes that are read
    whole are missing."""
    rows = indices.shape[:-1]
    starts = {}
    for k, axis in enumerate(mapped):
        component = b.reshape(b.part(indices, len(rows), k, k + 1), rows)
        starts[axis] = b.cast(component, "int32")
    for axis, of_index in zip(batching, of_indices, strict=True):
        starts[axis] = b.placed(b.range(rows[of_index]), (of_index,), rows)
    return starts


def _places(
    b: Builder, shape: Shape, starts: dict[int, Value], row_axes: list[int], windows: dict[int, int], out: Shape
) -> Value:
    """The index into the flattened array of ``shape``, for every entry of ``out``. The axes of ``starts`` are the axes ``row_axes`` of
    ``out``; the offset along axis ``a`` of the array is axis ``windows[a]``."""
    total = b.broadcast(_integer(b, 0), out)
    for axis in range(len(shape)):
        parts = [b.placed(starts[axis], row_axes, out)] if axis in starts else []
        if axis in windows:
            parts.append(b.placed(b.range(out[windows[axis]]), (windows[axis],), out))
        stride = _integer(b, product(shape[axis + 1 :]))
        for part in parts:
            total = b.elementwise("add", total, b.elementwise("multiply", part, stride))
    return total


def _gather(b: Builder, e: Equation, operand: Value, indices: Value) -> Value:
    numbers, sizes, mode = e.params["dimension_numbers"], e.params["slice_sizes"], e.params["mode"].name
    shape, out = operand.shape, e.shape
    batching = tuple(numbers.operand_batching_dims)
    starts = _starts(b, indices, numbers.start_index_map, batching, tuple(numbers.start_indices_batching_dims))
    kept = [axis for axis in range(len(shape)) if axis not in (*numbers.collapsed_slice_dims, *batching)]
    windows = dict(zip(kept, numbers.offset_dims, strict=True))
    row_axes = [axis for axis in range(len(out)) if axis not in numbers.offset_dims]
    valid = None
    for axis in numbers.start_index_map:
        last = shape[axis] - sizes[axis]
        if mode == "FILL_OR_DROP":
            inside = _within(b, starts[axis], last)
            valid = inside if valid is None else b.elementwise("logical_and", valid, inside)
        starts[axis] = _clipped(b, starts[axis], last)
    taken = _along_one_axis(b, e, operand, starts)
    if taken is None:
        flat = b.reshape(operand, (product(shape),))
        taken = b.take(flat, _places(b, shape, starts, row_axes, windows, out), 0)
    if valid is None:
        return taken
    return b.where(b.placed(valid, row_axes, out), taken, b.constant(np.asarray(_fill_value(e), e.dtype)))


def _along_one_axis(b: Builder, e: Equation, operand: Value, starts: dict[int, Value]) -> Value | None:
    """A ``take`` along one axis, if whole slices along it are read; else None."""
    numbers, shape = e.params["dimension_numbers"], operand.shape
    if len(starts) != 1 or tuple(starts) != tuple(numbers.collapsed_slice_dims):
        return None
    ((axis, places),) = starts.items()
    count = len(places.shape)
    offsets = (*range(axis), *range(axis + count, axis + count + len(shape) - axis - 1))
    whole = all(size == shape[i] for i, size in enumerate(e.params["slice_sizes"]) if i != axis)
    return b.take(operand, places, axis) if whole and tuple(numbers.offset_dims) == offsets else None


def _fill_value(e: Equation) -> float:
    """The value of slices that do not exist, as in ``jax.lax.gather``."""
    if e.params["fill_value"] is not None:
        return e.params["fill_value"]
    kind = np.dtype(e.dtype)
    if kind.kind == "f":
        return np.nan
    return True if kind.kind == "b" else np.iinfo(kind).min if kind.kind == "i" else np.iinfo(kind).max


def _scatter(b: Builder, e: Equation, operand: Value, indices: Value, updates: Value) -> Value:
    numbers, shape, out = e.params["dimension_numbers"], operand.shape, updates.shape
    batching = tuple(numbers.operand_batching_dims)
    mapped = tuple(numbers.scatter_dims_to_operand_dims)
    starts = _starts(b, indices, mapped, batching, tuple(numbers.scatter_indices_batching_dims))
    kept = [axis for axis in range(len(shape)) if axis not in (*numbers.inserted_window_dims, *batching)]
    windows = dict(zip(kept, numbers.update_window_dims, strict=True))
    row_axes = [axis for axis in range(len(out)) if axis not in numbers.update_window_dims]
    valid = b.constant(np.True_)
    for axis in mapped:
        last = shape[axis] - (out[windows[axis]] if axis in windows else 1)
        if e.params["mode"].name == "CLIP":
            starts[axis] = _clipped(b, starts[axis], last)
        else:
            valid = b.elementwise("logical_and", valid, _within(b, starts[axis], last))
    total = product(shape)
    places = _places(b, shape, starts, row_axes, windows, out)
    if valid.uniform is None:  # invalid indices become one past the end, which is removed below
        places = b.where(b.placed(valid, row_axes, out), places, _integer(b, total))
    spare = b.constant(np.zeros(1, e.dtype))
    flat = b.concatenate([b.reshape(operand, (total,)), spare], 0)
    rows = product(out)
    inputs = [flat, b.reshape(places, (rows,)), b.reshape(updates, (rows,))]
    made = b.emit("scatter", inputs, (total + 1,), e.dtype, how=HOW[e.name])
    return b.reshape(b.part(made, 0, 0, total), shape)


def _dynamic_slice(b: Builder, e: Equation, x: Value, *starts: Value) -> Value:
    for axis, (start, size) in enumerate(zip(starts, e.shape, strict=True)):
        if size == x.shape[axis]:
            continue
        start = _clipped(b, b.cast(start, "int32"), x.shape[axis] - size)
        if start.constant is not None and isinstance(size, int):
            x = b.part(x, axis, int(start.constant), int(start.constant) + size)
        else:
            x = b.take(x, b.elementwise("add", b.range(size), start), axis)
    return x


def _dynamic_update_slice(b: Builder, e: Equation, x: Value, update: Value, *starts: Value) -> Value:
    """Compute for each entry the index of its update, and select the update where there is one."""
    inside = b.constant(np.True_)
    for axis, start in enumerate(starts):
        size, whole = update.shape[axis], x.shape[axis]
        if size == whole:
            continue
        offset = b.elementwise("subtract", b.range(whole), _clipped(b, b.cast(start, "int32"), whole - size))
        mine = b.placed(_within(b, offset, size - 1), (axis,), tuple(whole if a == axis else 1 for a in range(len(x.shape))))
        inside = b.elementwise("logical_and", inside, mine)
        update = b.take(update, _clipped(b, offset, size - 1), axis)
    return b.where(inside, update, x)


RULES = {
    "gather": _gather,
    **dict.fromkeys(HOW, _scatter),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
