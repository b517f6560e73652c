"""Choice of the number of workers, seeds, actions, and options of Gymnasium environments."""

import functools
import itertools
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from proximo.envs.gymnasium import environment, waiting_messages
from proximo.envs.gymnasium.actions import allowed_action, check_actions, random_actions
from proximo.envs.gymnasium.construction import from_factory
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.vector_environment import AUTO, VectorOptions, environment_seeds, split
from proximo.errors import ConfigError, EnvError
from proximo.spaces import Box, Discrete, MultiBinary, MultiDiscrete

import gym_toys


class Slow(gym_toys.Countdown):
    """A step takes a millisecond."""

    def step(self, action):
        time.sleep(0.001)
        return super().step(action)


@pytest.mark.parametrize(
    ("seconds", "num_envs", "groups", "workers"),
    [
        (5e-6, 8, 1, 0),  # CartPole
        (30e-6, 16, 1, 4),  # LunarLander
        (30e-6, 2, 1, 0),  # messages take as long as both steps
        (1e-3, 3, 1, 3),  # at most one for each environment
        (1e-3, 3, 2, 2),  # equally many for each group
        (1e-3, 1, 1, 0),
    ],
)
def test_only_slow_environments_are_stepped_in_workers(monkeypatch, seconds, num_envs, groups, workers):
    monkeypatch.setattr(GymnasiumEnvironment, "step_seconds", lambda self: seconds)
    assert from_factory(gym_toys.Countdown, "toy", Preprocessing()).choose_workers(num_envs, groups, cores=4) == workers


def test_an_environment_that_cannot_be_pickled_is_not_stepped_in_workers_that_were_not_asked_for(monkeypatch):
    monkeypatch.setattr(GymnasiumEnvironment, "step_seconds", lambda self: 1e-3)
    lock, warned = threading.Lock(), []
    env = from_factory(lambda: (lock, gym_toys.Countdown())[1], "toy", Preprocessing())
    vector_env = env.open(4, 1, VectorOptions(cores=2, warn=warned.append), 1)
    assert vector_env.num_workers == 0
    assert "toy cannot be sent to a worker process" in warned[0]
    vector_env.close()


def test_a_step_is_measured(monkeypatch):
    monkeypatch.setattr(environment, "TRIAL_SECONDS", 0.05)
    assert 0.001 < from_factory(Slow, "toy", Preprocessing()).step_seconds() < 0.01


class Clock:
    """A clock that an environment moves, by what it computes and by what it waits for. Reading it takes 1 µs."""

    def __init__(self, monkeypatch):
        self.busy = self.waited = 0.0
        monkeypatch.setattr(environment.time, "perf_counter", lambda: self.compute(1e-6) + self.waited)
        monkeypatch.setattr(environment.time, "thread_time", lambda: self.busy)

    def compute(self, seconds):
        self.busy += seconds
        return self.busy

    def wait(self, seconds):
        self.waited += seconds


@pytest.mark.parametrize(
    ("at", "does", "seconds", "least", "most"),
    [
        ("step", "compute", 1e-3, 0.9e-3, 1.1e-3),
        ("step", "wait", 1e-3, 0.9e-3, 1.1e-3),
        ("reset", "compute", 4e-3, 0.7e-3, 0.9e-3),  # every fifth step is a reset
        ("reset", "wait", 4e-3, 0.5e-3, 0.9e-3),
        ("hundredth", "wait", 4e-3, 1e-6, 1.5e-5),  # the core is taken away for 4 ms in each hundredth step: 40 µs on average
        ("hundredth", "compute", 4e-3, 3e-5, 6e-5),
        ("step", "wait", 5.0, 5.0, 5.1),
    ],
)
def test_a_measured_step_includes_resets_and_waiting_but_no_interruptions(monkeypatch, at, does, seconds, least, most):
    clock, count = Clock(monkeypatch), itertools.count()

    class Timed(gym_toys.Countdown):
        def reset(self, **options):
            getattr(clock, does)(seconds if at == "reset" else 0.0)
            return super().reset(**options)

        def step(self, action):
            clock.compute(5e-6)
            getattr(clock, does)(seconds if at == "step" or (at == "hundredth" and next(count) % 100 == 0) else 0.0)
            return super().step(action)

    assert least < from_factory(Timed, "toy", Preprocessing()).step_seconds() < most


def test_description_says_whether_the_number_of_workers_was_measured(monkeypatch):
    monkeypatch.setattr(GymnasiumEnvironment, "choose_workers", lambda *_: 2)
    described = []
    for workers in (AUTO, 2):
        vector_env = from_factory(gym_toys.Countdown, "toy", Preprocessing()).open(
            2, 1, VectorOptions(num_workers=workers, cores=2)
        )
        described.append(vector_env.description)
        vector_env.close()
    assert described == [
        "in 2 worker processes (chosen by a measurement; num_workers sets their number)",
        "in 2 worker processes",
    ]


