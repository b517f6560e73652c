from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym

from proximo.errors import EnvError
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, from_any, zeros

IMAGE = Box((36, 36, 3), 0.0, 255.0, "uint8")
NESTED = Dict((("b", Tuple((Discrete(2, 3), MultiBinary((4,))))), ("a", IMAGE)))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (gym.Discrete(3), Discrete(3)),
        (gym.Discrete(3, start=-2), Discrete(3, -2)),
        (gym.Box(-1.0, 1.0, (2,)), Box((2,), -1.0, 1.0, "float32")),
        (
            gym.Box(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), dtype=np.float64),
            Box((2,), (-1.0, 0.0), (1.0, 2.0), "float64"),
        ),
        (gym.Box(0, 255, (36, 36, 3), np.uint8), IMAGE),
        (gym.Box(-np.inf, np.inf, (4,)), Box((4,))),
        (gym.Box(0, 9, (4,), np.int64), Box((4,), 0.0, 9.0, "int64")),
        (gym.MultiDiscrete([3, 2]), MultiDiscrete((3, 2))),
        (gym.MultiDiscrete([[3, 2], [4, 5]], start=[[1, 0], [0, 2]]), MultiDiscrete((3, 2, 4, 5), (1, 0, 0, 2), (2, 2))),
        (gym.MultiBinary(3), MultiBinary((3,))),
        (gym.MultiBinary([2, 3]), MultiBinary((2, 3))),
        (
            gym.Dict(
                {"b": gym.Tuple((gym.Discrete(2, start=3), gym.MultiBinary(4))), "a": gym.Box(0, 255, (36, 36, 3), np.uint8)}
            ),
            NESTED,
        ),
        (type("Positions", (gym.Box,), {})(-1, 1, (3,)), Box((3,), -1.0, 1.0)),
        (type("Parts", (type("Named", (gym.Dict,), {}),), {})({"a": gym.Discrete(2)}), Dict((("a", Discrete(2)),))),
        (Box((3,)), Box((3,))),
        (Discrete(5), Discrete(5)),
        (NESTED, NESTED),
    ],
)
def test_spaces_of_gymnasium_are_converted(space, expected):
    got = from_any(space, "observation")
    assert got == expected
    assert hash(got) == hash(expected)


def test_spaces_of_gymnax_are_converted():
    from gymnax.environments import spaces

    pairs = [
        (spaces.Discrete(3), Discrete(3)),
        (spaces.Box(-2.0, 2.0, (1,)), Box((1,), -2.0, 2.0, "float32")),
        (spaces.Dict({"x": spaces.Discrete(3)}), Dict((("x", Discrete(3)),))),
        (spaces.Tuple([spaces.Discrete(3)]), Tuple((Discrete(3),))),
    ]
    assert [from_any(space, "observation") for space, _ in pairs] == [expected for _, expected in pairs]


@pytest.mark.parametrize(
    "space",
    [
        gym.Text(3),
        gym.Sequence(gym.Discrete(2)),
        gym.OneOf((gym.Discrete(2),)),
        gym.Graph(gym.Discrete(2), None),
        gym.Tuple((gym.Discrete(2),)),
        gym.Dict({"a": gym.Discrete(2)}),
        gym.Box(0, 5, (2,), np.int32),
        Dict((("a", Discrete(2)),)),
        Box((2,), 0.0, 5.0, "int32"),
        "anything",
    ],
    ids=str,
)
def test_unsupported_action_space_raises_with_its_name(space):
    with pytest.raises(
        EnvError, match=r"^The action space .* is not supported: expected Discrete, MultiDiscrete, MultiB"
    ) as error:
        from_any(space, "action")
    assert str(space) in str(error.value) or repr(space) in str(error.value)
    assert str(error.value).count(". ") == 0


