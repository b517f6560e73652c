"""Vector environments of toys, and functions to step them."""

import functools

import gymnasium as gym
import numpy as np

from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.stepper import EnvironmentSpec, Stepper
from proximo.envs.gymnasium.vector_env_adapter import VectorStepper
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, VectorOptions
from proximo.envs.gymnasium.workers import WorkerVectorEnvironment
from proximo.spaces import from_any


def spec_of(env, **spec):
    return EnvironmentSpec("toy", from_any(env.observation_space, "observation"), from_any(env.action_space, "action"), **spec)


def in_process(make, num_envs=3, num_steps=40, groups=1, stagger=0, **spec):
    spec = spec_of(make(), **spec)
    layout = BufferLayout(num_steps, num_envs, spec.observation_space, spec.action_space)
    options = VectorOptions(num_groups=groups, stagger_steps=stagger)
    return VectorEnvironment(lambda columns: Stepper(make, columns, spec), layout, options, "in this process")


def with_workers(make, num_workers, num_envs=4, num_steps=40, groups=1, stagger=0, options=None, env=None, **spec):
    spec = spec_of(env or make(), **spec)
    layout = BufferLayout(num_steps, num_envs, spec.observation_space, spec.action_space)
    options = VectorOptions(num_workers=num_workers, num_groups=groups, stagger_steps=stagger, **(options or {}))
    return WorkerVectorEnvironment(make, layout, spec, options)


def vectorized(make, mode, num_envs=3, num_steps=40, **spec):
    spec = spec_of(make(), **spec)
    layout = BufferLayout(num_steps, num_envs, spec.observation_space, spec.action_space)
    make_vector = functools.partial(sync, make, mode)
    return VectorEnvironment(lambda columns: VectorStepper(make_vector, columns, spec), layout, VectorOptions(), "in its own")


def sync(make, mode, num_envs):
    return gym.vector.SyncVectorEnv([make] * num_envs, autoreset_mode=gym.vector.AutoresetMode(mode))


def rollout(vector_env, actions, seed=0, reset=True):
    """Fill the rollout buffer with ``actions`` (T N ...), and return it."""
    buffer = vector_env.buffer
    if reset:
        vector_env.reset(seed)
    else:
        buffer.begin_again()
    buffer.clear()
    buffer.action[:] = actions
    for t in range(len(actions)):
        for group in range(len(vector_env.groups)):
            vector_env.send(t, group)
        for group in range(len(vector_env.groups)):
            vector_env.receive(t, group)
    return buffer


def lanes(buffer):
    """List the valid transitions of each environment, as the learner reads them."""
    steps, envs = buffer.reward.shape
    done = buffer.terminated | buffer.truncated
    return [
        [
            (
                tuple(leaf[t, i].tobytes() for leaf in buffer.observation),
                bool(buffer.episode_start[t, i]), buffer.action[t, i].tobytes(), float(buffer.reward[t, i]),
                bool(buffer.terminated[t, i]), bool(buffer.truncated[t, i]), int(buffer.success[t, i]) if done[t, i] else None,
            )
            for t in range(steps)
            if buffer.valid[t, i]
        ]
        for i in range(envs)
    ]  # fmt: skip


def copied(buffer):
    """Copy the arrays of a rollout buffer."""
    return {
        name: np.copy(getattr(buffer, name)) for name in ("episode_start", "action", "reward", "terminated", "truncated", "valid")
    } | {f"observation{k}": leaf.copy() for k, leaf in enumerate(buffer.observation)}
