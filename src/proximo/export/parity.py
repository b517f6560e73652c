"""Parity check: an export and JAX compute the same over episodes of random observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.errors import TrainingError
from proximo.evaluation.policy import Carried
from proximo.export.policy_function import (
    ACTION,
    EPISODE_START,
    LOG_PROB,
    MEMORY,
    NEXT,
    PREVIOUS_ACTION_MEMORY,
    REWARD,
    Arrays,
    PolicyFunction,
)
from proximo.spaces import (
    ACTION_MASK,
    OBSERVATION,
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    from_any,
    mask_sizes,
    tree,
)
from proximo.storage.checkpoint_format import flatten
from proximo.types import Previous

STEPS, ENVIRONMENTS, TOLERANCE, ENDS = 100, 4, 1e-5, 0.1
Runner = Callable[[Arrays], Mapping[str, Any]]


class ParityError(TrainingError):
    """An exported policy does not compute what JAX computes. This is a bug of the export; nothing was written."""


def check(policy_function: PolicyFunction, runners: Mapping[str, Runner], batch: int | None) -> dict[str, float]:
    """Run episodes of random observations with JAX and with ``runners``, each with its own memory. ``batch`` is the number of
    environments; None for an export that takes any number.

    Returns the largest error of each runner over ``STEPS`` steps, relative for numbers greater than 1. Integers must be equal; actions
    may differ between choices that are equally probable. Raises ``ParityError`` if an error is above ``TOLERANCE``.
    """
    rng, n = np.random.default_rng(0), batch or ENVIRONMENTS
    reference = eqx.filter_jit(PolicyFunction.__call__)
    initial = {name: np.asarray(x) for name, x in policy_function.init_memory(n).items()}
    memory: dict[str, Arrays] = dict.fromkeys(("JAX", *runners), initial)
    worst = dict.fromkeys(runners, 0.0)
    with jax.default_matmul_precision("highest"):
        for step in range(STEPS):
            inputs = random_inputs(policy_function, rng, n, begins=step == 0)
            outputs = reference(policy_function, policy_function.actor_critic, {**inputs, **memory["JAX"]})
            expected = {name: np.asarray(x) for name, x in outputs.items()}
            memory["JAX"] = _next_memory(policy_function, expected)
            for name, runner in runners.items():
                found = {k: np.array(x) for k, x in runner({**inputs, **memory[name]}).items()}
                _settle_ties(policy_function, expected, found, inputs)
                worst[name] = max(worst[name], _error(f"step {step} of {name}", expected, found))
                memory[name] = _next_memory(policy_function, found)
    return worst


def predict_runner(policy_function: PolicyFunction) -> Runner:
    """A runner that calls ``Policy.predict``, as users do, so that the check also covers the code around the traced function. It returns only
    the action and the memory."""

    def run(arrays: Arrays) -> Arrays:
        arrays = {name: jnp.asarray(x) for name, x in arrays.items()}
        observation, memory = policy_function.observation_of(arrays), policy_function.memory_of(arrays)
        previous = policy_function.actor_critic.no_previous_step(len(arrays[EPISODE_START]))
        if previous is not None:
            previous = Previous(arrays.get(PREVIOUS_ACTION_MEMORY, previous.action), previous.reward)
        action, after = policy_function.policy.predict(
            observation, Carried(memory, previous), arrays[EPISODE_START], reward=arrays.get(REWARD)
        )
        outputs = {name + NEXT: x for name, x in flatten({MEMORY: after.memory}).items()}
        if PREVIOUS_ACTION_MEMORY in policy_function.memory_names and after.previous is not None:
            outputs[PREVIOUS_ACTION_MEMORY + NEXT] = after.previous.action
        as_computed = action.astype(np.float32) if action.dtype.kind == "f" else action  # float64 if the space is
        return {ACTION: as_computed, **outputs}

    return run


def _next_memory(policy_function: PolicyFunction, outputs: Arrays) -> Arrays:
    return {name: outputs[name + NEXT] for name in policy_function.memory_names}


def random_inputs(policy_function: PolicyFunction, rng: np.random.Generator, n: int, begins: bool) -> Arrays:
    """Random inputs of a step, without the memory: observations of the space, starts of episodes, rewards and noise."""
    leaves = jax.tree.leaves(tree(lambda leaf: leaf, policy_function.space))
    statistics = flatten({OBSERVATION: policy_function.actor_critic.normalizer})
    observation = policy_function.observation_inputs(policy_function.observation(n))
    inputs: Arrays = {}
    for (name, like), leaf in zip(observation.items(), leaves, strict=True):
        seen = next((k for k in (name, f"{OBSERVATION}.{name}") if f"{k}.mean" in statistics), None)
        mean, variance = (np.asarray(statistics[f"{seen}.{part}"]) for part in ("mean", "variance")) if seen else (None, None)
        drawn = _draw(leaf, rng, n, mean, variance)
        inputs[name] = drawn.astype(like.dtype)
        if name == ACTION_MASK:
            sizes = mask_sizes(from_any(policy_function.policy.env.action_space, "action"))
            inputs[name] = _random_masks(sizes, rng, n).reshape(like.shape).astype(like.dtype)
    inputs[EPISODE_START] = (rng.random(n) < ENDS) | begins
    described = policy_function.inputs(n)
    if REWARD in described:
        inputs[REWARD] = rng.normal(size=n).astype(np.float32)
    for name, like in described.items():
        if name not in inputs and name not in policy_function.memory_names:
            inputs[name] = getattr(rng, policy_function.noise_family())(size=like.shape).astype(like.dtype)
    return inputs


def _random_masks(sizes: tuple[int, ...], rng: np.random.Generator, n: int) -> np.ndarray:
    """``n`` random action masks. Each allows at least one choice of every component. The components have ``sizes`` choices."""
    masks = [rng.random((n, size)) < 0.6 for size in sizes]
    for mask in masks:
        mask[np.arange(n), rng.integers(mask.shape[1], size=n)] = True
    return np.concatenate(masks, axis=1)


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


def _settle_ties(policy_function: PolicyFunction, expected: Arrays, found: Arrays, inputs: Arrays) -> None:
    """If ``found`` took another one of two equally probable choices, continue with the choice of ``expected``."""
    differ = (expected[ACTION] != found[ACTION]).reshape((len(inputs[EPISODE_START]), -1)).any(axis=1)
    if differ.any() and "logits" in expected and expected[ACTION].dtype.kind in "iu":
        scores = expected["logits"] + inputs.get("noise", 0.0)
        tied = differ & (_gap(scores, expected[ACTION], found[ACTION], policy_function) < 2 * TOLERANCE)
        for name in (ACTION, LOG_PROB, *(name + NEXT for name in policy_function.memory_names)):
            if name in found:
                found[name][tied] = expected[name][tied]


def _gap(scores: np.ndarray, one: np.ndarray, other: np.ndarray, policy_function: PolicyFunction) -> np.ndarray:
    """By how much the score of the choice ``one`` exceeds that of ``other``, in the worst component, for each environment."""
    space = from_any(policy_function.policy.env.action_space, "action")
    rows = len(scores)
    if isinstance(space, MultiBinary):
        return np.where(one.reshape((rows, -1)) != other.reshape((rows, -1)), np.abs(scores), 0.0).max(axis=1)
    start = np.reshape(getattr(space, "start", 0), (1, -1))
    places = [x.reshape((rows, -1, 1)) - start[..., None] for x in (one, other)]
    better, worse = (np.take_along_axis(scores.reshape((rows, -1, scores.shape[-1])), p, axis=2) for p in places)
    return np.abs(better - worse).max(axis=(1, 2))


def _error(where: str, expected: Arrays, found: Arrays) -> float:
    """The largest error of all outputs. Raises ``ParityError`` if it is too large."""
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
