"""Gymnasium environments with known transitions for tests. Each has at most one fault."""

import ctypes
import os
import time

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete


def altered(base, **attributes):
    """A subclass with other methods or attributes."""
    return type("Altered", (base,), attributes)


class Walk(gym.Env):
    """Episodes terminate or are truncated at random, and rewards are random, all from the environment's generator.

    The observation is [episode number, step, first draw of the episode, last action].
    """

    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(3)

    def __init__(self, terminate: float = 0.15, truncate: float = 0.1, action_matters: bool = True):
        self.terminate, self.truncate, self.action_matters = terminate, truncate, action_matters
        self.episode = self.now = 0
        self.mark = 0.0

    def _observation(self, action=-1):
        return np.array([self.episode, self.now, self.mark, action if self.action_matters else 0], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.episode = 0
        self.episode, self.now, self.mark = self.episode + 1, 0, self.np_random.normal()
        return self._observation(), {}

    def step(self, action):
        self.now += 1
        u = self.np_random.random()
        terminated, truncated = u < self.terminate, self.terminate <= u < self.terminate + self.truncate
        info = {"success": bool(u < self.terminate / 2)} if terminated or truncated else {}
        return self._observation(action), float(self.np_random.normal()), terminated, truncated, info


class DrawnWalk(Walk):
    """``Walk`` that draws: a white column for each step; the gray of the others shows the last action."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, terminate: float = 0.15):
        super().__init__(terminate)
        self.render_mode, self.action = render_mode, -1

    def step(self, action):
        self.action = int(action)
        return super().step(action)

    def render(self):
        assert self.render_mode == "rgb_array"
        frame = np.full((30, 50, 3), 40 * (self.action + 1), np.uint8)
        frame[:, : self.now] = 255
        return frame


class Countdown(gym.Env):
    """The reward is 1 for each step. The episode terminates, or is truncated, after ``length`` steps."""

    observation_space = Box(0.0, 1.0, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, length: int = 5, truncate: bool = False):
        self.length, self.truncate, self.now = length, truncate, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.now += 1
        done = self.now >= self.length
        observation = np.array([self.now / self.length, action], np.float32)
        return observation, 1.0, done and not self.truncate, done and self.truncate, {}


class EveryThird(gym.Env):
    """The reward is the step number, and every third step reports a success. Episodes have 3 to 9 steps; those of even length
    terminate, the others are truncated."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = Box(0.0, 9.0, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now, self.length = 0, int(self.np_random.integers(3, 10))
        return np.array([0, self.length], np.float32), {}

    def step(self, action):
        self.now += 1
        over, odd = self.now >= self.length, self.length % 2 == 1
        info = {"success": self.now % 3 == 0}
        return np.array([self.now, self.length], np.float32), float(self.now), over and not odd, over and odd, info

    def render(self):
        return np.zeros((40, 60, 3), np.uint8)


class Misbehaving(Countdown):
    """Has the fault ``what`` in its step number ``at``, counted over all episodes."""

    def __init__(self, what: str = "nothing", at: int = 7):
        super().__init__(5)
        self.what, self.at, self.steps = what, at, 0
        if what == "constructor":
            raise OSError("no simulator on port 4242")

    def reset(self, *, seed=None, options=None):
        if self.what == "reset" and self.steps >= self.at:
            raise RuntimeError("cannot reset")
        return super().reset(seed=seed)

    def step(self, action):
        self.steps += 1
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps >= self.at:
            match self.what:
                case "raise":
                    raise ZeroDivisionError("the pole has fallen off")
                case "hang":
                    time.sleep(3600)
                case "hold":
                    ctypes.PyDLL(None).sleep(3600)  # native code that never releases the GIL
                case "exit":
                    raise SystemExit(0)
                case "die":
                    os._exit(3)
                case "observation nan":
                    observation = observation * np.nan
                case "reward nan":
                    reward = float("nan")
        return observation, reward, terminated, truncated, info


def LateNaN(where: str = "observation") -> Misbehaving:  # noqa: N802
    """NaN in the observation (or reward) of step 1200: beyond the strict checks of the first thousand."""
    return Misbehaving(f"{where} nan", 1200)


class Lives(gym.Env):
    """Three lives. Every fourth step loses one; the episode terminates with the last."""

    observation_space = Box(0, 255, (2,), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now, self.lives = 0, 3
        return np.zeros(2, np.uint8), {"lives": 3}

    def step(self, action):
        self.now += 1
        self.lives -= self.now % 4 == 0
        return np.full(2, self.now, np.uint8), 2.0, self.lives == 0, False, {"lives": int(self.lives)}


class Parts(gym.Env):
    """A Dict observation of all kinds of spaces, with an action mask that the first component of the action must follow."""

    observation_space = Dict(
        {
            "camera": Box(0, 255, (40, 40, 3), np.uint8),
            "pose": Box(-1.0, 1.0, (3,), np.float64),
            "gear": Discrete(4, start=-1),
            "doors": MultiBinary(2),
            "dials": MultiDiscrete([2, 3]),
            "action_mask": MultiBinary(5),
        }
    )
    action_space = MultiDiscrete([3, 2], start=[1, 0])

    def _observation(self):
        self.allowed = self.np_random.integers(0, 3)
        mask = np.zeros(5, np.int8)
        mask[[self.allowed, 3, 4]] = 1
        return {
            "camera": self.np_random.integers(0, 256, (40, 40, 3), np.uint8),
            "pose": self.np_random.uniform(-1, 1, 3),
            "gear": int(self.np_random.integers(-1, 3)),
            "doors": self.np_random.integers(0, 2, 2).astype(np.int8),
            "dials": self.np_random.integers(0, [2, 3]),
            "action_mask": mask,
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now = 0
        return self._observation(), {}

    def step(self, action):
        assert action[0] == self.allowed + 1, "a masked action was taken"
        self.now += 1
        return self._observation(), 1.0, self.now == 6, False, {}


class InfoMask(gym.Env):
    """The mask in ``info`` allows one of four actions; any other action raises. Episodes have 5 to 9 steps; those of even length are
    truncated. The observation is the step number."""

    observation_space = Box(0.0, 9.0, (2,), np.float32)
    action_space = Discrete(4)

    def _observation(self):
        return np.full(2, self.now, np.float32)

    def _mask(self):
        self.allowed = int(self.np_random.integers(4))
        return {"action_mask": np.eye(4, dtype=np.int8)[self.allowed]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now, self.length = 0, int(self.np_random.integers(5, 10))
        return self._observation(), self._mask()

    def step(self, action):
        assert action == self.allowed, "a masked action was taken"
        self.now += 1
        over, even = self.now == self.length, self.length % 2 == 0
        return self._observation(), 1.0, over and not even, over and even, self._mask()


class InfoMaskParts(InfoMask):
    """``InfoMask`` with two action components, a tuple of masks in ``info`` and a Dict observation."""

    observation_space = Dict({"time": Box(0.0, 9.0, (2,), np.float32), "gear": Discrete(3)})
    action_space = MultiDiscrete([4, 2], start=[0, 1])

    def _observation(self):
        return {"time": super()._observation(), "gear": self.now % 3}

    def _mask(self):
        return {"action_mask": (super()._mask()["action_mask"], np.array([0, 1], np.int8))}

    def step(self, action):
        assert action[1] == 2, "a masked component was taken"
        return super().step(action[0])


class MethodMask(InfoMask):
    """``InfoMask`` whose mask is returned by a method, as sb3-contrib expects it."""

    def action_masks(self):
        return np.hstack(self.given["action_mask"]).astype(bool)

    def reset(self, *, seed=None, options=None):
        observation, self.given = super().reset(seed=seed)
        return observation, {}

    def step(self, action):
        *result, self.given = super().step(action)
        return *result, {}


class MethodMaskParts(MethodMask, InfoMaskParts):
    """``InfoMaskParts`` whose masks are returned by a method."""


class Unbased:
    """A Gymnasium environment without the base class."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, seed=None):
        self.now = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.now += 1
        return np.full(1, self.now / 4, np.float32), float(action), self.now == 4, False, {}


UnbasedDrawn = altered(Unbased, render=lambda self: np.full((20, 20, 3), 60 * self.now, np.uint8))
"""``Unbased`` that always draws, without ``render_mode``."""


class CustomVector(gym.vector.SyncVectorEnv):
    """A custom ``VectorEnv``."""

    def __init__(self, num_envs: int, mode: str = "NextStep", of=Walk):
        super().__init__([of] * num_envs, autoreset_mode=gym.vector.AutoresetMode(mode))


class HangingVector(CustomVector):
    """A custom ``VectorEnv`` that hangs in its fourth step."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        if self.steps == 4:
            time.sleep(3600)
        return super().step(actions)


class ThreadedVector(CustomVector):
    """A custom ``VectorEnv`` that steps between ``send`` and ``recv``. They must alternate."""

    actions = None

    def send(self, actions):
        assert self.actions is None, "it is stepping already"
        self.actions = actions.copy()
        actions[:] = -1  # the caller must not read them again

    def recv(self):
        actions, self.actions = self.actions, None
        return self.step(actions)

    def reset(self, **options):
        assert self.actions is None, "a step has begun, and its result was not received"
        return super().reset(**options)


class DrawnVector(CustomVector):
    """A custom ``VectorEnv`` whose environments draw."""

    def __init__(self, num_envs: int, mode: str = "NextStep"):
        super().__init__(num_envs, mode, lambda: DrawnWalk("rgb_array"))


class Team:
    """Several agents with PettingZoo's interface that share nothing: each has its own environment. With ``late``, the last one
    joins after two steps."""

    def __init__(self, make=Walk, names=("a", "b", "c"), late=False, render_mode=None):
        self.envs = {name: make() for name in names}
        self.possible_agents, self.late, self.render_mode = list(names), late, render_mode
        self.metadata = {"name": "team", "render_modes": ["rgb_array"], "render_fps": 5}

    def observation_space(self, agent):
        return self.envs[agent].observation_space

    def action_space(self, agent):
        return self.envs[agent].action_space

    def reset(self, seed=None, options=None):
        self.now, self.agents = 0, self.possible_agents[: -1 if self.late else None]
        seeds = {name: None if seed is None else seed + i for i, name in enumerate(self.envs)}
        self.seen, infos = ({name: pair[i] for name, pair in self._begun(seeds).items()} for i in range(2))
        return {name: self.seen[name] for name in self.agents}, {name: infos[name] for name in self.agents}

    def _begun(self, seeds):
        return {name: env.reset(seed=seeds[name]) for name, env in self.envs.items()}

    def step(self, actions):
        assert set(actions) == set(self.agents), "an action for each agent that is there"
        self.now += 1
        results = {name: self.envs[name].step(action) for name, action in actions.items()}
        self.agents = [name for name, result in results.items() if not (result[2] or result[3])]
        observations, *others = ({name: result[i] for name, result in results.items()} for i in range(5))
        if self.late and self.now == 2:
            self.agents.append(self.possible_agents[-1])
            observations[self.agents[-1]] = self.seen[self.agents[-1]]
        return observations, *others

    def render(self):
        return np.full((20, 30, 3), min(255, 10 * self.now), np.uint8)

    def close(self):
        pass
