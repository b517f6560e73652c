"""Checks whether several environments in one process are independent of each other."""

from __future__ import annotations

from proximo.checks.finding import Finding, error, ok
from proximo.checks.random_play import Streams, play_vector_env
from proximo.checks.seeding import SEED_FIX
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.vector_environment import SerialVectorEnvironment, VectorOptions

NUM_ENVS = 3
STEPS, SECONDS = 100, 5.0


def check_side_by_side(env: GymnasiumEnvironment, step_seconds: float) -> Finding:
    """Check that environments in one process draw their own random numbers and share no state. ``step_seconds`` limits the number of steps."""
    steps = max(5, min(STEPS, int(SECONDS / (NUM_ENVS + 1) / step_seconds)))
    several, alone = _play(env, NUM_ENVS, steps), _play(env, 1, steps)
    pair = several.equal_pair()
    if pair is not None:
        return error(
            "side by side",
            f"Environments {pair[0]} and {pair[1]} have different seeds but gave the same {len(several.reward)} steps: each must draw "
            f"from its own generator. {SEED_FIX}",
        )
    if not several.equals(alone, column=0):
        return error(
            "side by side",
            "With the same seed and actions, an environment gives different steps if other environments run in the same process: "
            "they share a global, a class attribute or NumPy's global generator. Keep all state in self.",
        )
    return ok("side by side", f"{NUM_ENVS} environments in one process are independent of each other.")


def _play(env: GymnasiumEnvironment, num_envs: int, steps: int) -> Streams:
    assert env.make is not None
    layout = BufferLayout(steps, num_envs, env.observation_space, env.action_space, 1)
    vector_env = SerialVectorEnvironment(env.make, layout, env.spec, VectorOptions())
    try:
        return play_vector_env(vector_env, env.observation_space, env.action_space)
    finally:
        vector_env.close()
