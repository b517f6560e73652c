"""Translations of products, and of primitives that move entries."""

from __future__ import annotations

import itertools
import math

import numpy as np

from proximo.export.flat_jaxpr import Equation
from proximo.export.program import Builder, Value
from proximo.export.sizes import NotExportedError, Shape, product


def _reshape(b: Builder, e: Equation, x: Value) -> Value:
    if e.params.get("dimensions") is not None:
        x = b.transpose(x, e.params["dimensions"])
    return b.reshape(x, e.shape)


def _iota(b: Builder, e: Equation) -> Value:
    axis = e.params["dimension"]
    return b.placed(b.range(e.shape[axis], e.dtype), (axis,), e.shape)


def _slice(b: Builder, e: Equation, x: Value) -> Value:
    starts, stops = e.params["start_indices"], e.params["limit_indices"]
    return b.slice(x, tuple(starts), tuple(stops), e.params["strides"] or [1] * len(starts), e.shape)


def _rev(b: Builder, e: Equation, x: Value) -> Value:
    turned = [axis in e.params["dimensions"] for axis in range(len(x.shape))]
    starts = tuple(size - 1 if t else 0 for size, t in zip(x.shape, turned, strict=True))
    stops = tuple(-1 if t else size for size, t in zip(x.shape, turned, strict=True))
    return b.slice(x, starts, stops, [-1 if t else 1 for t in turned], x.shape)


def _split(b: Builder, e: Equation, x: Value) -> list[Value]:
    starts = np.cumsum([0, *e.params["sizes"]])
    return [b.part(x, e.params["axis"], int(a), int(z)) for a, z in itertools.pairwise(starts)]


def _unstack(b: Builder, e: Equation, x: Value) -> list[Value]:
    return [b.reshape(b.part(x, e.params["axis"], i, i + 1), e.shape) for i in range(len(e.outputs))]


def _stack(b: Builder, e: Equation, *parts: Value) -> Value:
    axis = e.params["axis"]
    expanded = (*parts[0].shape[:axis], 1, *parts[0].shape[axis:])
    return b.concatenate([b.reshape(part, expanded) for part in parts], axis)


def _tile(b: Builder, e: Equation, x: Value) -> Value:
    for axis, count in enumerate(e.params["reps"]):
        if not isinstance(count, int):
            raise NotExportedError("it repeats an array as often as there are environments (tile)")
        x = b.concatenate([x] * count, axis)
    return x


def _pad(b: Builder, e: Equation, x: Value, value: Value) -> Value:
    low, high, between = zip(*e.params["padding_config"], strict=True) if e.params["padding_config"] else ((), (), ())
    if any(between):
        raise NotExportedError("it pads between entries (pad with interior padding)")
    return b.pad(x, value, low, high)


def _grouped(b: Builder, x: Value, *groups: tuple[int, ...]) -> Value:
    """``x`` with its axes in this order. The axes of each group but the first become one."""
    batch, *others = groups
    x = b.transpose(x, (*batch, *(axis for group in others for axis in group)))
    sizes, at = list(x.shape[: len(batch)]), len(batch)
    for group in others:
        sizes.append(product(x.shape[at : at + len(group)]))
        at += len(group)
    return b.reshape(x, tuple(sizes))


def _dot_general(b: Builder, e: Equation, x: Value, y: Value) -> Value:
    (x_sum, y_sum), (x_batch, y_batch) = e.params["dimension_numbers"]
    x, y = b.cast(x, e.dtype), b.cast(y, e.dtype)
    x_free = tuple(axis for axis in range(len(x.shape)) if axis not in (*x_sum, *x_batch))
    y_free = tuple(axis for axis in range(len(y.shape)) if axis not in (*y_sum, *y_batch))
    left, right = _grouped(b, x, tuple(x_batch), x_free, tuple(x_sum)), _grouped(b, y, tuple(y_batch), tuple(y_sum), y_free)
    made = b.emit("matmul", [left, right], (*left.shape[:-1], right.shape[-1]), e.dtype)
    return b.reshape(made, e.shape)


