"""Episodes of a policy that does not learn, and what is said of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.config import Config
from proximo.drivers import vector
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.envs.levels import LevelsJax
from proximo.networks import ActorCritic
from proximo.networks.memory import select
from proximo.run.episodes import MOST_STEPS, Episodes, evaluation_key
from proximo.run.host_evaluation import HostEvaluator
from proximo.run.reuse import precision, reuse
from proximo.types import Memory, Previous

# Streams of random keys: what selects a checkpoint during training, or settings in `tune`, is never what judges afterwards.
SELECTION_STREAM, JUDGEMENT_STREAM, TUNING_STREAM = 1, 2, 3
MOST_TOGETHER = 512
Carried = tuple[Memory, Previous | None]


def make_evaluator(
    env: JaxEnvironment | HostEnvironment, config: Config, episodes: int, stochastic: bool, together: int = 0
) -> Evaluator | HostEvaluator:
    """What plays whole episodes with policies trained by ``config``; on the device the one that this process has compiled
    already, where it fits. ``together``: on so many environments at a time; 0: on the host ``num_envs``, on the device up to 512, but
    ``num_envs`` where a memory is carried from episode to episode."""
    if isinstance(env, HostEnvironment):
        return HostEvaluator(env, config, episodes, stochastic, together)
    cut = config.run.eval_max_steps or MOST_STEPS
    together = together or (MOST_TOGETHER if config.network.reset_memory else config.env.num_envs)
    settings = (episodes, stochastic, config.env.max_episode_steps, config.run.matmul_precision, cut, together)
    return reuse(("evaluator", id(env), *settings, precision()), lambda: Evaluator(env, *settings))


class Evaluator:
    """Runs whole episodes on environments of its own, one from each reset, so that short ones are not favoured: ``together`` at a time.
    A memory that is carried over episodes is carried to the next ones.

    The first call compiles; later ones, with other parameters of the same policy, do not.
    """

    def __init__(
        self,
        env: JaxEnvironment,
        episodes: int,
        stochastic: bool,
        max_episode_steps: int = 0,
        matmul_precision: str = "default",
        cut: int = MOST_STEPS,
        together: int = MOST_TOGETHER,
    ):
        self.env, self.episodes, self.stochastic, self.matmul_precision = env, episodes, stochastic, matmul_precision
        self.limit = min(max_episode_steps or cut, cut)
        self.ends = 0 < max_episode_steps <= cut
        """No episode is longer than ``limit``: one that reaches it was truncated, as in the training."""
        self.together = min(episodes, together)
        self._play = jax.jit(self._play_together, static_argnums=3)

    def close(self) -> None:
        """Nothing runs beside it."""

    def __call__(self, policy: ActorCritic, seed: int, stream: int, stochastic: bool | None = None) -> Episodes:
        """Play with the environment seeds of ``seed`` in ``stream``: the same ones for every policy, and for its mode and its samples
        (``stochastic``, if it is to be other than this evaluator's)."""
        stochastic = self.stochastic if stochastic is None else stochastic
        key = evaluation_key(seed, stream)
        chunks, carried = [], (policy.init_memory(self.together), policy.nothing_before(self.together))
        with jax.default_matmul_precision(self.matmul_precision):
            for i in range(-(-self.episodes // self.together)):
                carried, played = self._play(policy, carried, jax.random.fold_in(key, i), stochastic)
                chunks.append(played)
        result = {name: np.concatenate([np.asarray(c[name]) for c in chunks])[: self.episodes] for name in chunks[0]}
        unfinished = 0 if self.ends else int((~result["done"]).sum())
        level = result["level"].tolist() if "level" in result else None
        return Episodes(result["episode_return"], result["length"], result.get("success"), unfinished, level=level)

    def _play_together(
        self, policy: ActorCritic, carried: Carried, key: Key[Array, ""], stochastic: bool = False
    ) -> tuple[Carried, PyTree]:
        """Play an episode in each environment. Returns the memory with the previous action and reward, and the results."""
        env, batch, (memory, previous) = self.env, self.together, carried
        params = jax.tree.map(jnp.asarray, env.default_params)
        key, key_reset = jax.random.split(key)
        keys_reset = jax.random.split(key_reset, batch)
        env_state, observation = vector.reset(env, keys_reset, params)
        start = {
            "env_state": env_state,
            "observation": observation,
            "memory": memory,
            "previous": previous,
            "episode_return": jnp.zeros(batch),
            "length": jnp.zeros(batch, jnp.int32),
            "success": jnp.zeros(batch, bool),
            "done": jnp.zeros(batch, bool),
        }

        def running(carry: tuple[Array, dict[str, Any]]) -> Array:
            return (carry[0] < self.limit) & ~jnp.all(carry[1]["done"])

        def play(carry: tuple[Array, dict[str, Any]]) -> tuple[Array, dict[str, Any]]:
            t, s = carry
            key_act, key_step = jax.random.split(jax.random.fold_in(key, t))
            first = jnp.broadcast_to(t == 0, (batch,))
            act_key = key_act if stochastic else None
            observed = policy.observed(s["observation"], first, s["previous"])
            memory, action, _, _ = policy.step(s["memory"], observed, first, ~s["done"], act_key)
            env_state, observation, reward, terminated, truncated, success = vector.step(
                env, jax.random.split(key_step, batch), s["env_state"], policy.to_space(action), s["observation"], params
            )
            ends = (terminated | truncated) & ~s["done"]
            after = {
                "env_state": env_state,
                "observation": observation,
                "memory": memory,
                "previous": select(s["done"], s["previous"], policy.previous(action, reward)),
                "episode_return": s["episode_return"] + jnp.where(s["done"], 0.0, reward),
                "length": s["length"] + ~s["done"],
                "success": jnp.where(s["done"], s["success"], success),
                "done": s["done"] | ends,
            }
            return t + 1, after

        _, end = jax.lax.while_loop(running, play, (jnp.int32(0), start))
        if not self.ends:  # an episode that is cut off counts as no success
            end["success"] &= end["done"]
        told = ("episode_return", "length", "done", *(("success",) if vector.tells_success(env) else ()))
        levels = {"level": jax.vmap(env.level)(keys_reset)} if isinstance(env, LevelsJax) else {}
        return (end["memory"], end["previous"]), {**{name: end[name] for name in told}, **levels}
