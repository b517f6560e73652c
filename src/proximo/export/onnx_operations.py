"""Each operation of ``runtime.OPERATIONS`` in ONNX's operators (opset 18).

ONNX Runtime lacks many operators for small integers and booleans: these are computed as int32 and cast back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from proximo.export.onnx_graph import Graph
from proximo.export.program import Node
from proximo.export.sizes import Affine, Size, product

Translation = Callable[[Graph, Node, list[str]], str]
SMALL = ("int8", "int16", "uint8", "uint16", "uint32", "bool")
BEFORE_FIRST = -(2**63) + 1
"""The stop of a ``Slice`` with a negative step that includes the first entry."""

DIRECT = {
    "negative": "Neg", "absolute": "Abs", "sign": "Sign", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh", "floor": "Floor", "ceil": "Ceil",
    "rint": "Round", "logistic": "Sigmoid", "erf": "Erf", "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div",
    "integer_divide": "Div", "power": "Pow", "maximum": "Max", "minimum": "Min", "matmul": "MatMul",
}  # fmt: skip
COMPARISONS = {
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
}  # fmt: skip
LOGICAL = {
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not",
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot",
}  # fmt: skip
REDUCTIONS = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "all": "ReduceMin",
    "any": "ReduceMax",
}
HOW = {"set": "none", "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


def _widened(translation: Translation) -> Translation:
    """``translation`` with small inputs as int32, and its result in the type of the output."""

    def widened(g: Graph, node: Node, inputs: list[str]) -> str:
        small = [x.dtype in SMALL for x in node.inputs]
        wide = [g.cast(name, "int32") if s else name for name, s in zip(inputs, small, strict=True)]
        result = translation(g, node, wide)
        return g.cast(result, node.output.dtype) if any(small) and node.output.dtype in SMALL else result

    return widened


def _direct(g: Graph, node: Node, inputs: list[str]) -> str:
    return g.add(DIRECT[node.operation], *inputs)


def _comparison(g: Graph, node: Node, inputs: list[str]) -> str:
    small = [x.dtype in SMALL for x in node.inputs]
    wide = [g.cast(name, "int32") if s else name for name, s in zip(inputs, small, strict=True)]
    if node.operation == "not_equal":
        return g.add("Not", g.add("Equal", *wide))
    return g.add(COMPARISONS[node.operation], *wide)


def _where(g: Graph, node: Node, inputs: list[str]) -> str:
    if node.output.dtype not in SMALL:
        return g.add("Where", *inputs)
    condition, *cases = inputs
    return g.cast(g.add("Where", condition, *(g.cast(x, "int32") for x in cases)), node.output.dtype)


def _arctan2(g: Graph, node: Node, inputs: list[str]) -> str:
    """The angle of y / x, corrected by the quadrant."""
    y, x = inputs
    dtype = node.output.dtype
    zero, pi, half = (g.constant(number, dtype) for number in (0.0, math.pi, math.pi / 2))
    angle = g.add("Atan", g.add("Div", y, x))
    turned = g.add("Where", g.add("Less", y, zero), g.add("Sub", angle, pi), g.add("Add", angle, pi))
    upright = g.add("Mul", g.add("Sign", y), half)
    return g.add("Where", g.add("Greater", x, zero), angle, g.add("Where", g.add("Less", x, zero), turned, upright))


def _range(g: Graph, node: Node, inputs: list[str]) -> str:
    zero, one = g.constant(0, "int32"), g.constant(1, "int32")
    counted = g.add("Range", zero, g.scalar(node.attributes["size"], "int32"), one)
    return counted if node.output.dtype == "int32" else g.cast(counted, node.output.dtype)


def _reshape(g: Graph, node: Node, inputs: list[str]) -> str:
    """Reshape with -1 for a single size that depends on N, which needs no computed sizes."""
    shape = node.output.shape
    if sum(isinstance(size, Affine) for size in shape) == 1 and product(tuple(s for s in shape if isinstance(s, int))):
        shape = tuple(-1 if isinstance(size, Affine) else size for size in shape)
    return g.add("Reshape", inputs[0], g.sizes(shape))


def _slice(g: Graph, node: Node, inputs: list[str]) -> str:
    whole = node.inputs[0].shape
    every = zip(*(node.attributes[part] for part in ("starts", "stops", "steps")), whole, strict=True)
    cut = [(axis, a, z, s) for axis, (a, z, s, size) in enumerate(every) if (a, z, s) != (0, size, 1)]
    axes, starts, stops, steps = zip(*cut, strict=True)

    def before_first(stop: Size) -> Size:
        return BEFORE_FIRST if isinstance(stop, int) and stop < 0 else stop

    return g.add("Slice", inputs[0], g.sizes(starts), g.sizes([before_first(z) for z in stops]), g.sizes(axes), g.sizes(steps))


def _pad(g: Graph, node: Node, inputs: list[str]) -> str:
    pads = g.sizes((*node.attributes["low"], *node.attributes["high"]))
    return g.add("Pad", inputs[0], pads, inputs[1])


def _reduction(g: Graph, node: Node, inputs: list[str]) -> str:
    return g.add(REDUCTIONS[node.operation], inputs[0], g.sizes(node.attributes["axes"]), keepdims=0)


def _argument(g: Graph, node: Node, inputs: list[str]) -> str:
    kind = {"argmax": "ArgMax", "argmin": "ArgMin"}[node.operation]
    wide = g.cast(inputs[0], "int32") if node.inputs[0].dtype in SMALL else inputs[0]
    return g.cast(g.add(kind, wide, axis=node.attributes["axis"], keepdims=0), node.output.dtype)


def _cumsum(g: Graph, node: Node, inputs: list[str]) -> str:
    return g.add("CumSum", inputs[0], g.constant(node.attributes["axis"], "int32"), reverse=int(node.attributes["reverse"]))


def _channels_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _channels_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _convolution(g: Graph, node: Node, inputs: list[str]) -> str:
    rank, weight = len(node.output.shape), node.inputs[1].constant
    filters_first = [rank - 1, rank - 2, *range(rank - 2)]
    filters = g.add("Transpose", inputs[1], perm=filters_first) if weight is None else g.constant(weight.transpose(filters_first))
    settings = {
        "strides": node.attributes["strides"],
        "dilations": node.attributes["dilation"],
        "group": node.attributes["groups"],
    }
    y = g.add("Conv", g.add("Transpose", inputs[0], perm=_channels_first(rank)), filters, **settings)
    return g.add("Transpose", y, perm=_channels_last(rank))


def _pool(g: Graph, node: Node, inputs: list[str]) -> str:
    rank, window = len(node.output.shape), node.attributes["window"]
    x = g.add("Transpose", inputs[0], perm=_channels_first(rank))
    kind = "MaxPool" if node.operation == "max_pool" else "AveragePool"
    y = g.add(kind, x, kernel_shape=window, strides=node.attributes["strides"])
    if kind == "AveragePool":
        y = g.add("Mul", y, g.constant(math.prod(window), node.output.dtype))
    return g.add("Transpose", y, perm=_channels_last(rank))


OPERATIONS: dict[str, Translation] = {
    **dict.fromkeys(DIRECT, _widened(_direct)),
    **dict.fromkeys((*COMPARISONS, "not_equal"), _comparison),
    **{name: lambda g, node, inputs: g.add(LOGICAL[node.operation], *inputs) for name in LOGICAL},
    **dict.fromkeys(REDUCTIONS, _widened(_reduction)),
    "fmod": _widened(lambda g, node, inputs: g.add("Mod", *inputs, fmod=1)),
    "where": _where,
    "isfinite": lambda g, node, inputs: g.add("Not", g.add("Or", g.add("IsNaN", *inputs), g.add("IsInf", *inputs))),
    "log1p": lambda g, node, inputs: g.add("Log", g.add("Add", inputs[0], g.constant(1, node.output.dtype))),
    "expm1": lambda g, node, inputs: g.add("Sub", g.add("Exp", inputs[0]), g.constant(1, node.output.dtype)),
    "arctan2": _arctan2,
    "cast": lambda g, node, inputs: g.cast(inputs[0], node.output.dtype),
    "range": _range,
    "size": lambda g, node, inputs: g.scalar(node.attributes["size"], node.output.dtype),
    "reshape": _reshape,
    "broadcast": lambda g, node, inputs: g.add("Expand", inputs[0], g.sizes(node.output.shape)),
    "transpose": lambda g, node, inputs: g.add("Transpose", inputs[0], perm=node.attributes["axes"]),
    "slice": _slice,
    "pad": _pad,
    "concatenate": lambda g, node, inputs: g.add("Concat", *inputs, axis=node.attributes["axis"]),
    "take": lambda g, node, inputs: g.add("Gather", *inputs, axis=node.attributes["axis"]),
    "scatter": lambda g, node, inputs: g.add("ScatterElements", *inputs, axis=0, reduction=HOW[node.attributes["how"]]),
    "argmax": _argument,
    "argmin": _argument,
    "cumsum": _widened(_cumsum),
    "convolution": _convolution,
    "max_pool": _pool,
    "sum_pool": _pool,
}
