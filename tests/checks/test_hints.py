"""Hints: environments that train, but not as the user probably wants; and numbers of a scale that makes learning slow."""

import dataclasses
import re

import numpy as np
import pytest

from proximo.checks.hints import check_scale, hints
from proximo.collect.learning import check_policy
from proximo.settings import make_config
from proximo.spaces import ACTION_MASK, Box, Dict, Discrete, MultiBinary

LEVELS = Box((2,), 0.0, 1000.0)


@dataclasses.dataclass
class Spaces:
    """An environment of which only the spaces are read."""

    observation_space: object
    action_space: object = dataclasses.field(default_factory=lambda: Discrete(2))


def image(*shape):
    return Box(shape, 0.0, 255.0, "uint8")


MLP = "Observations.* have the shape of an image, but are declared as .*, so an MLP reads them. Return images as uint8 in 0 … 255"
HINTS = [
    (Box((84, 84, 3)), {}, f"{MLP}.*, or set encoder = nature_cnn"),
    (Box((3, 96, 96), 0, 255, "int32"), {}, MLP),
    (Dict((("camera", Box((4, 84, 84, 1))), ("speed", Box((3,))))), {}, MLP),
    (Box((84, 84, 3)), {"encoder": "nature_cnn"}, None),
    (Box((84, 84, 3)), {"encoder": "custom_networks:Encoder"}, None),
    (image(84, 84, 3), {}, None),
    (Box((84, 84)), {}, None),  # may be a table
    (Box((9, 9, 40)), {}, None),
    (Box((20_000,)), {}, None),
    (Box((100_000,)), {}, r"12.8 million parameters \(encoder 12.8, memory 0.0, .*hidden_sizes"),
    (Box((3,)), {"memory": "lstm", "memory_size": 2048}, r"memory 34.6, .* smaller .*memory_size"),
    (Box((3,)), {"hidden_sizes": (2048,), "head_sizes": (3000,)}, r"heads 12.3\)"),
    (image(210, 160, 3), {}, r"images to about 84×84 \(preprocessing = atari"),
    (image(84, 84, 4), {"memory": "gru", "memory_size": 512}, None),
    (image(128, 128, 3), {"encoder": "impala_cnn", "towers": "shared"}, None),
]


@pytest.mark.parametrize(("space", "settings", "message"), HINTS)
def test_image_for_an_mlp_and_large_network_are_warnings(space, settings, message):
    env, config = Spaces(space), make_config("toys:RandomEnds", settings)
    found = [finding.message for finding in hints(env, config, check_policy(env, config))]
    assert len(found) == (message is not None)
    assert all(re.search(message, sentence) for sentence in found)


@pytest.mark.parametrize(
    ("env_id", "settings", "check", "sentence"),
    [
        ("Walker2d-v4", {}, "version", "Walker2d-v4 is an earlier version: use 'Walker2d-v5'."),
        ("ALE/Pong-v5", {}, "sticky_actions", "--env-settings repeat_action_probability=0"),
        ("ale_py:ALE/Pong-v5", {}, "sticky_actions", "--env-settings repeat_action_probability=0"),
        ("ALE/Pong-v5", {"env_settings": "repeat_action_probability=0.25"}, None, ""),
        ("PongNoFrameskip-v4", {}, None, ""),
        ("ale:pong", {}, None, ""),
    ],
)  # fmt: skip
def test_version_and_sticky_actions_that_are_not_chosen_are_reported(env_id, settings, check, sentence):
    found = hints(Spaces(image(4, 84, 84)), make_config(env_id, settings, preset=check != "version"))
    assert [finding.check for finding in found] == ([check] if check else [])
    assert all(sentence in finding.message for finding in found)


def ranging(*shape, low=0.0, high=1.0, dtype="float32"):
    """Observations of ``shape`` between ``low`` and ``high``."""
    values = np.full((3, *shape), low, dtype)
    values[1:] = high
    return values


NORMALIZE = "set normalize_observation = true (--normalize-observation)."
INTEGERS = (Box((3,), 0, 1000, "int64"), [ranging(3, high=900, dtype="int64")])


WIDE = [ranging(2), ranging(2, high=777.0), ranging(2, low=-999.0)]
THREE = Dict((("a", LEVELS), ("b", LEVELS), ("c", LEVELS)))
OBSERVATIONS = [
    (Box((2,)), [ranging(2, low=-3e6, high=2.0)], {}, f"in the range -3e+06 … 2: {NORMALIZE} Networks learn slowly"),
    (THREE, WIDE, {}, f"in the range ['b'] 0 … 777, ['c'] -999 … 1: {NORMALIZE}"),
    (*INTEGERS, {"normalize_observation": True}, "declare Box(3,) int64 as float32, which normalize_observation normalizes."),
    (Box((40, 40, 1)), [ranging(40, 40, 1, high=255.0)], {}, "return images as uint8 in 0 … 255, which the policy scales"),
    (Box((2,)), [ranging(2, low=-100.0, high=100.0)], {}, None),
    (LEVELS, [ranging(2, high=990.0)], {"normalize_observation": True}, None),
    (LEVELS, [ranging(2, high=990.0)], {"encoder": "custom_networks:Encoder"}, None),
    (Box((128,), 0, 255, "uint8"), [ranging(128, high=255, dtype="uint8")], {}, None),
    (Dict(((ACTION_MASK, Box((2,))), ("place", Box((2,))))), [ranging(2, high=255.0), ranging(2)], {}, None),
    (MultiBinary((3,)), [ranging(3, dtype="bool")], {}, None),
    (Box((84, 84, 3)), [ranging(84, 84, 3, high=255.0)], {}, None),  # ``hints`` warns of it
]
REWARDS = [
    ([[0.0, 1e5], [2.0, 3.0]], {}, r"in the range 0 … 1e\+05: set normalize_reward = true \(--normalize-reward\). .* larger than about 100"),
    ([0.0, 1e-5, -2e-4], {}, "in the range -0.0002 … 1e-05: .* that are all smaller than 0.001"),
    ([0.0, 0.0], {}, None),
    ([-100.0, 100.0, 1e-9], {}, None),  # a crash and a goal
    ([1e5], {"normalize_reward": True}, None),
    ([1e5], {"clip_reward": "sign"}, None),
    ([1e5], {"reward_scale": 1e-4}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("space", "observations", "rewards", "settings", "message"),
    [
        *((space, seen, [0.0, -16.3], how, text and re.escape(text)) for space, seen, how, text in OBSERVATIONS),
        *((Box((2,)), [ranging(2)], *row) for row in REWARDS),
    ],
)
def test_scales_are_warnings_unless_they_are_normalized(space, observations, rewards, settings, message):
    config = make_config("toys:RandomEnds", {"normalize_observation": False, "normalize_reward": False, **settings})
    findings = check_scale(space, observations, np.asarray(rewards), config)
    found = [finding.message for finding in findings if finding.level == "warning"]
    assert len(found) == (message is not None)
    assert all(re.search(message, sentence) for sentence in found)
