"""Spaces of observations and actions: plain, hashable descriptions that need no environment library."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from proximo.errors import EnvError

ACTION_MASK = "action_mask"
"""Reserved entry of a ``Dict`` observation: a number for each action, other than 0 if the action is allowed."""
OBSERVATION = "observation"
"""Name of the observation next to reserved entries, if it is not a ``Dict`` itself."""
AGENT_ID, STATE = "agent_id", "state"
"""Reserved entries of the observations of several agents: which one observes (one-hot), and what all know together."""
PREVIOUS_ACTION, PREVIOUS_REWARD = "previous_action", "previous_reward"
"""Reserved entries that collectors add if the policy observes its previous action or reward."""
Bound = float | tuple[float, ...]
MAX_WRITTEN = 16
"""``str(space)`` lists at most this many components."""
MAX_FLOAT_INTEGER = 2**24
"""The largest integer up to which float32 has all."""
_INT32 = np.iinfo(np.int32)
_KEPT_INTEGERS = ("uint8", "int8", "int16", "bool")
_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


class _Leaf:
    """A space of arrays, without parts."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Box(_Leaf):
    """Arrays of one shape.

    ``low`` and ``high`` are one bound for all entries, or one for each (row-major). Raises ``EnvError`` if they do not fit.
    """

    shape: tuple[int, ...]
    low: Bound = -math.inf
    high: Bound = math.inf
    dtype: str = "float32"

    def __post_init__(self) -> None:
        with _expecting(self, "the shape first, as in Box((3,), low=-1.0, high=1.0)"):
            shape = _shape(self.shape)
            _set(self, shape=shape, low=_bound(self.low, shape), high=_bound(self.high, shape), dtype=str(np.dtype(self.dtype)))
            low, high = self.bounds()
            if not (low <= high).all():
                raise ValueError("a lower bound is above its upper bound, or NaN")

    @property
    def is_float(self) -> bool:
        """Whether the entries are floating-point numbers."""
        return np.issubdtype(np.dtype(self.dtype), np.floating)

    @property
    def is_image(self) -> bool:
        """Whether it may be an image: bytes with two axes (gray), three (with channels) or four (a stack)."""
        return self.dtype == "uint8" and len(self.shape) in (2, 3, 4)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper bounds of each entry, two float64 arrays of shape ``shape``."""
        low, high = (np.broadcast_to(np.asarray(b, np.float64), (self.size,)) for b in (self.low, self.high))
        return low.reshape(self.shape), high.reshape(self.shape)

    def is_bounded(self) -> np.ndarray:
        """Return which entries have bounds on both sides, with a range that is finite in float32; shape ``shape``."""
        low, high = self.bounds()
        with np.errstate(over="ignore", invalid="ignore"):
            return np.isfinite((high - low).astype(np.float32))

    def bounds_inside(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of each entry as numbers of ``dtype``, rounded inwards."""

        def rounded_up(bound: np.ndarray) -> np.ndarray:
            with np.errstate(over="ignore"):
                near = bound.astype(dtype)
            return np.where(near < bound, np.nextafter(near, dtype.type(np.inf)), near)

        low, high = self.bounds()
        return rounded_up(low), -rounded_up(-high)

    def __str__(self) -> str:
        return f"Box{self.shape} {self.dtype}"


@dataclass(frozen=True)
class Discrete(_Leaf):
    """The integers ``start … start + n - 1``."""

    n: int
    start: int = 0
    shape = ()

    def __post_init__(self) -> None:
        with _expecting(self, "integers, and n of 1 or more"):
            _set(self, n=operator.index(self.n), start=operator.index(self.start))
            if self.n < 1:
                raise ValueError("there is no choice")

    def __str__(self) -> str:
        return f"Discrete({self.n}, start={self.start})" if self.start else f"Discrete({self.n})"


