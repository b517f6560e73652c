"""What a training does between calls of its backend: rows, histograms, images, evaluations and the user's callbacks.

``saver`` and ``clips`` have the other events. ``loop.Training`` calls all in one order.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from proximo.collect.learning import BAD_SOURCES
from proximo.config import Config, custom_settings
from proximo.errors import ProximoError
from proximo.evaluation.episodes import MAX_STEPS, SELECTION_STREAM, Episodes
from proximo.networks import ActorCritic
from proximo.rendering.pictures import observation_images, reads_images
from proximo.tracking.tracker import Image
from proximo.training.backend import Snapshot, copy_of
from proximo.training.callbacks import Evaluation, Info, asks_to_stop
from proximo.training.interrupts import together
from proximo.training.seed_run import SeedRun

if TYPE_CHECKING:
    from proximo.training.loop import Training

SHARE = 0.1
"""Evaluations before the end take at most this share of the steps, unless ``eval_every`` is set."""
MIN_EPISODES = 4
"""An evaluation for which fewer episodes fit is left out."""
NON_FINITE = "NaN or infinity"
"""How the message begins."""
_HINTS = {
    "observation": "the environment returned it: check its reset and step",
    "reward": "the environment returned it, or a reward too large for the statistics that scale it: check its step",
    "loss": "lower learning_rate, or set normalize_observation and normalize_reward",
    "gradient": "its norm overflows: lower vf_coef and the scale of rewards, or set normalize_reward",
    "parameters": "lower learning_rate or max_grad_norm, or scale observations that are too large for their statistics",
}


class Event:
    """Something that a training does for all its seeds, due after every ``every`` updates (0: never) and at the end."""

    every = 0
    _pending: concurrent.futures.Future[None] | None = None
    """What another thread does for this event."""

    def __init__(self, training: Training):
        self.training, self.backend = training, training.backend
        self.seed_runs, self.reporter = training.seed_runs, training.reporter

    def next_after(self, update: int) -> float:
        """The first update after ``update`` at which the training must stop for this event."""
        return (update // self.every + 1) * self.every if self.every else math.inf

    def is_due(self, update: int) -> bool:
        """Whether ``update`` is the last one or one of every ``every`` updates."""
        return bool(self.every) and (update == self.training.total or update % self.every == 0)

    def on_start(self, now: Snapshot) -> None:
        """The training starts."""

    def before_call(self, now: Snapshot) -> None:
        """The backend is called, which may use up the state of ``now``."""

    def on_update(self, now: Snapshot) -> None:
        """The backend was called, and some seeds still train."""

    def on_end(self, now: Snapshot) -> None:
        """The training is complete, or was stopped."""

    def close(self) -> None:
        """The training has ended in any way."""
        self.finish()

    def wait(self) -> None:
        """Wait for the work of another thread, which may fail."""
        if self._pending is not None:
            concurrent.futures.wait([self._pending])

    def finish(self) -> None:
        """As ``wait``, and raise the error of this work."""
        self.wait()  # Ctrl-C may end this, and a rescue waits again
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def interval(steps: int, config: Config) -> int:
    """Updates between two events that are ``steps`` environment steps apart; 0: never."""
    return max(1, round(steps / config.batch_size)) if steps else 0


class Rows(Event):
    """Records the metrics of each call, and ends seeds that have met NaN or infinity."""

    def on_update(self, now: Snapshot) -> None:
        calls, config = self.training.timed_calls, self.training.config
        if not now.metrics:  # of a resumed training whose updates are complete
            return
        began = now.step - calls.last_updates * config.batch_size
        for seed_run in self.training.active():
            good, source = first_non_finite(now.metrics, seed_run.index)
            seed_run.record({name: x[seed_run.index, :good] for name, x in now.metrics.items()}, began)
            if source:
                step = began + good * config.batch_size
                seed_run.write_window(step, calls.last_updates - good)
                with contextlib.suppress(ProximoError):  # this failure matters more
                    self.training.saver.finish()
                seed_run.fail(non_finite_message(seed_run, source, step, self.backend.fault()))
                if self.training.active():
                    self.reporter.warned(f"{seed_run.failure} The other seeds continue.")
        means = (run.window.recent_mean("return_mean") for run in self.training.active())
        returns = [x for x in means if x is not None]
        speed = calls.last_updates * config.batch_size * len(self.seed_runs) / calls.last_seconds
        self.reporter.advanced(now.step, speed, sum(returns) / len(returns) if returns else None)


class Histograms(Event):
    """Writes histograms of single updates. Each such update is computed in a separate call."""

    def __init__(self, training: Training):
        super().__init__(training)
        self.every, self._before = training.config.histograms_every, None

    def next_after(self, update: int) -> float:
        return max(super().next_after(update) - 1, update + 1)

    def before_call(self, now: Snapshot) -> None:
        if super().next_after(now.update) == now.update + 1:
            self._before = self.training.shared_call(copy_of, now.state) if self.backend.donates else now.state

    def on_update(self, now: Snapshot) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        of_seeds = self.training.shared_call(self.backend.inspect, before, now.state)
        for seed_run, histograms in zip(self.seed_runs, of_seeds, strict=False):
            if seed_run.is_active:
                seed_run.trackers.write(now.step, histograms)


class Images(Event):
    """Shows the trackers of a new training one observation of each seed, where observations are images."""

    def on_update(self, now: Snapshot) -> None:
        if now.update != self.training.timed_calls.last_updates or not reads_images(now.state.learner.policy):
            return  # not the first call of a new training
        for seed_run in self.training.active():
            state = self.backend.seed_state(now.state, seed_run.index)
            observation = self.backend.observation(state)
            images = {} if observation is None else observation_images(state.learner.policy, observation)
            if images:
                seed_run.trackers.write(now.step, {name: Image(pixels) for name, pixels in images.items()})


class PeriodicEvaluation(Event):
    """Evaluates each active seed on the same environment seeds every time. Each process plays a part."""

    def __init__(self, training: Training):
        super().__init__(training)
        self.every = training.config.eval_updates if training.config.run.eval_episodes else 0
        self._warned: set[str] = set()

    def num_episodes(self, now: Snapshot) -> int:
        """Number of episodes of the evaluation that is due now; 0: it is left out.

        The last evaluation plays ``eval_episodes``. So do all others on JAX environments, where they take a
        few percent of the time, and with ``eval_every``. Elsewhere the number depends on the lengths of
        recent episodes and on the steps so far alone, so a training can be repeated.
        """
        run, seed_run, at_once = self.training.config.run, self.seed_runs[0], self.backend.episodes_together
        if run.eval_every or not at_once or now.update >= self.training.total:
            return run.eval_episodes
        lengths = [seed_run.window.recent_mean("length_mean"), (seed_run.last_evaluation or {}).get("length_mean")]
        length = max((x for x in lengths if x), default=math.inf)
        rounds = (SHARE * now.step - seed_run.evaluation_steps) // (at_once * length)
        count = min(run.eval_episodes, int(rounds) * at_once)
        return count if count >= min(MIN_EPISODES, run.eval_episodes) else 0

    def on_update(self, now: Snapshot) -> None:
        if not (self.is_due(now.update) and (count := self.num_episodes(now))):
            return
        for seed_run in self.seed_runs:
            seed_run.write_window(now.step)
        self.reporter.evaluating()
        summaries = [self._evaluate(now, seed_run, count) for seed_run in self.training.active()]
        self.reporter.evaluated(now.step, summaries)

    def _evaluate(self, now: Snapshot, seed_run: SeedRun, count: int) -> dict[str, Any]:
        began = time.monotonic()
        policy, seed = self.backend.policy(now.state, seed_run.index), seed_run.config.run.seed
        played = together(self.backend.peers, "the results of an evaluation", self._play, policy, seed, count)
        rows, unfinished = zip(*played, strict=True)
        episodes = Episodes.from_rows([row for part in rows for row in part], sum(unfinished))
        if episodes.unfinished:
            limit = self.training.config.run.eval_max_steps or MAX_STEPS
            self._warn_once(
                "unfinished",
                f"{episodes.unfinished} episodes of the evaluation were still running after {limit:,} steps. "
                "Their returns so far are counted: set max_episode_steps.",
            )
        if not np.isfinite(episodes.episode_return).all():
            self._warn_once(
                "not finite",
                f"In the evaluation at step {now.step:,}, the environment returned NaN or infinity: check its reset and step. Such an "
                "evaluation has no mean return, and its checkpoint is never the best one.",
            )
        return seed_run.evaluated(now.step, episodes, time.monotonic() - began, is_last=now.update >= self.training.total)

    def _play(self, policy: ActorCritic, seed: int, count: int) -> tuple[list[dict[str, Any]], int]:
        episodes = self.training.call(self.backend.evaluate, policy, seed, SELECTION_STREAM, count)
        return episodes.rows(), episodes.unfinished

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            self.reporter.warned(message)


class UserCallbacks(Event):
    """Calls the callbacks of each seed, and ends seeds whose callbacks ask for it."""

    def next_after(self, update: int) -> float:
        intervals = [every for seed_run in self.training.active() for every in seed_run.callbacks.intervals]
        return min(((update // every + 1) * every for every in intervals), default=math.inf)

    def on_start(self, now: Snapshot) -> None:
        self._call_all("on_start", now)

    def on_end(self, now: Snapshot) -> None:
        self._call_all("on_end", now)

    def _call_all(self, hook: str, now: Snapshot) -> None:
        for seed_run in self.training.active():
            seed_run.callbacks.call(hook, self._info(now, seed_run))

    def on_update(self, now: Snapshot) -> None:
        self.training.saver.wait()  # callbacks may read the folder of checkpoints
        stopping = [seed_run.index for seed_run in self.training.active() if self._calls(now, seed_run)]
        stopping = self.training.peers.from_first(lambda: stopping, "a callback")
        if stopping and now.update < self.training.total:
            self.training.saver.save(now)
            self.training.saver.finish()
            for seed_run in (self.seed_runs[index] for index in stopping):
                seed_run.callbacks.call("on_end", self._info(now, seed_run))
                seed_run.stop(now.step)
                place = f" of {seed_run.run_dir}" if seed_run.run_dir is not None else ""
                self.reporter.stopped(f"A callback has stopped the training{place} at step {now.step:,}.")

    def _calls(self, now: Snapshot, seed_run: SeedRun) -> bool:
        """Call what is due for one seed, and return whether any callback asks to stop."""
        stops, summary = False, dict(seed_run.last_evaluation or {})
        if summary.pop("step", None) == now.step:
            fields = {"return_mean": summary["return_mean"], "summary": summary, "is_best": seed_run.is_best_at(now.step)}
            stops = seed_run.callbacks.call("on_evaluation", self._info(now, seed_run, Evaluation, **fields))
        for callback, metrics in seed_run.callbacks.updated(now.update):
            stops |= asks_to_stop(callback, "on_update", self._info(now, seed_run, metrics=metrics))
        return stops

    def _info(self, now: Snapshot, seed_run: SeedRun, kind: type[Info] = Info, **fields: Any) -> Any:
        config, total = seed_run.config, self.training.total * self.training.config.batch_size
        fields |= {"config": config, "_training": self.training, "_now": now, "_run": seed_run}
        return kind(config.run.seed, seed_run.run_dir, now.step, total, **fields)


def first_non_finite(metrics: Mapping[str, np.ndarray], index: int) -> tuple[int, str]:
    """The updates of one seed before its first NaN or infinity, and the source, one of ``BAD_SOURCES``; if
    every number is finite, all updates and an empty string. ``metrics`` have the shape (seeds, updates)."""
    bad = np.array([metrics[f"bad/{source}"][index] for source in BAD_SOURCES]) > 0
    if not bad.any():
        return bad.shape[1], ""
    update = int(bad.any(axis=0).argmax())
    return update, BAD_SOURCES[int(bad[:, update].argmax())]


def non_finite_message(seed_run: SeedRun, source: str, step: int, environment: str) -> str:
    """The message for NaN or infinity from ``source`` in the update after ``step``. ``environment`` names the
    environment that returned it, if it is known."""
    config, hint, custom = seed_run.config, _HINTS[source], custom_settings(seed_run.config)
    losses = [f"{name} = {custom[name]}" for name in ("objective", "extra_loss") if name in custom]
    if losses and source in ("loss", "gradient"):
        hint = f"check {' and '.join(losses)}, or {hint}"
        if config.run.devices != 1:
            hint = f"on several devices, a custom loss takes its means by minibatch.mean; {hint}"
    place = f" of {seed_run.run_dir}" if seed_run.run_dir is not None else ""
    return f"{NON_FINITE} in the {source} between steps {step} and {step + config.batch_size}{place} ({environment or hint})."
