"""``pretrain``: fit the policy of an agent to demonstrations before it learns by itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from proximo.agent import PPO, exclusive_use
from proximo.errors import ConfigError, TrainingError, shown
from proximo.evaluation.evaluate import check_number
from proximo.evaluation.observations import convert_observation, count_stacked
from proximo.evaluation.policy import non_finite_leaf
from proximo.networks import ActorCritic
from proximo.ppo.behavior_cloning import Demonstrations, clone, padded
from proximo.signatures import is_number
from proximo.spaces import ACTION_MASK, PREVIOUS_REWARD, ActionSpace, Box, MultiBinary, allows
from proximo.types import Observation

_clone = eqx.filter_jit(clone)


def pretrain(
    agent: PPO,
    observations: Any,
    actions: Any,
    episode_start: Any = None,
    *,
    rewards: Any = None,
    num_epochs: int = 10,
    minibatch_size: int = 64,
    learning_rate: float = 1e-3,
) -> list[float]:
    """Fit the policy of an agent to demonstrations (behavior cloning). ``agent.learn`` then continues from this policy.

        agent = proximo.PPO("CartPole-v1")
        proximo.pretrain(agent, observations, actions)
        agent.learn(100_000)

    It maximizes the log-likelihood of the demonstrated actions. With ``normalize_observation``, the observations enter the statistics of
    the normalizer. The standard deviation of Gaussian actions stays as it is, so that the agent still explores. The value function is
    not trained; with ``towers: shared`` its features change.

    A policy that has a memory, or observes its previous action or reward, learns from the steps in their order and requires
    ``episode_start``. The gradient flows through ``sequence_length`` steps, as in ``learn``.

    Args:
        agent: the agent. It may have learned before.
        observations: the observations of K steps, stacked along a leading axis (dicts and tuples entry by entry).
        actions: the K actions, as the environment takes them.
        episode_start: K flags: whether an episode starts with this observation. Ignored by policies that ignore the order.
        rewards: the reward of each action. Required by policies with ``observe_reward``, ignored by others.
        num_epochs: passes over the demonstrations, from 1 to a million.
        minibatch_size: steps of each gradient step, from 1 to a million; rounded to whole sequences.
        learning_rate: learning rate of Adam, above 0.

    Returns:
        The loss of each epoch: the mean of ``-log π(a|s)``.

    Raises:
        ConfigError: an argument does not fit the agent, or another call is learning with it.
        TrainingError: NaN or infinity occurs. The agent stays as it was.
    """
    for name, given in (("num_epochs", num_epochs), ("minibatch_size", minibatch_size)):
        check_number(name, given, 1, 10**6)  # the program stores a key and a loss for each epoch
    if not is_number(learning_rate) or not 0 < learning_rate <= float(np.finfo(np.float32).max):
        raise ConfigError(f"learning_rate = {shown(learning_rate)}: expected a finite number above 0 (as float32), such as 1e-3.")
    with exclusive_use(agent):
        state, config = agent._current_state(), agent.config
        policy = state.learner.policy
        length = config.sequence_length if policy.is_recurrent else 1
        demonstrations = padded(_convert(agent, policy, observations, actions, episode_start, rewards), length)
        sizes = num_epochs, max(1, round(minibatch_size / length)), length
        key, shuffle_key = jax.random.split(state.learner.key)
        rates = jnp.float32(learning_rate), jnp.float32(config.ppo.max_grad_norm)
        with jax.default_matmul_precision(config.run.matmul_precision):
            policy, losses = _clone(shuffle_key, policy, demonstrations, *rates, *sizes)
        if (name := non_finite_leaf(policy, config)) or not np.isfinite(losses).all():
            raise TrainingError(
                f"NaN or infinity in {name or 'the losses'}: use a learning_rate below {learning_rate}, or scale the observations of the "
                "demonstrations, if some are large."
            )
        learner = dataclasses.replace(state.learner, policy=policy, key=key)
        agent._state = dataclasses.replace(state, learner=learner)
        agent._evaluation = agent._best = None  # the evaluations were of another policy
    return np.asarray(losses).tolist()


def _convert(
    agent: PPO, policy: ActorCritic, observations: Any, actions: Any, episode_start: Any, rewards: Any
) -> Demonstrations:
    space = agent.env.observation_space
    observation = convert_observation(observations, space, "observations")
    count = count_stacked(observation, space)
    if count is None:
        raise ConfigError("observations is a single observation: expected those of all steps, stacked along a leading axis.")
    in_order = policy.is_recurrent or bool(policy.observed_previous)
    starts = _one_each("episode_start", episode_start, bool, count, in_order)
    reward = _one_each("rewards", rewards, jnp.float32, count, PREVIOUS_REWARD in policy.observed_previous)
    taken = _convert_actions(actions, observation, agent.env.action_space, count)
    action = policy.actor.from_space(jnp.asarray(taken))
    observation = jax.tree.map(jnp.asarray, observation)
    previous = jax.tree.map(lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]]), policy.previous_step(action, reward))
    observation = policy.with_previous_step(observation, starts, previous)
    one_sequence = jax.tree.map(lambda x: x[:, None], (observation, starts, jnp.ones(count, bool), action))
    return Demonstrations(policy.init_memory(1), None, *one_sequence)


def _one_each(name: str, given: Any, dtype: Any, count: int, is_read: bool) -> Array:
    if not is_read:
        return jnp.zeros(count, dtype)
    try:
        x = np.asarray(given)
    except ValueError:  # rows of different lengths
        x = np.asarray(None)
    if x.shape == (count,) and x.dtype.kind in "biuf" and np.isfinite(x).all():
        return jnp.asarray(x, dtype)
    shown = "missing" if given is None else f"{type(given).__name__} of shape {x.shape}"
    raise ConfigError(f"{name} is {shown}: this policy reads it, so pass one finite number for each of the {count} observations.")


def _convert_actions(given: Any, observation: Observation, space: ActionSpace, count: int) -> np.ndarray:
    """The actions as an array. Raises ``ConfigError`` unless each is in ``space``, and allowed by the mask, if any."""
    actions = convert_observation(given, space, "actions")
    if actions.shape != (count, *space.shape):
        raise ConfigError(f"actions has the shape {actions.shape}: expected {(count, *space.shape)}, one for each observation.")
    if isinstance(space, Box):
        inside = np.clip(actions, *space.bounds()).astype(actions.dtype)
        # A policy that computes in float32 may exceed a bound by rounding.
        close = np.isclose(actions, inside, rtol=1e-4, atol=1e-6)
        if not close.all():
            number = int(np.argwhere(~close)[0][0])
            raise ConfigError(
                f"actions[{number}] is {actions[number].tolist()}, outside of the bounds of {space}: give it as the environment "
                "takes it."
            )
        return inside
    if isinstance(space, MultiBinary):
        actions = actions.astype(np.int32)
    masks = observation[ACTION_MASK].reshape((count, -1)) if isinstance(observation, dict) and ACTION_MASK in observation else ()
    for number, (mask, action) in enumerate(zip(masks, actions, strict=False)):
        if not allows(space, mask != 0, action):
            raise ConfigError(f"actions[{number}] is {action.tolist()}, which the action mask of its observation forbids.")
    return actions
