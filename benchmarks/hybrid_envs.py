"""Tasks whose actions are a choice and the amounts that some choices use. ``bins`` above 0 replaces each amount by that many values.

python benchmarks/suite.py hybrid
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from proximo.spaces import Box, Discrete, MultiDiscrete, Tuple

Step = tuple[Any, Array, Array, Array, Array, dict[str, Any]]


class ParametrizedTask:
    """A task with actions ``(choice, amounts)``; the amounts lie in -1 … 1."""

    choices: int
    amounts: int
    default_params = ()

    def __init__(self, bins: int = 0) -> None:
        self.bins = bins
        continuous = Tuple((Discrete(self.choices), Box((self.amounts,), -1.0, 1.0)))
        self.action_space = MultiDiscrete((self.choices, *(bins,) * self.amounts)) if bins else continuous

    def decode(self, action: Any) -> tuple[Array, Array]:
        """The choice, and the amounts as numbers."""
        if self.bins:
            return action[0], jnp.linspace(-1.0, 1.0, self.bins)[action[1:]]
        return action


class SteerState(NamedTuple):
    """What is asked for, and the steps so far."""

    kind: Array
    amount: Array
    time: Array


class Steer(ParametrizedTask):
    """Move by an amount (0), turn by another (1), or wait (2), as the observation asks for. A step with the right choice gives 1 minus
    the error of the amount, and an episode has 20 steps: the optimum is 20. With five values for each amount it is 18.33: the error
    is 1/8 on average, in two of three steps."""

    observation_space = Box((4,), -1.0, 1.0)
    choices, amounts = 3, 2

    def reset(self, key: Key[Array, ""], params: Any) -> tuple[SteerState, Array]:
        return self._asked(key, jnp.int32(0))

    def _asked(self, key: Key[Array, ""], time: Array) -> tuple[SteerState, Array]:
        of_kind, of_amount = jax.random.split(key)
        kind, amount = jax.random.randint(of_kind, (), 0, 3), jax.random.uniform(of_amount, minval=-1.0)
        return SteerState(kind, amount, time), jnp.append(jax.nn.one_hot(kind, 3), amount)

    def step(self, key: Key[Array, ""], state: SteerState, action: Any, params: Any) -> Step:
        choice, amounts = self.decode(action)
        error = jnp.where(choice == 2, 0.0, jnp.abs(amounts[jnp.minimum(choice, 1)] - state.amount))
        reward = jnp.where(choice == state.kind, 1.0 - error, 0.0)
        new, observation = self._asked(key, state.time + 1)
        return new, observation, reward, jnp.array(False), new.time == 20, {}


class MovingState(NamedTuple):
    """The agent, its target, and the steps so far."""

    place: Array
    speed: Array
    angle: Array
    target: Array
    time: Array


class Moving(ParametrizedTask):
    """Stop on a target in a field: accelerate (0), turn (1) or brake (2).

    The rules of Moving-v0 (github.com/thomashirtz/gym-hybrid): a field of side 2, a target of radius 0.1, 200 steps; accelerations of
    up to 0.5, turns of up to 90 degrees, brakes of 0.1; a step takes 0.005. The reward is the approach minus 0.001, with 1 for a stop
    on the target; leaving the field or running out of time ends the episode with -1. The return of a success is about
    1 + the initial distance.
    """

    observation_space = Box((10,))
    choices, amounts = 3, 2

    def reset(self, key: Key[Array, ""], params: Any) -> tuple[MovingState, Array]:
        of_place, of_angle, of_target = jax.random.split(key, 3)
        state = MovingState(
            jax.random.uniform(of_place, (2,), minval=-1.0),
            jnp.float32(0.0),
            jax.random.uniform(of_angle, maxval=2 * jnp.pi),
            jax.random.uniform(of_target, (2,), minval=-0.9, maxval=0.9),
            jnp.int32(0),
        )
        return state, self._seen(state)

    def _seen(self, state: MovingState) -> Array:
        direction, distance = jnp.array([jnp.cos(state.angle), jnp.sin(state.angle)]), self._distance(state)
        numbers = jnp.array([state.speed, distance, distance < 0.1, state.time / 200])
        return jnp.concatenate([state.place, direction, state.target, numbers])

    def _distance(self, state: MovingState) -> Array:
        return jnp.linalg.norm(state.place - state.target)

    def step(self, key: Key[Array, ""], state: MovingState, action: Any, params: Any) -> Step:
        choice, amounts = self.decode(action)
        # An acceleration is never negative: -1 … 1 stands for 0 … 0.5.
        accelerated = state.speed + 0.25 * (amounts[0] + 1.0)
        braked = jnp.where(state.speed < 0.1, 0.0, state.speed - 0.1)
        speed = jnp.where(choice == 0, accelerated, jnp.where(choice == 2, braked, state.speed))
        angle = state.angle + jnp.where(choice == 1, jnp.pi / 2 * amounts[1], 0.0)
        place = state.place + 0.005 * speed * jnp.array([jnp.cos(angle), jnp.sin(angle)])
        new = MovingState(place, speed, angle, state.target, state.time + 1)
        stopped = (self._distance(new) < 0.1) & (speed == 0)
        failed = ~stopped & ((jnp.abs(place) > 1).any() | (new.time > 200))
        reward = jnp.where(failed, -1.0, self._distance(state) - self._distance(new) - 0.001 + stopped)
        return new, self._seen(new), reward, stopped | failed, jnp.array(False), {"success": stopped}


class PlatformState(NamedTuple):
    """Where the agent is, the edges of all platforms, and the enemies that wait on them."""

    place: Array
    starts: Array
    ends: Array
    enemies: Array
    time: Array


class Platform(ParametrizedTask):
    """Cross three platforms. Each has an enemy, and a gap follows it. The agent runs (0), hops over the enemy (1) or leaps over the gap (2),
    each by an amount.

    After Masson, Ranchod and Konidaris (2016), arXiv:1509.01644, section 5, with simpler motions. Of the distances, up to 0.4 for a
    run, 0.3 for a hop and 1 for a leap, -1 … 1 stands for 0 up to these. A run that ends at an enemy or behind the edge, a hop that
    ends there or passes the edge, and a leap into a gap end the episode. Each step gives the progress as a share of the whole, so the
    optimum is 1. Platforms are 0.2 to 0.3 long, and the gaps between them 0.2 to 0.6.
    """

    observation_space = Box((7,))
    choices, amounts = 3, 3
    LIMITS = (0.4, 0.3, 1.0)

    def reset(self, key: Key[Array, ""], params: Any) -> tuple[PlatformState, Array]:
        of_lengths, of_gaps, of_enemies = jax.random.split(key, 3)
        lengths = jax.random.uniform(of_lengths, (3,), minval=0.2, maxval=0.3)
        gaps = jax.random.uniform(of_gaps, (2,), minval=0.2, maxval=0.6)
        starts = jnp.cumsum(jnp.append(jnp.zeros(1), lengths[:2] + gaps))
        enemies = starts + lengths * jax.random.uniform(of_enemies, (3,), minval=0.4, maxval=0.6)
        state = PlatformState(jnp.float32(0.0), starts, starts + lengths, enemies, jnp.int32(0))
        return state, self._seen(state)

    def _platform(self, state: PlatformState) -> Array:
        return jnp.sum(state.place >= state.starts) - 1

    def _seen(self, state: PlatformState) -> Array:
        at, following = self._platform(state), jnp.minimum(self._platform(state) + 1, 2)
        edges = jnp.array([state.ends[at], state.enemies[at], state.starts[following], state.ends[following]])
        ahead = edges - state.place
        return jnp.concatenate([ahead, jnp.array([at / 2, ahead[1] > 0, state.time / 20])])

    def step(self, key: Key[Array, ""], state: PlatformState, action: Any, params: Any) -> Step:
        choice, amounts = self.decode(action)
        at, limits = self._platform(state), jnp.array(self.LIMITS)
        place = state.place + limits[choice] * (amounts[choice] + 1.0) / 2.0
        end, enemy, last = state.ends[at], state.enemies[at], state.ends[2]
        hit = (choice != 1) & (state.place <= enemy) & (place >= enemy - 0.02) | (jnp.abs(place - enemy) < 0.02)
        landed = ((place >= state.starts) & (place <= state.ends)).any()
        finished = (place >= last) & ~hit & (state.place >= state.starts[2])
        fell = jnp.where(choice == 2, ~landed, place > end)
        failed = ~finished & (hit | fell)
        new = state._replace(place=place, time=state.time + 1)
        reward = jnp.where(failed, 0.0, (jnp.minimum(place, last) - state.place) / last)
        return new, self._seen(new), reward, failed | finished, new.time == 20, {"success": finished}
