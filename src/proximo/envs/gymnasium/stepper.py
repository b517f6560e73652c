"""Steps several single environments one after the other into neighboring columns of a rollout buffer."""

import abc
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.envs.gymnasium.rollout_buffer import FAILURE, SUCCESS, UNREPORTED, RolloutBuffer
from proximo.envs.gymnasium.transition_checks import FLAGS, NUMBERS, check_observation, check_step, located, make_quick_check
from proximo.errors import EnvError
from proximo.spaces import ACTION_MASK, ActionSpace, Joint, Space, leaves, mask_sizes, mask_starts, nested

STRICT_STEPS = 1000
"""Number of first steps that are checked completely."""
NO_LIMIT = 2**62
MASK_ONLY_IN_STEPS = f"returned an {ACTION_MASK} in its info, but its first reset returned none: return one at every reset too."
SUCCESS_KEYS = ("success", "is_success")


@dataclass(frozen=True)
class EnvironmentSpec:
    """What stepping needs to know about an environment."""

    env_id: str
    observation_space: Space
    action_space: ActionSpace
    max_episode_steps: int = 0
    """Steps after which an episode is truncated; 0: only the environment's own limit."""
    checks_actions: bool = False
    """Whether actions are checked before each step, because native code may crash at others."""
    life_loss: bool = False
    """Report a decrease of ``info["lives"]`` as a lost life."""
    num_agents: int = 1
    """Number of agents in one environment. Each agent has a column of the rollout buffer."""
    agents: tuple[str, ...] = ()
    """Their names, if the environment is a ``ParallelEnv``."""
    first_env: int = 0
    """Number of the first environment among all environments of a training, which may be divided among processes."""


def environment_seeds(num_envs: int, *source: int) -> list[int]:
    """Return distinct seeds for ``num_envs`` environments.

    They depend on ``source`` only, not on the number of processes. A larger ``num_envs`` keeps these seeds and adds others. Seeds have
    31 bits, because some libraries accept no more.
    """
    drawn = num_envs
    while len(seeds := dict.fromkeys(int(x) >> 1 for x in np.random.SeedSequence(source).generate_state(drawn))) < num_envs:
        drawn += num_envs - len(seeds)
    return list(seeds)[:num_envs]


def reported_success(info: dict[str, Any]) -> int:
    """Return what ``info`` reports about an episode in its last step: SUCCESS if all flags are nonzero, FAILURE if one is zero, UNREPORTED
    for None, NaN and other objects."""
    for key in SUCCESS_KEYS:
        flags = np.asarray(info.get(key))
        if flags.dtype.kind in "biuf" and flags.size and not np.isnan(flags).any():
            return SUCCESS if flags.all() else FAILURE
    return UNREPORTED


def checked_reset(env: Any, where: Callable[[], str], seed: int | None = None) -> tuple[Any, dict[str, Any]]:
    """Reset ``env``, with a seed if there is one. Raises ``EnvError`` unless it returns a pair."""
    pair = env.reset(seed=seed) if seed is not None else env.reset()
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], dict):
        raise EnvError(
            f"{where()} returned {type(pair).__name__}: expected a pair (observation, info); the interface of old Gym had only the observation."
        )
    return pair


class BaseStepper(abc.ABC):
    """What all steppers share: their ``columns`` of a rollout buffer, and the check of action masks."""

    def __init__(self, spec: EnvironmentSpec, buffer: RolloutBuffer, columns: range):
        self.spec, self.rows, self.num_columns = spec, buffer.columns(columns), len(columns)
        self.num_envs, self.first = len(columns) // spec.num_agents, spec.first_env + columns.start // spec.num_agents
        self.sizes = mask_sizes(spec.action_space)
        self.leaves = leaves(spec.observation_space)
        self.single = len(self.leaves) == 1 and not self.leaves[0].path
        self.masks = [i for i, leaf in enumerate(self.leaves) if leaf.path == (ACTION_MASK,)]
        """The index of the action mask among the leaves; empty if there is none."""
        self.steps, self.call = 0, "step"
        """Steps since the reset, and the method of the environment that is running, for messages."""

    @abc.abstractmethod
    def where(self, column: int | None = None) -> str:
        """The call that is running, of the environment of ``column`` if it is given, for messages."""

    def write(self, arrays: tuple[np.ndarray, ...], place: int | tuple[int, int], observation: Any) -> None:
        """Store the leaves of an observation in the ``place`` of ``arrays``."""
        if self.single:
            arrays[0][place] = observation
            return
        for array, leaf in zip(arrays, self.leaves, strict=True):
            array[place] = leaf.of(observation)

    def check_masks(self, row: int) -> None:
        """Raise ``EnvError`` if a mask in ``row`` allows no action in a component, in a column that acts."""
        for leaf in self.masks:
            masks = self.rows.observation[leaf][row].reshape(self.num_columns, -1)
            starts = mask_starts(self.sizes, masks.shape[1])
            # A mask of another size is an error where the policy is made.
            allowed = np.logical_or.reduceat(masks, (0,) if starts is None else starts, axis=1)
            for i in np.flatnonzero(~allowed.all(axis=1) & self.rows.valid[row]):
                component = f" in component {np.argmin(allowed[i])}" if allowed.shape[1] > 1 else ""
                raise EnvError(
                    f"{self.where(int(i))} returned an action_mask that allows no action{component}: at least one must be allowed while "
                    "the episode goes on."
                )


