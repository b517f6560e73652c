"""``pretrain`` imitates every kind of action, in order where the policy depends on it; ``learn`` continues."""

import functools
import re

import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.errors import ConfigError, TrainingError
from proximo.pretraining import Demonstrations, cloning_loss, padded, split
from proximo.spaces import ACTION_MASK, Box, Discrete, MultiBinary, MultiDiscrete

import toys
from gym_toys import Countdown
from helpers import bits, shaken

SETTINGS = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "eval_episodes": 0, "hidden_sizes": (32,)}
GRU = {"memory": "gru", "memory_size": 16}
STEPS = 1024


def agent(action_space=None, **settings):
    return proximo.PPO(toys.AnySpaces(Box((3,)), action_space or Discrete(2)), **{**SETTINGS, **settings})


def observations(seed=0):
    """Numbers far from 0, of different scales."""
    return (np.random.default_rng(seed).normal(size=(STEPS, 3)) * (1.0, 30.0, 5.0) + (0.0, 100.0, -20.0)).astype(np.float32)


def signs(x):
    """Which of the observed numbers are above their mean."""
    return x > (0.0, 100.0, -20.0)


# By kind: the action space, and the action of the demonstrator.
KINDS = {
    "discrete from 3": (Discrete(4, 3), lambda x: 3 + signs(x)[:, 0] + 2 * signs(x)[:, 1]),
    "several choices": (MultiDiscrete((2, 2, 3), (1, 0, -1)), lambda x: signs(x) + np.array([1, 0, -1])),
    "bits": (MultiBinary((3,)), lambda x: signs(x).astype(np.int8)),
    "continuous": (Box((2,), (-2.0, 0.0), (2.0, 4.0)), lambda x: np.where(signs(x)[:, :2], [1.5, 4.0], [-0.5, 2.0])),
    "unbounded": (Box((2,)), lambda x: np.where(signs(x)[:, :2], 1.5, -0.5)),
}


