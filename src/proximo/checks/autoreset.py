"""Checks whether a vector environment resets as it declares."""

import copy
from typing import Any

import numpy as np

from proximo.checks.play import play
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_env_adapter import autoreset_of, final_observation
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, leaves

MODE_NAMES = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}


class WatchedVectorEnv:
    """A vector environment that raises ``EnvError`` if it does not reset as it declares."""

    def __init__(self, vector_env: Any, env: GymnasiumEnvironment):
        self._inner, self._env_id, self._leaves = vector_env, env.id, leaves(env.observation_space)
        self.mode = autoreset_of(vector_env, env.id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def require(self, condition: Any, otherwise: str) -> None:
        """Raise the error for a violation of the mode unless ``condition`` is true."""
        if not condition:
            raise EnvError(
                f"{self._env_id} declares {MODE_NAMES[self.mode]}, but {otherwise}. Fix this, or declare the mode that it uses in "
                'metadata["autoreset_mode"].'
            )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset all environments, or the ones in ``options["reset_mask"]``."""
        if options is None:
            self._resets = np.zeros(self._inner.num_envs, bool)
            return self._inner.reset(seed=seed)
        kept, last = ~options["reset_mask"], copy.deepcopy(self._last)
        fresh = self._inner.reset(options=options)
        # The masks of environments that are not reset have no meaning.
        observed = [leaf for leaf in self._leaves if leaf.path != (ACTION_MASK,)]
        pairs = ((np.asarray(leaf.of(last)), leaf.of(fresh[0])) for leaf in observed)
        unchanged = all(np.array_equal(before[kept], after[kept]) for before, after in pairs)
        self.require(unchanged, 'reset(options={"reset_mask": ...}) changed environments that the mask does not select')
        return fresh

    def step(self, actions: Any) -> Any:
        """Step all environments."""
        result = self._inner.step(actions)
        self._last, reward, terminated, truncated, info = result
        done = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        if self.mode == "next_step":
            rewards = np.asarray(reward)[self._resets]
            paid = next(iter(rewards[rewards != 0]), 0)
            reason = f"the step after an episode's end has the reward {paid}: expected 0, because it only resets"
            self.require(not paid, reason)
            self.require("final_obs" not in info, "its info has a final observation, as in same-step autoreset")
            self._resets = done & ~self._resets
        elif self.mode == "same_step":
            finals = {i: final_observation(info, i) for i in np.flatnonzero(done)}
            known = all(final is not None for final in finals.values())
            self.require(known, 'an episode ended without its last observation in info["final_obs"]')
            pairs = [(leaf.of(x), leaf.of(self._last)[i]) for i, x in finals.items() for leaf in self._leaves]
            differ = [not np.array_equal(*pair) for pair in pairs]
            last = "a step that ends an episode returns its last observation: expected the first one of the next episode"
            self.require(len(finals) < 2 or any(differ), last)
        return result


def check_autoreset(watched: WatchedVectorEnv, env: GymnasiumEnvironment) -> str:
    """Check that autoreset steps ignore actions. Every step has checked the rest. Raises ``EnvError``."""
    if watched.mode == "next_step":
        first, again, others = (play(env, 0, autoreset_seed=other) for other in (0, 0, 1))
        uses = first.difference(again) is None and first.difference(others) is not None
        watched.require(not uses, "the step after an episode's end, which must only reset, uses its action")
    return f"It resets as it declares ({MODE_NAMES[watched.mode]})."
