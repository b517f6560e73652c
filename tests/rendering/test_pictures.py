import jax
import numpy as np
import pytest

from proximo.networks import make_policy
from proximo.rendering.pictures import observation_images
from proximo.spaces import Box, Dict, Discrete

from helpers import small_config
from toys import IMAGE


def images(space, observation, **settings):
    network = small_config(**settings).network
    policy = jax.eval_shape(lambda: make_policy(jax.random.key(0), space, Discrete(2), network, False))
    return observation_images(policy, observation)


def random_bytes(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "panels"),
    [
        ((36, 40, 3), lambda x: [x]),
        ((36, 40), lambda x: [x[..., None]]),
        ((2, 36, 40), lambda x: [x[0, ..., None], x[1, ..., None]]),
        ((2, 36, 40, 3), lambda x: [x[0], x[1]]),
        ((2, 3, 36, 40), lambda x: [x[0].transpose(1, 2, 0), x[1].transpose(1, 2, 0)]),
    ],
)
def test_images_of_a_stack_are_side_by_side(shape, panels):
    x = random_bytes(*shape)
    (name, shown), *others = images(Box(shape, 0.0, 255.0, "uint8"), x[None]).items()
    assert (name, others) == ("observations", [])
    expected = np.concatenate([np.broadcast_to(panel, (36, 40, 3)) for panel in panels(x)], axis=1)
    assert np.array_equal(shown, expected)


def test_only_what_a_cnn_reads_is_shown_from_the_smallest_number_to_the_largest():
    vector = Box((3,))
    assert images(vector, np.zeros((1, 3), np.float32)) == {}
    space = Dict((("camera", IMAGE), ("body", vector)))
    observation = {"camera": random_bytes(1, 36, 36, 1), "body": np.zeros((1, 3), np.float32)}
    assert list(images(space, observation, observe_reward=True)) == ["observations/camera"]
    assert images(space, observation, encoder="mlp") == {}
    x = np.linspace(-2.0, 2.0, 10 * 10 * 3, dtype=np.float32).reshape(1, 10, 10, 3)
    (shown,) = images(Box((10, 10, 3)), x, encoder="small_cnn").values()
    assert (shown.min(), shown.max(), shown.dtype) == (0, 255, np.uint8)