@pytest.mark.parametrize("space", [gym.Discrete(3, start=2**31 - 2), gym.MultiDiscrete([3, 2], start=[0, -(2**31) - 1])], ids=str)
@pytest.mark.parametrize("role", ["observation", "action"])
def test_integers_that_are_not_stored_are_refused(space, role):
    with pytest.raises(
        EnvError,
        match=rf"^The {role} space .*Discrete.* has values that int32 cannot represent: expected -2147483648 … 2147483647\.$",
    ):
        from_any(space, role)
    from_any(gym.Discrete(3, start=2**31 - 3), role)


@pytest.mark.parametrize(
    ("space", "where"),
    [
        (gym.Text(3), r"space Text\("),
        (gym.Dict({"a": gym.Tuple((gym.Discrete(2), gym.Text(3)))}), r"space at \['a'\]\[1\] Text\("),
        (gym.Dict({"a": gym.Dict({})}), r"space at \['a'\] Dict\(\)"),
        (gym.Tuple((gym.Sequence(gym.Discrete(2)),)), r"space at \[0\] Sequence\("),
    ],
    ids=str,
)
def test_unsupported_part_of_an_observation_raises_with_its_place(space, where):
    with pytest.raises(EnvError, match=rf"^The observation {where}.* is not supported: expected Box, Discrete, MultiDiscrete"):
        from_any(space, "observation")


def test_bounds_have_the_shape_of_the_space():
    low, high = Box((2, 2), (0.0, 1.0, 2.0, 3.0), 9.0).bounds()
    assert low.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert high.tolist() == [[9.0, 9.0], [9.0, 9.0]]


BOXES = [(-1.0, 1.0, (3,)), ((3,), (0.0, 0.0)), ((3,), "low"), ((2.5,),), ((3,), 0.0, 1.0, "number")]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Box((0,)), "there is no entry"),
        (lambda: MultiBinary((2, -1)), "there is no entry"),
        (lambda: Box((2,), 1.0, 0.0), "a lower bound is above its upper bound, or NaN"),
        (lambda: Box((2,), (0.0, np.nan)), "a lower bound is above its upper bound, or NaN"),
        (lambda: Box((2, 3), np.zeros((3, 2))), "shape"),
        (lambda: MultiDiscrete(()), "there is no choice"),
        (lambda: MultiDiscrete((2, 0)), "there is no choice"),
        (lambda: MultiDiscrete((2, 3), start=(1,)), "the numbers of choices, starts and components differ"),
        (lambda: MultiDiscrete((2, 3), shape=(3,)), "the numbers of choices, starts and components differ"),
        (lambda: from_any(gym.Box(0.0, 1.0, (0,)), "observation"), "there is no entry"),
        *(
            (partial(Discrete, *x), r"^Discrete\(n=.*\. Expected integers, and n of 1 or more\.$")
            for x in (("2",), (0,), (2, 0.5))
        ),
        *((partial(MultiDiscrete, x), r"^MultiDiscrete\(.*\. Expected a tuple of integers, as in Multi") for x in (3, (2.5, 2))),
        (lambda: MultiBinary(3), r"^MultiBinary\(.*\. Expected a tuple of integers, as in MultiBinary\("),
        *(
            (partial(Box, *x), r"^Box\(shape=.*Expected the shape first, as in Box\(\(3,\), low=-1.0, high=1.0\)\.$")
            for x in BOXES
        ),
    ],
)
def test_impossible_spaces_raise(make, says):
    with pytest.raises(EnvError, match=says):
        make()


def test_images_are_bytes_with_two_to_four_axes():
    for shape in ((36, 36), (36, 36, 1), (2, 36, 36, 1)):
        assert Box(shape, 0.0, 255.0, "uint8").is_image
        assert not Box(shape).is_image
    assert not Box((36,), 0.0, 255.0, "uint8").is_image
    assert Box((36, 36, 3)).size == 3888


def test_parts_of_a_dict_are_sorted_by_name():
    assert [name for name, _ in NESTED.spaces] == ["a", "b"]
    assert Dict((("b", Discrete(1)), ("a", Discrete(2)))) == Dict((("a", Discrete(2)), ("b", Discrete(1))))


