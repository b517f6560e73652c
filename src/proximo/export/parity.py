"""Whether an export computes what JAX computes: episodes of random observations, played by all of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.errors import TrainingError
from proximo.export.acting import ACTION, FIRST, LOG_PROB, NEXT, OBSERVATION, Acting, Arrays
from proximo.export.runtime import NOISE
from proximo.run.checkpoint import flatten
from proximo.run.policy import Carried
from proximo.spaces import (
    ACTION_MASK,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    from_any,
    tree,
)
from proximo.types import Previous

STEPS, ENVIRONMENTS, TOLERANCE, ENDS = 100, 4, 1e-5, 0.1
Runner = Callable[[Arrays], Mapping[str, Any]]


class ParityError(TrainingError):
    """An exported policy does not compute what JAX computes: a fault of the export, not of its user. Nothing was written."""


def check(acting: Acting, runners: Mapping[str, Runner], batch: int | None) -> dict[str, float]:
    """The largest error of each runner over ``STEPS`` steps, each carrying its own memory. An error is relative to numbers greater
    than 1; integers must be equal, actions apart from ties. Raises ``ParityError`` above ``TOLERANCE``."""
    rng, n = np.random.default_rng(0), batch or ENVIRONMENTS
    reference = eqx.filter_jit(Acting.__call__)
    carried: dict[str, Arrays] = {name: _carried(acting, n) for name in ("JAX", *runners)}
    worst = dict.fromkeys(runners, 0.0)
    with jax.default_matmul_precision("highest"):
        for step in range(STEPS):
            row = random_row(acting, rng, n, begins=step == 0)
            expected = {k: np.asarray(x) for k, x in reference(acting, acting.network, {**row, **carried["JAX"]}).items()}
            carried["JAX"] = _next(acting, expected)
            for name, runner in runners.items():
                found = {k: np.array(x) for k, x in runner({**row, **carried[name]}).items()}
                _settle_ties(acting, expected, found, row)
                worst[name] = max(worst[name], _error(f"step {step} of {name}", expected, found))
                carried[name] = _next(acting, found)
    return worst


def policy_runner(acting: Acting) -> Runner:
    """``policy(memory, observation, first)`` itself: what a user calls must be what was traced. It tells actions and memory only."""
    space = jax.tree.structure(acting.observation(1))
    names = list(flatten({OBSERVATION: acting.observation(1)}))
    memory = jax.tree.structure(acting.network.init_memory(1))

    def run(arrays: Arrays) -> Arrays:
        arrays = {name: jnp.asarray(x) for name, x in arrays.items()}
        observation = jax.tree.unflatten(space, [arrays[name] for name in names])
        inner = jax.tree.unflatten(memory, [arrays[name] for name in acting.carried if name != PREVIOUS_ACTION])
        n, previous = len(arrays[FIRST]), acting.network.nothing_before(len(arrays[FIRST]))
        if previous is not None:
            previous = Previous(arrays.get(PREVIOUS_ACTION, previous.action), arrays.get(PREVIOUS_REWARD, previous.reward))
        rewards = arrays.get(PREVIOUS_REWARD, np.zeros(n))
        after, action = acting.policy(Carried(inner, previous), observation, arrays[FIRST], rewards)
        outputs = {name + NEXT: x for name, x in flatten({"memory": after.memory}).items()}
        if PREVIOUS_ACTION in acting.carried and after.previous is not None:
            outputs[PREVIOUS_ACTION + NEXT] = after.previous.action
        return {ACTION: action, **outputs}

    return run


def _carried(acting: Acting, n: int) -> Arrays:
    return {name: np.asarray(x) for name, x in acting.initial(n).items() if name in acting.carried}


def _next(acting: Acting, outputs: Arrays) -> Arrays:
    return {name: outputs[name + NEXT] for name in acting.carried}


def random_row(acting: Acting, rng: np.random.Generator, n: int, begins: bool) -> Arrays:
    """Inputs of one row but what is carried: random observations of the space, resets, rewards and noise."""
    space = acting.space
    leaves, statistics = jax.tree.leaves(tree(lambda leaf: leaf, space)), flatten({OBSERVATION: acting.network.normalizer})
    row: Arrays = {}
    for (name, like), leaf in zip(flatten({OBSERVATION: acting.observation(n)}).items(), leaves, strict=True):
        seen = next((k for k in (name, f"{OBSERVATION}.{name}") if f"{k}.mean" in statistics), None)
        mean, variance = (np.asarray(statistics[f"{seen}.{part}"]) for part in ("mean", "variance")) if seen else (None, None)
        drawn = _draw(leaf, rng, n, mean, variance)
        row[name] = drawn.astype(like.dtype)
        if name == f"{OBSERVATION}.{ACTION_MASK}":
            row[name] = (rng.random(like.shape) < 0.6).astype(like.dtype)
    row[FIRST] = (rng.random(n) < ENDS) | begins
    inputs = acting.inputs(n)
    if PREVIOUS_REWARD in inputs:
        row[PREVIOUS_REWARD] = rng.normal(size=n).astype(np.float32)
    for name, like in inputs.items():
        if name not in row and name not in acting.carried:
            row[name] = NOISE[acting.noise_family()](rng, like.shape).astype(like.dtype)
    return row


def _draw(leaf: Any, rng: np.random.Generator, n: int, mean: np.ndarray | None, variance: np.ndarray | None) -> np.ndarray:
    shape = (n, *leaf.shape)
    if isinstance(leaf, MultiBinary):
        return rng.random(shape) < 0.5
    if isinstance(leaf, Discrete):
        return leaf.start + rng.integers(leaf.n, size=shape)
    if isinstance(leaf, MultiDiscrete):
        return np.reshape(leaf.start, leaf.shape) + rng.integers(np.reshape(leaf.nvec, leaf.shape), size=shape)
    assert isinstance(leaf, Box)
    low, high = leaf.bounds()
    if not leaf.is_float:
        limits = (
            np.iinfo("int32") if leaf.dtype == "bool" or leaf.dtype not in ("int8", "int16", "uint8") else np.iinfo(leaf.dtype)
        )
        low, high = np.maximum(low, limits.min), np.minimum(high, limits.max - 1)
        return rng.integers(low.astype(np.int64), high.astype(np.int64) + 1, size=shape)
    if mean is None or variance is None:
        bounded = (high - low) < 1e3
        narrow = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), shape)
        return np.where(bounded, narrow, np.clip(rng.normal(size=shape), low, high))
    return np.clip(mean + 2.0 * np.sqrt(variance) * rng.normal(size=shape), low, high)


def _settle_ties(acting: Acting, expected: Arrays, found: Arrays, row: Arrays) -> None:
    """Where two choices are as good as each other and ``found`` took the other one, the row goes on as ``expected`` does."""
    differ = (expected[ACTION] != found[ACTION]).reshape((len(row[FIRST]), -1)).any(axis=1)
    if differ.any() and "logits" in expected and expected[ACTION].dtype.kind in "iu":
        scores = expected["logits"] + row.get("noise", 0.0)
        tied = differ & (_gap(scores, expected[ACTION], found[ACTION], acting) < 2 * TOLERANCE)
        for name in (ACTION, LOG_PROB, *(name + NEXT for name in acting.carried)):
            if name in found:
                found[name][tied] = expected[name][tied]


def _gap(scores: np.ndarray, one: np.ndarray, other: np.ndarray, acting: Acting) -> np.ndarray:
    """How much better the choice ``one`` is than ``other``, in the worst component; by row."""
    space = from_any(acting.policy.env.action_space, "action")
    rows = len(scores)
    if isinstance(space, MultiBinary):
        return np.where(one.reshape((rows, -1)) != other.reshape((rows, -1)), np.abs(scores), 0.0).max(axis=1)
    start = np.reshape(getattr(space, "start", 0), (1, -1))
    places = [x.reshape((rows, -1, 1)) - start[..., None] for x in (one, other)]
    better, worse = (np.take_along_axis(scores.reshape((rows, -1, scores.shape[-1])), p, axis=2) for p in places)
    return np.abs(better - worse).max(axis=(1, 2))


def _error(where: str, expected: Arrays, found: Arrays) -> float:
    """The largest error among all that was found. Raises ``ParityError`` where it is too large."""
    worst = 0.0
    for name, x in found.items():
        y = expected[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            raise ParityError(f"Export failed: at {where} {name} is {x.dtype}{list(x.shape)}, in JAX {y.dtype}{list(y.shape)}.")
        wide = np.asarray(y, np.float64)
        with np.errstate(invalid="ignore"):
            error = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - wide) / np.maximum(1.0, np.abs(wide)))
        largest = float(error.max(initial=0.0))
        if not largest <= TOLERANCE:
            raise ParityError(
                f"Export failed: at {where} the error of {name} is {largest:.1e}, more than {TOLERANCE:.0e}; nothing was written."
            )
        worst = max(worst, largest)
    return worst
