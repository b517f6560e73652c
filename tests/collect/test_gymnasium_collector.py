"""The collector for Gymnasium environments: its rollouts are what the policy did, in every autoreset mode and with any number of workers."""

import dataclasses
import functools
import itertools
import threading
from types import SimpleNamespace
from unittest import mock

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from buffers import buffer_of
from proximo.collect import GymnasiumCollector, gymnasium_programs, program_cache
from proximo.collect.environment import LazyVectorEnvironment
from proximo.collect.gymnasium_collector import _Group
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.config import Config, override
from proximo.envs import GymnasiumEnvironment
from proximo.envs.gymnasium.environment import from_factory, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, VectorOptions
from proximo.errors import EnvError, EnvironmentFault
from proximo.ppo.minibatches import run_burn_in, sequences_of, split_sequences, unroll
from proximo.ppo.rollout_processing import refresh_memory
from proximo.threads import in_thread
from proximo.training.backends import bad_environment
from proximo.types import GymnasiumCollectorState

import gym_toys
from helpers import MEMORIES, REMEMBERING, backend_of, bits, difference, drawn_policy, kill_first_worker

NONE = Preprocessing()
SMALL = {
    "id": "toy", "num_envs": 4, "num_steps": 16, "num_epochs": 1, "num_minibatches": 1, "total_steps": 6400, "num_workers": 0,
    "hidden_sizes": (8,), "memory_size": 8, "towers": "shared", "normalize_observation": True, "normalize_reward": True,
}  # fmt: skip
MODES = ["", "NextStep", "SameStep", "Disabled"]
EVERYTHING = "burning in and observing"


MADE = []


@pytest.fixture(autouse=True)
def close():
    """Close the environments of all collectors that a test has made."""
    yield
    while MADE:
        MADE.pop().environments.close()


def make_collector(env=None, **settings):
    """A collector on random walks."""
    env = env or from_factory(gym_toys.Walk, "toy", NONE)
    config = override(Config(), {**SMALL, **settings})
    # How environments are stepped changes no program.
    compiled = frozenset((name, x) for name, x in settings.items() if name not in ("num_workers", "learner_lag", "overlap"))
    programs = program_cache.reuse((env.observation_space, env.action_space, compiled), lambda: GymnasiumPrograms(config, env))
    MADE.append(GymnasiumCollector(config, env, programs))
    return MADE[-1]


def make_trainer(env=None, **settings):
    return backend_of(make_collector(env, **settings))


def threaded(cls):
    return from_vector(lambda num_envs, num_threads=0: cls(num_envs), "toy", NONE, is_threaded=True)


def vector_env(mode):
    return threaded(functools.partial(gym_toys.ThreadedVector, mode=mode))


def start_of(collector):
    """A policy that is not near uniform, and the state of the collector before the first step."""
    return drawn_policy(collector.env, collector.config), GymnasiumCollectorState(jax.random.key(0))


@functools.cache
def rollouts(memory="none", mode="", overlap=False):
    """Rollouts, one after the other by one policy, and that policy."""
    settings = {**REMEMBERING[memory], "sequence_length": 4, "overlap": overlap}
    return collected_by(make_collector(vector_env(mode) if mode else None, **settings), 4)


def collected_by(collector, count=2):
    policy, state = start_of(collector)
    made = []
    for _ in range(count):
        state, rollout, _ = collector.collect(policy, state)
        made.append(jax.tree.map(np.asarray, rollout))
    return made, policy


@pytest.mark.parametrize(
    ("memory", "mode"),
    [
        *((memory, "") for memory in REMEMBERING if memory != "gtrxl with identity gates"),  # to the collector it is gtrxl
        *((memory, mode) for memory in (EVERYTHING, "observing over episodes") for mode in MODES[1:]),
    ],
)
def test_stored_steps_are_what_the_policy_did(memory, mode):
    """``unroll`` from the stored memories gives the stored log-probabilities and values: ratio 1."""
    made, policy = rollouts(memory, mode)
    for rollout in made:
        assert_ratio_one(policy, rollout)
    assert any(rollout.truncated.any() for rollout in made), "or the bootstrap is not looked at"
    if memory in ("gru", "lstm"):
        rollout = jax.tree.map(jnp.asarray, made[0])
        shifted = dataclasses.replace(rollout, episode_start=jnp.roll(rollout.episode_start, 1, 0))
        assert errors_of(policy, shifted)[0] > 1e-3


