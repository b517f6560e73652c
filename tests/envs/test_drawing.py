"""Pictures of JAX environments show the state."""

import gymnasium
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from gymnax.visualize import vis_gym

from proximo.envs import make_env
from proximo.envs.jax.gymnax import CLASSIC, names
from proximo.envs.protocol import Renders
from proximo.envs.tasks.boards import BLUE, GREEN, RED
from proximo.envs.tasks.poc_memory import PocMemoryState
from proximo.envs.tasks.repeat_previous import RepeatPreviousState

MISC = ["Catch-bsuite", "FourRooms-misc", "MetaMaze-misc", "PointRobot-misc"]
QUICK = ["CartPole-v1", "CartPoleNoVel-v1", "Breakout-MinAtar", "Catch-bsuite"]
DRAWN = [f"gymnax:{name}" for name in QUICK] + ["proximo:PocMemory", "proximo:RepeatPrevious"]
OTHERS = [
    f"gymnax:{name}" for name in names() if name.endswith("-MinAtar") or name in {*CLASSIC, *MISC, "Pong-misc"} - set(QUICK)
]


def random_states(env_id, count=4):
    """Return the environment and some states of one action."""
    env = make_env(env_id)
    params, step, key = env.default_params, jax.jit(env.step), jax.random.key(0)
    action = jnp.ones(env.action_space.shape, jnp.float32 if hasattr(env.action_space, "low") else jnp.int32)
    states = [jax.jit(env.reset)(key, params)[0]]
    for t in range(count - 1):
        states.append(step(jax.random.fold_in(key, t), states[-1], action, params)[0])
    return env, jax.device_get(states)


# Each of the others takes a second or more to compile.
@pytest.mark.parametrize("env_id", [*DRAWN, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)])
def test_pictures_have_one_even_size_and_change_with_the_state(env_id):
    env, states = random_states(env_id)
    assert isinstance(env, Renders)
    pictures = [env.render(state, env.default_params) for state in states]
    assert {(p.dtype.name, p.shape) for p in pictures} == {("uint8", pictures[0].shape)}
    height, width, channels = pictures[0].shape
    assert (height % 2, width % 2, channels) == (0, 0, 3)
    assert 200 <= min(height, width) <= max(height, width) <= 640
    assert np.array_equal(pictures[0], env.render(states[0], env.default_params))
    assert any((pictures[0] != other).any() for other in pictures[1:])
    assert 1 <= env.render_fps <= 60
    with matplotlib.rc_context({"figure.figsize": (7, 2.6), "figure.dpi": 70}):  # the style of a notebook
        np.testing.assert_array_equal(env.render(states[0], env.default_params), pictures[0])


def test_environments_without_a_renderer_are_not_drawn():
    assert not any(isinstance(make_env(f"gymnax:{name}"), Renders) for name in ("MemoryChain-bsuite", "SimpleBandit-bsuite"))


@pytest.mark.parametrize(
    "name", ["Pendulum-v1", *(pytest.param(n, marks=pytest.mark.slow) for n in CLASSIC if n != "Pendulum-v1")]
)
def test_classic_control_is_drawn_as_by_gymnasium(name):
    env, [state, *_] = random_states(f"gymnax:{name}", 1)
    theirs = gymnasium.make(name, render_mode="rgb_array").unwrapped
    theirs.reset()
    theirs.state, theirs.last_u = vis_gym.get_gym_state(state, name), float(np.squeeze(getattr(state, "last_u", 0.0)))
    np.testing.assert_array_equal(env.render(state, env.default_params), theirs.render())
    assert env.render_fps == theirs.metadata["render_fps"]


def cells(env, state):
    """The colors of the middles of the cells of a picture with seven rows."""
    picture = env.render(state, env.default_params)
    size = len(picture) // 7
    return picture[size // 2 :: size, size // 2 :: size].tolist()


def test_poc_memory_draws_goals_while_the_agent_sees_them():
    env = make_env("proximo:PocMemory")
    for cell, time in ((-5, 9), (-2, 0), (0, 2), (3, 3), (5, 9)):
        for goal in (1.0, -1.0):
            rows = cells(env, PocMemoryState(np.int32(cell), np.float32(goal), np.int32(time)))
            goals = [list(color) for color in ((GREEN, RED) if goal > 0 else (RED, GREEN))]
            assert [rows[5][0], rows[5][-1]] == goals
            assert ([rows[1][0], rows[1][-1]] == goals) == (time <= 2 or abs(cell) == 5)
            assert rows[3].index(list(BLUE)) == cell + 5


def test_repeat_previous_draws_right_answers_green_and_wrong_ones_red():
    env = make_env("proximo:RepeatPrevious", {"lag": 2, "symbols": 3})
    for answer, time, color in ((2, 9, GREEN), (0, 9, RED), (2, 2, None)):  # that step gives no reward
        state = RepeatPreviousState(np.array([2, 0, 1, 1]), np.int32(time), np.int32(answer), np.int32(1))
        shown = cells(env, state)[4][1]
        assert shown == list(color) if color else shown not in (list(GREEN), list(RED))
