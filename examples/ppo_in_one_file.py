"""PPO in one file, to read from top to bottom: Schulman et al. 2017, arXiv:1707.06347, algorithm 1.

It imports nothing from proximo. It trains on environments of gymnax, with discrete or with continuous actions (Pendulum-v1). On
CartPole-v1 it has the settings of proximo's preset, and reaches the same return. ``recurrent_ppo_in_one_file.py`` adds a memory.
"""

import argparse
import os
from typing import Any, NamedTuple

os.environ.setdefault("NPROC", "4")  # with fewer threads, JAX may hang on a machine with one or two cores

import gymnax
import jax
import jax.numpy as jnp
import optax

COMMAND_LINE = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
COMMAND_LINE.add_argument("env", nargs="?", default="CartPole-v1", choices=gymnax.registered_envs, metavar="ENV")

# The task and the hyperparameters, with their symbols in the paper.
ENV, ENV_PARAMS = gymnax.make(COMMAND_LINE.parse_args(None if __name__ == "__main__" else []).env)
ACTIONS = ENV.action_space(ENV_PARAMS)
CONTINUOUS = hasattr(ACTIONS, "low")
TOTAL_STEPS = 200_000 if CONTINUOUS else 100_000
NUM_ENVS = 8  # N
NUM_STEPS = 256 if CONTINUOUS else 128  # T, the steps of each environment in a rollout
NUM_EPOCHS = 10  # K
NUM_MINIBATCHES = 32 if CONTINUOUS else 4
LEARNING_RATE = 1e-3 if CONTINUOUS else 2e-3  # α, decreases linearly to 0
CLIP_EPS = 0.2  # ε, decreases linearly to 0
GAMMA = 0.99  # γ
GAE_LAMBDA = 0.95  # λ
VF_COEF = 0.5  # c₁
ENT_COEF = 0.0  # c₂
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam(eps=1e-5))

# ---- Two networks: the policy π and the value function V ----


Layers = list[tuple[jax.Array, jax.Array]]  # weight and bias of each layer


class Parameters(NamedTuple):
    """The parameters θ."""

    actor: Layers
    critic: Layers
    log_std: jax.Array  # logarithms of the standard deviations of continuous actions; empty with discrete ones


def make_parameters(key: jax.Array) -> Parameters:
    """Make orthogonal weights. The last ones of the actor are small, so that at first the observation hardly matters."""
    inputs, actions = ENV.observation_space(ENV_PARAMS).shape[0], ACTIONS.shape[0] if CONTINUOUS else ACTIONS.n

    def make_layers(key: jax.Array, outputs: int, last_gain: float) -> Layers:
        shapes, gains = ((inputs, 64), (64, 64), (64, outputs)), (2**0.5, 2**0.5, last_gain)
        initializers = [jax.nn.initializers.orthogonal(gain) for gain in gains]
        weights = [make(k, shape) for make, k, shape in zip(initializers, jax.random.split(key, 3), shapes, strict=True)]
        return [(weight, jnp.zeros(weight.shape[1])) for weight in weights]

    key_actor, key_critic = jax.random.split(key)
    log_std = jnp.zeros(actions * CONTINUOUS)
    return Parameters(make_layers(key_actor, actions, 0.01), make_layers(key_critic, 1, 1.0), log_std)


