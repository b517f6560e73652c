"""Translation of JAX's primitives to the operations of an export. Complex numbers become pairs of real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from proximo.export import elementwise_primitives, indexing_primitives, structural_primitives
from proximo.export.flat_jaxpr import Atom, Equation, FlatJaxpr, Repeated
from proximo.export.program import Builder, Program, Value
from proximo.export.runtime import DTYPES
from proximo.export.sizes import NotExportedError, Shape

RULES = {**elementwise_primitives.RULES, **structural_primitives.RULES, **indexing_primitives.RULES}


class Pair(NamedTuple):
    """A complex value as its real and its imaginary part."""

    real: Value
    imag: Value


REAL_PART = {"complex64": "float32", "complex128": "float64"}
# Primitives that apply to the real and the imaginary part alike.
SEPARABLE = (
    {"neg", "add", "add_any", "sub", "copy", "copy_p", "optimization_barrier", "reduce_sum", "cumsum", "select_n"}
    | set(structural_primitives.RULES) - {"dot_general", "conv_general_dilated", "reduce_window_max", "iota"}
    | {"dynamic_slice"}
)


def translate(function: FlatJaxpr, inputs: dict[str, tuple[Shape, str]], outputs: Sequence[str]) -> Program:
    """Translate ``function`` to a program with these names of inputs and outputs. Raises ``NotExportedError`` for unknown primitives."""
    lacking = sorted({e.name for e in function.equations} - set(RULES) - set(COMPLEX_RULES))
    if lacking:
        raise NotExportedError(f"it uses {', '.join(lacking)}, which has no translation")
    b = Builder()
    named = {name: Value(shape, dtype) for name, (shape, dtype) in inputs.items()}
    known: dict[int, Any] = dict(enumerate(named.values()))

    def read(atom: Atom) -> Value | Pair:
        if isinstance(atom, int):
            return known[atom]
        if isinstance(atom, Repeated):
            return b.broadcast(b.scalar(atom.number, atom.dtype), atom.shape)
        if atom.array.dtype.kind == "c":
            return Pair(b.constant(np.real(atom.array).copy()), b.constant(np.imag(atom.array).copy()))
        return b.constant(atom.array)

    for equation in function.equations:
        made = _applied(b, equation, [read(x) for x in equation.inputs])
        known |= dict(zip(equation.outputs, made, strict=True))
    return b.finish(named, {name: _real(read(x)) for name, x in zip(outputs, function.outputs, strict=True)})


def _real(x: Value | Pair) -> Value:
    if isinstance(x, Pair):
        raise NotExportedError("an output of it is complex")
    return x


def _applied(b: Builder, e: Equation, inputs: list[Any]) -> Sequence[Any]:
    """The outputs of one equation."""
    pairs = any(isinstance(x, Pair) for x in inputs)
    complex_output = e.dtypes[0] in REAL_PART
    wrong = sorted({dtype for dtype in e.dtypes if dtype not in DTYPES and dtype not in REAL_PART})
    if wrong:
        raise NotExportedError(f"it computes in {wrong[0]} ({e.name})")
    made = _of_complex(b, e, inputs) if pairs or complex_output else RULES[e.name](b, e, *inputs)
    return made if len(e.outputs) > 1 or isinstance(made, list) else [made]


def _of_complex(b: Builder, e: Equation, inputs: list[Any]) -> Any:
    if e.name in COMPLEX_RULES:
        return COMPLEX_RULES[e.name](b, e, *inputs)
    if e.name not in SEPARABLE:
        raise NotExportedError(f"it uses {e.name} of complex numbers, which has no translation")
    alike = replace(e, dtypes=tuple(REAL_PART[dtype] for dtype in e.dtypes))
    sides = [RULES[e.name](b, alike, *(x[side] if isinstance(x, Pair) else x for x in inputs)) for side in (0, 1)]
    return [Pair(*both) for both in zip(*sides, strict=True)] if len(e.outputs) > 1 else Pair(*sides)


def _complex_mul(b: Builder, e: Equation, x: Pair, y: Pair) -> Pair:
    def times(one: Value, other: Value) -> Value:
        return b.elementwise("multiply", one, other)

    real = b.elementwise("subtract", times(x.real, y.real), times(x.imag, y.imag))
    return Pair(real, b.elementwise("add", times(x.real, y.imag), times(x.imag, y.real)))


def _complex_exp(b: Builder, e: Equation, x: Pair) -> Pair:
    size = b.elementwise("exp", x.real)
    real, imag = (b.elementwise("multiply", size, b.elementwise(part, x.imag)) for part in ("cos", "sin"))
    return Pair(real, imag)


def _squared_size(b: Builder, x: Pair) -> Value:
    real, imag = (b.elementwise("multiply", part, part) for part in x)
    return b.elementwise("add", real, imag)


def _conjugate(b: Builder, x: Pair) -> Pair:
    return Pair(x.real, b.elementwise("negative", x.imag))


def _complex_div(b: Builder, e: Equation, x: Pair, y: Pair) -> Pair:
    above, below = _complex_mul(b, e, x, _conjugate(b, y)), _squared_size(b, y)
    return Pair(*(b.elementwise("divide", part, below) for part in above))


def _complex_convert(b: Builder, e: Equation, x: Value | Pair) -> Value | Pair:
    if e.dtype not in REAL_PART:
        return b.cast(x.real if isinstance(x, Pair) else x, e.dtype)
    to = REAL_PART[e.dtype]
    if isinstance(x, Pair):
        return Pair(b.cast(x.real, to), b.cast(x.imag, to))
    return Pair(b.cast(x, to), b.broadcast(b.constant(np.zeros((), to)), x.shape))


COMPLEX_RULES = {
    "complex": lambda b, e, real, imag: Pair(real, imag),
    "real": lambda b, e, x: x.real,
    "imag": lambda b, e, x: x.imag,
    "conj": lambda b, e, x: (
        _conjugate(b, x) if isinstance(x, Pair) else Pair(x, b.broadcast(b.constant(np.zeros((), x.dtype)), x.shape))
    ),
    "mul": _complex_mul,
    "square": lambda b, e, x: _complex_mul(b, e, x, x),
    "div": _complex_div,
    "exp": _complex_exp,
    "abs": lambda b, e, x: b.elementwise("sqrt", _squared_size(b, x)),
    "convert_element_type": _complex_convert,
}
