"""The three autoreset modes, and our own stepping, give the same learning problem."""

import functools
import types

import gymnasium as gym
import numpy as np
import pytest

from proximo.envs.host import block, vector
from proximo.envs.host.environment import PoolOptions
from proximo.envs.host.gymnasium import from_factory, from_vector
from proximo.envs.host.observations import allowed_action, final_observation, leaves
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.host.vector import autoreset_of
from proximo.errors import EnvError
from proximo.spaces import from_any

import gym_toys
from pools import in_process, lanes, layout_of, rollout, rules_of, sync, vectorised

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


def _batched(space, finals):
    """The observations in ``finals`` as one batch of ``space``."""
    given = next(one for one in finals if one is not None)
    rows = [given if one is None else one for one in finals]
    if isinstance(space, gym.spaces.Dict):
        return {key: _batched(part, [row[key] for row in rows]) for key, part in space.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_batched(part, [row[k] for row in rows]) for k, part in enumerate(space))
    return np.stack(rows)


FORMS = {
    "an object array": lambda space, finals: finals,
    "a list": lambda space, finals: list(finals),
    "a batch": _batched,
}


class Reformed(gym.vector.SyncVectorEnv):
    """Same-step autoreset that gives final observations in one of ``FORMS``."""

    def __init__(self, make, form, num_envs):
        super().__init__([make] * num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
        self.form = form

    def step(self, actions):
        *result, info = super().step(actions)
        if "final_obs" in info:
            info["final_obs"] = FORMS[self.form](self.single_observation_space, info["final_obs"])
        return *result, info


class Paired(gym_toys.InfoMask):
    """The same with a tuple as observation."""

    observation_space = gym.spaces.Tuple((gym.spaces.Box(0.0, 9.0, (2,), np.float32), gym.spaces.Discrete(3)))

    def _observation(self):
        return super()._observation(), self.now % 3


@pytest.mark.parametrize("make", [gym_toys.InfoMask, gym_toys.InfoMaskParts])
@pytest.mark.parametrize("form", FORMS)
def test_final_observations_are_read_in_every_form(make, form):
    """The observation is the step number, so the final observation is the length of the episode."""
    env = from_vector(functools.partial(Reformed, make, form), "toy", Preprocessing())
    pool = env.open(3, 40, PoolOptions())
    names = [leaf.path[-1] for leaf in leaves(env.observation_space)]
    masks, finals = (arrays[names.index("action_mask")] for arrays in (pool.slabs[0].observation, pool.slabs[0].final))
    time = names.index("time" if "time" in names else "observation")
    lengths = np.zeros(3, int)
    seen = 0
    pool.reset(0, 0)
    for t in range(40):
        pool.slabs[0].action[t] = [allowed_action(env.action_space, np.random.default_rng(t), mask) for mask in masks[t]]
        pool.receive(0, t, 0)
        lengths += 1
        done = pool.slabs[0].terminated[t] | pool.slabs[0].truncated[t]
        for i in np.flatnonzero(pool.slabs[0].truncated[t]):
            assert (pool.slabs[0].final[time][i] == lengths[i]).all()
            assert not finals[i].any(), "nobody acts on it"
            seen += 1
        lengths[done] = 0
    assert seen > 3


@pytest.mark.parametrize("form", FORMS)
def test_final_observations_of_a_tuple_are_read_in_every_form(form):
    finals = np.array([None, None], object)
    finals[1] = (np.ones(2), 2)
    final = final_observation({"final_obs": FORMS[form](Paired.observation_space, finals)}, 1)
    np.testing.assert_array_equal(final[0], 1.0)
    assert final[1] == 2


@pytest.mark.parametrize("mode", [*MODES, "in process"])
def test_empty_mask_raises_until_the_episode_ends(mode, monkeypatch):
    for module in (vector, block):
        monkeypatch.setattr(module, "STRICT_STEPS", 2)  # it also raises after the strict steps

    class Empty(gym_toys.InfoMask):
        def __init__(self, at):
            self.at = at

        def _mask(self):
            self.allowed = 0
            return {"action_mask": np.eye(4, dtype=np.int8)[0] * (self.now != self.at)}

        def step(self, action):
            *result, over, cut, info = super().step(action)
            if over or cut:
                info = {"action_mask": np.zeros(4, np.int8)}  # no action follows
            return *result, over, cut, info

    def played(at):
        if mode == "in process":
            env = from_factory(functools.partial(Empty, at), "toy", Preprocessing())
        else:
            env = from_vector(functools.partial(sync, lambda: Empty(at), mode), "toy", Preprocessing())
        return rollout(env.open(3, 40, PoolOptions()), np.zeros((40, 3), np.int64))

    assert (played(at=-1).terminated.sum(0) > 0).all()
    with pytest.raises(
        EnvError, match=r"toy\.step of environment 0 \(seed \d+, .*\) returned an action_mask that allows no action"
    ):
        played(at=3)
    with pytest.raises(EnvError, match=r"toy\.reset of environment 0 \(seed \d+.*\) returned an action_mask"):
        played(at=0)


class Forgetful(gym.vector.SyncVectorEnv):
    """A partial reset returns zeros for the environments that it does not reset."""

    def __init__(self, num_envs):
        super().__init__([still_walk] * num_envs, autoreset_mode=gym.vector.AutoresetMode.DISABLED)

    def reset(self, *, seed=None, options=None):
        which = (options or {}).get("reset_mask")
        observation, info = super().reset(seed=seed, options=options)
        return observation if which is None else np.where(which[:, None], observation, 0), info


def test_partial_reset_leaves_other_environments_unchanged(reference):
    env = from_vector(Forgetful, "toy", Preprocessing())
    theirs, _ = play(env.open(3, 120, PoolOptions()), 120)
    for lane, other in zip(reference[0], theirs, strict=True):
        assert lane == other


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
def test_vector_environment_is_checked_after_the_strict_steps(place, value, sentence, monkeypatch):
    monkeypatch.setattr(vector, "STRICT_STEPS", 2)
    env = types.SimpleNamespace(observation_space=Late.single_observation_space, action_space=Late.single_action_space)
    pool = vector.VectorPool(
        lambda num_envs: Late(place, value), layout_of(env, 5, 2), rules_of(env), from_any(env.action_space, "action")
    )
    with pytest.raises(EnvError, match=sentence):
        rollout(pool, np.zeros((5, 2), np.int64))
