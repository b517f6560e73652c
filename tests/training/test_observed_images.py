import pytest

import proximo
from proximo.rendering.pictures import reads_images
from proximo.spaces import Box, Discrete
from proximo.tracking.tracker import Image
from proximo.training.seed_run import InMemoryRows

import gym_toys
import toys
from helpers import small_policy


@pytest.mark.parametrize(
    ("env", "name", "size"),
    [
        (toys.AnySpaces(Box((5, 6, 3), 0.0, 255.0, "uint8"), Discrete(2)), "observations", (5, 6)),
        (gym_toys.Parts, "observations/camera", (40, 40)),
    ],
)
def test_trackers_see_an_image_that_the_policy_reads_once(env, name, size, monkeypatch):
    shown = []

    def write(tracker, step, values):
        shown.extend((step, name, x.pixels) for name, x in values.items() if isinstance(x, Image))

    monkeypatch.setattr(InMemoryRows, "write", write)
    settings = {"num_envs": 2, "num_steps": 4, "num_minibatches": 1, "num_epochs": 1, "eval_episodes": 0, "updates_per_call": 1}
    settings |= {"encoder": "small_cnn", "cnn_features": 4, "hidden_sizes": 4, "towers": "shared"}
    agent = proximo.PPO(env, preset=False, num_workers=0 if env is gym_toys.Parts else -1, **settings)
    assert not reads_images(small_policy(Box((3,))))
    agent.learn(16)
    agent.learn(16)
    assert [(step, which, image.shape) for step, which, image in shown] == [(8, name, (*size, 3))]
    assert all(image.std() > 10 for *_, image in shown)
