"""What several test modules share: small settings, trainers that are compiled once, comparisons, a count of compilations."""

import contextlib
import dataclasses
import functools
import itertools
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from proximo.collect import JaxCollector, JaxTrainer
from proximo.collect.learning import fresh_policy
from proximo.config import Config, override
from proximo.networks import make_policy
from proximo.networks.recurrent import CELLS
from proximo.ppo.optimizer import split_policy
from proximo.spaces import Discrete
from proximo.training.backends import make_backend
from proximo.types import TrainState

import toys

SMALL = {
    "id": "toys:RandomEnds", "num_envs": 4, "num_steps": 8, "num_epochs": 2, "num_minibatches": 2, "total_steps": 3200,
    "hidden_sizes": (8,), "memory_size": 8, "towers": "shared", "normalize_observation": True, "normalize_reward": False,
}  # fmt: skip
CELL_SETTINGS = {"lru": {"memory_settings": "layers=2"}, "gtrxl": {"memory_settings": "layers=2,window=3,heads=2"}}
MEMORIES: dict[str, dict[str, Any]] = {
    "none": {"memory": "none"},
    **{cell: {"memory": cell, **CELL_SETTINGS.get(cell, {})} for cell in CELLS},
    "two layers": {"memory": "gru", "memory_settings": "layers=2"},
    "gtrxl with identity gates": {"memory": "gtrxl", "memory_settings": "window=6,heads=1,gate=identity"},
}
REMEMBERING: dict[str, dict[str, Any]] = {
    **MEMORIES,
    "burn-in": {"memory": "gru", "burn_in": 3},
    "burn-in of a whole sequence": {"memory": "gtrxl", "memory_settings": "window=8,heads=2", "burn_in": 4},
    "carried over": {"memory": "lstm", "reset_memory": False},
    "observing": {"memory": "gru", "observe_action": True, "observe_reward": True},
    "observing without memory": {"observe_action": True, "observe_reward": True},
    "burning in and observing": {"memory": "gru", "observe_action": True, "observe_reward": True, "burn_in": 2},
    "observing over episodes": {
        "memory": "gru", "observe_action": True, "observe_reward": True, "reset_memory": False, "burn_in": 2,
    },
}  # fmt: skip
"""All cells, and all that is done around them."""


def small_config(**settings):
    """Settings that compile and run in seconds."""
    return override(Config(), {**SMALL, **settings})


def small_collector(env=None, seeds_axis=False, **settings):
    """A collector on a toy environment."""
    return JaxCollector(small_config(**settings), env or toys.RandomEnds(), seeds_axis)


def backend_of(collector):
    """The backend that trains with this collector for Gymnasium environments."""
    backend = make_backend(override(collector.config, {"actors": 0, "eval_episodes": 0}), collector.env)
    backend.collector, backend._programs = collector, collector.programs
    return backend


def kill_first_worker(vector_env, calls):
    """Kill the first worker before these steps, counted from now on."""
    send, numbers = vector_env.send, itertools.count()

    def kill_and_send(t, group):
        if next(numbers) in calls:
            process = vector_env.workers[0].popen.pid
            os.kill(process, signal.SIGKILL)
            os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        send(t, group)

    vector_env.send = kill_and_send


class Trainer(NamedTuple):
    """A collector with its compiled ``init(seed)`` and ``advance(state, num_updates)``, of at most four updates a call."""

    collector: JaxCollector
    init: Callable[[int], TrainState]
    advance: Callable


CAPACITY = 4


@functools.cache
def trainer(memory="none"):
    """One compiled trainer a kind of memory, shared by all tests: sequences of 4 in rollouts of 8."""
    collector = small_collector(**MEMORIES[memory], sequence_length=4, normalize_reward=True)
    init, program = jax.jit(collector.init), jax.jit(JaxTrainer(collector).advance, static_argnums=2)
    return Trainer(
        collector, lambda seed: init(jax.random.key(seed)), lambda state, updates: program(state, np.int32(updates), CAPACITY)
    )


