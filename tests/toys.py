"""Small JAX environments with known transitions, for tests of collectors and of the learner."""

import jax
import jax.numpy as jnp
import numpy as np

from proximo.spaces import ACTION_MASK, Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

IMAGE = Box((36, 36, 1), 0.0, 255.0, "uint8")
PARTS = Dict(
    (
        ("camera", Box((2, 36, 37), 0.0, 255.0, "uint8")),
        ("body", Tuple((Box((3,)), MultiDiscrete((3, 2, 4), (1, 0, -2)), MultiBinary((2, 2))))),
        ("level", Discrete(4, 2)),
    )
)


def masked(space: Dict, entries: int) -> Dict:
    """Add an action mask to ``space``."""
    return Dict((*space.spaces, (ACTION_MASK, MultiBinary((entries,)))))


def draw(key: jax.Array, space: Space):
    """Draw an observation of ``space`` whose mean is not 0 and whose variance is not 1."""
    if isinstance(space, Dict):
        return {name: draw(jax.random.fold_in(key, i), part) for i, (name, part) in enumerate(space.spaces)}
    if isinstance(space, Tuple):
        return tuple(draw(jax.random.fold_in(key, i), part) for i, part in enumerate(space.spaces))
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), space.start, space.start + space.n, jnp.int32)
    if isinstance(space, MultiDiscrete):
        start = jnp.array(space.start).reshape(space.shape)
        return jax.random.randint(key, space.shape, start, start + jnp.array(space.nvec).reshape(space.shape), jnp.int32)
    if isinstance(space, MultiBinary):
        return jax.random.bernoulli(key, 0.6, space.shape)
    if space.is_float:
        return 3.0 + 2.0 * jax.random.normal(key, space.shape)
    return jax.random.randint(key, space.shape, 0, 256).astype(space.dtype)


class RandomEnds:
    """Random observations of mean 3 and variance 4. Episodes terminate or are truncated at random."""

    observation_space = Box((3,))
    action_space = Discrete(2)
    default_params = {"terminate": 0.15, "truncate": 0.15}  # noqa: RUF012

    def reset(self, key, params):
        return {"time": jnp.int32(0)}, 3.0 + 2.0 * jax.random.normal(key, (3,))

    def step(self, key, state, action, params):
        key_observation, key_end, key_reward = jax.random.split(key, 3)
        observation = 3.0 + 2.0 * jax.random.normal(key_observation, (3,))
        draw = jax.random.uniform(key_end)
        terminated = draw < params["terminate"]
        truncated = ~terminated & (draw < params["terminate"] + params["truncate"])
        reward = jax.random.normal(key_reward) + 0.1 * jnp.sum(action)
        return {"time": state["time"] + 1}, observation, reward, terminated, truncated, {}


ContinuousRandomEnds = type("ContinuousRandomEnds", (RandomEnds,), {"action_space": Box((2,), -0.5, 0.5)})
"""``RandomEnds`` with two bounded continuous actions."""


class AnySpaces(RandomEnds):
    """``RandomEnds`` with the given observation and action spaces."""

    def __init__(self, observation_space: Space, action_space: Space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, key, params):
        return {"time": jnp.int32(0)}, draw(key, self.observation_space)

    def step(self, key, state, action, params):
        state, _, *rest = super().step(key, state, jnp.zeros(()), params)
        rest[0] += 0.1 * jnp.sum(action)
        return state, draw(key, self.observation_space), *rest


class Forbidden:
    """Actions 3 … 6; a larger action gives a larger reward. The mask allows 3 and a random part of the others, which nothing else in
    the observation shows. A forbidden action costs 100 and is not a success."""

    observation_space = Dict((("nothing", Box((1,))), (ACTION_MASK, MultiBinary((4,)))))
    action_space = Discrete(4, 3)
    default_params = ()

    def reset(self, key, params):
        observation = self._observe(key)
        return observation[ACTION_MASK], observation

    def step(self, key, state, action, params):
        allowed = state[action - 3]
        observation = self._observe(key)
        reward = jnp.where(allowed, action - 3.0, -100.0)
        return observation[ACTION_MASK], observation, reward, jnp.array(True), False, {"success": allowed}

    def _observe(self, key):
        return {"nothing": jnp.zeros(1), ACTION_MASK: jax.random.bernoulli(key, 0.5, (4,)).at[0].set(True)}


class Counting:
    """Observation: steps since the reset, length of the episode. Reward: number of the step, from 1. Terminates after a length that
    the reset draws from ``shortest … longest``."""

    observation_space = Box((2,))
    action_space = Discrete(2)
    default_params = {"shortest": 3, "longest": 9}  # noqa: RUF012

    def reset(self, key, params):
        length = jax.random.randint(key, (), params["shortest"], params["longest"] + 1)
        return (jnp.int32(0), length), self._observe(0, length)

    def step(self, key, state, action, params):
        time, length = state[0] + 1, state[1]
        return (time, length), self._observe(time, length), time.astype(jnp.float32), time >= length, False, {}

    def _observe(self, time, length):
        return jnp.stack([jnp.asarray(time), length]).astype(jnp.float32)


class Team:
    """Several agents that share nothing: each has its own environment."""

    def __init__(self, env=None, num_agents=3):
        self.env, self.num_agents = env or Counting(), num_agents
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.default_params = self.env.default_params

    def reset(self, key, params):
        return jax.vmap(self.env.reset, (0, None))(jax.random.split(key, self.num_agents), params)

    def step(self, key, state, action, params):
        return jax.vmap(self.env.step, (0, 0, 0, None))(jax.random.split(key, self.num_agents), state, action, params)


class Broken:
    """Never ends. Returns NaN as observation or as reward at the time in the parameters (-1: never)."""

    observation_space = Box((2,))
    action_space = Discrete(2)
    default_params = {"observation": -1, "reward": -1}  # noqa: RUF012

    def reset(self, key, params):
        return jnp.int32(0), jnp.ones(2)

    def step(self, key, state, action, params):
        time = state + 1
        observation = jnp.where(time == params["observation"], jnp.nan, jnp.ones(2) * jnp.sin(time))
        return time, observation, jnp.where(time == params["reward"], jnp.nan, 1.0), False, False, {}


class Drawn(RandomEnds):
    """Draws the time: one white column for each step."""

    render_fps = 5

    def render(self, state, params):
        frame = np.zeros((40, 60, 3), np.uint8)
        frame[:, : int(state["time"])] = 255
        return frame


class BadlyDrawn(RandomEnds):
    """Its ``render`` raises from the first step on."""

    def render(self, state, params):
        if state["time"] >= 1:
            raise RuntimeError("the paint has dried")
        return np.zeros((40, 60, 3), np.uint8)


DrawnInGray = type("DrawnInGray", (RandomEnds,), {"render": lambda self, state, params: np.zeros((40, 60), np.uint8)})
"""Its picture has no color axis, which is a wrong shape."""


class EveryThird(Counting):
    """Reports a success at every third step. Episodes of even length terminate; those of odd length are truncated."""

    def step(self, key, state, action, params):
        state, observation, reward, over, _, _ = super().step(key, state, action, params)
        time, odd = state[0], state[1] % 2 == 1
        return state, observation, reward, over & ~odd, over & odd, {"success": time % 3 == 0}

    def render(self, state, params):
        return np.zeros((40, 60, 3), np.uint8)
