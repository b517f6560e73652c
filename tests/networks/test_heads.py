"""``from_space`` is the inverse of ``to_space``, for every kind of action."""

import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import Config, override
from proximo.envs.gymnasium.actions import random_actions
from proximo.networks.heads import MAX_TANH, make_actor
from proximo.spaces import Box, Discrete, MultiBinary, MultiDiscrete

BOUNDED = Box((3, 2), (-2.0, 0.0, -1.0, 3.0, 0.0, 1.0), (2.0, 4.0, 1.0, 3.5, 0.0, 1.0))  # the last two bounds are equal


@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (Discrete(4, 3), {}),
        (MultiDiscrete((3, 2, 4, 2), (0, 1, -1, 5), (2, 2)), {}),
        (MultiBinary((2, 3)), {}),
        (BOUNDED, {}),
        (BOUNDED, {"action_mapping": "tanh"}),
        (BOUNDED, {"distribution": "beta"}),
        (Box((3,), (0.0, -np.inf, -5.0), (np.inf, 2.0, 1.0)), {"action_mapping": "tanh"}),
    ],
)
def test_from_space_is_the_inverse_of_to_space(space, settings):
    head = make_actor(lambda features: features, space, override(Config(), settings).network)
    dtype = jnp.float32 if isinstance(space, Box) else jnp.int32
    actions = jnp.asarray(random_actions(space, np.random.default_rng(0), 50), dtype)
    atol = 2.0 * (1.0 - MAX_TANH) if settings.get("action_mapping") == "tanh" else 1e-5  # half of the range is at most 2 … 3
    samples = head.from_space(actions)
    assert np.isfinite(samples).all()
    np.testing.assert_allclose(head.to_space(samples), actions, rtol=1e-4, atol=1.5 * atol)
    if not isinstance(space, Box):  # they count from 0
        assert (samples.min(), head.to_space(samples).dtype) == (0, jnp.int32)