@jax.jit
def errors_of(policy, rollout):
    """The largest error of the log-probabilities and values of sequences of four, and of the memories."""
    _, distribution, value = unroll(policy, sequences_of(rollout, 4))
    action, log_prob, stored, valid = (
        split_sequences(x, 4) for x in (rollout.action, rollout.log_prob, rollout.value, rollout.valid)
    )
    errors = jnp.where(valid, jnp.stack([distribution.log_prob(action) - log_prob, value - stored]), 0.0)
    renewed = refresh_memory(policy, rollout, 4) if jax.tree.leaves(rollout.memory) else rollout
    return jnp.abs(errors).max(), difference((renewed.memory, renewed.last_memory), (rollout.memory, rollout.last_memory))


def assert_ratio_one(policy, rollout):
    """Unrolling gives the stored log-probabilities, values and memories."""
    assert all(error < 1e-5 for error in errors_of(policy, rollout))


def test_nan_on_padding_enters_nothing(monkeypatch):
    """A terminated episode may end with NaN. With next-step autoreset, that observation lies in the buffer, on padding."""
    collector = make_collector(vector_env("NextStep"), memory="gru", burn_in=2, sequence_length=4)
    program, pairs = collector.programs.rollout, []

    def both(size, policy, groups):
        (group,) = groups
        (observation,), episode_start, valid = group.rows
        padded = np.where(valid[..., None], observation, np.nan)
        given = [group._replace(rows=((x,), episode_start, valid)) for x in (observation, padded)]
        pairs.append([program(size, policy, [group]) for group in given])
        return pairs[-1][0]

    monkeypatch.setattr(collector.programs, "rollout", both)
    collected_by(collector)
    for rollout, other in pairs:
        assert not rollout.valid.all()
        assert bits(rollout) == bits(other)
    assert not pairs[1][0].burn_in_steps.valid.all()


def test_the_next_rollout_changes_no_earlier_one():
    """The buffer is filled again while the learner still reads the rollout."""
    collector = make_collector(**REMEMBERING[EVERYTHING], sequence_length=4)
    policy, state = start_of(collector)
    state, rollout, _ = collector.collect(policy, state)
    before = bits(jax.tree.map(np.array, rollout))
    collector.collect(policy, state)
    assert bits(rollout) == before


def nan_at(x, *place):
    return x.at[place].set(jnp.nan)


def test_an_environment_with_nan_is_named_by_its_number_in_all_processes():
    made, _ = rollouts(EVERYTHING)
    rollout = jax.tree.map(jnp.asarray, next(rollout for rollout in made if rollout.truncated.any()))
    t, i = np.argwhere(rollout.truncated)[0]
    seen = {**rollout.observation, "previous_reward": nan_at(rollout.observation["previous_reward"], 4, 1)}
    last = {name: nan_at(x, 2) for name, x in rollout.last_observation.items()}
    for changes, *found in (
        ({},),
        ({"reward": nan_at(rollout.reward, 3, 1), "observation": seen}, 5, "reward", 3),
        ({"last_observation": last}, 6, "observation", 16),
        ({"bootstrap_value": nan_at(rollout.bootstrap_value, t, i)}, 4 + i, "final observation", t),
    ):
        expected = "environment {} gave it as {} in step {} of the rollout".format(*found) if found else ""
        assert bad_environment(dataclasses.replace(rollout, **changes), 4) == expected


LOST = (5, 15)
"""Steps of each rollout in which a worker is killed: in the middle of a sequence, and the last one."""


@pytest.mark.parametrize("more", [{}, pytest.param({"reset_memory": False, "burn_in": 2}, marks=pytest.mark.slow)])
def test_first_minibatch_has_ratio_one_with_lost_workers(more):
    collector = make_collector(num_workers=2, sequence_length=4, memory="gru", observe_reward=bool(more), **more)
    kill_first_worker(collector.environments.open(), [t + 16 * rollout for t in LOST for rollout in range(2)])
    made, policy = collected_by(collector)
    expected = np.ones((16, 4), bool)
    expected[np.ix_(LOST, (0, 1))] = False
    for rollout in made:
        np.testing.assert_array_equal(rollout.valid, expected)
        assert_ratio_one(policy, rollout)


