"""Which learning rate? One training in which it grows, and what PPO's clipping says of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from proximo.errors import ConfigError
from proximo.run.callbacks import Info

COLUMNS = {
    "clip_fraction": "train/clip_fraction",
    "approx_kl": "train/approx_kl",
    "return": "rollout/return_mean",
    "loss": "train/loss",
    "value_loss": "train/value_loss",
    "explained_variance": "train/explained_variance",
    "entropy": "train/entropy",
}
LEAST_UPDATES = 10
TOO_FAR = 0.5
"""A clip fraction beyond which most rows teach nothing."""
TIMES_TOO_FAR = 5
LEAST_KL = 1e-8
INK, ACCENT, FAINT = "#222222", "#1f6fb4", "#9db7cc"


class LearningRateFinder:
    """A range test (Smith 2017, arXiv:1506.01186) by what PPO watches itself: over the updates of one training the learning rate grows from
    ``low`` to ``high`` by equal factors, and ``suggestion`` is the rate at which the clip fraction passes ``clip_fraction`` or the approximate KL
    divergence ``kl``, whichever is first.

        finder = LearningRateFinder()
        proximo.train("gymnax:CartPole-v1", callbacks=[finder], **finder.settings)
        finder.suggestion, finder.plot("rates.png")

    ``settings`` is what the training must be given for it. The training ends early once the clip fraction was 0.5 or more for five updates in a
    row. Of several seeds each has a copy (``result.callbacks``). Raises ``ConfigError`` for a range that is none, and while training where the
    learning rate is not the finder's, or the updates are fewer than ten.
    """

    def __init__(self, low: float = 1e-5, high: float = 1e-1, *, clip_fraction: float = 0.05, kl: float = 0.01):
        if not (0 < low < high < math.inf):
            raise ConfigError(f"LearningRateFinder: low = {low!r}, high = {high!r}: expected two rates, 0 < low < high.")
        if not 0 < clip_fraction < TOO_FAR:
            raise ConfigError(
                f"LearningRateFinder: clip_fraction = {clip_fraction!r}: expected more than 0 and less than {TOO_FAR}."
            )
        if not 0 < kl < math.inf:
            raise ConfigError(f"LearningRateFinder: kl = {kl!r}: expected more than 0.")
        self.low, self.high = float(low), float(high)
        self.limits = {"clip_fraction": float(clip_fraction), "approx_kl": float(kl)}
        self.rows: list[dict[str, Any]] = []
        """Of each update: ``step``, ``learning_rate``, ``clip_fraction``, ``approx_kl``, ``return`` (None where no episode ended), ``loss``,
        ``value_loss``, ``explained_variance``, ``entropy``."""

    @property
    def settings(self) -> dict[str, str]:
        """The setting of the training that it watches."""
        return {"learning_rate": f"exponential({self.low!r}, {self.high!r})"}

    def on_update(self, info: Info) -> bool:
        """Note what the update has come to; whether it has gone far enough."""
        rate = info.metrics["train/learning_rate"]
        self._hold(info, rate)
        noted = {name: _number(info.metrics.get(metric)) for name, metric in COLUMNS.items()}
        self.rows.append({"step": info.step, "learning_rate": rate, **noted})
        last = self.rows[-TIMES_TOO_FAR:]
        return len(last) == TIMES_TOO_FAR and all((row["clip_fraction"] or 0.0) >= TOO_FAR for row in last)

    def _hold(self, info: Info, rate: float) -> None:
        """Raise unless ``rate`` follows upon those before, from ``low`` on."""
        if self.rows and not self.rows[-1]["learning_rate"] <= rate <= self.high * 1.001:
            raise ConfigError(
                f"LearningRateFinder: the learning rate is {rate:.3g} at step {info.step:,}, behind {self.rows[-1]['learning_rate']:.3g}: expected "
                f"it to grow to {self.high:g}. One finder watches one training, whose total_steps stay what they are."
            )
        if not self.rows and not math.isclose(rate, self.low, rel_tol=1e-3):
            raise ConfigError(
                f"LearningRateFinder: the learning rate is {rate:.3g} at step {info.step:,}: expected {self.low:g}, where the range begins. Give the "
                f"training the finder's settings, as proximo.train(env, callbacks=[finder], **finder.settings), and let it begin anew."
            )
        updates = info.total_steps // info.step
        if not self.rows and updates < LEAST_UPDATES:
            raise ConfigError(
                f"LearningRateFinder: total_steps = {info.total_steps:,} are {updates} updates of {info.step:,} steps: expected "
                f"{LEAST_UPDATES} or more."
            )

    @property
    def suggestion(self) -> float:
        """The learning rate, with two digits. Raises ``ConfigError`` where too little was seen yet, or the range holds none."""
        found = [self._passing(name) for name in self.limits]
        if not any(found):
            reached = " and ".join(f"the {name.replace('_', ' ')} {self._fit(name)[1][-1]:.2g}" for name in self.limits)
            raise ConfigError(
                f"LearningRateFinder: up to a learning rate of {self.rows[-1]['learning_rate']:.2g} {reached} was all there was, and "
                f"{self._limits()} was not passed: raise high."
            )
        rate = min(rate for rate in found if rate)
        if rate <= self.rows[0]["learning_rate"]:
            raise ConfigError(
                f"LearningRateFinder: {self._limits()} was passed at the first learning rate already, {rate:.2g}: lower low."
            )
        return float(f"{rate:.1e}")

    def _limits(self) -> str:
        return " or ".join(f"{limit:g}" for limit in self.limits.values())

    def _fit(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Rates, and the clip fraction, or on a logarithmic scale the divergence, as a function of them that never falls."""
        if len(self.rows) < LEAST_UPDATES:
            raise ConfigError(
                f"LearningRateFinder has seen {len(self.rows)} updates: expected {LEAST_UPDATES} or more. Train with callbacks=[finder]; of several "
                "seeds each has a finder of its own, in result.callbacks."
            )
        rows = [row for row in self.rows if row[name] is not None]
        rates, values = (np.array([row[column] for row in rows]) for column in ("learning_rate", name))
        return rates, growing(values) if name == "clip_fraction" else np.exp(growing(np.log(np.maximum(values, LEAST_KL))))

    def _passing(self, name: str) -> float | None:
        """Where the fit passes its limit: between two updates on a logarithmic scale. None where it does not."""
        (rates, fitted), limit = self._fit(name), self.limits[name]
        if fitted[-1] < limit:
            return None
        behind = int(np.argmax(fitted >= limit))
        before = max(behind - 1, 0)
        share = (limit - fitted[before]) / (fitted[behind] - fitted[before]) if behind else 0.0
        return float(rates[before] * (rates[behind] / rates[before]) ** share)

    def plot(self, path: str | Path) -> Path:
        """Draw clip fraction, approximate KL divergence and return against the rate, with the suggestion where there is one, as a PNG.
        Raises ``ConfigError`` where too little was seen yet."""
        fits = {name: self._fit(name) for name in self.limits}
        # Without pyplot: it would look for a display, and keep the figure.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 7.0), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(3, 1, sharex=True)
        for axes, name in zip(panels, (*fits, "return"), strict=True):
            self._draw(axes, name)
        for axes, (name, fit) in zip(panels, fits.items(), strict=False):
            axes.plot(*fit, color=INK, linewidth=1.4)
            axes.axhline(self.limits[name], color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
        panels[0].set_title(self._title(), fontsize="medium", loc="left")
        panels[-1].set_xlabel("learning rate")
        figure.savefig(path, metadata={"Software": None})
        return Path(path)

    def _title(self) -> str:
        try:
            return f"suggestion: {self.suggestion:.1e}"
        except ConfigError as error:
            return str(error).removeprefix("LearningRateFinder: ")

    def _draw(self, axes: Any, name: str) -> None:
        """One column against the rate."""
        rows = [row for row in self.rows if row[name] is not None]
        rates, values = [row["learning_rate"] for row in rows], [row[name] for row in rows]
        axes.plot(rates, values, ".-", color=ACCENT, linewidth=0.8, markersize=5)
        axes.set_xscale("log")
        if name == "approx_kl" and any(x > 0 for x in values):
            axes.set_yscale("log")
        axes.set_ylabel(name.replace("_", " "))
        axes.grid(color=FAINT, linewidth=0.4, alpha=0.6)
        axes.spines[["top", "right"]].set_visible(False)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"low": self.low, "high": self.high, "rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From one. Raises ``ConfigError`` where that was of another range."""
        if (state["low"], state["high"]) != (self.low, self.high):
            raise ConfigError(
                f"LearningRateFinder: the run goes from {state['low']:g} to {state['high']:g}, this finder from {self.low:g} to {self.high:g}: "
                "resume with the same range."
            )
        self.rows = list(state["rows"])


def growing(values: np.ndarray) -> np.ndarray:
    """The nearest values (least squares) that never fall: pools of neighbours that violate it have their mean (isotonic regression)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((float(value), 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return np.concatenate([np.full(count, mean) for mean, count in pools])


def _number(value: float | None) -> float | None:
    """As JSON can hold it."""
    return value if value is not None and math.isfinite(value) else None
