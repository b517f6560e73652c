"""An action mask in the info or from a method becomes an entry of the observation."""

import gymnasium as gym
import numpy as np
import pytest
from vector_envs import rollout

from proximo.envs.gymnasium.action_masks import flat_mask, info_rows, mask_size
from proximo.envs.gymnasium.environment import from_factory, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.errors import EnvError
from proximo.spaces import Box, Dict, MultiBinary

import gym_toys

Masker = gym_toys.altered(gym.Wrapper, action_masks=lambda self: np.eye(4)[self.unwrapped.allowed])
"""As sb3-contrib's ``ActionMasker``: the wrapper has the method."""
Quiet = gym_toys.altered(gym_toys.MethodMask, action_masks=None)


class Unbased:
    """``MethodMask`` without the base class."""

    observation_space, action_space = gym_toys.MethodMask.observation_space, gym_toys.MethodMask.action_space

    def __init__(self):
        self.env = gym_toys.MethodMask()

    def __getattr__(self, name):
        return getattr(self.env, name)


@pytest.mark.parametrize(
    "make", [gym_toys.InfoMask, gym_toys.MethodMask, Unbased, lambda: Masker(gym.wrappers.TransformReward(Quiet(), abs))]
)
def test_mask_becomes_an_entry_of_the_observation(make):
    env = from_factory(make, "toy", Preprocessing())
    assert env.observation_space == Dict((("observation", Box((2,), 0.0, 9.0)), ("action_mask", MultiBinary((4,)))))
    one = env.make()
    observation, _ = one.reset(seed=0)
    for _ in range(3):
        allowed = one.unwrapped.inner.allowed if make is Unbased else one.unwrapped.allowed
        np.testing.assert_array_equal(observation["action_mask"], np.eye(4)[allowed])
        observation = one.step(allowed)[0]


def of(make, kind=gym.vector.SyncVectorEnv):
    """An environment of vector environments of ``make``."""
    return from_vector(lambda num_envs: kind([make] * num_envs), "toy", Preprocessing())


@pytest.mark.parametrize("kind", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
def test_vector_environment_calls_the_method_of_its_environments(kind):
    made = of(gym_toys.MethodMask, lambda envs: gym.wrappers.vector.RecordEpisodeStatistics(kind(envs))).make_vector(3)
    observation, _ = made.reset(seed=0)
    assert (observation["action_mask"].sum(1) == 1).all()
    later, *_ = made.step(observation["action_mask"].argmax(1))  # raises for a forbidden action
    assert later["action_mask"].shape == (3, 4)
    made.close()


def test_environment_without_a_mask_has_none():
    one, vector = gym_toys.Walk(), gym.vector.AsyncVectorEnv([gym_toys.Walk] * 2)
    holding = gym_toys.Walk()
    holding.env = gym_toys.MethodMask()  # an attribute of a plain environment, which is no wrapper
    assert mask_size(one, {}) == mask_size(vector, {}) == mask_size(holding, {}) == 0
    vector.reset(seed=0)
    vector.step(np.zeros(2, int))  # its workers are alive
    vector.close()


class OnlyAtReset(gym_toys.InfoMask):
    def step(self, action):
        return *super().step(self.allowed)[:4], {}


class OnlyInSteps(gym_toys.Countdown):
    def step(self, action):
        return *super().step(action)[:4], {"action_mask": np.ones(2, np.int8)}


class InLists(gym.vector.SyncVectorEnv):
    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        return observation, list(reward), *rest


MISSING = r"^toy\.step returned no action_mask in its info, but its first reset did: return one at every reset and step\.$"


@pytest.mark.parametrize(
    ("make", "sentence"), [(OnlyAtReset, MISSING), (OnlyInSteps, r"^toy\.step .*its first reset returned none")]
)
def test_mask_that_is_sometimes_missing_raises(make, sentence):
    for env in (from_factory(make, "toy", Preprocessing()), of(make), of(make, InLists)):
        with pytest.raises(EnvError, match=sentence):
            rollout(env.open(1, 3, VectorOptions()))


def test_mask_is_flattened_or_refused():
    np.testing.assert_array_equal(flat_mask((np.array([1, 0]), np.array([True, False, True]))), [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(flat_mask([0.5, 0.0, -1.0, 256]), [1, 0, 1, 1])
    for function, mask, found in (
        (flat_mask, np.array([1.0, np.nan]), ".*nan"),
        (info_rows, np.array([[1.0, np.inf]]), ".*inf"),
        (info_rows, (np.eye(2), np.full((2, 1), np.nan)), ".*nan"),
        (flat_mask, None, "None: expected a number for each choice, other than 0 if it is allowed"),
    ):
        with pytest.raises(EnvError, match=f"The action mask is {found}"):
            function(mask)
