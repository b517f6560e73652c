"""The episodes that finish in Gymnasium environments: returns of raw rewards, lengths, successes."""

from typing import NamedTuple

import numpy as np

from proximo.envs.gymnasium.rollout_buffer import SUCCESS, UNREPORTED, RolloutBuffer


class Episode(NamedTuple):
    """A finished episode of an agent."""

    env: int
    """Number of its environment."""
    episode_return: float
    length: int
    success: int
    """SUCCESS, FAILURE or UNREPORTED."""
    agent: int = 0
    """Number of the agent in its environment."""
    team_return: float | None = None
    """The sum over all agents, if the episode of the environment ended too, and this is the last of its agents."""


class EpisodeTally:
    """Counts the running episode of each agent: of column N of a rollout. A lost life does not end an episode, and an episode
    that was cut short by a lost worker is not counted. The episode of an environment ends when no episode of an agent goes on."""

    def __init__(self, num_envs: int, first_env: int = 0, num_agents: int = 1):
        self._first_env, self._num_agents = first_env, num_agents
        self.episode_return = np.zeros(num_envs * num_agents)
        """Return of the running episode so far, N."""
        self.length = np.zeros(num_envs * num_agents, np.int64)
        """Steps of the running episode so far, N."""
        self._is_partial = np.zeros(num_envs * num_agents, bool)
        self._team_return, self._is_partial_team = np.zeros(num_envs), np.zeros(num_envs, bool)
        """Of the running episode of each environment: the returns of the agents whose episodes have ended, and whether one was partial."""
        self._reports_success = False
        self.finished: list[Episode] = []
        """The episodes that finished in the last rollout."""

    def begin(self, staggered: bool) -> None:
        """Count new episodes. With a ``staggered`` start the first ones are cut short and not counted."""
        self.episode_return[:], self.length[:], self._is_partial[:] = 0.0, 0, staggered
        self._team_return[:], self._is_partial_team[:] = 0.0, False

    def add(self, buffer: RolloutBuffer) -> list[Episode]:
        """Count the steps of a rollout. Returns the episodes that finished in it, by environment."""
        valid = buffer.valid[:-1]
        ends = (buffer.terminated | buffer.truncated) & valid
        rewards = np.where(valid, buffer.reward, 0.0).astype(np.float64)
        start = np.zeros(len(self.length), int)  # of the running episode in this rollout, N
        self.finished = []
        events = self._by_env(ends | buffer.lost)
        goes_on = self._by_env(buffer.valid[1:] & ~buffer.episode_start[1:])
        for env, t, agent in np.argwhere(events):
            i = env * self._num_agents + agent
            # Summed for each episode, so that NaN or infinity changes the return of one episode only.
            self.episode_return[i] += rewards[start[i] : t + 1, i].sum()
            self.length[i] += valid[start[i] : t + 1, i].sum()
            is_whole = ends[t, i] and not self._is_partial[i]
            self._team_return[env] += self.episode_return[i]
            self._is_partial_team[env] |= not is_whole
            is_last = not (events[env, t, agent + 1 :].any() or (self._num_agents > 1 and goes_on[env, t].any()))
            if is_whole:
                numbers = float(self.episode_return[i]), int(self.length[i]), int(buffer.success[t, i])
                team = float(self._team_return[env]) if is_last and not self._is_partial_team[env] else None
                self.finished.append(Episode(self._first_env + int(env), *numbers, int(agent), team))
            self.episode_return[i], self.length[i], self._is_partial[i] = 0.0, 0, False
            if is_last:
                self._team_return[env], self._is_partial_team[env] = 0.0, False
            start[i] = t + 1
        is_running = np.arange(len(valid))[:, None] >= start
        self.episode_return += np.where(is_running, rewards, 0.0).sum(axis=0)
        self.length += (valid & is_running).sum(axis=0)
        return self.finished

    def _by_env(self, flags: np.ndarray) -> np.ndarray:
        """Flags T N as an array of environments, steps and agents."""
        return flags.reshape(len(flags), -1, self._num_agents).swapaxes(0, 1)

    def age(self) -> np.ndarray:
        """Steps of the longest running episode of an agent, by environment."""
        return self.length.reshape(-1, self._num_agents).max(axis=1)

    def cut_off(self, env: int) -> list[Episode]:
        """The running episodes of an environment so far. None of them reports a success."""
        columns = range(env * self._num_agents, (env + 1) * self._num_agents)
        running = [i for i in columns if self.length[i]]
        team = float(self._team_return[env] + self.episode_return[running].sum())
        return [
            Episode(self._first_env + env, float(self.episode_return[i]), int(self.length[i]), UNREPORTED, i - columns[0], team)
            for i in running
        ]

    def metrics(self) -> dict[str, float]:
        """Statistics of the ``finished`` episodes; 0 without episodes. The success rate is a metric as soon as an
        environment has reported whether an episode succeeded."""
        self._reports_success |= any(episode.success != UNREPORTED for episode in self.finished)
        returns, lengths = [episode.episode_return for episode in self.finished], [episode.length for episode in self.finished]
        functions = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
        metrics = {"rollout/episodes": float(len(self.finished))}
        for name, values in (("return", returns), ("length", lengths)):
            x = np.array(values or [0.0], float)
            metrics |= {f"rollout/{name}_{word}": float(function(x)) for word, function in functions.items()}
        if self._num_agents > 1:
            teams = [episode.team_return for episode in self.finished if episode.team_return is not None]
            metrics |= {"rollout/team_episodes": float(len(teams)), "rollout/team_return_mean": float(np.mean(teams or [0.0]))}
        if self._reports_success:
            successes = [episode.success == SUCCESS for episode in self.finished]
            metrics["rollout/success_rate"] = float(np.mean(successes or [False]))
        return metrics