@dataclass(frozen=True)
class MultiDiscrete(_Leaf):
    """Arrays of integers; component ``i`` lies in ``start_i … start_i + nvec_i - 1``.

    ``nvec`` and ``start`` are row-major. An empty ``start`` means zeros; a shape of ``(-1,)`` means one axis.
    """

    nvec: tuple[int, ...]
    start: tuple[int, ...] = ()
    shape: tuple[int, ...] = (-1,)

    def __post_init__(self) -> None:
        with _expecting(self, "one choice or more, and one start, for each component, as in MultiDiscrete((2, 3))"):
            nvec, start = (tuple(map(operator.index, values)) for values in (self.nvec, self.start))
            shape = _shape((len(nvec),) if self.shape == (-1,) else self.shape)
            _set(self, nvec=nvec, start=start or (0,) * len(nvec), shape=shape)
            if not self.size == len(nvec) == len(self.start) or min(nvec) < 1:
                raise ValueError("there is no choice, or the numbers of choices, starts and components differ")

    def __str__(self) -> str:
        if self.size > MAX_WRITTEN:
            return f"MultiDiscrete of shape {self.shape}, up to {max(self.nvec)} choices"
        nvec, start = (np.reshape(values, self.shape).tolist() for values in (self.nvec, self.start))
        return f"MultiDiscrete({nvec}, start={start})" if any(self.start) else f"MultiDiscrete({nvec})"


@dataclass(frozen=True)
class MultiBinary(_Leaf):
    """Arrays of zeros and ones."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        with _expecting(self, "a tuple of integers, as in MultiBinary((3,))"):
            _set(self, shape=_shape(self.shape))

    def __str__(self) -> str:
        return f"MultiBinary{self.shape}"


@dataclass(frozen=True, init=False)
class Dict:
    """Named parts, as a mapping or as pairs. They are sorted by name, like the leaves of a ``dict`` in JAX."""

    spaces: tuple[tuple[str, Space], ...]

    def __init__(self, spaces: Mapping[str, Space] | Iterable[tuple[str, Space]]):
        _set(self, spaces=tuple(sorted(dict(spaces).items())))

    def __str__(self) -> str:
        return f"Dict({', '.join(f'{name}: {space}' for name, space in self.spaces)})"


@dataclass(frozen=True, init=False)
class Tuple:
    """Parts in a fixed order."""

    spaces: tuple[Space, ...]

    def __init__(self, spaces: Iterable[Space]):
        _set(self, spaces=tuple(spaces))

    def __str__(self) -> str:
        return f"Tuple({', '.join(map(str, self.spaces))})"


LeafSpace = Box | Discrete | MultiDiscrete | MultiBinary
Space = LeafSpace | Dict | Tuple


@dataclass(frozen=True)
class Joint(_Leaf):
    """Actions of several parts, a ``Dict`` or ``Tuple``. An action is one vector with the numbers of all parts, in the order of
    ``leaves(space)``; ``nested`` gives it the structure that the environment takes."""

    space: Dict | Tuple

    @functools.cached_property
    def parts(self) -> list[Leaf]:
        """The parts, with their places."""
        return leaves(self.space)

    @property
    def shape(self) -> tuple[int, ...]:
        """One axis, of all numbers."""
        return (sum(part.space.size for part in self.parts),)

    def slices(self) -> list[tuple[Leaf, slice]]:
        """Each part, and where the vector has it."""
        ends = np.cumsum([part.space.size for part in self.parts]).tolist()
        return [(part, slice(end - part.space.size, end)) for part, end in zip(self.parts, ends, strict=True)]

    def __str__(self) -> str:
        return str(self.space)


ActionSpace = LeafSpace | Joint
_SUPPORTED = {
    "observation": "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these that is not empty",
    "action": "Discrete, MultiDiscrete, MultiBinary, Box of floating-point numbers, or a Dict or Tuple of these that is not empty",
}


def nested(space: ActionSpace, action: Any) -> Any:
    """An action as the environment takes it, with any leading axes: the vector of a ``Joint`` space in the structure of its parts and
    in their types; others as they are."""
    if not isinstance(space, Joint):
        return action

    def part_of(part: Leaf, at: slice) -> Any:
        in_jax = action.dtype if isinstance(part.space, Box) else "int32"  # Gymnasium's integers have 64 bits
        dtype = action_dtype(part.space) if isinstance(action, np.ndarray) else in_jax
        return action[..., at].reshape((*action.shape[:-1], *part.space.shape)).astype(dtype)[()]

    return unflatten(space.space, [part_of(part, at) for part, at in space.slices()])


def joined(parts: Iterable[Any]) -> np.ndarray:
    """Batches of the parts of a ``Joint`` space as vectors, the inverse of ``nested``."""
    return np.concatenate([np.reshape(x, (len(x), -1)) for x in parts], axis=1, dtype=np.float32)


def tree(function: Callable[[LeafSpace], Any], space: Space) -> Any:
    """Apply ``function`` to each leaf space. Returns the results in the structure of the observations."""
    if isinstance(space, Dict):
        return {name: tree(function, part) for name, part in space.spaces}
    if isinstance(space, Tuple):
        return tuple(tree(function, part) for part in space.spaces)
    return function(space)


def components(space: Discrete | MultiDiscrete) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The number of choices and the smallest value of each component; a ``Discrete`` space has one."""
    return ((space.n,), (space.start,)) if isinstance(space, Discrete) else (space.nvec, space.start)


