"""Pictures of JAX environments show the state."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.visualize import vis_gym

from proximo.envs import make_env
from proximo.envs.canvas import BLUE, GREEN, RED, board
from proximo.envs.jax.gymnax import names
from proximo.envs.jax.gymnax_drawing import CLASSIC
from proximo.envs.protocol import Renders

UNSEEN = {
    "MemoryChain-bsuite", "UmbrellaChain-bsuite", "DiscountingChain-bsuite", "MNISTBandit-bsuite", "SimpleBandit-bsuite",
    "BernoulliBandit-misc", "GaussianBandit-misc",
}  # fmt: skip
QUICK = ["CartPole-v1", "CartPoleNoVel-v1", "Breakout-MinAtar", "Catch-bsuite", "FrozenLake-misc", "Reacher-misc"]
DRAWN = [f"gymnax:{name}" for name in QUICK] + ["proximo:PocMemory", "proximo:RepeatPrevious"]
OTHERS = [f"gymnax:{name}" for name in names() if name not in UNSEEN | set(QUICK)]
SLOW = pytest.mark.slow  # each takes a second or more to compile


def random_states(env_id, count=4, settings=None):
    """Return the environment and some states of a random walk."""
    env = make_env(env_id, settings)
    params = env.default_params
    step, key = jax.jit(env.step), jax.random.key(0)
    state, _ = jax.jit(env.reset)(key, params)
    states = [state]
    for t in range(count - 1):
        action = jnp.ones(env.action_space.shape, jnp.float32 if hasattr(env.action_space, "low") else jnp.int32)
        state, *_ = step(jax.random.fold_in(key, t), state, action, params)
        states.append(state)
    return env, [jax.tree.map(np.asarray, state) for state in states]


def where(picture, color, tolerance=30):
    """Return the mean (x, y) of the pixels of about this color."""
    ys, xs = np.nonzero((np.abs(picture.astype(int) - color) < tolerance).all(-1))
    assert len(xs)
    return xs.mean(), ys.mean()


def count(picture, color, tolerance=30):
    return int((np.abs(picture.astype(int) - color) < tolerance).all(-1).sum())


@pytest.mark.parametrize("env_id", [*DRAWN, *(pytest.param(other, marks=SLOW) for other in OTHERS)])
def test_pictures_have_one_even_size_and_change_with_the_state(env_id):
    env, states = random_states(env_id)
    assert isinstance(env, Renders)
    pictures = [env.render(state, env.default_params) for state in states]
    assert {(p.dtype.name, p.shape) for p in pictures} == {("uint8", pictures[0].shape)}
    height, width, channels = pictures[0].shape
    assert (height % 2, width % 2, channels) == (0, 0, 3)
    assert 200 <= min(height, width) <= max(height, width) <= 600
    assert np.array_equal(pictures[0], env.render(states[0], env.default_params))
    assert any((pictures[0] != other).any() for other in pictures[1:])
    assert 1 <= env.render_fps <= 60


@pytest.mark.parametrize("name", sorted(UNSEEN - {"MNISTBandit-bsuite"}))
def test_environments_without_visible_states_have_no_renderer(name):
    assert not isinstance(make_env(f"gymnax:{name}"), Renders)


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_control_is_drawn_as_by_gymnasium(name):
    env, [state, *_] = random_states(f"gymnax:{name}")
    theirs = gymnasium.make(name, render_mode="rgb_array").unwrapped
    theirs.reset()
    theirs.state, theirs.last_u = vis_gym.get_gym_state(state, name), float(np.squeeze(getattr(state, "last_u", 0.0)))
    np.testing.assert_array_equal(env.render(state, env.default_params), theirs.render())
    assert env.render_fps == theirs.metadata["render_fps"]


def poc(**settings):
    env = make_env("proximo:PocMemory", settings)
    from proximo.envs.tasks.poc_memory import PocMemoryState

    return lambda cell, goal, time: env.render(
        PocMemoryState(np.int32(cell), np.float32(goal), np.int32(time)), env.default_params
    )


def test_poc_memory_draws_goals_while_the_agent_sees_them():
    picture = poc()
    for time in range(6):
        for goal, x in ((1.0, 30), (-1.0, 370)):
            frame = picture(0, goal, time)[100:160]  # only the goals
            assert (count(frame, GREEN) > 1000) == (time <= 2)
            assert (count(frame, RED) > 1000) == (time <= 2)
            assert time > 2 or where(frame, GREEN)[0] == pytest.approx(x, abs=12)
    assert (picture(0, 1.0, 5) != picture(0, -1.0, 5)).any()  # the good side is written below


def test_the_agent_of_poc_memory_is_in_its_cell():
    picture = poc()
    xs = [where(picture(cell, 1.0, 9)[165:215], BLUE)[0] for cell in range(-5, 6)]
    np.testing.assert_allclose(np.diff(xs), 34, atol=1)


def test_repeat_previous_draws_right_answers_green_and_wrong_ones_red():
    env = make_env("proximo:RepeatPrevious", {"lag": 2, "symbols": 3})
    from proximo.envs.tasks.repeat_previous import RepeatPreviousState

    def verdict(answer, time):
        state = RepeatPreviousState(np.array([2, 0, 1, 1]), np.int32(time), np.int32(answer), np.int32(1))
        frame = env.render(state, env.default_params)[240:315]
        return count(frame, GREEN) > 50, count(frame, RED) > 50

    assert verdict(2, 9) == (True, False)
    assert verdict(0, 9) == (False, True)
    assert verdict(2, 2) == (False, False)  # that step gives no reward


def test_a_board_has_its_colors_lines_and_marks():
    picture = board(np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [9, 9, 9]]]), [(1, 1, RED), (2, 0, BLUE)])
    assert picture.shape == (400, 400, 3)
    assert picture[10, 10].tolist() == [255, 0, 0]
    assert picture[390, 10].tolist() == [0, 0, 255]
    assert picture[390, 390].tolist() == list(RED)
    assert picture[10, 200].tolist() != [0, 255, 0]