@pytest.mark.parametrize("mode", MODES)
def test_previous_action_and_reward_are_observed_only_within_episodes_also_with_overlap(mode):
    overlapped, _ = rollouts(EVERYTHING, mode, overlap=True)
    for x, y in zip(jax.tree.leaves(rollouts(EVERYTHING, mode)[0]), jax.tree.leaves(overlapped), strict=True):
        np.testing.assert_allclose(np.asarray(x, np.float64), np.asarray(y, np.float64), atol=1e-5 * (x.dtype.kind == "f"))
    for rollout in rollouts(EVERYTHING, mode)[0]:
        action, reward = (rollout.observation[name] for name in ("previous_action", "previous_reward"))
        assert (action[rollout.episode_start] == 0).all()
        assert (reward[rollout.episode_start] == 0).all()
        within = ~rollout.episode_start[1:] & rollout.valid[1:]
        taken = np.eye(action.shape[-1])[rollout.action]
        assert within.sum() > 20
        assert (action[1:][within] == taken[:-1][within]).all()
        assert (reward[1:, :, 0][within] == rollout.reward[:-1][within]).all()


@pytest.mark.parametrize("mode", MODES)
def test_carried_memory_observes_every_reward_once_across_episodes(mode):
    """Values in the row after each transition, from the first row of the first rollout on, without autoreset steps."""
    made, _ = rollouts("observing over episodes", mode)
    names = ("reward", "action", "valid", "episode_start", "terminated", "truncated")
    reward, action, valid, episode_start, *ends = (np.concatenate([getattr(rollout, name) for rollout in made]) for name in names)
    seen = {name: np.concatenate([rollout.observation[name] for rollout in made]) for name in made[0].observation}
    assert (ends[0] | ends[1]).sum(0).min() > 1
    assert (~valid).any() == (mode == "NextStep")
    for i in range(4):
        rows = np.flatnonzero(valid[:, i])
        rewards, actions = (seen[f"previous_{name}"][rows, i] for name in ("reward", "action"))
        assert episode_start[rows, i].sum() > 2
        assert (rewards[1:, 0] == reward[rows[:-1], i]).all()
        assert (actions[1:] == np.eye(3)[action[rows[:-1], i]]).all()
        assert not rewards[0].any()
        assert not actions[0].any()


@pytest.mark.parametrize("mode", MODES)
def test_next_rollout_begins_with_the_last_state_of_the_previous(mode):
    made, policy = rollouts(EVERYTHING, mode)
    burnt_in, openings = jax.jit(run_burn_in), 0
    assert not made[0].burn_in_steps.valid.any()
    for one, other in itertools.pairwise(made):
        np.testing.assert_array_equal(one.last_episode_start, other.episode_start[0])
        assert bits(one.last_observation) == bits(jax.tree.map(lambda x: x[0], other.observation))
        late = jax.tree.map(lambda x: x[-2:], (one.observation, one.episode_start, one.valid))
        assert bits(other.burn_in_steps) == bits(late)
        before = jax.tree.map(lambda m: m[0], other.memory)
        assert difference(burnt_in(policy, before, other.burn_in_steps), one.last_memory) < 1e-5
        for wrong in (policy.init_memory(4), jax.tree.map(lambda m: m[0], one.memory)):
            assert difference(burnt_in(policy, wrong, other.burn_in_steps), one.last_memory) > 1e-4
        valid = other.valid[0]
        np.testing.assert_allclose(one.last_value[valid], other.value[0][valid], atol=1e-5)
        openings += int(one.last_episode_start.sum())
    assert openings > 0, "some episodes begin with a rollout"


@pytest.mark.parametrize("large", [0, 16, 10**9])
def test_large_parameters_are_packed_as_separate_arrays(monkeypatch, large):
    """Two towers, whose arrays have the same shapes: one in the place of another would not be noticed by its shape."""
    monkeypatch.setattr(gymnasium_programs, "LARGE", large)
    config = override(Config(), {**SMALL, "towers": "separate", "hidden_sizes": (8, 8)})
    env = from_factory(gym_toys.Walk, "toy", NONE)
    programs = GymnasiumPrograms(config, env)
    policy = drawn_policy(env, config)
    packed = programs._pack(policy)
    arrays = [leaf for leaf in jax.tree.leaves(policy) if leaf.size >= large]
    assert [x.shape for x in packed[1:]] == [x.shape for x in arrays]
    assert len(packed) > 2 or large == 10**9
    assert bits(programs._unpack(packed)) == bits(policy)


