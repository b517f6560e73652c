"""Observations of a user: converted if no number changes, and otherwise refused with a message."""

import jax
import numpy as np
import pytest

from proximo.errors import ConfigError
from proximo.evaluation.observations import convert_observation, count_stacked
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, zeros

PICTURE = Box((2, 2), 0.0, 255.0, "uint8")
PARTS = Dict((("a", Box((3,))), ("b", Tuple((Discrete(4, start=1), MultiBinary((2,)))))))
GRID = MultiDiscrete((2, 3), start=(0, 5))


@pytest.mark.parametrize(
    ("space", "given"),
    [
        (Box((3,)), [0, 1, 2]),
        (Box((3,)), np.arange(3)),
        (Box((3,)), [jax.numpy.float32(0), 1.0, 2]),
        (PICTURE, [[0, 255], [3, 4]]),
        (PICTURE, np.array([[0.0, 255.0], [3.0, 4.0]])),
        (Discrete(16), 15),
        (Discrete(4, start=-2), np.int64(-2)),
        (GRID, [1, 7]),
        (MultiBinary((2,)), [0, 1]),
        (PARTS, {"a": [0, 1, 2], "b": (4, [True, False])}),
        (PARTS, {"b": [1, np.array([0, 1])], "a": jax.numpy.zeros(3)}),
    ],
    ids=str,
)
def test_equivalent_forms_are_converted_alike(space, given):
    for stacked in (False, True):
        if stacked:
            given = jax.tree.map(
                lambda x: np.asarray(x)[None], given, is_leaf=lambda x: isinstance(x, list) and space is not PARTS
            )
            if space is PARTS:
                given = {"a": np.zeros((1, 3)), "b": (np.ones(1, int), np.zeros((1, 2)))}
        found, expected = convert_observation(given, space), zeros(space, (1,) if stacked else ())
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for x, like in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (x.dtype, x.shape) == (like.dtype, like.shape)
        assert count_stacked(found, space) == (1 if stacked else None)


@pytest.mark.parametrize(
    ("space", "given", "says"),
    [
        (
            PICTURE,
            np.full((2, 2), 0.5),
            r"^The observation has 0\.5, which is not in Box\(2, 2\) uint8: pass the numbers of the environment, unchanged\.$",
        ),
        (PICTURE, np.full((2, 2), 256), r"^The observation has 256, which"),
        (Discrete(16), 16, r"^The observation has 16, which is not in Discrete\(16\)"),
        (Discrete(16), [3, -1], r"^The observation has -1, which"),
        (Discrete(4, start=-2), 2, r"^The observation has 2, which"),
        (Discrete(16), np.nan, r"^The observation has nan, which"),
        (
            Box((3,)),
            [0, np.nan, 0],
            r"^The observation has nan: expected finite numbers. Check the code of the environment that computes it\.$",
        ),
        (Box((3,)), np.array([0, 0, 1e300]), r"^The observation has inf: expected finite"),
        (PARTS, {"a": [0, 0, -np.inf], "b": (1, [0, 0])}, r"^The observation's a has -inf: expected finite"),
        (GRID, [[0, 5], [0, 8]], r"^The observation has 8, which"),
        (MultiBinary((2,)), [0, 2], r"^The observation has 2, which"),
        (Box((3,)), "abc", r"^The observation is str: expected an array of Box\(3,\) float32\.$"),
        (Box((3,)), None, r"^The observation is NoneType: expected an array"),
        (Box((3,)), np.array([None] * 3), r"^The observation is an array of object: expected an array"),
        (Box((2,)), [[1, 2], [3]], r"^The observation is a list of 2: expected an array"),
        (
            Box((3,)),
            (np.zeros(3), {}),
            r"^The observation is a tuple of 2: expected an array .*; Gymnasium's reset returns a pair: observation, info",
        ),
        (Discrete(3), (1, {}), r"^The observation is a tuple of 2: .* Gymnasium's reset"),
        (PARTS, ({}, {}), r"^The observation is a tuple of 2: expected a dict of a, b; Gymnasium's reset"),
        (PARTS, {"a": [0, 0, 0]}, r"^The observation is a dict of a: expected a dict of a, b\.$"),
        (PARTS, {1: 0, "a": 1}, r"^The observation is a dict of 1, a: expected"),
        (PARTS, {"a": [0, 0, 0], "b": (1,)}, r"^The observation's b is a tuple of 1: expected a tuple of 2\.$"),
        (
            PARTS,
            {"a": [0, 0, 0], "b": (9, [0, 0])},
            r"^The observation's b's part 0 has 9, which is not in Discrete\(4, start=1\)",
        ),
    ],
)
def test_observations_that_a_cast_would_change_raise(space, given, says):
    with pytest.raises(ConfigError, match=says):
        convert_observation(given, space)


def test_traced_observation_raises_and_suggests_the_actor_critic():
    with pytest.raises(
        ConfigError, match=r"^The observation is within a JAX program .*: call policy\.actor_critic\.step there\."
    ):
        jax.jit(lambda x: convert_observation(x, Box((3,))))(np.zeros(3))


@pytest.mark.parametrize("shape", [(), (2,), (2, 2, 3), (3, 2)])
def test_other_shapes_than_one_or_many_raise(shape):
    with pytest.raises(ConfigError, match=r"^An observation has the shape .*: expected \(3,\), or N of them stacked"):
        count_stacked(np.zeros(shape, np.float32), Box((3,)))


@pytest.mark.parametrize(("a", "b"), [((3,), (2,)), ((2, 3), (3,)), ((2, 3), ())])
def test_entries_stacked_unlike_each_other_raise(a, b):
    space = Dict((("a", Box((3,))), ("b", Discrete(4))))
    with pytest.raises(
        ConfigError,
        match=r"^The observation's part \['b'\] has the shape .*: expected \(\), or N of them stacked in all parts alike\.$",
    ):
        count_stacked({"a": np.zeros(a), "b": np.zeros(b, int)}, space)