def test_spaces_take_what_their_namesakes_of_gymnasium_take_and_stay_hashable():
    given = [
        Dict({"b": Discrete(1), "a": Tuple([Discrete(2)])}),
        Box([2, 2], np.zeros((2, 2)), np.array([[1, 2], [3, 4]]), np.uint8),
        Box((np.int64(2),), [0.0, 0.0], [1.0, 2.0]),
        Discrete(np.int64(2)),
        MultiDiscrete(np.array([2, 3])),
        MultiBinary([2]),
    ]
    assert given == [
        Dict((("a", Tuple((Discrete(2),))), ("b", Discrete(1)))),
        Box((2, 2), 0.0, (1.0, 2.0, 3.0, 4.0), "uint8"),
        Box((2,), 0.0, (1.0, 2.0)),
        Discrete(2),
        MultiDiscrete((2, 3)),
        MultiBinary((2,)),
    ]
    assert len(set(given)) == 6


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (IMAGE, "uint8"),
        (Box((2,), dtype="float64"), "float32"),
        (Box((2,), dtype="float16"), "float32"),
        (Box((2,), dtype="int64"), "int32"),
        (Box((2,), dtype="uint16"), "int32"),
        (Box((2,), dtype="int16"), "int16"),
        (Box((2,), dtype="int8"), "int8"),
        (Box((2,), dtype="bool"), "bool"),
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
    observation = gymnasium.spaces.Tuple((gym.Discrete(3),)).sample()
    assert type(zeros(Tuple((Discrete(3),)), ())) is type(observation)


def test_str_of_a_space_is_short():
    assert str(Box((4,))) == "Box(4,) float32"
    assert str(Discrete(2)) == "Discrete(2)"
    assert str(Discrete(2, 1)) == "Discrete(2, start=1)"
    assert str(MultiDiscrete((3, 2))) == "MultiDiscrete([3, 2])"
    assert str(MultiDiscrete((11, 6, 4) * 25, shape=(5, 5, 3))) == "MultiDiscrete of shape (5, 5, 3), up to 11 choices"
    assert str(MultiDiscrete((3, 2), (0, 1), (1, 2))) == "MultiDiscrete([[3, 2]], start=[[0, 1]])"
    assert str(NESTED) == "Dict(a: Box(36, 36, 3) uint8, b: Tuple(Discrete(2, start=3), MultiBinary(4,)))"


FLATTENED = {
    "discrete": (gym.Dict(move=gym.Discrete(3, start=1), arm=gym.Discrete(2)), [3, 1], [["move", 3], ["arm", 1]]),
    "continuous": (gym.Dict(arm=gym.Box(-1, 1, (2,)), leg=gym.Box(0, 2, (1,))), [0, 1, 2], [["arm", [0, 1]], ["leg", [2]]]),
    "tuple": (gym.Tuple([gym.Discrete(3), gym.Discrete(2)]), [2, 1], [2, 1]),
}


@pytest.mark.parametrize("kind", FLATTENED)
def test_error_for_dict_actions_has_code_that_flattens_them(kind):
    space, values, expected = FLATTENED[kind]
    with pytest.raises(EnvError, match=r"The action space .* is not supported: expected Discrete.*; flatten it: ") as caught:
        from_any(space, "action")

    class Env(gymnasium.Env):
        observation_space, action_space = gym.Discrete(2), space

        def step(self, action):
            assert self.action_space.contains(action), action
            return action, 0.0, False, False, {}

    code = str(caught.value).split("flatten it: ")[1].removesuffix(".")
    env = eval(code, {"gymnasium": gymnasium, "env": Env()})
    from_any(env.action_space, "action")
    action = np.array(values, env.action_space.dtype)
    assert env.action_space.contains(action)
    taken = env.step(action)[0]
    parts = [[name, part.tolist()] for name, part in taken.items()] if isinstance(taken, dict) else [int(part) for part in taken]
    assert parts == expected


def test_mixed_parts_of_actions_are_answered_in_words():
    with pytest.raises(EnvError, match=r"wrap it so that one space replaces all parts"):
        from_any(gym.Dict(a=gym.Discrete(2), b=gym.Box(0, 1, (1,))), "action")
