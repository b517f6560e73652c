"""Act with a policy that was trained by proximo. This file needs NumPy and the ``policy.npz`` beside it, and nothing else.

    from proximo_policy import ExportedPolicy

    policy = ExportedPolicy("policy.npz")
    observation, _ = env.reset()
    memory, episode_start, done = policy.init_memory(), True, False
    while not done:
        action, memory = policy.predict(observation, memory, episode_start)
        observation, reward, terminated, truncated, _ = env.step(action)
        episode_start, done = False, terminated or truncated

``predict`` also takes N stacked observations, of N environments. ``run`` takes and returns arrays by name, as ``policy.onnx`` does; it also
returns the log-probability, the value and the parameters of the distribution.

A ``policy.npz`` is data: arrays, and a program in JSON whose operations are those of the table ``OPERATIONS`` below. Loading it executes
nothing and uses no pickle. An invalid file or argument raises a ``PolicyError`` with one sentence.
"""

from __future__ import annotations

import json
import math
import operator
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT, VERSION = "proximo-policy", 3
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
NOISE = ("gumbel", "normal", "logistic")  # methods of numpy.random.Generator
MAX_SIZES = 8  # numbers of environments whose prepared programs are kept
MAX_RANK = 32


class PolicyError(ValueError):
    """The file is not a policy or is damaged, or an argument does not match the policy."""


class Operation(NamedTuple):
    """An operation of a program: its function, its number of input arrays (None: one or more), and the kinds of its attributes."""

    function: Callable[..., np.ndarray]
    inputs: int | None
    attributes: dict[str, str]


