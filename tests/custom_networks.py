"""Custom networks and losses as users write them, without a base class of proximo."""

import subprocess  # noqa: F401  (as a user's module may)
from subprocess import getoutput  # noqa: F401

import equinox as eqx
import jax
import jax.numpy as jnp

UNITS = 6


class Encoder(eqx.Module):
    """Reads a vector, or the parts of a dict."""

    layers: list
    activation: object

    def __init__(self, key, space):
        size = sum(jax.tree.leaves(space.size if hasattr(space, "size") else [part.size for _, part in space.spaces]))
        keys = jax.random.split(key)
        self.layers = [eqx.nn.Linear(size, 8, key=keys[0]), eqx.nn.Linear(8, UNITS, key=keys[1])]
        self.activation = jnp.tanh

    def __call__(self, x):
        x = jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(x)])
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


class Memory(eqx.Module):
    cell: eqx.nn.GRUCell

    def __init__(self, key, in_size):
        self.cell = eqx.nn.GRUCell(in_size, UNITS, key=key)

    def init(self):
        return jnp.zeros(UNITS)

    def step(self, state, x):
        state = self.cell(x, state)
        return state, state


class Decay(eqx.Module):
    """A state that decays, with its own ``unroll``."""

    weight: jax.Array

    def __init__(self, key, in_size):
        self.weight = jax.random.normal(key, (in_size, UNITS)) / in_size

    def init(self):
        return jnp.ones(UNITS)

    def step(self, state, x):
        state = 0.5 * state + x @ self.weight
        return state, jnp.tanh(state)

    def unroll(self, state, x, episode_start, valid):
        def step(state, inputs):
            x, episode_start, valid = inputs
            before = jnp.where(episode_start, self.init(), state)
            after, out = self.step(before, x)
            return jnp.where(valid, after, before), out

        return jax.lax.scan(step, state, (x, episode_start, valid))


class ForgetfulDecay(Decay):
    """Its ``unroll`` does not reset."""

    def unroll(self, state, x, episode_start, valid):
        return super().unroll(state, x, jnp.zeros_like(episode_start), valid)


class Actor(eqx.Module):
    layer: eqx.nn.Linear

    def __init__(self, key, in_size, out_size):
        self.layer = eqx.nn.Linear(in_size, out_size, key=key)

    def __call__(self, features):
        return 0.1 * self.layer(features)


class Critic(Actor):
    def __init__(self, key, in_size):
        self.layer = eqx.nn.Linear(in_size, "scalar", key=key)


class Whole(eqx.Module):
    """An actor-critic in one."""

    encoder: Encoder
    actor: Actor
    critic: Critic

    def __init__(self, key, space, out_size):
        keys = jax.random.split(key, 3)
        self.encoder = Encoder(keys[0], space)
        self.actor, self.critic = Actor(keys[1], UNITS, out_size), Critic(keys[2], UNITS)

    def __call__(self, observation):
        features = self.encoder(observation)
        return self.actor(features), self.critic(features)


class WholeWithMemory(eqx.Module):
    whole: Whole
    memory: Memory

    def __init__(self, key, space, out_size):
        keys = jax.random.split(key)
        self.whole, self.memory = Whole(keys[0], space, out_size), Memory(keys[1], UNITS)

    def init(self):
        return self.memory.init()

    def step(self, state, observation):
        state, features = self.memory.step(state, self.whole.encoder(observation))
        return state, self.whole.actor(features), self.whole.critic(features)


class Laplace(eqx.Module):
    """Independent Laplace components within bounds, with a scale that is learned."""

    log_scale: jax.Array
    size: int
    low: tuple
    high: tuple

    def __init__(self, space):
        low, high = space.bounds()
        self.log_scale, self.size = jnp.full(space.size, -1.0), space.size
        self.low, self.high = tuple(low.ravel().tolist()), tuple(high.ravel().tolist())

    @property
    def num_parameters(self):
        return self.size

    def sample(self, parameters, key):
        return parameters + jnp.exp(self.log_scale) * jax.random.laplace(key, (self.size,))

    def mode(self, parameters):
        return parameters

    def log_prob(self, parameters, action):
        return jnp.sum(-jnp.abs(action - parameters) * jnp.exp(-self.log_scale) - self.log_scale - jnp.log(2.0))

    def entropy(self, parameters):
        return jnp.sum(1.0 + self.log_scale + jnp.log(2.0))

    def to_space(self, action):
        return jnp.clip(action, jnp.array(self.low), jnp.array(self.high))


class Choice(eqx.Module):
    """A categorical distribution. With a ``temperature`` other than 1, used in ``log_prob`` alone, its probabilities do not add up to 1."""

    num_parameters: int
    start: int
    temperature = 1.0

    def __init__(self, space):
        self.num_parameters, self.start = space.n, space.start

    def sample(self, parameters, key):
        return jax.random.categorical(key, parameters)

    def mode(self, parameters):
        return jnp.argmax(parameters)

    def log_prob(self, parameters, action):
        return jax.nn.log_softmax(parameters)[action] / self.temperature

    def entropy(self, parameters):
        log = jax.nn.log_softmax(parameters)
        return -jnp.sum(jnp.exp(log) * log)

    def to_space(self, action):
        return action + self.start


def simple_policy_optimization(policy, minibatch):
    """Simple Policy Optimization, Xie et al. 2024."""
    a = minibatch.advantage
    penalty = jnp.abs(a) / (2.0 * minibatch.clip_eps) * jnp.square(minibatch.ratio - 1.0)
    return minibatch.mean(penalty - minibatch.ratio * a), {"penalty": minibatch.mean(penalty)}


def no_loss(policy, minibatch):
    return jnp.zeros(()), {}


def of_each_row(policy, minibatch):
    return minibatch.advantage, {}


def named_like_ours(policy, minibatch):
    return jnp.zeros(()), {"entropy": jnp.zeros(())}


@eqx.filter_jit
def compiled(policy, minibatch):
    return jnp.zeros(()), {}


class Outer:
    class Inner(Encoder):
        pass


PARTS = {"encoder": Encoder, "memory": Decay, "actor": Actor, "critic": Critic, "distribution": Choice}
EVERYTHING = {**PARTS, "observe_action": True}
NETWORKS = {
    "encoder of a dict": {"encoder": Encoder},
    "memory": {"memory": Memory},
    "memory with unroll": {"memory": Decay},
    "memory carried over": {"memory": Memory, "reset_memory": False},
    "actor and critic": {"actor": Actor, "critic": Critic, "towers": "separate"},
    "whole": {"actor_critic": Whole, "towers": "separate"},
    "whole with memory": {"actor_critic": WholeWithMemory, "towers": "separate"},
    "everything": EVERYTHING,
}
"""Settings by name."""
