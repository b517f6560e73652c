"""``randomize``: each episode has the parameters that were drawn at its reset, and nothing else changes."""

import contextlib
import dataclasses

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.collect import JaxCollector, jax_vector
from proximo.envs import Preprocessing, make_env
from proximo.envs.custom import from_object
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.errors import ConfigError, EnvError
from proximo.publish.card import code_of
from proximo.settings import make_config

from helpers import bits

POLE = "gymnax:CartPole-v1"


def draw_pole(key, params):
    """A pole of 0.25 to 4 m; ``length`` is half the pole."""
    length = 0.125 * 16 ** jax.random.uniform(key)
    return params.replace(length=length, polemass_length=params.masspole * length)


def draw_power(rng):
    return {"power": float(rng.uniform(1, 2))}


class Powered(gym.Env):
    """The reward is the power of the episode. It terminates with probability 0.2."""

    observation_space, action_space = gym.spaces.Box(-np.inf, np.inf, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.power = (options or {"power": 0.0})["power"]
        return np.array([self.power], np.float32), {}

    def step(self, action):
        return np.array([self.power], np.float32), self.power, bool(self.np_random.random() < 0.2), False, {}


def randomized(env, draw, **preprocessing):
    if isinstance(env, str):
        return make_env(env, None, Preprocessing(randomize=draw, **preprocessing))
    return from_object(env, {}, Preprocessing(randomize=draw, **preprocessing))[1]


def test_an_episode_is_one_of_the_parameters_that_were_drawn():
    """Its states equal those of an environment with these parameters in ``env_settings``, to its end."""
    env, key = randomized(POLE, draw_pole), jax.random.key(3)
    params = env.default_params
    state, observation = env.reset(key, params)
    key_draw, key_reset = jax.random.split(key)
    plain = make_env(POLE)
    own = draw_pole(key_draw, jax.tree.map(jnp.asarray, plain.default_params))
    plain_state, expected = plain.reset(key_reset, own)
    step, plain_step = jax.jit(env.step), jax.jit(plain.step)
    for t in range(200):
        assert bits(observation) == bits(expected)
        step_key = jax.random.fold_in(key, t)
        state, observation, reward, terminated, truncated, _ = step(step_key, state, t % 2, params)
        plain_state, expected, *others, _ = plain_step(step_key, plain_state, t % 2, own)
        assert bits((reward, terminated, truncated)) == bits(tuple(others))
        if terminated:
            break
    assert terminated
    other = plain.reset(key_reset, params)[0]
    assert bits(plain_step(key, other, 0, params)[1]) != bits(plain_step(key, other, 0, own)[1])


def test_every_environment_and_every_episode_draws_again():
    env = jax_vector.check_env(randomized(POLE, draw_pole), POLE)
    keys = jax.random.split(jax.random.key(0), 100)
    (_, drawn), _ = jax_vector.reset(env, keys, env.default_params)
    assert len(drawn) == 2, "only what is drawn is in the state"
    lengths = np.asarray(next(x for x in drawn if x.max() > 1))
    assert len(set(lengths.tolist())) == 100
    assert 0.125 <= lengths.min() < 0.2 < 1.5 < lengths.max() <= 2.0
    collector = JaxCollector(make_config(POLE, num_envs=8, num_steps=200), env)
    state = collector.init(jax.random.key(1))
    after, *_ = jax.jit(collector.collect)(state.learner.policy, state.collector)
    for before, now in zip(state.collector.env_state[1], after.env_state[1], strict=True):
        assert len({*before.tolist(), *now.tolist()}) == 16


def test_parameters_can_be_exchanged():
    """A drawn parameter may be another one that stays."""
    env = randomized(POLE, lambda key, params: params.replace(length=params.masspole, masspole=params.length))
    (_, drawn), _ = env.reset(jax.random.key(0), env.default_params)
    assert sorted(float(x) for x in drawn) == pytest.approx([0.1, 0.5])
    params = env.inside((None, drawn), env.default_params)[1]
    assert (float(params.length), float(params.masspole)) == pytest.approx((0.1, 0.5))


def test_a_level_determines_what_is_drawn():
    env = randomized(POLE, draw_pole, levels="5:6")
    drawn = [env.reset(jax.random.key(seed), env.default_params)[0][0][1] for seed in range(3)]
    assert bits(drawn[0]) == bits(drawn[1]) == bits(drawn[2])


def test_pictures_and_world_states_get_the_drawn_parameters():
    class Seen:
        num_agents, default_params = 2, {"size": jnp.float32(0.0), "other": jnp.float32(7.0)}
        observation_space, action_space = proximo.spaces.Box((1,)), proximo.spaces.Discrete(2)

        def reset(self, key, params):
            return jnp.int32(0), jnp.zeros((2, 1))

        def step(self, key, state, action, params):
            flags = jnp.zeros(2, bool)
            return state + 1, jnp.zeros((2, 1)), jnp.zeros(2), flags, flags, {}

        def world_state(self, state, params):
            return jnp.stack([params["size"], params["other"]])

        def render(self, state, params):
            return np.full((2, 2, 3), int(params["size"]), np.uint8)

    env = randomized(Seen(), lambda key, params: {**params, "size": 9.0 + 0 * params["other"]}, levels="0:3", needs_state=True)
    state, observation = env.reset(jax.random.key(0), env.default_params)
    assert observation["state"].tolist() == [[9.0, 7.0]] * 2
    assert (env.render(state, env.default_params) == 9).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_each_reset_on_gymnasium_gets_options(workers):
    """They follow from the seed of the environment, and differ between episodes."""
    env, found = randomized(Powered, draw_power), []
    for seed in (0, 0, 1):
        with contextlib.closing(env.open(4, 50, VectorOptions(num_workers=workers))) as vector_env:
            vector_env.reset(seed)
            vector_env.buffer.action[:] = 0
            for t in range(50):
                vector_env.send(t, 0)
                vector_env.receive(t, 0)
            found.append(vector_env.buffer.reward[:50].copy())
    assert 1 <= found[0].min() < 1.2 < 1.8 < found[0].max() <= 2
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()
    assert all(5 < len(set(column)) < 30 for column in found[0].T), "a value for each episode, not for each step"


@pytest.mark.parametrize(
    ("env", "draw", "message"),
    [
        (POLE, lambda key: key, r"randomize, called with \(key, params\) of gymnax:CartPole-v1, raised TypeError"),
        (POLE, lambda key, params: 3.0, "randomize returns .* expected .*EnvParams"),
        (POLE, lambda key, params: params.replace(length=jnp.ones(2)), r"changes .length .* float32\[\] to float32\[2\]: expected the same shape"),
        (POLE, lambda key, params: params.replace(length=1j), "expected the same shape and type"),
        ("toys:Forbidden", lambda key, params: params, "has no parameters"),
        (Powered, lambda rng: 3, r"returned int: expected a dict, the options of reset"),
        (Powered, lambda: {"power": 1.0}, r"randomize, called with \(rng\), raised TypeError"),
        (Powered, lambda rng: {"strength": 1.0}, r"reset\(seed=…, options=\{'strength': 1.0\}\), with the options of randomize, raised KeyError"),
        (lambda num_envs: gym.make_vec("CartPole-v1", num_envs=num_envs), draw_power, "a vector environment: .*randomize"),
    ],
)  # fmt: skip
def test_wrong_functions_are_one_sentence(env, draw, message):
    with pytest.raises((ConfigError, EnvError), match=message):
        randomized(env, draw)


@dataclasses.dataclass
class Shorter:
    """A function with a setting. It has no hash."""

    factor: float

    def __call__(self, key, params):
        return params.replace(length=self.factor * params.length)


def test_objects_that_can_be_called_are_functions_and_classes_are_not():
    agents = [proximo.PPO(POLE, num_envs=2, num_steps=8, randomize=Shorter(factor)) for factor in (0.5, 2.0)]
    assert agents[0].evaluate(20).summary() != agents[1].evaluate(20).summary()
    for wrong in (Shorter, 3):
        with pytest.raises(ConfigError, match=r"randomize = .*expected"):
            proximo.PPO(POLE, randomize=wrong)


def test_a_name_follows_the_rules_of_code():
    """A file cannot name a function of a library, a card lists the name, and another environment of an evaluation is not randomized."""
    config = make_config(POLE, randomize="test_randomization:draw_pole")
    assert code_of(config) == {"randomize": "test_randomization:draw_pole"}
    for name, message in (
        ("os:getcwd", "is a part of Python"),
        ("numpy:mean", "a function of a custom module"),
        ("nowhere:f", "no module"),
    ):
        with pytest.raises(ConfigError, match=message):
            proximo.PPO(POLE, randomize=name)
    agent = proximo.PPO(POLE, num_envs=2, num_steps=8, randomize="test_randomization:draw_pole")
    long = agent.evaluate(20, env=POLE, env_settings={"length": 2.0}), agent.evaluate(20, env=POLE)
    assert long[0].summary() != long[1].summary()


def test_a_policy_that_learned_on_all_poles_holds_all_poles():
    """Poles of 0.25 to 4 m. Without randomization, it fails at 4 m."""
    worst = []
    for draw in ("none", draw_pole):
        agent = proximo.PPO(POLE, seed=100, randomize=draw).learn(400_000)
        settings = [{"length": half, "polemass_length": 0.1 * half} for half in (0.125, 0.5, 1.0, 2.0)]
        worst.append([agent.evaluate(50, env=POLE, env_settings=s).summary()["return_mean"] for s in settings])
    assert worst[0][1] > 480
    assert worst[0][-1] < 100
    assert min(worst[1]) > 400
