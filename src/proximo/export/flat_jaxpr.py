"""A function as a flat list of JAX's primitives: calls are inlined, branches and short loops unrolled, sizes may depend on N."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.extend import core

from proximo.export.sizes import BatchDependentError, NotExportedError, Shape, merged

CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "checkpoint",
    "remat2",
)
BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
MAX_TURNS = 64
"""The longest loop that is unrolled."""


@dataclass(frozen=True)
class Constant:
    """A known array."""

    array: np.ndarray


@dataclass(frozen=True)
class Repeated:
    """An array with the same number in all entries. Shape or number may depend on N."""

    number: Any
    shape: Shape
    dtype: str


Atom = int | Constant | Repeated
"""The number of a value, or a known value."""


@dataclass(frozen=True)
class Equation:
    """A primitive with its inputs, and its outputs with their numbers, shapes and types."""

    name: str
    inputs: tuple[Atom, ...]
    outputs: tuple[int, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    params: dict[str, Any]

    @property
    def shape(self) -> Shape:
        """That of the first output."""
        return self.shapes[0]

    @property
    def dtype(self) -> str:
        """That of the first output."""
        return self.dtypes[0]


@dataclass(frozen=True)
class FlatJaxpr:
    """A function as a list of equations. Its inputs are the first values."""

    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]


def trace(function: Callable[..., Sequence[jax.Array]], *arguments: jax.ShapeDtypeStruct) -> FlatJaxpr:
    """Trace ``function`` for arguments of these shapes."""
    closed = jax.make_jaxpr(function)(*arguments)
    flat = _Flattener(len(arguments))
    outputs = flat.inline(closed.jaxpr, closed.consts, list(range(len(arguments))))
    return FlatJaxpr(_needed(flat.equations, outputs), tuple(outputs))


def _needed(equations: Sequence[Equation], outputs: Sequence[Atom]) -> tuple[Equation, ...]:
    """The equations that ``outputs`` depend on."""
    wanted, kept = {x for x in outputs if isinstance(x, int)}, []
    for equation in reversed(equations):
        if wanted.intersection(equation.outputs):
            wanted.update(x for x in equation.inputs if isinstance(x, int))
            kept.append(equation)
    return tuple(reversed(kept))


class _Flattener:
    """Collects the equations of a jaxpr and of the functions that it calls."""

    def __init__(self, num_values: int):
        self.equations: list[Equation] = []
        self.num_values = num_values

    def inline(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Atom]) -> list[Atom]:
        """Add the equations of an open jaxpr, and return its outputs for ``arguments``."""
        known: dict[Any, Atom] = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= {var: self._constant(x) for var, x in zip(jaxpr.constvars, constants, strict=True)}

        def read(atom: Any) -> Atom:
            return _known(atom) if isinstance(atom, core.Literal) else known[atom]

        for equation in jaxpr.eqns:
            outputs = self._apply(equation, [read(x) for x in equation.invars])
            known |= dict(zip(equation.outvars, outputs, strict=True))
        return [read(x) for x in jaxpr.outvars]

    def _constant(self, x: Any) -> Atom:
        """A known array. A random key becomes an unknown primitive, because an export may not depend on it."""
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return self._add("random_key", [], [x], {})[0]
        return Constant(np.asarray(x))

    def _call(self, body: Any, arguments: Sequence[Atom]) -> list[Atom]:
        return self.inline(body.jaxpr, body.consts, arguments) if hasattr(body, "consts") else self.inline(body, (), arguments)

    def _apply(self, equation: Any, inputs: list[Atom]) -> Sequence[Atom]:
        name, params = equation.primitive.name, equation.params
        if name in CALLS:
            return self._call(next(params[body] for body in BODIES if body in params), inputs)
        if name == "platform_index":
            return [Constant(np.asarray(_platform(params["platforms"]), np.int32))]
        if name == "cond":
            return self._branches(equation, inputs)
        if name == "scan":
            return self._loop(params, inputs)
        return self._add(name, inputs, [x.aval for x in equation.outvars], params)

    def _add(self, name: str, inputs: Sequence[Atom], avals: Sequence[Any], params: dict[str, Any]) -> tuple[int, ...]:
        outputs = tuple(range(self.num_values, self.num_values + len(avals)))
        self.num_values += len(avals)
        shapes, dtypes = tuple(tuple(x.shape) for x in avals), tuple(str(x.dtype) for x in avals)
        plain = {key: _plain(value) for key, value in params.items()}
        self.equations.append(Equation(name, tuple(inputs), outputs, shapes, dtypes, plain))
        return outputs

    def _branches(self, equation: Any, inputs: list[Atom]) -> list[Atom]:
        """Inline the branch that is chosen if it is known; else all branches, and select a result."""
        which, *arguments = inputs
        branches = equation.params["branches"]
        if isinstance(which, Constant):
            return self._call(branches[int(np.clip(which.array, 0, len(branches) - 1))], arguments)
        results = [self._call(branch, arguments) for branch in branches]
        cases = zip(zip(*results, strict=True), equation.outvars, strict=True)
        return [self._add("select_n", [which, *case], [out.aval], {})[0] for case, out in cases]

    def _loop(self, params: dict[str, Any], inputs: list[Atom]) -> list[Atom]:
        """Unroll a scan."""
        length, body = params["length"], params["jaxpr"]
        if length > MAX_TURNS:
            raise NotExportedError(f"it has a loop of {length} iterations, and at most {MAX_TURNS} are unrolled")
        constants, carried = params["num_consts"], params["num_consts"] + params["num_carry"]
        carry, rows = inputs[constants:carried], inputs[carried:]
        row_avals = body.in_avals[carried:]
        turns: list[Any] = [None] * length
        for t in reversed(range(length)) if params["reverse"] else range(length):
            row = [self._row(x, aval, t) for x, aval in zip(rows, row_avals, strict=True)]
            outputs = self._call(body, [*inputs[:constants], *carry, *row])
            carry, turns[t] = outputs[: params["num_carry"]], outputs[params["num_carry"] :]
        avals = body.out_avals[params["num_carry"] :]
        return [*carry, *(self._stacked([turn[i] for turn in turns], aval) for i, aval in enumerate(avals))]

    def _row(self, x: Atom, aval: Any, t: int) -> Atom:
        if isinstance(x, Constant):
            return Constant(x.array[t])
        starts, limits = (t, *(0 for _ in aval.shape)), (t + 1, *aval.shape)
        params = {"start_indices": starts, "limit_indices": limits, "strides": None}
        (cut,) = self._add("slice", [x], [jax.ShapeDtypeStruct((1, *aval.shape), aval.dtype)], params)
        return self._add("reshape", [cut], [aval], {})[0]

    def _stacked(self, parts: list[Atom], aval: Any) -> Atom:
        row = jax.ShapeDtypeStruct((1, *aval.shape), aval.dtype)
        rows = [self._add("reshape", [part], [row], {})[0] for part in parts]
        whole = jax.ShapeDtypeStruct((len(parts), *aval.shape), aval.dtype)
        return self._add("concatenate", rows, [whole], {"dimension": 0})[0]


def _known(literal: Any) -> Constant:
    return Constant(np.asarray(literal.val, literal.aval.dtype))


def _plain(value: Any) -> Any:
    """``value`` with integers of Python in place of NumPy's."""
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, np.integer) else value


