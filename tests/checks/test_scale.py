"""Random steps with large observations, or with large or small rewards, are a warning that names the range and the fix."""

import numpy as np
import pytest

from proximo.checks.scale import Seen, check_scale
from proximo.settings import make_config
from proximo.spaces import ACTION_MASK, Box, Dict, MultiBinary

ORDINARY = np.array([[0.0], [-16.3]])
NORMALIZE = "set normalize_observation = true (--normalize-observation)."
LEVELS = Box((2,), 0.0, 1000.0)


def warnings(space, observations, rewards=ORDINARY, **settings):
    config = make_config("toys:RandomEnds", {"normalize_observation": False, "normalize_reward": False, **settings})
    found = check_scale(space, Seen(observations, np.asarray(rewards)), config)
    return [f"{finding.check}: {finding.message}" for finding in found if finding.level == "warning"]


def ranging(*shape, low=0.0, high=1.0, dtype="float32"):
    """Observations of ``shape`` between ``low`` and ``high``."""
    values = np.full((3, *shape), low, dtype)
    values[1:] = high
    return values


@pytest.mark.parametrize(
    ("space", "observations", "message"),
    [
        (LEVELS, [ranging(2, high=990.0)], f"in the range 0 … 990: {NORMALIZE} Networks learn slowly"),
        (Box((2,)), [ranging(2, low=-3e6, high=2.0)], f"in the range -3e+06 … 2: {NORMALIZE}"),
        (
            Dict((("a", LEVELS), ("b", LEVELS), ("c", LEVELS))),
            [ranging(2), ranging(2, high=777.0), ranging(2, low=-999.0)],
            f"in the range ['b'] 0 … 777, ['c'] -999 … 1: {NORMALIZE}",
        ),
        (
            Box((3,), 0, 1000, "int64"),
            [ranging(3, high=900, dtype="int64")],
            "declare Box(3,) int64 as float32, which normalize_observation normalizes.",
        ),
        (Box((40, 40, 1)), [ranging(40, 40, 1, high=255.0)], "return images as uint8 in 0 … 255, which the policy scales"),
    ],
)
def test_large_observations_are_a_warning(space, observations, message):
    (sentence,) = warnings(space, observations)
    assert sentence.startswith("observation scale: Observations of random steps are in the range ")
    assert message in sentence


@pytest.mark.parametrize(
    ("space", "observations", "settings"),
    [
        (Box((2,)), [ranging(2, low=-100.0, high=100.0)], {}),
        (LEVELS, [ranging(2, high=990.0)], {"normalize_observation": True}),
        (LEVELS, [ranging(2, high=990.0)], {"encoder": "custom_networks:Encoder"}),
        (Box((128,), 0, 255, "uint8"), [ranging(128, high=255, dtype="uint8")], {}),
        (Dict(((ACTION_MASK, Box((2,))), ("place", Box((2,))))), [ranging(2, high=255.0), ranging(2)], {}),
        (MultiBinary((3,)), [ranging(3, dtype="bool")], {}),
        (Box((84, 84, 3)), [ranging(84, 84, 3, high=255.0)], {}),  # ``hints`` warns of it
    ],
)
def test_ordinary_and_normalized_observations_are_not(space, observations, settings):
    assert warnings(space, observations, **settings) == []


def test_integers_are_not_normalized():
    (sentence,) = warnings(Box((3,), 0, 1000, "int64"), [ranging(3, high=900, dtype="int64")], normalize_observation=True)
    assert "declare Box(3,) int64 as float32" in sentence


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (
            [[0.0, 1e5], [2.0, 3.0]],
            "in the range 0 … 1e+05: set normalize_reward = true (--normalize-reward). .* larger than about 100",
        ),
        ([0.0, -150.0], "in the range -150 … 0: .* larger than about 100"),
        ([0.0, 1e-5, -2e-4], "in the range -0.0002 … 1e-05: .* that are all smaller than 0.001"),
    ],
)
def test_large_or_small_rewards_are_a_warning(rewards, message):
    (sentence,) = warnings(Box((2,)), [ranging(2)], rewards)
    before, _, after = message.partition(" .* ")
    assert sentence.startswith(f"reward scale: Rewards of random steps are {before}")
    assert after in sentence


@pytest.mark.parametrize(
    ("rewards", "settings"),
    [
        ([0.0, 0.0], {}),
        ([-100.0, 100.0, 1e-9], {}),  # a crash and a goal
        ([-0.1, 1e-5], {}),
        ([1e5], {"normalize_reward": True}),
        ([1e5], {"clip_reward": "sign"}),
        ([1e5], {"normalize_reward": False, "reward_scale": 1e-4}),
        ([1e-5], {"normalize_reward": True}),
    ],
)
def test_ordinary_and_scaled_rewards_are_not(rewards, settings):
    assert warnings(Box((2,)), [ranging(2)], rewards, **settings) == []
