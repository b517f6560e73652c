"""ONNX Runtime acts like JAX with every kind of policy; privileged observations are only for the value."""

import dataclasses
import functools
import logging

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import override
from proximo.errors import ConfigError
from proximo.export import parity
from proximo.export.parity import ParityError
from proximo.export.policy_function import PolicyFunction
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import toys
from exports import exported, made
from helpers import MEMORIES, bits

MIXED = MultiDiscrete((3, 2, 4), (1, 0, -2))
BITS = MultiBinary((2, 2))
BOUNDED = Box((2,), (-2.0, 0.0), (2.0, 10.0))
COVERING = {
    "all encoders, masked choices, GRU": {"space": toys.masked(toys.PARTS, 9), "actions": MIXED, "memory": "gru"},
    "two towers, tanh, stacked LRU": {
        "actions": BOUNDED, "action_mapping": "tanh", "towers": "separate", "memory": "lru", "memory_settings": {"layers": 2}, "observe_action": True,
    },
    "state-dependent noise, GTrXL": {**MEMORIES["gtrxl"], "memory_settings": {"window": 3, "heads": 2}, "actions": BOUNDED, "sde_every": 4},
    "custom encoder, memory and distribution": {
        "actions": Discrete(4, 2), "encoder": "custom_networks:Encoder", "memory": "custom_networks:Memory", "distribution": "custom_networks:Choice",
    },
    "masked bits, LSTM carried over": {
        "space": toys.masked(Dict((("n", Discrete(5, -1)),)), 8), "actions": BITS, "memory": "lstm", "reset_memory": False,
    },
    "Beta, observing, minGRU": {
        "actions": BOUNDED, "distribution": "beta", "memory": "mingru", "observe_action": True, "observe_reward": True,
    },
    "IMPALA CNN, layer norm, shared layer": {
        "space": toys.IMAGE, "actions": BITS, "encoder": "impala_cnn", "cnn_features": 9, "layer_norm": True, "shared_sizes": (5,),
    },
    "half-bounded, ReLU, no memory": {
        "actions": Box((2, 2), (0.0, -np.inf, -1.0, -np.inf), (np.inf, np.inf, 1.0, 3.0)), "activation": "relu", "head_sizes": (8,),
        "clip_observation": 1.5,
    },
}  # fmt: skip
"""Every encoder, memory, kind of action and action mapping, in few policies."""


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(parity, "STEPS", 12)
    monkeypatch.setattr(parity, "ENVIRONMENTS", (3,))


@pytest.mark.parametrize("kind", COVERING)
def test_export_acts_as_the_policy(kind):
    """In the parity check, which compares all outputs, and by ``predict``, for other numbers of environments."""
    policy = made(**COVERING[kind])
    policy_function, export, rng = PolicyFunction(policy), exported(policy), np.random.default_rng(0)
    parity.check(policy_function, export.run, None)
    memories = [policy.init_memory(9), export.init_memory(9)]
    for step in range(3):
        inputs = parity.random_inputs(policy_function, rng, 9, begins=step == 0)
        observation = policy_function.as_tree({**policy_function.inputs(9), **inputs})["observation"]
        more = {"episode_start": inputs["episode_start"], "reward": inputs.get("reward")}
        expected, memories[0] = policy.predict(observation, memories[0], **more)
        found, after = export.predict(observation, memories[1], **more)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert found.dtype == expected.dtype
        last = jax.tree.map(lambda x: x[-1], (observation, {name: x[-1:] for name, x in memories[1].items()}))
        alone = {name: None if x is None else x[-1] for name, x in more.items()}
        np.testing.assert_allclose(
            export.predict(last[0], {k: x[None] for k, x in last[1].items()}, **alone)[0], found[-1], rtol=1e-5, atol=1e-5
        )
        memories[1] = after


@pytest.mark.parametrize(
    "settings",
    [
        {"actions": MIXED, "memory": "gru", "observe_action": True},
        {"actions": BOUNDED, "action_mapping": "tanh"},
        {"actions": BOUNDED, "sde_every": 4},
    ],
)
def test_noise_samples_and_zeros_are_greedy(settings):
    policy = made(**settings)
    policy_function = PolicyFunction(policy, deterministic=False)
    export = exported(policy, deterministic=False)
    parity.check(policy_function, export.run, None)
    observation, start = np.random.default_rng(0).normal(size=(64, 3)), np.ones(64, bool)
    greedy = export.predict(observation, None, start)[0]
    np.testing.assert_allclose(greedy, policy.predict(observation, None, start)[0], atol=1e-5)
    sampled = [export.predict(observation, None, start, deterministic=False, key=key)[0] for key in (0, 0, 1)]
    np.testing.assert_array_equal(sampled[0], sampled[1])
    assert all((np.abs(x - y) > 1e-3).any() for x, y in ((sampled[0], greedy), (sampled[0], sampled[2])))


