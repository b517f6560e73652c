"""All three autoreset modes give the same learning problem as single environments."""

import functools
import itertools

import gymnasium as gym
import numpy as np
import pytest
from vector_envs import IN_PROCESS, MODES, in_process, lanes, opened, rollout, vectorized

from proximo.envs.gymnasium import stepper, vector_env_adapter
from proximo.envs.gymnasium.environment import from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.rollout_buffer import FAILURE, SUCCESS, UNREPORTED
from proximo.envs.gymnasium.stepper import environment_seeds
from proximo.envs.gymnasium.vector_env_adapter import final_observation
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.errors import EnvError

import gym_toys

still_walk = functools.partial(gym_toys.Walk, action_matters=False)


@pytest.fixture
def strict(monkeypatch):
    """Sets the number of first steps that are checked completely."""

    def set_steps(steps):
        for module in (vector_env_adapter, stepper):
            monkeypatch.setattr(module, "STRICT_STEPS", steps)

    return set_steps


def play(vector_env, steps, seed=3):
    """Return the ``lanes`` of a rollout, and the final observation of each truncated step."""
    vector_env.reset(seed)
    buffer = vector_env.buffer
    buffer.clear()
    finals = {}
    counts = np.zeros(buffer.reward.shape[1], int)
    for t in range(steps):
        buffer.action[t] = 0
        vector_env.send(t, 0)
        any_truncated = vector_env.receive(t, 0)
        assert any_truncated == bool(buffer.truncated[t].any())
        for i in np.flatnonzero(buffer.truncated[t]):
            finals[i, counts[i]] = buffer.final_observation[0][i].copy()
        counts += buffer.valid[t]
    return lanes(buffer), finals


