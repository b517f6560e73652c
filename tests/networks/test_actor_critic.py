import contextlib
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect.learning import check_policy
from proximo.config import NetworkConfig
from proximo.distributions.gaussian import LOG_STD_RANGE
from proximo.errors import ConfigError, EnvError
from proximo.networks import make_policy
from proximo.networks.heads import MAX_TANH, CategoricalHead, make_actor
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, random_actions

import toys
from helpers import drawn, shaken, small_config, small_policy

VECTOR, TWO = Box((3,)), Discrete(2)
PIXELS = Box((36, 36, 3), 0, 255, "uint8")
PARTS = Dict((("x", PIXELS), ("v", VECTOR)))
LARGEST = float(np.finfo(np.float32).max)
SCALED = Box((2,), (-2.0, 0.0), (2.0, 10.0))
HALF_BOUNDED = Box((4,), (-2.0, 0.0, -np.inf, -np.inf), (4.0, np.inf, 1.0, np.inf))


def policy_for(space, **settings):
    return make_policy(jax.random.key(0), Box((8,)), space, small_config(**settings).network, False)


def head_for(space, **settings):
    """A head without the values that it starts with: those of initializers take long to compile."""
    return drawn(lambda _: policy_for(space, **settings)).actor


@pytest.mark.parametrize(
    ("space", "mapping", "samples", "actions"),
    [
        (SCALED, "clip", [[0.0, 0.0], [0.5, -0.5], [3.0, -3.0]], [[0.0, 5.0], [1.0, 2.5], [2.0, 0.0]]),
        (Box((1,), -2.0, 2.0), "tanh", [[0.5], [-50.0]], [[0.9242343], [-2.0]]),
        (
            HALF_BOUNDED,
            "clip",
            [[0.0, -3.0, 3.0, 30.0], [9.0, 3.0, -3.0, -30.0]],
            [[1.0, 0.0, 1.0, 30.0], [4.0, 3.0, -3.0, -30.0]],
        ),
        (Box((2,), (-LARGEST, -2.0), (LARGEST, 4.0)), "clip", [[3.0, 1.0]], [[3.0, 4.0]]),  # infinite range in float32
    ],
)
def test_samples_are_mapped_where_both_bounds_are_finite(space, mapping, samples, actions):
    np.testing.assert_allclose(head_for(space, action_mapping=mapping).to_space(jnp.array(samples)), actions, atol=1e-6)


BOUNDED = Box((3, 2), (-2.0, 0.0, -1.0, 3.0, 0.0, 1.0), (2.0, 4.0, 1.0, 3.5, 0.0, 1.0))  # the last two bounds are equal


@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (Discrete(4, 3), {}),
        (MultiDiscrete((3, 2, 4, 2), (0, 1, -1, 5), (2, 2)), {}),
        (MultiBinary((2, 3)), {}),
        (BOUNDED, {}),
        (BOUNDED, {"action_mapping": "tanh"}),
        (BOUNDED, {"distribution": "beta"}),
        (Box((3,), (0.0, -np.inf, -5.0), (np.inf, 2.0, 1.0)), {"action_mapping": "tanh"}),
    ],
)
def test_from_space_is_the_inverse_of_to_space(space, settings):
    head = head_for(space, **settings)
    dtype = jnp.float32 if isinstance(space, Box) else jnp.int32
    actions = jnp.asarray(random_actions(space, np.random.default_rng(0), 50), dtype)
    atol = 2.0 * (1.0 - MAX_TANH) if settings.get("action_mapping") == "tanh" else 1e-5  # half of the range is at most 2 … 3
    samples = head.from_space(actions)
    assert np.isfinite(samples).all()
    np.testing.assert_allclose(head.to_space(samples), actions, rtol=1e-4, atol=1.5 * atol)
    if not isinstance(space, Box):  # they count from 0
        assert (samples.min(), head.to_space(samples).dtype) == (0, jnp.int32)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("settings", [{}, {"action_mapping": "tanh"}, {"distribution": "beta"}], ids=str)
def test_no_action_passes_a_bound_by_rounding(settings, dtype):
    low, width = np.random.default_rng(0).uniform(((-5.0,), (0.1,)), ((5.0,), (9.0,)), (2, 500)).round(2)
    ends = np.stack([low, low + width]).round(2).astype(dtype)
    policy = drawn(lambda _: policy_for(Box((500,), *map(tuple, ends.tolist()), dtype), **settings))
    extremes = (0.0, 1.0) if settings.get("distribution") == "beta" else (-30.0, 30.0)
    action = np.asarray(policy.to_space(jnp.stack([jnp.full(500, x) for x in extremes])), np.float64)
    assert (action >= ends[0]).all()
    assert (action <= ends[1]).all()
    np.testing.assert_allclose(action, ends, atol=1e-5)


