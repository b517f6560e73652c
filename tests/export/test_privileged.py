"""Observations of the critic alone: the policy acts as if they were not there, wherever it is."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.errors import ConfigError, EnvError
from proximo.export import numpy_file
from proximo.export.acting import Acting
from proximo.export.folder import _interface
from proximo.export.runtime import Policy as NumpyPolicy
from proximo.networks import make_policy
from proximo.run.agent import PPO
from proximo.spaces import Box, Dict, Discrete

import toys
from exports import made
from helpers import bits, small_config

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
def test_the_value_reads_it_and_the_action_does_not(memory):
    network = policy(memory).network

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


def test_no_gradient_of_the_policy_reaches_what_reads_it():
    network = policy("none").network

    rows = jax.tree.map(jnp.asarray, observation())

    def entropy(network):
        return jnp.sum(network.forward(network.init_memory(N), rows, jnp.ones(N, bool), jnp.ones(N, bool))[1].entropy())

    gradient = jax.jit(jax.grad(entropy))(network)
    assert not any(leaf.any() for leaf in jax.tree.leaves((gradient.torsos[1], gradient.critic)))
    assert all(leaf.any() for leaf in jax.tree.leaves(gradient.torsos[0]))


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_policy_acts_without_it(memory):
    acting, first, given = policy(memory), [True] * N, observation(3.0)
    without = {"seen": given["seen"]}
    one, other = (acting(acting.init_memory(N), x, first, key=jax.random.key(0)) for x in (given, without))
    np.testing.assert_array_equal(one[1], other[1])
    with pytest.raises(ConfigError, match=r"^The observation is a dict of hidden: expected a dict of hidden, seen\.$"):
        acting(acting.init_memory(N), {"hidden": given["hidden"]}, first)


class Parts(toys.AnySpaces):
    def __init__(self):
        super().__init__(SPACE, Discrete(3))


def test_an_agent_predicts_without_it_for_one_and_for_many():
    agent = PPO(Parts(), preset=False, num_envs=4, num_steps=8, hidden_sizes=8, total_steps=320, privileged="hidden")
    whole, seen = observation(2.0), {"seen": observation()["seen"]}
    np.testing.assert_array_equal(agent.predict(whole)[0], agent.predict(seen)[0])
    alone = [agent.predict({"seen": row})[0] for row in seen["seen"]]
    assert [np.shape(action) for action in alone] == [()] * N
    np.testing.assert_array_equal(alone, agent.predict(seen)[0])


def test_an_export_acts_without_it_and_tells_no_value(tmp_path):
    acting = Acting(policy("gru"), stochastic=False)
    initial = {name: np.asarray(x)[0] for name, x in acting.initial(1).items() if name in acting.carried}
    (tmp_path / "policy.npz").write_bytes(numpy_file.render(acting.program(None), _interface(acting), initial, None))
    exported, ours = NumpyPolicy(tmp_path / "policy.npz"), policy("gru")
    assert "hidden" not in json.dumps(_interface(acting))
    seen = {"seen": observation()["seen"]}
    theirs, memory = exported.init_memory(N), ours.init_memory(N)
    for first in ([True] * N, [False] * N):
        theirs, outputs = exported.step(theirs, seen, first)
        memory, action = ours(memory, seen, first)
        np.testing.assert_array_equal(outputs["action"], action)
    assert set(outputs) == {"action", "log_prob", "logits"}


@pytest.mark.parametrize(
    ("space", "names", "sentence"),
    [
        (SPACE, "hiden", r"^privileged names 'hiden', and the observation is Dict.* \(did you mean 'hidden'\?\)\.$"),
        (SPACE, "hidden,seen", r"^privileged = hidden,seen leaves the policy nothing of Dict.* to act by\.$"),
        (Box((3,)), "hidden", r"^privileged = hidden names entries of a Dict observation, and this one is Box"),
    ],
)
def test_a_wrong_name_is_a_sentence(space, names, sentence):
    config = small_config(privileged=names, towers="separate")
    with pytest.raises(EnvError, match=sentence):
        make_policy(jax.random.key(0), space, Discrete(3), config.network, True)
