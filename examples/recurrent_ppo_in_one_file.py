"""Recurrent PPO in one file, to read from top to bottom: a GRU, trained by truncated backpropagation through time.

The task is its only import from proximo. ``ppo_in_one_file.py`` is the same algorithm without a memory.
Where the memory makes a difference, a docstring or a comment has a line that begins with "Memory".

python examples/recurrent_ppo_in_one_file.py
"""

from typing import Any, NamedTuple

from proximo.envs.tasks.poc_memory import PocMemory  # before the first JAX computation: it prevents a deadlock on few cores
import jax
import jax.numpy as jnp
import optax

# The task: only the first three observations show at which end of a line the good goal is, and the agent is far from both ends. With
# L = 1 it is learned, too; in PocMemory({"show_steps": 0, "freeze_steps": 12}), which needs more steps, L makes a difference.
ENV = PocMemory()
ENV_PARAMS = ENV.default_params
# The hyperparameters, with their symbols in the paper (Schulman et al. 2017, arXiv:1707.06347).
NUM_ENVS = 16  # N
NUM_STEPS = 32  # T, the steps of each environment in a rollout
SEQUENCE_LENGTH = 8  # L, the steps of backpropagation through time, a divisor of T
NUM_EPOCHS = 4  # K
NUM_MINIBATCHES = 4
LEARNING_RATE = 2e-3  # α, decreases linearly to 0
CLIP_EPS = 0.2  # ε
GAMMA = 0.99  # γ
GAE_LAMBDA = 0.95  # λ
VF_COEF = 0.5  # c₁
ENT_COEF = 0.0  # c₂
NUM_UNITS = 64  # in each layer
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam(eps=1e-5))

# ---- The network: an encoder, a memory, and two heads, the policy π and the value function V ----


class Layer(NamedTuple):
    """A linear layer ``x W + b``."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        """Compute the outputs, for inputs with any leading axes."""
        return x @ self.weight + self.bias


class Parameters(NamedTuple):
    """The parameters θ."""

    encoder: Layer
    gru_input: Layer  # both layers of the GRU have the outputs of its three gates side by side
    gru_memory: Layer
    actor: Layer
    critic: Layer


def make_parameters(key: jax.Array) -> Parameters:
    """Make orthogonal weights. Those of the actor are small, so that at first all actions are about equally probable."""
    inputs, actions, units = ENV.observation_space.shape[0], ENV.action_space.n, NUM_UNITS

    def make_layer(key: jax.Array, inputs: int, outputs: int, gain: float = 1.0) -> Layer:
        return Layer(jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs)), jnp.zeros(outputs))

    keys = jax.random.split(key, 5)
    return Parameters(
        encoder=make_layer(keys[0], inputs, units, gain=2**0.5),
        gru_input=make_layer(keys[1], units, 3 * units),
        gru_memory=make_layer(keys[2], units, 3 * units),
        actor=make_layer(keys[3], units, actions, gain=0.01),
        critic=make_layer(keys[4], units, 1),
    )


def encode(parameters: Parameters, observation: jax.Array) -> jax.Array:
    """Compute the inputs of the memory."""
    return parameters.gru_input(jnp.tanh(parameters.encoder(observation)))


def remember(parameters: Parameters, memory: jax.Array, x: jax.Array, episode_start: jax.Array) -> jax.Array:
    """Compute the memory after a step: a gated recurrent unit (Cho et al. 2014, arXiv:1406.1078, section 2.3).

    Memory: it is reset where an episode starts, before the observation is read. Acting and learning share this line.
    """
    memory = jnp.where(episode_start[..., None], 0.0, memory)
    x_reset, x_update, x_new = jnp.split(x, 3, axis=-1)
    h_reset, h_update, h_new = jnp.split(parameters.gru_memory(memory), 3, axis=-1)
    update = jax.nn.sigmoid(x_update + h_update)
    new = jnp.tanh(x_new + jax.nn.sigmoid(x_reset + h_reset) * h_new)
    return update * memory + (1.0 - update) * new


def heads(parameters: Parameters, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute ``log π(a|h)`` of all actions ``a``, and ``V(h)``. The memory ``h`` stands for all observations of the episode."""
    return jax.nn.log_softmax(parameters.actor(memory)), parameters.critic(memory)[..., 0]


