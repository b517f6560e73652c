"""Custom networks: what they compute, and the errors for those that do not fit."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxTrainer
from proximo.collect.learning import check_policy
from proximo.config import Config
from proximo.config.custom import Custom, resolve
from proximo.errors import ConfigError
from proximo.networks import make_policy
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import custom_networks as custom
import toys
from helpers import difference, small_collector, small_config

FOUR = Discrete(4, 2)
VECTOR, PARTS = Box((3,)), Dict((("a", Box((2,))), ("b", Box((1,)))))
BOUNDED = Box((2,), (-0.5, 0.0), (0.5, 1.0))


def config_for(settings):
    """The small settings, without those of built-in networks."""
    base = {"hidden_sizes": Config().network.hidden_sizes, "memory_size": Config().network.memory_size}
    towers = {"towers": "separate"} if "actor_critic" in settings else {}
    return small_config(**{**base, **towers, **settings})


def policy_for(space, settings, action_space=FOUR, key=0):
    return make_policy(jax.random.key(key), space, action_space, config_for(settings).network, True)


def check(settings, space=VECTOR, action_space=FOUR):
    check_policy(toys.AnySpaces(space, action_space), config_for(settings))


def variant(base, **methods):
    """A subclass with other methods."""
    return type(base)(base.__name__, (base,), methods)


@pytest.mark.parametrize("name", custom.NETWORKS)
def test_custom_networks_pass_the_checks(name):
    check(custom.NETWORKS[name], PARTS if "dict" in name else VECTOR)


def test_first_minibatch_has_ratio_one_and_all_parts_learn():
    network = config_for(custom.EVERYTHING).network
    defaults = {name: getattr(network, name) for name in ("hidden_sizes", "memory_size", "towers")}
    collector = small_collector(toys.AnySpaces(VECTOR, FOUR), **custom.EVERYTHING, **defaults, num_epochs=1, num_minibatches=1)
    state = collector.init(jax.random.key(0))
    after, metrics = jax.jit(lambda s: JaxTrainer(collector).advance(s, jnp.int32(1), 1))(state)
    assert abs(metrics["train/ratio_max"][0] - 1.0) < 1e-5
    assert abs(metrics["train/ratio_min"][0] - 1.0) < 1e-5
    before, learned = (eqx.filter(s.learner.policy, eqx.is_inexact_array) for s in (state, after))
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), before, learned)
    assert all(jax.tree.leaves((changed.torsos, changed.actor, changed.critic)))


def test_a_memory_with_unroll_computes_in_another_type():
    policy = policy_for(VECTOR, {**custom.NETWORKS["memory with unroll"], "compute_dtype": "bfloat16"})
    x, flags = jnp.ones((2, 3, 3)), jnp.ones((2, 3), bool)
    value = policy.unroll(policy.init_memory(3), x, flags, flags)[2]
    assert value.dtype == jnp.float32
    expected = policy_for(VECTOR, custom.NETWORKS["memory with unroll"]).unroll(policy.init_memory(3), x, flags, flags)[2]
    assert 0.0 < difference(value, expected) < 0.05


def test_seeds_share_weights_only_of_networks_given_as_objects():
    made = custom.Encoder(jax.random.key(5), VECTOR)
    weights = [
        [policy_for(VECTOR, {"encoder": x}, key=seed).custom_part("encoder").layers[0].weight for seed in (0, 1)]
        for x in (custom.Encoder, made)
    ]
    assert difference(*weights[0]) > 0.01
    assert weights[1][0].tolist() == weights[1][1].tolist() == made.layers[0].weight.tolist()


def test_custom_distribution_samples_actions_of_the_space():
    check({"distribution": custom.Laplace}, action_space=BOUNDED)
    policy = policy_for(VECTOR, {"distribution": custom.Laplace}, BOUNDED)
    arguments = policy.init_memory(3), jax.random.normal(jax.random.key(1), (3, 3)), jnp.ones(3, bool), jnp.ones(3, bool)
    _, action, log_prob, _ = policy.step(*arguments, jax.random.key(0))
    assert action.tolist() == policy.step(*arguments, jax.random.key(0))[1].tolist()
    assert len({tuple(one) for one in action.tolist()}) == 3  # each environment has its own noise
    parameters = policy.forward(*arguments)[1].parameters
    by_hand = jnp.sum(-jnp.abs(action - parameters) * jnp.exp(1.0) + 1.0 - jnp.log(2.0), axis=-1)
    np.testing.assert_allclose(log_prob, by_hand, rtol=1e-5)
    taken = np.asarray(policy.to_space(action * 100.0))
    assert (taken >= [-0.5, 0.0]).all()
    assert (taken <= [0.5, 1.0]).all()
    assert policy.actor.features(action).shape == (3, 2)


@pytest.mark.parametrize(
    ("space", "expected"),
    [(Discrete(3, 5), [[0, 1, 0]]), (MultiDiscrete((2, 3), (1, 0)), [[1, 0, 0, 1, 0]]), (MultiBinary((2,)), [[1, 1]])],
)
def test_actions_of_a_custom_distribution_can_be_observed(space, expected):
    methods = {"sample": lambda self, p, key: jnp.int32(0), "mode": lambda self, p: jnp.int32(0)}
    methods |= {"log_prob": lambda self, p, action: jnp.sum(p), "entropy": lambda self, p: jnp.sum(p), "num_parameters": 1}
    taken = 6 if isinstance(space, Discrete) else jnp.ones(2, int)
    fixed = variant(eqx.Module, __init__=lambda self, space: None, to_space=lambda self, action: action + taken, **methods)
    head = policy_for(VECTOR, {"distribution": fixed}, space).actor
    assert head.features(jnp.zeros(1, jnp.int32)).tolist() == expected


class NewFunction(custom.Encoder):
    def __init__(self, key, space):
        super().__init__(key, space)
        self.activation = lambda x: x


class Plain:
    def __init__(self, key, space):
        self.weight = jnp.zeros((3, 2))

    def __call__(self, x):
        return x @ self.weight


class PlainInside(custom.Encoder):
    def __init__(self, key, space):
        super().__init__(key, space)
        self.activation = Plain(key, space)


class TorchModule:
    """Like ``torch.nn.Module``, for environments without PyTorch."""

    __module__ = "torch.nn.modules.module"

    def __call__(self, x):
        return x


class TorchEncoder(TorchModule):
    __module__ = __name__


outer = variant(custom.Encoder, __call__=lambda self, x: jnp.outer(x, x))
mismatched = variant(custom.Encoder, __call__=lambda self, x: x @ jnp.zeros((7, 2)))
wider = variant(custom.Memory, step=lambda self, state, x: (jnp.tile(state, 2), x))
real_part = {"init": lambda self: jnp.zeros(6, complex), "step": lambda self, state, x: (0.5 * state + x.sum(), state.real)}
unsigned = variant(custom.Decay, unroll=lambda self, s, x, *flags: custom.Decay.unroll(self, s, jnp.abs(x), *flags))
unequal = variant(custom.Choice, temperature=2.0)
complex_state = variant(custom.Memory, **real_part)
without_value = variant(custom.Whole, __call__=lambda self, x: self.actor(self.encoder(x)))
outside = variant(custom.Laplace, to_space=lambda self, action: action + 100.0)
infinite = variant(custom.Laplace, log_prob=lambda self, parameters, action: jnp.inf)
unsummed = variant(custom.Laplace, entropy=lambda self, parameters: parameters)
TORCH = "encoder: TorchEncoder is a PyTorch module, and proximo computes with JAX"
ONE_OBSERVATION = "floating-point numbers: it is called for one observation of one environment, without a batch axis"
SENTENCES = [
    ("encoder", outer, rf"gives \(3, 3\) float32 as features, expected a vector of {ONE_OBSERVATION}"),
    ("encoder", mismatched, r"^encoder: encoder\(observation .*\) raised TypeError.*\(test_custom_networks.py, line \d+\)"),
    ("encoder", custom.Memory, r"^encoder = custom_networks:Memory: the class lacks __call__"),
    ("encoder", lambda key, space: 3, r"^encoder: .* raised AttributeError: 'int' object has no attribute '__call__'"),
    ("encoder", NewFunction, r"^The custom networks, made twice with the same arguments, differ"),
    ("encoder", Plain, r"^encoder: Plain is not a pytree, .* subclass of equinox\.Module, .*register_dataclass"),
    ("encoder", PlainInside, r"^encoder: Plain is not a pytree"),
    ("encoder", TorchEncoder, TORCH),
    ("encoder", TorchEncoder(), TORCH),
    ("encoder", lambda key, space: TorchEncoder(), TORCH),
    ("encoder", f"{__name__}:TorchEncoder", TORCH),
    ("encoder", "custom_networks:Encoders", r"has no such name \(did you mean 'Encoder'\?\)"),
    ("encoder", "custom_networks:UNITS", r"is int: expected a class, or a function of a custom module"),
    ("encoder", "no_such_module:Encoder", r"there is no module 'no_such_module'"),
    ("encoder", "equinox:filter_jit", r"expected a class, or a function of a custom module"),
    ("encoder", "custom_networks:subprocess.getoutput", r"custom_networks has no such name"),
    ("encoder", "subprocess:Popen", r"^encoder = 'subprocess:Popen': 'subprocess' is a part of Python"),
    ("encoder", "custom_networks:getoutput", r"is function: expected a class, or a function of a custom module"),
    ("memory", custom.Encoder, r"^memory = custom_networks:Encoder: the class lacks init and step"),
    ("memory", wider, r"^memory: step\(state, x\) gives the state \(12,\) float32, expected it as init\(\) gives it, \(6,\)"),
    ("memory", custom.ForgetfulDecay, r"^memory: unroll\(state, x, episode_start, valid\) differs from repeated calls of step"),
    ("memory", unsigned, r"^memory: unroll\(state, x, episode_start, valid\) differs from repeated calls of step"),
    ("memory", complex_state, r"^The custom networks have complex numbers: store real and imaginary parts"),
    ("actor", lambda key, i, o: custom.Actor(key, i, o + 1), r"^actor: actor\(8 features\) gives \(5,\) .* a vector of 4 "),
    ("critic", lambda key, i: custom.Actor(key, i, 2), r"^critic: critic\(8 features\) gives \(2,\) .* a vector of 1 "),
    ("actor_critic", without_value, r"^actor_critic: .* gives \(4,\) float32, expected a tuple of parameters, value"),
    ("actor_critic", lambda key, s, n: custom.Whole(key, s, n + 1), r"^actor_critic: .* as parameters, expected a vector of 4"),
    ("actor_critic", lambda key, s, n: lambda x: (jnp.zeros(4), x[0]), r"^Nothing in the custom networks can be learned"),
    ("actor_critic", lambda key, s, n: custom.WholeWithMemory(key, s, n), r"^actor_critic: .* no attribute '__call__'"),
    ("distribution", unequal, r"^distribution: the probabilities of the 4 actions add up to"),
    ("distribution", outside, r"^distribution: to_space maps a sample to an action outside of Box"),
    ("distribution", infinite, r"^distribution: log_prob of a sample is .* expected finite numbers"),
    ("distribution", unsummed, r"^distribution: entropy gives \(2,\) float32, expected one floating-point number"),
]


@pytest.mark.parametrize(("setting", "code", "sentence"), SENTENCES)
def test_code_that_does_not_fit_raises_one_sentence(setting, code, sentence):
    sizes = {} if setting in ("encoder", "actor_critic") else {"hidden_sizes": (8,)}
    space = BOUNDED if "Laplace" in str(Custom(code)) else FOUR
    with pytest.raises(ConfigError, match=sentence):
        check({**sizes, setting: code}, action_space=space)


class Scaled(eqx.Module):
    scale: object
    name: str = eqx.field(static=True, default="")

    def __call__(self, x):
        return self.scale * x


def test_fixed_values_compare_by_content():
    values = (1.0, 1.0, True, float("nan"), float("nan"), np.ones(3), np.ones(3), np.zeros(3))
    fixed = [policy_for(VECTOR, {"encoder": Scaled(value)}).torsos[0].encoder.custom.fixed for value in values]
    assert [[one == other for other in fixed].count(True) for one in fixed] == [2, 2, 1, 2, 2, 2, 2, 1]
    assert len(set(fixed)) == 5
    assert fixed[0] != policy_for(VECTOR, {"encoder": Scaled(1.0, "other")}).torsos[0].encoder.custom.fixed


@dataclasses.dataclass(frozen=True)
class Registered:
    weight: jax.Array

    def __call__(self, x):
        return x @ self.weight


def test_a_dataclass_is_a_network_once_it_is_registered():
    with pytest.raises(ConfigError, match=r"^encoder: Registered is not a pytree"):
        check({"encoder": Registered(jnp.ones((3, 2)))})
    jax.tree_util.register_dataclass(Registered)
    check({"encoder": Registered(jnp.ones((3, 2)))})


def test_custom_parts_are_found_in_the_policy():
    policy = policy_for(VECTOR, custom.EVERYTHING)
    for part in ("encoder", "memory", "actor", "critic", "distribution"):
        assert type(policy.custom_part(part)).__module__ == "custom_networks"
    observation = policy.with_previous_step(jnp.zeros((2, 3)), jnp.ones(2, bool), policy.no_previous_step(2))
    assert policy.encode(observation).shape == (2, custom.UNITS)
    with pytest.raises(ConfigError, match=r"^'encoder' is not a custom part of .* tower 0; its custom parts are: critic\."):
        policy_for(VECTOR, {"critic": custom.Critic}).custom_part("encoder")


def test_code_is_named_if_its_name_finds_it_again():
    for code in (custom.Encoder, custom.no_loss, custom.compiled, custom.Outer.Inner):
        assert resolve("setting", str(Custom(code)), ()) is code
    for code in (custom.getoutput, eqx.nn.Linear.__call__, custom.Encoder(jax.random.key(0), VECTOR)):
        assert str(Custom(code)).startswith("<")
