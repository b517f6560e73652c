"""Pictures of JAX environments show the state."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.canvas import AMBER, BLUE, GREEN, RED, Canvas, board
from proximo.envs.jax.gymnax import names
from proximo.envs.jax.gymnax_drawing import FPS
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
    assert 200 <= min(height, width) <= max(height, width) <= 480
    assert np.array_equal(pictures[0], env.render(states[0], env.default_params))
    assert any((pictures[0] != other).any() for other in pictures[1:])
    assert 1 <= env.render_fps <= 60


def test_frame_rates_belong_to_existing_environments():
    assert set(FPS) <= set(names())


@pytest.mark.parametrize("name", sorted(UNSEEN - {"MNISTBandit-bsuite"}))
def test_environments_without_visible_states_have_no_renderer(name):
    assert not isinstance(make_env(f"gymnax:{name}"), Renders)


def test_cartpole_is_drawn_at_its_position_and_angle():
    env, [state, *_] = random_states("gymnax:CartPole-v1")

    def picture(x, theta):
        return env.render(state.replace(x=x, theta=theta), env.default_params)

    assert where(picture(0.0, 0.2), AMBER)[0] > where(picture(0.0, 0.0), AMBER)[0] + 8
    assert where(picture(0.0, -0.2), AMBER)[0] < where(picture(0.0, 0.0), AMBER)[0] - 8
    shift = where(picture(1.2, 0.0), AMBER)[0] - where(picture(0.0, 0.0), AMBER)[0]
    assert shift == pytest.approx(480 * 1.2 / (2.2 * 2.4), abs=1)


@pytest.mark.parametrize(("theta", "x", "y"), [(0.0, 0, -1), (math.pi, 0, 1), (math.pi / 2, -1, 0), (-math.pi / 2, 1, 0)])
def test_the_pendulum_stands_upright_at_zero_and_turns_counterclockwise(theta, x, y):
    env, [state, *_] = random_states("gymnax:Pendulum-v1")
    at = where(env.render(state.replace(theta=theta, last_u=0.0), env.default_params), RED)
    assert at == pytest.approx((200 + 67 * x, 200 + 67 * y), abs=4)


def test_acrobot_hangs_at_zero_and_touches_the_line_upright():
    env, [state, *_] = random_states("gymnax:Acrobot-v1")
    hanging = env.render(state.replace(joint_angle1=0.0, joint_angle2=0.0), env.default_params)
    upright = env.render(state.replace(joint_angle1=math.pi, joint_angle2=0.0), env.default_params)
    assert where(hanging, BLUE)[1] > 200 > where(upright, BLUE)[1]
    assert count(upright, GREEN) < count(hanging, GREEN)  # the arm covers a part of the line


@pytest.mark.parametrize("name", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_the_car_is_on_the_hill_below_the_flag(name):
    env, [state, *_] = random_states(f"gymnax:{name}")
    goal = float(env.default_params.goal_position)
    at = [where(env.render(state.replace(position=x), env.default_params), BLUE) for x in (-1.0, -math.pi / 6, goal)]
    assert at[0][0] < at[1][0] < at[2][0]
    assert at[1][1] > max(at[0][1], at[2][1])  # the valley
    flag = where(env.render(state.replace(position=-1.0), env.default_params), GREEN)
    assert flag[0] == pytest.approx(at[2][0], abs=20)


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


def test_poc_memory_draws_the_sum_of_its_rewards():
    from proximo.envs.tasks.drawing import _rewards_of_poc_memory

    env = make_env("proximo:PocMemory", {"max_steps": 20})
    params, step = env.default_params, jax.jit(env.step)
    for seed in range(12):
        key = jax.random.key(seed)
        state, _ = env.reset(key, params)
        reached, over, t = 0.0, False, 0
        while not over:
            action = jax.random.bernoulli(jax.random.fold_in(key, t)).astype(jnp.int32)
            state, _, reward, terminated, truncated, _ = step(key, state, action, params)
            reached, over, t = reached + float(reward), bool(terminated | truncated), t + 1
            shown = _rewards_of_poc_memory(int(state.cell), t, float(state.left_goal) > 0, params, 5)
            assert shown == pytest.approx((float(reward), reached), abs=1e-5)


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


def test_a_board_has_its_colours_and_lines():
    picture = board(np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [9, 9, 9]]]), 100)
    assert picture.shape == (100, 100, 3)
    assert picture[10, 10].tolist() == [255, 0, 0]
    assert picture[90, 10].tolist() == [0, 0, 255]
    assert picture[10, 50].tolist() != [0, 255, 0]


def test_a_canvas_draws_in_the_units_of_its_world():
    canvas = Canvas(200, 100, (-1.0, 1.0, 0.0, 1.0))
    canvas.disc((0.5, 0.75), 10, RED)
    canvas.box((-1.0, 0.0), (-0.9, 0.1), BLUE)
    picture = canvas.array()
    assert where(picture, RED) == pytest.approx((150, 25), abs=1)
    assert where(picture, BLUE) == pytest.approx((5, 95), abs=1)
    assert canvas.unit == 100
