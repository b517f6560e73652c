"""Counts the dead units of the nature CNN: those whose output is 0 on all recorded images.

    python benchmarks/dead_units.py RUN ... [--steps 1000] [--out dead_units.json]

Each policy plays games in 8 environments with sampled actions, and every tenth image is recorded. A channel of a convolution is one unit: it is dead
if it is 0 at all positions of all images. Everything is computed in float32.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import proximo

import jax  # isort: skip  (after proximo, which sets the number of threads)
import jax.numpy as jnp

from measurements import circumstances
from proximo.networks.image_encoders import NatureCNN

NUM_ENVS = 8
RECORD_EVERY = 10
"""Steps from one recorded image to the next."""


def images(agent: proximo.PPO, steps: int) -> np.ndarray:
    """Observations of games in which ``agent`` samples its actions."""
    env = agent.env.make_vector(NUM_ENVS)
    observation, _ = env.reset(seed=0)
    recorded = []
    for step in range(steps):
        if step % RECORD_EVERY == 0:
            recorded.append(np.array(observation))
        action, _ = agent.predict(observation, deterministic=False)
        observation, *_ = env.step(np.asarray(action))
    env.close()
    return np.concatenate(recorded)


def encoder_of(agent: proximo.PPO) -> NatureCNN:
    """The CNN that policy and value function share."""
    nodes = jax.tree.leaves(agent.policy.actor_critic, is_leaf=lambda node: isinstance(node, NatureCNN))
    encoders = [node for node in nodes if isinstance(node, NatureCNN)]
    if len(encoders) != 1 or encoders[0].dense is None or encoders[0].norm is not None:
        sys.exit(f"{agent}: expected one nature_cnn with a dense layer and without layer_norm.")
    return encoders[0]


def layers(encoder: NatureCNN, x: np.ndarray) -> list[np.ndarray]:
    """The outputs of the three convolutions and of the dense layer, after their ReLU."""
    y = jnp.asarray(x).transpose((0, *(1 + axis for axis in encoder.axes)))
    y = y.reshape((*y.shape[:3], -1))
    outputs = []
    for number, convolution in enumerate(encoder.convolutions):
        y = convolution(y, scale=encoder.scale) if number == 0 else convolution(y)
        outputs.append(y)
    outputs.append(jax.nn.relu(encoder.dense(y.reshape((len(x), -1)))))
    return [np.asarray(output) for output in outputs]


def dead_units(output: np.ndarray) -> int:
    """The number of units, along the last axis, that are 0 everywhere."""
    return int(np.sum(np.max(output, axis=tuple(range(output.ndim - 1))) <= 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run directories, or checkpoints as RUN@STEP")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each environment")
    parser.add_argument("--out", type=Path, help="JSON file of the counts")
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs:
        agent = proximo.load(run)
        outputs = layers(encoder_of(agent), images(agent, arguments.steps))
        name = "/".join(Path(run.partition("@")[0]).parts[-3:])
        row = {"run": name, "step": agent.step, "dead": [dead_units(y) for y in outputs], "units": [y.shape[-1] for y in outputs]}
        rows.append(row)
        print(f"{name}, {agent.step:,} steps: {row['dead']} of {row['units']}", flush=True)
    if arguments.out:
        found = {"script": "benchmarks/dead_units.py", **circumstances(), "steps": arguments.steps, "rows": rows}
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
