"""Space Invaders (MinAtar) by the rules of gymnax 0.0.5, with which the published return was measured.

python benchmarks/suite.py minatar --only minatar_envs:PublishedSpaceInvaders
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from gymnax.environments.minatar import space_invaders

from proximo.envs.jax.gymnax import GymnaxEnvironment

step_agent = space_invaders.step_agent


class PublishedRules(space_invaders.MinSpaceInvaders):
    """The game of gymnax 0.0.5: it begins with seven columns of aliens instead of six, and a bullet also hits the cannon that has just
    moved away."""

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
        _, state = super().reset_env(key, params)
        state = state.replace(alien_map=state.alien_map.at[0:4, 2:9].set(True))
        return self.get_obs(state), state

    def step_env(self, *arguments: Any) -> tuple[Any, ...]:
        with mock.patch.object(space_invaders, "step_agent", hit_at_the_old_place):
            return super().step_env(*arguments)


def hit_at_the_old_place(action: Any, state: Any, params: Any) -> Any:
    """``step_agent`` with the bullets tested at the place that the cannon had before its move."""
    moved = step_agent(action, state, params)
    return moved.replace(terminal=state.terminal | (moved.e_bullet_map[9, state.pos] > 0))


class PublishedSpaceInvaders(GymnaxEnvironment):
    """The game for proximo."""

    def __init__(self) -> None:
        super().__init__("SpaceInvaders-MinAtar", {})
        self.env = PublishedRules()
