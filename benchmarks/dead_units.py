"""Units of a CNN that are 0 for every image: no gradient reaches their weights.

    python benchmarks/dead_units.py RUN ... [--steps 1000] [--out dead_units.json]

Plays games with sampled actions, and passes every tenth image of 8 environments through the layers. A channel of a convolution is dead if it is 0
at all positions of all images. The images of the first run serve for all runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import proximo

import jax  # isort: skip  (after proximo, which sets the number of threads)
import jax.numpy as jnp

from proximo.networks.image_encoders import ImageEncoder

NUM_ENVS, EVERY = 8, 10


def images(agent: proximo.PPO, steps: int) -> np.ndarray:
    """Observations of games in which ``agent`` samples its actions."""
    env = agent.env.make_vector(NUM_ENVS)
    observation, _ = env.reset(seed=0)
    kept = []
    for step in range(steps):
        if step % EVERY == 0:
            kept.append(np.array(observation))
        action, _ = agent.predict(observation, deterministic=False)
        observation, *_ = env.step(np.asarray(action))
    env.close()
    return np.concatenate(kept)


def layers(agent: proximo.PPO, x: np.ndarray) -> list[np.ndarray]:
    """The outputs of the convolutions and of the dense layer, after their ReLU."""

    def is_encoder(node: object) -> bool:
        return isinstance(node, ImageEncoder)

    (encoder,) = filter(is_encoder, jax.tree.leaves(agent.policy.actor_critic, is_leaf=is_encoder))
    y = jnp.asarray(x).transpose((0, *(1 + axis for axis in encoder.axes)))
    y = y.reshape((*y.shape[:3], -1))
    outputs = []
    for number, convolution in enumerate(encoder.convolutions):
        y = convolution(y, scale=encoder.scale) if number == 0 else convolution(y)
        outputs.append(np.asarray(y, np.float32))
    dense = jax.nn.relu(encoder.dense(y.reshape((len(x), -1))))
    return [*outputs, np.asarray(dense, np.float32)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run directories, or checkpoints as RUN@STEP")
    parser.add_argument("--steps", type=int, default=1000, help="steps of the games")
    parser.add_argument("--out", type=Path, help="JSON file of the counts")
    arguments = parser.parse_args()
    found, x = {}, None
    for run in arguments.runs:
        agent = proximo.load(run)
        x = images(agent, arguments.steps) if x is None else x
        outputs = layers(agent, x)
        dead = [int(np.sum(np.max(y, axis=tuple(range(y.ndim - 1))) <= 0)) for y in outputs]
        name = f"{'/'.join(Path(run.partition('@')[0]).parts[-3:])}, {agent.step:,} steps"
        found[name] = [f"{count} of {y.shape[-1]}" for count, y in zip(dead, outputs, strict=True)]
        print(f"{name}: {', '.join(found[name])}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps({"images": len(x), "dead units of each layer": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
