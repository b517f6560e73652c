"""Checks whether an environment without an action mask has something that looks like one."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from proximo.checks.hints import Finding
from proximo.envs.protocol import Environment
from proximo.spaces import ACTION_MASK, leaves, mask_sizes

KINDS = "(legal|valid|invalid|avail|available|allowed)"
NAMES = re.compile(rf"actions?_?mask|mask(ed)?_?actions?|^(get_)?{KINDS}_?(actions?|moves?)(_?masks?)?$")


def check_unused_mask(layers: Iterable[Any], info: Mapping[Any, Any], env: Environment, fix: str) -> list[Finding]:
    """Warn of a method or an entry that looks like an action mask and is not used.

    ``layers`` are the environment ``env`` and what it wraps, ``info`` is from a reset, or for JAX environments
    from a step. ``fix`` is where a mask is expected.
    """
    expected, size = leaves(env.observation_space), sum(mask_sizes(env.action_space))
    if not size or any(leaf.path == (ACTION_MASK,) for leaf in expected):
        return []
    candidates = [(f"info[{key!r}]", key, value) for key, value in info.items()]
    candidates += [(f"observation{leaf.name}", leaf.path[-1], np.empty(leaf.shape)) for leaf in expected if leaf.path]
    candidates += [(name, name, None) for layer in layers for name in dir(layer)]
    for what, name, value in candidates:
        if isinstance(name, str) and not name.startswith("_") and (NAMES.search(name.lower()) or _is_mask(name, value, size)):
            message = f"The environment has {what}, which looks like an action mask and is not used: {fix}"
            return [Finding("action mask", "warning", message)]
    return []


def _is_mask(name: str, value: Any, size: int) -> bool:
    """Whether the value of a vague name, such as a mask of pixels, has the size of an action mask."""
    with contextlib.suppress(ValueError):  # rows of different lengths
        return value is not None and "mask" in name.lower() and np.size(value) == size
    return False
