"""Networks of the user's: what they compute, and what is said where they do not fit."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import Config, override, to_mapping
from proximo.drivers.learning import hold_policy
from proximo.errors import ConfigError
from proximo.networks import make_policy
from proximo.networks.laws import hold_laws
from proximo.own_code import Own, resolve
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import own_networks as own
import toys
from helpers import difference, small_config, small_driver

VECTOR, PARTS = Box((3,)), Dict((("a", Box((2,))), ("b", Box((1,)))))
NETWORKS = {
    "encoder": {"encoder": own.Encoder},
    "encoder of a dict": {"encoder": own.Encoder},
    "encoder with our memory": {"encoder": own.Encoder, "memory": "gru"},
    "memory": {"memory": own.Memory},
    "memory that unrolls itself": {"memory": own.Decay},
    "memory carried over": {"memory": own.Memory, "reset_memory": False},
    "actor and critic": {"actor": own.Actor, "critic": own.Critic, "towers": "separate"},
    "whole": {"actor_critic": own.Whole},
    "whole with memory": {"actor_critic": own.WholeWithMemory},
    "everything": {"encoder": own.Encoder, "memory": own.Decay, "actor": own.Actor, "critic": own.Critic, "observe_action": True},
    "distribution": {"distribution": own.Choice},
}


def config_for(settings):
    """The small settings, without what is for networks of proximo's."""
    base = {"hidden_sizes": Config().network.hidden_sizes, "memory_size": Config().network.memory_size}
    towers = {"towers": "separate"} if "actor_critic" in settings else {}
    return small_config(**{**base, **towers, **settings})


def policy_for(space, settings, action_space=None):
    return make_policy(jax.random.key(0), space, action_space or Discrete(4, 2), config_for(settings).network, True)


def env_for(space, action_space=None):
    return toys.AnySpaces(space, action_space or Discrete(4, 2))


def rows(space, steps=5, envs=3):
    rng = np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(1), (steps, envs))
    first, valid = rng.random((2, steps, envs)) < [[[0.3]], [[0.7]]]
    return jax.vmap(jax.vmap(lambda key: toys.draw(key, space)))(keys), jnp.asarray(first), jnp.asarray(valid)


@pytest.mark.parametrize("name", NETWORKS)
def test_stepping_is_unrolling_with_networks_of_the_users(name):
    space = PARTS if "dict" in name else VECTOR
    policy = policy_for(space, NETWORKS[name])
    observation, first, valid = rows(space)
    before = jax.tree.map(lambda x: jnp.broadcast_to(x, (5, *x.shape)), policy.nothing_before(3))
    observation = policy.observed(observation, first, before)

    def row(memory, x):
        memory, action, log_prob, value = policy.step(memory, *x)
        return memory, (action, log_prob, value)

    @jax.jit
    def both(memory):
        keys = jax.random.split(jax.random.key(7), 5)
        memory, _ = jax.lax.scan(row, memory, (observation, first, valid, keys))  # one that is not empty
        after, (action, log_prob, value) = jax.lax.scan(row, memory, (observation, first, valid, keys))

        def unrolled(first):
            last, distribution, values = policy.unroll(memory, observation, first, valid)
            return last, distribution.log_prob(action), values

        expected = after, log_prob, value
        return difference(unrolled(first), expected), difference(unrolled(jnp.roll(first, 1, 0)), expected)

    law, shifted = both(policy.init_memory(3))
    assert law < 1e-5
    if policy.is_recurrent and policy.reset_memory:
        assert shifted > 1e-3


@pytest.mark.parametrize("name", ["encoder", "memory that unrolls itself", "whole with memory", "everything", "distribution"])
def test_the_first_minibatch_has_ratio_one_and_every_part_is_learned(name):
    driver = small_driver(env_for(VECTOR), **{**NETWORKS[name], **_defaults(NETWORKS[name])}, num_epochs=1, num_minibatches=1)
    state = driver.init(jax.random.key(0))
    after, metrics = jax.jit(lambda s: driver.advance(s, jnp.int32(1), 1))(state)
    assert abs(metrics["train/ratio_max"][0] - 1.0) < 1e-5
    assert abs(metrics["train/ratio_min"][0] - 1.0) < 1e-5
    before, learned = (eqx.filter(s.learner.policy, eqx.is_inexact_array) for s in (state, after))
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), before, learned)
    assert all(jax.tree.leaves((changed.torsos, changed.actor, changed.critic)))