@pytest.mark.parametrize("mapping", ["clip", "tanh"])
def test_state_dependent_std_starts_at_its_setting_and_varies_within_its_range(mapping):
    settings = {"action_mapping": mapping, "log_std_init": -0.5}
    space = Box((2,), -1.0, 1.0)
    varying, plain = (policy_for(space, state_dependent_std=v, **settings).actor for v in (True, False))
    features = jax.random.normal(jax.random.key(1), (64, 8))
    fresh = varying(features, None)
    assert type(plain(features, None)) is type(fresh)
    assert plain.log_std.tolist() == [-0.5, -0.5]
    np.testing.assert_allclose(fresh.log_std, -0.5, atol=0.1)
    assert float(jnp.std(fresh.log_std, axis=0).min()) > 0.0
    assert float(jnp.std(shaken(varying)(features, None).log_std, axis=0).min()) > 0.1
    far = varying(1e6 * features, None).log_std
    assert (float(far.min()), float(far.max())) == LOG_STD_RANGE


def test_beta_fills_the_bounds_and_starts_in_the_middle():
    head = policy_for(SCALED, distribution="beta").actor
    np.testing.assert_allclose(head.to_space(jnp.array([[0.0, 0.0], [0.25, 1.0]])), [[-2.0, 0.0], [-1.0, 10.0]])
    np.testing.assert_allclose(head.features(jnp.array([[0.0, 0.5], [0.25, 1.0]])), [[-1.0, 0.0], [-0.5, 1.0]])
    features = jax.random.normal(jax.random.key(1), (16, 8))
    np.testing.assert_allclose(head.to_space(head(features, None).mode()), [[0.0, 5.0]] * 16, atol=0.5)
    wide = head(1e3 * features, None)
    assert float(jnp.minimum(wide.alpha, wide.beta).min()) >= 1.0
    assert np.isfinite(wide.mode()).all()


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete((2, 1)), MultiBinary((3,))], ids=str)
@pytest.mark.parametrize("forbids", [-np.inf, -2e9])
def test_custom_logits_may_forbid_actions_by_infinity(space, forbids):
    head = make_actor(lambda features: features, space, NetworkConfig())

    def surprise(logits):
        distribution = head(logits, None)
        action = distribution.mode()
        return jnp.sum(distribution.entropy() - distribution.log_prob(action)), (distribution, action)

    (value, (distribution, action)), gradient = jax.value_and_grad(surprise, has_aux=True)(jnp.array([[0.3, forbids, 0.5]]))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    masked = head(jnp.array([[0.3, -1e8, 0.5]]), None)
    np.testing.assert_allclose(distribution.log_prob(action), masked.log_prob(action))


def test_policy_starts_almost_uniform_and_value_nonzero():
    policy = policy_for(Discrete(4))
    assert isinstance(policy.actor, CategoricalHead)
    episode_start = jnp.zeros((1, 16), bool)
    observation = jax.random.normal(jax.random.key(1), (1, 16, 8))
    _, distribution, value = policy.unroll(policy.init_memory(16), observation, episode_start, ~episode_start)
    np.testing.assert_allclose(distribution.entropy(), np.log(4.0), atol=1e-3)
    assert float(jnp.std(value)) > 0.1


@pytest.mark.parametrize("towers", ["separate", "shared"])
def test_towers_share_all_parameters_or_none(towers):
    sizes = {"shared_sizes": (5,)} if towers == "shared" else {}
    policy = small_policy(VECTOR, towers, memory="gru", head_sizes=(4,), **sizes)
    x, starts = jax.random.normal(jax.random.key(1), (1, 2, 3)), jnp.zeros((1, 2), bool)

    @functools.partial(jax.jit, static_argnums=1)
    @jax.grad
    def gradient(policy, of_value):
        _, distribution, value = policy.unroll(policy.init_memory(2), x, starts, ~starts)
        return jnp.sum(value if of_value else distribution.log_prob(jnp.zeros((1, 2), jnp.int32)))

    touched = [
        [max(float(jnp.abs(g).max()) > 0.0 for g in jax.tree.leaves(torso)) for torso in gradient(policy, of_value).torsos]
        for of_value in (False, True)
    ]
    assert touched == ([[True], [True]] if towers == "shared" else [[True, False], [False, True]])
    assert policy.actor.readout.hidden.layers[0].weight.shape == (5 if towers == "shared" else 8, 4)


