"""Vector environments of toys, and functions to step them."""

import functools

import gymnasium as gym

from proximo.envs.gymnasium.environment import from_factory, from_vector
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.rollout_buffer import BufferLayout
from proximo.envs.gymnasium.stepper import EnvironmentSpec
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.envs.gymnasium.workers import WorkerVectorEnvironment
from proximo.spaces import from_any

MODES = ("NextStep", "SameStep", "Disabled")
IN_PROCESS = "in process"


def spec_of(env):
    return EnvironmentSpec("toy", from_any(env.observation_space, "observation"), from_any(env.action_space, "action"))


def in_process(make, num_envs=3, num_steps=40, groups=1, stagger=0, **preprocessing):
    options = VectorOptions(num_workers=0, num_groups=groups, stagger_steps=stagger)
    return from_factory(make, "toy", Preprocessing(**preprocessing)).open(num_envs, num_steps, options)


def with_workers(make, num_workers, num_envs=4, num_steps=40, groups=1, stagger=0, env=None, **options):
    spec = spec_of(env or make())
    layout = BufferLayout(num_steps, num_envs, spec.observation_space, spec.action_space)
    options = VectorOptions(num_workers=num_workers, num_groups=groups, stagger_steps=stagger, **options)
    return WorkerVectorEnvironment(make, layout, spec, options)


def vectorized(make, mode, num_envs=3, num_steps=40, **preprocessing):
    def sync(num_envs):
        return gym.vector.SyncVectorEnv([make] * num_envs, autoreset_mode=gym.vector.AutoresetMode(mode))

    return from_vector(sync, "toy", Preprocessing(**preprocessing)).open(num_envs, num_steps, VectorOptions())


def opened(make, mode, num_envs=3, num_steps=40, **preprocessing):
    """Environments that are stepped one by one in this process, or as a ``SyncVectorEnv`` in one of ``MODES``."""
    function = in_process if mode == IN_PROCESS else functools.partial(vectorized, mode=mode)
    return function(make, num_envs=num_envs, num_steps=num_steps, **preprocessing)


def rollout(vector_env, actions=0, seed=0, reset=True):
    """Fill the rollout buffer with ``actions`` (T N ...), and return it."""
    buffer = vector_env.buffer
    if reset:
        vector_env.reset(seed)
    else:
        buffer.begin_again()
    buffer.clear()
    buffer.action[:] = actions
    for t in range(len(buffer.action)):
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
