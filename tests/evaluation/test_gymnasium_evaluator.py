"""Whole episodes on Gymnasium environments: as many as were asked for, from every environment alike, in every autoreset mode."""

import functools

import gymnasium
import numpy as np
import pytest

import proximo
from proximo.config import Config, override
from proximo.envs.gymnasium import stepper, vector_env_adapter
from proximo.envs.gymnasium.environment import from_factory, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.evaluation.episodes import EVALUATION_STREAM, SELECTION_STREAM, Episodes
from proximo.evaluation.evaluators import make_evaluator
from proximo.evaluation.policy import Policy

import gym_toys
from helpers import REMEMBERING, drawn_policy, kill_first_worker

NONE = Preprocessing()


SMALL = {"id": "toy", "num_envs": 3, "hidden_sizes": (8,), "memory_size": 8, "num_workers": -1}


def evaluator_of(env, episodes, part=(0, 1), together=None, **settings):
    config = override(Config(), {**SMALL, **settings})
    return make_evaluator(env, config, episodes, together, part=part), drawn_policy(env, config)


def played(env, episodes, seed=0, stream=EVALUATION_STREAM, **settings):
    evaluator, policy = evaluator_of(env, episodes, **settings)
    try:
        return evaluator(policy, seed, stream)
    finally:
        evaluator.close()


@pytest.mark.parametrize("memory", ["none", "gru", "observing over episodes"])
def test_every_autoreset_mode_plays_the_same_episodes(memory):
    results = {
        mode: played(from_vector(functools.partial(gym_toys.CustomVector, mode=mode), "toy", NONE), 20, **REMEMBERING[memory])
        for mode in ("NextStep", "SameStep", "Disabled")
    }
    first = results.pop("SameStep")
    assert len(set(first.length)) > 3
    assert first.success is not None
    assert first.seed is None, "a vector environment is given one seed"
    for other in results.values():
        np.testing.assert_allclose(other.episode_return, first.episode_return, atol=1e-5)
        np.testing.assert_array_equal(other.length, first.length)
        np.testing.assert_array_equal(other.success, first.success)


Echo = gym_toys.altered(
    gym_toys.Unbased,
    action_space=gymnasium.spaces.Box(-10, 10, (1,)),
    step=lambda self, action: gym_toys.Unbased.step(self, action[0]),
)
"""Every episode is the same but for what the policy does: the reward is its action."""


@pytest.mark.parametrize("reset_memory", [True, False])
def test_memory_resets_at_episode_starts_unless_carried_over_and_does_not_change_in_a_lost_step(reset_memory):
    """A worker that is lost in the first step does not change the evaluation, because all episodes are equal."""
    env, settings = (
        from_factory(Echo, "toy", NONE),
        {"memory": "gru", "reset_memory": reset_memory, "normalize_observation": False},
    )
    evaluator, policy = evaluator_of(env, 3, num_envs=1, num_workers=1 - reset_memory, **settings)
    result, sampled = evaluator(policy, 0, 0), evaluator(policy, 0, 0, deterministic=False)
    assert (sampled.episode_return != result.episode_return).all()
    steps = np.abs(np.diff(result.episode_return))
    assert (steps < 1e-6).all() == reset_memory
    assert (steps > 1e-4).any() != reset_memory
    if not reset_memory:
        vector_env = evaluator.environments.open()
        kill_first_worker(vector_env, [0])
        disturbed = evaluator(policy, 0, 0)
        assert vector_env.restarts == 1
        np.testing.assert_array_equal(disturbed.episode_return, result.episode_return)
    evaluator.close()


def test_carried_memory_observes_the_last_reward_of_every_episode():
    """As by ``Policy.predict``, in environments whose episodes have one, two and three steps."""

    class Short(gymnasium.Env):
        observation_space, action_space = Echo.observation_space, Echo.action_space

        def reset(self, *, seed=None, options=None):
            return Echo.reset(self)

        def step(self, action):
            observation, reward, *_ = Echo.step(self, action)
            return observation, reward, self.now == self.length, False, {}

    def make(num_envs):
        return gymnasium.vector.SyncVectorEnv([gym_toys.altered(Short, length=1 + i) for i in range(num_envs)])

    env = from_vector(make, "toy", NONE)
    evaluator, network = evaluator_of(env, 9, **REMEMBERING["observing over episodes"])
    evaluated = evaluator(network, 0, EVALUATION_STREAM).episode_return
    evaluator.close()
    policy, expected = Policy(network, env, evaluator.config, step=0), []
    for length in (1, 2, 3):
        memory, reward = policy.init_memory(), 0.0
        for _ in range(3):
            expected.append(0.0)
            for now in range(length):
                action, memory = policy.predict(np.array([now / 4]), memory, now == 0, reward=reward)
                reward = float(action[0])
                expected[-1] += reward
    np.testing.assert_allclose(evaluated, expected, rtol=1e-4, atol=1e-5)