class Layers(eqx.Module):
    """Layers of Equinox, of which custom networks are made."""

    layers: tuple

    def __init__(self, key, space):
        keys = jax.random.split(key, 6)
        self.layers = (
            eqx.nn.Conv2d(1, 4, 3, padding=1, key=keys[0]), eqx.nn.MaxPool2d(2, 2), eqx.nn.AvgPool2d(2), eqx.nn.LayerNorm(36),
            eqx.nn.MultiheadAttention(2, 4, key=keys[1]), eqx.nn.GRUCell(4, 6, key=keys[2]), eqx.nn.MLP(6, 5, 8, 2, key=keys[3]),
            eqx.nn.Embedding(4, 5, key=keys[4]),
        )  # fmt: skip

    def __call__(self, x):
        convolution, highest, mean, norm, attention, cell, mlp, embedding = self.layers
        maps = mean(highest(jax.nn.relu(convolution(x["image"][None]))))
        tokens = norm(maps.reshape(-1)).reshape(9, 4)
        tokens = attention(tokens, tokens, tokens)
        state, _ = jax.lax.scan(lambda state, token: (cell(token, state), None), jnp.zeros(6), tokens)
        return mlp(state) + embedding(x["choice"])


def test_layers_of_custom_networks_are_exported():
    space = Dict((("choice", Discrete(4)), ("image", Box((8, 8)))))
    policy = made(space, Discrete(3), encoder=Layers)
    assert parity.check(PolicyFunction(policy), exported(policy).run, None) < parity.TOLERANCE


class Backwards(eqx.Module):
    def __init__(self, key, space): ...

    def __call__(self, x):
        return jax.lax.scan(lambda total, part: (total + part, total), 0.0, x, reverse=True)[1]


def test_what_cannot_be_exported_is_one_sentence(monkeypatch):
    handlers, platform_dependent = [*logging.root.handlers], jax.lax.platform_dependent
    policy = made(encoder=Backwards)
    reason = r"jax2onnx cannot export this policy \(NotImplementedError: Reverse scan is not supported in IR pipeline\)"
    hint = r"\. If it computes with the number of environments, fix it with --batch\.$"
    for batch, ending in ((None, hint), (2, r"\.$")):
        with pytest.raises(ConfigError, match=rf"^{reason}{ending}"):
            exported(policy, batch=batch)
    assert (logging.root.handlers, jax.lax.platform_dependent) == (handlers, platform_dependent)
    policy, call = made(), type(policy.actor_critic).normalize
    monkeypatch.setattr(type(policy.actor_critic), "normalize", lambda self, x: call(self, x) / float(len(x)))
    with pytest.raises(ConfigError, match=hint):
        exported(policy)
    assert parity.check(PolicyFunction(policy), exported(policy, batch=2).run, 2) < parity.TOLERANCE


def changed(policy_function, name, change):
    """The function itself, with another output ``name``."""

    def run(arrays):
        outputs = {name: np.array(x) for name, x in policy_function(policy_function.actor_critic, arrays).items()}
        return {**outputs, name: change(outputs[name])}

    return run


WRONG = dict.fromkeys(
    ("memory.0.next", "action", "value", "log_prob"), lambda x: x + np.float32(3e-5) * np.maximum(1.0, np.abs(x))
)
WRONG |= {"logits": lambda x: x.astype(np.float64), "memory.0": np.zeros_like}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_output_or_type_or_a_missing_reset_fails_the_parity_check(name):
    policy_function = PolicyFunction(made(memory="gru", actions=Discrete(3) if name == "logits" else None))

    def forgetful(arrays):
        return policy_function(policy_function.actor_critic, {**arrays, "episode_start": np.zeros_like(arrays["episode_start"])})

    wrong = forgetful if name == "memory.0" else changed(policy_function, name, WRONG[name])
    where = {"memory.0": r"step \d+ the error", "logits": r"step 0 logits is float64\[3, 3\], in JAX float32\[3, 3\]; nothing"}
    expected = where.get(name, f"step 0 the error of {name} is .*nothing was written")
    with pytest.raises(ParityError, match=f"Export failed: at {expected}"):
        parity.check(policy_function, wrong, None)


