"""The count of matrix products, on which the limit of a training rests."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def counted(monkeypatch):
    """``counted(function, *arguments)``: its products as (batch, m, k, n), each with how often it is computed."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import limits

    return lambda function, *arguments: sorted(limits.products_of(jax.make_jaxpr(function)(*arguments).jaxpr))


def test_products_of_scans_and_functions_are_counted_as_often_as_they_run(counted):
    def scanned(x, w):
        def body(x, _):
            return jax.jit(lambda x: jnp.tanh(x @ w))(x), jax.lax.scan(lambda c, _: (c, c @ w), x, length=3)[1]

        return jax.lax.scan(body, x, length=5)

    assert counted(scanned, jnp.zeros((2, 4)), jnp.zeros((4, 4))) == [((1, 2, 4, 4), 5), ((1, 2, 4, 4), 15)]


def test_gradient_has_the_products_of_both_directions(counted):
    x, w = jnp.zeros((8, 3)), jnp.zeros((3, 5))
    # Forward 8 × 3 × 5, for the weights 3 × 8 × 5 (or its transpose), for the inputs 8 × 5 × 3.
    found = [product for product, _ in counted(jax.grad(lambda w, x: jnp.tanh(x @ w).sum(), (0, 1)), w, x)]
    assert sorted(sorted(product[1:]) for product in found) == [[3, 5, 8]] * 3
    assert {product[2] for product in found} == {3, 5, 8}
    assert counted(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), jnp.zeros((7, 2, 3)), jnp.zeros((7, 3, 4))) == [
        ((7, 2, 3, 4), 1)
    ]


def test_convolutions_count_as_the_products_of_the_cpu(counted):
    from proximo.networks.convolution import Convolution

    layer = Convolution.create(jax.random.key(0), 4, 32, size=8, stride=4)
    found = counted(jax.grad(lambda layer, x: layer(x).sum()), layer, jnp.zeros((64, 84, 84, 4), jnp.uint8))
    # Two chunks of 32 images with 21 × 21 blocks of 64 numbers, times the four positions of a kernel of 2 × 2 blocks with 32 channels.
    assert sorted(sorted(product[1:]) for product, times in found if times == 2) == [[64, 128, 32 * 21 * 21]] * 2


def test_branches_do_not_count_and_loops_of_unknown_length_fail(counted):
    def rare(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: x, x)

    assert counted(rare, jnp.zeros((2, 2))) == []
    with pytest.raises(AssertionError, match="not known"):
        counted(lambda x: jax.lax.while_loop(lambda x: x[0, 0] < 1, lambda x: x @ x, x), jnp.zeros((2, 2)))
