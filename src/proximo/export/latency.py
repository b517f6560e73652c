"""Time of a step with JAX and with ONNX Runtime, as a user calls them."""

from __future__ import annotations

import functools
import timeit
from typing import Any

import numpy as np

from proximo.export.parity import random_inputs
from proximo.export.policy_function import EPISODE_START, REWARD, Arrays, PolicyFunction
from proximo.spaces import OBSERVATION

SIZES, CALLS = (1, 64), 50


def measure(policy_function: PolicyFunction, exported: Any, sizes: tuple[int, ...] = SIZES) -> dict[str, dict[str, float]]:
    """Median microseconds of ``predict``, of the policy in JAX and of its export, by number of environments."""
    policies, found = {"jax": policy_function.policy, "onnxruntime": exported}, {}
    for n in sizes:
        inputs = {**policy_function.inputs(n), **random_inputs(policy_function, np.random.default_rng(0), n, begins=False)}
        observation = policy_function.as_tree(inputs)[OBSERVATION]
        found[str(n)] = {name: _microseconds(policy, n, observation, inputs) for name, policy in policies.items()}
    return found


def _microseconds(policy: Any, n: int, observation: Any, inputs: Arrays) -> float:
    memory, reward = policy.init_memory(n), inputs.get(REWARD)
    step = functools.partial(policy.predict, observation, memory, inputs[EPISODE_START], reward=reward)
    return (
        float(np.median(timeit.repeat(step, number=1, repeat=CALLS))) * 1e6
    )  # the first call compiles, which the median ignores
