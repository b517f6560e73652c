"""A range of levels, on the host and in JAX."""

import jax
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.host.preprocessing import Preprocessing
from proximo.envs.levels import FIRST_LEVEL, LevelRange
from proximo.errors import ConfigError


def test_on_the_host_every_reset_is_one_of_the_levels():
    plain = make_env("CartPole-v1").make()
    levels = {plain.reset(seed=level)[0].tobytes() for level in (5, 6, 7)}
    env = make_env("CartPole-v1", preprocessing=Preprocessing(levels="5:8")).make()
    seen = [env.reset(seed=0)[0].tobytes()] + [env.reset()[0].tobytes() for _ in range(40)]
    assert set(seen) == levels
    assert seen == [env.reset(seed=0)[0].tobytes()] + [env.reset()[0].tobytes() for _ in range(40)]


def test_in_jax_every_reset_is_one_of_the_levels():
    plain, env = make_env("gymnax:CartPole-v1"), make_env("gymnax:CartPole-v1", preprocessing=Preprocessing(levels="5:8"))
    params = plain.default_params
    starts = [jax.random.fold_in(jax.random.key(0), np.uint32(FIRST_LEVEL + level)) for level in (5, 6, 7)]
    levels = {np.asarray(plain.reset(key, params)[1]).tobytes() for key in starts}
    keys = jax.random.split(jax.random.key(0), 40)
    seen = {row.tobytes() for row in np.asarray(jax.vmap(env.reset, in_axes=(0, None))(keys, params)[1])}
    assert seen == levels


@pytest.mark.parametrize("text", ["5", "8:5", "5:5", "a:b", "-1:5", ":"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(ConfigError, match="expected FROM:TO"):
        LevelRange.parse(text)


def test_environments_that_vectorise_themselves_have_no_levels_of_ours():
    with pytest.raises(ConfigError, match="levels"):
        make_env("ale:pong", preprocessing=Preprocessing(levels="0:5"))
