"""What tests of environments share."""

import gymnasium as gym
import pytest


@pytest.fixture
def registry():
    """Restores Gymnasium's registry after the test."""
    registered = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(registered)
