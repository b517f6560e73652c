"""Every kind of policy: NumPy and ONNX Runtime act like JAX over 100 steps with resets, each with its own memory."""

import dataclasses

import numpy as np
import pytest

from proximo.config import override
from proximo.export import parity
from proximo.export.parity import ParityError
from proximo.export.policy_function import PolicyFunction
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import toys
from exports import by_numpy, by_onnx, made
from helpers import MEMORIES, REMEMBERING

pytestmark = pytest.mark.slow  # the gate has its limit of time: run by hand

MIXED = MultiDiscrete((3, 2, 4), (1, 0, -2))
BITS = MultiBinary((2, 2))
BOUNDED = Box((2,), (-2.0, 0.0), (2.0, 10.0))
COVERING = {
    "all encoders, masked choices, GRU": {"space": toys.masked(toys.PARTS, 9), "actions": MIXED, "memory": "gru"},
    "two towers, tanh, stacked LRU": {
        "actions": BOUNDED, "action_mapping": "tanh", "towers": "separate", "memory": "lru", "memory_layers": 2, "observe_action": True,
    },
    "state-dependent noise, GTrXL": {**MEMORIES["gtrxl"], "actions": BOUNDED, "sde_every": 4},
    "masked bits, LSTM carried over": {
        "space": toys.masked(Dict((("n", Discrete(5, -1)),)), 8), "actions": BITS, "memory": "lstm", "reset_memory": False,
    },
    "observing, minGRU": {"actions": Discrete(4, 2), "memory": "mingru", "observe_action": True, "observe_reward": True},
    "half-bounded, ReLU, no memory": {
        "actions": Box((2, 2), (0.0, -np.inf, -1.0, -np.inf), (np.inf, np.inf, 1.0, 3.0)), "activation": "relu", "head_sizes": (8,),
        "clip_observation": 1.5,
    },
}  # fmt: skip
"""Every encoder, memory, kind of action and action mapping, in few policies."""
KINDS = {
    **COVERING,
    "vector, discrete": {"actions": Discrete(4, 2)},
    "image, bits": {"space": toys.IMAGE, "actions": BITS},
    "channels first, stacked": {"space": Box((2, 36, 37), 0.0, 255.0, "uint8"), "actions": MIXED},
    "IMPALA CNN, layer norm, shared layer": {
        "space": toys.IMAGE,
        "actions": BITS,
        "encoder": "impala_cnn",
        "cnn_features": 9,
        "layer_norm": True,
        "memory": "gru",
        "shared_sizes": (5,),
    },
    "small image, convolutions alone": {"space": Box((5, 6, 2), 0.0, 255.0, "uint8"), "actions": BITS, "cnn_features": 0},
    "gray": {"space": Box((40, 36), 0.0, 255.0, "uint8"), "actions": Discrete(2)},
    "masked choices": {"space": toys.masked(Dict((("n", Discrete(5, -1)),)), 2), "actions": Discrete(2)},
    "bytes by an MLP": {"space": Box((5,), 0.0, 255.0, "uint8"), "actions": Discrete(3), "memory": "lstm"},
    "integers": {"space": Box((3,), -9, 9, "int16"), "actions": BOUNDED},
    **{
        name: {"actions": Discrete(3), **settings}
        for name, settings in REMEMBERING.items()
        if "burn" not in name and name != "none"
    },
    "observing bits": {**REMEMBERING["observing"], "actions": BITS},
    "observing numbers": {"actions": BOUNDED, "memory": "lru", "observe_action": True, "towers": "separate"},
    "observing rewards": {"actions": MIXED, "memory": "mingru", "observe_reward": True, "space": toys.PARTS},
}


def _marked(kind):
    """What is covered by others runs where there is time: `pytest -m slow tests/export`."""
    return kind if kind in COVERING else pytest.param(kind, marks=pytest.mark.slow)


@pytest.mark.parametrize("kind", map(_marked, KINDS))
def test_all_runtimes_act_alike(kind, tmp_path, monkeypatch):
    if kind in COVERING and "encoders" in kind:
        monkeypatch.setattr(parity, "STEPS", 10)  # convolutions compiled as the tests are take a tenth of a second
    policy_function = PolicyFunction(made(**KINDS[kind]))
    program = policy_function.program(None)
    runners = {
        "numpy": by_numpy(program, tmp_path, policy_function),
        "onnx": by_onnx(program),
        "policy": parity.predict_runner(policy_function),
    }
    errors = parity.check(policy_function, runners, None)
    assert max(errors.values()) < parity.TOLERANCE
    row = parity.random_inputs(policy_function, np.random.default_rng(0), 9, begins=True)
    memory = {name: np.asarray(x) for name, x in policy_function.init_memory(9).items()}
    for name in ("numpy", "onnx"):
        many, few = ({k: x[:n] for k, x in {**row, **memory}.items()} for n in (9, 1))
        np.testing.assert_allclose(runners[name](few)["value"], runners[name](many)["value"][:1], rtol=1e-5, atol=1e-5)


