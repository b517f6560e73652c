"""Hints: environments that train, but not as the user probably wants."""

import dataclasses
import re

import numpy as np
import pytest

from proximo import checks
from proximo.checks.hints import hints
from proximo.checks.scale import Seen
from proximo.collect.policy_check import check_policy
from proximo.settings import make_config
from proximo.spaces import Box, Dict, Discrete


@dataclasses.dataclass
class Spaces:
    """An environment of which only the spaces are read."""

    observation_space: object
    action_space: object = dataclasses.field(default_factory=lambda: Discrete(2))


def image(*shape):
    return Box(shape, 0.0, 255.0, "uint8")


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (image(210, 160, 3), "210×160"),
        (image(3, 64, 200), "64×200"),
        (Dict((("camera", image(129, 129)), ("speed", Box((3,))))), "129×129"),
        (image(128, 128, 3), None),
        (image(4, 84, 84), None),
        (image(500, 5), None),  # a table
        (Box((300, 5)), None),  # numbers
    ],
)
def test_large_images_are_a_warning(space, size):
    found = [finding.message for finding in hints(Spaces(space), make_config("toys:RandomEnds"))]
    assert len(found) == (size is not None)
    assert all(message.startswith(f"The encoder reads images of {size} pixels. ") for message in found)


def test_a_custom_encoder_may_read_large_images():
    config = make_config("toys:RandomEnds", {"encoder": "custom_networks:Encoder"})
    assert hints(Spaces(image(210, 160, 3)), config) == []


@pytest.mark.parametrize(
    ("space", "settings", "count"),
    [
        (Box((84, 84, 3), 0.0, 255.0), {}, 2.7),
        (Box((84, 84, 3)), {"towers": "shared"}, 1.4),
        (Box((3, 96, 96), 0, 255, "int32"), {}, 3.5),
        (Dict((("camera", Box((4, 84, 84, 1))), ("speed", Box((3,))))), {}, 3.6),
        (Box((84, 84, 3)), {"encoder": "nature_cnn"}, None),
        (Box((84, 84, 3)), {"encoder": "mlp"}, None),
        (Box((84, 84, 3)), {"encoder": "custom_networks:Encoder"}, None),
        (image(84, 84, 3), {}, None),
        (Box((84, 84)), {}, None),  # may be a table
        (Box((9, 9, 40)), {}, None),
        (Box((20_000,)), {}, None),
    ],
)
def test_image_that_an_mlp_reads_is_a_warning(space, settings, count):
    found = [finding.message for finding in hints(Spaces(space), make_config("toys:RandomEnds", settings))]
    assert len(found) == (count is not None)
    for message in found:
        assert f"an MLP reads them. Its first layer has {count} million parameters. Return images as uint8 in 0 … 255" in message
        assert ("encoder = nature_cnn" in message) == (not isinstance(space, Dict))


@pytest.mark.parametrize(
    ("space", "settings", "message"),
    [
        (
            Box((100_000,)),
            {},
            "12.8 million parameters, 12.8 million of them in the encoder \\(largest array: 100000×64\\). .* hidden_sizes",
        ),
        (
            Box((3,)),
            {"memory": "lstm", "memory_size": 2048},
            "34.6 million of them in the memory .* smaller memory_size",
        ),
        (Box((3,)), {"hidden_sizes": (2048,), "head_sizes": (3000,)}, "12.3 million of them in the heads .* smaller head_sizes"),
        (image(84, 84, 4), {"memory": "gru", "memory_size": 512}, None),
        (image(84, 84, 4), {"encoder": "impala_cnn"}, None),
        (image(128, 128, 3), {"encoder": "impala_cnn", "towers": "shared"}, None),
    ],
)
def test_very_large_network_is_a_warning(space, settings, message):
    env, config = Spaces(space), make_config("toys:RandomEnds", settings)
    found = [finding.message for finding in hints(env, config, check_policy(env, config))]
    assert len(found) == (message is not None)
    assert all(re.search(message, sentence) for sentence in found)
    reported = checks.check_policy(env, config)
    assert (reported.level == "warning") == (message is not None)


def test_large_images_explain_a_large_network():
    env, config = Spaces(image(210, 160, 3)), make_config("toys:RandomEnds")
    (finding,) = hints(env, config, check_policy(env, config))
    assert finding.check == "images"


def test_scale_is_reported_where_steps_were_seen():
    seen = Seen([np.full((3, 2), 1e6)], np.full(3, 1e5))
    config = make_config("toys:RandomEnds", {"normalize_observation": False, "normalize_reward": False})
    found = hints(Spaces(Box((2,))), config, seen=seen)
    assert [finding.check for finding in found] == ["observation scale", "reward scale"]


def test_warning_about_an_earlier_version_names_the_newer_one():
    (finding,) = hints(Spaces(Box((17,))), make_config("Walker2d-v4", preset=False))
    assert (finding.check, finding.level) == ("version", "warning")
    assert finding.message.startswith("Walker2d-v4 is an earlier version: use 'Walker2d-v5', which has a preset.")


@pytest.mark.parametrize(
    ("env_id", "settings", "warned"),
    [
        ("ALE/Pong-v5", {}, True),
        ("ale_py:ALE/Pong-v5", {}, True),
        ("ALE/Pong-v5", {"env_settings": "repeat_action_probability=0.25"}, False),
        ("PongNoFrameskip-v4", {}, False),
        ("ale:pong", {}, False),
    ],
)
def test_sticky_actions_that_are_not_chosen_are_reported(env_id, settings, warned):
    found = [f for f in hints(Spaces(image(4, 84, 84)), make_config(env_id, settings)) if f.check == "sticky_actions"]
    assert [("--env-settings repeat_action_probability=0" in f.message) for f in found] == [True] * warned
