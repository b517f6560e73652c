"""``pretrain``: fit the policy of an agent to demonstrations before it learns by itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree, Shaped, UInt32

from proximo.agent import PPO, exclusive_use
from proximo.distributions import Gaussian
from proximo.errors import ConfigError, TrainingError, is_number, shown
from proximo.evaluation.evaluate import check_number
from proximo.evaluation.observations import convert_observation, count_stacked, one_each
from proximo.evaluation.policy import non_finite_leaf
from proximo.math.masked_statistics import masked_mean
from proximo.math.shuffling import permutation
from proximo.networks import ActorCritic
from proximo.networks.normalizer import with_observations
from proximo.ppo.minibatches import Sequences, inputs, map_steps, memories_before, split_sequences, stack_memory, take, unroll
from proximo.ppo.optimizer import split_policy
from proximo.spaces import ACTION_MASK, PREVIOUS_REWARD, ActionSpace, Box, Joint, LeafSpace, MultiBinary, allows, joined, nested
from proximo.types import Observation


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

    def steps(name: str, given: Any, dtype: Any, is_read: bool) -> Array:
        expected = "a finite number, which this policy reads,"
        return jnp.asarray(one_each(name, given, count, expected), dtype) if is_read else jnp.zeros(count, dtype)

    starts = steps("episode_start", episode_start, bool, policy.is_recurrent or bool(policy.observed_previous))
    reward = steps("rewards", rewards, jnp.float32, PREVIOUS_REWARD in policy.observed_previous)
    taken = _convert_actions(actions, observation, agent.env.action_space, count)
    action = policy.actor.from_space(jnp.asarray(taken))
    observation = jax.tree.map(jnp.asarray, observation)
    previous = jax.tree.map(lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]]), policy.previous_step(action, reward))
    observation = policy.with_previous_step(observation, starts, previous)
    one_sequence = jax.tree.map(lambda x: x[:, None], (observation, starts, jnp.ones(count, bool), action))
    return Demonstrations(policy.init_memory(1), None, *one_sequence)


def _convert_actions(given: Any, observation: Observation, space: ActionSpace, count: int) -> np.ndarray:
    """The actions as an array. Raises ``ConfigError`` unless each is in ``space`` and its mask allows it."""
    if isinstance(space, Joint):
        parts = convert_observation(given, space.space, "actions")
        actions = joined(_convert_part(part.of(parts), part.space, count) for part in space.parts)
    else:
        actions = _convert_part(given, space, count)
    has_masks = isinstance(observation, dict) and ACTION_MASK in observation
    masks = observation[ACTION_MASK].reshape((count, -1)) if has_masks else ()
    for number, (mask, action) in enumerate(zip(masks, actions, strict=False)):
        if not allows(space, mask != 0, nested(space, action)):
            raise ConfigError(f"actions[{number}] is {action.tolist()}, which the action mask of its observation forbids.")
    return actions


def _convert_part(given: Any, space: LeafSpace, count: int) -> np.ndarray:
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
    return actions.astype(np.int32) if isinstance(space, MultiBinary) else actions


class Demonstrations(Sequences):
    """Consecutive steps of demonstrations. Before they are split, all are one sequence: ``S`` is 1."""

    action: Shaped[Array, "L S ..."]
    """As the distribution would have sampled it."""


def clone(
    key: Key[Array, ""],
    policy: ActorCritic,
    demonstrations: Demonstrations,
    learning_rate: Float[Array, ""],
    max_grad_norm: Float[Array, ""],
    num_epochs: int,
    num_sequences: int,
    length: int,
) -> tuple[ActorCritic, Float[Array, " epochs"]]:
    """Maximize the log-likelihood of the demonstrated actions with Adam, in gradient steps on ``num_sequences`` sequences of ``length`` steps.

    The normalizer first includes the demonstrated observations. Before each epoch, the memory before each sequence
    is recomputed with the current parameters. ``demonstrations`` is one sequence of all steps, whose number is a multiple of ``length``.

    Returns:
        The fitted policy, and the mean of ``-log π(a|s)`` during each epoch.
    """
    optimizer = optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(learning_rate, eps=1e-5))
    normalizer = with_observations(policy.normalizer, demonstrations.observation, demonstrations.valid)
    trainable, constants = split_policy(dataclasses.replace(policy, normalizer=normalizer))

    def epoch(carry: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        sequences = split(eqx.combine(carry[0], constants), demonstrations, length)
        count = sequences.valid.shape[1]
        per_step = min(num_sequences, count)
        minibatches = permutation(key, count)[: count // per_step * per_step].reshape(-1, per_step)

        def gradient_step(carry: PyTree, indices: UInt32[Array, " size"]) -> tuple[PyTree, Array]:
            trainable, state = carry
            minibatch = take(sequences, indices)
            loss, gradient = jax.value_and_grad(lambda p: cloning_loss(eqx.combine(p, constants), minibatch))(trainable)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(trainable, updates), state), loss

        carry, losses = jax.lax.scan(gradient_step, carry, minibatches)
        return carry, jnp.mean(losses)

    start = trainable, optimizer.init(trainable)
    (trainable, _), losses = jax.lax.scan(epoch, start, jax.random.split(key, num_epochs))
    return eqx.combine(trainable, constants), losses


def cloning_loss(policy: ActorCritic, sequences: Demonstrations) -> Float[Array, ""]:
    """The mean of ``-log π(a|s)`` over valid steps, without a gradient of the standard deviation of a
    Gaussian. With this gradient, the standard deviation would shrink towards 0 where demonstrations always
    agree, and PPO could no longer explore."""
    is_gaussian = lambda part: isinstance(part, Gaussian)  # noqa: E731
    distribution = jax.tree.map(
        lambda part: dataclasses.replace(part, log_std=jax.lax.stop_gradient(part.log_std)) if is_gaussian(part) else part,
        unroll(policy, sequences).distribution,
        is_leaf=is_gaussian,
    )
    return -masked_mean(distribution.log_prob(sequences.action), sequences.valid)


def padded(demonstrations: Demonstrations, length: int) -> Demonstrations:
    """``demonstrations`` with padding steps at the end, so that their number is a multiple of ``length``."""
    count = demonstrations.valid.shape[0]
    missing = -count % length
    padded = map_steps(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], missing, axis=0)]), demonstrations)
    return dataclasses.replace(padded, valid=jnp.arange(count + missing)[:, None] < count)


def split(policy: ActorCritic, demonstrations: Demonstrations, length: int) -> Demonstrations:
    """Sequences of ``length`` steps, with the memory of ``policy`` before each."""
    sequences = map_steps(lambda x: split_sequences(x, length), demonstrations)
    if not policy.is_recurrent:
        return sequences
    _, memory = memories_before(policy, demonstrations.memory, inputs(demonstrations), length)
    return dataclasses.replace(sequences, memory=stack_memory(memory))


_clone = eqx.filter_jit(clone)
