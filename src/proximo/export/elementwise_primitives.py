"""Translations of element-wise primitives and reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from proximo.export.flat_jaxpr import Equation
from proximo.export.program import Builder, Value
from proximo.export.sizes import NotExportedError

SAME = {
    "neg": "negative", "sign": "sign", "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1", "sqrt": "sqrt",
    "tanh": "tanh", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "sinh": "sinh", "cosh": "cosh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "floor": "floor",
    "ceil": "ceil", "abs": "absolute", "logistic": "logistic", "erf": "erf", "add": "add", "add_any": "add",
    "sub": "subtract", "mul": "multiply", "rem": "fmod", "atan2": "arctan2", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "is_finite": "isfinite",
}  # fmt: skip
"""Primitives with an equal operation of another name."""
BY_TYPE = {
    "max": ("maximum", "logical_or"), "min": ("minimum", "logical_and"), "and": ("bitwise_and", "logical_and"),
    "or": ("bitwise_or", "logical_or"), "xor": ("bitwise_xor", "logical_xor"), "not": ("bitwise_not", "logical_not"),
}  # fmt: skip
"""The operations for numbers and for booleans."""
REDUCTIONS = {
    "reduce_sum": "sum", "reduce_prod": "prod", "reduce_max": "max", "reduce_min": "min", "reduce_and": "all", "reduce_or": "any",
}  # fmt: skip
MAX_FACTORS = 64


def _number(b: Builder, x: Value, number: float) -> Value:
    return b.constant(np.asarray(number, x.dtype))


def _same(b: Builder, e: Equation, *inputs: Value) -> Value:
    return b.elementwise(SAME[e.name], *inputs, dtype=e.dtype)


def _by_type(b: Builder, e: Equation, *inputs: Value) -> Value:
    return b.elementwise(BY_TYPE[e.name][inputs[0].dtype == "bool"], *inputs)


def _integer_pow(b: Builder, e: Equation, x: Value) -> Value:
    exponent = e.params["y"]
    if abs(exponent) > MAX_FACTORS:
        return b.elementwise("power", x, _number(b, x, exponent))
    result, square, rest = None, x, abs(exponent)
    while rest:
        if rest & 1:
            result = square if result is None else b.elementwise("multiply", result, square)
        rest >>= 1
        square = b.elementwise("multiply", square, square) if rest else square
    one = _number(b, x, 1)
    result = b.broadcast(one, x.shape) if result is None else result
    return b.elementwise("divide", one, result) if exponent < 0 else result


def _cbrt(b: Builder, e: Equation, x: Value) -> Value:
    root = b.elementwise("power", b.elementwise("absolute", x), _number(b, x, 1 / 3))
    return b.elementwise("multiply", b.elementwise("sign", x), root)


def _round(b: Builder, e: Equation, x: Value) -> Value:
    if int(e.params["rounding_method"]) == 1:  # halves are rounded to even
        return b.elementwise("rint", x)
    size = b.elementwise("floor", b.elementwise("add", b.elementwise("absolute", x), _number(b, x, 0.5)))
    return b.elementwise("multiply", b.elementwise("sign", x), size)


def _select(b: Builder, e: Equation, which: Value, *cases: Value) -> Value:
    if which.dtype == "bool":
        return b.where(which, cases[1], cases[0]) if len(cases) == 2 else b.broadcast(cases[0], e.shape)
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        result = b.where(b.elementwise("less_equal", which, _number(b, which, i), dtype="bool"), cases[i], result)
    return result


def _convert(b: Builder, e: Equation, x: Value) -> Value:
    if e.dtype == "bool" and x.dtype != "bool":
        return b.elementwise("not_equal", x, _number(b, x, 0), dtype="bool")
    return b.cast(x, e.dtype)


def _reduce(b: Builder, e: Equation, x: Value) -> Value:
    operation, axes = REDUCTIONS[e.name], tuple(e.params["axes"])
    if x.dtype == "bool" and operation in ("max", "min"):
        operation = {"max": "any", "min": "all"}[operation]
    return b.emit(operation, [x], e.shape, e.dtype, axes=axes) if axes else x


def _argument(b: Builder, e: Equation, x: Value) -> Value:
    (axis,) = e.params["axes"]
    return b.emit(e.name, [x], e.shape, e.dtype, axis=axis, to=e.dtype)


def _cumsum(b: Builder, e: Equation, x: Value) -> Value:
    return b.emit("cumsum", [x], e.shape, e.dtype, axis=e.params["axis"], reverse=bool(e.params["reverse"]))


def _reduce_precision(b: Builder, e: Equation, x: Value) -> Value:
    if (e.dtype, e.params["exponent_bits"], e.params["mantissa_bits"]) != ("float32", 8, 23):
        raise NotExportedError("it rounds numbers to fewer bits (reduce_precision)")
    return x


def _itself(b: Builder, e: Equation, *inputs: Value) -> Any:
    return inputs if len(e.outputs) > 1 else inputs[0]


RULES = {
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(BY_TYPE, _by_type),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("copy", "copy_p", "optimization_barrier", "stop_gradient"), _itself),
    "tie": lambda b, e, x, y: y,
    "square": lambda b, e, x: b.elementwise("multiply", x, x),
    "div": lambda b, e, x, y: b.elementwise("divide" if e.dtype.startswith("float") else "integer_divide", x, y),
    "pow": lambda b, e, x, y: b.elementwise("power", x, b.cast(y, x.dtype)),
    "integer_pow": _integer_pow,
    "rsqrt": lambda b, e, x: b.elementwise("divide", _number(b, x, 1), b.elementwise("sqrt", x)),
    "cbrt": _cbrt,
    "exp2": lambda b, e, x: b.elementwise("exp", b.elementwise("multiply", x, _number(b, x, math.log(2.0)))),
    "erfc": lambda b, e, x: b.elementwise("subtract", _number(b, x, 1), b.elementwise("erf", x)),
    "round": _round,
    "clamp": lambda b, e, low, x, high: b.elementwise("minimum", b.elementwise("maximum", x, low), high),
    "select_n": _select,
    "convert_element_type": _convert,
    "reduce_precision": _reduce_precision,
    "argmax": _argument,
    "argmin": _argument,
    "cumsum": _cumsum,
}
