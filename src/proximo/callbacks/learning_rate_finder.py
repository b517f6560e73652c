"""A callback that suggests a learning rate, from one training in which the rate grows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from proximo.errors import ConfigError
from proximo.signatures import is_number
from proximo.training.callbacks import Info

TRAIN_COLUMNS = ("clip_fraction", "approx_kl", "loss", "value_loss", "explained_variance", "entropy")
COLUMNS = {"return": "rollout/return_mean", **{name: f"train/{name}" for name in TRAIN_COLUMNS}}
"""The metric of each column."""
MIN_UPDATES = 10
MAX_CLIP_FRACTION = 0.5
"""From this clip fraction on, most transitions have no gradient."""
MAX_CLIPPED_UPDATES = 5
"""The training stops after this many updates in a row with ``MAX_CLIP_FRACTION`` or more."""
MIN_KL = 1e-8
INK, ACCENT, FAINT = "#222222", "#1f6fb4", "#9db7cc"


class LearningRateFinder:
    """Suggests a learning rate by a range test (Smith 2017, arXiv:1506.01186), with two measures of how far a PPO update moves the policy.

        finder = LearningRateFinder()
        proximo.train("gymnax:CartPole-v1", callbacks=[finder], **finder.settings)
        print(finder.suggestion)
        finder.plot("rates.png")

    Over the updates of one training, the learning rate grows from ``low`` to ``high`` by equal factors. The suggestion is the rate at which the
    clip fraction exceeds ``clip_fraction``, or the approximate KL divergence exceeds ``kl``, whichever comes first. The training stops early when
    the clip fraction was 0.5 or more for five updates in a row. With several seeds, each seed has a copy of the finder in ``result.callbacks``.

    Args:
        low: first learning rate, more than 0.
        high: last learning rate, more than ``low``.
        clip_fraction: limit of the clip fraction, more than 0 and less than 0.5.
        kl: limit of the approximate KL divergence, more than 0.

    Raises:
        ConfigError: an argument is out of range. During the training: its learning rate is not the finder's, or it has fewer than ten updates.
    """

    def __init__(self, low: float = 1e-5, high: float = 1e-1, *, clip_fraction: float = 0.05, kl: float = 0.01):
        for name, value in (("low", low), ("high", high), ("clip_fraction", clip_fraction), ("kl", kl)):
            if not is_number(value):
                raise ConfigError(f"LearningRateFinder: {name} = {value!r}: expected a number.")
        if not (0 < low < high < math.inf):
            raise ConfigError(f"LearningRateFinder: low = {low!r}, high = {high!r}: expected 0 < low < high.")
        if not 0 < clip_fraction < MAX_CLIP_FRACTION:
            raise ConfigError(
                f"LearningRateFinder: clip_fraction = {clip_fraction!r}: expected more than 0 and less than {MAX_CLIP_FRACTION}."
            )
        if not 0 < kl < math.inf:
            raise ConfigError(f"LearningRateFinder: kl = {kl!r}: expected more than 0.")
        self.low, self.high = float(low), float(high)
        self.limits = {"clip_fraction": float(clip_fraction), "approx_kl": float(kl)}
        self.rows: list[dict[str, Any]] = []
        """One row for each update: ``step``, ``learning_rate``, ``clip_fraction``, ``approx_kl``, ``return`` (None if no episode ended), ``loss``,
        ``value_loss``, ``explained_variance``, ``entropy``."""

    @property
    def settings(self) -> dict[str, str]:
        """The settings that the training needs."""
        return {"learning_rate": f"exponential({self.low!r}, {self.high!r})"}

    def on_update(self, info: Info) -> bool:
        """Record the update. Returns whether the rate is so high that the training can stop."""
        rate = info.metrics.get("train/learning_rate")
        if rate is None:
            raise ConfigError("LearningRateFinder: the optimizer has its own learning rate. Train with finder.settings.")
        self._check(info, rate)
        recorded = {name: _number(info.metrics.get(metric)) for name, metric in COLUMNS.items()}
        self.rows.append({"step": info.step, "learning_rate": rate, **recorded})
        last = self.rows[-MAX_CLIPPED_UPDATES:]
        return len(last) == MAX_CLIPPED_UPDATES and all((row["clip_fraction"] or 0.0) >= MAX_CLIP_FRACTION for row in last)

    def _check(self, info: Info, rate: float) -> None:
        """Raise a ``ConfigError`` unless ``rate`` continues the growth that starts at ``low``."""
        if self.rows and not self.rows[-1]["learning_rate"] <= rate <= self.high * 1.001:
            raise ConfigError(
                f"LearningRateFinder: the learning rate is {rate:.3g} at step {info.step:,}, after {self.rows[-1]['learning_rate']:.3g}: expected "
                f"it to grow to {self.high:g}. Use one finder for one training, and do not change its total_steps."
            )
        if not self.rows and not math.isclose(rate, self.low, rel_tol=1e-3):
            raise ConfigError(
                f"LearningRateFinder: the learning rate is {rate:.3g} at step {info.step:,}: expected {self.low:g}, the start of the range. Start a new "
                f"training with the finder's settings: proximo.train(env, callbacks=[finder], **finder.settings)."
            )
        updates = info.total_steps // info.step
        if not self.rows and updates < MIN_UPDATES:
            raise ConfigError(
                f"LearningRateFinder: total_steps = {info.total_steps:,} are {updates} updates of {info.step:,} steps: expected "
                f"{MIN_UPDATES} or more."
            )

    @property
    def suggestion(self) -> float:
        """The suggested learning rate, rounded to two digits.

        Raises:
            ConfigError: fewer than ten updates were recorded, no rate of the range reaches a limit, or the first rate already exceeds one.
        """
        found = [self._rate_at_limit(name) for name in self.limits]
        limits = " or ".join(f"{limit:g}" for limit in self.limits.values())
        if not any(found):
            reached = " and ".join(f"the {name.replace('_', ' ')} {self._fit(name)[1][-1]:.2g}" for name in self.limits)
            raise ConfigError(
                f"LearningRateFinder: at the last learning rate, {self.rows[-1]['learning_rate']:.2g}, {reached} did not exceed {limits}: choose a larger high."
            )
        rate = min(rate for rate in found if rate)
        if rate <= self.rows[0]["learning_rate"]:
            raise ConfigError(
                f"LearningRateFinder: the first learning rate, {rate:.2g}, already exceeds {limits}: choose a smaller low."
            )
        return float(f"{rate:.1e}")

    def _column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The learning rates at which a column has a value, and these values."""
        rows = [row for row in self.rows if row[name] is not None]
        return np.array([row["learning_rate"] for row in rows]), np.array([row[name] for row in rows])

    def _fit(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Rates, and the best non-decreasing fit of a column to them; the fit of the KL divergence is on a logarithmic scale."""
        if len(self.rows) < MIN_UPDATES:
            raise ConfigError(
                f"LearningRateFinder has recorded {len(self.rows)} updates: expected {MIN_UPDATES} or more. Train with callbacks=[finder]; with several "
                "seeds, use the finders in result.callbacks."
            )
        rates, values = self._column(name)
        if name == "clip_fraction":
            return rates, non_decreasing(values)
        return rates, np.exp(non_decreasing(np.log(np.maximum(values, MIN_KL))))

    def _rate_at_limit(self, name: str) -> float | None:
        """The rate at which the fit reaches its limit, interpolated on a logarithmic scale. None if it does not."""
        (rates, fitted), limit = self._fit(name), self.limits[name]
        if fitted[-1] < limit:
            return None
        after = int(np.argmax(fitted >= limit))
        before = max(after - 1, 0)
        share = (limit - fitted[before]) / (fitted[after] - fitted[before]) if after else 0.0
        return float(rates[before] * (rates[after] / rates[before]) ** share)

    def plot(self, path: str | Path) -> Path:
        """Plot clip fraction, approximate KL divergence and return against the learning rate.

        Args:
            path: file to write; its ending chooses the format, for example ``rates.png`` or ``rates.pdf``.

        Returns:
            The path.

        Raises:
            ConfigError: fewer than ten updates were recorded, or the file cannot be written.
        """
        # Without pyplot, which needs a display and keeps the figure.
        from matplotlib.figure import Figure

        from proximo.rendering.figures import save_figure

        figure = Figure(figsize=(7.0, 7.0), dpi=110, layout="constrained")
        panels = figure.subplots(3, 1, sharex=True)
        for axes, name in zip(panels, (*self.limits, "return"), strict=True):
            self._draw(axes, name)
        panels[0].set_title(self._title(), fontsize="medium", loc="left")
        panels[-1].set_xlabel("learning rate")
        return save_figure(figure, path)

    def _title(self) -> str:
        try:
            return f"suggestion: {self.suggestion:.1e}"
        except ConfigError as error:
            return str(error).removeprefix("LearningRateFinder: ")

    def _draw(self, axes: Any, name: str) -> None:
        """Plot one column against the rate, and its fit and limit if it has a limit."""
        rates, values = self._column(name)
        axes.plot(rates, values, ".-", color=ACCENT, linewidth=0.8, markersize=5)
        if name in self.limits:
            axes.plot(*self._fit(name), color=INK, linewidth=1.4)
            axes.axhline(self.limits[name], color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_xscale("log")
        if name == "approx_kl" and (values > 0).any():
            axes.set_yscale("log")
        axes.set_ylabel(name.replace("_", " "))
        axes.grid(color=FAINT, linewidth=0.4, alpha=0.6)
        axes.spines[["top", "right"]].set_visible(False)

    def state_dict(self) -> dict[str, Any]:
        """The range and the rows, for a checkpoint."""
        return {"low": self.low, "high": self.high, "rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``. Raises a ``ConfigError`` if it has another range."""
        if (state["low"], state["high"]) != (self.low, self.high):
            raise ConfigError(
                f"LearningRateFinder: the range of the run is {state['low']:g} to {state['high']:g}, of this finder {self.low:g} to {self.high:g}: "
                "resume with the same range."
            )
        self.rows = list(state["rows"])


def non_decreasing(values: np.ndarray) -> np.ndarray:
    """Isotonic regression: the non-decreasing values nearest to ``values`` (least squares). Neighbors that decrease are pooled to their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((float(value), 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return np.concatenate([np.full(count, mean) for mean, count in pools])


def _number(value: float | None) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
