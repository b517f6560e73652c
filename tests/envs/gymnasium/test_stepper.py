"""Single environments in one process: ends, time limits, lost lives, and errors of faulty environments."""

import functools
import re

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.spaces import Dict as DictSpace
from vector_envs import in_process, rollout

from proximo.envs.gymnasium import stepper
from proximo.envs.gymnasium.rollout_buffer import FAILURE, SUCCESS, UNREPORTED
from proximo.envs.gymnasium.transition_checks import check_observation, make_quick_check
from proximo.errors import EnvError, EnvironmentFault
from proximo.spaces import from_any, leaves

import gym_toys


def countdown(length, steps=12, envs=2, truncate=False, **options):
    """A rollout of ``Countdown`` with the action 1."""
    make = functools.partial(gym_toys.Countdown, length, truncate)
    return rollout(in_process(make, num_envs=envs, num_steps=steps, **options), np.ones((steps, envs), np.int64))


def test_an_ended_episode_is_reset_in_the_same_step_and_a_truncated_one_leaves_its_true_final_observation():
    buffer, ends = countdown(5), np.zeros((12, 2), bool)
    ends[[4, 9]] = True
    np.testing.assert_array_equal(buffer.terminated, ends)
    assert not buffer.truncated.any()
    np.testing.assert_array_equal(buffer.episode_start[1:], ends)
    np.testing.assert_array_equal(buffer.observation[0][5], np.zeros((2, 2)), "the first observation of the next episode")
    assert buffer.episode_start[0].all()
    buffer = countdown(5, steps=5, truncate=True)
    assert buffer.truncated[4].all()
    np.testing.assert_array_equal(buffer.final_observation[0], np.ones((2, 2)))


def test_max_episode_steps_truncates_unless_the_step_terminates():
    for length in (5, 3):
        buffer = countdown(length, max_episode_steps=3)
        ends, others = (buffer.truncated, buffer.terminated)[:: 1 if length > 3 else -1]
        assert np.flatnonzero(ends[:, 0]).tolist() == [2, 5, 8, 11]
        assert not others.any()


def test_a_staggered_start_cuts_first_episodes_only():
    buffer = countdown(50, steps=40, envs=6, stagger=20)
    cuts = [np.flatnonzero(buffer.truncated[:, i]) for i in range(6)]
    assert all(len(cut) == 1 and cut[0] < 20 for cut in cuts)
    assert len({int(cut[0]) for cut in cuts}) > 2


def test_success_is_read_where_an_episode_ends():
    buffer = rollout(in_process(gym_toys.Walk, num_steps=200), np.zeros((200, 3), np.int64))
    done = buffer.terminated | buffer.truncated
    assert set(np.unique(buffer.success[done])) == {FAILURE, SUCCESS}
    assert (buffer.success[~done] == UNREPORTED).all()


def test_seeds_are_reproducible_distinct_and_independent_of_the_groups():
    def seen(seed, groups=1):
        return rollout(in_process(gym_toys.Walk, 4, 30, groups), np.zeros((30, 4), np.int64), seed).observation[0].copy()

    one = seen(5)
    np.testing.assert_array_equal(one, seen(5, groups=2))
    assert not np.array_equal(one, seen(6))
    assert len(np.unique(one[0, :, 2])) == 4, "no two environments share a stream"


def test_dict_observations_are_stored_by_leaf_in_jax_order():
    vector_env = in_process(gym_toys.Parts, num_envs=2, num_steps=3)
    vector_env.reset(0)
    shapes = [leaf.shape[2:] for leaf in vector_env.buffer.observation]
    assert shapes == [(5,), (40, 40, 3), (2,), (2,), (), (3,)], "action_mask camera dials doors gear pose"
    assert vector_env.buffer.observation[1].dtype == np.uint8


