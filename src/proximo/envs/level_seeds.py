"""``levels = 0:100``: each episode draws its seed from a range, so that others remain for evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from proximo.envs.libraries import JaxWrapper
from proximo.errors import ConfigError

PARTS = ("all", "train", "held_out")
"""Sets of levels of environments that divide levels by their content; "train" and "held_out" are disjoint."""
FIRST_LEVEL = 2**31
"""The random key of level ``i`` is ``fold_in(key(0), FIRST_LEVEL + i)``."""


class LevelRange(NamedTuple):
    """The seeds ``start … stop - 1``."""

    start: int
    stop: int

    @classmethod
    def parse(cls, text: str) -> LevelRange:
        """Parse ``"FROM:TO"``, the seeds FROM … TO - 1. Raises ``ConfigError`` for other text."""
        numbers = re.fullmatch("([0-9]{1,10}):([0-9]{1,10})", text)
        levels = cls(*map(int, numbers.groups())) if numbers else cls(0, 0)
        if not levels.start < levels.stop < 2**31:
            raise ConfigError(
                f"levels = {text!r}: expected FROM:TO with FROM < TO, such as 0:99 for the seeds 0 … 98, all below 2³¹."
            )
        return levels

    def common(self, other: LevelRange) -> int:
        """Return the number of levels in both ranges."""
        return max(0, min(self.stop, other.stop) - max(self.start, other.start))

    def draws(self, seed: int | None = None) -> Iterator[int]:
        """The level of each episode of a Gymnasium environment. It depends on ``seed`` only."""
        rng = np.random.default_rng(seed)
        while True:
            yield int(rng.integers(self.start, self.stop))


class JaxLevels(JaxWrapper):
    """A JAX environment whose resets draw a level from a range.

    As with ``reset(seed=level)`` on Gymnasium, the level determines the episode: ``step`` ignores its key.
    """

    def __init__(self, env: Any, levels: LevelRange):
        super().__init__(env)
        self.levels = levels

    def inside(self, state, params):
        return state[0], params

    def level(self, key: Any) -> Any:
        """Return the level of an episode that starts with ``key``."""
        import jax  # Gymnasium environments need no JAX

        return jax.random.randint(key, (), *self.levels)

    def reset(self, key, params):
        import jax

        # key(level) is the root key of a run, and the first children of key(0) belong to the run with seed 0.
        level = np.uint32(FIRST_LEVEL) + self.level(key).astype("uint32")
        key_reset, key_steps = jax.random.split(jax.random.fold_in(jax.random.key(0), level))
        state, observation = self.env.reset(key_reset, params)
        return (state, jax.random.key_data(key_steps)), observation

    def step(self, key, state, action, params):
        import jax

        state, key_steps = state
        key_step, key_steps = jax.random.split(jax.random.wrap_key_data(key_steps))
        state, *rest = self.env.step(key_step, state, action, params)
        return (state, jax.random.key_data(key_steps)), *rest


def with_levels(env: Any, levels: str) -> Any:
    """``env`` with resets that draw from ``levels``, if any. Gymnasium environments are wrapped one by one."""
    if not levels or hasattr(env, "make_vector"):
        return env
    return JaxLevels(env.env if isinstance(env, JaxLevels) else env, LevelRange.parse(levels))