def _logistic(x: np.ndarray) -> np.ndarray:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def _integer_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rounded towards zero."""
    quotient = np.floor_divide(x, y)
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(quotient.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(x.dtype)


def _slice(x: np.ndarray, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> np.ndarray:
    """A slice along every axis. With a negative step, a stop of -1 includes the first entry."""
    bounds = zip(starts, stops, steps, strict=True)
    return x[tuple(slice(a, None if b < 0 else b, s) for a, b, s in bounds)]


def _pad(x: np.ndarray, value: np.ndarray, low: Sequence[int], high: Sequence[int]) -> np.ndarray:
    return np.pad(x, list(zip(low, high, strict=True)), constant_values=value)


def _scatter(x: np.ndarray, places: np.ndarray, updates: np.ndarray, how: str) -> np.ndarray:
    """A copy of the vector ``x`` with ``updates`` at ``places``."""
    result = x.copy()
    if how == "set":
        result[places] = updates
    else:
        {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}[how].at(result, places, updates)
    return result


def _reduction(function: Any, keep_type: bool = False) -> Callable[..., np.ndarray]:
    def reduce(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        return function(x, axis=tuple(axes), dtype=x.dtype) if keep_type else function(x, axis=tuple(axes))

    return reduce


def _cumsum(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    if not reverse:
        return np.cumsum(x, axis=axis, dtype=x.dtype)
    return np.flip(np.cumsum(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)


def _windows(x: np.ndarray, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> np.ndarray:
    """A view ``[N, *places, *window, C]`` of ``x``, ``[N, *space, C]``."""
    x = np.ascontiguousarray(x)
    places = _places(x.shape, window, strides, dilation)
    steps = x.strides[1:-1]
    between = tuple(step * s for step, s in zip(steps, strides, strict=True))
    inside = tuple(step * d for step, d in zip(steps, dilation, strict=True))
    shape, bytes_apart = (len(x), *places, *window, x.shape[-1]), (x.strides[0], *between, *inside, x.strides[-1])
    # Unlike as_strided, the constructor raises if the view exceeds the array.
    return np.ndarray(shape, x.dtype, x, 0, bytes_apart)  # pyright: ignore[reportArgumentType]


def _places(shape: Sequence[int], window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Number of positions of a window in ``[N, *space, C]``, for each axis of ``space``. Raises ``ValueError`` if it does not fit."""
    space = list(zip(shape[1:-1], window, strides, dilation, strict=True))
    if not all(w >= 1 and s >= 1 and d >= 1 and (w - 1) * d < size for size, w, s, d in space):
        raise ValueError(
            f"windows {list(window)}, strides {list(strides)} and dilation {list(dilation)} do not fit {list(shape)}"
        )
    return tuple((size - (w - 1) * d - 1) // s + 1 for size, w, s, d in space)


def _convolution(x: np.ndarray, weight: np.ndarray, strides: Sequence[int], dilation: Sequence[int], groups: int) -> np.ndarray:
    """``[N, *space, C]`` by ``[*window, C / groups, out]``, without padding."""
    windows = _windows(x, weight.shape[:-2], strides, dilation)
    places = windows.shape[: x.ndim - 1]
    size, parts = weight.shape[-2], []
    for group, filters in enumerate(np.split(weight, groups, axis=-1) if groups > 1 else [weight]):
        patches = windows[..., group * size : (group + 1) * size] if groups > 1 else windows
        rows = patches.reshape((math.prod(places), -1))
        parts.append((rows @ filters.reshape((-1, filters.shape[-1]))).reshape((*places, -1)))
    return parts[0] if groups == 1 else np.concatenate(parts, axis=-1)


def _pool(function: Any) -> Callable[..., np.ndarray]:
    def pool(x: np.ndarray, window: Sequence[int], strides: Sequence[int]) -> np.ndarray:
        axes = tuple(range(x.ndim - 1, x.ndim - 1 + len(window)))
        return function(_windows(x, window, strides, [1] * len(window)), axis=axes).astype(x.dtype)

    return pool


def _argument(function: Any) -> Callable[..., np.ndarray]:
    return lambda x, axis, to: function(x, axis=axis).astype(to)


_ELEMENTWISE = {
    1: "negative absolute sign exp log log1p expm1 sqrt tanh sin cos tan arcsin arccos arctan sinh cosh arcsinh arccosh arctanh "
    "floor ceil rint isfinite logical_not bitwise_not",
    2: "add subtract multiply divide fmod power maximum minimum arctan2 equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor",
}
"""Functions of NumPy, by their number of inputs."""
OPERATIONS: dict[str, Operation] = {
    **{name: Operation(getattr(np, name), count, {}) for count, names in _ELEMENTWISE.items() for name in names.split()},
    "logistic": Operation(_logistic, 1, {}),
    "erf": Operation(_erf, 1, {}),
    "integer_divide": Operation(_integer_divide, 2, {}),
    "where": Operation(lambda condition, this, other: np.where(condition, this, other), 3, {}),
    "cast": Operation(lambda x, to: x.astype(to), 1, {"to": "dtype"}),
    "range": Operation(lambda size, to: np.arange(size, dtype=to), 0, {"size": "dim", "to": "dtype"}),
    "size": Operation(lambda size, to: np.asarray(size, to), 0, {"size": "dim", "to": "dtype"}),
    "reshape": Operation(lambda x, sizes: np.reshape(x, sizes), 1, {"sizes": "dims"}),
    "broadcast": Operation(lambda x, sizes: np.broadcast_to(x, sizes), 1, {"sizes": "dims"}),
    "transpose": Operation(lambda x, axes: np.transpose(x, axes), 1, {"axes": "ints"}),
    "slice": Operation(_slice, 1, {"starts": "dims", "stops": "dims", "steps": "ints"}),
    "pad": Operation(_pad, 2, {"low": "ints", "high": "ints"}),
    "concatenate": Operation(lambda *xs, axis: np.concatenate(xs, axis), None, {"axis": "int"}),
    "take": Operation(lambda x, places, axis: np.take(x, places, axis=axis), 2, {"axis": "int"}),
    "scatter": Operation(_scatter, 3, {"how": "how"}),
    "sum": Operation(_reduction(np.sum, keep_type=True), 1, {"axes": "ints"}),
    "prod": Operation(_reduction(np.prod, keep_type=True), 1, {"axes": "ints"}),
    "max": Operation(_reduction(np.max), 1, {"axes": "ints"}),
    "min": Operation(_reduction(np.min), 1, {"axes": "ints"}),
    "all": Operation(_reduction(np.all), 1, {"axes": "ints"}),
    "any": Operation(_reduction(np.any), 1, {"axes": "ints"}),
    "argmax": Operation(_argument(np.argmax), 1, {"axis": "int", "to": "dtype"}),
    "argmin": Operation(_argument(np.argmin), 1, {"axis": "int", "to": "dtype"}),
    "cumsum": Operation(_cumsum, 1, {"axis": "int", "reverse": "flag"}),
    "matmul": Operation(np.matmul, 2, {}),
    "convolution": Operation(_convolution, 2, {"strides": "ints", "dilation": "ints", "groups": "int"}),
    "max_pool": Operation(_pool(np.max), 1, {"window": "ints", "strides": "ints"}),
    "sum_pool": Operation(_pool(np.sum), 1, {"window": "ints", "strides": "ints"}),
}


Shape = tuple[int, ...]


def _axes(axes: Sequence[int], rank: int) -> set[int]:
    found = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(found) != len(axes):
        raise ValueError(f"{list(axes)} are not axes of an array of {rank}")
    return found


def _shape_of_transpose(x: Shape, axes: Sequence[int]) -> Shape:
    if len(_axes(axes, len(x))) != len(x):
        raise ValueError(f"{list(axes)} is not a permutation of {len(x)} axes")
    return tuple(x[axis] for axis in axes)


def _shape_of_reshape(x: Shape, sizes: Shape) -> Shape:
    if math.prod(x) != math.prod(sizes):
        raise ValueError(f"{list(x)} does not have as many entries as {list(sizes)}")
    return sizes


def _shape_of_broadcast(x: Shape, sizes: Shape) -> Shape:
    if np.broadcast_shapes(x, sizes) != sizes:
        raise ValueError(f"{list(x)} does not broadcast to {list(sizes)}")
    return sizes


def _shape_of_slice(x: Shape, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Shape:
    bounds = zip(x, starts, stops, steps, strict=True)
    return tuple(len(range(*slice(a, None if b < 0 else b, s).indices(size))) for size, a, b, s in bounds)


def _shape_of_pad(x: Shape, value: Shape, low: Sequence[int], high: Sequence[int]) -> Shape:
    if value or min((*low, *high), default=0) < 0:
        raise ValueError("a padding width is negative, or the padding value is not a scalar")
    return tuple(size + a + b for size, a, b in zip(x, low, high, strict=True))


def _shape_of_concatenate(*xs: Shape, axis: int) -> Shape:
    (axis,) = _axes([axis], len(xs[0]))
    if len({(*x[:axis], *x[axis + 1 :]) for x in xs}) != 1 or len({len(x) for x in xs}) != 1:
        raise ValueError(f"{[list(x) for x in xs]} do not fit together")
    return (*xs[0][:axis], sum(x[axis] for x in xs), *xs[0][axis + 1 :])


def _shape_of_take(x: Shape, places: Shape, axis: int) -> Shape:
    (axis,) = _axes([axis], len(x))
    return (*x[:axis], *places, *x[axis + 1 :])


def _shape_of_scatter(x: Shape, places: Shape, updates: Shape, how: str) -> Shape:
    if len(x) != 1 or len(places) != 1 or updates != places:
        raise ValueError(
            f"updates of shape {list(updates)} do not fit indices of shape {list(places)} and an array of shape {list(x)}"
        )
    return x


def _shape_of_reduction(x: Shape, axes: Sequence[int] = (), axis: int | None = None, to: str = "") -> Shape:
    gone = _axes(axes if axis is None else [axis], len(x))
    return tuple(size for i, size in enumerate(x) if i not in gone)


def _shape_of_cumsum(x: Shape, axis: int, reverse: bool) -> Shape:
    _axes([axis], len(x))
    return x


def _shape_of_matmul(x: Shape, y: Shape) -> Shape:
    if len(x) < 2 or len(y) < 2 or x[-1] != y[-2]:
        raise ValueError(f"{list(x)} cannot be multiplied by {list(y)}")
    return (*np.broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])


def _shape_of_convolution(x: Shape, weight: Shape, strides: Sequence[int], dilation: Sequence[int], groups: int) -> Shape:
    if len(x) < 2 or len(weight) != len(x) or groups < 1 or weight[-1] % groups or x[-1] != weight[-2] * groups:
        raise ValueError(f"{list(weight)} in {groups} groups does not fit {list(x)}")
    return (x[0], *_places(x, weight[:-2], strides, dilation), weight[-1])


def _shape_of_pool(x: Shape, window: Sequence[int], strides: Sequence[int]) -> Shape:
    if len(x) < 2:
        raise ValueError(f"{list(x)} has no spatial axes")
    return (x[0], *_places(x, window, strides, [1] * len(window)), x[-1])


_SHAPES: dict[str, Callable[..., Shape]] = {
    "cast": lambda x, to: x,
    "range": lambda size, to: (size,),
    "size": lambda size, to: (),
    "reshape": _shape_of_reshape,
    "broadcast": _shape_of_broadcast,
    "transpose": _shape_of_transpose,
    "slice": _shape_of_slice,
    "pad": _shape_of_pad,
    "concatenate": _shape_of_concatenate,
    "take": _shape_of_take,
    "scatter": _shape_of_scatter,
    **dict.fromkeys(("sum", "prod", "max", "min", "all", "any", "argmax", "argmin"), _shape_of_reduction),
    "cumsum": _shape_of_cumsum,
    "matmul": _shape_of_matmul,
    "convolution": _shape_of_convolution,
    "max_pool": _shape_of_pool,
    "sum_pool": _shape_of_pool,
}
"""For each operation, a function that returns the shape of its result or raises ``ValueError``. All other operations are
element-wise, and their inputs broadcast."""


def infer_shapes(program: Mapping[str, Any], n: int) -> list[Shape]:
    """The shape of every value of a program for ``n`` environments.

    Raises ``ValueError`` if shapes do not fit together, or if the program needs more memory than its inputs and constants justify.
    """
    drawn = {leaf["name"] for leaf in program["interface"]["noise"]}
    values = [_sized(tuple(resolve(d, n) for d in leaf["shape"])) for leaf in program["inputs"]]
    given = sum(math.prod(x) for leaf, x in zip(program["inputs"], values, strict=True) if leaf["name"] not in drawn)
    values += [_sized(tuple(leaf["shape"])) for leaf in program["constants"]]
    constants = sum(math.prod(leaf["shape"]) for leaf in program["constants"])
    left = max(n, 1) * (2**24 + 16 * constants) + 1024 * given
    for leaf in program["interface"]["noise"]:
        left -= math.prod(values[[x["name"] for x in program["inputs"]].index(leaf["name"])])
    for i, (name, places, attributes) in enumerate(program["nodes"]):
        kinds, inputs = OPERATIONS[name].attributes, [values[place] for place in places]
        resolved = {key: _resolved(kinds[key], value, n) for key, value in attributes.items()}
        try:
            made = _sized(_SHAPES.get(name, np.broadcast_shapes)(*inputs, **resolved))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"its operation {name!r}, number {i}, fails ({error})") from error
        window = inputs[1][:-1] if name == "convolution" else resolved.get("window", ())  # copied for each position
        left -= math.prod(made) + math.prod(made[:-1]) * math.prod(window) * (inputs[0][-1] if window else 0)
        if left < 0:
            raise ValueError(f"its operations up to number {i}, {name!r}, need more memory than its inputs and constants justify")
        values.append(made)
    return values


