"""Stepping a policy through a sequence gives the same as unrolling it: ``scan(step) == unroll``."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import Config
from proximo.networks.recurrent import CELLS
from proximo.networks.recurrent.linear_recurrence import LinearRecurrence, associative_scan
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import custom_networks as custom
import toys
from helpers import MEMORIES, cast, difference, precision, small_policy

STEPS, ENVS = 5, 3
ENCODERS = {
    "vector": Box((3,)),
    "image": toys.IMAGE,
    "one_hot": Discrete(5),
    "parts": toys.PARTS,
    "masked parts": toys.masked(toys.PARTS, 4),
}
HEADS = {  # and the entries of a mask
    "one of some": (Discrete(4, 2), 4),
    "several choices": (MultiDiscrete((3, 1, 2), (0, 5, 1)), 6),
    "bits": (MultiBinary((2, 2)), 8),
    "bounded": (Box((2,), (-1.0, 0.0), (1.0, np.inf)), 0),
}
NAMED = Dict((("x", Box((3,))),))
NUMBERS = Dict((("a", Box((2,))), ("b", Box((1,)))))
SPACES = {**ENCODERS, "numbers": NUMBERS, **{head: toys.masked(NAMED, n) if n else NAMED for head, (_, n) in HEADS.items()}}
ACTIONS = {"masked parts": Discrete(4, 2)}


def random_observations(space, dtype):
    drawn = jax.vmap(jax.vmap(lambda key: toys.draw(key, space)))(jax.random.split(jax.random.key(1), (STEPS, ENVS)))
    return cast(drawn, dtype)


def random_flags():
    """Resets and padding steps inside the window, at the first and last step, and both at once."""
    rng = np.random.default_rng(2)
    episode_start, valid = rng.random((STEPS, ENVS)) < 0.25, rng.random((STEPS, ENVS)) > 0.25
    episode_start[0], valid[0], valid[-1] = [True, False, False], [True, True, False], [True, True, False]
    episode_start[2, 1], valid[2, 1], episode_start[3, 2], valid[3, 2] = True, False, True, True
    return jnp.asarray(episode_start), jnp.asarray(valid)


def some_memory(rng, leaf):
    """Random numbers, and random lengths for integer leaves."""
    counts = jnp.issubdtype(leaf.dtype, jnp.integer)
    return jnp.asarray(rng.integers(1, 3, leaf.shape) if counts else rng.normal(size=leaf.shape), leaf.dtype)


def errors_of_mutations(policy, memory, observation, episode_start, valid):
    """The difference between ``scan(step)`` and an unroll with each mutation."""

    def step(memory, x):
        memory, action, log_prob, value = policy.step(memory, *x)
        return memory, (action, log_prob, value)

    keys = jax.random.split(jax.random.key(7), STEPS)
    after, (action, log_prob, value) = jax.lax.scan(step, memory, (observation, episode_start, valid, keys))

    def against(memory, episode_start, valid):
        unrolled, distribution, values = policy.unroll(memory, observation, episode_start, valid)
        return difference((unrolled, distribution.log_prob(action), values), (after, log_prob, value))

    mutated = {
        "unchanged": (memory, episode_start, valid),
        "episode_start shifted by one": (memory, jnp.roll(episode_start, 1, 0), valid),
        "padding as data": (memory, episode_start, jnp.ones_like(valid)),
        "empty memory at the start": (policy.init_memory(ENVS), episode_start, valid),
    }
    errors = jax.vmap(against)(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *mutated.values()))
    return dict(zip(mutated, errors, strict=True))


@functools.cache
def measure(encoder, memory="gru", dtype="float32", /, *, action_space=None, towers="shared", **settings):
    settings = {**MEMORIES[memory], **settings}
    policy = small_policy(SPACES[encoder], towers, action_space or ACTIONS.get(encoder), **settings)
    with precision(dtype):
        policy, rng = cast(policy, dtype), np.random.default_rng(3)
        start = jax.tree.map(lambda m: some_memory(rng, m), policy.init_memory(ENVS))
        observation, flags = random_observations(SPACES[encoder], dtype), random_flags()
        previous = jax.tree.map(lambda x: jnp.broadcast_to(x, (STEPS, *x.shape)), policy.no_previous_step(ENVS))
        observation = policy.with_previous_step(observation, flags[0], previous)
        return jax.device_get(jax.jit(errors_of_mutations)(policy, start, observation, *flags))


TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
CASES = [*(("vector", m, d) for m in MEMORIES for d in TOLERANCE), *((e, "gru", "float32") for e in ENCODERS if e != "vector")]


@pytest.mark.parametrize(("encoder", "memory", "dtype"), CASES)
def test_scan_of_step_equals_unroll_and_no_mutation_does(encoder, memory, dtype):
    errors = measure(encoder, memory, dtype)
    assert errors.pop("unchanged") < TOLERANCE[dtype]
    assert memory == "none" or min(errors.values()) > 1e-3


@pytest.mark.parametrize("memory", [name for name, cell in CELLS.items() if issubclass(cell, LinearRecurrence)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-10)])
def test_scan_of_step_equals_unroll_by_associative_scan(memory, dtype, tolerance, monkeypatch):
    """Accelerators use the associative scan; this forces it on the CPU."""
    ways = []

    def elsewhere(*arguments, cpu, default):
        ways.append(default)
        return default(*arguments)

    jax.clear_caches()  # programs that were traced with the other scan
    with monkeypatch.context() as patched:
        patched.setattr(jax.lax, "platform_dependent", elsewhere)
        errors = measure.__wrapped__("vector", memory, dtype)
    jax.clear_caches()
    assert set(ways) == {associative_scan}
    assert errors["unchanged"] < tolerance
    assert errors["episode_start shifted by one"] > 1e-3


@pytest.mark.parametrize("head", HEADS)
def test_scan_of_step_equals_unroll_for_every_head(head):
    errors = measure(head, action_space=HEADS[head][0])
    assert errors["unchanged"] < 1e-5
    assert errors["episode_start shifted by one"] > 1e-3


@pytest.mark.parametrize("name", custom.NETWORKS)
def test_scan_of_step_equals_unroll_for_custom_networks(name):
    sizes = {size: getattr(Config().network, size) for size in ("hidden_sizes", "memory_size")}
    settings = {**sizes, **custom.NETWORKS[name]}
    errors = measure("numbers" if "dict" in name else "vector", "none", action_space=Discrete(4, 2), **settings)
    assert errors["unchanged"] < 1e-5
    if "memory" in name and settings.get("reset_memory", True):
        assert errors["episode_start shifted by one"] > 1e-3


@pytest.mark.parametrize("memory", ["lru", "gtrxl"])
def test_scan_of_step_equals_unroll_in_bfloat16(memory):
    assert measure("vector", memory, compute_dtype="bfloat16")["unchanged"] < 1e-5


def test_acting_without_a_key_takes_the_mode():
    policy = small_policy(SPACES["vector"])
    x, (episode_start, valid) = random_observations(SPACES["vector"], "float32"), random_flags()
    _, action, log_prob, _ = eqx.filter_jit(policy.step)(policy.init_memory(ENVS), x[0], episode_start[0], valid[0], None)
    _, distribution, _ = policy.unroll(policy.init_memory(ENVS), x[:1], episode_start[:1], valid[:1])
    assert jnp.array_equal(action, distribution.mode()[0])
    assert jnp.allclose(log_prob, jnp.max(jax.nn.log_softmax(distribution.logits[0]), -1))