def apply_layers(layers: Layers, x: jax.Array) -> jax.Array:
    """Compute the output of a network, for inputs with any leading axes."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


class Categorical(NamedTuple):
    """A distribution over discrete actions, by the log-probabilities of all."""

    log_probs: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.categorical(key, self.log_probs)

    def mode(self) -> jax.Array:
        return jnp.argmax(self.log_probs, axis=-1)

    def log_prob(self, action: jax.Array) -> jax.Array:
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> jax.Array:
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)


class Gaussian(NamedTuple):
    """A distribution over continuous actions, whose components are independent."""

    mean: jax.Array
    log_std: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> jax.Array:
        return self.mean

    def log_prob(self, action: jax.Array) -> jax.Array:
        return jax.scipy.stats.norm.logpdf(action, self.mean, jnp.exp(self.log_std)).sum(axis=-1)

    def entropy(self) -> jax.Array:
        return jnp.sum(self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e))


def policy(parameters: Parameters, observation: jax.Array) -> Categorical | Gaussian:
    """Compute ``π(·|s)``, the distribution of actions."""
    outputs = apply_layers(parameters.actor, observation)
    return Gaussian(outputs, parameters.log_std) if CONTINUOUS else Categorical(jax.nn.log_softmax(outputs))


def state_value(parameters: Parameters, observation: jax.Array) -> jax.Array:
    """Compute ``V(s)``, the expected discounted return from this observation on."""
    return apply_layers(parameters.critic, observation)[..., 0]


# ---- Algorithm 1: "for actor = 1, 2, …, N: run policy π_old in environment for T timesteps" ----


class Env(NamedTuple):
    """An environment between two steps."""

    state: Any
    observation: jax.Array
    episode_return: jax.Array  # sum of the rewards of the running episode


class Transition(NamedTuple):
    """A step of an environment. In a rollout, each entry has the leading axes T and N."""

    observation: jax.Array  # s_t
    action: jax.Array  # a_t, as sampled: before it is clipped
    reward: jax.Array  # r_t
    next_observation: jax.Array  # s_t+1; after the last step of an episode, the final observation of this episode
    terminated: jax.Array  # the episode is over: nothing follows
    truncated: jax.Array  # the time limit has ended the episode: the task itself would go on
    episode_return: jax.Array  # sum of the rewards of this episode up to this step


def reset(key: jax.Array) -> Env:
    """Start an episode."""
    observation, state = ENV.reset_env(key, ENV_PARAMS)
    return Env(state, observation, jnp.zeros(()))


def step(key: jax.Array, env: Env, action: jax.Array) -> tuple[Env, Transition]:
    """Step an environment, and reset it if the episode ends. Continuous actions are clipped to ±1 and scaled to the action space."""
    key_step, key_reset = jax.random.split(key)
    bounded = ACTIONS.low + (ACTIONS.high - ACTIONS.low) * (jnp.clip(action, -1, 1) + 1) / 2 if CONTINUOUS else action
    next_observation, state, reward, terminated, _ = ENV.step_env(key_step, env.state, bounded, ENV_PARAMS)
    truncated = ENV.is_truncated(state, ENV_PARAMS) & ~terminated
    episode_return = env.episode_return + reward
    transition = Transition(env.observation, action, reward, next_observation, terminated, truncated, episode_return)
    continued, new = Env(state, next_observation, episode_return), reset(key_reset)
    return jax.tree.map(lambda a, b: jnp.where(terminated | truncated, a, b), new, continued), transition


def collect(
    key: jax.Array, parameters: Parameters, envs: Env, num_steps: int = NUM_STEPS, deterministic: bool = False
) -> tuple[Env, Transition]:
    """Step all environments ``num_steps`` times, with sampled actions, or with the most probable ones."""

    def act_and_step(envs: Env, key: jax.Array) -> tuple[Env, Transition]:
        key_action, key_envs = jax.random.split(key)
        distribution = policy(parameters, envs.observation)
        action = distribution.mode() if deterministic else distribution.sample(key_action)
        return jax.vmap(step)(jax.random.split(key_envs, len(action)), envs, action)

    return jax.lax.scan(act_and_step, envs, jax.random.split(key, num_steps))


# ---- Algorithm 1: "compute advantage estimates A_1, …, A_T" ----


def advantages(
    reward: jax.Array, value: jax.Array, next_value: jax.Array, terminated: jax.Array, truncated: jax.Array
) -> jax.Array:
    """Generalized advantage estimation: ``δ_t = r_t + γ V(s_t+1) - V(s_t)`` and ``A_t = δ_t + γλ A_t+1`` (equations 11 and 12).

    No sum extends beyond the end of an episode. After a termination ``V(s_t+1)`` is 0. After a truncation it is the value of the
    final observation, because a time limit is not a failure (Pardo et al. 2018, arXiv:1712.00378). All shapes are ``T N``.
    """
    delta = reward + GAMMA * jnp.where(terminated, 0.0, next_value) - value
    decay = jnp.where(terminated | truncated, 0.0, GAMMA * GAE_LAMBDA)

    def backwards(advantage: jax.Array, delta_and_decay: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, decay = delta_and_decay
        advantage = delta + decay * advantage
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]


# ---- Algorithm 1: "optimize surrogate L wrt θ, with K epochs and minibatch size M ≤ NT" ----


class Batch(NamedTuple):
    """What the loss reads of each transition."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array  # log π_old(a_t|s_t), by the policy that acted
    advantage: jax.Array
    target: jax.Array  # what the value is fitted to


def loss(parameters: Parameters, batch: Batch, clip_eps: jax.Array) -> jax.Array:
    """Compute the negative of equation 9, ``L^CLIP - c₁ L^VF + c₂ S``, of a minibatch."""
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    distribution = policy(parameters, batch.observation)
    ratio = jnp.exp(distribution.log_prob(batch.action) - batch.log_prob)
    clipped_ratio = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
    surrogate = jnp.minimum(ratio * advantage, clipped_ratio * advantage).mean()  # equation 7

    value_loss = 0.5 * jnp.square(state_value(parameters, batch.observation) - batch.target).mean()
    return -(surrogate - VF_COEF * value_loss + ENT_COEF * distribution.entropy().mean())