def test_streams_and_seeds_play_different_episodes():
    env = from_factory(gym_toys.Walk, "toy", NONE)
    places = (0, SELECTION_STREAM), (0, EVALUATION_STREAM), (1, EVALUATION_STREAM)
    runs = [played(env, 6, *place, num_workers=0) for place in places]
    assert len({run.episode_return.tobytes() for run in runs}) == 3
    evaluator, policy = evaluator_of(env, 6, num_workers=0)
    sampled, greedy = (evaluator(policy, 0, EVALUATION_STREAM, is_greedy) for is_greedy in (False, True))
    evaluator.close()
    np.testing.assert_array_equal(greedy.episode_return, runs[1].episode_return)  # also after other episodes
    assert greedy.seed == sampled.seed == runs[1].seed
    np.testing.assert_array_equal(greedy.length, sampled.length)  # this walk's episodes depend on the seed alone


class Told(gym_toys.Unbased):
    """The return of its one-step episodes is the seed of their reset; -1 for one without."""

    def reset(self, seed=None):
        self.told = -1.0 if seed is None else float(seed % 1000)
        return super().reset()

    def step(self, action):
        return super().step(action)[0], self.told, True, False, {}


@pytest.mark.parametrize("workers", [0, 2])
def test_seeds_of_first_episodes_and_level_of_every_episode_are_reported(workers):
    result = played(from_factory(Told, "toy", NONE), 8, num_workers=workers)
    assert sum(seed is not None for seed in result.seed) == 3, "of each environment"
    assert result.episode_return.tolist() == [-1 if seed is None else seed % 1000 for seed in result.seed]
    assert result.level is None
    levels = played(from_factory(Told, "toy", Preprocessing(levels="100:140")), 20, num_workers=workers, levels="100:140")
    assert levels.level == [int(x) for x in levels.episode_return]
    assert len(set(levels.level)) > 5


@pytest.mark.parametrize("reset_memory", [True, False])
def test_first_episodes_of_all_environments_come_first_unless_memory_is_kept(reset_memory):
    env = from_factory(Told, "toy", NONE)
    whole = played(env, 8, num_workers=0, memory="gru", reset_memory=reset_memory)
    seeded = [seed is not None for seed in whole.seed]
    assert seeded == ([True] * 3 + [False] * 5 if reset_memory else [True, False, False] * 2 + [True, False])
    parts = [played(env, 8, part=(i, 2), num_workers=0, memory="gru", reset_memory=reset_memory) for i in range(2)]
    joined = Episodes.from_rows([row for part in parts for row in part.rows()], 0)
    assert joined.seed == whole.seed
    np.testing.assert_array_equal(joined.episode_return, whole.episode_return)


@pytest.mark.parametrize(("asked", "together", "episodes"), [(None, 3, 20), (16, 16, 20), (64, 20, 20), (0, 7, 7)])
def test_requested_number_of_environments_plays_together(asked, together, episodes):
    env = from_factory(functools.partial(gym_toys.Countdown, 5), "toy", NONE)
    evaluator, policy = evaluator_of(env, episodes, together=asked, num_workers=0)
    assert evaluator.num_envs == together
    result = evaluator(policy, 0, EVALUATION_STREAM)
    np.testing.assert_array_equal(result.length, np.full(episodes, 5))
    assert (result.success, result.unfinished) == (None, 0)
    evaluator.close()


def test_episodes_that_cannot_be_played_are_a_warning():
    agent = proximo.PPO(functools.partial(gym_toys.Countdown, 10**9), preset=False, num_workers=0, eval_max_steps=20, verbose=0)
    result = agent.evaluate(7, num_envs=3)
    assert (result.length.tolist(), result.unfinished) == ([20, 20, 20], 3)
    assert result.warnings == (
        "3 greedy episodes did not end: their returns so far are counted.",
        "4 of 7 greedy episodes were not played: an environment whose episode does not end plays no other one. Set max_episode_steps.",
    )


class Spoiled(gymnasium.Env):
    """Every second episode returns NaN or infinity in an observation, with another entry that is fine."""

    observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(3), b=gymnasium.spaces.Box(-1, 1, (2, 2)))
    action_space = gymnasium.spaces.Discrete(2)
    value, now, episode = np.nan, 0, -1

    def seen(self):
        wrong = self.value if self.episode % 2 and self.now == 2 else 0
        return {"a": 1, "b": np.array([[0, 0], [wrong, 0]], np.float32)}

    def reset(self, *, seed=None, options=None):
        self.now, self.episode = 0, self.episode + 1
        return self.seen(), {}

    def step(self, action):
        self.now += 1
        return self.seen(), 1.0, self.now == 4, False, {}


@pytest.mark.parametrize(("mode", "value"), [("NextStep", np.nan), ("SameStep", np.inf), ("in process", np.nan)])
def test_only_episodes_with_nan_or_infinity_have_the_return_nan(value, mode, monkeypatch):
    for module in (stepper, vector_env_adapter):
        monkeypatch.setattr(module, "STRICT_STEPS", 1)
    make = gym_toys.altered(Spoiled, value=value)
    if mode == "in process":
        env = from_factory(make, "toy", NONE)
    else:
        env = from_vector(lambda n: gymnasium.vector.SyncVectorEnv([make] * n, autoreset_mode=mode), "toy", NONE)
    result = played(env, 6, num_envs=2, num_workers=0 if mode == "in process" else -1)
    assert sorted(result.episode_return[np.isfinite(result.episode_return)]) == [4.0] * 4
    assert np.isnan(result.episode_return).sum() == 2
