"""``policy(memory, observation, first)``: what it does row by row is what the network unrolls."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.errors import ConfigError
from proximo.networks import make_policy
from proximo.run.policy import Policy
from proximo.spaces import Box, Dict, MultiBinary, from_any, zeros

import toys
from helpers import REMEMBERING, shaken, small_config

N, T = 3, 12
PARTS = Dict((("x", Box((2,))), ("bits", MultiBinary((2,)))))


def made(actions=None, space=None, **settings):
    """A policy whose actions depend on what it remembers, as if loaded."""
    env = toys.AnySpaces(space or PARTS, actions or Box((2,)))
    config = small_config(**settings)
    spaces = from_any(env.observation_space, "observation"), from_any(env.action_space, "action")
    network = shaken(make_policy(jax.random.key(0), *spaces, config.network, True))
    return Policy(network, env, config, step=0)


def play(policy, rewards, firsts, **arguments):
    """T rows of random observations: those and the actions."""
    rng, memory, rows, actions = np.random.default_rng(1), policy.init_memory(N), [], []
    space = from_any(policy.env.observation_space, "observation")
    for t in range(T):
        observation = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), zeros(space, (N,)))
        memory, action = policy(memory, observation, firsts[t], rewards[t - 1] * (t > 0), **arguments)
        rows.append(observation)
        actions.append(action)
    return jax.tree.map(lambda *x: np.stack(x), *rows), np.stack(actions)


def flags():
    firsts = np.random.default_rng(2).random((T, N)) < 0.2
    firsts[0] = True
    return firsts


def unrolled(policy, observation, actions, rewards, firsts):
    """The most probable actions of all rows at once."""
    network = policy.network
    before = network.previous(jnp.asarray(actions), jnp.asarray(rewards))
    shifted = jax.tree.map(lambda x: jnp.roll(x, 1, axis=0).at[0].set(0.0), before)
    observed = network.observed(jax.tree.map(jnp.asarray, observation), jnp.asarray(firsts), shifted)
    memory = network.init_memory(N)
    _, distribution, _ = eqx.filter_jit(network.unroll)(memory, observed, jnp.asarray(firsts), jnp.ones((T, N), bool))
    return np.asarray(distribution.mode())


@pytest.mark.parametrize("way", ["gru", "observing", "observing without memory", "carried over", "observing over episodes"])
def test_row_by_row_is_what_is_unrolled(way):
    policy = made(**REMEMBERING[way])
    rewards, firsts = np.random.default_rng(3).normal(size=(T, N)).astype(np.float32), flags()
    observation, actions = play(policy, rewards, firsts)

    def error(rewards, firsts):
        return np.abs(actions - unrolled(policy, observation, actions, rewards, firsts)).max()

    assert error(rewards, firsts) < 1e-4
    other = np.roll(firsts, 1, axis=1)
    other[0] = True
    assert (error(rewards, other) > 1e-2) == ("over" not in way)
    assert (error(np.roll(rewards, 1, axis=0), firsts) > 1e-2) == way.startswith("observing")


def test_carried_memory_needs_the_reward_of_one_step_episodes():
    policy = made(**REMEMBERING["observing over episodes"], space=Box((2,)))
    row, first = np.zeros((1, 2)), [True]
    memory, _ = policy(policy.init_memory(1), row, first)
    _, paid = policy(memory, row, first, [1.0])
    _, unpaid = policy(memory, row, first, [0.0])
    assert np.abs(paid - unpaid).max() > 1e-2
    with pytest.raises(ConfigError, match=r"reward was not given: this policy observes it \(observe_reward\)"):
        policy(memory, row, first)


def test_a_key_samples_and_actions_are_those_of_the_space():
    policy = made(actions=Box((2,), (-1.0, 0.0), (1.0, 3.0)), space=Box((2,)))
    _, best = play(policy, np.zeros((T, N)), flags())
    _, sampled = play(policy, np.zeros((T, N)), flags(), key=jax.random.key(0))
    _, again = play(policy, np.zeros((T, N)), flags(), key=jax.random.PRNGKey(0))
    assert (sampled == again).all()
    assert best.shape == sampled.shape == (T, N, 2)
    assert (best != sampled).any()
    assert (sampled >= [-1, 0]).all()
    assert (sampled <= [1, 3]).all()


def test_what_does_not_fit_is_told():
    policy = made(space=Box((2,)))
    memory = policy.init_memory(1)
    with pytest.raises(ConfigError, match=r"the shape \(2,\): expected \(1, 2\), .*observation\[None\]"):
        policy(memory, np.zeros(2), [True])
    with pytest.raises(ConfigError, match=r"first has the shape \(\): expected one flag for each environment"):
        policy(memory, np.zeros((1, 2)), True)
    with pytest.raises(ConfigError, match=r"^The observation is an array of float64: expected a dict of bits, x\.$"):
        made()(memory, np.zeros((1, 2)), [True])
    remembering = made(memory="gru", memory_size=4, space=Box((2,)))
    with pytest.raises(ConfigError, match=r"^memory is that of another policy: expected policy\.init_memory\(N\)"):
        remembering(made(memory="lstm", memory_size=4, space=Box((2,))).init_memory(1), np.zeros((1, 2)), [True])
    observing = made(**REMEMBERING["observing"], space=Box((2,)))
    memory, _ = observing(observing.init_memory(1), [[0, 0]], [True])
    with pytest.raises(ConfigError, match=r"reward was not given: this policy observes it"):
        observing(memory, [[0, 0]], [False])
    with pytest.raises(ConfigError, match=r"reward has the shape \(\)"):
        observing(memory, [[0, 0]], [False], 1.0)
    with pytest.raises(ConfigError, match=r"reward is \[nan\]: expected finite numbers"):
        observing(memory, [[0, 0]], [False], [np.nan])
    with pytest.raises(ConfigError, match=r"memory is of 1 environments, and first has 3 flags"):
        observing(memory, np.zeros((3, 2)), [True] * 3)
    with pytest.raises(ConfigError, match=r"memory is tuple: expected policy.init_memory\(N\)"):
        observing(observing.network.init_memory(1), [[0, 0]], [True])
    for key in (0, jax.random.split(jax.random.key(0)), np.zeros(3, np.uint32)):
        with pytest.raises(ConfigError, match=r"(?s)key is .*: expected a single key, as jax.random.key\(0\)"):
            policy(policy.init_memory(1), np.zeros((1, 2)), [True], key=key)
    for count in (0, -1, "3", 1.0, True):
        with pytest.raises(ConfigError, match=r"num_envs = .*: expected a whole number of environments, 1 or more"):
            policy.init_memory(count)


def test_a_policy_is_shown_without_its_arrays():
    assert repr(made(memory="gru", memory_size=8)) == "Policy('toys:RandomEnds' at step 0, memory gru of 8)"


def test_a_policy_that_was_loaded_plays_as_it_was_judged(tmp_path):
    """The return of the only level there is, by hand and by an evaluation."""
    settings = {"total_steps": 2048, "num_envs": 4, "memory": "gru", "memory_size": 8, "observe_action": True, "levels": "3:4"}
    config = proximo.make_config("CartPole-v1", {**settings, "runs_dir": str(tmp_path), "num_workers": 0, "num_steps": 128})
    [result] = proximo.train(config=config)
    policy = proximo.load_policy(result.run_dir)
    env = policy.env.make()
    observation, _ = env.reset(seed=3)
    memory, first, over, total = policy.init_memory(1), True, False, 0.0
    while not over:
        memory, action = policy(memory, observation[None], [first])
        observation, reward, terminated, truncated, _ = env.step(action[0])
        first, over, total = False, terminated or truncated, total + reward
    assert proximo.evaluate(policy, 2).episode_return.tolist() == [total, total]