def test_sizes_of_the_value_differ_from_those_of_the_policy():
    sizes = {"hidden_sizes": (6,), "critic_hidden_sizes": (9, 7), "head_sizes": (), "critic_head_sizes": (5,)}
    policy = small_policy(VECTOR, "separate", **sizes)
    made = [[layer.weight.shape for layer in torso.encoder.mlp.layers] for torso in policy.torsos]
    assert made == [[(3, 6)], [(3, 9), (9, 7)]]
    assert policy.actor.readout.output.weight.shape[0] == 6
    assert [layer.weight.shape for layer in policy.critic.hidden.layers] == [(7, 5)]


@pytest.mark.parametrize("memory", ["none", "gru", "lru", "gtrxl"])
def test_values_and_gradients_in_bfloat16_stay_near_those_in_float32(memory):
    # Compiled: XLA's CPU backend refuses some bfloat16 products only when they run.
    x, mask = jax.random.normal(jax.random.key(1), (6, 3, 3)), jnp.zeros((6, 3), bool).at[2, 1].set(True)

    @eqx.filter_jit
    def values_and_gradients(policy):
        def values(policy):
            value = policy.unroll(policy.init_memory(3), x, mask, ~mask)[2]
            return jnp.sum(jnp.sin(value)), value

        gradients, value = eqx.filter_grad(values, has_aux=True)(policy)
        return jax.tree.leaves((value, gradients.torsos[-1], gradients.critic))

    got, expected = (
        values_and_gradients(shaken(small_policy(VECTOR, memory=memory, compute_dtype=dtype)))
        for dtype in ("bfloat16", "float32")
    )
    assert not jnp.array_equal(got[0], expected[0])
    assert {leaf.dtype for leaf in got} == {jnp.dtype("float32")}
    for a, b in zip(got, expected, strict=True):
        assert float(jnp.linalg.norm(a - b)) < 0.05 * float(jnp.linalg.norm(b)) + 0.01  # the gradient of the keys' bias is 0


def test_sample_is_stored_before_it_is_mapped_to_the_space():
    policy = small_policy(VECTOR, action_space=Box((2,), (-0.1, 0.0), (0.1, np.inf)), log_std_init=1.0)
    x, flags, memory = jnp.ones((64, 3)), jnp.ones(64, bool), policy.init_memory(64)
    _, action, log_prob, _ = eqx.filter_jit(policy.step)(memory, x, flags, flags, jax.random.key(0))
    _, distribution, _ = policy.unroll(memory, x[None], flags[None], flags[None])
    assert jnp.any(jnp.abs(action[:, 0]) > 1.0)
    assert jnp.any(action[:, 1] < 0.0)
    np.testing.assert_allclose(distribution.log_prob(action[None])[0], log_prob, rtol=1e-4, atol=1e-4)
    taken = policy.to_space(action)
    assert jnp.all(jnp.abs(taken[:, 0]) <= 0.1)
    assert jnp.all(taken[:, 1] >= 0.0)


# The action space; a mask; the actions that it allows; and the biases of choices that it forbids, or that are certain.
MASKED = {
    "one": (Discrete(4, 3), [1, 0, 1, 0], {0, 2}, [1, 3]),
    "several": (MultiDiscrete((3, 1, 2), (0, 1, 0)), [0, 1, 1, 1, 0, 1], {(a, 0, 1) for a in (1, 2)}, [0, 3, 4, 5]),
    "bits": (MultiBinary((3,)), [1, 0, 0, 1, 1, 1], {(0, 1, c) for c in range(2)}, [0, 1]),
}


def masked_policy(name, dtype="float32"):
    """A policy, and two observations: with the mask, and with one that allows nothing, which is ignored."""
    space, mask, *_ = MASKED[name]
    entry = Box((len(mask),), 0.0, 1.0, dtype)
    policy = small_policy(Dict((("x", Box((2,))), ("action_mask", entry))), action_space=space)
    return policy, {"x": jnp.ones((2, 2)), "action_mask": jnp.array([mask, [0] * len(mask)], dtype)}


@pytest.mark.parametrize(("name", "count"), [("one", 4), ("several", 6), ("bits", 8)])
def test_masked_policy_takes_all_allowed_actions_and_no_others(name, count):
    policy, observation = masked_policy(name, "int8")
    arguments = policy.init_memory(2), observation, jnp.ones(2, bool), jnp.ones(2, bool)
    step = jax.jit(jax.vmap(lambda key: policy.step(*arguments, key)[1:3]))
    actions, log_probs = jax.device_get(step(jax.random.split(jax.random.key(0), 500)))
    seen, unmasked = ({tuple(a.tolist()) if a.ndim else int(a) for a in actions[:, i]} for i in (0, 1))
    assert seen == MASKED[name][2]
    assert len(unmasked) == count
    assert np.isfinite(log_probs).all()
    mode = policy.step(*arguments, None)[1][0]
    assert (tuple(mode.tolist()) if mode.ndim else int(mode)) in seen


