import numpy as np
import pytest
from gymnasium import spaces as gym
from gymnax.environments import spaces as gymnax

from proximo.errors import EnvError
from proximo.spaces import (
    Box,
    Dict,
    Discrete,
    Joint,
    MultiBinary,
    MultiDiscrete,
    Tuple,
    allowed_action,
    allows,
    from_any,
    joined,
    mask_sizes,
    nested,
    random_actions,
    zeros,
)

IMAGE = Box((36, 36, 3), 0.0, 255.0, "uint8")
NESTED = Dict({"b": Tuple((Discrete(2, 3), MultiBinary((4,)))), "a": IMAGE})
GYM_IMAGE = gym.Box(0, 255, (36, 36, 3), np.uint8)
CONVERTED = [
    (gym.Discrete(3), Discrete(3)),
    (gym.Discrete(3, start=-2), Discrete(3, -2)),
    (gym.Box(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), dtype=np.float64), Box((2,), (-1.0, 0.0), (1.0, 2.0), "float64")),
    (GYM_IMAGE, IMAGE),
    (gym.Box(-np.inf, np.inf, (4,)), Box((4,))),
    (gym.Box(0, 9, (4,), np.int64), Box((4,), 0.0, 9.0, "int64")),
    (gym.MultiDiscrete([3, 2]), MultiDiscrete((3, 2))),
    (gym.MultiDiscrete([[3, 2], [4, 5]], start=[[1, 0], [0, 2]]), MultiDiscrete((3, 2, 4, 5), (1, 0, 0, 2), (2, 2))),
    (gym.MultiBinary(3), MultiBinary((3,))),
    (gym.MultiBinary([2, 3]), MultiBinary((2, 3))),
    (gym.Dict({"b": gym.Tuple((gym.Discrete(2, start=3), gym.MultiBinary(4))), "a": GYM_IMAGE}), NESTED),
    (type("Parts", (type("Named", (gym.Dict,), {}),), {})({"a": gym.Discrete(2)}), Dict({"a": Discrete(2)})),
    (gymnax.Box(-2.0, 2.0, (1,)), Box((1,), -2.0, 2.0, "float32")),
    (gymnax.Dict({"x": gymnax.Discrete(3)}), Dict({"x": Discrete(3)})),
    (gymnax.Tuple([gymnax.Discrete(3)]), Tuple([Discrete(3)])),
    (NESTED, NESTED),
    # As their namesakes of Gymnasium are written, and still hashable.
    (Box([2, 2], np.zeros((2, 2)), np.array([[1, 2], [3, 4]]), np.uint8), Box((2, 2), 0.0, (1.0, 2.0, 3.0, 4.0), "uint8")),
    (Box((np.int64(2),), [0.0, 0.0], [1.0, 2.0]), Box((2,), 0.0, (1.0, 2.0))),
    (Discrete(np.int64(2)), Discrete(2)),
    (MultiDiscrete(np.array([2, 3])), MultiDiscrete((2, 3))),
    (MultiBinary([2]), MultiBinary((2,))),
    (Dict((("b", Discrete(1)), ("a", Discrete(2)))), Dict({"a": Discrete(2), "b": Discrete(1)})),
]


@pytest.mark.parametrize(("space", "expected"), CONVERTED, ids=lambda space: f"{type(space).__module__}.{space}")
def test_spaces_are_converted(space, expected):
    got = from_any(space, "observation")
    assert got == expected
    assert hash(got) == hash(expected)


@pytest.mark.parametrize(
    "space",
    [
        gym.Text(3),
        gym.Sequence(gym.Discrete(2)),
        gym.OneOf((gym.Discrete(2),)),
        gym.Graph(gym.Discrete(2), None),
        gym.Tuple(()),
        gym.Box(0, 5, (2,), np.int32),
        Dict({}),
        Box((2,), 0.0, 5.0, "int32"),
        "anything",
    ],
    ids=str,
)
def test_unsupported_action_space_raises_with_its_name(space):
    sentence = r"^The action space .* is not supported: expected Discrete, MultiDiscrete, MultiB"
    with pytest.raises(EnvError, match=sentence) as error:
        from_any(space, "action")
    assert str(space) in str(error.value) or repr(space) in str(error.value)
    assert str(error.value).count(". ") == 0


