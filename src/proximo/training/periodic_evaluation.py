"""The evaluations of a training: when, and of how many episodes."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from proximo.evaluation.episodes import MAX_STEPS, SELECTION_STREAM, Episodes
from proximo.networks import ActorCritic
from proximo.training.events import Event
from proximo.training.interrupts import together
from proximo.training.seed_run import SeedRun
from proximo.training.timed_calls import Snapshot

if TYPE_CHECKING:
    from proximo.training.loop import Training

SHARE = 0.1
"""Evaluations before the end take at most this share of the training's steps, unless ``eval_every`` is set."""
MIN_EPISODES = 4
"""An evaluation for which fewer episodes fit is left out."""


class PeriodicEvaluation(Event):
    """Evaluates the policy of each active seed on the same environment seeds every time. Each process plays a part of the episodes."""

    def __init__(self, training: Training):
        super().__init__(training)
        config = training.config
        self.every = config.eval_updates if config.run.eval_episodes else 0
        self._warned: set[str] = set()

    def num_episodes(self, now: Snapshot) -> int:
        """How many episodes an evaluation plays that is due now; 0: it is left out.

        The last evaluation plays ``eval_episodes``. So do all others on JAX environments, where they take a few percent of the time, and
        with ``eval_every``. Elsewhere the number depends on the lengths of recent episodes and on the steps so far alone, so a training
        can be repeated.
        """
        run, seed_run, at_once = self.training.config.run, self.seed_runs[0], self.backend.episodes_together
        if run.eval_every or not at_once or now.update >= self.training.total:
            return run.eval_episodes
        lengths = [seed_run.window.recent_length, (seed_run.last_evaluation or {}).get("length_mean")]
        length = max((x for x in lengths if x), default=math.inf)
        rounds = (SHARE * now.step - seed_run.evaluation_steps) // (at_once * length)
        count = min(run.eval_episodes, int(rounds) * at_once)
        return count if count >= min(MIN_EPISODES, run.eval_episodes) else 0

    def on_update(self, now: Snapshot) -> None:
        count = self.num_episodes(now)
        if not count:
            return
        for seed_run in self.seed_runs:
            seed_run.write_window(now.step, self.training.timed_calls)
        self.reporter.evaluating()
        summaries = [self._evaluate(now, i, seed_run, count) for i, seed_run in self.training.active()]
        self.reporter.evaluated(now.step, summaries)

    def _evaluate(self, now: Snapshot, index: int, seed_run: SeedRun, count: int) -> dict[str, Any]:
        began = time.monotonic()
        policy, seed = self.backend.policy(now.state, index), seed_run.config.run.seed
        played = together(self.backend.peers, "the results of an evaluation", self._play, policy, seed, count)
        rows, unfinished = zip(*played, strict=True)
        episodes = Episodes.from_rows([row for part in rows for row in part], sum(unfinished))
        self._check(episodes, now.step)
        seconds = time.monotonic() - began
        return seed_run.evaluated(now.step, episodes, seconds, is_last=now.update >= self.training.total)

    def _play(self, policy: ActorCritic, seed: int, count: int) -> tuple[list[dict[str, Any]], int]:
        episodes = self.training.call(self.backend.evaluate, policy, seed, SELECTION_STREAM, count)
        return episodes.rows(), episodes.unfinished

    def _check(self, episodes: Episodes, step: int) -> None:
        """Warn, once each, of episodes that did not end, or have no finite return."""
        limit = self.training.config.run.eval_max_steps or MAX_STEPS
        for about, is_so, message in (
            (
                "unfinished",
                episodes.unfinished > 0,
                f"{episodes.unfinished} episodes of the evaluation were still running after {limit:,} steps. "
                "Their returns so far are counted: set max_episode_steps.",
            ),
            (
                "not finite",
                not np.isfinite(episodes.episode_return).all(),
                f"In the evaluation at step {step:,}, the environment returned NaN or infinity: check its reset and step. Such an "
                "evaluation has no mean return, and its checkpoint is never the best one.",
            ),
        ):
            if is_so and about not in self._warned:
                self._warned.add(about)
                self.reporter.warned(message)