def test_a_slow_start_is_reported_with_its_limit(monkeypatch):
    class SlowToStart(gym_toys.Countdown):
        def __init__(self):
            super().__init__()
            time.sleep(0.25)

    monkeypatch.setattr(waiting_messages, "FIRST_SECONDS", 0.1)
    with pytest.warns(UserWarning, match=r"Still waiting for 1 environment of toy to start \(0\.1 s\)"):
        env = from_factory(SlowToStart, "toy", Preprocessing())
    for workers, message in ((0, r"(0.1 s)."), (1, r"(0.1 s; limit 70 s (reset_timeout)).")):
        messages = []
        env.open(2, 1, VectorOptions(num_workers=workers, reset_timeout=70.0, warn=messages.append)).close()
        assert messages[0] == f"Still waiting for 2 environments of toy to start {message}"
        assert 1 <= len(messages) < 8, "the pauses double"


def test_more_workers_than_cores_or_environments_are_answered():
    env, messages = from_factory(gym_toys.Countdown, "toy", Preprocessing()), []
    for cores in (2, 1):
        env.open(2, 1, VectorOptions(num_workers=2, cores=cores, warn=messages.append)).close()
    assert [message.partition(":")[0] for message in messages] == ["num_workers = 2 is more than the number of cores, 1"]
    with pytest.raises(
        ConfigError, match=r"num_workers = 3: expected at most num_envs = 2\. .* the number of environments is num_envs\."
    ):
        env.open(2, 1, VectorOptions(num_workers=3))


def test_a_worker_imports_no_jax():
    code = "import sys; import proximo.envs.gymnasium.worker; print('jax' in sys.modules, 'gymnasium' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split()[0] == "False"


@pytest.mark.parametrize(("n", "parts"), [(8, 3), (2, 2), (7, 7), (5, 1)])
def test_columns_are_split_into_contiguous_parts_of_similar_size(n, parts):
    pieces = split(range(n), parts)
    assert [i for piece in pieces for i in piece] == list(range(n))
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_seeds_follow_from_their_source_and_differ():
    assert environment_seeds(5, 3) == environment_seeds(5, 3)
    many = environment_seeds(200_000, 3)
    assert len(set(many)) == 200_000
    assert environment_seeds(5, 3) == many[:5]
    assert environment_seeds(5, 3)[:4] == environment_seeds(4, 3), "more environments change no seed"
    every = {seed for source in range(50) for seed in environment_seeds(8, source)}
    assert len(every) == 400
    assert max(every) < 2**31


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (Discrete(3, start=1), np.array([1, 4])),
        (MultiDiscrete((2, 3)), np.array([[0, 2], [2, 0]])),
        (MultiBinary((2,)), np.array([[0, 1], [2, 0]], np.int8)),
        (Box((1,), -1.0, 1.0), np.array([[0.5], [np.nan]], np.float32)),
        (Box((1,), -1.0, 1.0), np.array([[0.5], [1.5]], np.float32)),
    ],
)
def test_an_action_outside_its_space_raises_with_its_environment(space, wrong):
    check_actions(random_actions(space, np.random.default_rng(0), 50), space, "toy", 4)
    with pytest.raises(EnvError, match=r"for environment 5 of toy is not in its space"):
        check_actions(wrong, space, "toy", 4)


@pytest.mark.parametrize(
    ("space", "mask", "allowed"),
    [
        (Discrete(3, start=1), [0, 1, 0], {2}),
        (MultiDiscrete((2, 3)), [0, 1, 1, 0, 1], {(1, 0), (1, 2)}),
        (MultiBinary((2,)), [1, 0, 1, 1], {(0, 0), (0, 1)}),
        (Discrete(2), [0, 0], {0, 1}),
    ],
)
def test_random_actions_are_those_that_a_mask_allows(space, mask, allowed):
    rng = np.random.default_rng(0)
    drawn = [np.asarray(allowed_action(space, rng, np.array(mask))) for _ in range(60)]
    assert {tuple(a.tolist()) if a.ndim else int(a) for a in drawn} == allowed


def test_overlap_with_one_environment_raises():
    env = from_factory(functools.partial(gym_toys.Countdown, 3), "toy", Preprocessing())
    with pytest.raises(ConfigError, match="overlap = true needs at least 2 environments, num_envs is 1"):
        env.open(1, 4, VectorOptions(num_groups=2))
