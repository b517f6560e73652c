"""Collects rollouts of Gymnasium environments in Ray actors, and joins them along the axis of environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.devices import on_one_device
from proximo.collect.gymnasium_collector import GymnasiumCollector, Timing
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.ray_actors import RolloutActors, RolloutPart
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.networks import ActorCritic
from proximo.types import BurnIn, GymnasiumCollectorState, Rollout


class RayCollector(GymnasiumCollector):
    """A ``GymnasiumCollector`` whose environments are divided equally among ``actors`` Ray actors.

    If an actor dies, its part of the rollout has no valid step. The actor that replaces it begins new episodes in the next rollout.
    """

    def __init__(self, config: Config, env: GymnasiumEnvironment, programs: GymnasiumPrograms | None = None):
        super().__init__(config, env, programs)
        self.environments: Any = RolloutActors(config, env)
        self._begins = True
        """Whether the next rollout begins with new episodes in all environments."""

    def begin(self) -> None:
        self._begins = True

    def example(self, policy: ActorCritic, state: GymnasiumCollectorState) -> tuple[Rollout, Callable[[], None]]:
        return self._run(policy, state.key, None)[0], lambda: None  # the actors have compiled

    def collect(
        self, policy: ActorCritic, state: GymnasiumCollectorState, timing: Timing | None = None
    ) -> tuple[GymnasiumCollectorState, Rollout, dict[str, float]]:
        """As ``GymnasiumCollector.collect``. The mean seconds of environments and policy in an actor are added to ``timing``."""
        rollout, key, parts = self._run(on_one_device(policy), state.key, self._begins)
        self._begins = False
        self.episodes.finished = [episode for part in parts for episode in part.finished]
        if timing is not None:
            timing.environment += float(np.mean([part.timing.environment for part in parts]))
            timing.policy += float(np.mean([part.timing.policy for part in parts]))
        return GymnasiumCollectorState(key), rollout, self.episodes.metrics(self.episodes.finished)

    def _run(
        self, policy: ActorCritic, key: Key[Array, ""], begins: bool | None
    ) -> tuple[Rollout, Key[Array, ""], list[RolloutPart]]:
        """The rollout of all actors, the next key, and the parts that are not lost. In the place of a lost part is a copy of another one
        without a valid step."""
        arrays = jax.device_get(jax.tree.leaves(policy))
        while not any(parts := self.environments.call(arrays, np.asarray(jax.random.key_data(key)), begins)):
            key = jax.random.fold_in(key, 0)  # all actors were lost: the new ones have other seeds
        found = [part for part in parts if part]
        lost = _invalid(found[0].fields)

        def joined(path: tuple[Any, ...], *arrays: np.ndarray) -> Array:
            return jnp.asarray(np.concatenate(arrays, 0 if path[0].key.startswith("last_") else 1))

        fields = jax.tree.map_with_path(joined, *(part.fields if part else lost for part in parts))
        burn_in = fields.pop("burn_in_steps")
        rollout = Rollout(**fields, burn_in_steps=burn_in and BurnIn(**burn_in))
        return rollout, self.programs.begin(0, policy, key)[2], found


def _invalid(fields: dict[str, Any]) -> dict[str, Any]:
    """A rollout of the same shapes without a valid step. Its arrays have numbers that the policy accepts, which nothing learns from."""
    never, burn_in = np.zeros_like(fields["valid"]), fields["burn_in_steps"]
    return fields | {
        "valid": never,
        "terminated": never,
        "truncated": ~never,  # restarts the running return that scales rewards
        "bootstrap_value": np.zeros_like(fields["bootstrap_value"]),
        "burn_in_steps": burn_in and burn_in | {"valid": np.zeros_like(burn_in["valid"])},
    }
