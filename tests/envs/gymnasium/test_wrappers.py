"""Wrappers of Gymnasium environments."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from vector_envs import in_process, rollout

from proximo.collect.environment import preprocessing_of
from proximo.config import Config, override
from proximo.envs.gymnasium.environment import from_factory
from proximo.envs.gymnasium.preprocessing import ActionRepeat, Preprocessing
from proximo.envs.gymnasium.registered_ids import from_id
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.errors import ConfigError, EnvError
from proximo.spaces import Box, allowed_action, leaves

import gym_toys


def test_stacked_frames_are_repeated_at_the_start_of_an_episode():
    buffer = rollout(in_process(functools.partial(gym_toys.Countdown, 4), 1, 6, frame_stack=3))
    expected = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 0], [0, 0, 1], [0, 1, 2]]
    np.testing.assert_array_equal(buffer.observation[0][:, 0, :, 0] * 4, expected)


class Whole(gym_toys.InfoMask):
    """Writes all observations, of int64, into one array. ``dtype`` is the type of its space."""

    def __init__(self, dtype):
        self.observation_space, self.array = gym.spaces.Box(0, 127, (2,), dtype), np.zeros(2, np.int64)

    def _observation(self):
        self.array[:] = (self.now > 0) * (self.now + 100), self.now * 40
        return self.array

    def _mask(self):
        self.allowed = 0
        return {}


@pytest.mark.parametrize(("dtype", "frames"), [(np.uint8, 1), (np.float32, 2), (np.int8, 1), (np.int8, 2)])
def test_stacked_observations_are_copied_and_checked_as_others_are(dtype, frames):
    vector_env = in_process(functools.partial(Whole, dtype), 1, 4, frame_stack=frames)
    if dtype == np.int8:
        with pytest.raises(EnvError, match=r"observation = \[104 160\]: it does not fit into int8"):
            rollout(vector_env)
        return
    stored = rollout(vector_env).observation[0][4, 0].reshape(frames, 2)
    assert stored[:, 1].tolist() == [40 * t for t in range(5 - frames, 5)]


def test_a_reset_without_options_is_enough_unless_a_wrapper_passes_them():
    reset = gym_toys.InfoMask.reset
    without = gym_toys.altered(gym_toys.InfoMask, reset=lambda self, seed=None: reset(self, seed=seed))
    buffer = rollout_of_allowed(Preprocessing(levels="0:3"), without, 20)
    assert (buffer.terminated | buffer.truncated).any()
    with pytest.raises(TypeError, match="unexpected keyword argument 'options'"):
        from_factory(without, "toy", Preprocessing(frame_stack=2))


def test_an_action_is_repeated_until_the_end_summing_rewards_that_are_checked():
    env = ActionRepeat(gym_toys.Countdown(5), 3)
    env.reset(seed=0)
    assert [env.step(1)[1:3] for _ in range(2)] == [(3.0, False), (2.0, True)]
    for reward in ("2", None, np.array([2.0]), np.nan):
        env = ActionRepeat(gym.wrappers.TransformReward(gym_toys.Countdown(), lambda _, reward=reward: reward), 2)
        env.reset(seed=0)
        with pytest.raises(EnvError, match=r"a repeated step returned the reward .*: expected a"):
            env.step(0)


class Tiring(gym_toys.Walk):
    """The mask forbids all components of an action that was taken twice in a row. A forbidden action raises."""

    where = "info"

    def _masked(self, observation):
        observation = {"walk": observation, "action_mask": self.mask} if self.where == "observation" else observation
        return observation, {"action_mask": self.mask} if self.where == "info" else {}

    def reset(self, *, seed=None, options=None):
        self.before, self.mask = None, np.ones(self.entries, np.int8)
        return self._masked(super().reset(seed=seed)[0])

    def step(self, action):
        taken = self.offsets + np.ravel(action) - np.ravel(getattr(self.action_space, "start", 0))
        assert self.mask[taken].all(), "a masked action was taken"
        self.mask = np.ones(self.entries, np.int8)
        if self.before is not None and (taken == self.before).all():
            self.mask[taken] = 0
        self.before = taken
        observation, _, terminated, truncated, _ = super().step(0)
        observation, info = self._masked(observation)
        return observation, 1.0, terminated, truncated, info


KINDS = {
    "info": (gym.spaces.Discrete(4, start=2), 4, np.zeros(1, int)),
    "observation": (gym.spaces.MultiDiscrete([3, 2], start=[1, 0]), 5, np.array([0, 3])),
    "method": (gym.spaces.MultiBinary(2), 4, np.array([0, 2])),
}


@pytest.mark.parametrize("where", KINDS)
def test_action_repeat_stops_when_the_mask_forbids_the_action(where):
    """The environment raises for a forbidden action. Each action is allowed twice in a row."""
    space, entries, offsets = KINDS[where]
    toy = gym_toys.altered(Tiring, action_space=space, entries=entries, offsets=offsets, where=where)
    if where == "method":
        toy.action_masks = lambda self: self.mask.astype(bool)
    if where == "observation":
        toy.observation_space = gym.spaces.Dict(walk=toy.observation_space, action_mask=gym.spaces.MultiBinary(entries))
    buffer = rollout_of_allowed(Preprocessing(action_repeat=3), toy, 60)
    ended = buffer.terminated | buffer.truncated
    assert (ended.sum(0) > 5).all()
    assert set(buffer.reward[~ended]) == {2.0}


def rollout_of_allowed(preprocessing, make, steps):
    """Take ``steps`` random steps of three environments, with actions that their masks allow."""
    env = from_factory(make, "toy", preprocessing)
    vector_env = env.open(3, steps, VectorOptions(num_workers=0))
    buffer, rng = vector_env.buffer, np.random.default_rng(0)
    masks = buffer.observation[[leaf.path[-1] for leaf in leaves(env.observation_space)].index("action_mask")]
    vector_env.reset(0)
    for t in range(steps):
        buffer.action[t] = [allowed_action(env.action_space, rng, mask) for mask in masks[t]]
        vector_env.receive(t, 0)
    return buffer


@pytest.mark.parametrize(("env_id", "probability"), [("ALE/Breakout-v5", 0.25), ("PongNoFrameskip-v4", 0.0)])
def test_atari_preprocessing_gives_small_gray_images_and_keeps_sticky_actions_and_lives(env_id, probability):
    gym.register_envs(pytest.importorskip("ale_py"))
    pytest.importorskip("cv2")
    env = from_id(env_id, {}, Preprocessing(preprocessing="atari", frame_stack=4, life_loss=True))
    assert env.observation_space == Box((4, 84, 84), 0.0, 255.0, "uint8")
    one = env.make()
    first, info = one.reset(seed=0)
    assert info["lives"] == (5 if "Breakout" in env_id else 0)
    assert first.dtype == np.uint8
    assert first.max() > 50
    assert one.unwrapped._frameskip == 1, "frames are skipped once"
    assert one.unwrapped.ale.getFloat("repeat_action_probability") == probability
    one.close()


class Weighted(gym.Wrapper):
    """Multiplies the reward by the sum of ``weight``, which must be an array."""

    def __init__(self, env, weight: np.ndarray, offset=0.0):
        super().__init__(env)
        self.factor, self.offset = weight.sum(), offset

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, self.factor * reward + self.offset, *rest


def not_a_wrapper(*_):
    raise AssertionError("called")


Unrelated = type("Unrelated", (), {"__init__": not_a_wrapper})


def made(*wrappers, cls=gym_toys.Countdown, **settings):
    """One environment with the setting ``wrappers``."""
    config = override(Config(), {"wrappers": wrappers, **settings})
    return from_factory(cls, "toy", preprocessing_of(config)).make()


def test_the_first_wrapper_is_the_innermost():
    names = ["test_wrappers:Weighted(weight=[2, 1])", "test_wrappers:Weighted(weight=(0.5, 0), offset=1)"]
    for order, reward in ((1, 1 * 3 * 0.5 + 1), (-1, (1 * 0.5 + 1) * 3)):
        env = made(*names[::order])
        env.reset(seed=0)
        assert env.step(0)[1] == reward


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("test_wrappers:Unrelated", r"^wrappers = test_wrappers:Unrelated: expected a subclass of gymnasium.Wrapper\.$"),
        ("test_wrappers:not_a_wrapper", r"expected a subclass of gymnasium.Wrapper"),
        ("test_wrappers:Weigted", r"test_wrappers has no such name \(did you mean 'Weighted'\?\)"),
        ("gymnasium.vector:VectorWrapper", r"expected a subclass of gymnasium.Wrapper"),
        ("subprocess:Popen(args=[touch, evil])", r"'subprocess' is a part of Python or a program"),
        ("no_such_module:Wrap", r"there is no module 'no_such_module'"),
        ("test_wrappers:Weighted", r"which is Weighted\(env, weight: numpy.ndarray, offset=0.0\), raised TypeError: .*'weight'"),
        ("test_wrappers:Weighted(weigth=[1])", r"raised TypeError: .*unexpected keyword argument 'weigth'"),
        ("Weighted", r"^wrappers = 'Weighted': expected my_package.module:MyWrapper or my_package.module:MyWrapper\(name=value"),
        ("test_wrappers:Weighted(3)", r"expected my_package.module:MyWrapper or"),
        ("test_wrappers:Weighted(weight=[1)", r"expected my_package.module:MyWrapper or"),
        ("<__main__.Weighted>", r"Wrappers with other arguments need Python: pass a function"),
    ],
)
def test_only_wrappers_are_called(wrapper, message):
    with pytest.raises(ConfigError, match=message):
        made(wrapper)


class Labelled(gym_toys.Parts):
    """``Parts`` with a text, and with a text inside a Tuple."""

    text = gym.spaces.Text(9)
    observation_space = gym.spaces.Dict(
        {**gym_toys.Parts.observation_space.spaces, "label": text, "pair": gym.spaces.Tuple((text, Discrete(3)))}
    )

    def _observation(self):
        return {**super()._observation(), "label": "go", "pair": ("there", 2)}


def test_entries_of_observations_are_dropped():
    env = made(cls=Labelled, drop_observations="label,pair.0,camera")
    observation, _ = env.reset(seed=0)
    assert sorted(observation) == sorted(env.observation_space) == ["action_mask", "dials", "doors", "gear", "pair", "pose"]
    assert observation["pair"] == (2,)
    assert env.observation_space["pair"] == gym.spaces.Tuple([Discrete(3)])
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize(
    ("cls", "dropped", "error", "message"),
    [
        (Labelled, "none", EnvError, r"at \['label'\] Text.*drop_observations = label leaves it out"),
        (Labelled, "label", EnvError, r"at \['pair'\]\[0\] Text.*drop_observations = pair.0 leaves it out"),
        (Labelled, "label,pair,lable", ConfigError, r"^drop_observations = lable: toy has no such observation: Dict\("),
        (gym_toys.Countdown, "label", ConfigError, r"^drop_observations = label: .* no such observation: Box\("),
    ],
)
def test_unreadable_and_unknown_entries_are_named(cls, dropped, error, message):
    with pytest.raises(error, match=message):
        made(cls=cls, drop_observations=dropped)
