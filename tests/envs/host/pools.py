"""Pools of toy environments, stepped by hand."""

import functools

import gymnasium as gym
import numpy as np

from proximo.envs.host.block import Rules
from proximo.envs.host.pool import InProcess
from proximo.envs.host.slab import Layout
from proximo.envs.host.vector import VectorPool
from proximo.envs.host.workers import Workers
from proximo.spaces import from_any


def layout_of(env, num_steps, num_envs, count=1):
    return Layout(
        num_steps, num_envs, from_any(env.observation_space, "observation"), from_any(env.action_space, "action"), count
    )


def rules_of(env, **rules):
    return Rules("toy", from_any(env.observation_space, "observation"), **rules)


def in_process(make, num_envs=3, num_steps=40, groups=1, stagger=0, **rules):
    env = make()
    return InProcess(make, layout_of(env, num_steps, num_envs), rules_of(env, **rules), groups, stagger)


def with_workers(make, num_workers, num_envs=4, num_steps=40, groups=1, stagger=0, options=None, env=None, **rules):
    env = env or make()
    layout = layout_of(env, num_steps, num_envs)
    return Workers(make, layout, rules_of(env, **rules), num_workers, groups, stagger, **(options or {}))


def vectorised(make, mode, num_envs=3, num_steps=40, **rules):
    env = make()
    make_vector = functools.partial(sync, make, mode)
    return VectorPool(
        make_vector, layout_of(env, num_steps, num_envs), rules_of(env, **rules), from_any(env.action_space, "action")
    )


def sync(make, mode, num_envs):
    return gym.vector.SyncVectorEnv([make] * num_envs, autoreset_mode=gym.vector.AutoresetMode(mode))


def rollout(pool, actions, seed=0, reset=True):
    """All steps of the first slab with ``actions`` (T N ...); the slab."""
    slab = pool.slabs[0]
    if reset:
        pool.reset(0, seed)
    else:
        slab.begin_after(slab)
    slab.clear()
    slab.action[:] = actions
    for t in range(len(actions)):
        for group in range(len(pool.groups)):
            pool.send(0, t, group)
        for group in range(len(pool.groups)):
            pool.receive(0, t, group)
    return slab


def lanes(slab):
    """For each environment its rows that are not fillers, as a list of what the learner reads of them."""
    steps, envs = slab.reward.shape
    done = slab.terminated | slab.truncated
    return [
        [
            (
                tuple(leaf[t, i].tobytes() for leaf in slab.observation),
                bool(slab.first[t, i]), slab.action[t, i].tobytes(), float(slab.reward[t, i]),
                bool(slab.terminated[t, i]), bool(slab.truncated[t, i]), int(slab.success[t, i]) if done[t, i] else None,
            )
            for t in range(steps)
            if not slab.filler[t, i]
        ]
        for i in range(envs)
    ]  # fmt: skip


def copied(slab):
    """The arrays of a slab as they are now."""
    return {name: np.copy(getattr(slab, name)) for name in ("first", "action", "reward", "terminated", "truncated", "filler")} | {
        f"observation{k}": leaf.copy() for k, leaf in enumerate(slab.observation)
    }