@functools.cache
def choices(space: Discrete | MultiDiscrete) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest value and the number of values of each component, in the shape of ``space``."""
    n, start = components(space)
    return np.reshape(start, space.shape), np.reshape(n, space.shape)


def mask_sizes(space: Space | Joint) -> tuple[int, ...]:
    """The entries of an action mask for each component: one for each choice, two for each bit, of a ``Joint`` space in the order of its
    parts. Empty: no mask fits."""
    if isinstance(space, Joint):
        return tuple(size for part in space.parts for size in mask_sizes(part.space))
    if isinstance(space, MultiBinary):
        return (2,) * space.size
    return components(space)[0] if isinstance(space, Discrete | MultiDiscrete) else ()


@functools.cache
def mask_starts(sizes: tuple[int, ...], size: int) -> np.ndarray | None:
    """Where each component begins in a mask of ``size`` entries; None if ``sizes`` do not fit it."""
    return np.cumsum((0, *sizes[:-1])) if sizes and sum(sizes) == size else None


def flatdim(space: ActionSpace) -> int:
    """Number of entries of one value as a vector with one-hot integers, as in ``gymnasium.spaces.flatdim``."""
    if isinstance(space, Joint):
        return sum(flatdim(part.space) for part in space.parts)
    return sum(components(space)[0]) if isinstance(space, Discrete | MultiDiscrete) else space.size


def without(space: Space, names: tuple[str, ...]) -> Space:
    """A ``Dict`` space without the entries ``names``; any other space is returned unchanged."""
    return Dict((name, part) for name, part in space.spaces if name not in names) if isinstance(space, Dict) else space


def zeros(space: Space, batch_shape: tuple[int, ...]) -> Any:
    """Zeros in the shapes and types in which observations are stored, with leading axes, in dicts and tuples: uint8,
    int8, int16 and bool keep their type; other integers are int32, floating-point numbers float32, bits bool."""

    def of_leaf(leaf: LeafSpace) -> np.ndarray:
        dtype = leaf.dtype if isinstance(leaf, Box) else "bool" if isinstance(leaf, MultiBinary) else "int32"
        if dtype not in _KEPT_INTEGERS:
            dtype = "float32" if np.issubdtype(dtype, np.floating) else "int32"
        return np.zeros((*batch_shape, *leaf.shape), dtype)

    return tree(of_leaf, space)


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: its path of keys, its space, and how it is stored."""

    path: tuple[str | int, ...]
    space: LeafSpace
    shape: tuple[int, ...]
    dtype: np.dtype

    def of(self, observation: Any) -> Any:
        """Return this leaf of ``observation``."""
        for key in self.path:
            observation = observation[key]
        return observation

    @property
    def name(self) -> str:
        """The path as Python indices, for example ``['camera']``; empty if the observation is a single array."""
        return "".join(f"[{key!r}]" for key in self.path)