@pytest.mark.parametrize("mode", MODES)
def test_a_truncation_is_bootstrapped_with_the_memory_after_the_step(mode, monkeypatch):
    """Against the policy stepped by hand; the memory before the step would give another value."""
    env = vector_env(mode) if mode else None
    collector = make_collector(env, **MEMORIES["gru"], sequence_length=4)
    policy, state = start_of(collector)
    step, value, finals = jax.jit(lambda *row: policy.step(*row, None)), jax.jit(lambda *row: policy.value(*row)), []
    original = collector.programs.final_value

    def final_value(size, policy, final, memory):
        finals.append(np.array(final[0]))
        return original(size, policy, final, memory)

    monkeypatch.setattr(collector.programs, "final_value", final_value)
    _, rollout, _ = collector.collect(policy, state)
    memory, never = policy.init_memory(4), np.zeros(4, bool)
    left = iter(finals)
    apart = 0.0
    for t in range(16):
        before = memory
        memory, _, _, _ = step(memory, rollout.observation[t], rollout.episode_start[t], rollout.valid[t])
        here = np.asarray(rollout.truncated[t])
        if here.any():
            final = next(left)
            expected = np.asarray(value(memory, final, never))
            np.testing.assert_allclose(rollout.bootstrap_value[t][here], expected[here], atol=1e-5)
            apart = max(apart, float(np.abs(np.asarray(value(before, final, never)) - expected)[here].max()))
            # The final observation holds the number of its step: one more than the observation before it.
            np.testing.assert_array_equal(final[here, 1], rollout.observation[t, here, 1] + 1)
        assert (rollout.bootstrap_value[t][~here] == 0).all()
    assert next(left, None) is None
    assert apart > 1e-3


def test_restart_resets_only_memory_and_running_returns():
    trainer = make_trainer(**MEMORIES["gru"])
    state = trainer.collector.init(jax.random.key(3))
    for _ in range(2):
        state, _ = trainer.update(state)
    scale = state.learner.reward_normalizer
    assert float(jnp.abs(scale.running_return).max()) > 0
    restarted = trainer.join([state])
    _, rollout, _ = trainer.collector.collect(restarted.learner.policy, restarted.collector)
    assert float(jnp.abs(restarted.learner.reward_normalizer.running_return).max()) == 0
    assert bits(restarted.learner.reward_normalizer.statistics) == bits(scale.statistics)
    assert bits(restarted.learner.policy) == bits(state.learner.policy)
    assert all(float(jnp.abs(leaf[0]).max()) == 0 for leaf in jax.tree.leaves(rollout.memory))
    assert rollout.episode_start[0].all()


def test_fault_while_collecting_ahead_raises_after_the_concurrent_update():
    env = from_factory(functools.partial(gym_toys.Misbehaving, "raise", 40), "toy", NONE)
    trainer = make_trainer(env, learner_lag=1)
    state = trainer.collector.init(jax.random.key(0))
    before = bits(state.learner.policy)
    state, _ = trainer.update(state)  # steps 1 … 32: the first rollout, and the one ahead
    state, _ = trainer.update(state)  # the next one ahead fails; what was learned at the same time stays
    assert bits(state.learner.policy) != before
    assert int(state.learner.steps[0]) == 128
    with pytest.raises(EnvironmentFault, match="the pole has fallen off"):
        trainer.update(state)


def test_the_number_of_workers_changes_no_bit():
    made = []
    for workers in (0, 1, 2):
        collector = make_collector(num_workers=workers, **REMEMBERING[EVERYTHING], sequence_length=4)
        made.append(bits(collected_by(collector)[0]))
    assert made[0] == made[1] == made[2]


def test_vector_environments_of_two_groups_step_at_the_same_time():
    """Before each ``recv`` but the last, both groups have a step in progress."""
    calls, sent = [], [0, 0]

    class Recorded(gym_toys.ThreadedVector):
        def send(self, actions):
            super().send(actions)
            calls.append(("send", id(self)))

        def recv(self):
            calls.append(("recv", id(self)))
            return super().recv()

    collector = make_collector(threaded(Recorded), overlap=True)
    collected_by(collector, 1)
    groups = sorted({group for _, group in calls})
    assert len(groups) == 2
    for call, group in calls[:-1]:
        which = groups.index(group)
        if call == "recv":
            assert sent == [1, 1], "the other group steps meanwhile"
        sent[which] = int(call == "send")


