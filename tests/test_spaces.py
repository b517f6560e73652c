import gymnasium
import numpy as np
import pytest
from gymnax.environments import spaces as gymnax_spaces

from proximo.errors import EnvError
from proximo.spaces import Box, Discrete, from_any


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (gymnasium.spaces.Discrete(3), Discrete(3)),
        (gymnax_spaces.Discrete(3), Discrete(3)),
        (gymnasium.spaces.Box(-1.0, 1.0, (2,)), Box((2,), -1.0, 1.0, "float32")),
        (
            gymnasium.spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), dtype=np.float64),
            Box((2,), (-1.0, 0.0), (1.0, 2.0), "float64"),
        ),
        (gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8), Box((36, 36, 3), 0.0, 255.0, "uint8")),
        (gymnasium.spaces.Box(-np.inf, np.inf, (4,)), Box((4,))),
        (gymnax_spaces.Box(-2.0, 2.0, (1,)), Box((1,), -2.0, 2.0, "float32")),
        (Box((3,)), Box((3,))),
        (Discrete(5), Discrete(5)),
    ],
)
def test_spaces_of_libraries_are_translated(space, expected):
    got = from_any(space, "observation")
    assert got == expected
    assert hash(got) == hash(expected)


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(3, start=1),
        gymnasium.spaces.MultiBinary(3),
        gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(2),)),
        "anything",
    ],
)
def test_a_space_that_is_not_supported_is_named(space):
    with pytest.raises(EnvError, match=r"The action space .* is not supported: expected Box, or Discrete starting at 0"):
        from_any(space, "action")


def test_bounds_have_the_shape_of_the_space():
    low, high = Box((2, 2), (0.0, 1.0, 2.0, 3.0), 9.0).bounds()
    assert low.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert high.tolist() == [[9.0, 9.0], [9.0, 9.0]]


def test_images_are_bytes_with_three_axes():
    assert Box((36, 36, 1), 0.0, 255.0, "uint8").is_image
    assert not Box((36, 36), 0.0, 255.0, "uint8").is_image
    assert not Box((36, 36, 1)).is_image
    assert Box((36, 36, 3)).size == 3888


def test_spaces_are_written_briefly():
    assert str(Box((4,))) == "Box(4,) float32"
    assert str(Discrete(2)) == "Discrete(2)"
