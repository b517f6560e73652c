"""Steps environments of several agents into a rollout buffer, with a column for each agent."""

from collections.abc import Callable
from typing import Any

from proximo.envs.gymnasium.rollout_buffer import RolloutBuffer
from proximo.envs.gymnasium.stepper import EnvironmentSpec, Stepper, checked_reset, reported_success
from proximo.envs.gymnasium.transition_checks import check_observation, check_step
from proximo.errors import EnvError


class AgentsStepper(Stepper):
    """Makes ``ParallelEnv`` environments and steps them one after the other. The agents of each fill neighboring columns.

    The episode of an agent ends when it dies, or with the environment. From then on it is absent: its column is padding
    until its next episode. When no agent is left, the environment is reset in the same step.
    """

    def __init__(self, make: Callable[[], Any], spec: EnvironmentSpec, buffer: RolloutBuffer, columns: range):
        super().__init__(make, spec, buffer, columns)
        self.acting: list[set[str]] = [set() for _ in self.envs]
        """The agents of each environment whose episodes are running."""
        count = spec.num_agents
        self.columns_of = [[*zip(range(k * count, k * count + count), spec.agents, strict=True)] for k in range(self.num_envs)]
        """The columns of each environment and the names of their agents."""
        self.agent = ""
        """The agent that is checked, for messages."""

    def _begin(self, row: int, k: int, seed: int | None = None) -> None:
        self.call, self.agent = "reset", ""
        observations, _ = checked_reset(self.envs[k], self.where, seed)
        self.lengths[k], self.acting[k] = 0, set()
        self._observe(row, k, observations, self.envs[k].present)
        self.call = "step"

    def _observe(self, row: int, k: int, observations: dict[str, Any], present: frozenset[str]) -> None:
        """Write what the ``present`` agents of environment ``k`` observe into ``row``."""
        for column, name in self.columns_of[k]:
            self.rows.valid[row, column] = name in present
            if name in present:
                self._store(self.rows.observation, (row, column), name, observations)
                self.rows.episode_start[row, column] = name not in self.acting[k]
        self.acting[k] = set(present)

    def _store(self, arrays: Any, place: Any, name: str, observations: dict[str, Any]) -> None:
        """Check the observation of an agent and write it."""
        self.agent = name
        if name not in observations:
            raise EnvError(f"{self.where()} returned no observation: expected one of each agent that acted or is present.")
        if self.steps < self.strict_steps or not self.fits(observations[name]):
            check_observation(observations[name], self.leaves, self.where)
        self.write(arrays, place, observations[name])

    def _step(self, t: int, k: int, env: Any, action: Any) -> bool:
        rows, acting, ended, any_truncated = self.rows, self.acting[k], set[str](), False
        self.agent = ""
        given = {name: action[i] for i, (_, name) in enumerate(self.columns_of[k]) if name in acting}
        observations, rewards, terminations, truncations, infos = env.step(given)
        self.lengths[k] += 1
        over_time, present = self.lengths[k] >= self.limits[k], env.present
        for column, name in self.columns_of[k]:
            if name not in acting:
                rows.reward[t, column] = 0.0
                continue
            self.agent, info = name, infos.get(name, {})
            terminated, truncated = terminations.get(name, False), truncations.get(name, False)
            check_step(rewards.get(name), terminated, truncated, info, self.where)
            rows.reward[t, column] = rewards[name]
            if (terminated or truncated) == (name in present):
                how = (
                    "kept the agent, whose episode has ended"
                    if name in present
                    else "removed the agent, whose episode has not ended"
                )
                raise EnvError(f"{self.where()} {how}: expected in agents those that act in the next step, and no others.")
            truncated = (truncated or over_time) and not terminated
            if terminated or truncated:
                ended.add(name)
                rows.terminated[t, column], rows.truncated[t, column] = terminated, truncated
                rows.success[t, column] = reported_success(info)
                any_truncated |= truncated
            if truncated:
                self._store(rows.final_observation, column, name, observations)
        self.acting[k], self.agent = acting - ended, ""
        if over_time or not present:
            self.limits[k] = self.limit
            self._begin(t + 1, k)
        else:
            self._observe(t + 1, k, observations, present)
        return any_truncated

    def where(self, column=None):
        if column is not None:
            self.agent = self.spec.agents[column % self.spec.num_agents]
        text = super().where(column)
        return f"{text} for {self.agent}" if self.agent else text


def make_stepper(make: Callable[[], Any], spec: EnvironmentSpec, buffer: RolloutBuffer, columns: range) -> Stepper:
    """The stepper of single environments."""
    return (AgentsStepper if spec.agents else Stepper)(make, spec, buffer, columns)
