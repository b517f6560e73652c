"""Gymnasium, vector and JAX environments with one fault each, and the correct ones that they derive from."""

import functools
import os
import signal
import time

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import gym_toys
import toys
from gym_toys import altered


class Walk(gym.Env):
    """Correct: a walk in two dimensions that terminates or is truncated at random."""

    observation_space, action_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.time += 1
        self.place = self.place + self.np_random.normal(0, 0.1, 2).astype(np.float32)
        draw = self.np_random.random()
        return self.place.copy(), float(action), bool(draw < 0.05), bool(0.05 <= draw < 0.1), {}


def after(name, base, change):
    """A subclass whose method ``name`` passes its result through ``change(self, *result)``."""

    def method(self, *arguments, **kwargs):  # Gymnasium looks for this name
        return change(self, *getattr(super(made, self), name)(*arguments, **kwargs))

    made = altered(base, **{name: method})
    return made


after_step, after_reset = functools.partial(after, "step"), functools.partial(after, "reset")


def changed(base=Walk, **parts):
    """A subclass whose steps pass some results through functions: ``observation``, ``reward``, ``terminated``, ``truncated``, ``info``."""
    functions = [parts.get(name, lambda x: x) for name in ("observation", "reward", "terminated", "truncated", "info")]
    return after_step(base, lambda self, *result: (*result[:-5], *(f(x) for f, x in zip(functions, result[-5:], strict=True))))


WrongShape = changed(observation=lambda o: o[None])
Wide = changed(observation=lambda o: o.astype(np.float64))
NanReward = changed(reward=lambda r: float("nan"))
TerminatedAsInt = changed(terminated=int)
OutOfRange = changed(observation=lambda o: o + np.float32(20))
Large = changed(observation=lambda o: o + np.float32(1e6), reward=lambda r: 1e5)
Endless = changed(terminated=lambda t: False, truncated=lambda t: False)
Raises = changed(reward=lambda r: [][3])
FourValues = after_step(Walk, lambda self, o, r, terminated, truncated, info: (o, r, terminated or truncated, info))


def picture(self, _, *rest):
    return np.random.default_rng(abs(int(1e6 * self.place[0]))).integers(0, 256, (2, 12, 1), np.uint8), *rest


SmallImages = altered(
    after_reset(after_step(Walk, picture), picture), observation_space=gym.spaces.Box(0, 255, (2, 12, 1), np.uint8)
)
"""Correct, but its images are too small for the convolution of ``small_cnn``."""


class Silent(Walk):
    """Its step raises an exception without a text, but only beside other environments."""

    number = 0

    def __init__(self):
        super().__init__()
        Silent.number += 1

    def close(self):
        Silent.number -= 1

    def step(self, action):
        assert Silent.number < 3
        return super().step(action)


class Hangs(Walk):
    """Prints, and hangs after the first checks."""

    seeded = 0

    def __init__(self):
        super().__init__()
        print("printed by the environment", flush=True)

    def reset(self, *, seed=None, options=None):
        Hangs.seeded += seed is not None
        if Hangs.seeded > 6:
            self.fail()
        return super().reset(seed=seed)

    def fail(self):
        time.sleep(600)


Crashes = altered(Hangs, fail=lambda self: os.kill(os.getpid(), signal.SIGSEGV))
HangsBefore = altered(Hangs, __init__=lambda self: print("printed by the environment", flush=True) or self.fail())


def seeded_by(draw):
    """A ``Walk`` whose resets use ``draw(seed)`` as their seed."""
    return altered(Walk, reset=lambda self, *, seed=None, options=None: Walk.reset(self, seed=draw(seed)))


SeedIgnored = seeded_by(lambda seed: None if seed is None else np.random.SeedSequence().entropy % 2**31)
Fixed = seeded_by(lambda seed: 5)


class Shared(Walk):
    """All instances share their position."""

    places = {}  # noqa: RUF012

    @property
    def place(self):
        return self.places["place"]

    @place.setter
    def place(self, value):
        self.places["place"] = value


LimitAsTermination = after_step(Walk, lambda self, o, r, *_: (o, r, self.time >= 25, False, {}))
"""Reports its time limit of 25 steps as a termination."""
Penalty = after_step(LimitAsTermination, lambda self, o, r, over, *rest: (o, r - 9.0 * over, over, *rest))
"""Correct: always crashes at step 25, with a reward that no other step has."""


class Masked(Walk):
    """Correct: a mask in ``info`` forbids one action at random."""

    entries = 2

    def mask(self, is_over=False):
        mask = np.ones(self.entries, np.int8)
        mask[self.np_random.integers(self.entries)] = 0
        return mask

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": self.mask()}

    def step(self, action):
        *transition, _ = super().step(np.ravel(action)[0])
        return *transition, {"action_mask": self.mask(transition[2] or transition[3])}


