"""Privileged observations: only the value reads them, and every form of the policy acts without them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.errors import ConfigError
from proximo.spaces import Box, Dict, Discrete

from exports import exported, made
from helpers import bits

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
