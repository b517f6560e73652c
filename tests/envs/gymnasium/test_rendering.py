"""``make(render_mode=…)``: single environments that draw, with their wrappers."""

import numpy as np
import pytest

from proximo.envs import Preprocessing, make_env

PLAIN = Preprocessing()
CASES = {
    **dict.fromkeys(("CartPoleNoVel-v1", "minigrid:MemoryS7", "gym_toys:DrawnWalk", "gym_toys:UnbasedDrawn"), PLAIN),
    "Pendulum-v1": Preprocessing(frame_stack=2, action_repeat=2, levels="0:5"),
    "ALE/Pong-v5": Preprocessing(preprocessing="atari", frame_stack=4),
}


@pytest.mark.parametrize("env_id", CASES)
def test_an_environment_draws_with_its_wrappers(env_id):
    settings = {"levels": "held_out"} if env_id == "minigrid:MemoryS7" else {}
    env = make_env(env_id, settings, CASES[env_id]).make(render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    frames = [np.array(env.render())]
    for _ in range(4):
        env.step(env.action_space.sample())
        frames.append(np.array(env.render()))
    env.close()
    assert {(frame.dtype.name, frame.ndim, frame.shape[-1]) for frame in frames} == {("uint8", 3, 3)}
    assert any((frame != frames[0]).any() for frame in frames[1:])


def test_environment_reports_its_render_modes_and_frame_rate():
    env = make_env("CartPole-v1")
    assert {"human", "rgb_array"} <= set(env.render_modes)
    assert env.render_fps == 50
    assert make_env("gym_toys:DrawnWalk").render_fps == 7
    assert make_env("gym_toys:Walk").render_modes == ()
