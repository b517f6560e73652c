"""Checks what random steps return: their scale, the effect of seeds, and the ends of episodes."""

from collections.abc import Iterator

import numpy as np

from proximo.checks.hints import Finding, check_scale, run_check
from proximo.checks.play import Play, play
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.errors import EnvError

NAMES = ("steps", "seeding", "observation scale", "reward scale", "episodes", "time limit")
MAX_STEPS = 10_000
END_SECONDS = 5.0
"""Seconds in which an episode should end, if the environment has no time limit."""
MIN_LIMIT = 20
"""Longer episodes that all terminate after the same number of steps look like a time limit."""
MIN_EPISODES = 3
SEED_FIX = "Draw only from self.np_random, after super().reset(seed=seed) (in JAX: from the key), and keep all state in self."


def check_random_steps(env: GymnasiumEnvironment, limit: int | None, config: Config) -> Iterator[Finding]:
    """Check random steps of any kind of environment. If a step fails, there is only this error."""
    try:
        first = play(env, 0)
    except EnvError as error:
        yield Finding("steps", "error", str(error))
        return
    (steps, columns), rewards = first.reward.shape, f"{first.reward.min():.4g} … {first.reward.max():.4g}"
    message = (
        f"{columns // env.num_agents} environments returned valid observations, rewards ({rewards}) and flags in {steps} steps."
    )
    yield Finding("steps", "ok", message)
    yield run_check("seeding", config.env.id, lambda: _seeding(first, env))
    yield from check_scale(env.observation_space, first.observation, first.reward[first.valid], config)
    yield run_check("episodes", config.env.id, lambda: _ends(first, limit, env))
    yield _time_limit(first)


def _seeding(first: Play, env: GymnasiumEnvironment) -> Finding | str:
    """Compare ``first``, a play with seed 0, with other plays. All have the same actions."""
    steps, level = len(first.reward), "warning"
    if (step := first.difference(play(env, 0))) is not None:
        fault = (
            f"The same seed and the same actions give different results from step {step} on, so no run can "
            "be repeated: the environment ignores the seed, or draws some random numbers from elsewhere."
        )
    elif first.difference(play(env, 1)) is None:
        fault = (
            f"Seeds 0 and 1 give the same {steps} steps: either nothing is random here, which is fine if it "
            "is intended (all environments then start alike), or reset ignores its seed."
        )
    elif all(np.array_equal(array[:, 0], array[:, env.num_agents]) for array in first.compared()):
        level = "error"
        fault = (
            f"Environments 0 and 1 gave the same {steps} steps, but another seed gives other steps: each "
            "must draw from a generator of its own."
        )
    elif env.make is not None and first.difference(play(env, 0, num_envs=1)) is not None:
        level = "error"
        fault = (
            "With the same seed and actions, an environment gives different steps if other environments "
            "run in the same process: they share a global, a class attribute or NumPy's global generator."
        )
    else:
        return "The same seed gives the same steps; other seeds and other environments give other steps."
    return Finding("seeding", level, f"{fault} {SEED_FIX}")


def _ends(first: Play, limit: int | None, env: GymnasiumEnvironment) -> Finding | str:
    """Check that an episode ended in ``first``, or that there is a ``limit``. Otherwise, play longer."""
    played = first if first.episode_lengths() or limit else play(env, 0, 1, MAX_STEPS, END_SECONDS)
    within = f"within {played.reward.size:,} random steps"
    if lengths := played.episode_lengths():
        how = f"{played.terminated.sum()} terminated, {played.truncated.sum()} truncated"
        return f"{len(lengths)} episodes ended {within}, after {min(lengths)} … {max(lengths)} steps ({how})."
    if limit:
        return f"No episode ended {within}; the time limit is {limit:,}."
    return Finding(
        "episodes",
        "warning",
        "No episode ended "
        f"{within}{' (this check ran out of time)' if len(played.reward) < MAX_STEPS else ''}, and the "
        "environment has no known time limit: training cannot report a return before an episode ends. Set "
        "--max-episode-steps 1000, or another limit that suits the task; a vector environment may have a "
        "parameter, for --env-settings.",
    )


def _time_limit(first: Play) -> Finding:
    """Check that a time limit is reported as a truncation, not as a termination."""
    lengths = first.episode_lengths()
    alike = len(lengths) >= MIN_EPISODES and len(set(lengths)) == 1 and lengths[0] >= MIN_LIMIT and not first.truncated.any()
    last, other = first.reward[first.terminated], first.reward[first.valid & ~first.terminated]
    # After a crash or at a goal, every last step has a reward that no other step has.
    if alike and not ((last > other.max()).all() or (last < other.min()).all()):
        return Finding(
            "time limit",
            "warning",
            f"All {len(lengths)} episodes terminated after exactly {lengths[0]} steps, and no reward of "
            "their last steps is outside the range of the other steps. If this is a time limit, return "
            "terminated = False, truncated = True there. A time limit is not a termination, so the value "
            "of the next state still counts.",
        )
    return Finding("time limit", "ok", "No time limit seems to be reported as a termination.")
