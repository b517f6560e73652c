"""Observations and masks of a user: converted if no number changes, and otherwise refused with a message."""

import jax
import numpy as np
import pytest

from proximo.errors import ConfigError
from proximo.evaluation.observations import convert_masks, convert_observation, count_stacked
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
    single = convert_observation(given, space)
    stacked = convert_observation(jax.tree.map(lambda x: x[None], single), space)
    for found, count in ((single, None), (stacked, 1)):
        like = zeros(space, () if count is None else (count,))
        assert jax.tree.map(lambda x: (x.dtype, x.shape), found) == jax.tree.map(lambda x: (x.dtype, x.shape), like)
        assert count_stacked(found, space) == count


ONE, TWO = [1, 0, 1], [0, 0, 1, 1]
MASK = np.array(ONE + TWO)
ROWS = np.array([[0, 1, 0], [0, 0, 1]])
OBJECTS = np.empty(2, object)
OBJECTS[:] = [(np.array(ONE), np.array(TWO))] * 2


@pytest.mark.parametrize(
    ("sizes", "count", "given"),
    [
        *(((3, 4), None, given) for given in (MASK, (np.array(ONE, np.int8), np.array(TWO)), [ONE, TWO], 0.5 * MASK, 256 * MASK)),
        *(((3, 4), 2, given) for given in (np.stack([MASK] * 2), [MASK] * 2, [(ONE, TWO)] * 2, OBJECTS)),
        ((3, 4), 2, tuple(np.stack([part] * 2) for part in (ONE, TWO))),
        *(((3, 3), None, given) for given in (ROWS, tuple(ROWS), ROWS.ravel())),
        *(((3, 3), 3, given) for given in (np.stack([ROWS] * 3), [ROWS] * 3, [tuple(ROWS)] * 3, [ROWS.ravel()] * 3)),
        ((3, 3), 2, [ROWS.ravel()] * 2),
        ((3,), 1, [np.array(ONE)]),
    ],
    ids=str,
)
def test_action_masks_may_have_any_form_of_an_environment(sizes, count, given):
    expected = {(3, 4): MASK, (3, 3): ROWS, (3,): np.array(ONE)}[sizes].ravel() != 0
    assert convert_masks(given, sizes, count).tolist() == [expected.tolist()] * (count or 1)


MASKS, HALF, UNLIKE = "two masks of two components", np.full((2, 2), 0.5), {"a": np.zeros((2, 3)), "b": (1, [0, 0])}


@pytest.mark.parametrize(
    ("space", "given", "sentence"),
    [
        (PICTURE, HALF, r" has 0\.5, which is not in Box\(2, 2\) uint8: pass the numbers of the environment, unch"),
        (Discrete(16), 16, r" has 16, which is not in Discrete\(16\)"),
        (Discrete(4, start=-2), 2, " has 2, which"),
        (Discrete(16), np.nan, " has nan, which"),
        (Box((3,)), [0, np.nan, 0], r" has nan: expected finite numbers\. Check the code of the environment"),
        (PARTS, {"a": [0, 0, -np.inf], "b": (1, [0, 0])}, "'s a has -inf: expected finite"),
        (GRID, [[0, 5], [0, 8]], " has 8, which"),
        (MultiBinary((2,)), [0, 2], " has 2, which"),
        (Box((3,)), "abc", r" is str: expected numbers, in Box\(3,\) float32\.$"),
        (Box((2,)), [[1, 2], [3]], " is list: expected numbers"),
        (Box((3,)), (np.zeros(3), {}), r" is tuple \(env\.reset\(\) returns observation, info\): expected numbers"),
        (PARTS, ({}, {}), r" is tuple \(env\.reset\(\) returns observation, info\): expected a dict of a, b"),
        (PARTS, {1: 0, "a": 1}, r" is a dict of 1, a: expected a dict of a, b\.$"),
        (PARTS, {"a": [0, 0, 0], "b": (1,)}, r"'s b is tuple: expected a tuple of 2\.$"),
        (PARTS, {"a": [0, 0, 0], "b": (9, [0, 0])}, r"'s b's part 0 has 9, which is not in Discrete\(4, start=1\)"),
        (PARTS, UNLIKE, r"'s part \['b'\]\[0\] has the shape \(\): .* stacked in all parts alike\.$"),
        *((Box((3,)), np.zeros(shape), r".*: expected \(3,\), or N of them") for shape in ((), (2,), (2, 2, 3), (0, 3))),
        (MASKS, [ROWS, ROWS], r"may be the masks of 2 environments or of 2 components: give one array of shape \(2, 6\)"),
        (MASKS, np.ones((2, 2, 3)) * [[0], [1]], " allows no action, or none in one component"),
        *((MASKS, wrong, " = .*: expected 6 numbers for each") for wrong in ((), [[1], [1, 0]], "all", [None, None], 1)),
    ],
)
def test_what_cannot_be_converted_raises(space, given, sentence):
    with pytest.raises(ConfigError, match=f"^(The observation|An observation|action_mask)( is a sequence .*)?{sentence}"):
        convert_masks(given, (3, 3), 2) if space is MASKS else count_stacked(convert_observation(given, space), space)


def test_traced_observation_raises_and_suggests_the_actor_critic():
    with pytest.raises(ConfigError, match=r"^The observation is within a JAX program .*: call policy\.actor_critic\.step there"):
        jax.jit(lambda x: convert_observation(x, Box((3,))))(np.zeros(3))
