"""Both backends have one interface, and their calls take about a second."""

import contextlib
import functools
from collections import OrderedDict
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from made_runs import save_checkpoint
from proximo.collect import jax_vector, program_cache
from proximo.collect.learning import check_policy
from proximo.config import Config, override
from proximo.envs.gymnasium.environment import from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.errors import EnvironmentFault
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.ppo import make_hyperparameters
from proximo.storage import checkpoint
from proximo.training.backend import Snapshot, TimedCalls
from proximo.training.backends import make_backend

import gym_toys
import toys
from helpers import bits, compilations, difference

SMALL = {
    "id": "toy", "num_envs": 4, "num_steps": 8, "num_epochs": 1, "num_minibatches": 1, "total_steps": 6400, "hidden_sizes": (8,),
    "eval_episodes": 3, "normalize_reward": True, "updates_per_call": 4,
}  # fmt: skip
KINDS = ("jax", "gymnasium")


def make(kind, stacked=False, make_gymnasium=gym_toys.Walk, **settings):
    if kind == "jax":
        return make_backend(override(Config(), {**SMALL, **settings}), toys.RandomEnds(), stacked)
    config = override(Config(), {**SMALL, "num_workers": 0, **settings})
    return make_backend(config, from_factory(make_gymnasium, "toy", Preprocessing()), stacked)


