"""``Policy.predict``: acting step by step equals unrolling the network, and wrong arguments raise."""

import copy
import dataclasses
import functools

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import override
from proximo.errors import ConfigError
from proximo.evaluation.policy import Policy
from proximo.networks import ActorCritic
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, from_any, zeros

import custom_networks
import toys
from helpers import REMEMBERING, drawn_policy, small_config

N, T = 3, 12
PARTS = Dict((("x", Box((2,))), ("bits", MultiBinary((2,)))))


def made(actions=None, space=None, **settings):
    """A policy whose actions depend on what it remembers, as if loaded."""
    env = toys.AnySpaces(space or PARTS, actions or Box((2,)))
    config = small_config(**settings)
    return Policy(drawn_policy(env, config), env, config, step=0)


def play(policy, rewards, episode_starts, **arguments):
    """Observations and actions of T random steps."""
    rng, memory, observations, actions = np.random.default_rng(1), policy.init_memory(N), [], []
    space = from_any(policy.env.observation_space, "observation")
    for t in range(T):
        observation = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), zeros(space, (N,)))
        action, memory = policy.predict(observation, memory, episode_starts[t], reward=rewards[t - 1] * (t > 0), **arguments)
        observations.append(observation)
        actions.append(action)
    return jax.tree.map(lambda *x: np.stack(x), *observations), np.stack(actions)


def flags():
    episode_starts = np.random.default_rng(2).random((T, N)) < 0.2
    episode_starts[0] = True
    return episode_starts


def unrolled(policy, observation, actions, rewards, episode_starts):
    """The most probable actions of all steps at once."""
    network = policy.actor_critic
    before = network.previous_step(jnp.asarray(actions), jnp.asarray(rewards))
    shifted = jax.tree.map(lambda x: jnp.roll(x, 1, axis=0).at[0].set(0.0), before)
    observed = network.with_previous_step(jax.tree.map(jnp.asarray, observation), jnp.asarray(episode_starts), shifted)
    memory = network.init_memory(N)
    _, distribution, _ = eqx.filter_jit(network.unroll)(memory, observed, jnp.asarray(episode_starts), jnp.ones((T, N), bool))
    return np.asarray(distribution.mode())


@pytest.mark.parametrize("way", ["gru", "observing", "observing without memory", "carried over", "observing over episodes"])
def test_acting_step_by_step_equals_unrolling(way):
    policy = made(**REMEMBERING[way])
    rewards, episode_starts = np.random.default_rng(3).normal(size=(T, N)).astype(np.float32), flags()
    observation, actions = play(policy, rewards, episode_starts)

    def error(rewards, episode_starts):
        return np.abs(actions - unrolled(policy, observation, actions, rewards, episode_starts)).max()

    assert error(rewards, episode_starts) < 1e-4
    other = np.roll(episode_starts, 1, axis=1)
    other[0] = True
    assert (error(rewards, other) > 1e-2) == ("over" not in way)
    assert (error(np.roll(rewards, 1, axis=0), episode_starts) > 1e-2) == way.startswith("observing")


def test_a_key_samples_other_actions_than_the_most_probable_ones():
    policy = made(actions=Box((2,), (-1.0, 0.0), (1.0, 3.0)), space=Box((2,)))
    keys = {}, *({"deterministic": False, "key": key} for key in (jax.random.key(0), jax.random.PRNGKey(0)))
    best, sampled, again = (play(policy, np.zeros((T, N)), flags(), **how)[1] for how in keys)
    assert (sampled == again).all()
    assert (best != sampled).any()


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_actions_are_in_their_space_and_have_its_type(dtype):
    space = gym.spaces.Box(-0.1, 0.3, (2,), np.dtype(dtype).type)
    policy = made(actions=from_any(space, "action"), space=Box((2,)))
    for how in ({}, {"deterministic": False, "key": jax.random.key(3)}):
        action, _ = policy.predict(np.ones(2), None, True, **how)
        assert action.dtype == dtype
        assert space.contains(action)


@pytest.mark.parametrize(
    ("actions", "settings"),
    [(Box((2,)), {}), (Box((2,)), {"memory": "gru"}), (MultiDiscrete((2, 3)), REMEMBERING["observing"])],
)
def test_forward_gives_the_distribution_that_predict_acts_by_for_one_observation_and_for_many(actions, settings):
    policy, rng = made(actions, **settings), np.random.default_rng(0)
    memory, alone = policy.init_memory(N), policy.init_memory()
    for t in range(3):
        observation = {"x": rng.normal(size=(N, 2)).astype(np.float32), "bits": rng.random((N, 2)) < 0.5}
        reward = np.arange(N) + t
        distribution, value = policy.forward(observation, memory, np.full(N, t == 0), reward=reward)
        action, after = policy.predict(observation, memory, np.full(N, t == 0), reward=reward)
        np.testing.assert_array_equal(policy.actor_critic.to_space(distribution.mode()), action)
        one = jax.tree.map(lambda x: x[1], observation)
        np.testing.assert_allclose(policy.forward(one, alone, t == 0, reward=reward[1])[1], value[1:2], rtol=1e-5, atol=1e-6)
        single, alone = policy.predict(one, alone, t == 0, reward=reward[1])
        assert single.shape == (2,)
        np.testing.assert_allclose(single, action[1], rtol=1e-5, atol=1e-6)
        memory = after