@pytest.fixture(scope="module")
def reference():
    """Step single environments with the seeds ``seed, seed + 1, …`` that a Gymnasium ``VectorEnv`` gives its environments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            stepper, "environment_seeds", lambda num_envs, seed: [environment_seeds(1, seed)[0] + i for i in range(num_envs)]
        )
        return play(in_process(still_walk, num_steps=120), 120)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_transitions_of_single_environments(mode, reference):
    """Modes may differ in padding only. Next-step autoreset has padding after each end."""
    ours, our_finals = reference
    vector_env = vectorized(still_walk, mode, num_steps=120)
    theirs, their_finals = play(vector_env, 120)
    for lane, other in zip(ours, theirs, strict=True):
        count = min(len(lane), len(other))
        assert count > 80
        assert lane[:count] == other[:count]
    shared = our_finals.keys() & their_finals.keys()
    assert len(shared) > 5
    for key in shared:
        np.testing.assert_array_equal(our_finals[key], their_finals[key])
    buffer = vector_env.buffer
    done = buffer.terminated | buffer.truncated
    np.testing.assert_array_equal(buffer.valid[1:], ~done if mode == "NextStep" else np.ones_like(done))
    np.testing.assert_array_equal(buffer.episode_start[1:], ~buffer.valid[:-1] if mode == "NextStep" else done)
    assert (buffer.reward[~buffer.valid[:-1]] == 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_boundary_between_two_rollouts_loses_no_step(mode):
    whole = rollout(vectorized(still_walk, mode, num_steps=60))
    vector_env = vectorized(still_walk, mode, num_steps=4)
    pieces = [lanes(rollout(vector_env, reset=k == 0)) for k in range(15)]
    for i, lane in enumerate(lanes(whole)):
        assert lane == [row for piece in pieces for row in piece[i]]


@pytest.mark.parametrize("mode", [*MODES, IN_PROCESS])
def test_lost_lives_are_reported_in_every_mode(mode):
    buffer = rollout(opened(gym_toys.Lives, mode, 2, 26, life_loss=True))
    extra = 1 if mode == "NextStep" else 0  # the padding after the end of the game
    np.testing.assert_array_equal(np.flatnonzero(buffer.life_lost[:, 1]), [3, 7, 15 + extra, 19 + extra])
    np.testing.assert_array_equal(np.flatnonzero(buffer.terminated[:, 1]), [11, 23 + extra])


class Reports(gym_toys.Countdown):
    """Terminates in the step of its limit, and reports ``value`` as its success."""

    def step(self, action):
        observation, reward, done, _, _ = super().step(action)
        return observation, reward, done, done, {"success": self.value}


REPORTED = [
    *((value, UNREPORTED) for value in (None, float("nan"), "yes")),
    (np.array([True, False]), FAILURE),
    (np.ones(2), SUCCESS),
]


@pytest.mark.parametrize("mode", [*MODES, IN_PROCESS])
def test_end_at_the_limit_is_a_termination_with_its_success(mode):
    for value, expected in REPORTED:
        buffer = rollout(opened(gym_toys.altered(Reports, value=value), mode, 2, 20))
        assert buffer.terminated.any()
        assert not buffer.truncated.any()
        assert set(buffer.success[buffer.terminated].tolist()) == {expected}, value


GIVEN = [{"a": np.full(2, i), "b": (np.int64(i), np.full((3, 1), i))} for i in range(3)]
BATCH = {"a": np.stack([x["a"] for x in GIVEN]), "b": (np.arange(3), np.stack([x["b"][1] for x in GIVEN]))}
FORMS = (np.array(GIVEN, object), GIVEN, BATCH)


def test_final_observations_are_read_in_every_form():
    for form, (i, expected) in itertools.product(FORMS, enumerate(GIVEN)):
        np.testing.assert_equal(final_observation({"final_obs": form}, i), expected)
    assert final_observation({}, 0) is final_observation({"final_obs": None}, 0) is None


class Empty(gym_toys.InfoMask):
    """Step ``at`` allows no action, and neither does the last step of an episode, which no action follows."""

    def __init__(self, at):
        self.at = at

    def _mask(self):
        self.allowed = 0
        return {"action_mask": np.eye(4, dtype=np.int8)[0] * (self.now not in (self.at, self.length))}


@pytest.mark.parametrize("mode", [*MODES, IN_PROCESS])
def test_empty_mask_raises_until_the_episode_ends(mode, strict):
    strict(2)  # it also raises after the strict steps
    assert (rollout(opened(functools.partial(Empty, -1), mode)).terminated.sum(0) > 0).all()
    for at, call in ((3, "step"), (0, "reset")):
        sentence = rf"toy\.{call} of environment 0 \(seed \d+, .*\) returned an action_mask that allows no action"
        with pytest.raises(EnvError, match=sentence):
            rollout(opened(functools.partial(Empty, at), mode))


def empty_component(action_space, mask):
    """At step 3, the mask allows no choice of the second component, or no value of the second bit."""
    return gym_toys.altered(
        gym_toys.InfoMask,
        action_space=action_space,
        allowed=0,
        _mask=lambda self: {"action_mask": np.array(mask, np.int8) | (self.now != 3)},
        step=lambda self, action: gym_toys.InfoMask.step(self, 0),
    )


THREE = (gym.spaces.MultiDiscrete([2, 3, 1]), [1, 0, 0, 0, 0, 1])
BITS = (gym.spaces.MultiBinary(3), [0, 1, 0, 0, 1, 1])


@pytest.mark.parametrize(
    ("action_space", "mask", "mode", "steps"), [(*THREE, "SameStep", 2), (*THREE, IN_PROCESS, 1000), (*BITS, IN_PROCESS, 2)]
)
def test_mask_without_a_choice_of_one_component_raises(action_space, mask, mode, steps, strict):
    strict(steps)
    with pytest.raises(EnvError, match=r"toy\.step of environment 0 .* an action_mask that allows no action in component 1: at"):
        rollout(opened(empty_component(action_space, mask), mode))


class Forgetful(gym.vector.SyncVectorEnv):
    """A partial reset returns NaN for the environments that it does not reset. Rewards and flags are lists."""

    def __init__(self, num_envs):
        super().__init__([still_walk] * num_envs, autoreset_mode=gym.vector.AutoresetMode.DISABLED)

    def reset(self, *, seed=None, options=None):
        which = (options or {}).get("reset_mask")
        observation, info = super().reset(seed=seed, options=options)
        return observation if which is None else np.where(which[:, None], observation, np.nan), info

    def step(self, actions):
        observation, *values, info = super().step(actions)
        return observation, *(value.tolist() for value in values), info


def test_partial_reset_leaves_other_environments_unchanged(reference):
    theirs, _ = play(from_vector(Forgetful, "toy", Preprocessing()).open(3, 120, VectorOptions()), 120)
    assert theirs == reference[0]


class Late(gym.vector.VectorEnv):
    """Two environments that change one of the five values of their fifth step."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
    single_observation_space = gym.spaces.Dict(a=gym.spaces.Discrete(4), b=gym.spaces.Box(-9, 9, (), np.float32))
    single_action_space, num_envs = gym.spaces.Discrete(2), 2

    def __init__(self, place, value):
        self.place, self.value, self.steps = place, value, 0

    def reset(self, *, seed=None, options=None):
        return {"a": np.zeros(2, np.int64), "b": np.zeros(2, np.float32)}, {}

    def step(self, actions):
        self.steps += 1
        values = [self.reset()[0], np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {}]
        if self.steps == 5:
            values[self.place] = self.value
        return tuple(values)