def _convolution(b: Builder, e: Equation, x: Value, weight: Value) -> Value:
    numbers, p = e.params["dimension_numbers"], e.params
    if p["batch_group_count"] != 1 or any(d != 1 for d in p["lhs_dilation"]):
        raise NotExportedError("it has a transposed convolution (conv_general_dilated with lhs_dilation or batch groups)")
    x_axes, w_axes, y_axes = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    x = b.transpose(b.cast(x, e.dtype), (x_axes[0], *x_axes[2:], x_axes[1]))
    weight = b.transpose(b.cast(weight, e.dtype), (*w_axes[2:], w_axes[1], w_axes[0]))
    low, high = zip(*p["padding"], strict=True)
    x = b.pad(x, b.constant(np.zeros((), e.dtype)), (0, *low, 0), (0, *high, 0))
    channels_last = (y_axes[0], *y_axes[2:], y_axes[1])
    settings = {"strides": tuple(p["window_strides"]), "dilation": tuple(p["rhs_dilation"]), "groups": p["feature_group_count"]}
    y = b.emit("convolution", [x, weight], tuple(e.shape[axis] for axis in channels_last), e.dtype, **settings)
    return b.transpose(y, tuple(np.argsort(channels_last).tolist()))


def _pool(b: Builder, e: Equation, x: Value) -> Value:
    p = e.params
    if any(d != 1 for d in (*p["base_dilation"], *p["window_dilation"])):
        raise NotExportedError(f"it has a dilated window ({e.name})")
    window, rank, kind = p["window_dimensions"], len(x.shape), np.dtype(x.dtype)
    least = -math.inf if kind.kind == "f" else np.iinfo(kind).min if kind.kind in "iu" else False
    padding = b.constant(np.asarray(least if e.name == "reduce_window_max" else 0, kind))
    x = b.pad(x, padding, [a for a, _ in p["padding"]], [z for _, z in p["padding"]])
    operation = "max_pool" if e.name == "reduce_window_max" else "sum_pool"

    def pooled(x: Value, axes: tuple[int, ...], shape: Shape) -> Value:
        settings = {"window": tuple(window[a] for a in axes), "strides": tuple(p["window_strides"][a] for a in axes)}
        return b.emit(operation, [x], shape, e.dtype, **settings)

    moved = tuple(axis for axis in range(rank) if window[axis] != 1 or p["window_strides"][axis] != 1)
    if moved and moved[0] > 0 and moved[-1] < rank - 1:
        return pooled(x, tuple(range(1, rank - 1)), e.shape)
    others = tuple(axis for axis in range(rank) if axis not in moved)
    order = (*others, *moved)
    x = b.transpose(x, order)
    inner = tuple(e.shape[axis] for axis in moved)
    rows = product(x.shape[: len(others)])
    y = pooled(b.reshape(x, (rows, *x.shape[len(others) :], 1)), moved, (rows, *inner, 1))
    y = b.reshape(y, tuple(e.shape[axis] for axis in order))
    return b.transpose(y, tuple(np.argsort(order).tolist()))


RULES = {
    "reshape": _reshape,
    "squeeze": lambda b, e, x: b.reshape(x, e.shape),
    "expand_dims": lambda b, e, x: b.reshape(x, e.shape),
    "transpose": lambda b, e, x: b.transpose(x, e.params["permutation"]),
    "broadcast_in_dim": lambda b, e, x: b.placed(x, e.params["broadcast_dimensions"], e.shape),
    "concatenate": lambda b, e, *parts: b.concatenate(parts, e.params["dimension"]),
    "iota": _iota,
    "slice": _slice,
    "rev": _rev,
    "split": _split,
    "unstack": _unstack,
    "stack": _stack,
    "tile": _tile,
    "pad": _pad,
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "reduce_window_max": _pool,
    "reduce_window_sum": _pool,
}