def _defaults(settings):
    config = config_for(settings)
    return {name: getattr(config.network, name) for name in ("hidden_sizes", "memory_size", "towers")}


def test_seeds_have_networks_of_their_own_unless_they_are_given_as_objects():
    made = own.Encoder(jax.random.key(5), VECTOR)
    fresh = [
        make_policy(jax.random.key(i), VECTOR, Discrete(2), config_for({"encoder": own.Encoder}).network, False) for i in (0, 1)
    ]
    given = [make_policy(jax.random.key(i), VECTOR, Discrete(2), config_for({"encoder": made}).network, False) for i in (0, 1)]
    weights = [policy.own("encoder").layers[0].weight for policy in (*fresh, *given)]
    assert difference(weights[0], weights[1]) > 0.01
    assert all(weight.tolist() == made.layers[0].weight.tolist() for weight in weights[2:])


def test_the_users_distribution_is_acted_by_within_the_space():
    space = Box((2,), (-0.5, 0.0), (0.5, 1.0))
    policy = policy_for(VECTOR, {"distribution": own.Laplace}, space)
    observation, first, valid = rows(VECTOR)
    memory, action, log_prob, _ = policy.step(policy.init_memory(3), observation[0], first[0], valid[0], jax.random.key(0))
    again = policy.step(policy.init_memory(3), observation[0], first[0], valid[0], jax.random.key(0))[1]
    assert action.shape == (3, 2)
    assert action.tolist() == again.tolist()
    assert len({tuple(row) for row in action.tolist()}) == 3  # noise of its own for each environment
    distribution = policy.forward(memory, observation[0], first[0], valid[0])[1]
    by_hand = jnp.sum(-jnp.abs(action - distribution.parameters) * jnp.exp(1.0) + 1.0 - jnp.log(2.0), axis=-1)
    np.testing.assert_allclose(log_prob, by_hand, rtol=1e-5)
    taken = np.asarray(policy.to_space(action * 100.0))
    assert (taken >= [-0.5, 0.0]).all()
    assert (taken <= [0.5, 1.0]).all()
    assert policy.actor.features(action).shape == (3, 2)


@pytest.mark.parametrize(
    ("space", "expected"),
    [(Discrete(3, 5), [[0, 1, 0]]), (MultiDiscrete((2, 3), (1, 0)), [[1, 0, 0, 1, 0]]), (MultiBinary((2,)), [[1, 1]])],
)
def test_actions_of_the_users_distribution_can_be_observed(space, expected):
    class Fixed:
        num_parameters = 1

        def __init__(self, space):
            self.single = isinstance(space, Discrete)

        def to_space(self, action):
            return action + 6 if self.single else jnp.ones(2, int)

        def sample(self, parameters, key):
            return jnp.int32(0)

        def mode(self, parameters):
            return jnp.int32(0)

        def log_prob(self, parameters, action):
            return jnp.sum(parameters)

        def entropy(self, parameters):
            return jnp.sum(parameters)

    head = policy_for(VECTOR, {"distribution": Fixed}, space).actor
    assert head.features(jnp.zeros(1, jnp.int32)).tolist() == expected


def refused(message, env=None, **settings):
    """What is said before anything is trained."""
    with pytest.raises(ConfigError, match=message):
        hold_policy(env or env_for(VECTOR), config_for(settings))


class TwoAxes(own.Encoder):
    def __call__(self, x):
        return jnp.outer(x, x)


class Whole1(own.Whole):
    def __call__(self, observation):
        return super().__call__(observation)[0]


class GrowingState(own.Memory):
    def step(self, state, x):
        return jnp.concatenate([state, state]), x


class Breaks(own.Encoder):
    def __call__(self, x):
        return x @ jnp.zeros((7, 2))


class NewFunction(own.Encoder):
    def __init__(self, key, space):
        super().__init__(key, space)
        self.activation = lambda x: x


class HiddenArray:
    def __init__(self, key, space):
        self.weight = jnp.zeros((3, 2))

    def __call__(self, x):
        return x @ self.weight


class Outside(own.Laplace):
    def to_space(self, action):
        return action + 100.0


class Infinite(own.Laplace):
    def log_prob(self, parameters, action):
        return super().log_prob(parameters, action) / 0.0


class RowsOfEntropy(own.Laplace):
    def entropy(self, parameters):
        return parameters


