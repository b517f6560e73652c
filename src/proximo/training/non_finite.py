"""NaN or infinity in a training: where it came first; and the error message, with the likely cause and the fix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from proximo.collect.learning import BAD_SOURCES
from proximo.config import Config, custom_settings

NON_FINITE = "NaN or infinity"
"""How the message begins."""
_HINTS = {
    "observation": "the environment returned it: check its reset and step",
    "reward": "the environment returned it, or a reward too large for the statistics that scale it: check its step",
    "loss": "lower learning_rate, or set normalize_observation and normalize_reward",
    "gradient": "its norm overflows: lower vf_coef and the scale of rewards, or set normalize_reward",
    "parameters": "lower learning_rate or max_grad_norm, or scale observations that are too large for their statistics",
}


def first_non_finite(metrics: Mapping[str, np.ndarray], index: int) -> tuple[int, str]:
    """The updates of one seed before its first NaN or infinity, and the source, one of ``BAD_SOURCES``; if
    every number is finite, all updates and an empty string. ``metrics`` have the shape (seeds, updates)."""
    bad = np.array([metrics[f"bad/{source}"][index] for source in BAD_SOURCES]) > 0
    if not bad.any():
        return bad.shape[1], ""
    update = int(bad.any(axis=0).argmax())
    return update, BAD_SOURCES[int(bad[:, update].argmax())]


def non_finite_message(config: Config, source: str, step: int, run_dir: Path | None, environment: str) -> str:
    """The message for NaN or infinity from ``source`` in the update after ``step``. ``environment`` names the
    environment that returned it, if it is known."""
    hint, custom = _HINTS[source], custom_settings(config)
    losses = [f"{name} = {custom[name]}" for name in ("objective", "extra_loss") if name in custom]
    if losses and source in ("loss", "gradient"):
        hint = f"check {' and '.join(losses)}, or {hint}"
        if config.run.devices != 1:
            hint = f"on several devices, a custom loss takes its means by minibatch.mean; {hint}"
    place = f" of {run_dir}" if run_dir is not None else ""
    return f"{NON_FINITE} in the {source} between steps {step} and {step + config.batch_size}{place} ({environment or hint})."
