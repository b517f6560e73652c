"""An export compared with JAX: that both compute the same over random episodes, and the time of a step."""

import functools
import timeit
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from proximo.errors import TrainingError
from proximo.export.policy_function import ACTION, EPISODE_START, LOG_PROB, NEXT, NOISE, REWARD, Arrays, PolicyFunction
from proximo.spaces import ACTION_MASK, OBSERVATION, MultiBinary, mask_sizes, random_actions, tree
from proximo.storage.checkpoint import flatten

STEPS, ENVIRONMENTS, TOLERANCE, ENDS = 50, (4, 1), 2e-5, 0.1
"""``ENVIRONMENTS``: with how many an export for any number is checked. ``ENDS``: probability of an end."""
SIZES, CALLS = (1, 64), 50
"""How many environments act together when the time is measured, and how often it is measured."""


class ParityError(TrainingError):
    """An exported policy does not compute what JAX computes. Nothing was written."""


def check(function: PolicyFunction, run: Callable[[Arrays], Arrays], batch: int | None) -> float:
    """Compare episodes of random observations that ``run`` and JAX compute, each with its own memory.

    Args:
        function: The function in JAX.
        run: The exported function, from inputs by name to outputs by name.
        batch: The number of environments; None for an export that takes any number.

    Returns:
        The largest error over ``STEPS`` steps, relative for numbers greater than 1.

    Raises:
        ParityError: If an error is above ``TOLERANCE``. Only equally probable actions may differ.
    """
    worst, reference = 0.0, eqx.filter_jit(PolicyFunction.__call__)
    for n in ENVIRONMENTS if batch is None else (batch,):
        rng, memory = np.random.default_rng(0), function.init_memory(n)
        exported_memory = memory
        for step in range(STEPS):
            inputs = random_inputs(function, rng, n, begins=step == 0)
            with jax.default_matmul_precision("highest"):
                outputs = reference(function, function.actor_critic, {**inputs, **memory})
            expected = {name: np.asarray(x) for name, x in outputs.items()}
            found = {name: np.array(x) for name, x in run({**inputs, **exported_memory}).items()}
            _settle_ties(function, expected, found, inputs.get(NOISE, 0.0))
            worst = max(worst, *(_error(f"step {step}", name, x, found[name]) for name, x in expected.items()))
            memory, exported_memory = ({name: x[name + NEXT] for name in memory} for x in (expected, found))
    return worst


def random_inputs(function: PolicyFunction, rng: np.random.Generator, n: int, begins: bool) -> Arrays:
    """Random inputs of a step, without the memory."""
    inputs, statistics = function.inputs(n), flatten({OBSERVATION: function.actor_critic.normalizer})
    drawn: Arrays = {EPISODE_START: (rng.random(n) < ENDS) | begins}
    leaves = jax.tree.leaves(tree(lambda leaf: leaf, function.space))
    for name, leaf in zip(function.observation_names, leaves, strict=True):
        drawn[name] = random_actions(leaf, rng, n)
        if f"{name}.mean" in statistics:  # uniform numbers may be far from them
            mean, variance = (np.asarray(statistics[f"{name}.{part}"]) for part in ("mean", "variance"))
            drawn[name] = np.clip(mean + 2.0 * np.sqrt(variance) * rng.normal(size=inputs[name].shape), *leaf.bounds())
    if ACTION_MASK in inputs:
        sizes = np.array(mask_sizes(function.policy.env.action_space))
        mask = rng.random((n, sizes.sum())) < 0.6
        mask[:, sizes.cumsum() - 1 - rng.integers(sizes)] = True  # one choice of each component
        drawn[ACTION_MASK] = mask.reshape(inputs[ACTION_MASK].shape)
    for name, family in ((REWARD, "normal"), (NOISE, function.actor_critic.actor.noise_family)):
        if name in inputs:
            drawn[name] = getattr(rng, str(family))(size=inputs[name].shape)
    return {name: np.asarray(x, inputs[name].dtype) for name, x in drawn.items()}


def _settle_ties(function: PolicyFunction, expected: Arrays, found: Arrays, noise: Any) -> None:
    """Of two equally probable choices, continue with the one of ``expected``."""
    n = len(expected[ACTION])
    differ = (expected[ACTION] != found[ACTION]).reshape((n, -1)).any(axis=1)
    if not differ.any() or "logits" not in expected:
        return
    scores = expected["logits"] + noise
    bits = isinstance(function.policy.env.action_space, MultiBinary)
    gaps = np.abs(scores) if bits else np.diff(np.sort(scores, axis=-1)[..., -2:])
    tied = differ & (gaps.reshape((n, -1)).min(axis=1) < 2 * TOLERANCE)
    for name in expected:
        if name in (ACTION, LOG_PROB) or name.endswith(NEXT):
            found[name][tied] = expected[name][tied]


def _error(where: str, name: str, expected: np.ndarray, found: np.ndarray) -> float:
    """The largest error of an output. Raises ``ParityError`` if it is too large, or for another shape or type."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        given, wanted = (f"{x.dtype}{list(x.shape)}" for x in (found, expected))
        raise ParityError(f"Export failed: at {where} {name} is {given}, in JAX {wanted}; nothing was written.")
    wide = expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (found == expected) | (np.isnan(found) & np.isnan(wide))
        error = np.where(same, 0.0, np.abs(found - wide) / np.maximum(1.0, np.abs(wide))).max(initial=0.0)
    if not error <= TOLERANCE:
        raise ParityError(
            f"Export failed: at {where} the error of {name} is {error:.1e}, more than {TOLERANCE:.0e}; nothing was written."
        )
    return float(error)


def latency(function: PolicyFunction, exported: Any, sizes: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Median microseconds of ``predict`` in JAX and by the export, by number of environments."""
    found: dict[str, dict[str, float]] = {}
    for n in sizes:
        inputs = {**function.inputs(n), **random_inputs(function, np.random.default_rng(0), n, begins=False)}
        given = function.as_tree(inputs)[OBSERVATION], inputs[EPISODE_START]
        found[str(n)] = {}
        for name, policy in (("jax", function.policy), ("onnxruntime", exported)):
            step = functools.partial(policy.predict, given[0], policy.init_memory(n), given[1], reward=inputs.get(REWARD))
            # The first call compiles, which the median ignores.
            found[str(n)][name] = float(np.median(timeit.repeat(step, number=1, repeat=CALLS))) * 1e6
    return found