def _sized(shape: Shape) -> Shape:
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise ValueError(f"{str(list(shape))[:80]} is not a valid array shape")
    return shape


def _is_int(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _is_dim(x: Any) -> bool:
    """A size, or ``[a, b]`` for ``a · N + b``."""
    return _is_int(x) or (isinstance(x, list) and len(x) == 2 and all(map(_is_int, x)))


_KINDS: dict[str, Callable[[Any], bool]] = {
    "int": _is_int,
    "ints": lambda x: isinstance(x, list) and all(map(_is_int, x)),
    "flag": lambda x: isinstance(x, bool),
    "dim": _is_dim,
    "dims": lambda x: isinstance(x, list) and all(map(_is_dim, x)),
    "dtype": lambda x: x in DTYPES,
    "how": lambda x: x in ("set", "add", "multiply", "maximum", "minimum"),
}


def resolve(dim: Any, n: int) -> int:
    """A size for ``n`` environments."""
    return dim if isinstance(dim, int) else dim[0] * n + dim[1]


def _resolved(kind: str, value: Any, n: int) -> Any:
    if kind == "dim":
        return resolve(value, n)
    return tuple(resolve(dim, n) for dim in value) if kind == "dims" else value


class ExportedPolicy:
    """An exported policy, which acts by ``predict``. The memory is an argument and a result of each call."""

    def __init__(self, path: str | Path | None = None):
        """Load a policy.

        Args:
            path: The file; by default the ``policy.npz`` beside this file.

        Raises:
            PolicyError: If the file cannot be read, is damaged or is not a policy.
        """
        self.path = Path(__file__).with_name("policy.npz") if path is None else Path(path)
        arrays = self._load()
        self.program = self._checked(arrays)
        constants = [arrays[f"constant_{i}"] for i in range(len(self.program["constants"]))]
        self._constants = dict(enumerate(constants, len(self.program["inputs"])))
        self.interface = self.program["interface"]
        """Which inputs are parts of the observation, the memory, the reward and the noise, by name."""
        self._initial = {entry["input"]: arrays[f"initial.{entry['input']}"] for entry in self.interface["memory"]}
        self._bound: dict[int, tuple[list[Any], list[Any]]] = {}

    @property
    def has_memory(self) -> bool:
        """Whether the policy is recurrent or observes its previous action or reward. If not, its memory is empty."""
        return bool(self._initial) or self.interface["reward"]

    def init_memory(self, num_envs: int = 1) -> dict[str, np.ndarray]:
        """Return the memory of ``num_envs`` environments before the first step. Raises ``PolicyError`` if that is not a number of 1 or more."""
        if not _is_int(num_envs) or num_envs < 1:
            raise PolicyError(f"num_envs = {num_envs!r}: expected a number of environments, 1 or more.")
        return {name: np.repeat(entry[None], num_envs, axis=0) for name, entry in self._initial.items()}

    def predict(
        self,
        observation: Any,
        memory: Mapping[str, Any] | None = None,
        episode_start: Any = None,
        *,
        action_mask: Any = None,
        deterministic: bool = True,
        key: int | np.random.Generator | None = None,
        reward: Any = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Choose the action for one observation, or for N stacked observations.

        Args:
            observation: As the environment returns it, before normalization, or N of them stacked along a leading axis (dicts and
                tuples entry by entry). Entries that only the value function reads may be missing.
            memory: What the last call returned, or ``init_memory``. May be None if the policy has no memory, or if an episode begins
                in every environment and the policy resets its memory there.
            episode_start: Whether an episode begins with this observation: one flag, or N of them. The memory is reset there,
                unless the policy was trained with ``reset_memory: false``. By default no episode begins.
            action_mask: Which actions are allowed: one flag for each choice, or N rows of them. For an action with components also with an
                axis, or as a tuple or list with an array, for each component. Required if the policy was trained with masks, unless the
                observation has them as its entry ``action_mask``.
            deterministic: Whether to choose the most probable action. If false, the action is sampled; the policy must have been
                exported with ``--stochastic``.
            key: Required to sample: an integer seed, a new one for each call, or a ``numpy.random.Generator``.
            reward: The reward of the last action, or N of them. Required from the second step on by policies that observe rewards, and
                ignored by others. If the memory is kept across episodes, it is also required at their start.

        Returns:
            The action as the environment takes it (N of them if observations were stacked), and the memory for the next call.

        Raises:
            PolicyError: If an argument is missing, or does not match the policy or the other arguments.
        """
        inputs, stacked = self._observation_inputs(observation, action_mask)
        n = 1 if stacked is None else stacked
        if memory is None:
            memory = self._new_memory(episode_start, stacked)
        elif not isinstance(memory, Mapping):
            raise PolicyError(
                f"memory is {type(memory).__name__}: expected policy.init_memory(N), or what the last call returned."
            )
        inputs["episode_start"] = np.zeros(n, bool) if episode_start is None else _flags(episode_start, stacked)
        if self.interface["reward"]:
            inputs["reward"] = self._reward(reward, memory, inputs["episode_start"].astype(bool), stacked)
        outputs = self.run({**memory, **inputs, **self._noise(deterministic, key, n)})
        action = outputs["action"].astype(self.interface["action_dtype"])
        after = {entry["input"]: outputs[entry["output"]] for entry in self.interface["memory"]}
        return (action[0] if stacked is None else action), after

    def _observation_inputs(self, observation: Any, action_mask: Any) -> tuple[dict[str, np.ndarray], int | None]:
        """The parts of the observation by name, with a leading axis; and N if observations are stacked, None for a single one."""
        described = {leaf["name"]: leaf for leaf in self.program["inputs"]}
        self._check_mask_is_given(observation, action_mask)
        if action_mask is not None and not isinstance(observation, Mapping):
            observation = {"observation": observation}
        parts, axes = {}, set()
        for leaf in sorted(self.interface["observation"], key=lambda leaf: leaf["name"] == "action_mask"):  # the mask last
            name, shape = leaf["name"], tuple(resolve(d, 1) for d in described[leaf["name"]]["shape"][1:])
            if name == "action_mask" and action_mask is not None:
                count = len(next(iter(parts.values()))) if axes == {1} else None
                given = _flat_masks(action_mask, self.interface["mask_sizes"], count) if len(shape) == 1 else action_mask
            else:
                given = _part(observation, leaf["path"])
            x = parts[name] = _array(name, given, described[name]["dtype"])
            axes.add(x.ndim - len(shape))
            if not axes <= {0} and not axes <= {1}:
                raise PolicyError(
                    f"{name} has the shape {x.shape}: expected {len(shape)} axes, or {len(shape) + 1} if observations are stacked, in all "
                    "parts alike."
                )
            if x.shape[x.ndim - len(shape) :] != shape:
                raise PolicyError(f"{name} has the shape {x.shape}: expected {shape}, or N of them stacked.")
            self._check_values(leaf, x, math.prod(shape))
        if axes == {1}:
            return parts, len(next(iter(parts.values())))
        return {name: x[None] for name, x in parts.items()}, None

    def _check_mask_is_given(self, observation: Any, action_mask: Any) -> None:
        """Raise ``PolicyError`` unless there is one mask, or none for a policy without masks."""
        in_observation = isinstance(observation, Mapping) and "action_mask" in observation
        if action_mask is not None:
            if not self.interface["mask_sizes"]:
                raise PolicyError("action_mask was given, but this policy was trained without action masks: remove it.")
            if in_observation:
                raise PolicyError("action_mask was given twice, in the observation and as an argument: remove one of them.")
        elif self.interface["mask_sizes"] and not in_observation and not isinstance(observation, tuple):
            raise PolicyError(
                "action_mask was not given, but this policy was trained with action masks: pass action_mask=…, such as "
                'info["action_mask"] or env.action_masks().'
            )

    def _check_values(self, leaf: Mapping[str, Any], x: np.ndarray, size: int) -> None:
        """Raise ``PolicyError`` for numbers that the part of the observation cannot have. One observation has ``size`` numbers."""
        _check_finite(leaf["name"], x)
        if leaf["choices"] is not None:
            _check_choices(leaf["name"], x, *leaf["choices"])
        if leaf["name"] == "action_mask":
            begins = np.cumsum([0, *self.interface["mask_sizes"][:-1]])
            if not np.logical_or.reduceat(x.reshape(-1, size), begins, axis=-1).all():
                raise PolicyError("action_mask allows no action, or none in one component: at least one must be allowed.")

    def _new_memory(self, episode_start: Any, stacked: int | None) -> dict[str, np.ndarray]:
        starts = episode_start is not None and np.all(episode_start) and self.interface["reset_memory"]
        if self.has_memory and not starts:
            raise PolicyError(
                f"memory = None with episode_start = {episode_start}, but this policy has a memory: pass memory=policy.init_memory(N) for "
                "N environments at the start, and afterwards the memory that the last call returned."
            )
        return self.init_memory(1 if stacked is None else stacked)

    def _reward(self, reward: Any, memory: Mapping[str, Any], episode_start: np.ndarray, stacked: int | None) -> np.ndarray:
        """The rewards of the last actions; zeros where they are not read."""
        if reward is not None:
            given = _one_each("reward", reward, stacked)
            _check_finite("reward", given)
            return given
        initial = bool(memory) and all(np.all(np.asarray(memory[k]) == x) for k, x in self._initial.items() if k in memory)
        if not initial and not (self.interface["reset_memory"] and episode_start.all()):
            raise PolicyError(
                "reward was not given, but this policy observes it: pass the last reward (0 before the first action)."
            )
        return np.zeros(len(episode_start))

    def _noise(self, deterministic: bool, key: Any, n: int) -> dict[str, np.ndarray]:
        """The inputs that sample the action; zeros for the most probable one."""
        shapes = {leaf["name"]: leaf["shape"] for leaf in self.program["inputs"]}
        noise = {
            leaf["name"]: (leaf["family"], [resolve(d, n) for d in shapes[leaf["name"]]]) for leaf in self.interface["noise"]
        }
        if deterministic:
            if key is not None:
                raise PolicyError(
                    "key was given with deterministic = True, which ignores it: pass deterministic=False to sample."
                )
            return {name: np.zeros(shape) for name, (_, shape) in noise.items()}
        if not noise:
            raise PolicyError("This policy cannot sample: export it with --stochastic, or pass deterministic=True.")
        try:
            rng = np.random.default_rng(key if isinstance(key, np.random.Generator) else operator.index(key))
        except (TypeError, ValueError):
            raise PolicyError(
                f"key = {key!r} with deterministic = False: expected an integer seed, a new one for each call, or a numpy.random.Generator."
            ) from None
        return {name: getattr(rng, family)(size=shape) for name, (family, shape) in noise.items()}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Compute all outputs.

        Args:
            feeds: The inputs by name, as ``metadata.json`` lists them; each has one entry for each of N environments.

        Returns:
            The outputs by name, as ``policy.onnx`` returns them. The memory ``x`` of the next call is the output ``x.next``.

        Raises:
            PolicyError: If an input is missing, unknown or of another shape.
        """
        n, inputs = self._fitting(feeds)
        fresh = n not in self._bound
        if fresh:
            self._bind(n)
        known, steps = self._bound[n]
        values = [*inputs, *known]
        try:
            with np.errstate(all="ignore"):
                for function, places, target in steps:
                    values[target] = function(*[values[i] for i in places])
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise PolicyError(f"{self.path} is damaged: one of its operations fails ({error}).") from error
        outputs = {leaf["name"]: np.array(values[leaf["value"]]) for leaf in self.program["outputs"]}
        if fresh:
            for leaf in self.program["outputs"]:
                self._check_shape(outputs[leaf["name"]], leaf, n)
        return outputs

    def _bind(self, n: int) -> None:
        """Prepare the program for N environments: sizes become numbers, and what depends on no input is computed once."""
        count, nodes = len(self.program["inputs"]), self.program["nodes"]
        known = {**self._constants}
        steps, begin, name = [], count + len(self._constants), ""
        try:
            infer_shapes(self.program, n)
        except ValueError as error:
            raise PolicyError(f"{self.path} is damaged: for {n} environments, {error}.") from error
        try:
            for target, (name, places, attributes) in enumerate(nodes, begin):
                operation = OPERATIONS[name]
                given = {key: _resolved(operation.attributes[key], value, n) for key, value in attributes.items()}
                function = partial(operation.function, **given) if given else operation.function
                if all(i in known for i in places):
                    with np.errstate(all="ignore"):
                        known[target] = function(*[known[i] for i in places])
                else:
                    steps.append((function, tuple(places), target))
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise PolicyError(f"{self.path} is damaged: its operation {name} fails ({error}).") from error
        if len(self._bound) >= MAX_SIZES:
            self._bound.clear()
        self._bound[n] = [known.get(i) for i in range(count, begin + len(nodes))], steps

    def _fitting(self, feeds: Mapping[str, Any]) -> tuple[int, list[np.ndarray]]:
        """The number of environments, and the inputs in order."""
        missing = [leaf["name"] for leaf in self.program["inputs"] if leaf["name"] not in feeds]
        unknown = sorted(set(feeds) - {leaf["name"] for leaf in self.program["inputs"]})
        if missing or unknown:
            named = " and ".join(
                f"{what} {names[0]!r}" for what, names in (("lack", missing), ("have the unknown", unknown)) if names
            )
            raise PolicyError(f"The inputs {named}: expected {', '.join(leaf['name'] for leaf in self.program['inputs'])}.")
        n = len(np.atleast_1d(feeds["episode_start"]))
        if self.program["batch"] not in (None, n):
            raise PolicyError(
                f"episode_start has {n} flags: this policy was exported for {self.program['batch']} environments (--batch)."
            )
        inputs = []
        for leaf in self.program["inputs"]:
            x = _array(leaf["name"], feeds[leaf["name"]], leaf["dtype"])
            self._check_shape(x, leaf, n)
            inputs.append(x)
        return n, inputs

    def _check_shape(self, x: np.ndarray, leaf: Mapping[str, Any], n: int) -> None:
        expected = tuple(resolve(d, n) for d in leaf["shape"])
        if x.shape != expected:
            raise PolicyError(f"{leaf['name']} has the shape {x.shape}: expected {expected}, for {n} environments.")

    def _load(self) -> dict[str, np.ndarray]:
        try:
            size = self.path.stat().st_size
            with zipfile.ZipFile(self.path) as archive:
                members = archive.infolist()
                if sum(member.file_size for member in members) > 2**24 + 16 * size:
                    raise ValueError("its content is too large for the size of the file")
                arrays = {}
                for member in members:
                    with archive.open(member) as file:
                        arrays[member.filename.removesuffix(".npy")] = _read_array(file)
                return arrays
        except OSError as error:
            raise PolicyError(f"Cannot read {self.path} ({error.strerror or error}).") from error
        except Exception as error:  # zipfile and its decompressors raise a dozen types of errors
            raise PolicyError(f"{self.path} is damaged, or not a policy of proximo: {error}.") from error

    def _checked(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The program, if it has this version and is complete."""
        try:
            program = json.loads(arrays["program"].tobytes())
        except (KeyError, ValueError, RecursionError) as error:
            raise PolicyError(f"{self.path} is not a policy of proximo: it contains no program ({error}).") from error
        if not isinstance(program, dict) or program.get("format") != FORMAT:
            raise PolicyError(f"{self.path} is not a policy of proximo: the format of its program is not {FORMAT!r}.")
        if program.get("version") != VERSION:
            raise PolicyError(
                f"{self.path} has the format version {_shown(program.get('version'))}; this file reads version {VERSION}: use the "
                "proximo_policy.py that was exported with it."
            )
        try:
            fault = _fault(program, arrays)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            fault = f"its program is incomplete ({type(error).__name__}: {error})"
        if not fault:
            try:
                infer_shapes(program, program["batch"] or 1)
            except ValueError as error:
                fault = str(error)
        if fault:
            raise PolicyError(f"{self.path} is damaged: {fault}.")
        return program


def _check_finite(name: str, x: np.ndarray) -> None:
    """Raise ``PolicyError`` for NaN or infinity, which would stay in the memory until the next episode."""
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise PolicyError(f"{name} has {x[~np.isfinite(x)].flat[0]}: expected finite numbers. Check the code that computes it.")


def _read_array(file: Any) -> np.ndarray:
    """Read an array that ``numpy.save`` wrote, without reserving more memory than the file has bytes. Raises ``ValueError``."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_column, dtype = header(file)
    if dtype.name not in DTYPES:
        raise ValueError(f"it contains an array of {dtype.name}, expected one of {', '.join(DTYPES)}")
    return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if by_column else "C")


def _array(name: str, given: Any, dtype: str) -> np.ndarray:
    """``given`` as an array of ``dtype``. Raises ``PolicyError`` if it is no array, or if the conversion to integers changes a number."""
    try:
        with np.errstate(invalid="ignore"):
            x = np.asarray(given, dtype)
            changed = x != np.asarray(given) if x.dtype.kind in "iu" else np.False_
    except (ValueError, TypeError, OverflowError) as error:
        raise PolicyError(f"{name} is not an array of {dtype} ({error}).") from error
    if np.any(changed):
        raise PolicyError(
            f"{name} has {np.asarray(given)[changed].flat[0]}, which is not of {dtype}: pass the numbers of the environment, unchanged."
        )
    return x


def _check_choices(name: str, x: np.ndarray, start: Sequence[int], n: Sequence[int]) -> None:
    """Raise ``PolicyError`` if ``x`` has another choice than ``start`` to ``start + n - 1``, both with one number for each component."""
    flat = x.reshape(-1, len(start))
    wrong = (flat < np.array(start)) | (flat >= np.add(start, n))
    if wrong.any():
        row, component = np.argwhere(wrong)[0]
        first = start[component]
        raise PolicyError(
            f"{name} has {flat[row, component]}: expected {first} to {first + n[component] - 1}. Pass the numbers of the environment, "
            "unchanged."
        )


def _flat_masks(given: Any, sizes: Sequence[int], count: int | None) -> Any:
    """``evaluation.observations.flat_masks``, which this file cannot import: it is copied into every export."""
    try:
        if isinstance(given, tuple | list):
            given = _of_sequence(given, sizes, count)
        mask = np.asarray(given)
        if mask.dtype == object and mask.ndim == 1:
            mask = np.stack([_flat_masks(one, sizes, None) for one in mask])
    except PolicyError:
        raise
    except (TypeError, ValueError):  # parts of different lengths
        return given
    if mask.dtype.kind not in "biuf" or not np.isfinite(mask).all():
        return given
    ends = [axis for axis in range(mask.ndim) if math.prod(mask.shape[axis:]) == sum(sizes)]
    return (mask != 0).reshape(*mask.shape[: ends[-1]], -1) if ends else given


def _of_sequence(given: Sequence[Any], sizes: Sequence[int], count: int | None) -> Any:
    """One array of what ``given`` has for each component or for each environment; else ``given``."""
    stacked = () if count is None else (count,)
    components = len(given) == len(sizes) > 1 and all(_has_shape(x, (*stacked, n)) for x, n in zip(given, sizes, strict=True))
    masks = [_flat_masks(one, sizes, None) for one in given] if len(given) == count else []
    if not masks or not all(_has_shape(mask, (sum(sizes),)) for mask in masks):
        return np.concatenate([np.asarray(part) for part in given], axis=-1) if components else given
    if components:
        raise PolicyError(
            f"action_mask is a sequence of {count} arrays, which may be the masks of {count} environments or of {len(sizes)} components: "
            f"give one array of shape ({count}, {sum(sizes)})."
        )
    return np.stack(masks)


def _has_shape(array: Any, shape: Shape) -> bool:
    try:
        return np.shape(array) == shape
    except ValueError:  # parts of different lengths
        return False


def _one_each(name: str, given: Any, stacked: int | None) -> np.ndarray:
    """``given`` as an array with one entry per environment."""
    x = _array(name, given, "float64")
    x = x[None] if stacked is None and x.ndim == 0 else x
    if x.shape != (1 if stacked is None else stacked,):
        expected = "a single one, as the observation is" if stacked is None else f"({stacked},), one for each observation"
        raise PolicyError(f"{name} has the shape {x.shape}: expected {expected}.")
    return x


def _flags(episode_start: Any, stacked: int | None) -> np.ndarray:
    flags = _one_each("episode_start", episode_start, stacked)
    if not np.isin(flags, (0, 1)).all():
        raise PolicyError(f"episode_start = {episode_start!r}: expected True where an episode begins, and False elsewhere.")
    return flags


def _shown(value: Any) -> str:
    """A value from a file, for a message: short and printable."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _part(observation: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            observation = observation[step]
        except (KeyError, IndexError, TypeError) as error:
            raise PolicyError(
                f"The observation lacks its part {step!r}: expected the parts that the environment returns."
            ) from error
    return observation


def _fault(program: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """What is wrong with a program; empty for a valid one."""
    if program["batch"] is not None and not (_is_int(program["batch"]) and program["batch"] > 0):
        return f"its number of environments is {_shown(program['batch'])}"
    for leaf in (*program["inputs"], *program["outputs"]):
        if not (
            isinstance(leaf["name"], str)
            and leaf["name"].isprintable()
            and _KINDS["dims"](leaf["shape"])
            and leaf["dtype"] in DTYPES
        ):
            return f"its input or output {_shown(leaf['name'])} is not described"
    for i, described in enumerate(program["constants"]):
        array = arrays.get(f"constant_{i}")
        if array is None or list(array.shape) != described["shape"] or array.dtype.name != described["dtype"]:
            return f"its array constant_{i} is not of shape {_shown(described['shape'])} and type {_shown(described['dtype'])}"
    known = len(program["inputs"]) + len(program["constants"])
    for i, (name, places, attributes) in enumerate(program["nodes"]):
        if name not in OPERATIONS:
            return f"its operation {_shown(name)} is unknown"
        _, count, kinds = OPERATIONS[name]
        right = all(_is_int(p) and 0 <= p < known + i for p in places) and (len(places) == count if count is not None else places)
        if not right or set(attributes) != set(kinds) or not all(_KINDS[kinds[k]](v) for k, v in attributes.items()):
            return f"its operation {name!r}, number {i}, does not have the inputs and attributes that it takes"
    return _interface_fault(program, arrays, known + len(program["nodes"]))


def _are_choices(choices: Any, leaf: Mapping[str, Any] | None) -> bool:
    """Whether ``choices`` fit the input ``leaf``: None, or two lists with a number for each component: the first choice, and how many there are."""
    if choices is None or leaf is None:
        return True
    size = math.prod(leaf["shape"][1:])
    return len(choices) == 2 and all(_KINDS["ints"](x) and len(x) == size and max(map(abs, x)) < 2**62 for x in choices)


def _interface_fault(program: Mapping[str, Any], arrays: Mapping[str, np.ndarray], values: int) -> str:
    if not all(_is_int(leaf["value"]) and 0 <= leaf["value"] < values for leaf in program["outputs"]):
        return "an output of it does not exist"
    inputs, outputs = ({leaf["name"]: leaf for leaf in program[side]} for side in ("inputs", "outputs"))
    if len(inputs) < len(program["inputs"]) or len(outputs) < len(program["outputs"]):
        return "two of its inputs or outputs share a name"
    interface = program["interface"]
    if not isinstance(interface["reward"], bool) or not isinstance(interface["reset_memory"], bool):
        return "a flag of its interface is not true or false"
    if not all(isinstance(step, str) or _is_int(step) for leaf in interface["observation"] for step in leaf["path"]):
        return "its interface names no part of an observation"
    if not all(_are_choices(leaf["choices"], inputs.get(leaf["name"])) for leaf in interface["observation"]):
        return "a part of its observation does not have the choices that its interface lists"
    mask, masked = interface["mask_sizes"], "action_mask" in {leaf["name"] for leaf in interface["observation"]}
    if (
        not _KINDS["ints"](mask)
        or min(mask, default=1) < 1
        or sum(mask) != (masked and math.prod(inputs["action_mask"]["shape"][1:]))
    ):
        return "its action mask does not have the components that its interface lists"
    if interface["action_dtype"] not in ("float16", *DTYPES):
        return f"its actions are of {_shown(interface['action_dtype'])}"
    named = [leaf["name"] for leaf in (*interface["observation"], *interface["noise"])]
    named += ["episode_start", *(["reward"] if interface["reward"] else [])]
    lost = [name for name in named if name not in inputs]
    left = {*outputs} - {"action"}  # each output but the action may be the memory of one input
    for entry in interface["memory"]:
        leaf, initial = inputs.get(entry["input"]), arrays.get(f"initial.{entry['input']}")
        if leaf is None or initial is None or list(initial.shape) != leaf["shape"][1:] or entry["output"] not in left:
            lost.append(entry["input"])
        left.discard(entry["output"])
    lost += [leaf["family"] for leaf in interface["noise"] if leaf["family"] not in NOISE]
    lost += [] if "action" in outputs else ["action"]
    return f"its interface names {_shown(lost[0])}, which does not exist" if lost else ""