def step(
    parameters: Parameters, memory: jax.Array, observation: jax.Array, episode_start: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Read one observation. Returns the memory after it, the log-probabilities of all actions, and the value."""
    memory = remember(parameters, memory, encode(parameters, observation), episode_start)
    return memory, *heads(parameters, memory)


def unroll(
    parameters: Parameters, memory: jax.Array, observation: jax.Array, episode_start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute what ``step`` computes, for the time steps of a sequence. Only the recurrence is a loop.

    Memory: the gradient flows back through this loop, to the start of the sequence or of the episode.
    """

    def next_memory(memory: jax.Array, x_and_start: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        memory = remember(parameters, memory, *x_and_start)
        return memory, memory

    _, memories = jax.lax.scan(next_memory, memory, (encode(parameters, observation), episode_start))
    return heads(parameters, memories)


def of_action(log_probs: jax.Array, action: jax.Array) -> jax.Array:
    """Select ``log π(a|h)`` of the actions that were taken."""
    return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]


# ---- Algorithm 1: "for actor = 1, 2, …, N: run policy π_old in environment for T timesteps" ----


class Actor(NamedTuple):
    """An environment between two steps, and the memory of the policy that acts in it."""

    state: Any
    observation: jax.Array
    episode_start: jax.Array  # whether this observation is the first one of an episode
    memory: jax.Array  # after the previous step; the next step resets it if an episode starts
    episode_return: jax.Array  # sum of the rewards of the running episode


class Transition(NamedTuple):
    """A step of an environment. In a rollout, each entry has the leading axes T and N."""

    observation: jax.Array  # s_t
    episode_start: jax.Array
    memory: jax.Array  # before the step
    action: jax.Array  # a_t
    log_prob: jax.Array  # log π_old(a_t|h_t), by the policy that acted
    value: jax.Array  # V(h_t)
    reward: jax.Array  # r_t
    next_value: jax.Array  # V(h_t+1); after the last step of an episode, the value of its final observation
    terminated: jax.Array  # the episode is over: nothing follows
    truncated: jax.Array  # the time limit has ended the episode: the task itself would go on
    episode_return: jax.Array  # sum of the rewards of this episode up to this step
    success: jax.Array  # whether the step reached the good goal


def reset(key: jax.Array) -> Actor:
    """Start an episode."""
    state, observation = ENV.reset(key, ENV_PARAMS)
    return Actor(state, observation, jnp.array(True), jnp.zeros(NUM_UNITS), jnp.zeros(()))


def act(parameters: Parameters, actor: Actor, key: jax.Array) -> tuple[Actor, Transition]:
    """Sample an action, step the environment, and reset it if the episode ends.

    Memory: the value of what follows, a final observation too, is computed with the memory after the step, without a reset.
    """
    key_action, key_step, key_reset = jax.random.split(key, 3)
    memory, log_probs, value = step(parameters, actor.memory, actor.observation, actor.episode_start)
    action = jax.random.categorical(key_action, log_probs)
    state, observation, reward, terminated, truncated, info = ENV.step(key_step, actor.state, action, ENV_PARAMS)
    _, _, next_value = step(parameters, memory, observation, jnp.array(False))
    continued = Actor(state, observation, jnp.array(False), memory, actor.episode_return + reward)
    before = (actor.observation, actor.episode_start, actor.memory)
    after = (reward, next_value, terminated, truncated, continued.episode_return, info["success"])
    transition = Transition(*before, action, of_action(log_probs, action), value, *after)
    return jax.tree.map(lambda a, b: jnp.where(terminated | truncated, a, b), reset(key_reset), continued), transition


def collect(key: jax.Array, parameters: Parameters, actors: Actor, num_steps: int = NUM_STEPS) -> tuple[Actor, Transition]:
    """Step all environments ``num_steps`` times."""

    def act_in_all(actors: Actor, key: jax.Array) -> tuple[Actor, Transition]:
        return jax.vmap(act, in_axes=(None, 0, 0))(parameters, actors, jax.random.split(key, len(actors.memory)))

    return jax.lax.scan(act_in_all, actors, jax.random.split(key, num_steps))


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
    """What the loss reads, as ``S`` sequences. Each entry has the leading axes S and L, but the memory has only S."""

    memory: jax.Array  # before the first step of the sequence
    observation: jax.Array
    episode_start: jax.Array
    action: jax.Array
    log_prob: jax.Array
    advantage: jax.Array
    target: jax.Array  # what the value is fitted to


def loss(parameters: Parameters, batch: Batch) -> jax.Array:
    """Compute the negative of equation 9, ``L^CLIP - c₁ L^VF + c₂ S``, of a minibatch of sequences."""
    unroll_all = jax.vmap(unroll, in_axes=(None, 0, 0, 0))
    log_probs, value = unroll_all(parameters, batch.memory, batch.observation, batch.episode_start)

    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    ratio = jnp.exp(of_action(log_probs, batch.action) - batch.log_prob)
    clipped_ratio = jnp.clip(ratio, 1 - CLIP_EPS, 1 + CLIP_EPS)
    surrogate = jnp.minimum(ratio * advantage, clipped_ratio * advantage).mean()  # equation 7

    value_loss = 0.5 * jnp.square(value - batch.target).mean()
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1).mean()
    return -(surrogate - VF_COEF * value_loss + ENT_COEF * entropy)