class Complex(own.Memory):
    def init(self):
        return jnp.zeros(own.UNITS, complex)


class Circle(own.Encoder):
    def __init__(self, key, space):
        super().__init__(key, space)
        self.activation = self


class HoldsItself:
    __slots__ = ("me",)

    def __init__(self):
        self.me = self


class CircleInSlots(own.Encoder):
    def __init__(self, key, space):
        super().__init__(key, space)
        self.activation = HoldsItself()


class Nothing(eqx.Module):
    def __call__(self, x):
        return jnp.zeros(4), x[0]


BOUNDED = toys.AnySpaces(VECTOR, Box((2,), -1.0, 1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"encoder": TwoAxes},
            r"^encoder: encoder\(observation of Box\(3,\) float32\) gives \(3, 3\) float32, expected a vector .* without a batch axis",
        ),
        ({"encoder": Breaks}, r"^encoder: encoder\(observation .*\) raised TypeError.*\(test_own_networks.py, line \d+\)"),
        ({"encoder": own.Memory}, r"^encoder = own_networks:Memory: the class lacks __call__"),
        ({"encoder": lambda key, space: 3}, r"^encoder = <.*lambda>> gave int, which lacks __call__"),
        ({"encoder": NewFunction}, r"^The encoder or memory of your own, made twice alike, came out different"),
        ({"encoder": HiddenArray}, r"^encoder: an array lies in an object that JAX cannot look into"),
        ({"memory": own.Encoder}, r"^memory = own_networks:Encoder: the class lacks init and step"),
        (
            {"memory": GrowingState},
            r"^memory: init\(\) gives the state \(6,\) float32, and step \(12,\) float32: expected the same",
        ),
        (
            {"memory": own.ForgetfulDecay},
            r"^memory: unroll\(state, x, first, valid\) and its rows one by one through step differ by",
        ),
        (
            {"actor": lambda key, i, o: own.Actor(key, i, o + 1)},
            r"^actor: actor\(8 features\) gives \(5,\) float32, expected a vector of 4 ",
        ),
        (
            {"critic": lambda key, i: own.Actor(key, i, 2)},
            r"^critic: critic\(8 features\) gives \(2,\) float32, expected a vector of 1 ",
        ),
        ({"actor_critic": Whole1}, r"^actor_critic: it gives \(4,\) float32, expected two arrays \(parameters, value\)"),
        (
            {"actor_critic": lambda key, s, n: own.Whole(key, s, n + 1)},
            r"^actor_critic: its first output.* gives \(5,\) float32, expected a vector of 4",
        ),
        ({"memory": Complex}, r"^memory: init\(\) gives the state \(6,\) complex64: keep complex numbers as two"),
        ({"encoder": Circle}, r"^encoder: Circle holds itself"),
        ({"encoder": CircleInSlots}, r"^encoder: CircleInSlots holds itself"),
        ({"actor_critic": Nothing()}, r"^Nothing in the networks of your own can be learned"),
        (
            {"actor_critic": lambda key, s, n: own.WholeWithMemory(key, s, n)},
            r"^actor_critic: what the function makes has a memory",
        ),
        ({"distribution": own.WrongChoice}, r"^distribution: the probabilities of the 4 actions add up to"),
        ({"distribution": Outside, "env": BOUNDED}, r"^distribution: to_space makes of a sample an action outside of Box"),
        ({"distribution": Infinite, "env": BOUNDED}, r"^distribution: log_prob of a sample is .* expected finite numbers"),
        (
            {"distribution": RowsOfEntropy, "env": BOUNDED},
            r"^distribution: entropy gives \(2,\) float32, expected one floating-point number",
        ),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else None,
)
def test_what_does_not_fit_is_a_sentence(settings, message):
    settings = dict(settings)
    if "hidden_sizes" not in settings and not {"encoder", "actor_critic"} & settings.keys():
        settings["hidden_sizes"] = (8,)
    refused(message, **settings)


@pytest.mark.parametrize("name", ["memory", "memory that unrolls itself", "whole with memory", "encoder"])
def test_networks_of_the_users_compute_in_another_type(name):
    settings = {**NETWORKS[name], **_defaults(NETWORKS[name]), "compute_dtype": "bfloat16"}
    hold_policy(env_for(VECTOR), small_config(**settings))
    driver = small_driver(env_for(VECTOR), **settings)
    state, _ = jax.eval_shape(lambda s: driver.advance(s, jnp.int32(1), 1), driver.init(jax.random.key(0)))
    assert state.learner.policy.torsos[0].compute_dtype == "bfloat16"