@pytest.mark.parametrize(
    ("kind", "seeds"), [pytest.param("jax", [3], marks=pytest.mark.slow), ("jax", [3, 4]), ("gymnasium", [3])]
)
def test_prepare_compiles_what_training_and_evaluation_call_and_training_trains(kind, seeds):
    def trained(hidden_sizes):
        """What is compiled after ``prepare``."""
        backend = make(kind, len(seeds) > 1, hidden_sizes=hidden_sizes, memory="gru", memory_size=4, observe_action=True)
        state = backend.prepare(lambda: backend.start(seeds), len(seeds))
        before = bits(state.learner.policy)
        assert bits(state) == bits(backend.start(seeds))
        with compilations() as compiled:
            state, metrics = backend.advance(state, 2)
            backend.evaluate(backend.policy(state, 0), 0, EVALUATION_STREAM)
        assert {x.shape for x in metrics.values()} == {(len(seeds), 2)}
        assert bits(state.learner.policy) != before
        assert set(np.asarray(state.learner.steps).reshape(len(seeds), -1)[:, 0]) == {2 * backend.config.batch_size}
        assert backend.fault() == ""
        if kind == "gymnasium":  # a restored state begins with new episodes
            assert np.abs(state.learner.reward_normalizer.running_return).max() > 0
            joined = backend.join([state])
            assert np.abs(joined.learner.reward_normalizer.running_return).max() == 0
            assert bits(joined.learner.policy) == bits(state.learner.policy)
        backend.close()
        return compiled

    trained((5,))  # compiles small programs for all networks, such as random keys
    assert trained((6,)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_backend_is_made_without_compiling(kind):
    """Outside of a program, JAX compiles each operation by itself."""
    jax.clear_caches()
    with compilations() as compiled:
        backend = make(kind, hidden_sizes=(7, 3), memory="gru", memory_size=4, observe_action=True, max_episode_steps=7)
        check_policy(backend.env, backend.config)
        make_hyperparameters(backend.config.ppo)
    backend.close()
    assert compiled == []
    assert kind == "gymnasium" or backend._evaluator.limit == 7


def test_each_seed_of_one_program_trains_as_alone(monkeypatch):
    """One seed after the other as on a CPU, or side by side as on a GPU."""
    assert not jax_vector.vmaps_seeds()  # on the CPU, where tests run
    alone = make("jax")
    expected = [alone.advance(alone.start([seed]), 3) for seed in (3, 4)]
    for vmapped in (False, True):
        monkeypatch.setattr(jax_vector, "vmaps_seeds", lambda vmapped=vmapped: vmapped)
        monkeypatch.setattr(program_cache, "_kept", OrderedDict())
        together = make("jax", True)
        states, metrics = together.advance(together.start([3, 4]), 3)
        assert len(together.inspect(states, states)) == 2
        for i, (state, alone_metrics) in enumerate(expected):
            for name, x in alone_metrics.items():
                np.testing.assert_allclose(metrics[name][i], x[0], 1e-4, 1e-5, err_msg=name)
            assert difference(together.policy(states, i), alone.policy(state, 0)) < 1e-5


def test_joined_seeds_can_be_separated_again():
    backend = make("jax", stacked=True)
    state = backend.start([3, 4])
    seeds = [backend.seed_state(state, i) for i in range(2)]
    for part in (lambda state: state.learner.policy.actor, lambda state: state.collector.observation):
        assert bits(part(seeds[0])) != bits(part(seeds[1]))
    assert bits(backend.join(seeds)) == bits(state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_joined_state_follows_the_new_total(kind):
    """Its memory is diagnosed as often as in a training of this length, and the compiled programs fit it."""
    short, long = (make(kind, memory="gru", memory_size=8, total_steps=32 * updates) for updates in (2, 102))
    with contextlib.closing(short), contextlib.closing(long):
        first = short.start([3])
        state = long.prepare(lambda: long.join([first]))
        assert (first.learner.static.diagnose_every, state.learner.static.diagnose_every) == (1, 3)
        state, _ = long.advance(state, 1)
        assert int(state.learner.steps[0]) == 32


def test_programs_are_shared_by_settings_with_the_same_function_at_the_same_place_alone():
    env, function = toys.RandomEnds(), lambda progress: 1e-3 * (1 - progress)
    configs = [override(Config(), {**SMALL, name: function}) for name in ("learning_rate", "learning_rate", "ent_coef")]
    configs.append(override(configs[0], {"num_epochs": 3}))
    keys = [program_cache.program_key(config, env, False, None) for config in configs]
    assert keys[0] == keys[1]
    assert keys[1] not in keys[2:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_alone_is_restored_with_the_hyperparameters_of_its_settings(kind, tmp_path):
    earlier = make(kind, gamma=0.5, learning_rate=1e-2)
    backend = make_backend(override(earlier.config, {"gamma": 0.9, "learning_rate": 1e-4}), earlier.env)
    shared = (b.collector if kind == "jax" else b.collector.programs for b in (earlier, backend))
    assert len(set(map(id, shared))) == 1
    state = earlier.start([3])
    restored = backend.restore(checkpoint.load(save_checkpoint(tmp_path, 64, {"learner": {"policy": state.learner.policy}}, {})))
    assert float(restored.learner.hyperparameters.gamma) == pytest.approx(0.9)
    assert float(restored.learner.hyperparameters.learning_rate.initial) == pytest.approx(1e-4)


def test_each_process_names_the_environment_with_nan():
    backend, found = make("gymnasium"), "environment 5 gave it as reward in step 3 of the rollout"
    backend.peers = SimpleNamespace(agree=lambda value, doing: [value, found])
    assert backend.fault() == found


def test_failed_environment_ends_a_call_early_and_fails_the_next():
    # Each environment takes 8 steps in an update, and the 20th fails.
    backend = make("gymnasium", make_gymnasium=functools.partial(gym_toys.Misbehaving, "raise", 20))
    state = backend.prepare(lambda: backend.start([0]))
    state, metrics = backend.advance(state, 4)
    assert 0 < metrics["rollout/episodes"].shape[1] < 4
    assert int(state.learner.steps[0]) == metrics["rollout/episodes"].shape[1] * backend.config.batch_size
    with pytest.raises(EnvironmentFault, match="the pole has fallen off"):
        backend.advance(state, 1)
    backend.close()


class Clock:
    """A clock that only a call moves: ``seconds`` for each update."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def monotonic(self):
        return self.now

    def advance(self, state, num_updates):
        self.now += self.seconds * num_updates
        return state + num_updates, {"x": np.zeros((1, num_updates))}


def timed(monkeypatch, seconds, max_updates=None):
    clock = Clock(seconds)
    monkeypatch.setattr("proximo.training.backend.time", clock)
    config = SimpleNamespace(batch_size=8, updates_per_call=50)
    backend = SimpleNamespace(advance=clock.advance, config=config)
    return clock, TimedCalls(backend, lambda function, *arguments: function(*arguments), max_updates)


@pytest.mark.parametrize(
    ("seconds", "max_updates", "expected"), [(0.1, None, 10), (0.4, None, 2), (3.0, None, 1), (1e-6, None, 50), (0.1, 7, 7)]
)
def test_a_call_takes_about_a_second_and_does_not_pass_the_boundary(monkeypatch, seconds, max_updates, expected):
    _, calls = timed(monkeypatch, seconds, max_updates)
    assert calls.num_updates(0, 100) == (max_updates or 1)
    after = calls.advance(Snapshot(0, 3, 24), 1)
    assert after[:3] == (1, 4, 32)
    assert calls.last_seconds == pytest.approx(seconds)
    assert [calls.num_updates(1, boundary) for boundary in (100, 4, 2)] == [expected, min(expected, 3), 1]


def test_pace_averages_calls_but_the_next_size_follows_the_last(monkeypatch):
    clock, calls = timed(monkeypatch, 0.1)
    assert calls.seconds_per_update == 0
    calls.advance(Snapshot(0, 0, 0), 9)
    clock.seconds = 1.1
    calls.advance(Snapshot(0, 0, 0), 1)
    assert calls.seconds_per_update == pytest.approx(0.2)
    assert calls.num_updates(10, 100) == 1