def test_policies_of_one_structure_share_their_compiled_program(monkeypatch):
    traced, to_space = [], ActorCritic.to_space
    monkeypatch.setattr(ActorCritic, "to_space", lambda *arguments: traced.append(1) or to_space(*arguments))
    policy, x = made(space=Box((2,)), encoder=custom_networks.Encoder), np.ones(2)  # its activation is a leaf, and no array
    action = policy.predict(x)[0]
    halved = jax.tree.map(lambda x: 0.5 * x if eqx.is_array(x) else x, policy.actor_critic)
    assert (dataclasses.replace(policy, actor_critic=halved).predict(x)[0] != action).any()
    assert len(traced) == 1
    dataclasses.replace(policy, config=override(policy.config, {"matmul_precision": "highest"})).predict(x)
    assert len(traced) == 2
    np.testing.assert_array_equal(copy.deepcopy(policy).predict(x)[0], action)


MASKED = Dict((("observation", Box((2,))), ("action_mask", MultiBinary((3,)))))


def test_an_action_mask_may_be_an_argument():
    policy, mask = made(Discrete(3), MASKED), np.array([False, True, False])
    observation = np.ones(2, np.float32)
    for given in (observation, {"observation": observation}):
        assert policy.predict(given, action_mask=mask)[0] == 1
    assert policy.predict({"observation": observation, "action_mask": mask})[0] == 1
    many, _ = policy.predict(np.ones((3, 2)), action_mask=np.eye(3, dtype=bool))
    assert many.tolist() == [0, 1, 2]
    parts = Dict((("observation", Box((2,))), ("action_mask", MultiBinary((5,)))))
    action, _ = made(MultiDiscrete((3, 2)), parts).predict(observation, action_mask=(np.array([0, 0, 1]), np.array([1, 0])))
    assert action.tolist() == [2, 0]


WRONG = {
    "plain": {"space": Box((2,))},
    "gru": {"space": Box((2,)), "memory": "gru", "memory_size": 4},
    "kept": {"space": Box((2,)), "memory": "gru", "memory_size": 4, "reset_memory": False},
    "lstm": {"space": Box((2,)), "memory": "lstm", "memory_size": 4},
    "observing": {"space": Box((2,)), **REMEMBERING["observing"]},
    "masked": {"actions": Discrete(3), "space": MASKED},
}


@functools.cache
def wrongly_called(name):
    return made(**WRONG[name])


def memory(name):
    return wrongly_called(name).init_memory()


def after_a_step():
    return wrongly_called("observing").predict(np.zeros(2), None, True)[1]


THREE, ODD = {"observation": np.zeros((3, 2))}, {"x": np.ones(2)}


@pytest.mark.parametrize(
    ("policy", "arguments", "sentence"),
    [
        ("plain", {**THREE, "episode_start": True}, "^episode_start = True: expected True or False for each of"),
        ("plain", {"episode_start": [True, True]}, r"^episode_start = \[True, True\]: expected True or False\.$"),
        ("plain", {"deterministic": False}, "key = None with deterministic = False: pass a key to sample, and only then"),
        ("plain", {"key": jax.random.key(0)}, "key = .* with deterministic = True: pass a key to sample, and only then"),
        ("gru", {}, r"memory was not given, but this policy has a memory: pass memory=policy\.init_memory\(N\)"),
        ("kept", {"episode_start": True}, "memory was not given"),
        ("gru", {"memory": lambda: memory("lstm")}, r"is not of this policy for 1 environments: expected policy\.i"),
        ("gru", {"memory": lambda: memory("gru"), **THREE}, "memory is not of this policy for 3 environments"),
        ("gru", {"memory": lambda: wrongly_called("gru").actor_critic.init_memory(1)}, "memory is not of this policy"),
        ("observing", {"memory": after_a_step}, r"reward was not given, but this policy observes it \(observe_reward\)"),
        ("observing", {"memory": after_a_step, "reward": "much"}, r"^reward = 'much': expected a finite number\.$"),
        ("masked", {"action_mask": np.ones(5)}, r"^action_mask = .*: expected 3 numbers, which are 0 for forbidden choices\."),
        ("masked", {}, "action_mask was not given, but this policy was trained with action masks: pass action_mask"),
        ("masked", {"observation": ODD, "action_mask": [1, 1, 1]}, "is a dict of x: expected a dict of observation"),
        ("plain", {"action_mask": [1, 1]}, "action_mask was given, but this policy was trained without action masks"),
    ],
)
def test_arguments_that_do_not_match_raise(policy, arguments, sentence):
    given = {name: value() if callable(value) else value for name, value in {"observation": np.zeros(2), **arguments}.items()}
    with pytest.raises(ConfigError, match=sentence):
        wrongly_called(policy).predict(**given)


@pytest.mark.parametrize("policy", ["gru", "observing"])
def test_a_missing_memory_is_a_new_one_where_episodes_begin(policy):
    policy, observation = wrongly_called(policy), np.ones((2, 2))
    assert repr(policy).startswith("Policy('toys:RandomEnds' at step 0, memory gru of "), "without arrays"
    expected, _ = policy.predict(observation, policy.init_memory(2), [True, True])
    np.testing.assert_array_equal(policy.predict(observation, None, [True, True])[0], expected)
