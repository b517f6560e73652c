import jax
import pytest

from proximo.networks import make_policy
from proximo.settings import make_config
from proximo.spaces import Box, Discrete
from proximo.training.backends import make_backend
from proximo.training.run_summary import describe_devices, describe_network, describe_preprocessing, run_summary

from helpers import small_config
from toys import RandomEnds

SEPARATE = "separate towers for policy and value"
SHARED = "one tower for policy and value"
IMAGE = Box((36, 36, 1), 0.0, 255.0, "uint8")


@pytest.mark.parametrize(
    ("space", "settings", "text"),
    [
        (Box((3,)), {}, f"MLP 8 tanh, {SHARED}"),
        (Box((3,)), {"hidden_sizes": "none", "towers": "separate"}, f"linear, {SEPARATE}"),
        (Box((3,)), {"hidden_sizes": "none", "memory": "gru"}, f"gru 8×1, {SHARED}"),
        (Box((3,)), {"critic_hidden_sizes": "9,9", "towers": "separate"}, f"MLP 8 tanh (value: 9-9), {SEPARATE}"),
        (
            IMAGE,
            {"memory": "lstm", "shared_sizes": 5, "head_sizes": "none", "critic_head_sizes": 4, "activation": "elu"},
            f"NatureCNN → lstm 8×1 → shared 5 elu → no heads (value: 4), {SHARED}",
        ),
    ],
)
def test_network_is_described_from_observation_to_heads(space, settings, text):
    config = small_config(**settings)
    policy = jax.eval_shape(lambda: make_policy(jax.random.key(0), space, Discrete(2), config.network, False))
    assert describe_network(config, policy) == text


def test_preprocessing_is_described():
    assert describe_preprocessing(make_config("CartPole-v1")) == ""
    assert describe_preprocessing(make_config("PongNoFrameskip-v4")) == (
        "Atari (each action for 4 frames, gray images of 84 × 84), 4 observations stacked, a lost life is a termination, signs of rewards"
    )
    settings = {"action_repeat": 2, "max_episode_steps": 1000, "levels": "0:9", "reward_scale": 0.01}
    assert describe_preprocessing(small_config(**settings)) == (
        "each action for 2 steps, episodes of at most 1,000 steps, levels 0:9, rewards times 0.01"
    )


def test_rows_describe_what_is_trained():
    settings = {"total_steps": 3210, "seeds": 2, "normalize_observation": True, "hidden_sizes": "8", "num_minibatches": 2}
    config = small_config(id="toys:RandomEnds", **settings)
    rows = run_summary(make_backend(config, RandomEnds()), resumed_at=1600)
    assert {name: text for name, text in rows.items() if text} == {
        "environment": "toys:RandomEnds: Box(3,) float32 → Discrete(2)",
        "network": "MLP 8 tanh, one tower for policy and value: 59 parameters",
        "batch": "4 environments × 8 steps = 32, 2 epochs × 2 minibatches of 16",
        "training": "3,200 steps (of 3,210 requested: only whole updates) in 100 updates, 2 seeds (one after the other), "
        "resumed at step 1,600",
        "settings": "learning rate 3e-4, γ 0.99, λ 0.95, clip 0.2, entropy 0.0",
        "normalized": "observations",
        "device": describe_devices(1),
    }
    alone = run_summary(make_backend(small_config(normalize_observation=False, seed=4), RandomEnds()))
    assert (alone["training"], alone["normalized"]) == ("3,200 steps in 100 updates, seed 4", "nothing")
