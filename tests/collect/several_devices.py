"""Measurements on eight virtual CPU devices, printed as one JSON object. ``test_devices.py`` runs this file in a separate process.

    python several_devices.py PART ...

The reference of an update on D devices is the update on one device that draws its minibatches in the same D groups of environments.
"""

import contextlib
import dataclasses
import functools
import json
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

import proximo

import jax  # isort: skip  (after proximo, which sets the number of threads)
import jax.numpy as jnp

from commands import final_state
from proximo.collect import make_functions, program_cache
from proximo.collect.environment import environment
from proximo.config import override
from proximo.config.custom import Custom
from proximo.jax_setup import prepare_jax
from proximo.math.shuffling import permutation
from proximo.ppo import algorithm, loss, minibatches, rollout_processing
from proximo.ppo.hyperparameters import StaticSettings
from proximo.ppo.optimizer import split_policy
from proximo.storage import checkpoint
from proximo.tracking.reporter import Reporter
from proximo.training.backends import make_backend

import gym_toys
import toys
from helpers import small_config

EPOCHS, MINIBATCHES, ENVS, STEPS = 2, 4, 8, 16
COMMON = {
    "num_envs": ENVS, "num_steps": STEPS, "num_epochs": EPOCHS, "num_minibatches": MINIBATCHES, "learning_rate": 1e-3,
    "optimizer_settings": {"eps": 1e-3}, "normalize_observation": True, "normalize_reward": True, "normalize_advantage": "minibatch",
}  # fmt: skip


def weight_penalty(policy, minibatch):
    """A loss that is the same number on all devices without a mean over them."""
    return 1e-2 * sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(split_policy(policy)[0])), {}


CASES = {
    "mlp": {"desired_kl": 0.01, "extra_loss": Custom(weight_penalty)},
    "gru": {"memory": "gru", "sequence_length": 4, "burn_in": 2, "refresh_memory": True, "target_kl": 4e-6},
}
DEVICES = {"mlp": 4, "gru": 2}
ID, TOTAL = "toys:RandomEnds", 4 * ENVS * STEPS
SETTINGS = {**COMMON, "hidden_sizes": 8, "eval_episodes": 0, "updates_per_call": 2, "total_steps": TOTAL}


def mesh_of(count):
    return jax.make_mesh((count,), ("envs",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:count])


def grouped_indices(groups, key, sequences, num_minibatches):
    """``minibatch_indices`` of one device that draws from ``groups`` groups of environments, each with the key of its device."""
    size = ENVS // groups

    def of_group(group):
        of_device = permutation(jax.random.fold_in(key, group), sequences // groups)
        return (of_device // size * ENVS + group * size + of_device % size).reshape(num_minibatches, -1)

    return jnp.concatenate([of_group(group) for group in range(groups)], axis=1)


def grouped(groups):
    return mock.patch.object(algorithm, "minibatch_indices", functools.partial(grouped_indices, groups))


@functools.cache
def prepared(case):
    """The settings of a case, a state, and a rollout with unequal numbers of valid steps on the devices."""
    config = small_config(**COMMON, **CASES[case])
    functions = make_functions(config, toys.RandomEnds())
    state = jax.jit(functions.init)(jax.random.key(1))
    _, rollout, _ = jax.eval_shape(functions.collect, state)
    generator = np.random.default_rng(2)

    def draw(x):
        if x.dtype == bool:
            return jnp.asarray(generator.random(x.shape) < 0.2)
        drawn = generator.integers(0, 2, x.shape) if jnp.issubdtype(x.dtype, jnp.integer) else generator.normal(size=x.shape)
        return jnp.asarray(drawn, x.dtype)

    rollout = jax.tree.map(draw, rollout)
    valid = jnp.asarray(generator.random((STEPS, ENVS)) < np.linspace(0.3, 1.0, ENVS))
    # The first policy is nearly uniform over two actions.
    log_prob = jnp.full_like(rollout.log_prob, np.log(0.5))
    truncated = rollout.truncated & ~rollout.terminated
    return config, state, dataclasses.replace(rollout, valid=valid, log_prob=log_prob, truncated=truncated)


@functools.cache
def reference(case):
    config, state, rollout = prepared(case)
    with grouped(DEVICES[case]):
        return jax.device_get(jax.jit(make_functions(config, toys.RandomEnds()).update)(state, rollout))


def of_parameters(policy, expected):
    """The largest difference of two parameters, relative to the largest parameter."""
    a, b = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(split_policy(p)[0])]) for p in (policy, expected))
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def of_arrays(tree, expected):
    """The largest difference in an array, relative to the largest number of this array."""
    pairs = zip(*(map(np.asarray, jax.tree.leaves(jax.device_get(x))) for x in (tree, expected)), strict=True)
    return max(float(np.max(np.abs(a - b.astype(float))) / max(np.max(np.abs(b)), 1e-6)) for a, b in pairs)


