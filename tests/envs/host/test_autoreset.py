"""The three autoreset modes, and our own stepping, give the same learning problem."""

import functools
import types

import gymnasium as gym
import numpy as np
import pytest

from proximo.envs.host import vector
from proximo.envs.host.vector import autoreset_of
from proximo.errors import EnvError
from proximo.spaces import from_any

import gym_toys
from pools import in_process, lanes, layout_of, rollout, rules_of, vectorised

MODES = ("NextStep", "SameStep", "Disabled")
still_walk = functools.partial(gym_toys.Walk, action_matters=False)


def play(pool, steps, seed=3):
    """``lanes`` of a rollout, and of each truncated row the final observation that stood with it."""
    pool.reset(0, seed)
    slab = pool.slabs[0]
    slab.clear()
    finals = {}
    counts = np.zeros(slab.reward.shape[1], int)
    for t in range(steps):
        slab.action[t] = 0
        pool.send(0, t, 0)
        cut = pool.receive(0, t, 0)
        assert cut == bool(slab.truncated[t].any())
        for i in np.flatnonzero(slab.truncated[t]):
            finals[i, counts[i]] = slab.final[0][i].copy()
        counts += ~slab.filler[t]
    return lanes(slab), finals


def seeded_alike(pool):
    """A vectorised environment seeds its parts ``seed, seed + 1, …``; ours get those seeds too."""
    pool.blocks[0].reset(pool.slabs[0], 0, seeds_of_vector(len(pool.blocks[0].envs)))
    return pool


def seeds_of_vector(num_envs, seed=3):
    from proximo.envs.host.pool import environment_seeds

    base = environment_seeds(1, seed)[0]
    return [base + i for i in range(num_envs)]


@pytest.fixture(scope="module")
def reference():
    """Our own stepping, with the seeds of the vectorised ones."""
    pool = in_process(still_walk, num_envs=3, num_steps=120)
    pool.reset = lambda slab, seed: pool.blocks[0].reset(pool.slabs[slab], 0, seeds_of_vector(3, seed))
    return play(pool, 120)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_rows_of_our_own_stepping(mode, reference):
    ours, our_finals = reference
    theirs, their_finals = play(vectorised(still_walk, mode, num_envs=3, num_steps=120), 120)
    for lane, other in zip(ours, theirs, strict=True):
        count = min(len(lane), len(other))
        assert count > 80, "fillers are the only rows that a mode may lose"
        assert lane[:count] == other[:count]
    shared = our_finals.keys() & their_finals.keys()
    assert len(shared) > 5
    for key in shared:
        np.testing.assert_array_equal(our_finals[key], their_finals[key])


@pytest.mark.parametrize("mode", MODES)
def test_fillers_stand_behind_ends_in_next_step_mode_only(mode):
    pool = vectorised(still_walk, mode, num_envs=3, num_steps=120)
    slab = rollout(pool, np.zeros((120, 3), np.int64))
    done = slab.terminated | slab.truncated
    assert done.any()
    if mode != "NextStep":
        assert not slab.filler.any()
        np.testing.assert_array_equal(slab.first[1:], done)
        return
    np.testing.assert_array_equal(slab.filler[1:], done)
    np.testing.assert_array_equal(slab.first[1:], slab.filler[:-1])
    assert (slab.reward[slab.filler[:-1]] == 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_the_seam_between_two_rollouts_loses_nothing(mode):
    whole = rollout(vectorised(still_walk, mode, num_steps=60), np.zeros((60, 3), np.int64))
    pool = vectorised(still_walk, mode, num_steps=4)
    pieces = [lanes(rollout(pool, np.zeros((4, 3), np.int64), reset=k == 0)) for k in range(15)]
    for i, lane in enumerate(lanes(whole)):
        assert lane == [row for piece in pieces for row in piece[i]]


@pytest.mark.parametrize("mode", MODES)
def test_lost_lives_are_told_in_every_mode(mode):
    slab = rollout(vectorised(gym_toys.Lives, mode, num_envs=2, num_steps=26, life_loss=True), np.zeros((26, 2), np.int64))
    extra = 1 if mode == "NextStep" else 0  # the filler behind the game's end
    np.testing.assert_array_equal(np.flatnonzero(slab.life_lost[:, 1]), [3, 7, 15 + extra, 19 + extra])
    np.testing.assert_array_equal(np.flatnonzero(slab.terminated[:, 1]), [11, 23 + extra])


class Both(gym_toys.Countdown):
    """Ends by itself in the very step of its limit."""

    def step(self, action):
        observation, reward, done, _, info = super().step(action)
        return observation, reward, done, done, info


@pytest.mark.parametrize("mode", MODES)
def test_a_termination_at_the_limit_is_a_termination(mode):
    slab = rollout(vectorised(Both, mode, num_envs=2, num_steps=12), np.zeros((12, 2), np.int64))
    assert slab.terminated.any()
    assert not slab.truncated.any()


@pytest.mark.parametrize("what", ["reward nan", "nan"])
def test_values_of_a_vectorised_environment_are_held_too(what):
    pool = vectorised(functools.partial(gym_toys.Misbehaving, what), "SameStep", num_envs=2, num_steps=10)
    with pytest.raises(EnvError, match=r"toy.step of environment 0 \(seed \d+, 6 steps\) returned"):
        rollout(pool, np.zeros((10, 2), np.int64))


def test_an_unknown_mode_is_an_error_that_names_it():
    odd = types.SimpleNamespace(metadata={"autoreset_mode": "sometimes"})
    with pytest.raises(
        EnvError, match=r"odd declares the autoreset mode 'sometimes': expected one of next_step, same_step, disabled"
    ):
        autoreset_of(odd, "odd")


class Late(gym.vector.VectorEnv):
    """Two environments that change one of the five values of their fifth step."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
    single_observation_space, single_action_space, num_envs = gym.spaces.Discrete(4), gym.spaces.Discrete(2), 2

    def __init__(self, place, value):
        self.place, self.value, self.steps = place, value, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.int64), {}

    def step(self, actions):
        self.steps += 1
        values = [np.ones(2, np.int64), np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {}]
        if self.steps == 5:
            values[self.place] = self.value
        return tuple(values)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (0, np.array([1, 4]), r"environment 1 .* observation = 4: it is not in its space"),
        (0, np.array([0.5, 1.0]), r"observation of float64"),
        (0, np.ones(1, np.int64), r"observation of shape \(1,\)"),
        (1, np.ones(1), r"reward of shape \(1,\)"),
        (1, np.array(["1.5", "2"]), r"the reward .*1\.5"),
        (2, np.array(["False", "True"]), r"terminated = .*False"),
        (3, np.array([0, 1]), r"truncated = .*0"),
    ],
)
def test_a_vectorised_environment_is_checked_after_the_strict_steps_too(place, value, sentence, monkeypatch):
    monkeypatch.setattr(vector, "STRICT_STEPS", 2)
    env = types.SimpleNamespace(observation_space=Late.single_observation_space, action_space=Late.single_action_space)
    pool = vector.VectorPool(
        lambda num_envs: Late(place, value), layout_of(env, 5, 2), rules_of(env), from_any(env.action_space, "action")
    )
    with pytest.raises(EnvError, match=sentence):
        rollout(pool, np.zeros((5, 2), np.int64))