def test_only_ties_may_choose_another_action():
    policy = made(actions=Discrete(3), observe_action=True)
    level = eqx.tree_at(
        lambda network: network.actor.readout.output, policy.actor_critic, replace_fn=lambda x: jax.tree.map(jnp.zeros_like, x)
    )
    tied, other = (PolicyFunction(x) for x in (dataclasses.replace(policy, actor_critic=level), policy))
    assert parity.check(tied, changed(tied, "action", lambda x: (x + 1) % 3), None) == pytest.approx(0, abs=1e-5)
    with pytest.raises(ParityError, match="the error of action is"):
        parity.check(other, changed(other, "action", lambda x: (x + 1) % 3), None)


def test_a_bfloat16_policy_is_exported_in_float32():
    policy = made(memory="lstm", actions=Discrete(3, 2), observe_action=True)
    narrow = dataclasses.replace(policy, config=override(policy.config, {"compute_dtype": "bfloat16"}))
    torsos = tuple(dataclasses.replace(torso, compute_dtype="bfloat16") for torso in policy.actor_critic.torsos)
    narrow = dataclasses.replace(narrow, actor_critic=dataclasses.replace(policy.actor_critic, torsos=torsos))
    assert parity.check(PolicyFunction(narrow), exported(narrow, batch=2).run, 2) < parity.TOLERANCE


# The privileged entry is the first by name, and has other axes than what is seen.
SPACE = Dict((("hidden", Box((2, 2))), ("seen", Box((3,)))))
SETTINGS = {"privileged": "hidden", "towers": "separate"}
N = 4


@functools.cache
def policy(memory):
    return made(SPACE, Discrete(3), memory=memory, **SETTINGS)


def observation(hidden=1.0):
    return {"seen": np.linspace(-1, 1, 3 * N, dtype=np.float32).reshape(N, 3), "hidden": np.full((N, 2, 2), hidden, np.float32)}


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_only_the_value_depends_on_privileged_observations(memory):
    network = policy(memory).actor_critic

    @jax.jit
    def said(x):
        rows = jax.tree.map(lambda part: jnp.stack([part, part]), x)
        _, distribution, value = network.unroll(network.init_memory(N), rows, jnp.zeros((2, N), bool), jnp.ones((2, N), bool))
        after, one, _ = network.forward(network.init_memory(N), x, jnp.ones(N, bool), jnp.ones(N, bool))
        return distribution.logits, one.logits, after[0], value

    plain, other = said(observation(0.0)), said(observation(5.0))
    assert bits(plain[:3]) == bits(other[:3])
    assert float(jnp.abs(plain[3] - other[3]).min()) > 1e-3
    seen = {**observation(0.0), "seen": observation()["seen"] + 1.0}
    assert bits(said(seen)[:1]) != bits(plain[:1])


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_policy_acts_without_privileged_observations(memory):
    acting, start, given = policy(memory), [True] * N, observation(3.0)
    settings = {"deterministic": False, "key": jax.random.key(0)}
    one, other = (acting.predict(x, None, start, **settings)[0] for x in (given, {"seen": given["seen"]}))
    np.testing.assert_array_equal(one, other)
    alone = [acting.predict({"seen": row}, None, True)[0] for row in given["seen"]]
    np.testing.assert_array_equal(alone, acting.predict(given, None, start)[0])
    with pytest.raises(ConfigError, match=r"^The observation is a dict of hidden: expected a dict of hidden, seen\.$"):
        acting.predict({"hidden": given["hidden"]}, None, start)


def test_export_acts_without_privileged_observations_and_has_no_value():
    export, ours = exported(policy("gru")), policy("gru")
    seen = {"seen": observation()["seen"]}
    theirs, memory = export.init_memory(N), ours.init_memory(N)
    for episode_start in ([True] * N, [False] * N):
        outputs = export.run({"observation.seen": seen["seen"], "episode_start": episode_start, **theirs})
        found, theirs = export.predict(seen, theirs, episode_start)
        action, memory = ours.predict(seen, memory, episode_start)
        np.testing.assert_array_equal(found, action)
    assert set(outputs) == {"action", "log_prob", "logits", "memory.0.next", "memory.1.next"}