def difference_of_metrics(metrics, expected):
    """The largest difference of a metric, relative to its size or to 1; infinity if the names differ."""
    values = [(float(metrics[name]), float(x)) for name, x in expected.items() if x is not None and np.isfinite(x)]
    return max(abs(x - y) / max(1.0, abs(y)) for x, y in values) if metrics.keys() == expected.keys() else np.inf


def compared(case, mistake=None):
    """How far the update on several devices is from its reference."""
    config, state, rollout = prepared(case)
    with mistake or contextlib.nullcontext():
        learned, metrics = jax.jit(make_functions(config, toys.RandomEnds(), mesh=mesh_of(DEVICES[case])).update)(state, rollout)
    expected, expected_metrics = reference(case)
    one, other = (dataclasses.replace(s.learner, policy=s.learner.policy.normalizer, key=None) for s in (learned, expected))
    return {
        "policy": of_parameters(learned.learner.policy, expected.learner.policy),
        "learner": of_arrays(one, other),
        "metrics": difference_of_metrics(metrics, expected_metrics),
        "gradient_steps": float(metrics["train/gradient_steps"]),
    }


def alone(function):
    """``function`` with the sums of one device."""

    def local(*arguments):
        with (
            mock.patch("proximo.math.masked_statistics.total", lambda x: x),
            mock.patch("proximo.math.running_statistics.total", lambda x: x),
        ):
            return function(*arguments)

    return local


def mistakes():
    """Reductions that are local by mistake, each with the case that it must change."""
    normalized, with_observations = minibatches.normalized, rollout_processing.with_observations
    ratio_metrics = loss.ratio_metrics

    def with_local_kl(minibatch):
        return {**ratio_metrics(minibatch), "approx_kl": alone(ratio_metrics)(minibatch)["approx_kl"]}

    return {
        "advantages": ("mlp", mock.patch.object(minibatches, "normalized", alone(normalized))),
        "observations": ("mlp", mock.patch.object(rollout_processing, "with_observations", alone(with_observations))),
        "kl": ("gru", mock.patch.object(loss, "ratio_metrics", with_local_kl)),
    }


def updates():
    found = {case: compared(case) for case in CASES}
    return {**found, **{name: compared(case, mistake) for name, (case, mistake) in mistakes().items()}}


def local_loss():
    """An update whose custom loss is the mean over the steps of one device."""
    _, state, rollout = prepared("mlp")

    def mean_here(policy, minibatch):
        squared = jnp.square(minibatch.new_value)
        return jnp.mean(squared), {"here": jnp.mean(squared), "everywhere": minibatch.mean(jnp.square(minibatch.advantage))}

    config = small_config(**COMMON, **{**CASES["mlp"], "extra_loss": Custom(mean_here)})
    learner = dataclasses.replace(state.learner, static=StaticSettings.of(config))
    state = dataclasses.replace(state, learner=learner)
    update = make_functions(config, toys.RandomEnds(), mesh=mesh_of(2)).update
    state, metrics = jax.jit(update)(state, rollout)
    nan = {name: bool(jnp.isnan(metrics[f"train/{name}"])) for name in ("here", "everywhere")}
    return {"healthy": bool(state.healthy), **nan}


def seeds_axis():
    """Two seeds under ``vmap`` on two devices that divide their environments: a rollout and an update of the first, beside two others."""
    config = small_config(**COMMON, **CASES["mlp"])
    init, collect, update = make_functions(config, toys.RandomEnds(), seeds_axis=True, mesh=mesh_of(2))

    @functools.partial(jax.vmap, axis_name="seeds")
    def learn(key):
        state, rollout, episodes = collect(init(key))
        state, metrics = update(state, rollout)
        return split_policy(state.learner.policy)[0], {**episodes, **metrics}, rollout.observation

    keys = jax.random.split(jax.random.key(3), 3)
    *made, observation = zip(*map(jax.jit(learn), (keys[:2], keys[::2])), strict=True)
    first, second = ([jax.tree.map(lambda x, n=n: x[n], pair) for pair in zip(*made, strict=True)] for n in range(2))
    return {"same": of_arrays(*first), "others": of_arrays(*second), "devices": len(observation[0].devices())}