def split_sequences(x: jax.Array) -> jax.Array:
    """Cut time into contiguous sequences, ``T N ... -> S L ...`` with ``S = T/L · N``.

    Memory: an episode may start anywhere in a sequence, so that nothing is padded. ``x.reshape(S, L)`` would mix environments.
    """
    x = x.reshape((NUM_STEPS // SEQUENCE_LENGTH, SEQUENCE_LENGTH, NUM_ENVS, *x.shape[2:]))
    return x.swapaxes(1, 2).reshape((-1, SEQUENCE_LENGTH, *x.shape[3:]))


def make_batch(rollout: Transition) -> Batch:
    """Compute advantages and targets, and cut the rollout into sequences."""
    advantage = advantages(rollout.reward, rollout.value, rollout.next_value, rollout.terminated, rollout.truncated)
    inputs = (rollout.memory, rollout.observation, rollout.episode_start)
    batch = Batch(*inputs, rollout.action, rollout.log_prob, advantage, advantage + rollout.value)
    batch = jax.tree.map(split_sequences, batch)
    return batch._replace(memory=batch.memory[:, 0])


def learn(
    key: jax.Array, parameters: Parameters, optimizer_state: Any, rollout: Transition, remaining: jax.Array
) -> tuple[Parameters, Any]:
    """Learn from one rollout. ``remaining`` is the share of the training that is left: it scales the learning rate."""
    batch = make_batch(rollout)

    def gradient_step(carry: tuple[Parameters, Any], indices: jax.Array) -> tuple[tuple[Parameters, Any], None]:
        parameters, optimizer_state = carry
        gradient = jax.grad(loss)(parameters, jax.tree.map(lambda x: x[indices], batch))
        direction, optimizer_state = OPTIMIZER.update(gradient, optimizer_state)
        parameters = jax.tree.map(lambda p, d: p - LEARNING_RATE * remaining * d, parameters, direction)
        return (parameters, optimizer_state), None

    # Memory: whole sequences are shuffled, not single steps.
    epochs = jax.vmap(lambda k: jax.random.permutation(k, len(batch.memory)))(jax.random.split(key, NUM_EPOCHS))
    minibatches = epochs.reshape(NUM_EPOCHS * NUM_MINIBATCHES, -1)
    return jax.lax.scan(gradient_step, (parameters, optimizer_state), minibatches)[0]


# ---- Algorithm 1: "for iteration = 1, 2, …" ----


def train(key: jax.Array, num_updates: int) -> tuple[Parameters, jax.Array]:
    """Train. The function is pure: ``jit`` compiles the whole training, and ``vmap`` trains several seeds at once.

    Returns:
        The parameters, and for each update the mean return of the episodes that ended in its rollout; NaN if none did.
    """
    key_parameters, key_actors, key_updates = jax.random.split(key, 3)
    parameters = make_parameters(key_parameters)
    actors = jax.vmap(reset)(jax.random.split(key_actors, NUM_ENVS))
    start = (parameters, OPTIMIZER.init(parameters), actors)

    def update(carry: tuple[Parameters, Any, Actor], number: jax.Array) -> tuple[tuple[Parameters, Any, Actor], jax.Array]:
        parameters, optimizer_state, actors = carry
        key_collect, key_learn = jax.random.split(jax.random.fold_in(key_updates, number))
        actors, rollout = collect(key_collect, parameters, actors)
        parameters, optimizer_state = learn(key_learn, parameters, optimizer_state, rollout, 1 - number / num_updates)
        mean_return = jnp.mean(rollout.episode_return, where=rollout.terminated | rollout.truncated)
        return (parameters, optimizer_state, actors), mean_return

    (parameters, _, _), mean_returns = jax.lax.scan(update, start, jnp.arange(num_updates))
    return parameters, mean_returns


def evaluate(key: jax.Array, parameters: Parameters, episodes: int = 1000) -> tuple[jax.Array, jax.Array]:
    """Play one episode in each of ``episodes`` environments with sampled actions. Returns their returns and successes."""
    key_actors, key_steps = jax.random.split(key)
    actors = jax.vmap(reset)(jax.random.split(key_actors, episodes))
    _, played = collect(key_steps, parameters, actors, ENV_PARAMS.max_steps)
    first_end = jnp.argmax(played.terminated | played.truncated, axis=0)[None]
    episode_return, success = (jnp.take_along_axis(x, first_end, axis=0)[0] for x in (played.episode_return, played.success))
    return episode_return, success


def main(seed: int = 0, total_steps: int = 12_000) -> float:
    """Train, print the learning curve, evaluate, and return the success rate of the evaluation."""
    num_updates = total_steps // (NUM_STEPS * NUM_ENVS)
    key_train, key_evaluate = jax.random.split(jax.random.key(seed))
    parameters, mean_returns = jax.jit(train, static_argnames="num_updates")(key_train, num_updates)
    for number in range(4, num_updates + 1, 4):
        print(f"step {number * NUM_STEPS * NUM_ENVS:>7,}: return {jnp.nanmean(mean_returns[number - 4 : number]):.2f}")
    returns, successes = jax.jit(evaluate)(key_evaluate, parameters)
    print(f"evaluated: return {returns.mean():.2f}, success {successes.mean():.1%}")
    return float(successes.mean())


if __name__ == "__main__":
    main()
