"""The evaluations of a training. Each decides whether its checkpoint is the best so far, which ``storage.retention`` then keeps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from proximo.backends import Backend
from proximo.evaluation.episodes import MAX_STEPS, SELECTION_STREAM, Episodes
from proximo.networks import ActorCritic
from proximo.tracking.reporter import Reporter
from proximo.training.interrupts import together
from proximo.training.seed_run import SeedRun, active
from proximo.training.timed_calls import Snapshot

SHARE = 0.1
"""Evaluations before the end take at most this share of the training's steps, unless ``eval_every`` is set."""
MIN_EPISODES = 4
"""An evaluation for which fewer episodes fit is left out."""
COLUMNS = ("return_mean", "return_std", "return_iqm", "length_mean", "success_rate")


class PeriodicEvaluation:
    """Evaluates the policy of each active seed on the same environment seeds every time. ``call(function, *arguments)`` calls the
    backend; it may raise to end the training. Each process plays a part of the episodes."""

    def __init__(self, backend: Backend, seed_runs: Sequence[SeedRun], reporter: Reporter, call: Callable[..., Any]):
        self.backend, self.seed_runs, self.reporter, self.call = backend, seed_runs, reporter, call
        self._warned: set[str] = set()

    def num_episodes(self, snapshot: Snapshot) -> int:
        """How many episodes an evaluation plays that is due now; 0: it is left out.

        The last evaluation plays ``eval_episodes``. So do all others on JAX environments, where they take a few percent of the time, and
        with ``eval_every``. Elsewhere the number depends on the lengths of recent episodes and on the steps so far alone, so a training
        can be repeated.
        """
        config, seed_run = self.backend.config, self.seed_runs[0]
        whole, together = config.run.eval_episodes, self.backend.episodes_together
        if config.run.eval_every or not together or snapshot.update >= config.total_updates:
            return whole
        lengths = [seed_run.window.recent_length, (seed_run.last_evaluation or {}).get("length_mean")]
        length = max((x for x in lengths if x), default=math.inf)
        rounds = (SHARE * snapshot.step - seed_run.evaluation_steps) // (together * length)
        count = min(whole, int(rounds) * together)
        return count if count >= min(MIN_EPISODES, whole) else 0

    def evaluate(self, snapshot: Snapshot) -> set[int]:
        """Evaluate, and write the rows of the evaluation. Returns the indices of the seeds whose mean return is at least as high as in
        all evaluations before."""
        self.reporter.evaluating()
        count = self.num_episodes(snapshot)
        improved, summaries = set(), []
        for index, seed_run in active(self.seed_runs):
            began = time.monotonic()
            policy, seed = self.backend.policy(snapshot.state, index), seed_run.config.run.seed
            played = together(self.backend.peers, "the results of an evaluation", self._play, policy, seed, count)
            episodes = Episodes.joined([Episodes.from_rows(**part) for part in played])
            seed_run.evaluation_seconds += time.monotonic() - began
            if snapshot.update < self.backend.config.total_updates:
                seed_run.evaluation_steps += int(episodes.length.sum())
            if episodes.unfinished:
                limit = self.backend.config.run.eval_max_steps or MAX_STEPS
                self._warn_once(
                    "unfinished",
                    f"{episodes.unfinished} episodes of the evaluation were still running after {limit:,} steps. "
                    "Their returns so far are counted: set max_episode_steps.",
                )
            if not np.isfinite(episodes.episode_return).all():
                self._warn_once(
                    "not finite",
                    f"In the evaluation at step {snapshot.step:,}, the environment returned NaN or infinity: check its reset and step. Such an "
                    "evaluation has no mean return, and its checkpoint is never the best one.",
                )
            summary = episodes.summary()
            seed_run.last_evaluation = {"step": snapshot.step, **summary}
            summaries.append(seed_run.last_evaluation)
            row = {f"eval/{name}": summary[name] for name in COLUMNS if summary[name] is not None}
            seed_run.write(snapshot.step, {**row, "time/evaluation_seconds": seed_run.evaluation_seconds})
            reached = summary["return_mean"]
            # NaN is never the best, because no later evaluation would compare as better.
            if math.isfinite(reached) and (seed_run.best is None or reached >= seed_run.best["return_mean"]):
                seed_run.best = {"step": snapshot.step, "return_mean": reached}
                improved.add(index)
        self.reporter.evaluated(snapshot.step, summaries)
        return improved

    def _warn_once(self, about: str, message: str) -> None:
        """Show a warning, unless there was one ``about`` the same."""
        if about not in self._warned:
            self._warned.add(about)
            self.reporter.warned(message)

    def _play(self, policy: ActorCritic, seed: int, count: int) -> dict[str, Any]:
        """The episodes that this process plays."""
        return self.call(self.backend.evaluate, policy, seed, SELECTION_STREAM, count).to_json()