MaskedToTheEnd = altered(Masked, mask=lambda self, is_over=False: Masked.mask(self) * (not is_over))
"""Correct: the mask of a final observation allows nothing; no action follows."""
MaskedBits = altered(Masked, entries=4, action_space=gym.spaces.MultiBinary(2))
"""Correct: two entries for each bit, and one of them is forbidden."""
MaskByAnotherName = altered(Walk, valid_action_mask=lambda self: np.ones(2, bool))
MaskUnderAnotherKey = after_reset(Walk, lambda self, o, info: (o, {"mask": [True, True]}))
NothingAllowed = altered(Masked, mask=lambda self, is_over=False: np.zeros(2, np.int8))
MaskTooLong = altered(Masked, entries=3)


def reused(self, observation, *rest):
    self.buffer = getattr(self, "buffer", observation)
    self.buffer[:] = observation
    return self.buffer, *rest


Reused = after_reset(after_step(Walk, reused), reused)
"""Returns the same array for all observations."""


def factory():
    """Correct: a function that makes an environment."""
    return Walk()


class Vector(VectorEnv):
    """Correct: a ``VectorEnv`` of ``Walk`` with next-step autoreset."""

    mode, part = AutoresetMode.NEXT_STEP, Walk

    def __init__(self, num_envs):
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": self.mode}
        self.envs, self.ended = [self.part() for _ in range(num_envs)], np.zeros(num_envs, bool)
        self.single_observation_space, self.single_action_space = self.part.observation_space, self.part.action_space

    def seeds(self, seed):
        return [seed + 1000 * i for i in range(self.num_envs)]

    def reset(self, *, seed=None, options=None):
        self.ended[:] = False
        seeds = [None] * self.num_envs if seed is None else self.seeds(seed)
        return np.stack([env.reset(seed=s)[0] for env, s in zip(self.envs, seeds, strict=True)]), {}

    def row(self, i, action):
        if self.ended[i]:
            return self.envs[i].reset()[0], 0.0, False, False
        return self.envs[i].step(action)[:4]

    def step(self, actions):
        observation, reward, terminated, truncated = map(
            np.array, zip(*(self.row(i, action) for i, action in enumerate(actions)), strict=True)
        )
        self.ended = terminated | truncated
        return observation, reward, terminated, truncated, {}


VectorPenalty = altered(Vector, part=Penalty)
VectorLimit = altered(Vector, part=LimitAsTermination)
VectorLarge = altered(Vector, part=Large)
VectorMaskByAnotherName = altered(Vector, legal_moves=lambda self: np.ones((self.num_envs, 2)))
LateButSameStep = altered(Vector, mode=AutoresetMode.SAME_STEP)
OneSeed = altered(Vector, seeds=lambda self, seed: [seed] * self.num_envs)
VectorSeedIgnored = altered(Vector, seeds=lambda self, seed: np.random.SeedSequence().generate_state(self.num_envs).tolist())


class Early(Vector):
    """Declares next-step autoreset, but resets in the same step and reports final observations."""

    def step(self, actions):
        observation, reward, terminated, truncated, _ = super().step(actions)
        finals = np.empty(self.num_envs, object)
        for i in np.flatnonzero(self.ended):
            finals[i] = observation[i].copy()
            observation[i] = self.envs[i].reset()[0]
        info = {"final_obs": finals} if self.ended.any() else {}
        self.ended = np.zeros(self.num_envs, bool)
        return observation, reward, terminated, truncated, info


SameStep = altered(Early, mode=AutoresetMode.SAME_STEP)


EarlyInSilence = after_step(Early, lambda self, *result: (*result[:4], {}))
"""Declares next-step autoreset, but resets in the same step and does not report final observations."""
VectorShape = after_step(Vector, lambda self, o, r, *rest: (o, r[:, None], *rest))
"""Its rewards have an extra axis."""


def pushed(self, action):
    self.place = self.place + np.float32(action)
    return Walk.step(self, action)


EarlyWithoutReward = altered(
    after_step(EarlyInSilence, lambda self, o, r, *rest: (o, 0 * r, *rest)), part=altered(Walk, step=pushed)
)
"""``EarlyInSilence`` without rewards, where actions move the place."""


def final_again(self, observation, reward, terminated, truncated, info):
    for i in np.flatnonzero(terminated | truncated):
        observation[i] = info["final_obs"][i]
    return observation, reward, terminated, truncated, info


FinalIsObservation = after_step(SameStep, final_again)
"""Returns the final observation also as the first observation of the next episode."""


class Disabled(Vector):
    """Correct: autoreset is disabled, and ``reset`` follows the mask."""

    mode = AutoresetMode.DISABLED

    def row(self, i, action):
        return self.envs[i].step(action)[:4]

    def reset(self, *, seed=None, options=None):
        if not options:
            return super().reset(seed=seed)
        for i in np.flatnonzero(options["reset_mask"]):
            self.envs[i].reset()
        return np.stack([env.place for env in self.envs]), {}


