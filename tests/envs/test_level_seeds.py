"""Level seeds of Gymnasium and JAX environments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.envs import make_env
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.level_seeds import FIRST_LEVEL, JaxLevels, LevelRange, with_levels
from proximo.errors import ConfigError

import gym_toys
import toys

LEVELS = Preprocessing(levels="5:8")


def test_every_gymnasium_reset_is_one_of_the_levels():
    plain, env = make_env("CartPole-v1").make(), make_env("CartPole-v1", preprocessing=LEVELS).make()
    seen, again = ([env.reset(seed=s)[0].tobytes() for s in (0, *[None] * 40)] for _ in range(2))
    assert seen == again
    assert set(seen) == {plain.reset(seed=level)[0].tobytes() for level in (5, 6, 7)}


def test_every_jax_reset_is_one_of_the_levels():
    plain, env = make_env("gymnax:CartPole-v1"), make_env("gymnax:CartPole-v1", preprocessing=LEVELS)
    roots = [jax.random.fold_in(jax.random.key(0), np.uint32(FIRST_LEVEL + level)) for level in (5, 6, 7)]
    levels = {np.asarray(plain.reset(jax.random.split(root)[0], plain.default_params)[1]).tobytes() for root in roots}
    observations = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 40), plain.default_params)[1]
    assert {row.tobytes() for row in np.asarray(observations)} == levels


def walk_on_gymnasium(level, draw):
    """Return the transitions of an episode of ``level`` with fixed actions, in an environment with the seed ``draw``."""
    env = Preprocessing(levels=f"{level}:{level + 1}").wrap(gym_toys.Walk(), "toy")
    env.reset(seed=draw)
    return [(*env.reset()[0], 0.0), *((*row[0], row[1]) for row in (env.step(t % 3) for t in range(8)))]


@functools.cache
def jax_walk():
    env = JaxLevels(toys.RandomEnds(), LevelRange(0, 100))

    @jax.jit
    def play(level, draw):
        env.level = lambda key: level
        keys = jax.random.split(jax.random.key(draw), 9)
        state, first = env.reset(keys[0], env.default_params)

        def step(state, row):
            state, observation, reward, *_ = env.step(row[0], state, row[1], env.default_params)
            return state, (observation, reward)

        _, (observations, rewards) = jax.lax.scan(step, state, (keys[1:], jnp.arange(8) % 2))
        return first, observations, rewards

    return play


@pytest.mark.parametrize("play", [walk_on_gymnasium, lambda level, draw: jax_walk()(level, draw)], ids=["Gymnasium", "JAX"])
def test_a_level_determines_its_whole_episode(play):
    one, again, other = (np.hstack([np.ravel(x) for x in play(*args)]) for args in ((3, 0), (3, 1), (4, 0)))
    np.testing.assert_array_equal(one, again)
    assert (one != other).mean() > 0.3


def test_the_steps_of_a_jax_episode_have_different_randomness_and_are_drawn():
    first, observations, rewards = jax_walk()(3, 0)
    assert len({x.tobytes() for x in np.concatenate([first[None], observations])}) == 9
    assert len(set(rewards.tolist())) == 8
    env = JaxLevels(toys.Drawn(), LevelRange(0, 5))
    state, _ = env.reset(jax.random.key(0), env.default_params)
    state, *_ = env.step(jax.random.key(0), state, jnp.int32(0), env.default_params)
    assert (env.render(state, env.default_params)[:, :2] == [[255] * 3, [0] * 3]).all()


def test_an_environment_without_an_id_plays_the_levels():
    agent = proximo.PPO(toys.RandomEnds(), levels="3:5", num_envs=2, num_steps=8, hidden_sizes=8, preset=False, verbose=0)
    assert (type(agent.env), agent.env.levels) == (JaxLevels, LevelRange(3, 5))
    for levels, played in (None, {3, 4}), ("7:9", {7, 8}):
        assert set(agent.evaluate(episodes=30, levels=levels).level) == played


def test_the_functions_of_a_training_play_the_levels_in_place_of_those_of_the_environment():
    env = with_levels(toys.RandomEnds(), "7:10")
    assert (with_levels(env, "3:5").levels, type(with_levels(env, "3:5").env)) == (LevelRange(3, 5), toys.RandomEnds)
    settings = {"levels": "3:5", "num_envs": 32, "num_steps": 4, "hidden_sizes": (8,), "num_minibatches": 1}
    init, collect, _ = proximo.make_functions(proximo.make_config("toys:RandomEnds", settings, preset=False), env)
    _, rollout, _ = collect(init(jax.random.key(0)))
    assert len(np.unique(rollout.observation[0], axis=0)) == 2


@pytest.mark.parametrize("text", ["5", "8:5", "5:5", "a:b", "-1:5", ":", "0:5\n", "0:" + 5000 * "9", "٠:٥"])
def test_invalid_level_range_raises(text):
    with pytest.raises(ConfigError, match="expected FROM:TO"):
        LevelRange.parse(text)
