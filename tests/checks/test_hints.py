"""Hints: environments that train, but not as the user probably wants."""

import dataclasses

import pytest

from proximo.checks.hints import hints
from proximo.config.loading import make_config
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
        (Box((300, 300, 3)), None),  # numbers
    ],
)
def test_large_images_are_a_warning(space, size):
    found = [finding.message for finding in hints(Spaces(space), make_config("toys:RandomEnds"))]
    assert len(found) == (size is not None)
    assert all(message.startswith(f"The encoder reads images of {size} pixels. ") for message in found)


def test_a_custom_encoder_may_read_large_images():
    config = make_config("toys:RandomEnds", {"encoder": "custom_networks:Encoder"})
    assert hints(Spaces(image(210, 160, 3)), config) == []


def test_warning_about_an_earlier_version_names_the_newer_one():
    (finding,) = hints(Spaces(Box((17,))), make_config("Walker2d-v4"))
    assert (finding.check, finding.level) == ("version", "warning")
    assert finding.message.startswith("Walker2d-v4 is an earlier version: use 'Walker2d-v5'. Compared with version 4, both feet")


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
