"""Memory Gym, if it is installed (see docs/memory.md)."""

import numpy as np
import pytest

from proximo.envs import make_env
from proximo.spaces import Discrete, MultiDiscrete

pytest.importorskip("memory_gym")


TIMED = ["MysteryPath", "MysteryPath-Grid", "SearingSpotlights"]
TIMED += ["Endless-MortarMayhem", "Endless-MysteryPath", "Endless-SearingSpotlights"]


@pytest.mark.parametrize("name", TIMED)
def test_a_limit_of_time_is_a_truncation(name):
    env = make_env(f"memory-gym:{name}", {"max_steps": 9}).make()
    env.reset(seed=1)
    ends = [env.step(np.zeros(env.action_space.shape, int))[2:4] for _ in range(9)]
    assert ends == [(False, False)] * 8 + [(False, True)]


@pytest.mark.parametrize("name", ["MortarMayhem-Grid", "MortarMayhemB-Grid"])
def test_a_wrong_command_is_a_termination_and_success_needs_the_last_command_too(name):
    """Memory Gym itself reports a success whenever the last command was due."""
    env, rng, seen = make_env(f"memory-gym:{name}", {"command_count": 1}).make(), np.random.default_rng(0), set()
    for seed in range(40):
        env.reset(seed=seed)
        terminated, total = False, 0.0
        while not terminated:
            _, reward, terminated, truncated, info = env.step(rng.integers(4))
            assert not truncated
            total += reward
        assert info["success"] is bool(total > 0)
        seen.add(info["success"])
    assert seen == {True, False}


def test_spaces_and_levels():
    grid, free = make_env("memory-gym:MysteryPath-Grid"), make_env("memory-gym:SearingSpotlights")
    assert grid.action_space == Discrete(4)
    assert free.action_space == MultiDiscrete((3, 3))
    assert grid.observation_space.shape == (84, 84, 3)
    env = grid.make()
    one, again, other = (np.array(env.reset(seed=s)[0]) for s in (3, 3, 4))
    assert (one == again).all()
    assert (one != other).any()
