"""Custom networks: what they compute, and the errors for those that do not fit."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import JaxTrainer
from proximo.collect.policy_check import check_policy
from proximo.config import Config
from proximo.config.custom import Custom, resolve
from proximo.errors import ConfigError
from proximo.networks import make_policy
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import custom_networks as custom
import toys
from helpers import difference, small_collector, small_config

VECTOR, PARTS = Box((3,)), Dict((("a", Box((2,))), ("b", Box((1,)))))
NETWORKS = {
    "encoder of a dict": {"encoder": custom.Encoder},
    "memory": {"memory": custom.Memory},
    "memory with unroll": {"memory": custom.Decay},
    "memory carried over": {"memory": custom.Memory, "reset_memory": False},
    "actor and critic": {"actor": custom.Actor, "critic": custom.Critic, "towers": "separate"},
    "whole": {"actor_critic": custom.Whole},
    "whole with memory": {"actor_critic": custom.WholeWithMemory},
    "everything": {
        "encoder": custom.Encoder, "memory": custom.Decay, "actor": custom.Actor, "critic": custom.Critic, "observe_action": True,
        "distribution": custom.Choice,
    },
}  # fmt: skip


def config_for(settings):
    """The small settings, without those of built-in networks."""
    base = {"hidden_sizes": Config().network.hidden_sizes, "memory_size": Config().network.memory_size}
    towers = {"towers": "separate"} if "actor_critic" in settings else {}
    return small_config(**{**base, **towers, **settings})


def policy_for(space, settings, action_space=None):
    return make_policy(jax.random.key(0), space, action_space or Discrete(4, 2), config_for(settings).network, True)


def env_for(space, action_space=None):
    return toys.AnySpaces(space, action_space or Discrete(4, 2))


def sequences(space, steps=5, envs=3):
    rng = np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(1), (steps, envs))
    episode_start, valid = rng.random((2, steps, envs)) < [[[0.3]], [[0.7]]]
    return jax.vmap(jax.vmap(lambda key: toys.draw(key, space)))(keys), jnp.asarray(episode_start), jnp.asarray(valid)


def variant(base, **methods):
    """A subclass with other methods."""
    return type(base)(base.__name__, (base,), methods)


@pytest.mark.parametrize("name", NETWORKS)
def test_custom_networks_step_as_they_unroll(name):
    space = PARTS if "dict" in name else VECTOR
    policy = policy_for(space, NETWORKS[name])
    observation, episode_start, valid = sequences(space)
    previous = jax.tree.map(lambda x: jnp.broadcast_to(x, (5, *x.shape)), policy.no_previous_step(3))
    observation = policy.with_previous_step(observation, episode_start, previous)

    def step(memory, x):
        memory, action, log_prob, value = policy.step(memory, *x)
        return memory, (action, log_prob, value)

    @jax.jit
    def both(memory):
        keys = jax.random.split(jax.random.key(7), 5)
        memory, _ = jax.lax.scan(step, memory, (observation, episode_start, valid, keys))  # a memory that is not empty
        after, (action, log_prob, value) = jax.lax.scan(step, memory, (observation, episode_start, valid, keys))

        def unrolled(episode_start):
            last, distribution, values = policy.unroll(memory, observation, episode_start, valid)
            return last, distribution.log_prob(action), values

        expected = after, log_prob, value
        return difference(unrolled(episode_start), expected), difference(unrolled(jnp.roll(episode_start, 1, 0)), expected)

    error, shifted = both(policy.init_memory(3))
    assert error < 1e-5
    if policy.is_recurrent and policy.reset_memory:
        assert shifted > 1e-3


@pytest.mark.parametrize("name", ["everything"])
def test_first_minibatch_has_ratio_one_and_all_parts_learn(name):
    collector = small_collector(
        env_for(VECTOR), **{**NETWORKS[name], **_defaults(NETWORKS[name])}, num_epochs=1, num_minibatches=1
    )
    state = collector.init(jax.random.key(0))
    after, metrics = jax.jit(lambda s: JaxTrainer(collector).advance(s, jnp.int32(1), 1))(state)
    assert abs(metrics["train/ratio_max"][0] - 1.0) < 1e-5
    assert abs(metrics["train/ratio_min"][0] - 1.0) < 1e-5
    before, learned = (eqx.filter(s.learner.policy, eqx.is_inexact_array) for s in (state, after))
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), before, learned)
    assert all(jax.tree.leaves((changed.torsos, changed.actor, changed.critic)))


def _defaults(settings):
    config = config_for(settings)
    return {name: getattr(config.network, name) for name in ("hidden_sizes", "memory_size", "towers")}


def test_seeds_share_weights_only_of_networks_given_as_objects():
    def weight(seed, encoder):
        policy = make_policy(jax.random.key(seed), VECTOR, Discrete(2), config_for({"encoder": encoder}).network, False)
        return policy.custom_part("encoder").layers[0].weight

    made = custom.Encoder(jax.random.key(5), VECTOR)
    assert difference(weight(0, custom.Encoder), weight(1, custom.Encoder)) > 0.01
    assert weight(0, made).tolist() == weight(1, made).tolist() == made.layers[0].weight.tolist()


def test_custom_distribution_samples_actions_of_the_space():
    space = Box((2,), (-0.5, 0.0), (0.5, 1.0))
    policy = policy_for(VECTOR, {"distribution": custom.Laplace}, space)
    observation, episode_start, valid = sequences(VECTOR)
    memory, action, log_prob, _ = policy.step(
        policy.init_memory(3), observation[0], episode_start[0], valid[0], jax.random.key(0)
    )
    again = policy.step(policy.init_memory(3), observation[0], episode_start[0], valid[0], jax.random.key(0))[1]
    assert action.shape == (3, 2)
    assert action.tolist() == again.tolist()
    assert len({tuple(one) for one in action.tolist()}) == 3  # each environment has its own noise
    distribution = policy.forward(memory, observation[0], episode_start[0], valid[0])[1]
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


BOUNDED = toys.AnySpaces(VECTOR, Box((2,), -1.0, 1.0))
WIDER = variant(custom.Memory, step=lambda self, state, x: (jnp.tile(state, 2), x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"encoder": variant(custom.Encoder, __call__=lambda self, x: jnp.outer(x, x))},
            r"^encoder: encoder\(observation of Box\(3,\) float32\) gives \(3, 3\) float32, expected a vector .* without a batch axis",
        ),
        (
            {"encoder": variant(custom.Encoder, __call__=lambda self, x: x @ jnp.zeros((7, 2)))},
            r"^encoder: encoder\(observation .*\) raised TypeError.*\(test_custom_networks.py, line \d+\)",
        ),
        ({"encoder": custom.Memory}, r"^encoder = custom_networks:Memory: the class lacks __call__"),
        ({"encoder": lambda key, space: 3}, r"^encoder: .* raised AttributeError: 'int' object has no attribute '__call__'"),
        ({"encoder": NewFunction}, r"^The custom networks, made twice with the same arguments, differ"),
        ({"encoder": Plain}, r"^encoder: Plain is not a pytree, .* subclass of equinox\.Module, .*register_dataclass"),
        ({"encoder": PlainInside}, r"^encoder: Plain is not a pytree"),
        ({"memory": custom.Encoder}, r"^memory = custom_networks:Encoder: the class lacks init and step"),
        (
            {"memory": WIDER},
            r"^memory: step\(state, x\) gives tuple of \(12,\) float32, .* state as init\(\) gives it, \(6,\) float32",
        ),
        (
            {"memory": custom.ForgetfulDecay},
            r"^memory: unroll\(state, x, episode_start, valid\) differs from repeated calls of step\.",
        ),
        (
            {"memory": variant(custom.Memory, init=lambda self: jnp.zeros(custom.UNITS, complex))},
            r"^memory: init\(\) has complex parameters or outputs: store real and imaginary parts",
        ),
        ({"actor": lambda key, i, o: custom.Actor(key, i, o + 1)}, r"^actor: actor\(8 features\) gives \(5,\) .* a vector of 4 "),
        ({"critic": lambda key, i: custom.Actor(key, i, 2)}, r"^critic: critic\(8 features\) gives \(2,\) .* a vector of 1 "),
        (
            {"actor_critic": variant(custom.Whole, __call__=lambda self, x: self.actor(self.encoder(x)))},
            r"^actor_critic: it gives \(4,\) float32, expected two arrays \(parameters, value\)",
        ),
        ({"actor_critic": lambda key, s, n: custom.Whole(key, s, n + 1)}, r"^actor_critic: its first output.* a vector of 4"),
        ({"actor_critic": lambda key, s, n: lambda x: (jnp.zeros(4), x[0])}, r"^Nothing in the custom networks can be learned"),
        ({"actor_critic": lambda key, s, n: custom.WholeWithMemory(key, s, n)}, r"^actor_critic: .* no attribute '__call__'"),
        ({"distribution": custom.WrongChoice}, r"^distribution: the probabilities of the 4 actions add up to"),
        (
            {"distribution": variant(custom.Laplace, to_space=lambda self, action: action + 100.0), "env": BOUNDED},
            r"^distribution: to_space maps a sample to an action outside of Box",
        ),
        (
            {"distribution": variant(custom.Laplace, log_prob=lambda self, parameters, action: jnp.inf), "env": BOUNDED},
            r"^distribution: log_prob of a sample is .* expected finite numbers",
        ),
        (
            {"distribution": variant(custom.Laplace, entropy=lambda self, parameters: parameters), "env": BOUNDED},
            r"^distribution: entropy gives \(2,\) float32, expected one floating-point number",
        ),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else None,
)
def test_networks_that_do_not_fit_raise(settings, message):
    sizes = {} if {"encoder", "actor_critic"} & settings.keys() else {"hidden_sizes": (8,)}
    env = settings.get("env", env_for(VECTOR))
    with pytest.raises(ConfigError, match=message):
        check_policy(env, config_for({**sizes, **{name: x for name, x in settings.items() if name != "env"}}))


@pytest.mark.parametrize("name", ["memory with unroll"])
def test_custom_networks_compute_in_another_type(name):
    settings = {**NETWORKS[name], **_defaults(NETWORKS[name]), "compute_dtype": "bfloat16"}
    check_policy(env_for(VECTOR), small_config(**settings))
    collector = small_collector(env_for(VECTOR), **settings)
    state, _ = jax.eval_shape(lambda s: JaxTrainer(collector).advance(s, jnp.int32(1), 1), collector.init(jax.random.key(0)))
    assert state.learner.policy.torsos[0].compute_dtype == "bfloat16"


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
    given = config_for({"encoder": Registered(jnp.ones((3, 2)))})
    with pytest.raises(ConfigError, match=r"^encoder: Registered is not a pytree"):
        check_policy(env_for(VECTOR), given)
    jax.tree_util.register_dataclass(Registered)
    check_policy(env_for(VECTOR), given)


def test_custom_parts_are_found_in_the_policy():
    policy = policy_for(VECTOR, NETWORKS["everything"])
    for part in ("encoder", "memory", "actor", "critic", "distribution"):
        assert type(policy.custom_part(part)).__module__ == "custom_networks"
    observation = policy.with_previous_step(jnp.zeros((2, 3)), jnp.ones(2, bool), policy.no_previous_step(2))
    assert policy.encode(observation).shape == (2, custom.UNITS)
    with pytest.raises(ConfigError, match=r"^'encoder' is not a custom part of .* tower 0; its custom parts are: critic\."):
        policy_for(VECTOR, {"critic": custom.Critic}).custom_part("encoder")


@pytest.mark.parametrize("name", [*NETWORKS, "continuous distribution"])
def test_custom_networks_pass_the_checks(name):
    env = BOUNDED if name not in NETWORKS else env_for(PARTS if "dict" in name else VECTOR)
    check_policy(env, config_for(NETWORKS.get(name, {"distribution": custom.Laplace})))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("custom_networks:Encoders", r"has no such name \(did you mean 'Encoder'\?\)"),
        ("custom_networks:UNITS", r"is int: expected a class, or a function of a custom module"),
        ("no_such_module:Encoder", r"the module 'no_such_module' cannot be imported"),
        ("equinox:filter_jit", r"expected a class, or a function of a custom module"),
        ("custom_networks:subprocess.getoutput", r"custom_networks has no such name"),
        ("subprocess:Popen", r"^encoder = 'subprocess:Popen': 'subprocess' is a part of Python"),
        ("custom_networks:getoutput", r"is function: expected a class, or a function of a custom module"),
    ],
)
def test_name_without_a_network_raises(name, message):
    with pytest.raises(ConfigError, match=message):
        policy_for(VECTOR, {"encoder": name})


@pytest.mark.parametrize("code", [custom.Encoder, custom.no_loss, custom.compiled, custom.Outer.Inner])
def test_named_code_is_resolved_by_its_name(code):
    assert resolve("setting", str(Custom(code)), ()) is code


@pytest.mark.parametrize("code", [custom.getoutput, eqx.nn.Linear.__call__, custom.Encoder(jax.random.key(0), VECTOR)])
def test_code_that_cannot_be_resolved_has_no_name(code):
    assert str(Custom(code)).startswith("<")


class TorchModule:
    """Like ``torch.nn.Module``, for environments without PyTorch."""

    __module__ = "torch.nn.modules.module"

    def __call__(self, x):
        return x


class TorchEncoder(TorchModule):
    __module__ = __name__


@pytest.mark.parametrize("encoder", [TorchEncoder, TorchEncoder(), lambda key, space: TorchEncoder(), f"{__name__}:TorchEncoder"])
def test_a_pytorch_module_is_refused_by_that_name(encoder):
    with pytest.raises(ConfigError, match=r"^encoder: TorchEncoder is a PyTorch module, and proximo computes with JAX"):
        policy_for(VECTOR, {"encoder": encoder})
