"""Time of one call of the compiled policy for 8 environments of CartPole, by how its arguments and results are passed.

    python benchmarks/acting.py                  # as proximo runs: no asynchronous dispatch
    python benchmarks/acting.py --asynchronous   # as JAX starts by itself
    python benchmarks/acting.py --between HalfCheetah-v5   # with a step of an environment before each call, as in training

Microseconds until the result is readable by NumPy; the ways take turns, medians of --rounds rounds of --calls calls.
docs/decisions/0006-gymnasium-collector.md explains the resulting decision.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from proximo import jax_setup
from proximo.config import NetworkConfig
from proximo.networks import ActorCritic, make_policy
from proximo.spaces import Box, Discrete

NUM_ENVS = 8


def step(policy: ActorCritic, observation, noise) -> tuple:
    """Action, log-probability and value."""
    episode_start = jnp.zeros(NUM_ENVS, bool)
    _, action, log_prob, value = policy.act(policy.init_memory(NUM_ENVS), observation, episode_start, ~episode_start, noise)
    return policy.to_space(action), log_prob, value


def packed(results: tuple) -> jax.Array:
    return jnp.stack([x.astype(jnp.float32) for x in results])


def by_numpy(policy: ActorCritic, observation: np.ndarray, noise: np.ndarray) -> Callable[[], np.ndarray]:
    """The same network in NumPy."""
    towers = [[(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in t.encoder.mlp.layers] for t in policy.torsos]
    heads = [(np.asarray(h.weight), np.asarray(h.bias)) for h in (policy.actor.readout.output, policy.critic.output)]

    def call() -> np.ndarray:
        outputs = []
        for tower, (weight, bias) in zip(towers, heads, strict=True):
            x = observation
            for w, b in tower:
                x = np.tanh(x @ w + b)
            outputs.append(x @ weight + bias)
        logits, value = outputs
        chosen = (logits + noise).argmax(-1)
        below = logits - logits.max(-1, keepdims=True)
        log_probs = below - np.log(np.exp(below).sum(-1, keepdims=True))
        return np.stack([chosen, log_probs[np.arange(NUM_ENVS), chosen], value[..., 0]])

    return call


def ways() -> dict[str, Callable[[], object]]:
    """Each way's call."""
    policy = make_policy(jax.random.key(0), Box((4,)), Discrete(2), NetworkConfig(), False)
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(NUM_ENVS, 4)).astype(np.float32)
    noise = rng.gumbel(size=(NUM_ENVS, 2)).astype(np.float32)
    leaves, tree = jax.tree.flatten(policy)
    vector, unravel = ravel_pytree(policy)
    module = jax.jit(step)
    by_leaves = jax.jit(lambda o, n, *leaves: packed(step(jax.tree.unflatten(tree, leaves), o, n)))
    flat = jax_setup.compile_lowered(by_leaves.lower(observation, noise, *leaves))
    one = jax_setup.compile_lowered(jax.jit(lambda v, o, n: packed(step(unravel(v), o, n))).lower(vector, observation, noise))
    nothing = jax_setup.compile_lowered(jax.jit(lambda x: x + 1).lower(observation))
    return {
        "jit of the policy as a module, three results read": lambda: [np.asarray(x) for x in module(policy, observation, noise)],
        "its arrays as flat arguments, compiled ahead, one result": lambda: np.asarray(flat(observation, noise, *leaves)),
        "the policy as one vector, compiled ahead, one result": lambda: np.asarray(one(vector, observation, noise)),
        "an empty program, compiled ahead": lambda: np.asarray(nothing(observation)),
        "the same network in NumPy": by_numpy(policy, observation, noise),
    }


def random_steps(env_id: str) -> Callable[[], object]:
    """A function that takes one random step in an environment."""
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = itertools.cycle([env.action_space.sample() for _ in range(1000)])

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()

    return step


def microseconds(call: Callable[[], object], between: Callable[[], object], calls: int) -> float:
    """The median of ``calls`` calls. ``between`` is called before each of them and is not timed."""
    spent = []
    for _ in range(calls):
        between()
        started = time.perf_counter()
        call()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asynchronous", action="store_true", help="leave JAX's dispatch as JAX starts it")
    parser.add_argument("--between", metavar="ENV", help="take a step in this Gymnasium environment before each call")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    jax_setup.prepare_jax()
    if options.asynchronous:
        jax.config.update("jax_cpu_enable_async_dispatch", True)
    calls, between = ways(), random_steps(options.between) if options.between else lambda: None
    episode_start, *others = (call() for name, call in calls.items() if "empty" not in name)
    for other in others:
        np.testing.assert_allclose(np.asarray(other, np.float32), np.asarray(episode_start, np.float32), atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(options.rounds + 1):  # the first round compiles
        for name, call in calls.items():
            spent = microseconds(call, between, options.calls if number else 10)
            if number:
                times[name].append(spent)
    for name, spent in times.items():
        print(f"{name:58s} {statistics.median(spent):6.1f} µs (best {min(spent):.1f})")


if __name__ == "__main__":
    main()
