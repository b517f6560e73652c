"""Choice of the number of workers, seeds, actions, and options of Gymnasium environments."""

import threading
import time

import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.gymnasium import environment, vector_environment
from proximo.envs.gymnasium.environment import from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.stepper import environment_seeds
from proximo.envs.gymnasium.transition_checks import check_actions
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.errors import ConfigError, EnvError
from proximo.spaces import Box, Discrete, MultiBinary, MultiDiscrete, allowed_action, random_actions

import gym_toys


@pytest.mark.parametrize(
    ("num_envs", "groups", "cores", "workers"),
    [(8, 1, 4, 4), (3, 1, 4, 3), (3, 2, 4, 2), (1, 1, 4, 0), (8, 1, 1, 0), (2, 2, 1, 0)],
)
def test_there_is_one_worker_for_each_core_and_not_more_than_environments(num_envs, groups, cores, workers):
    env = from_factory(gym_toys.Countdown, "toy", Preprocessing())
    assert env.default_workers(num_envs, groups, cores) == workers
    assert make_env("Pendulum-v1").default_workers(num_envs, groups, cores) == 0, "it steps in microseconds"


def test_an_environment_that_cannot_be_pickled_is_not_stepped_in_workers_that_were_not_asked_for():
    lock, warned = threading.Lock(), []
    env = from_factory(lambda: (lock, gym_toys.Countdown())[1], "toy", Preprocessing())
    vector_env = env.open(4, 1, VectorOptions(cores=2, warn=warned.append))
    assert vector_env.num_workers == 0
    assert "toy cannot be sent to a worker process" in warned[0]
    vector_env.close()


def test_a_slow_start_is_reported_with_its_limit(monkeypatch):
    class SlowToStart(gym_toys.Countdown):
        def __init__(self):
            super().__init__()
            time.sleep(0.25)

    monkeypatch.setattr(vector_environment, "PATIENCE", 0.1)
    with pytest.warns(UserWarning, match=r"Still waiting for 1 environment of toy to start \(0\.1 s\)"):
        env = from_factory(SlowToStart, "toy", Preprocessing())
    for workers, message in ((0, r"(0.1 s)."), (1, r"(0.1 s; limit 70 s (ten times step_timeout)).")):
        messages = []
        env.open(2, 1, VectorOptions(num_workers=workers, step_timeout=7.0, warn=messages.append)).close()
        assert messages == [f"Still waiting for 2 environments of toy to start {message}"]


def test_more_workers_than_cores_or_environments_are_answered(monkeypatch):
    env, messages = from_factory(gym_toys.Countdown, "toy", Preprocessing()), []
    for cores in (2, 1):
        env.open(2, 1, VectorOptions(num_workers=2, cores=cores, warn=messages.append)).close()
    assert [message.partition(":")[0] for message in messages] == ["num_workers = 2 is more than the number of cores, 1"]
    few = r"num_workers = 3: expected at most num_envs = 2\. .* the number of environments is num_envs\."
    for posix, num_envs, options, sentence in (
        (True, 1, {"num_groups": 2}, r"overlap = true needs at least 2 environments, num_envs is 1"),
        (True, 2, {"num_workers": 3}, few),
        (False, 2, {"num_workers": 2}, r"num_workers = 2: workers need Linux or macOS\. Set num_workers = 0\.$"),
    ):
        monkeypatch.setattr(environment, "POSIX", posix)
        with pytest.raises(ConfigError, match=sentence):
            env.open(num_envs, 1, VectorOptions(**options))


def test_seeds_follow_from_their_source_and_differ():
    many = environment_seeds(200_000, 3)
    assert len(set(many)) == 200_000
    assert environment_seeds(5, 3) == many[:5], "more environments change no seed"
    every = {seed for source in range(50) for seed in environment_seeds(8, source)}
    assert len(every) == 400
    assert max(every) < 2**31


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (Discrete(3, start=1), np.array([1, 4])),
        (MultiDiscrete((2, 3)), np.array([[0, 2], [2, 0]])),
        (MultiBinary((2,)), np.array([[0, 1], [2, 0]], np.int8)),
        *((Box((1,), -1.0, 1.0), np.array([[0.5], [x]], np.float32)) for x in (np.nan, 1.5)),
        (Box((1,)), np.array([[0.5], [np.inf]], np.float32)),
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