def test_an_error_names_environment_seed_and_step_with_its_traceback():
    vector_env = in_process(functools.partial(gym_toys.Misbehaving, "raise"), num_envs=2, num_steps=10)
    with pytest.raises(EnvironmentFault) as caught:
        rollout(vector_env, np.zeros((10, 2), np.int64))
    message, where = str(caught.value), r"\(seed \d+, step 1 of its episode, 6 since the start\)"
    assert re.match(rf"toy.step of environment 0 {where} raised ZeroDivisionError: the pole has", message)
    assert 'raise ZeroDivisionError("the pole has fallen off")' in message, "the line of the environment"
    assert "stepper.py" not in message, "the lines before it are proximo's"


class Gives(gym_toys.Walk):
    """Returns the given ``observation`` or ``rest`` (reward, terminated, truncated and optionally info) in its fifth step or in the reset after it."""

    def __init__(self, space, usual, wrong=None, rest=(1.0, False, False), call="step"):
        super().__init__()
        self.observation_space, self.usual, self.wrong, self.call = space, usual, wrong, call
        self.rest = rest if len(rest) == 4 else (*rest, {})
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        return self.wrong if self.call == "reset" and self.steps >= 5 else self.usual, {}

    def step(self, action):
        self.steps += 1
        if self.steps % 5:
            return self.usual, 1.0, False, False, {}
        observation = self.usual if self.wrong is None or self.call == "reset" else self.wrong
        return observation, self.rest[0], self.rest[1] if self.call == "step" else True, *self.rest[2:]


BYTES, FLOATS = Box(0, 255, (3,), np.uint8), Box(-9, 9, (3,), np.float32)
WRONG = {
    "discrete": (Discrete(4), 1, 4, r"observation = 4: it is not in its space"),
    "below": (Discrete(4, start=2), np.int64(2), np.int64(1), r"observation = 1: it is not"),
    "float of discrete": (Discrete(4), 1, 1.5, r"observation of float64: its space"),
    "choices": (MultiDiscrete([2, 3]), np.array([1, 2]), np.array([2, 1]), r"observation = \[2 1\]: it is not"),
    "floats in bytes": (BYTES, np.zeros(3, np.uint8), np.full(3, 0.5, np.float32), r"observation of float32: .* expected uint8"),
    "300 in bytes": (BYTES, np.zeros(3, np.uint8), np.array([1, 300, 2]), r"does not fit into uint8"),
    "-1 in bytes": (BYTES, [0, 0, 0], [0, -1, 0], r"does not fit into uint8"),
    "-1 of int8 in bytes": (BYTES, np.zeros(3, np.int8), np.array([0, -1, 0], np.int8), r"does not fit into uint8"),
    "200 in int8": (Box(-9, 9, (1,), np.int8), np.zeros(1, np.int8), np.array([200], np.uint8), r"does not fit into int8"),
    "2 in a Box of bool": (Box(0, 1, (2,), np.bool_), np.zeros(2, bool), np.array([0, 2]), r"does not fit into bool"),
    "2 in a binary space": (MultiBinary(2), np.zeros(2, np.int8), np.array([0, 2], np.int8), r"does not fit into bool"),
    "2**40 in int64": (Box(-(2**50), 2**50, (2,), np.int64), np.zeros(2, int), np.full(2, 2**40), r"does not fit into int32"),
    "one for three": (FLOATS, np.zeros(3, np.float32), np.zeros(1, np.float32), r"of shape \(1,\): .* expected \(3,\)"),
    "number for three": (FLOATS, np.zeros(3), 0.5, r"of shape \(\): .* expected \(3,\)"),
    "complex": (FLOATS, np.zeros(3), np.zeros(3, complex), r"observation of complex128: .* expected float32"),
    "large in uint32": (Box(0, 2**32 - 1, (1,), np.uint32), [0], np.array([2**31], np.uint32), r"into int32, the type in which proximo stores"),
    "text": (FLOATS, np.zeros(3), np.array(["1", "2", "3"]), r"observation of <U1"),
    "no key": (DictSpace({"a": FLOATS, "b": FLOATS}), {"a": np.zeros(3), "b": np.zeros(3)}, {"a": np.zeros(3)}, r"without \['b'\]"),
    "dict": (DictSpace({"a": FLOATS, "b": Discrete(2)}), {"a": np.zeros(3), "b": 1}, {"a": np.zeros(3), "b": 2}, r"\['b'\] = 2"),
}  # fmt: skip