B = np.zeros(2, np.float32)
WRONG = [
    (0, {"a": np.array([1, 4]), "b": B}, r"step of environment 1 \(seed \d+, 4 steps\) .*observation\['a'\] = 4: it is not in its"),
    (0, {"a": np.array([0.5, 1.0]), "b": B}, r"observation\['a'\] of float64"),
    (0, {"a": np.ones(1, np.int64), "b": B}, r"observation\['a'\] of shape \(1,\)"),
    (0, {"a": np.ones(2, np.int64)}, r"^toy\.step \(seed \d+, 4 steps\) returned an observation without \['b'\] \(dict\): its obs"),
    (1, np.ones(1), r"reward of shape \(1,\)"),
    (1, np.array(["1.5", "2"]), r"the reward .*1\.5"),
    (2, np.array(["False", "True"]), r"terminated = .*False"),
    (3, np.array([0, 1]), r"truncated = .*0"),
    (4, [{}, {}], r"list as info: expected a dict"),
]  # fmt: skip
STRICTLY = [
    (0, {"a": np.ones(2, np.int64), "b": np.full(2, np.nan, np.float32)}, r"environment 0 .*observation\['b'\] with NaN or"),
    (1, np.array([1.0, np.nan]), r"environment 1 .*returned the reward .*nan"),
]


@pytest.mark.parametrize(("steps", "wrong"), [(2, row) for row in WRONG] + [(1000, row) for row in WRONG[:4] + STRICTLY])
def test_values_of_vector_environments_are_checked_in_every_step(steps, wrong, strict):
    strict(steps)
    place, value, sentence = wrong
    vector_env = from_vector(lambda num_envs: Late(place, value), "toy", Preprocessing()).open(2, 5, VectorOptions())
    with pytest.raises(EnvError, match=sentence):
        rollout(vector_env)


def test_a_vector_environment_with_an_unknown_mode_is_refused_and_receives_no_action_outside_its_space():
    unknown = gym_toys.altered(Late, metadata={"autoreset_mode": "sometimes"})
    sentence = r"declares the autoreset mode 'sometimes': expected one of next_step, same_step, disabled"
    with pytest.raises(EnvError, match=sentence):
        from_vector(lambda num_envs: unknown(0, 0), "toy", Preprocessing())
    with pytest.raises(EnvError, match=r"^The action 9 for environment 0 of toy is not in its space Discrete"):
        rollout(vectorized(gym_toys.Walk, "NextStep"), actions=9)