@pytest.mark.parametrize("space", [gym.Discrete(3, start=2**31 - 2), gym.MultiDiscrete([3, 2], start=[0, -(2**31) - 1])], ids=str)
@pytest.mark.parametrize("role", ["observation", "action"])
def test_integers_that_are_not_stored_are_refused(space, role):
    sentence = rf"^The {role} space .*Discrete.* has values that int32 cannot represent: expected -2147483648 … 2147483647\.$"
    with pytest.raises(EnvError, match=sentence):
        from_any(space, role)
    from_any(gym.Discrete(3, start=2**31 - 3), role)


@pytest.mark.parametrize(
    ("space", "where"),
    [
        (gym.Text(3), r"space Text\("),
        (gym.Dict({1: gym.Discrete(2), "a": gym.Discrete(2)}), r"space Dict\("),
        (gym.Dict({"a": gym.Tuple((gym.Discrete(2), gym.Text(3)))}), r"space at \['a'\]\[1\] Text\("),
        (gym.Dict({"a": gym.Dict({})}), r"space at \['a'\] Dict\(\)"),
        (gym.Tuple((gym.Sequence(gym.Discrete(2)),)), r"space at \[0\] Sequence\("),
    ],
    ids=str,
)
def test_unsupported_part_of_an_observation_raises_with_its_place(space, where):
    with pytest.raises(EnvError, match=rf"^The observation {where}.* is not supported: expected Box, Discrete, MultiDiscrete"):
        from_any(space, "observation")


NO_ENTRY, CHOICE = "there is no entry", "there is no choice"
BOX = r"^Box\(shape=.*Expected the shape first, as in Box\(\(3,\), low=-1.0, high=1.0\)\.$"
DISCRETE = r"^Discrete\(n=.*\. Expected integers, and n of 1 or more\.$"
MULTI_DISCRETE = r"^MultiDiscrete\(.*\. Expected one choice or more, and one start, for each component, as in Multi"
BINARY = r"^MultiBinary\(.*\. Expected a tuple of integers, as in MultiBinary\("
IMPOSSIBLE = [
    (lambda: Box((0,)), NO_ENTRY),
    (lambda: Box(-1.0, 1.0, (3,)), BOX),
    (lambda: Box((3,), (0.0, 0.0)), BOX),
    (lambda: Box((3,), "low"), BOX),
    (lambda: Box((2.5,)), BOX),
    (lambda: Box((3,), dtype="foo"), BOX),
    (lambda: from_any(gym.Box(0.0, 1.0, (0,)), "observation"), NO_ENTRY),
    (lambda: MultiBinary((2, -1)), NO_ENTRY),
    (lambda: MultiBinary(3), BINARY),
    (lambda: MultiDiscrete(()), NO_ENTRY),
    (lambda: MultiDiscrete(3), MULTI_DISCRETE),
    (lambda: MultiDiscrete([[2, 3], [4, 5]]), MULTI_DISCRETE),
    (lambda: Discrete(3.0), DISCRETE),
    (lambda: Discrete("a"), DISCRETE),
    (lambda: Box((2,), 1.0, 0.0), "a lower bound is above its upper bound, or NaN"),
    (lambda: Box((2,), (0.0, np.nan)), "a lower bound is above its upper bound, or NaN"),
    (lambda: Discrete(0), CHOICE),
    (lambda: MultiDiscrete((2, 0)), CHOICE),
    (lambda: MultiDiscrete((2, 3), start=(1,)), "one start, for each component"),
    (lambda: MultiDiscrete((2, 3), shape=(3,)), "one start, for each component"),
]


@pytest.mark.parametrize(("make", "sentence"), IMPOSSIBLE)
def test_impossible_spaces_raise(make, sentence):
    with pytest.raises(EnvError, match=sentence):
        make()