class Slotted:
    """No pytree, and no attributes but those in its slots."""

    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return self.scale * x


def test_objects_are_the_same_by_what_they_hold():
    rests = [
        policy_for(VECTOR, {"encoder": Slotted(scale)}).torsos[0].encoder.held.rest
        for scale in (1.0, 1.0, 3.0, float("nan"), float("nan"))
    ]
    assert rests[0] == rests[1]
    assert rests[0] != rests[2]
    assert rests[3] == rests[4] != rests[0]
    assert hash(rests[0]) == hash(rests[1])


def test_the_users_objects_are_found_again_in_the_policy():
    policy = policy_for(VECTOR, {**NETWORKS["everything"], "distribution": own.Choice})
    for part in ("encoder", "memory", "actor", "critic", "distribution"):
        assert type(policy.own(part)).__module__ == "own_networks"
    assert policy.encoded(policy.observed(jnp.zeros((2, 3)), jnp.ones(2, bool), policy.nothing_before(2))).shape == (2, own.UNITS)
    with pytest.raises(ConfigError, match=r"^'encoder' is proximo's own in this policy; the user's are: critic\."):
        policy_for(VECTOR, {"critic": own.Critic}).own("encoder")


def test_what_fits_is_held_against_the_laws_where_it_has_some_of_its_own(monkeypatch):
    """And is not refused."""
    held = []
    monkeypatch.setattr("proximo.drivers.learning.hold_laws", lambda *spaces: held.append(hold_laws(*spaces)))
    for name, settings in NETWORKS.items():
        before = len(held)
        hold_policy(env_for(PARTS if "dict" in name else VECTOR), config_for(settings))
        assert len(held) - before == (name in ("memory that unrolls itself", "everything", "distribution")), name
    hold_policy(BOUNDED, config_for({"distribution": own.Laplace}))
    assert len(held) == 4


def test_an_own_network_is_saved_by_its_name_or_as_lost():
    def local(key, space):
        return own.Encoder(key, space)

    named, lost = (to_mapping(override(Config(), {"encoder": code}))["network"]["encoder"] for code in (own.Encoder, local))
    assert named == "own_networks:Encoder"
    assert lost.startswith("<")
    again = config_for({"encoder": named})
    policy = make_policy(jax.random.key(0), VECTOR, Discrete(2), again.network, False)
    assert isinstance(policy.own("encoder"), own.Encoder)
    with pytest.raises(ConfigError, match=r"was an object of the program that trained: give it again"):
        make_policy(jax.random.key(0), VECTOR, Discrete(2), config_for({"encoder": lost}).network, False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_networks:Encoders", r"has nothing of that name \(did you mean 'Encoder'\?\)"),
        ("own_networks:UNITS", r"is int: expected a class, or a function of a module of your own"),
        ("no_such_module:Encoder", r"the module 'no_such_module' cannot be imported"),
        ("equinox:filter_jit", r"expected a class, or a function of a module of your own"),
        ("own_networks:subprocess.getoutput", r"own_networks has nothing of that name"),
        ("own_networks:getoutput", r"is function: expected a class, or a function of a module of your own"),
    ],
)
def test_a_name_that_leads_to_no_network_is_told(name, message):
    with pytest.raises(ConfigError, match=message):
        policy_for(VECTOR, {"encoder": name})


def test_a_module_of_pythons_own_is_never_imported():
    with pytest.raises(ConfigError, match=r"^encoder = 'subprocess:Popen': 'subprocess' is a part of Python"):
        policy_for(VECTOR, {"encoder": "subprocess:Popen"})


@pytest.mark.parametrize("code", [own.Encoder, own.no_loss, own.compiled, own.Outer.Inner])
def test_what_has_a_name_is_found_by_it(code):
    assert resolve("setting", str(Own(code)), ()) is code


@pytest.mark.parametrize("code", [own.getoutput, eqx.nn.Linear.__call__, own.Encoder(jax.random.key(0), VECTOR)])
def test_what_would_not_be_found_has_no_name(code):
    assert str(Own(code)).startswith("<")


def test_equal_objects_are_equal_settings():
    assert Own(own.Encoder) == Own(own.Encoder)
    assert Own(own.Encoder) != Own(own.Memory)
    assert dataclasses.replace(Config()) == Config()
