"""The settings that preprocess a Gymnasium environment, and the wrappers that they add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from proximo.envs.level_seeds import LevelRange


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of an environment. The fields are settings of ``env``, which ``config/schema.py`` explains."""

    preprocessing: Literal["none", "atari"] = "none"
    frame_stack: int = 1
    action_repeat: int = 1
    max_episode_steps: int = 0
    levels: str = ""
    wrappers: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Names and arguments of custom wrappers; the first is the innermost."""
    drop_observations: tuple[str, ...] = ()
    life_loss: bool = False

    @property
    def wraps(self) -> bool:
        """Whether single environments must be wrapped, so that a vector environment cannot be used."""
        changed = self.preprocessing != "none" or self.frame_stack > 1 or self.action_repeat > 1
        return changed or self.max_episode_steps > 0 or bool(self.levels or self.wrappers or self.drop_observations)

    def arguments(self) -> dict[str, Any]:
        """Return arguments for ``gym.make``. The Atari preprocessing skips frames, so the environment must not.

        The game keeps its ``repeat_action_probability``, which acts on single frames: 0.25 (sticky actions) in ``ALE/Pong-v5``, 0 in
        ``PongNoFrameskip-v4``.
        """
        return {"frameskip": 1} if self.preprocessing == "atari" else {}

    def wrap(self, env: Any, env_id: str) -> Any:
        """Add the wrappers that these settings require to ``env``."""
        import gymnasium as gym

        from proximo.envs.gymnasium import wrappers  # JAX environments do not need Gymnasium

        env = env if isinstance(env, gym.Env) else wrappers.WithBaseClass(env)
        for name, arguments in self.wrappers:
            env = wrappers.custom(env, name, arguments)
        if self.drop_observations:
            env = wrappers.DropObservations(env, env_id, self.drop_observations)
        if self.preprocessing == "atari":
            env = wrappers.atari(env, env_id)
        if self.action_repeat > 1:
            env = wrappers.ActionRepeat(env, self.action_repeat)
        env = wrappers.stack_frames(env, env_id, self.frame_stack) if self.frame_stack > 1 else env
        return wrappers.Levels(env, LevelRange.parse(self.levels)) if self.levels else env
