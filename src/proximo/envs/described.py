"""``Described``: the base class of proximo's environments and adapters, for their ``repr``."""

from __future__ import annotations

from typing import Any


class Described:
    """An environment whose ``repr`` is one line with its spaces."""

    observation_space: Any
    action_space: Any

    def __repr__(self) -> str:
        env_id = getattr(self, "id", None)
        name = "" if env_id is None else f"{env_id!r}: "
        return f"{type(self).__name__}({name}{self.observation_space} → {self.action_space})"
