"""Statistics, part by part, of what is made of floating-point numbers; and the clip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.networks import make_policy
from proximo.networks.normalizer import make_statistics, normalized, with_observations
from proximo.spaces import Box, Dict, Discrete

import toys
from helpers import small_config

SPACE = toys.masked(toys.PARTS, 4)


def test_only_floating_point_parts_have_statistics():
    statistics = make_statistics(SPACE, True)
    assert statistics["body"][0].mean.shape == (3,)
    assert statistics["body"][1:] == (None, None)
    assert statistics["camera"] is statistics["level"] is statistics["action_mask"] is None
    assert make_statistics(SPACE, False) is None
    for part in (("b", Box((2,), 0.0, 9.0, "int32")), ("action_mask", Box((2,)))):
        assert make_statistics(Dict((("a", Discrete(2)), part)), True) is None


def test_auto_normalizes_observations_of_at_most_two_axes():
    shapes = {"board": (2, 2, 2), "number": (), "stacked": (4, 3), "vector": (3,)}
    space = Dict({name: Box(shape) for name, shape in shapes.items()})
    assert [name for name, part in make_statistics(space, "auto").items() if part is None] == ["board"]
    assert None not in make_statistics(space, True).values()


def test_each_part_is_normalized_by_its_valid_observations():
    observation = jax.vmap(lambda key: toys.draw(key, SPACE))(jax.random.split(jax.random.key(0), 50))
    statistics = with_observations(make_statistics(SPACE, True), observation, jnp.arange(50) < 40)
    got, vectors = normalized(statistics, observation, 0.0), np.asarray(observation["body"][0])
    expected = (vectors - vectors[:40].mean(0)) / vectors[:40].std(0)
    np.testing.assert_allclose(got["body"][0], expected, rtol=1e-3, atol=1e-3)
    same = jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), got, observation)
    assert same.pop("body") == (False, True, True)
    assert set(same.values()) == {True}


@pytest.mark.parametrize(
    ("normalize", "clip", "bound"), [(True, 0.0, 10.0), (True, 2.0, 2.0), (False, 0.0, 50.0), (False, 2.0, 2.0)]
)
def test_observations_are_clipped_inside_the_policy(normalize, clip, bound):
    space = Dict((("n", Discrete(4)), ("x", Box((3,)))))
    policy = make_policy(jax.random.key(0), space, Discrete(2), small_config().network, normalize, clip)
    got = policy.normalize({"n": jnp.array([3]), "x": jnp.array([[-50.0, 0.0, 50.0]])})
    assert got["n"].tolist() == [3]
    np.testing.assert_allclose(got["x"][0], [-bound, 0.0, bound])