@pytest.mark.parametrize("name", MASKED)
def test_forbidden_actions_have_zero_gradient_and_all_gradients_are_finite(name):
    policy, observation = masked_policy(name)
    one, flags = jax.tree.map(lambda x: x[None, :1], observation), jnp.ones((1, 1), bool)
    action = jnp.array([[sorted(MASKED[name][2])[0]]])

    def objective(policy):
        _, distribution, _ = policy.unroll(policy.init_memory(1), one, flags, flags)
        return jnp.sum(distribution.log_prob(action) + distribution.entropy())

    gradient = jax.jit(jax.grad(objective))(policy)
    assert all(jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(gradient))
    bias = gradient.actor.readout.output.bias
    assert not jnp.any(bias[jnp.array(MASKED[name][3])])
    assert jnp.any(bias)
    # The mask enters neither the features nor the value.
    assert jnp.ptp(policy.value(policy.init_memory(2), observation, jnp.ones(2, bool))) == 0.0
    assert policy.normalizer["action_mask"] is None


THREE, NUMBER = (Dict((("x", Box((2,))), ("action_mask", mask))) for mask in (MultiBinary((3,)), Discrete(4)))
PREVIOUS = Dict({"previous_action": Box((2,))})
HALF = Box((2,), (0.0, -np.inf), np.inf)
BYTES = functools.partial(Box, low=0.0, high=255.0, dtype="uint8")


@pytest.mark.parametrize(
    ("space", "action_space", "settings", "sentence"),
    [
        (THREE, Discrete(4), {}, r"mask is MultiBinary\(3,\): for actions of Discrete\(4\), expected one array of 4"),
        (THREE, MultiBinary((3,)), {}, r"for actions of MultiBinary\(3,\), expected one array of 6"),
        (THREE, Box((2,)), {}, r"Actions of Box\(2,\) float32 cannot be masked: remove 'action_mask'"),
        (NUMBER, Discrete(4), {}, r"The action mask is Discrete\(4\): for actions of Discrete\(4\), expected one array"),
        (PREVIOUS, TWO, {"observe_action": True}, "an entry 'previous_action': rename it, or turn off observe_action"),
        (toys.masked(Dict(()), 3), Discrete(3), {}, "reads no entry of the observation besides masks and privileged ones"),
        (PARTS, TWO, {"privileged": "vv"}, r"^privileged: the observation space Dict.* no entry 'vv' \(did you mean 'v'\?\)"),
        (PARTS, TWO, {"privileged": "v,x"}, "reads no entry of the observation besides masks and privileged ones: add one"),
        (VECTOR, TWO, {"privileged": "v"}, r"^privileged: the observation space Box.* has no entry 'v'"),
        (VECTOR, HALF, {"distribution": "beta"}, r"^distribution = beta needs bounds on both sides of"),
        (VECTOR, HALF, {"action_mapping": "tanh"}, r"^action_mapping = tanh needs a component with"),
        (VECTOR, TWO, {"distribution": "beta"}, r"^distribution = beta is for continuous actions"),
        (VECTOR, TWO, {"state_dependent_std": True}, r"^state_dependent_std = true is for continuous actions"),
        (VECTOR, TWO, {"layer_norm": True, "hidden_sizes": ()}, r"^layer_norm = true has no effect, because no part has hidden"),
        (VECTOR, TWO, {"cnn_features": 64}, r"^cnn_features = 64 has no effect, because no CNN reads Box"),
        (PIXELS, TWO, {"critic_hidden_sizes": (9,)}, r"^critic_hidden_sizes = 9 has no effect, because no MLP reads Box"),
        (PARTS, TWO, {"critic_hidden_sizes": (9,)}, None),
        (VECTOR, TWO, {"encoder": "nature_cnn"}, r"nature_cnn reads images: .* at least 36 .*; not Box.*: set encoder = auto"),
        (Box((10, 10, 4)), TWO, {"encoder": "nature_cnn"}, r"nature_cnn reads images"),
        (BYTES((35, 36, 1)), TWO, {"encoder": "nature_cnn"}, r"at least 36×36; set encoder = small_cnn\."),
        (BYTES((2, 9, 1)), TWO, {}, r"too small for small_cnn: expected at least 3×3; set encoder = mlp\."),
    ],
)
def test_settings_and_spaces_that_do_not_fit_are_one_sentence(space, action_space, settings, sentence):
    config = small_config(towers="separate", normalize_observation=False, **settings)
    with pytest.raises((ConfigError, EnvError), match=sentence) if sentence else contextlib.nullcontext():
        check_policy(toys.AnySpaces(space, action_space), config)