def make_batch(parameters: Parameters, rollout: Transition) -> Batch:
    """Compute what the loss reads, and join the axes T and N of the rollout."""
    value, next_value = (state_value(parameters, x) for x in (rollout.observation, rollout.next_observation))
    advantage = advantages(rollout.reward, value, next_value, rollout.terminated, rollout.truncated)
    log_prob = policy(parameters, rollout.observation).log_prob(rollout.action)
    batch = Batch(rollout.observation, rollout.action, log_prob, advantage, advantage + value)
    return jax.tree.map(lambda x: x.reshape((NUM_STEPS * NUM_ENVS, *x.shape[2:])), batch)


def learn(
    key: jax.Array, parameters: Parameters, optimizer_state: Any, rollout: Transition, remaining: jax.Array
) -> tuple[Parameters, Any]:
    """Learn from one rollout. ``remaining`` is the share of the training that is left: it scales the learning rate and ε."""
    batch = make_batch(parameters, rollout)

    def gradient_step(carry: tuple[Parameters, Any], indices: jax.Array) -> tuple[tuple[Parameters, Any], None]:
        parameters, optimizer_state = carry
        minibatch = jax.tree.map(lambda x: x[indices], batch)
        gradient = jax.grad(loss)(parameters, minibatch, CLIP_EPS * remaining)
        direction, optimizer_state = OPTIMIZER.update(gradient, optimizer_state)
        parameters = jax.tree.map(lambda p, d: p - LEARNING_RATE * remaining * d, parameters, direction)
        return (parameters, optimizer_state), None

    epochs = jax.vmap(lambda k: jax.random.permutation(k, NUM_STEPS * NUM_ENVS))(jax.random.split(key, NUM_EPOCHS))
    minibatches = epochs.reshape(NUM_EPOCHS * NUM_MINIBATCHES, -1)  # each epoch in another random order
    return jax.lax.scan(gradient_step, (parameters, optimizer_state), minibatches)[0]


# ---- Algorithm 1: "for iteration = 1, 2, …" ----


def train(key: jax.Array, num_updates: int) -> tuple[Parameters, jax.Array]:
    """Train. The function is pure: ``jit`` compiles the whole training, and ``vmap`` trains several seeds at once.

    Returns:
        The parameters, and for each update the mean return of the episodes that ended in its rollout; NaN if none did.
    """
    key_parameters, key_envs, key_updates = jax.random.split(key, 3)
    parameters = make_parameters(key_parameters)
    envs = jax.vmap(reset)(jax.random.split(key_envs, NUM_ENVS))
    start = (parameters, OPTIMIZER.init(parameters), envs)

    def update(carry: tuple[Parameters, Any, Env], number: jax.Array) -> tuple[tuple[Parameters, Any, Env], jax.Array]:
        parameters, optimizer_state, envs = carry
        key_collect, key_learn = jax.random.split(jax.random.fold_in(key_updates, number))
        envs, rollout = collect(key_collect, parameters, envs)
        parameters, optimizer_state = learn(key_learn, parameters, optimizer_state, rollout, 1 - number / num_updates)
        mean_return = jnp.mean(rollout.episode_return, where=rollout.terminated | rollout.truncated)
        return (parameters, optimizer_state, envs), mean_return

    (parameters, _, _), mean_returns = jax.lax.scan(update, start, jnp.arange(num_updates))
    return parameters, mean_returns


def evaluate(key: jax.Array, parameters: Parameters, episodes: int = 100) -> jax.Array:
    """Play one episode in each of ``episodes`` environments with the most probable actions, and return their returns."""
    key_envs, key_steps = jax.random.split(key)
    envs = jax.vmap(reset)(jax.random.split(key_envs, episodes))
    _, played = collect(key_steps, parameters, envs, ENV_PARAMS.max_steps_in_episode, deterministic=True)
    first_end = jnp.argmax(played.terminated | played.truncated, axis=0)
    return jnp.take_along_axis(played.episode_return, first_end[None], axis=0)[0]


def main(seed: int = 0, total_steps: int = TOTAL_STEPS) -> float:
    """Train, print the learning curve, evaluate, and return the mean return of the evaluation."""
    num_updates = total_steps // (NUM_STEPS * NUM_ENVS)
    key_train, key_evaluate = jax.random.split(jax.random.key(seed))
    parameters, mean_returns = jax.jit(train, static_argnames="num_updates")(key_train, num_updates)
    for number in range(10, num_updates + 1, 10):
        print(f"step {number * NUM_STEPS * NUM_ENVS:>7,}: return {jnp.nanmean(mean_returns[number - 10 : number]):.1f}")
    mean = float(jax.jit(evaluate)(key_evaluate, parameters).mean())
    print(f"evaluated: return {mean:.1f}")
    return mean


if __name__ == "__main__":
    main()