@functools.cache
def collected(memory="gru"):
    """A fresh learner and its first rollout."""
    t = trainer(memory)
    state = t.init(0)
    _, rollout, _ = jax.jit(t.collector.collect)(state.learner.policy, state.collector)
    return state.learner, rollout


@functools.cache
def collected_parts():
    """``collected`` with the observations of ``toys.PARTS`` and an action mask."""
    collector = small_collector(toys.AnySpaces(toys.masked(toys.PARTS, 2), toys.RandomEnds.action_space))
    state = jax.jit(collector.init)(jax.random.key(0))
    _, rollout, _ = jax.jit(collector.collect)(state.learner.policy, state.collector)
    return state.learner, rollout


def parameters_of(state):
    """The trainable parameters of a learner as one vector."""
    return np.asarray(ravel_pytree(split_policy(state.policy)[0])[0])


def spoiled(rollout):
    """The same rollout with the last two rows made padding with garbage."""
    garbage = {"observation": jnp.nan, "reward": jnp.inf, "valid": False}
    return dataclasses.replace(rollout, **{name: getattr(rollout, name).at[-2:].set(x) for name, x in garbage.items()})


def small_policy(observation_space, towers="shared", action_space=None, **settings):
    """A policy whose biases and heads are not near zero, so that a part that is left out is seen."""
    network = small_config(towers=towers, **settings).network
    return drawn(lambda key: make_policy(key, observation_space, action_space or Discrete(3), network, True))


def drawn_policy(env, config):
    """The same for an environment."""
    return drawn(lambda key: fresh_policy(key, env, config))


def on_device(array):
    """What ``jnp.asarray`` returns, but without a program for each shape."""
    return jax.device_put(array)


def drawn(make):
    """What ``make(key)`` returns, with random numbers of NumPy in its floating-point leaves and zeros in the others. Initializers
    compile for seconds."""
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        name, x = str(path[-1]), rng.normal(size=leaf.shape)
        if name == ".count" or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return on_device(np.zeros(leaf.shape, leaf.dtype))
        width = int(np.prod(leaf.shape[:-1])) if len(leaf.shape) > 1 else 4
        return on_device((0.5 + np.abs(x) if name == ".variance" else x / np.sqrt(width)).astype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(make, jax.random.key(0)))


def shaken(tree, scale=0.3):
    """``tree`` with random numbers added to all its floating-point leaves (shrunk for wide ones) but the counts of statistics; variances stay
    positive."""
    rng = np.random.default_rng(0)

    def shake(path, x):
        if not (isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)):
            return x
        width = int(np.prod(x.shape[:-1])) or 1
        noise = scale * np.abs(rng.normal(size=x.shape)) ** 0.5 * rng.choice([-1, 1], x.shape) / max(1, width / 8) ** 0.5
        return x if jax.tree_util.keystr(path).endswith(".count") else on_device(np.asarray(x) + noise.astype(x.dtype))

    return jax.tree_util.tree_map_with_path(shake, tree)


def cast(tree, dtype):
    """All floating-point leaves in ``dtype``."""
    return jax.tree.map(lambda x: on_device(np.asarray(x, dtype)) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def precision(dtype):
    """In float64, JAX's 64-bit mode."""
    return jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext()


def difference(a, b):
    """Largest difference of two pytrees, relative to the size of ``b`` (plus one)."""
    xp = jnp if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((a, b))) else np  # NumPy compiles nothing
    pairs = [map(xp.asarray, pair) for pair in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]
    worst = [xp.max(xp.abs(x - y) / (1.0 + xp.abs(y))) for x, y in pairs]
    return xp.max(xp.stack(worst)) if worst else xp.zeros(())


def bits(tree):
    """Every leaf as raw bytes."""
    keys = jax.tree.map(lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree)
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(keys)]


@contextlib.contextmanager
def compilations():
    """The list that is yielded grows with every program that XLA is asked to compile (or to fetch from its cache)."""
    seen = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
