"""What settings put around an environment, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from proximo.envs.levels import LevelRange


@dataclass(frozen=True)
class Preprocessing:
    """The settings of ``env`` that change what an environment gives."""

    preprocessing: Literal["none", "atari"] = "none"
    frame_stack: int = 1
    action_repeat: int = 1
    max_episode_steps: int = 0
    levels: str = ""
    life_loss: bool = False

    @property
    def wraps(self) -> bool:
        """Whether single environments must be wrapped, so that a vectorised one cannot be used as it is."""
        changed = self.preprocessing != "none" or self.frame_stack > 1 or self.action_repeat > 1
        return changed or self.max_episode_steps > 0 or bool(self.levels)

    def arguments(self) -> dict[str, Any]:
        """What the environment itself is made with: the standard chain skips frames, so the environment must not."""
        return {"frameskip": 1, "repeat_action_probability": 0.0} if self.preprocessing == "atari" else {}

    def wrap(self, env: Any, env_id: str) -> Any:
        """``env`` with all that these settings ask for."""
        from proximo.envs.host import wrappers  # Gymnasium is not imported for an environment in JAX

        env = wrappers.adopted(env)
        if self.preprocessing == "atari":
            env = wrappers.atari(env, env_id)
        if self.action_repeat > 1:
            env = wrappers.ActionRepeat(env, self.action_repeat)
        env = wrappers.stacked(env, env_id, self.frame_stack) if self.frame_stack > 1 else env
        return wrappers.Levels(env, LevelRange.parse(self.levels)) if self.levels else env
