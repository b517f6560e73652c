"""MiniGrid: observations, actions and parts of the levels."""

import warnings
from collections import defaultdict

import gymnasium as gym
import numpy as np
import pytest
from minigrid.wrappers import RGBImgPartialObsWrapper

from proximo.checks import hints
from proximo.config import Config
from proximo.envs import make_env
from proximo.spaces import Discrete


def contents(levels, resets=300):
    env = make_env("minigrid:MemoryS9", {"levels": levels}).make()
    seen = set()
    for i in range(resets):
        env.reset(seed=i)
        seen.add(env.unwrapped.hash())
    return seen


def test_train_and_held_out_levels_have_different_contents():
    everything, train, held_out = contents("all"), contents("train"), contents("held_out")
    assert len(everything) == 24
    assert len(held_out) == 4
    assert train | held_out == everything
    assert not train & held_out


def test_no_start_of_a_memory_task_reveals_its_answer():
    """The objects at the start and at the upper end determine the answer. No start has always the same object at either place."""
    env, seen = make_env("minigrid:MemoryS9", {"levels": "train"}).make(), defaultdict(set)
    for i in range(400):
        env.reset(seed=i)
        inner = env.unwrapped
        middle = inner.height // 2
        upper = inner.grid.get(inner.success_pos[0], middle - 2).type
        seen[int(inner.agent_pos[0])].add((inner.grid.get(1, middle - 1).type, upper))
    assert all(len(objects) == 4 for objects in seen.values())


@pytest.mark.parametrize(("name", "settings"), [("MemoryS7", {"image": True}), ("MemoryS13Random", {"view": 5})])
def test_cached_views_equal_those_that_minigrid_computes(name, settings):
    """Two environments of one process share their cache; the third one, without a cache, computes every view."""
    made = make_env(f"minigrid:{name}", settings)
    assert made.action_space == Discrete(3)
    kept, size = [made.make() for _ in range(2)], settings.get("view", 3)
    choices = 256 if "image" in settings else np.reshape(made.observation_space.nvec, (size, size, 3))
    plain = gym.make(f"MiniGrid-{name}-v0", agent_view_size=size)
    plain = RGBImgPartialObsWrapper(plain, tile_size=28) if settings.get("image") else plain
    rng = np.random.default_rng(0)
    for level in range(6):
        for env in kept:
            observation, _ = env.reset(seed=level)
            expected, _ = plain.reset(seed=level)
            assert (observation == expected["image"]).all()
            for action in rng.choice(3, 60, p=(0.2, 0.2, 0.6)):
                observation, reward, terminated, truncated, _ = env.step(action)
                expected, *others, _ = plain.step(action)
                assert ((observation == expected["image"]) & (observation < choices)).all()
                assert [reward, terminated, truncated] == others
                if terminated or truncated:
                    break


def walk(env, level, to_success):
    """Walk from the start to one end of the hallway, by the position that the environment reports."""
    env.reset(seed=level)
    inner = env.unwrapped
    goal = inner.success_pos if to_success else inner.failure_pos
    for _ in range(inner.agent_pos[0], goal[0]):
        env.step(2)
    env.step(0 if goal[1] < inner.agent_pos[1] else 1)
    while True:
        result = env.step(2)
        if result[2] or result[3]:
            return result


@pytest.mark.parametrize(("bonus", "ends"), [(0, False), (0.5, True)])
def test_success_depends_on_the_end_that_was_reached_and_the_time_limit_truncates_or_terminates(bonus, ends):
    """A bonus is added to the reward, and is no success."""
    env = make_env("minigrid:MemoryS9", {"new_cell_bonus": bonus, "limit_ends": ends}).make()
    for level in range(4):
        for success in (True, False):
            _, reward, terminated, truncated, info = walk(env, level, success)
            assert (terminated, truncated, info["success"]) == (True, False, success)
            assert 0.9 * success + bonus <= reward < success + bonus + (not success)
    env = make_env("minigrid:MemoryS7", {"limit_ends": ends}).make()
    env.reset(seed=0)
    results = [env.step(0) for _ in range(env.unwrapped.max_steps)]  # turning on the spot
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in results[:-1])
    _, reward, terminated, truncated, info = results[-1]
    assert (reward, terminated, truncated, info["success"]) == (0, ends, not ends, False)


@pytest.mark.parametrize("name", ["BabyAI-GoToRedBall", "GoToDoor-5x5"])
def test_a_mission_is_left_out_with_a_warning(name, capsys):
    env = make_env(f"minigrid:{name}")
    [warning] = [hint.message for hint in hints(env, Config())]
    assert warning.startswith(f"minigrid:{name}: the policy does not observe the mission")
    one = env.make()
    for seed in range(20):
        observation, _ = one.reset(seed=seed)
    assert observation.shape == (3, 3, 3)
    assert capsys.readouterr().out == "", "BabyAI reports each level that it draws again"
    assert not hints(make_env("minigrid:DoorKey-5x5"), Config())


def test_a_cell_is_rewarded_once_in_an_episode():
    """The agent walks to the wall, turns around and walks back: only cells that it has not entered are rewarded."""
    env = make_env("minigrid:Empty-5x5", {"new_cell_bonus": 0.5}).make()
    for _ in range(2):
        env.reset(seed=0)  # in the upper left corner, facing right; the room has 3 × 3 cells
        rewards = [float(env.step(action)[1]) for action in (2, 2, 2, 1, 1, 2, 2, 0, 2)]
        assert rewards == [0.5, 0.5, 0, 0, 0, 0, 0, 0, 0.5]


@pytest.mark.parametrize(("name", "rooms"), [("MultiRoom-N4-S5", 6), ("MultiRoom-N4-S5-v1", 4)])
def test_a_name_without_a_version_means_version_0_and_does_not_warn(name, rooms):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make_env(f"minigrid:{name}").make()
    assert env.unwrapped.maxNumRooms == rooms
