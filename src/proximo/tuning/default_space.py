"""The default search space: the hyperparameters of PPO with the largest effect, around those of the base."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from proximo.config import LEAVES, Config
from proximo.networks.normalizer import make_statistics
from proximo.spaces import from_any
from proximo.tuning.dimension import Choices
from proximo.tuning.space import Space, fit_together, read_space

DEFAULT: dict[str, Any] = {
    "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True, "schedule": ["constant", "linear"]},
    "gamma": {"low": 0.9, "high": 0.9999, "one_minus": True},
    "gae_lambda": {"low": 0.8, "high": 0.995, "one_minus": True},
    "clip_eps": {"low": 0.1, "high": 0.4},
    "ent_coef": {"low": 1e-4, "high": 0.1, "log": True, "zero": True},
    "vf_coef": {"low": 0.25, "high": 1.0},
    "max_grad_norm": {"low": 0.3, "high": 5.0, "log": True},
    "num_steps": [32, 64, 128, 256, 512],
    "num_epochs": [2, 4, 10, 20],
    "num_minibatches": [1, 2, 4, 8, 16],
    "normalize_advantage": ["none", "batch", "minibatch"],
    "normalize_observation": [False, "auto"],
    "normalize_reward": [False, "auto"],
}
"""The first seven are traced: one compiled program serves all their values. Each value of the others needs its own program."""


def default_space(base: Config, env: Any, fixed: Collection[str] = ()) -> Space:
    """The space for ``base`` on ``env``, without ``fixed`` settings. It contains the base, and omits values that do not fit the other
    settings of the base.

    It omits ``normalize_observation`` and ``normalize_reward`` where they would normalize nothing.
    """
    on: dict[str, Any] = {name: LEAVES[name].value_in(base) or "auto" for name in ("normalize_observation", "normalize_reward")}
    declared = DEFAULT | {name: [False, value] for name, value in on.items()}
    space = read_space(declared, base, "the default search space", in_jax=True, fixed=fixed)
    if make_statistics(from_any(env.observation_space, "observation"), on["normalize_observation"]) is None:
        space = space.without(["normalize_observation"])
    if not replace(base.ppo, normalize_reward=on["normalize_reward"]).normalizes_reward:
        space = space.without(["normalize_reward"])
    fitting = (_fitting(d, base, env, space.constant) if isinstance(d, Choices) else d for d in space.dimensions)
    return replace(space, dimensions=tuple(fitting)).widened(base)


def _fitting(choices: Choices, base: Config, env: Any, constant: dict[str, Any]) -> Choices:
    values = tuple(value for value in choices.values if fit_together(base, env, {choices.name: value, **constant}))
    return Choices(choices.name, values or (LEAVES[choices.name].value_in(base),))
