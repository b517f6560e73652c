"""A callback that stops a training when it is good enough, or no longer improves."""

from __future__ import annotations

import math
from typing import Any

from proximo.errors import ConfigError
from proximo.signatures import is_integer, is_number
from proximo.training.callbacks import Evaluation, Info


class EarlyStopping:
    """Stops at a mean return, or after evaluations without improvement. A NaN or infinite mean return counts as the lowest.

        proximo.train("CartPole-v1", callbacks=[EarlyStopping(at=475, patience=20)])

    Args:
        at: stop at the first evaluation with this mean return or more.
        patience: stop after this many evaluations in a row without improvement, 1 or more.
        min_delta: an evaluation improves if its mean return exceeds the best one by more than this, 0 or more.

    Raises:
        ConfigError: neither ``at`` nor ``patience`` is given, or an argument is out of range.
    """

    def __init__(self, at: float | None = None, *, patience: int | None = None, min_delta: float = 0.0):
        if at is None and patience is None:
            raise ConfigError(
                "EarlyStopping: expected at (the mean return to stop at) or patience (evaluations without improvement)."
            )
        if patience is not None and (not is_integer(patience) or patience < 1):
            raise ConfigError(f"EarlyStopping: patience = {patience!r}: expected a number of evaluations, 1 or more.")
        self.at = None if at is None else _number("at", at)
        self.patience, self.min_delta = patience, _number("min_delta", min_delta, low=0.0)
        self.best, self.waited = -math.inf, 0

    def on_start(self, info: Info) -> None:
        """Forget an earlier training if a new one begins."""
        if info.step == 0:
            self.best, self.waited = -math.inf, 0

    def on_evaluation(self, result: Evaluation) -> bool:
        """Whether to stop."""
        reached = result.return_mean if math.isfinite(result.return_mean) else -math.inf
        if reached > self.best + self.min_delta:
            self.best, self.waited = reached, 0
        else:
            self.waited += 1
        is_reached = self.at is not None and reached >= self.at
        return is_reached or (self.patience is not None and self.waited >= self.patience)

    def state_dict(self) -> dict[str, Any]:
        """The best mean return, and the evaluations since, for a checkpoint."""
        return {"best": self.best if math.isfinite(self.best) else None, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self.best = -math.inf if state["best"] is None else state["best"]
        self.waited = state["waited"]


def _number(name: str, value: Any, low: float = -math.inf) -> float:
    if not is_number(value) or not float(value) >= low:
        raise ConfigError(
            f"EarlyStopping: {name} = {value!r}: expected a number{'' if low == -math.inf else f', {low:g} or more'}."
        )
    return float(value)