SAMPLED = {
    "choices": {"actions": MIXED, "memory": "gru", "observe_action": True},
    "bits": {"actions": BITS},
    "numbers": {"actions": BOUNDED, "action_mapping": "tanh"},
    "state-dependent": {"actions": BOUNDED, "sde_every": 4},
}


@pytest.mark.parametrize("kind", ["choices", *(pytest.param(k, marks=pytest.mark.slow) for k in SAMPLED if k != "choices")])
def test_noise_samples_and_zeros_are_greedy(kind, tmp_path):
    policy = made(**SAMPLED[kind])
    policy_function, greedy = PolicyFunction(policy, deterministic=False), PolicyFunction(policy)
    program = policy_function.program(None)
    runners = {"numpy": by_numpy(program, tmp_path, policy_function), "onnx": by_onnx(program)}
    parity.check(policy_function, runners, None)
    row = parity.random_inputs(policy_function, np.random.default_rng(0), 64, begins=True)
    memory = {name: np.asarray(x) for name, x in policy_function.init_memory(64).items()}
    sampled = runners["numpy"]({**row, **memory})["action"]
    silent = runners["numpy"]({**row, **memory, "noise": np.zeros_like(row["noise"])})["action"]
    expected = greedy(greedy.actor_critic, {**{k: v for k, v in row.items() if k != "noise"}, **memory})["action"]
    np.testing.assert_allclose(silent, expected, atol=1e-5)
    assert (np.abs(sampled - silent) > 1e-3).any()


def test_sampled_choices_have_the_probabilities_of_the_logits(tmp_path):
    policy_function = PolicyFunction(made(actions=Discrete(3)), deterministic=False)
    run = by_numpy(policy_function.program(None), tmp_path, policy_function)
    n = 20_000
    row = parity.random_inputs(policy_function, np.random.default_rng(0), n, begins=True)
    outputs = run({**row, "observation": np.repeat(row["observation"][:1], n, axis=0)})
    wide = np.exp(outputs["logits"][0] - outputs["logits"][0].max())
    np.testing.assert_allclose(np.bincount(outputs["action"], minlength=3) / n, wide / wide.sum(), atol=0.015)


@pytest.mark.parametrize("where", ["memory.0.next", "action", "value", "log_prob"])
def test_a_wrong_output_fails_the_parity_check(where):
    policy_function = PolicyFunction(made(memory="gru"))

    def wrong(arrays):
        outputs = {name: np.array(x) for name, x in policy_function(policy_function.actor_critic, arrays).items()}
        outputs[where] += np.float32(3e-5) * np.maximum(1.0, np.abs(outputs[where]))
        return outputs

    with pytest.raises(ParityError, match=rf"Export failed: at step 0 of mine the error of {where} is .*nothing was written"):
        parity.check(policy_function, {"mine": wrong}, None)


def test_a_missing_reset_fails_the_parity_check():
    policy_function = PolicyFunction(made(memory="gru"))

    def forgetful(arrays):
        return policy_function(policy_function.actor_critic, {**arrays, "episode_start": np.zeros_like(arrays["episode_start"])})

    with pytest.raises(ParityError, match="Export failed: at step"):
        parity.check(policy_function, {"mine": forgetful}, None)


def test_only_ties_may_choose_another_action():
    policy = made(actions=Discrete(3), observe_action=True)
    policy_function = PolicyFunction(policy)
    readout = policy.actor_critic.actor.readout.output
    level = dataclasses.replace(readout, weight=readout.weight * 0, bias=readout.bias * 0)
    actor = dataclasses.replace(
        policy.actor_critic.actor, readout=dataclasses.replace(policy.actor_critic.actor.readout, output=level)
    )
    tied = PolicyFunction(dataclasses.replace(policy, actor_critic=dataclasses.replace(policy.actor_critic, actor=actor)))

    def other(policy_function):
        def run(arrays):
            outputs = {name: np.array(x) for name, x in policy_function(policy_function.actor_critic, arrays).items()}
            outputs["action"] = (outputs["action"] + 1) % 3
            return outputs

        return run

    assert parity.check(tied, {"mine": other(tied)}, None) == {"mine": pytest.approx(0, abs=1e-5)}
    with pytest.raises(ParityError, match="the error of action is"):
        parity.check(policy_function, {"mine": other(policy_function)}, None)


def test_a_bfloat16_policy_is_exported_in_float32(tmp_path):
    policy = made(memory="lstm", actions=Discrete(3))
    narrow = dataclasses.replace(policy, config=override(policy.config, {"compute_dtype": "bfloat16"}))
    torsos = tuple(dataclasses.replace(torso, compute_dtype="bfloat16") for torso in policy.actor_critic.torsos)
    narrow = dataclasses.replace(narrow, actor_critic=dataclasses.replace(policy.actor_critic, torsos=torsos))
    policy_function = PolicyFunction(narrow)
    program = policy_function.program(2)
    runners = {"numpy": by_numpy(program, tmp_path, policy_function, batch=2), "onnx": by_onnx(program)}
    assert max(parity.check(policy_function, runners, 2).values()) < parity.TOLERANCE


assert set(MEMORIES) - {"none"} <= set(KINDS)
