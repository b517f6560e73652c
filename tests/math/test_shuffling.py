import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.math.shuffling import permutation

LENGTHS = (1, 2, 3, 31, 127, 128, 129, 200, 255, 256, 257, 300, 8192, 10_000)


@functools.cache
def orders():
    """Three orders of every length, from one compiled program."""
    program = jax.jit(jax.vmap(lambda key: {n: permutation(key, n) for n in LENGTHS}))
    return jax.device_get(program(jax.random.split(jax.random.key(0), 3)))


@pytest.mark.parametrize("n", LENGTHS)
def test_permutation_is_a_bijection_that_depends_on_its_key(n):
    for order in orders()[n]:
        assert sorted(order.tolist()) == list(range(n))
    if n > 30:
        assert len({tuple(order) for order in [*orders()[n].tolist(), range(n)]}) == 4


@pytest.mark.parametrize(("n", "count"), [(100, 4000), (512, 5120)])
def test_every_index_comes_first_equally_often(n, count):
    first = jax.jit(jax.vmap(lambda key: permutation(key, n)[jnp.array([0, n // 2])]))(jax.random.split(jax.random.key(1), count))
    for position in np.asarray(first).T:
        assert stats.chisquare(np.bincount(position, minlength=n)).pvalue > 1e-3


def test_neighbours_do_not_stay_neighbours():
    keys = jax.random.split(jax.random.key(2), 200)
    many = np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, 512)))(keys)).astype(int)
    assert np.mean(np.diff(many, axis=1) == 1) == pytest.approx(1 / 512, rel=0.2)
