"""Episodes of a policy that does not learn, and what is said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.config import Config
from proximo.drivers import vector
from proximo.envs.protocol import JaxEnvironment
from proximo.networks import ActorCritic
from proximo.run.reuse import precision, reuse

# Streams of random keys: what selects a checkpoint during training is never what judges it afterwards.
SELECTION_STREAM, JUDGEMENT_STREAM = 1, 2
MOST_TOGETHER = 512
MOST_STEPS = 100_000
MOST_EPISODES = 10**6


def make_evaluator(env: JaxEnvironment, config: Config, episodes: int, stochastic: bool) -> Evaluator:
    """An ``Evaluator`` of policies trained by ``config``; the one that this process has compiled already, where it fits."""
    settings = (episodes, stochastic, config.env.max_episode_steps, config.run.matmul_precision)
    return reuse(("evaluator", id(env), *settings, precision()), lambda: Evaluator(env, *settings))


@dataclass(frozen=True)
class Episodes:
    """One entry an episode. ``success`` is None where the environment does not tell it."""

    episode_return: np.ndarray
    length: np.ndarray
    success: np.ndarray | None
    unfinished: int
    """Episodes that were still running after ``MOST_STEPS`` steps, counted as they stood."""

    def summary(self) -> dict[str, Any]:
        """``{episodes, mean_return, std_return, iqm_return, ci95, mean_length, success_rate}``.

        ``iqm_return`` is the mean of the middle half (Agarwal et al. 2021, arXiv:2108.13264); ``ci95`` the 95 % interval
        of ``mean_return`` by the percentile bootstrap, 2,000 resamples.
        """
        returns = self.episode_return.astype(np.float64)
        return {
            "episodes": len(returns),
            "mean_return": float(returns.mean()),
            "std_return": float(returns.std()),
            "iqm_return": interquartile_mean(returns),
            "ci95": bootstrap_interval(returns),
            "mean_length": float(self.length.mean()),
            "success_rate": None if self.success is None else float(self.success.mean()),
        }


def interquartile_mean(x: np.ndarray) -> float:
    """The mean without the lowest and the highest quarter."""
    from scipy import stats

    return float(stats.trim_mean(x, 0.25))


def bootstrap_interval(x: np.ndarray, resamples: int = 2000) -> list[float]:
    """[low, high] of the mean of ``x``, 95 %, percentile bootstrap with a fixed seed."""
    rng = np.random.default_rng(0)
    means = np.array([x[rng.integers(0, len(x), len(x))].mean() for _ in range(resamples)])
    return [float(v) for v in np.percentile(means, [2.5, 97.5])]


class Evaluator:
    """Runs whole episodes on environments of its own, one from each reset, so that short ones are not favoured.

    The first call compiles; later ones, with other parameters of the same policy, do not.
    """

    def __init__(
        self,
        env: JaxEnvironment,
        episodes: int,
        stochastic: bool,
        max_episode_steps: int = 0,
        matmul_precision: str = "default",
    ):
        self.env, self.episodes, self.stochastic, self.matmul_precision = env, episodes, stochastic, matmul_precision
        self.limit = max_episode_steps or MOST_STEPS
        self.together = min(episodes, MOST_TOGETHER)
        self._play = jax.jit(self._play_together)

    def __call__(self, policy: ActorCritic, seed: int, stream: int) -> Episodes:
        """Play with the environment seeds of ``seed`` in ``stream``: the same ones for every policy."""
        key = jax.random.fold_in(jax.random.key(seed), stream)
        with jax.default_matmul_precision(self.matmul_precision):
            chunks = [self._play(policy, jax.random.fold_in(key, i)) for i in range(-(-self.episodes // self.together))]
        result = {name: np.concatenate([np.asarray(c[name]) for c in chunks])[: self.episodes] for name in chunks[0]}
        unfinished = 0 if self.limit < MOST_STEPS else int((~result["done"]).sum())
        return Episodes(result["episode_return"], result["length"], result.get("success"), unfinished)

    def _play_together(self, policy: ActorCritic, key: Key[Array, ""]) -> PyTree:
        env, batch = self.env, self.together
        params = jax.tree.map(jnp.asarray, env.default_params)
        key, key_reset = jax.random.split(key)
        env_state, observation = vector.reset(env, jax.random.split(key_reset, batch), params)
        always = jnp.ones(batch, bool)
        start = {
            "env_state": env_state,
            "observation": observation,
            "memory": policy.init_memory(batch),
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
            act_key = key_act if self.stochastic else None
            memory, action, _, _ = policy.step(s["memory"], s["observation"], first, always, act_key)
            env_state, observation, reward, terminated, truncated, success = vector.step(
                env, jax.random.split(key_step, batch), s["env_state"], policy.to_space(action), s["observation"], params
            )
            ends = (terminated | truncated) & ~s["done"]
            after = {
                "env_state": env_state,
                "observation": observation,
                "memory": memory,
                "episode_return": s["episode_return"] + jnp.where(s["done"], 0.0, reward),
                "length": s["length"] + ~s["done"],
                "success": s["success"] | (success & ends),
                "done": s["done"] | ends,
            }
            return t + 1, after

        _, end = jax.lax.while_loop(running, play, (jnp.int32(0), start))
        told = ("episode_return", "length", "done", *(("success",) if vector.tells_success(env) else ()))
        return {name: end[name] for name in told}