def _platform(platforms: Sequence[Sequence[str] | None]) -> int:
    """The branch for the CPU, or else the default branch."""
    return next(i for i, names in enumerate(platforms) if names is None or "cpu" in names)


def merge(one: FlatJaxpr, other: FlatJaxpr) -> FlatJaxpr:
    """Merge two traces of a function, for the two numbers of environments ``sizes.TRACED``, into one with sizes that depend on N."""
    if [e.name for e in one.equations] != [e.name for e in other.equations]:
        raise BatchDependentError("its operations depend on the number of environments")
    equations = tuple(_merged_equation(a, b) for a, b in zip(one.equations, other.equations, strict=True))
    return replace(one, equations=equations, outputs=tuple(map(_merged_atom, one.outputs, other.outputs)))


def _merged_equation(one: Equation, other: Equation) -> Equation:
    params = {name: merged(value, other.params[name]) for name, value in one.params.items()}
    inputs = tuple(map(_merged_atom, one.inputs, other.inputs))
    return replace(one, inputs=inputs, shapes=merged(one.shapes, other.shapes), params=params)


def _merged_atom(one: Atom, other: Atom) -> Atom:
    if not isinstance(one, Constant):
        return one
    assert isinstance(other, Constant)
    a, b = one.array, other.array
    if a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        return one
    if a.shape == () and a.dtype.kind in "iu":
        return Repeated(merged(int(a), int(b)), (), a.dtype.name)
    if a.ndim == b.ndim and a.size and (a == a.flat[0]).all() and (b == a.flat[0]).all():
        return Repeated(a.flat[0], merged(a.shape, b.shape), a.dtype.name)
    raise BatchDependentError("a constant in it depends on the number of environments")