def MaskedDisabled(num_envs):  # noqa: N802
    """Correct: resets the environments in the mask, and raises for an action that the action mask forbids."""
    return SyncVectorEnv([gym_toys.InfoMask] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


ResetsAll = altered(Disabled, reset=lambda self, *, seed=None, options=None: Vector.reset(self, seed=seed))
"""Its ``reset`` ignores the mask."""


class VectorRaisesLate(Vector):
    """Never ends, and raises after 150 steps."""

    steps = 0

    def row(self, i, action):
        self.steps += 1
        if self.steps > 150 * self.num_envs:
            raise RuntimeError("too late")
        return np.zeros(2, np.float32), 0.0, False, False


def mean_of_batch(reward):
    """Calls back into Python, where the mean of a batch is given to all."""

    def mean(x):
        return np.broadcast_to(np.mean(x, dtype=np.float32), np.shape(x)).astype(np.float32)

    return jax.pure_callback(mean, jax.ShapeDtypeStruct((), jnp.float32), reward, vmap_method="expand_dims")


JaxCallback = changed(toys.RandomEnds, reward=mean_of_batch)
JaxFrozen = changed(toys.RandomEnds, reward=lambda reward: reward + isinstance(reward, jax.core.Tracer))
JaxNan = changed(toys.RandomEnds, reward=lambda reward: jnp.where(reward > 0, jnp.nan, reward))
JaxEndless = changed(toys.RandomEnds, terminated=jnp.zeros_like, truncated=jnp.zeros_like)
JaxMaskInInfo = changed(toys.RandomEnds, info=lambda info: {"action_mask": jnp.ones(2)})


JaxLimit = after_step(toys.RandomEnds, lambda self, s, o, r, *_: (s, o, r, s["time"] >= 25, jnp.bool_(0), {}))
"""Reports its time limit of 25 steps as a termination."""
JaxPenalty = after_step(JaxLimit, lambda self, s, o, r, over, *rest: (s, o, r - 50 * over, over, *rest))
"""Correct: always crashes at step 25, with a reward that no other step has."""


class JaxLarge(toys.RandomEnds):
    """Large observations and rewards. An episode has three steps; the reward of a later one is NaN."""

    def reset(self, key, params):
        return {"time": jnp.int32(0)}, jnp.zeros(3)

    def step(self, key, state, action, params):
        time = state["time"] + 1
        reward = jnp.where(time > 3, jnp.nan, 1e5 * time)
        return {"time": time}, 1e6 * time * jnp.ones(3), reward, time >= 3, jnp.bool_(False), {}


class JaxBranch(toys.RandomEnds):
    """Branches on a traced value in Python."""

    def step(self, key, state, action, params):
        if action > 0:
            state = {"time": state["time"] + 1}
        return super().step(key, state, action, params)


class JaxKeyIgnored(toys.RandomEnds):
    """Ignores its keys, so that all episodes are equal."""

    def reset(self, key, params):
        return super().reset(jax.random.key(0), params)

    def step(self, key, state, action, params):
        return super().step(jax.random.key(0), state, action, params)


JaxNumpyNoise = after_reset(toys.RandomEnds, lambda self, state, o: (state, o + np.random.default_rng().random()))
"""Draws from NumPy, which becomes a constant when it is traced."""


class JaxKeeps(toys.RandomEnds):
    """Counts in ``self``."""

    count = 0

    def step(self, *arguments):
        self.count += 1
        return super().step(*arguments)


class JaxMaskedToTheEnd(toys.RandomEnds):
    """Correct: a mask in the observation allows only the second action. The mask of a final observation allows nothing; no action follows."""

    mask = (0, 1)
    observation_space = gym.spaces.Dict({"seen": gym.spaces.Box(-99, 99, (3,)), "action_mask": gym.spaces.MultiBinary(2)})

    def reset(self, key, params):
        state, observation = super().reset(key, params)
        return state, {"seen": observation, "action_mask": jnp.array(self.mask, jnp.int8)}

    def step(self, key, state, action, params):
        state, observation, reward, terminated, truncated, info = super().step(key, state, jnp.ravel(action)[0], params)
        allowed = jnp.array(self.mask)[jnp.ravel(action)[0]] == 1
        mask = jnp.array(self.mask, jnp.int8) * ~(terminated | truncated)
        observation = {"seen": observation, "action_mask": mask.astype(jnp.int8)}
        reward = eqx.error_if(reward, ~allowed & any(self.mask), "a forbidden action was taken")
        return state, observation, reward, terminated, truncated, info


JaxMaskedBits = altered(
    JaxMaskedToTheEnd,
    mask=(0, 1, 1, 1),
    observation_space=gym.spaces.Dict({"seen": gym.spaces.Box(-99, 99, (3,)), "action_mask": gym.spaces.MultiBinary(4)}),
    action_space=gym.spaces.MultiBinary(2),
)
"""Correct: a mask of two bits, of which the first must be 1."""
JaxNothingAllowed = after_step(
    altered(JaxMaskedToTheEnd, mask=(0, 0)), lambda self, s, o, r, *rest: (s, o, jnp.float32(1), *rest)
)


class Stranger(gym_toys.Unbased):
    """Has no base class, and its ``reset`` does not accept a seed."""

    def reset(self):
        return super().reset()
