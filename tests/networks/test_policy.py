import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.errors import EnvError
from proximo.networks import make_policy
from proximo.networks.heads import CategoricalHead, GaussianHead, make_actor
from proximo.spaces import Box, Discrete

from helpers import small_config, small_policy


def gaussian_head(space, mapping="clip", **settings):
    return make_actor(jax.random.key(0), 8, space, small_config(action_mapping=mapping, **settings).network)


def test_a_clipped_sample_is_scaled_to_the_bounds():
    head = gaussian_head(Box((2,), (-2.0, 0.0), (2.0, 10.0)))
    got = head.to_space(jnp.array([[0.0, 0.0], [0.5, -0.5], [3.0, -3.0]]))
    np.testing.assert_allclose(got, [[0.0, 5.0], [1.0, 2.5], [2.0, 0.0]])


def test_a_squashed_sample_is_tanh_scaled_to_the_bounds():
    head = gaussian_head(Box((1,), -2.0, 2.0), "tanh")
    np.testing.assert_allclose(head.to_space(jnp.array([[0.5], [-50.0]])), [[0.9242343], [-2.0]], atol=1e-6)


def test_a_half_bounded_space_is_clipped_and_an_unbounded_one_left_alone():
    head = gaussian_head(Box((2,), (0.0, -np.inf), np.inf))
    np.testing.assert_allclose(head.to_space(jnp.array([[-3.0, -30.0], [4.0, 40.0]])), [[0.0, -30.0], [4.0, 40.0]])


def test_actions_take_the_shape_of_their_space():
    assert gaussian_head(Box((2, 3), -1.0, 1.0)).to_space(jnp.zeros((5, 6))).shape == (5, 2, 3)


def test_the_deviation_starts_where_it_is_set():
    head = gaussian_head(Box((2,), -1.0, 1.0), log_std_init=-0.5)
    assert isinstance(head, GaussianHead)
    assert head.log_std.tolist() == [-0.5, -0.5]


def test_policies_start_almost_uniform_and_values_do_not_start_at_zero():
    policy = make_policy(jax.random.key(0), Box((3,)), Discrete(4), small_config().network, False)
    assert isinstance(policy.actor, CategoricalHead)
    first = jnp.zeros((1, 16), bool)
    observation = jax.random.normal(jax.random.key(1), (1, 16, 3))
    _, distribution, value = policy.unroll(policy.init_memory(16), observation, first, ~first)
    np.testing.assert_allclose(distribution.entropy(), np.log(4.0), atol=1e-3)
    assert float(jnp.std(value)) > 0.1


def test_integer_boxes_are_no_action_space():
    with pytest.raises(EnvError, match=r"action space Box\(2,\) int32 is not supported: expected Discrete, or Box of floating"):
        gaussian_head(Box((2,), 0.0, 5.0, "int32"))


def test_bytes_and_discrete_observations_have_no_normaliser():
    network = small_config(encoder="mlp").network
    spaces = {Box((3,)): True, Box((3,), 0.0, 255.0, "uint8"): False, Discrete(4): False}
    for space, expected in spaces.items():
        assert (make_policy(jax.random.key(0), space, Discrete(2), network, True).normalizer is not None) is expected


def test_separate_towers_share_no_parameter():
    policy = small_policy(Box((3,)), "separate", memory="gru")
    assert len(policy.torsos) == len(policy.init_memory(2)) == 2
    first = jnp.ones((1, 2), bool)

    def outputs(policy, which):
        _, distribution, value = policy.unroll(policy.init_memory(2), jnp.ones((1, 2, 3)), first, first)
        return jnp.sum(distribution.log_prob(jnp.zeros((1, 2), jnp.int32))) if which == "policy" else jnp.sum(value)

    gradients = {which: jax.jit(jax.grad(outputs), static_argnums=1)(policy, which) for which in ("policy", "value")}
    for which, used, unused in (("policy", 0, 1), ("value", 1, 0)):
        touched = [max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradients[which].torsos[t])) for t in (used, unused)]
        assert touched[0] > 0.0
        assert touched[1] == 0.0


@pytest.mark.parametrize("space", [Box((3,)), Discrete(5), Box((3,), 0.0, 255.0, "uint8")])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_bfloat16_computation_serves_every_observation_and_gives_float32(space, memory):
    policy = small_policy(space, memory=memory, compute_dtype="bfloat16")
    shape, dtype = ((4, 2, 3), space.dtype) if isinstance(space, Box) else ((4, 2), "int32")
    first = jnp.zeros((4, 2), bool)
    after, _, value = jax.eval_shape(lambda x: policy.unroll(policy.init_memory(2), x, first, first), jnp.zeros(shape, dtype))
    assert {leaf.dtype for leaf in jax.tree.leaves((after, value))} == {jnp.dtype("float32")}


def test_bfloat16_computation_stays_near_float32():
    values, first = {}, jnp.zeros((4, 2), bool)
    for dtype in ("float32", "bfloat16"):
        policy = small_policy(Box((3,)), memory="gru", compute_dtype=dtype)
        values[dtype] = jax.jit(lambda p: p.unroll(p.init_memory(2), jnp.ones((4, 2, 3)), first, ~first))(policy)[2]
    np.testing.assert_allclose(values["bfloat16"], values["float32"], atol=0.1)
    assert not jnp.array_equal(values["bfloat16"], values["float32"])