@pytest.mark.parametrize(("available", "expected"), [(1, 1), (4, 2), (64, 2)])
def test_two_groups_share_the_cores_and_no_thread_is_without_an_environment(available, expected):
    threads = []

    def make(num_envs, num_threads=0):
        threads.append(num_threads)
        return gym_toys.ThreadedVector(num_envs)

    env = from_vector(make, "toy", NONE, is_threaded=True)
    env.open(5, 1, VectorOptions(num_groups=2, cores=available)).close()
    assert threads == [0, expected, expected]


def test_interrupted_rollout_of_two_vector_environments_is_discarded():
    class Interrupted(gym_toys.ThreadedVector):
        steps_left = 1_000_000

        def recv(self):
            result = super().recv()
            Interrupted.steps_left -= 1
            if Interrupted.steps_left == 0:
                raise KeyboardInterrupt
            return result

    collector = make_collector(threaded(Interrupted), overlap=True)
    policy, state = start_of(collector)
    expected = bits(collector.collect(policy, state)[1])
    Interrupted.steps_left = 5
    with pytest.raises(KeyboardInterrupt):
        collector.collect(policy, state)
    assert bits(collector.collect(policy, state)[1]) == expected, "it begins again"


def trained(updates=4, **settings):
    trainer = make_trainer(**{"num_epochs": 2, "num_minibatches": 2, **settings})
    state, metrics, keys = trainer.collector.init(jax.random.key(3)), [], []
    for _ in range(updates):
        state, row = trainer.update(state)
        metrics.append(row)
        keys.append(str(bits(state.collector.key)))
        total = sum(row[f"time/share_{name}"] for name in ("environment", "policy", "update", "rest"))
        assert total == pytest.approx(1.0, abs=1e-6)
    assert len(set(keys)) == updates, "no two rollouts have the same noise"
    return state, metrics


@pytest.mark.parametrize("settings", [{}, {"learner_lag": 1}, {"learner_lag": 1, "num_workers": 2, "overlap": True}])
def test_a_training_is_deterministic(settings):
    one, _ = trained(**settings)
    two, _ = trained(**settings)
    assert bits(one) == bits(two)
    assert bool(one.healthy)


def test_only_a_lagged_learner_starts_with_ratios_other_than_one():
    _, here = trained(num_epochs=1, num_minibatches=1, learning_rate="1e-2")
    assert all(abs(row[f"train/ratio_{name}"] - 1) < 1e-5 for row in here for name in ("min", "max"))
    _, behind = trained(num_epochs=1, num_minibatches=1, learning_rate="1e-2", learner_lag=1)
    assert abs(behind[0]["train/ratio_max"] - 1) < 1e-5, "the first rollout is by the first policy"
    assert all(row["train/ratio_max"] - 1 > 1e-3 for row in behind[1:])


@pytest.mark.parametrize(
    ("lost", "starts", "more", "truncated"),
    [
        ([2], [0, 3], {}, {1: 12.0, 2: 0.0}),
        ([0], [1], {}, {0: 0.0}),  # the row before lies in the rollout before
        ([2], [0, 2, 3], {}, {2: 0.0}),  # its episode had just begun
        ([2], [0, 3], {"terminated": [1]}, {2: 0.0}),  # it had terminated, which stays a termination
        ([2], [0, 3], {"invalid": [1]}, {2: 0.0}),  # an autoreset step has nothing to bootstrap
        ([1, 2], [0, 2, 3], {}, {0: 11.0, 1: 0.0, 2: 0.0}),  # twice, one after the other
    ],
)
def test_lost_environment_is_truncated_before_the_invalid_step(lost, starts, more, truncated):
    places = {"lost": lost, **more, "invalid": [*lost, *more.get("invalid", ())]}
    buffer = buffer_of(np.ones((4, 1)), **{name: [(t, 0) for t in steps] for name, steps in places.items()})
    buffer.episode_start[starts] = True
    value = 10 + np.arange(4.0)[:, None, None]  # the value of row t is 10 + t
    programs = SimpleNamespace(value=lambda steps: steps[..., -1])
    results = _Group.results(SimpleNamespace(buffer=buffer, packed=value, bootstrap_value=np.zeros((4, 1)), programs=programs))
    found = {int(t): float(results["bootstrap_value"][t, 0]) for t in np.flatnonzero(results["truncated"][:, 0])}
    assert found == truncated
    np.testing.assert_array_equal(buffer.truncated, np.zeros((4, 1), bool), "what the environment said stays")


