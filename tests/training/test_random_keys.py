"""No random key is used twice in a training and its evaluations. Every use is recorded."""

import collections
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import define_prng_impl

from proximo.collect import GymnasiumCollector, JaxTrainer
from proximo.collect.jax_vector import SEEDS_AXIS
from proximo.envs.gymnasium.environment import from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.level_seeds import JaxLevels, LevelRange
from proximo.evaluation import evaluators
from proximo.evaluation.episodes import EVALUATION_STREAM, PREDICTION_STREAM, SELECTION_STREAM, TUNING_STREAM
from proximo.evaluation.evaluators import make_evaluator
from proximo.networks import make_policy
from proximo.spaces import Box, Discrete

import gym_toys
import toys
from helpers import backend_of, small_collector, small_config

DRAWN = "drawn from"
STREAMS = (SELECTION_STREAM, EVALUATION_STREAM, TUNING_STREAM, PREDICTION_STREAM)


class Uses:
    """Uses of each key: children by number (``fold_in(key, i)`` equals ``split(key, n)[i]``), or random bits."""

    def __init__(self):
        self.of = collections.defaultdict(collections.Counter)

    def _note(self, data, children):
        self.of[tuple(np.asarray(data).tolist())].update(children)

    def implementation(self):
        """Threefry that records."""

        def wrapped(data):
            return jax.random.wrap_key_data(data, impl="threefry2x32")

        def seed(x):
            return jax.random.key_data(jax.random.key(x, impl="threefry2x32"))

        def split(data, shape):
            jax.debug.callback(lambda d: self._note(d, range(int(np.prod(shape)))), data)
            return jax.random.key_data(jax.random.split(wrapped(data), shape))

        def fold_in(data, child):
            jax.debug.callback(lambda d, i: self._note(d, [int(i)]), data, child)
            return jax.random.key_data(jax.random.fold_in(wrapped(data), child))

        def random_bits(data, width, shape):
            jax.debug.callback(lambda d: self._note(d, [DRAWN]), data)
            return jax.random.bits(wrapped(data), shape, f"uint{width}")

        return define_prng_impl(
            key_shape=(2,), seed=seed, split=split, random_bits=random_bits, fold_in=fold_in, name="recording", tag="rec"
        )

    def repeated(self):
        """Keys with a child that was derived twice, with two draws, or with both a draw and children."""
        jax.effects_barrier()
        return {k: n for k, n in self.of.items() if max(n.values()) > 1 or (DRAWN in n and len(n) > 1)}


@pytest.fixture
def uses(monkeypatch):
    recorded = Uses()
    original, recording = jax.random.key, recorded.implementation()
    monkeypatch.setattr(jax.random, "key", lambda seed, impl=None: original(seed, impl=impl or recording))
    return recorded


def test_recorder_finds_keys_that_are_used_twice(uses):
    def program(key):
        return jax.lax.scan(lambda key, _: (key, jax.random.normal(key)), key, length=2)

    jax.jit(program)(jax.random.key(0))
    assert len(uses.repeated()) == 1
    key = jax.random.key(1)
    jax.vmap(jax.random.normal)(jax.random.split(key, 3))
    assert len(uses.repeated()) == 1
    jax.random.normal(jax.random.fold_in(key, 2))
    assert len(uses.repeated()) == 3  # the parent derives one child twice, and that child is drawn from twice


def evaluated(policy, env, config, seed=0):
    """Sampled episodes in each stream."""
    evaluator = make_evaluator(env, config, 3)
    for stream in STREAMS:
        evaluator(policy, seed, stream, deterministic=False)
    evaluator.close()


GRU = {"memory": "gru", "memory_settings": {"horizon": 6}, "towers": "separate"}


def test_no_key_is_used_twice_on_jax(uses):
    collector = small_collector(toys.ContinuousRandomEnds(), **GRU, sde_every=4, stagger_steps=5)
    state, _ = jax.jit(JaxTrainer(collector).advance, static_argnums=2)(collector.init(jax.random.key(0)), jnp.int32(2), 2)
    trained = len(uses.of)
    evaluated(state.learner.policy, collector.env, collector.config)
    assert not uses.repeated()
    assert 50 < trained < len(uses.of) - 50


@pytest.mark.slow
def test_seeds_on_levels_in_one_program_share_no_key(uses, monkeypatch):
    monkeypatch.setattr(evaluators, "JaxLevels", ())  # it would draw the levels again to report them
    collector = small_collector(JaxLevels(toys.RandomEnds(), LevelRange(0, 2**31 - 1)), seeds_axis=True)
    run = jax.vmap(lambda state: JaxTrainer(collector).advance(state, jnp.int32(2), 2)[0], axis_name=SEEDS_AXIS)
    states = jax.jit(run)(collector.init_seeds(jax.vmap(jax.random.key)(np.arange(2))))
    for seed in range(2):
        evaluated(jax.tree.map(itemgetter(seed), states.learner.policy), collector.env, collector.config, seed)
    assert not uses.repeated()
    assert len(uses.of) > 100


def test_no_key_is_used_twice_on_gymnasium(uses):
    config = small_config(**GRU, num_workers=0, num_steps=8, sequence_length=4)
    env = from_factory(gym_toys.Walk, "toy", Preprocessing())
    collector = GymnasiumCollector(config, env)
    trainer, state = backend_of(collector), collector.init(jax.random.key(0))
    for _ in range(2):
        state, _ = trainer.update(state)
    trainer.close()
    trained = len(uses.of)
    evaluated(state.learner.policy, env, config)
    assert not uses.repeated()
    assert 10 < trained < len(uses.of) - 10


@pytest.mark.parametrize("memory", [pytest.param("none", marks=pytest.mark.slow), "lru", "mingru", "gtrxl"])
def test_no_key_is_used_twice_in_a_fresh_policy(uses, memory):
    space = toys.PARTS if memory == "none" else Box((3,))
    settings = small_config(memory=memory, memory_settings={"heads": 2}, head_sizes=(4,)).network
    make_policy(jax.random.key(0), space, Discrete(3), settings, True)
    assert not uses.repeated()
    assert len(uses.of) > 5


@pytest.mark.parametrize("level", [0, 7])
def test_a_level_is_not_the_root_key_of_a_run(level):
    class Shown(toys.RandomEnds):
        def reset(self, key, params):
            return (), jax.random.key_data(key)

    _, shown = JaxLevels(Shown(), LevelRange(level, level + 1)).reset(jax.random.key(1), ())
    for seed in (0, level):
        root = jax.random.key(seed)
        for known in (root[None], jax.random.split(root, 1000)):
            assert not (jax.random.key_data(known) == shown).all(-1).any()