WRONG_REST = [
    (("1.5", False, False), r"the reward '1\.5': expected a single number"),
    ((np.ones(1), False, False), r"the reward array\(\[1\.\]\)"),
    ((np.nan, False, False), r"the reward nan: expected a finite number"),
    ((1e300, False, False), r"the reward 1e\+300: expected a finite number \(as float32\)"),
    ((np.complex64(1), False, False), r"the reward .*1\+0j.*: expected a single number"),
    ((1.0, "False", False), r"terminated = 'False': expected True or False"),
    ((1.0, None, False), r"terminated = None"),
    ((1.0, False, 1), r"truncated = 1"),
    ((1.0, False, False, None), r"NoneType as info: expected a dict"),
]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        *(((*values, (1.0, False, False), "step"), sentence) for *values, sentence in WRONG.values()),
        ((*WRONG["discrete"][:3], (1.0, False, False), "end"), WRONG["discrete"][3]),
        ((*WRONG["one for three"][:3], (1.0, False, False), "reset"), WRONG["one for three"][3]),
        *(((FLOATS, np.zeros(3), None, rest, "step"), sentence) for rest, sentence in WRONG_REST),
    ],
)
def test_wrong_value_raises_after_the_strict_steps(values, sentence, monkeypatch):
    # NaN and infinity are only found in the strict steps.
    monkeypatch.setattr(stepper, "STRICT_STEPS", 1000 if "finite" in sentence else 2)
    vector_env = in_process(functools.partial(Gives, *values), num_envs=1, num_steps=5)
    call = "reset" if values[-1] == "reset" else "step"
    with pytest.raises(EnvError, match=rf"toy.{call} of environment 0 .* returned .*{sentence}"):
        rollout(vector_env, np.zeros((5, 1), np.int64))


SPACES = [
    BYTES, FLOATS, Box(0, 255, (9, 9), np.uint8), Box(-9, 9, (2,), np.int64), Box(-1, 1, (), np.float64), Discrete(4), Discrete(3, start=-1),
    MultiDiscrete([2, 3]), MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]), MultiDiscrete([3] * 70), MultiBinary(4),
    Box(0, 1, (3,), np.bool_), Box(0, 1, (2, 40), np.bool_),
]  # fmt: skip


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_quick_check_accepts_only_what_full_check_accepts(space):
    expected = leaves(from_any(space, "observation"))
    fits, rng = make_quick_check(expected), np.random.default_rng(0)
    assert all(fits(space.sample()) for _ in range(20)), "what Gymnasium draws goes the quick way"
    for _ in range(300):
        kind = rng.choice(["bool", "int8", "uint8", "int32", "int64", "uint64", "int16", "float32", "float64", "U3", "O"])
        shape = [space.shape, (1,), (), (2, *space.shape)][min(3, rng.integers(0, 9) % 7 if rng.random() < 0.4 else 0)]
        value = rng.integers(-1, [3, 6, 400, 2**40][rng.integers(4)], shape).astype(kind, casting="unsafe")
        value = value.item() if shape == () and rng.random() < 0.5 else value
        if fits(value):
            check_observation(value, expected, lambda: "it")


def test_environments_are_closed_if_a_later_one_cannot_be_made():
    made = []  # an example, and two of three environments

    class Fourth(gym_toys.Countdown):
        def __init__(self):
            assert len(made) < 3, "no more"
            super().__init__()
            made.append(self)

        def close(self):
            self.closed = True

    with pytest.raises(AssertionError, match="no more"):
        in_process(Fourth, 3)
    assert [env.closed for env in made] == [True] * 3