def test_lost_life_terminates_for_the_learner_but_not_for_statistics():
    env = from_factory(gym_toys.Lives, "toy", Preprocessing(life_loss=True))
    collector = make_collector(env, normalize_observation=False)
    state = collector.init(jax.random.key(0))
    _, rollout, metrics = collector.collect(state.learner.policy, state.collector)
    np.testing.assert_array_equal(np.flatnonzero(rollout.terminated[:, 0]), [3, 7, 11, 15])
    np.testing.assert_array_equal(np.flatnonzero(rollout.episode_start[:, 0]), [0, 12])
    assert metrics["rollout/episodes"] == 4
    assert metrics["rollout/return_mean"] == 24.0, "all three lives"


def test_dict_observation_with_mask_and_camera_trains():
    trainer = make_trainer(from_factory(gym_toys.Parts, "toy", NONE), encoder="auto", normalize_observation=False, num_envs=2)
    state, metrics = trainer.update(trainer.collector.init(jax.random.key(0)))
    assert metrics["rollout/episodes"] > 0
    assert bool(state.healthy)


@pytest.mark.parametrize("of", [gym_toys.InfoMask, gym_toys.InfoMaskParts, gym_toys.MethodMask, gym_toys.MethodMaskParts])
def test_collected_actions_are_always_allowed_by_the_mask(of):
    """The environments raise for a forbidden action, and their episodes end at different times."""
    for mode in ("serial", "workers", "NextStep", "SameStep", "Disabled"):
        single = mode in ("serial", "workers")
        make = of if single else functools.partial(gym_toys.CustomVector, mode=mode, of=of)
        env = (from_factory if single else from_vector)(make, "toy", NONE)
        settings = {"normalize_observation": False, "num_workers": 2 * (mode == "workers")}
        for rollout in collected_by(make_collector(env, **settings), 3)[0]:
            assert ((rollout.terminated | rollout.truncated).sum(0) > 0).all(), mode
            np.testing.assert_allclose(rollout.log_prob[rollout.valid], 0, atol=1e-5, err_msg=f"{mode}: one action is allowed")


def test_half_bounded_box_environments_receive_actions_within_their_space():
    space = gym.spaces.Box(np.array([-1.0, 0.0, -np.inf]), np.array([0.1, np.inf, np.inf]), dtype=np.float64)

    def step(self, action):
        assert space.contains(action), action
        return gym_toys.Countdown.step(self, 0)

    checked = gym_toys.altered(gym_toys.Countdown, action_space=space, step=step)
    trainer = make_trainer(from_factory(checked, "toy", NONE), log_std_init=1.0)
    state = trainer.collector.init(jax.random.key(0))
    trainer.update(state)
    assert trainer.last_rollout.action[..., 0].max() > 1, "never stored clipped"


def test_actions_that_float32_would_round_are_refused():
    far_away = gym_toys.altered(gym_toys.Countdown, action_space=gym.spaces.Discrete(4, start=2**24 + 1))
    with pytest.raises(EnvError, match=r"reaches beyond ±2²⁴, where float32 rounds integers"):
        make_collector(from_factory(far_away, "toy", NONE))


def test_environments_that_are_being_made_when_they_are_closed_end(monkeypatch):
    """Ctrl-C does not wait for the thread that makes them."""
    making, go_on = threading.Event(), threading.Event()
    made = mock.create_autospec(VectorEnvironment, instance=True)

    def make(*arguments):
        making.set()
        assert go_on.wait(10)
        return made

    monkeypatch.setattr(GymnasiumEnvironment, "open", make)
    slow = from_factory(gym_toys.Countdown, "slow", NONE)
    lazy = LazyVectorEnvironment(slow, VectorOptions(), range(2), 1, "for a test")
    opening = in_thread(lazy.open)
    assert making.wait(10)
    lazy.close()
    go_on.set()
    with pytest.raises(EnvError, match="slow was closed while its environments were made"):
        opening.result(10)
    assert made.close.call_count == 1
    assert lazy.open() is made  # it may be opened again
    lazy.close()
    assert made.close.call_count == 2
