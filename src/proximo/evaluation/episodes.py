"""The episodes of an evaluation: their random keys, their results and statistics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Array, Key

EVALUATIONS = 2**30
"""Evaluation keys are ``fold_in(key(seed), EVALUATIONS + stream)``: the first children of the key belong to the training."""
SELECTION_STREAM, EVALUATION_STREAM, TUNING_STREAM, PREDICTION_STREAM, NETWORK_STREAM = 1, 2, 3, 4, 5
"""Streams of random keys. No evaluation plays the episodes that select a checkpoint or settings."""
MAX_STEPS = 100_000
MAX_EPISODES = 10**6
COLUMNS = ("index", "env_seed", "level", "return", "length", "success")


def evaluation_key(seed: int | Array, stream: int | Array) -> Key[Array, ""]:
    """The key of the evaluations of ``seed`` in ``stream``. No training uses it."""
    return jax.random.fold_in(jax.random.key(seed), EVALUATIONS + stream)


def environment_source(seed: int, stream: int) -> int:
    """The number from which the seeds of the Gymnasium environments of such evaluations follow."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])


@dataclass(frozen=True)
class Episodes:
    """Episodes that were played by one policy, with an entry for each of ``E`` episodes."""

    episode_return: np.ndarray
    """E: sum of raw rewards."""
    length: np.ndarray
    """E: steps."""
    success: np.ndarray | None
    """E bool; None if the environment does not report it."""
    unfinished: int
    """Episodes that were cut off after ``eval_max_steps`` (or ``MAX_STEPS``). Their returns so far count."""
    warnings: tuple[str, ...] = ()
    """Warnings about the checkpoint, levels of the training, and episodes that did not end."""
    seed: list[int | None] | None = None
    """E: seed of the reset that began the episode, None without one. None instead of a list: unknown."""
    level: list[int | None] | None = None
    """E: level of the episode. None instead of a list: ``levels`` is not set, or the levels are unknown."""
    index: np.ndarray | None = None
    """E: position among the episodes of all processes that evaluate together; None: unknown. The agents of an environment share it."""
    agent: list[int] | None = None
    """E: number of the agent in its environment; None: the environment has one agent. With several, an entry is the episode of an agent."""

    is_game: bool = False
    """Whether they are games, whose result is the sign of the return."""

    def __repr__(self) -> str:
        """One line, without arrays."""
        spread = f"{self.episode_return.mean():.4g} ± {self.episode_return.std():.2g}"
        success = "" if self.success is None else f", success rate {self.success.mean():.3g}"
        unfinished = f", {self.unfinished} unfinished" if self.unfinished else ""
        return f"Episodes({len(self.of_environments)} episodes: return {spread}, length {self.length.mean():.4g}{success}{unfinished})"

    def __iter__(self) -> Iterator[list[Any]]:
        """``returns, lengths``, as in lightning-baselines3."""
        return iter((self.episode_return.tolist(), self.length.tolist()))

    @classmethod
    def from_rows(cls, rows: Sequence[dict[str, Any]], unfinished: int) -> Self:
        """The episodes of ``rows`` by ``index``. If any reports success, others count as failures."""
        ordered = sorted(rows, key=lambda row: (row["index"], row.get("agent", 0)))
        index, seed, level, returns, lengths, success = ([row[name] for row in ordered] for name in COLUMNS)
        return cls(
            np.array(returns, np.float64),
            np.array(lengths, np.int64),
            None if success.count(None) == len(rows) else np.array([x is True for x in success]),
            unfinished,
            seed=None if seed.count(None) == len(rows) else seed,
            level=None if level.count(None) == len(rows) else level,
            index=np.array(index, np.int64),
            agent=[row["agent"] for row in ordered] if rows and "agent" in rows[0] else None,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each episode.

        Returns:
            ``{index, env_seed, level, return, length, success}`` for each episode, and ``agent`` if there are several. Unknown values
            are None.
        """
        unknown = [None] * len(self.length)
        index = range(len(self.length)) if self.index is None else self.index.tolist()
        success = unknown if self.success is None else self.success.tolist()
        returns = self.episode_return.astype(np.float64).tolist()
        columns = index, self.seed or unknown, self.level or unknown, returns, self.length.tolist(), success
        rows: list[dict[str, Any]] = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
        return rows if self.agent is None else [{**row, "agent": agent} for row, agent in zip(rows, self.agent, strict=True)]

    @property
    def of_environments(self) -> list[np.ndarray]:
        """The returns of the agents in each episode of an environment."""
        returns = self.episode_return.astype(np.float64)
        if self.agent is None or self.index is None:
            return list(returns[:, None])
        _, starts = np.unique(self.index, return_index=True)
        return np.split(returns, starts[1:])

    @property
    def environment_steps(self) -> int:
        """Steps of the environments."""
        if self.agent is None or self.index is None:
            return int(self.length.sum())
        _, starts = np.unique(self.index, return_index=True)
        return int(np.maximum.reduceat(self.length, starts).sum())

    @property
    def means_of_agents(self) -> np.ndarray:
        """The mean return of the agents in each episode of an environment."""
        return np.array([returns.mean() for returns in self.of_environments])

    def summary(self) -> dict[str, Any]:
        """Statistics of the episodes.

        Returns:
            ``{episodes, return_mean, return_std, return_iqm, ci95, length_mean, success_rate}``.
            ``return_iqm`` is the mean of the middle half (Agarwal et al. 2021, arXiv:2108.13264). ``ci95`` is
            the 95 % interval of ``return_mean`` by the percentile bootstrap with 2,000 resamples. With several agents, these are
            statistics of the agents' episodes, but ``episodes`` counts those of the environments, from which ``ci95`` resamples the mean
            return of their agents. ``team_return_mean`` is the mean return of all agents together. Games also
            have ``win_rate``, ``draw_rate`` and ``loss_rate``.
        """
        returns, together = self.episode_return.astype(np.float64), self.of_environments
        summary = {
            "episodes": len(together),
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_iqm": interquartile_mean(returns),
            "ci95": bootstrap_interval(self.means_of_agents),
            "length_mean": float(self.length.mean()),
            "success_rate": None if self.success is None else float(self.success.mean()),
        }
        if self.is_game:
            results = {"win_rate": returns > 0, "draw_rate": returns == 0, "loss_rate": returns < 0}
            summary |= {name: float(games.mean()) for name, games in results.items()}
        return summary if self.agent is None else summary | {"team_return_mean": float(np.mean([x.sum() for x in together]))}


def interquartile_mean(x: np.ndarray) -> float:
    """The mean without the lowest and the highest quarter, as ``scipy.stats.trim_mean(x, 0.25)``, which takes
    long to import. NaN if any value is NaN, which is sorted last."""
    ordered, n = np.sort(x), len(x)
    return float("nan" if np.isnan(ordered[-1]) else ordered[n // 4 : n - n // 4].mean())


def bootstrap_interval(x: np.ndarray) -> list[float]:
    """``[low, high]``: the 95 % interval of the mean of ``x``, by the percentile bootstrap."""
    return stratified_interval([x])


def stratified_interval(strata: Sequence[np.ndarray], resamples: int = 2000) -> list[float]:
    """``[low, high]``: the 95 % interval of the mean over ``strata`` of their means, by the stratified
    percentile bootstrap (Agarwal et al. 2021, arXiv:2108.13264, section 4). For episodes of several policies,
    it applies to these policies, not to new trainings."""
    rng, means = np.random.default_rng(0), np.zeros(resamples)
    for x in strata:
        at_once = max(1, 1_000_000 // len(x))  # bounds the memory for thousands of episodes
        for first in range(0, resamples, at_once):
            count = min(at_once, resamples - first)
            means[first : first + count] += x[rng.integers(0, len(x), (count, len(x)))].mean(axis=1) / len(strata)
    return [float(v) for v in np.percentile(means, [2.5, 97.5])]