def leaves(space: Space, path: tuple[str | int, ...] = ()) -> list[Leaf]:
    """Return the leaves of ``space`` in the order of JAX: dictionaries by key, tuples by index."""
    if isinstance(space, Dict | Tuple):
        return [leaf for key, part in _parts(space) for leaf in leaves(part, (*path, key))]
    stored = zeros(space, ())
    return [Leaf(path, space, stored.shape, stored.dtype)]


def unflatten(space: Space, arrays: Iterable[Any]) -> Any:
    """Return the observation whose leaves are ``arrays``, in the order of ``leaves(space)``."""
    left = iter(arrays)
    return tree(lambda _: next(left), space)


def action_dtype(space: ActionSpace) -> np.dtype:
    """Return the type of the actions of a Gymnasium space."""
    if isinstance(space, Joint):
        return np.dtype(np.float32)
    return np.dtype(space.dtype if isinstance(space, Box) else np.int8 if isinstance(space, MultiBinary) else np.int64)


def random_actions(space: ActionSpace, rng: np.random.Generator, num_envs: int) -> np.ndarray:
    """Draw ``num_envs`` actions uniformly; components without bounds from a standard normal distribution."""
    if isinstance(space, Joint):
        return joined(random_actions(part.space, rng, num_envs) for part in space.parts)
    shape = (num_envs, *space.shape)
    if not isinstance(space, Box):
        start, n = (0, 2) if isinstance(space, MultiBinary) else choices(space)
        return rng.integers(start, start + n, shape).astype(action_dtype(space))
    (low, high), bounded = space.bounds(), space.is_bounded()
    even = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), shape)
    return np.where(bounded, even, np.clip(rng.standard_normal(shape), low, high)).astype(action_dtype(space))


def allows(space: ActionSpace, mask: np.ndarray, action: Any) -> bool:
    """Whether the flat ``mask`` allows ``action``, which has the structure that the environment takes. True if the size of the mask does
    not fit ``space``: other checks report that."""
    starts = mask_starts(mask_sizes(space), mask.size)
    if starts is None:
        return True
    parts = [(part.space, part.of(action)) for part in space.parts] if isinstance(space, Joint) else [(space, action)]
    chosen = [np.reshape(x, -1) - np.reshape(getattr(part, "start", 0), -1) for part, x in parts if not isinstance(part, Box)]
    return bool(mask[starts + np.concatenate(chosen).astype(int)].all())


def allowed_action(space: ActionSpace, rng: np.random.Generator, mask: Any = None) -> Any:
    """Draw an action of ``space`` that ``mask`` allows. Other checks report a mask that does not fit."""
    flat = np.asarray(() if mask is None else mask).reshape(-1) != 0
    starts = mask_starts(mask_sizes(space), flat.size)
    if starts is None or not np.logical_or.reduceat(flat, starts).all():
        return random_actions(space, rng, 1)[0]
    if isinstance(space, Joint):
        ends = np.cumsum([sum(mask_sizes(part.space)) for part in space.parts])
        masks = np.split(flat, ends[:-1])
        return joined([allowed_action(part.space, rng, mask)] for part, mask in zip(space.parts, masks, strict=True))[0]
    parts = np.split(flat, starts[1:])
    drawn = np.array([rng.choice(np.flatnonzero(part)) for part in parts]) + np.asarray(getattr(space, "start", 0))
    return drawn.reshape(space.shape).astype(action_dtype(space))[()]


