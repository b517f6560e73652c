"""The calls of callbacks by a training, with the state that they may read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proximo.backends import Backend
from proximo.errors import ConfigError
from proximo.networks import ActorCritic
from proximo.training.callbacks import Evaluation, Info
from proximo.training.seed_run import SeedRun, active
from proximo.training.timed_calls import Snapshot
from proximo.types import TrainState


class CallbackCalls:
    """Calls the callbacks of each active seed."""

    def __init__(self, backend: Backend, seed_runs: Sequence[SeedRun]):
        self.backend, self.seed_runs = backend, seed_runs
        self._readable: Snapshot | None = None

    def state_is_gone(self) -> None:
        """From now on, callbacks can no longer read the state of the last call: the next update uses it up."""
        self._readable = None

    def call(self, hook: str, now: Snapshot, indices: Iterable[int]) -> None:
        """Call ``on_start`` or ``on_end`` of the seeds at ``indices``."""
        for index in indices:
            self.seed_runs[index].callbacks.call(hook, self._info(now, index))

    def boundary(self, now: Snapshot, evaluated: bool, improved: set[int]) -> list[int]:
        """Call ``on_evaluation`` if the state was just ``evaluated``, then ``on_update`` where it is due.

        ``improved`` has the indices of the seeds whose evaluation is the best so far. Returns the indices of the seeds whose callbacks
        ask to stop.
        """
        stopped = []
        for index, seed_run in active(self.seed_runs):
            stops = False
            if evaluated and seed_run.last_evaluation is not None:
                summary = {name: x for name, x in seed_run.last_evaluation.items() if name != "step"}
                fields = {"return_mean": summary["return_mean"], "summary": summary, "is_best": index in improved}
                stops = seed_run.callbacks.call("on_evaluation", self._info(now, index, Evaluation, **fields))
            stops |= seed_run.callbacks.update(now.update, lambda metrics, index=index: self._info(now, index, metrics=metrics))
            if stops:
                stopped.append(index)
        return stopped

    def _info(self, now: Snapshot, index: int, kind: type[Info] = Info, **fields: Any) -> Any:
        """The argument of a callback."""
        self._readable, seed_run = now, self.seed_runs[index]

        def check() -> None:
            if self._readable is not now:
                raise ConfigError(
                    f"The state of step {now.step} was read after training had continued: use policy and save within the callback."
                )

        def state() -> TrainState:
            check()
            return self.backend.seed_state(now.state, index)

        def policy() -> ActorCritic:
            check()
            return self.backend.policy(now.state, index)

        config = seed_run.config
        fields |= {
            "config": config,
            "_env": self.backend.env,
            "_evaluation": seed_run.last_evaluation,
            "_state": state,
            "_policy": policy,
            "_writes": self.backend.peers.is_first,
        }
        return kind(config.run.seed, seed_run.run_dir, now.step, config.total_updates * config.batch_size, **fields)