class Stepper(BaseStepper):
    """Makes environments and steps them one after the other into the ``columns`` of a rollout buffer.

    An environment whose episode ends is reset in the same step, so there are no autoreset steps.
    """

    def __init__(self, make: Callable[[], Any], spec: EnvironmentSpec, buffer: RolloutBuffer, columns: range):
        super().__init__(spec, buffer, columns)
        self.limit, self.fits = spec.max_episode_steps or NO_LIMIT, make_quick_check(self.leaves)
        # A complete check takes longer than a step of a small environment.
        self.strict_steps = min(STRICT_STEPS, max(10, 100 * STRICT_STEPS // self.num_envs))
        self.limits, self.lengths, self.lives, self.seeds = ([0] * self.num_envs for _ in range(4))
        self.k = 0
        """The environment that is running."""
        self.envs: list[Any] = []
        try:
            for _ in range(self.num_envs):
                self.envs.append(make())
        except BaseException:
            self.close()
            raise

    @located
    def reset(self, row: int, source: Sequence[int], stagger_steps: int = 0) -> None:
        """Reset all environments, with seeds that depend on ``source``, and write their first observations into a row.
        With ``stagger_steps``, the first episode of each is truncated after 1 … this many steps."""
        last = self.first + self.num_envs
        self.seeds, self.steps, self.limits = environment_seeds(last, *source)[self.first :], 0, [self.limit] * self.num_envs
        if stagger_steps:
            drawn = np.random.default_rng(np.random.SeedSequence([*source, 1])).integers(1, stagger_steps + 1, last)[self.first :]
            self.limits = np.minimum(self.limits, drawn).tolist()
        self.rows.valid[row] = True
        for k, seed in enumerate(self.seeds):
            self.k = k
            self._begin(row, k, seed)
        self.check_masks(row)

    def _begin(self, row: int, k: int, seed: int | None = None) -> None:
        """Start an episode of environment ``k`` and write its first observation into ``row``."""
        self.call = "reset"
        observation, info = checked_reset(self.envs[k], self.where, seed)
        if self.steps < self.strict_steps or not self.fits(observation):
            check_observation(observation, self.leaves, self.where)
        self.lengths[k], self.lives[k] = 0, info.get("lives", 0) if self.spec.life_loss else 0
        self.rows.episode_start[row, k] = True
        self.write(self.rows.observation, (row, k), observation)
        self.call = "step"

    def send(self, t: int) -> None:
        """Do nothing: ``step`` takes the whole step."""

    @located
    def step(self, t: int) -> bool:
        """Take step ``t`` of all environments. Returns whether it truncated an episode."""
        actions: Any = self.rows.action[t].copy()  # an environment may keep its action
        if isinstance(self.spec.action_space, Joint):
            actions = [nested(self.spec.action_space, action) for action in actions]
        if self.spec.agents:
            actions = [actions[k * self.spec.num_agents : (k + 1) * self.spec.num_agents] for k in range(self.num_envs)]
        self.call, any_truncated = "step", False
        for k, env in enumerate(self.envs):
            self.k = k
            any_truncated |= self._step(t, k, env, actions[k])
        self.steps += 1
        self.check_masks(t + 1)
        return any_truncated

    def _step(self, t: int, k: int, env: Any, action: Any) -> bool:
        observation, reward, terminated, truncated, info = env.step(action)
        rows, strict = self.rows, self.steps < self.strict_steps
        if strict or not (
            self.fits(observation)
            and type(reward) in NUMBERS
            and (terminated is False or type(terminated) in FLAGS)
            and (truncated is False or type(truncated) in FLAGS)
            and isinstance(info, dict)
        ):
            check_observation(observation, self.leaves, self.where)
            check_step(reward, terminated, truncated, info, self.where)
            if strict and ACTION_MASK in info and not self.masks:
                raise EnvError(f"{self.where()} {MASK_ONLY_IN_STEPS}")
        rows.reward[t, k] = reward
        self.lengths[k] += 1
        truncated = (truncated or self.lengths[k] >= self.limits[k]) and not terminated
        if not (terminated or truncated):
            if self.spec.life_loss:
                lives = info.get("lives", self.lives[k])
                rows.life_lost[t, k], self.lives[k] = lives < self.lives[k], lives
            self.write(rows.observation, (t + 1, k), observation)
            return False
        rows.terminated[t, k], rows.truncated[t, k], rows.success[t, k] = terminated, truncated, reported_success(info)
        if truncated:
            self.write(rows.final_observation, k, observation)
        self.limits[k] = self.limit
        self._begin(t + 1, k)
        return truncated

    def where(self, column=None):
        if column is not None:
            self.k = column // self.spec.num_agents
            self.call = "step" if self.lengths[self.k] else "reset"
        return (
            f"{self.spec.env_id}.{self.call} of environment {self.first + self.k} (seed {self.seeds[self.k]}, "
            f"step {self.lengths[self.k]} of its episode, {self.steps} since the start)"
        )

    def close(self) -> None:
        """Close all environments, even if some of them raise."""
        for env in self.envs:
            with contextlib.suppress(Exception):
                env.close()