@overload
def from_any(space: Any, role: Literal["action"]) -> ActionSpace: ...
@overload
def from_any(space: Any, role: Literal["observation"]) -> Space: ...
def from_any(space: Any, role: Literal["observation", "action"]) -> Space | Joint:
    """Convert a space of Gymnasium, gymnax or proximo to one of proximo. Spaces are recognized by the names of their
    classes, so neither library is imported. Raises ``EnvError`` if no policy supports a part in this role."""

    def translate(part: Any, where: str, name: str) -> Space:
        if isinstance(part, Joint):
            part = part.space
        if found := _parts(part):
            parts = [(key, translate(inner, f"{where}[{key!r}]", f"{name}.{key}".strip("."))) for key, inner in found]
            return Dict(parts) if _kind(part) == "Dict" else Tuple(inner for _, inner in parts)
        leaf, place = _leaf(part), f" at {where}" if where else ""
        if leaf is None or (role == "action" and isinstance(leaf, Box) and not leaf.is_float):
            raise EnvError(
                f"The {role} space{place} {part if isinstance(part, Space) else repr(part)} is not supported: expected {_SUPPORTED[role]}; "
                "change the environment, or wrap it so that it offers one."
                + (
                    f" In Gymnasium environments, drop_observations = {name} leaves it out."
                    if name and role == "observation"
                    else ""
                )
            )
        if isinstance(leaf, Discrete | MultiDiscrete):
            nvec, start = components(leaf)
            if min(start) < _INT32.min or max(map(operator.add, nvec, start)) - 1 > _INT32.max:
                raise EnvError(
                    f"The {role} space{place} {leaf} has values that int32 cannot represent: expected {_INT32.min} … {_INT32.max}."
                )
        return leaf

    translated = translate(space, "", "")
    if role == "observation" or not isinstance(translated, Dict | Tuple):
        return translated
    for part in (made := Joint(translated)).parts:
        if isinstance(part.space, Discrete | MultiDiscrete):
            nvec, start = components(part.space)
            if np.abs([*start, *np.add(start, nvec)]).max() > MAX_FLOAT_INTEGER:
                raise EnvError(
                    f"The action space at {part.name} has integers beyond ±2²⁴, which float32 rounds: begin it near 0."
                )
    return made


def _kind(space: Any) -> str:
    """The name among ``_KINDS`` of the class of ``space`` or of a base class; empty for any other object."""
    return next((base.__name__ for base in type(space).__mro__ if base.__name__ in _KINDS), "")


def _parts(space: Any) -> list[tuple[Any, Any]]:
    """Key and space of each part of a ``Dict``, whose keys must be text, or ``Tuple``; empty for any other space."""
    if _kind(space) == "Dict":
        items = list(dict(space.spaces).items())
        return items if all(isinstance(key, str) for key, _ in items) else []
    return list(enumerate(space.spaces)) if _kind(space) == "Tuple" else []


def _leaf(space: Any) -> LeafSpace | None:
    """Convert a space without parts; None if it is not supported."""
    if isinstance(space, LeafSpace):
        return space
    match _kind(space):
        case "Discrete":
            return Discrete(int(space.n), int(getattr(space, "start", 0)))
        case "MultiDiscrete":
            nvec = np.asarray(space.nvec)
            start = np.broadcast_to(getattr(space, "start", 0), nvec.shape)
            return MultiDiscrete(tuple(nvec.flat), tuple(start.flat), nvec.shape)
        case "MultiBinary":
            return MultiBinary(space.shape)
        case "Box" if np.dtype(space.dtype).kind in "fiub":
            return Box(space.shape, space.low, space.high, space.dtype)
    return None


def _set(space: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(space, name, value)


@contextlib.contextmanager
def _expecting(space: Any, what: str) -> Iterator[None]:
    """Context manager: what the arguments of ``space`` do not allow is an ``EnvError``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise EnvError(f"{space!r}: {error}. Expected {what}.") from error


def _shape(values: Iterable[Any]) -> tuple[int, ...]:
    shape = tuple(map(operator.index, values))
    if min(shape, default=1) < 1:
        raise ValueError("there is no entry")
    return shape


def _bound(values: Any, shape: tuple[int, ...]) -> Bound:
    given = np.asarray(values, np.float64)
    is_flat = given.ndim == 1 and given.size == math.prod(shape)
    flat = (given if is_flat else np.broadcast_to(given, shape)).reshape(-1)
    return float(flat[0]) if (flat == flat[0]).all() else tuple(map(float, flat))
