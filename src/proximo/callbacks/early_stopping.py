"""A training that ends when it is good enough, or gets no better."""

from __future__ import annotations

import math
import numbers
from typing import Any

from proximo.errors import ConfigError
from proximo.run.callbacks import Evaluation


class EarlyStopping:
    """Stops at the first evaluation whose mean return is ``at`` or more, or behind ``patience`` evaluations in a row that were not better than the
    best before by more than ``min_delta``. A NaN or infinite mean return counts as the lowest. Raises ``ConfigError`` where neither is given."""

    def __init__(self, at: float | None = None, *, patience: int | None = None, min_delta: float = 0.0):
        if at is None and patience is None:
            raise ConfigError("EarlyStopping: give at, the return to stop at, or patience, evaluations without a better one.")
        if patience is not None and (isinstance(patience, bool) or not isinstance(patience, numbers.Integral) or patience < 1):
            raise ConfigError(f"EarlyStopping: patience = {patience!r}: expected a number of evaluations, 1 or more.")
        self.at = None if at is None else _number("at", at)
        self.patience, self.min_delta = patience, _number("min_delta", min_delta, low=0.0)
        self.best, self.waited = -math.inf, 0

    def on_evaluation(self, result: Evaluation) -> bool:
        """Whether it is over."""
        reached = result.mean_return if math.isfinite(result.mean_return) else -math.inf
        if reached > self.best + self.min_delta:
            self.best, self.waited = reached, 0
        else:
            self.waited += 1
        enough = self.at is not None and reached >= self.at
        return enough or (self.patience is not None and self.waited >= self.patience)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": self.best if math.isfinite(self.best) else None, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From one."""
        self.best = -math.inf if state["best"] is None else state["best"]
        self.waited = state["waited"]


def _number(name: str, value: Any, low: float = -math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) >= low:
        raise ConfigError(
            f"EarlyStopping: {name} = {value!r}: expected a number{'' if low == -math.inf else f', {low:g} or more'}."
        )
    return float(value)
