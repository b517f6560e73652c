"""Level seeds of Gymnasium and JAX environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.collect.jax_vector import JaxAsGymnasium
from proximo.envs import make_env
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.level_seeds import FIRST_LEVEL, JaxLevels, LevelRange, with_levels
from proximo.errors import ConfigError

import gym_toys
import toys

LEVELS = Preprocessing(levels="5:8")
SMALL = {"num_envs": 32, "num_steps": 4, "hidden_sizes": (8,), "towers": "shared"}


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


def on_gymnasium(levels):
    return Preprocessing(levels=levels).wrap(gym_toys.Walk(), "toy")


def on_jax(levels):
    endless = gym_toys.altered(toys.RandomEnds, default_params={"terminate": 0.0, "truncate": 0.0})
    return JaxAsGymnasium(with_levels(endless(), levels), jax.random.key(0))


@pytest.mark.parametrize("make", [on_gymnasium, on_jax])
def test_a_level_determines_its_whole_episode(make):
    def walk(level, draw):
        """The transitions of an episode of ``level``, in an environment with the seed ``draw``."""
        env = make(f"{level}:{level + 1}")
        env.reset(seed=draw)
        steps = (env.reset()[0], 0.0), *(env.step(t % 2)[:2] for t in range(8))
        return np.array([(*observation, reward) for observation, reward in steps])

    one, again, other = walk(3, 0), walk(3, 1), walk(4, 0)
    np.testing.assert_array_equal(one, again)
    assert (one != other).mean() > 0.3
    assert len(np.unique(one[:, :-1], axis=0)) == len(set(one[:, -1])) == 9, "all steps differ"


def test_a_jax_environment_with_levels_is_drawn():
    env = JaxLevels(toys.Drawn(), LevelRange(0, 5))
    state, _ = env.reset(jax.random.key(0), env.default_params)
    state, *_ = env.step(jax.random.key(0), state, jnp.int32(0), env.default_params)
    assert (env.render(state, env.default_params)[:, :2] == [[255] * 3, [0] * 3]).all()


def test_an_environment_without_an_id_plays_the_levels():
    agent = proximo.PPO(toys.RandomEnds(), levels="3:5", preset=False, verbose=0, **SMALL)
    assert (type(agent.env), agent.env.levels) == (JaxLevels, LevelRange(3, 5))
    for levels, played in (None, {3, 4}), ("7:9", {7, 8}):
        assert set(agent.evaluate(episodes=30, levels=levels).level) == played


def test_the_functions_of_a_training_play_the_levels_in_place_of_those_of_the_environment():
    env = with_levels(toys.RandomEnds(), "7:10")
    other = with_levels(env, "3:5")
    assert (other.levels, type(other.env)) == (LevelRange(3, 5), toys.RandomEnds)
    config = proximo.make_config("toys:RandomEnds", {"levels": "3:5", **SMALL}, preset=False)
    init, collect, _ = proximo.make_functions(config, env)
    _, rollout, _ = collect(init(jax.random.key(0)))
    assert len(np.unique(rollout.observation[0], axis=0)) == 2


@pytest.mark.parametrize("text", ["5", "8:5", "5:5", "a:b", "-1:5", ":", "0:5\n", "0:" + 5000 * "9", "٠:٥"])
def test_invalid_level_range_raises(text):
    with pytest.raises(ConfigError, match="expected FROM:TO"):
        LevelRange.parse(text)