@pytest.mark.learning
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_action_is_imitated_on_new_observations(kind):
    space, act = KINDS[kind]
    learner = agent(space, normalize_observation=True, state_dependent_std=False)
    x, new, before = observations(), observations(1), learner.policy.actor_critic
    assert imitated(learner, new, act) < 0.65
    losses = proximo.pretrain(learner, x, act(x), num_epochs=15, learning_rate=4e-3)
    assert len(losses) == 15
    assert losses[-1] < losses[0]
    assert imitated(learner, new, act) > 0.9
    after = learner.policy.actor_critic
    np.testing.assert_allclose(after.normalizer.mean, x.mean(0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(after.normalizer.variance, x.var(0), rtol=1e-3)
    # The value and the standard deviation stay as they are.
    kept = [(p.critic, p.torsos[1], getattr(p.actor, "log_std", None)) for p in (before, after)]
    assert bits(kept[0]) == bits(kept[1])
    assert bits((before.actor.readout, before.torsos[0])) != bits((after.actor.readout, after.torsos[0]))


def imitated(learner, x, act):
    """Share of the components in which the policy is nearer to the demonstrator's action than to its other actions."""
    half = 1.0 if isinstance(learner.env.action_space, Box) else 0.5
    return np.mean(np.abs(learner.predict(x)[0] - act(x)) < half)


@functools.cache
def remembered():
    """Episodes of 1 … 30 steps. The action is the first observation's sign, which later observations do not show."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 31, 120)
    start = np.concatenate([np.arange(length) == 0 for length in lengths])
    sign = np.repeat(rng.choice([-1.0, 1.0], len(lengths)), lengths)
    observation = np.stack([np.where(start, sign, 0.0), start, rng.normal(size=len(start))], 1).astype(np.float32)
    return observation, (sign > 0).astype(int), start


@pytest.mark.learning
@pytest.mark.parametrize("sequence_length", [0, 4])
def test_memory_learns_from_episodes_in_their_order(sequence_length):
    x, action, start = remembered()
    learner = agent(**GRU, sequence_length=sequence_length)
    proximo.pretrain(learner, x, action, start, num_epochs=30, learning_rate=5e-3)
    memory, correct = learner.policy.init_memory(), []
    for t in range(400):
        chosen, memory = learner.predict(x[t], memory, bool(start[t]))
        correct.append(chosen == action[t])
    assert np.mean(correct) > 0.95


def test_padded_sequences_have_the_loss_of_the_whole_demonstration():
    """Ten steps in sequences of four: the last one has two steps of padding, and each begins with the memory of the one before."""
    learner = agent(**GRU)
    x, actions = observations()[:10] / 30.0, jnp.arange(10) % 2
    start = jnp.array([True, False, False, False, False, False, True, False, False, False])
    policy = shaken(learner.policy.actor_critic)
    given = Demonstrations(
        policy.init_memory(1), None, *(jnp.asarray(a)[:, None] for a in (x, start, jnp.ones(10, bool), actions))
    )
    _, distribution, _ = policy.unroll(policy.init_memory(1), given.observation, given.episode_start, given.valid)
    expected = -distribution.log_prob(given.action).mean()
    assert float(cloning_loss(policy, split(policy, padded(given, 4), 4))) == pytest.approx(float(expected), rel=1e-5)


def test_observed_action_is_that_of_the_previous_step(monkeypatch):
    seen = []
    monkeypatch.setattr("proximo.pretraining._clone", lambda key, policy, steps, *_: seen.append(steps) or (policy, np.zeros(1)))
    learner = agent(Discrete(3, 1), observe_action=True, observe_reward=True)
    start = [True, False, False, True, False]
    proximo.pretrain(learner, np.zeros((5, 3)), [1, 2, 3, 2, 1], start, rewards=[0.5, 1.0, 2.0, 3.0, 4.0])
    [steps] = seen
    assert steps.observation["previous_action"][:, 0].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert steps.observation["previous_reward"][:, 0, 0].tolist() == [0.0, 0.5, 1.0, 0.0, 3.0]
    assert steps.action[:, 0].tolist() == [0, 1, 2, 1, 0]


def test_masked_actions_are_imitated_and_forbidden_ones_rejected():
    learner = proximo.PPO(toys.Forbidden(), **SETTINGS)
    mask = np.tile([[True, True, False, True], [True, False, False, True]], (32, 1))
    given = {"nothing": np.zeros((64, 1), np.float32), ACTION_MASK: mask}
    action = np.tile([4, 6], 32)
    proximo.pretrain(learner, given, action, num_epochs=30, learning_rate=1e-2)
    assert learner.predict(given)[0][1] in (3, 6)
    action[5] = 5
    with pytest.raises(ConfigError, match=r"^actions\[5\] is 5, which the action mask of its observation forbids"):
        proximo.pretrain(learner, given, action)


def test_training_continues_saves_and_resumes_exactly(tmp_path):
    x = observations()
    learner, again = (proximo.PPO("toys:RandomEnds", preset=False, **SETTINGS, normalize_observation=True) for _ in range(2))
    for one in (learner, again):
        keys = [bits(one._current_state().learner.key)]
        for _ in range(2):
            proximo.pretrain(one, x, signs(x)[:, 0].astype(int), num_epochs=1)
            keys.append(bits(one._current_state().learner.key))
        assert len({str(key) for key in keys}) == 3, "each call shuffles with another key"
    assert bits(learner.policy.actor_critic) == bits(again.policy.actor_critic)
    loaded = proximo.load(again.save(tmp_path / "saved"))
    assert learner.step == loaded.step == 0
    assert bits(learner.learn(320).policy.actor_critic) == bits(loaded.learn(320).policy.actor_critic)


def test_agent_of_a_gymnasium_environment_is_pretrained():
    learner = proximo.PPO(Countdown, **SETTINGS, num_workers=0)
    proximo.pretrain(learner, np.ones((16, 2)), np.ones(16, int), num_epochs=20, learning_rate=1e-2)
    assert learner.predict(np.ones(2, np.float32))[0] == 1
    assert learner.learn(64).step == 64


X = np.zeros((4, 3))


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, (X[0], [1]), r"^observations is a single observation: expected those of all steps"),
        ({}, (np.full((4, 3), np.nan), [0, 1, 0, 1]), r"^observations has nan: expected finite numbers"),
        ({}, (X, [0, 1, 0]), r"^actions has the shape \(3,\): expected \(4,\), one for each observation"),
        ({}, (X, [0, 1, 2, 1]), r"^actions has 2, which is not in Discrete\(2\)"),
        (
            GRU,
            (X, [0, 1, 0, 1]),
            r"^episode_start = None: expected a finite number, which this policy reads, for each of the 4 observations",
        ),
        (GRU, (X, [0, 1, 0, 1], [True]), r"^episode_start = \[True\]: expected"),
        (GRU, (X, [0, 1, 0, 1], [[1], [0, 0], [0], [0]]), r"^episode_start = \[\[1\], \[0, 0\]"),
        ({"observe_reward": True}, (X, [0, 1, 0, 1], [1, 0, 0, 0]), r"^rewards = None: expected"),
    ],
)
def test_demonstrations_that_do_not_fit_are_rejected(settings, arguments, message):
    with pytest.raises(ConfigError, match=message):
        proximo.pretrain(agent(**settings), *arguments)


def test_invalid_numbers_and_unbounded_actions_are_rejected():
    learner = agent(Box((1,), -2.0, 2.0))
    with pytest.raises(ConfigError, match=r"^actions\[2\] is \[2.5\], outside of the bounds of Box\(1,\) float32"):
        proximo.pretrain(learner, X, [[0.0], [2.00001], [2.5], [0.0]])
    rates = 0, np.inf, 2**128, 1e300, 10**400
    for name, values in (("num_epochs", (0, 2**80)), ("minibatch_size", (10**7, 10**400)), ("learning_rate", rates)):
        sentence = rf"^{name} = .*: expected a (whole number of 1 … 1000000|finite number above 0 \(as float32\))"
        for value in values:
            with pytest.raises(ConfigError, match=sentence):
                proximo.pretrain(learner, X, np.zeros((4, 1)), **{name: value})
    before = bits(learner.policy.actor_critic)
    for scale, rate in ((1.0, 1e30), (1e19, 1e-3), (1e30, 1e-3)):
        with pytest.raises(
            TrainingError, match=rf"^NaN or infinity in .*: use a learning_rate below {re.escape(str(rate))}, or scale"
        ):
            proximo.pretrain(learner, scale * observations(), np.zeros((STEPS, 1)), learning_rate=rate, num_epochs=3)
    assert bits(learner.policy.actor_critic) == before