def learned(env, count, groups=0, **more):
    """An agent after a training; with ``groups``, on one device that draws from so many groups."""
    with grouped(groups) if groups else contextlib.nullcontext():
        agent = proximo.PPO(env, devices=count, preset=False, verbose=0, **SETTINGS, **more).learn(TOTAL)
    if groups:
        program_cache._kept.clear()  # its program draws other minibatches than its settings say
    return agent


def trainings():
    """Whole trainings, with collecting and the metrics of episodes, on four devices."""
    found = {}
    for name, env, more in (("gymnasium", gym_toys.Walk, {"num_workers": 0}), ("jax", ID, {})):
        agents = learned(env, 1, groups=4, **more), learned(env, 4, **more)
        rows = [{key: x for key, x in agent.history[-1].items() if not key.startswith("time/")} for agent in agents]
        found[name] = {
            "policy": of_parameters(*(agent.policy.actor_critic for agent in reversed(agents))),
            "metrics": difference_of_metrics(*reversed(rows)),
            "learns_on": len(agents[1]._current_state().healthy.devices()),
            "acts_on": len(jax.tree.leaves(agents[1].policy.actor_critic)[0].devices()),
        }
    return found


def runs(counts=(4, 1), **more):
    """A run on four devices that is resumed from its second update, on the same number and on others."""
    messages, found = [], {}

    class Messages(Reporter):
        def warned(self, message):
            messages.append(message)

    with tempfile.TemporaryDirectory() as folder:
        settings = {**SETTINGS, "checkpoint_every": TOTAL // 2, "tensorboard": False, "runs_dir": folder, "name": "whole", **more}
        [result] = proximo.train(ID, preset=False, devices=4, **settings)
        for count in counts:
            run_dir = shutil.copytree(result.run_dir, Path(folder) / f"on-{count}")
            proximo.resume(f"{run_dir}@{TOTAL // 2}", devices=count, reporter=Messages())
            found[str(count)] = {
                "bit for bit": final_state(run_dir) == final_state(result.run_dir),
                "step": checkpoint.steps(run_dir / "checkpoints")[-1],
                "warnings": [message for message in messages if message.startswith("devices")],
            }
            messages.clear()
    return found


def more_runs():
    return runs((1, 2, 8), histograms=True)


def environments():
    """An agent on four devices that changes from a JAX environment to a Gymnasium environment and back, and is saved and loaded."""
    agent, twin = learned("toys:Counting", 4), gym_toys.Countdown
    for env in (twin, toys.Counting(), twin):
        agent.set_env(env).learn(TOTAL)
    with tempfile.TemporaryDirectory() as folder:
        loaded = proximo.load(agent.save(Path(folder) / "agent"), env=twin)
    return {"steps": agent.step, "loaded": of_parameters(loaded.policy.actor_critic, agent.policy.actor_critic)}


def seeds():
    """Two seeds in one program, divided over two devices, and their environments over four; compared with the first seed alone."""
    found = {}
    for count, alone_on in ((2, 1), (4, 4)):
        config = override(learned(ID, alone_on).config, {"devices": count})
        backend = make_backend(config, environment(config), stacked=True)
        state = backend.prepare(functools.partial(backend.start, [0, 3]), 2)
        for _ in range(2):
            state, _ = backend.advance(state, 2)
        policy = backend.seed_state(state, 0).learner.policy
        found[str(count)] = {
            "difference": of_parameters(policy, learned(ID, alone_on).policy.actor_critic),
            "axes": str(state.healthy.sharding.spec),
        }
    # Two devices cannot share nine environments, but two seeds, also when they are resumed.
    with tempfile.TemporaryDirectory() as folder:
        odd = {**SETTINGS, "num_envs": 9, "total_steps": 9 * STEPS, "runs_dir": folder, "seeds": 2, "devices": 2}
        first = proximo.train(ID, preset=False, progress=False, **odd)
        resumed = proximo.resume(first[0].run_dir.parent, total_steps=2 * 9 * STEPS, progress=False)
        found["resumed"] = [result.steps for result in resumed]
    return found


PARTS = {part.__name__: part for part in (updates, local_loss, seeds_axis, trainings, runs, more_runs, seeds, environments)}


def main(parts):
    jax.config.update("jax_enable_x64", True)
    prepare_jax()
    print(json.dumps({part: PARTS[part]() for part in parts}))


if __name__ == "__main__":
    main(sys.argv[1:])
