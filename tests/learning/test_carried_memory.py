"""A bandit with one-step episodes: only the rewards of earlier episodes show which arm pays."""

from functools import partial

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo import ppo
from proximo.collect import GymnasiumCollector, JaxCollector
from proximo.config import override
from proximo.envs.gymnasium.environment import from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.spaces import Box, Discrete
from proximo.types import Rollout

from helpers import backend_of, small_config

pytestmark = pytest.mark.learning
UPDATES = 40
SETTINGS = {
    "num_envs": 16, "num_steps": 32, "sequence_length": 16, "num_epochs": 4, "learning_rate": 1e-2, "ent_coef": 0.0,
    "total_steps": UPDATES * 512, "normalize_observation": False, "memory": "gru", "reset_memory": False, "observe_action": True,
    "num_workers": 0,
}  # fmt: skip


class Bandit:
    """The reward is 1 for the arm in the parameters of the environment."""

    observation_space, action_space, default_params = Box((1,)), Discrete(2), 0

    def reset(self, key, params):
        return (), jnp.zeros(1)

    def step(self, key, state, action, params):
        return (), jnp.zeros(1), jnp.float32(action == params), jnp.array(True), jnp.array(False), {}


class GymnasiumBandit(gymnasium.Env):
    """The arm that pays changes after 10 to 20 episodes."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.left == 0:
            self.left, self.arm = self.np_random.integers(10, 21), self.np_random.integers(2)
        self.left -= 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action == self.arm), True, False, {}


def in_jax(config):
    """Mean rewards of the updates. All environments have the same parameters, so that an update learns from four collectors, each with
    the arm of its parameters."""
    collector = JaxCollector(override(config, {"num_envs": config.env.num_envs // 4}), Bandit())

    def merged(rollouts):
        def merge(x, name):
            axis = 0 if name.startswith("last_") else 1
            x = jnp.moveaxis(x, 0, axis)
            return x.reshape((*x.shape[:axis], -1, *x.shape[axis + 2 :]))

        return Rollout(**{name: jax.tree.map(partial(merge, name=name), part) for name, part in vars(rollouts).items()})

    def update(state, arms):
        learner, collectors = state
        collectors = eqx.tree_at(lambda c: c.env_params, collectors, arms)
        collectors, rollouts, _ = jax.vmap(collector.collect, in_axes=(None, 0))(learner.policy, collectors)
        learner, _ = ppo.update(learner, merged(rollouts))
        return (learner, collectors), rollouts.reward.mean()

    start = jax.vmap(collector.init)(jax.random.split(jax.random.key(0), 4))
    arms = jax.random.randint(jax.random.key(1), (UPDATES, 4), 0, 2)
    learner = jax.tree.map(lambda x: x[0], start.learner)
    return np.asarray(jax.jit(lambda state: jax.lax.scan(update, state, arms))((learner, start.collector))[1])


def on_gymnasium(config):
    collector = GymnasiumCollector(config, from_factory(GymnasiumBandit, "toy", Preprocessing()))
    trainer = backend_of(collector)
    state, rewards = collector.init(jax.random.key(0)), []
    try:
        for _ in range(25):
            state, metrics = trainer.update(state)
            rewards.append(metrics["rollout/return_mean"])
    finally:
        trainer.close()
    return np.array(rewards)


@pytest.mark.parametrize("train", [in_jax, on_gymnasium])
def test_carried_memory_learns_which_arm_pays_across_episodes(train):
    assert train(small_config(**SETTINGS, observe_reward=True))[-10:].mean() > 0.8


def test_the_paying_arm_is_not_found_without_observing_rewards():
    assert in_jax(small_config(**SETTINGS))[-10:].mean() == pytest.approx(0.5, abs=0.15)