def test_bounds_have_the_shape_of_the_space():
    low, high = Box((2, 2), (0.0, 1.0, 2.0, 3.0), 9.0).bounds()
    assert low.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert high.tolist() == [[9.0, 9.0], [9.0, 9.0]]


def test_images_are_bytes_with_two_to_four_axes():
    for shape in ((36, 36), (36, 36, 1), (2, 36, 36, 1)):
        assert Box(shape, 0.0, 255.0, "uint8").is_image
        assert not Box(shape).is_image
    assert not Box((36,), 0.0, 255.0, "uint8").is_image


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        *((Box((2,), dtype=name), name) for name in ("uint8", "int16", "int8", "bool")),
        *((Box((2,), dtype=name), "float32") for name in ("float64", "float16")),
        *((Box((2,), dtype=name), "int32") for name in ("int64", "uint16")),
        (Discrete(3), "int32"),
        (MultiDiscrete((3, 2), shape=(1, 2)), "int32"),
        (MultiBinary((2, 2)), "bool"),
    ],
)
def test_zeros_have_the_storage_type_of_observations(space, dtype):
    stored = zeros(space, (5, 2))
    assert stored.dtype == dtype
    assert stored.shape == (5, 2, *space.shape)
    assert not stored.any()


def test_zeros_have_the_structure_of_observations():
    stored = zeros(NESTED, (5,))
    assert list(stored) == ["a", "b"]
    assert stored["a"].shape == (5, 36, 36, 3)
    assert [x.shape for x in stored["b"]] == [(5,), (5, 4)]
    assert type(stored["b"]) is type(gym.Tuple((gym.Discrete(3),)).sample())


def test_str_of_a_space_is_short():
    assert str(Discrete(2)) == "Discrete(2)"
    assert str(MultiDiscrete((3, 2))) == "MultiDiscrete([3, 2])"
    assert str(MultiDiscrete((11, 6, 4) * 25, shape=(5, 5, 3))) == "MultiDiscrete of shape (5, 5, 3), up to 11 choices"
    assert str(MultiDiscrete((3, 2), (0, 1), (1, 2))) == "MultiDiscrete([[3, 2]], start=[[0, 1]])"
    assert str(NESTED) == "Dict(a: Box(36, 36, 3) uint8, b: Tuple(Discrete(2, start=3), MultiBinary(4,)))"


ACTIONS = gym.Dict(
    move=gym.Tuple([gym.Discrete(3, start=1), gym.Box(-1, 1, (2,))]),
    arms=gym.MultiDiscrete([2, 4]),
    lamps=gym.MultiBinary((2, 2)),
)


def test_actions_of_several_parts_are_vectors_that_the_environment_gets_nested():
    space = from_any(ACTIONS, "action")
    assert isinstance(space, Joint)
    assert (space.shape, from_any(space, "action")) == ((2 + 4 + 1 + 2,), space)
    assert [part.name for part in space.parts] == ["['arms']", "['lamps']", "['move'][0]", "['move'][1]"]
    rng = np.random.default_rng(0)
    vectors = random_actions(space, rng, 50)
    for vector in vectors:
        assert ACTIONS.contains(nested(space, vector)), nested(space, vector)
    np.testing.assert_array_equal(joined(part.of(nested(space, vectors)) for part in space.parts), vectors)
    # A mask has the entries of the discrete parts: two for each bit.
    assert mask_sizes(space) == (2, 4, 2, 2, 2, 2, 3)
    mask = rng.random(sum(mask_sizes(space))) < 0.5
    mask[[0, 2, 6, 8, 10, 12, 16]] = True
    for _ in range(50):
        action = allowed_action(space, rng, mask)
        assert allows(space, mask, nested(space, action))
        assert ACTIONS.contains(nested(space, action))
    assert not all(allows(space, mask, nested(space, action)) for action in vectors)
    with pytest.raises(EnvError, match=r"action space at \['speed'\].*is not supported"):
        from_any(gym.Dict(speed=gym.Box(0, 3, (1,), np.int32)), "action")
    with pytest.raises(EnvError, match=r"at \['far'\] has integers beyond"):
        from_any(gym.Dict(far=gym.Discrete(3, start=2**25)), "action")
