from functools import partial

import jax
import pytest

from proximo import jax_setup
from proximo.networks import make_policy
from proximo.settings import make_config
from proximo.spaces import Box, Discrete
from proximo.training import run_summary
from proximo.training.run_summary import describe_network, describe_preprocessing

from helpers import small_config

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


@pytest.mark.parametrize(
    ("space", "fast", "settings", "hint"),
    [
        (IMAGE, True, {}, True),
        (IMAGE, False, {}, False),
        (IMAGE, True, {"compute_dtype": "bfloat16"}, False),
        (IMAGE, True, {"encoder": "small_cnn"}, False),
        (Box((3,)), True, {}, False),
    ],
)
def test_the_banner_names_bfloat16_where_it_is_faster(monkeypatch, space, fast, settings, hint):
    config = small_config(**settings)
    policy = jax.eval_shape(lambda: make_policy(jax.random.key(0), space, Discrete(2), config.network, False))
    monkeypatch.setattr(run_summary, "has_fast_bfloat16", lambda: fast)
    assert ("--compute-dtype bfloat16" in run_summary._bfloat16_hint(config, policy)) == hint


@pytest.mark.parametrize(
    ("backend", "flags", "fast"),
    [
        ("cpu", "fpu avx512f avx512_bf16", True),
        ("cpu", "amx_bf16 amx_tile", True),
        ("cpu", "avx512f avx512_vnni", False),
        ("cpu", None, False),
        ("gpu", "avx512_bf16", False),
    ],
)
def test_bfloat16_instructions_are_read_from_the_flags_of_the_cpu(tmp_path, monkeypatch, backend, flags, fast):
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: none\n")
    monkeypatch.setattr(jax_setup, "cpu_description", partial(jax_setup.cpu_description, file=file))
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert jax_setup.has_fast_bfloat16() == fast
