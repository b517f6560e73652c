"""What reads each space, its statistics, and the clip."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.networks import make_policy
from proximo.networks.encoders import ImpalaCNN, NatureCNN, OneHotEncoder, PartsEncoder, SmallCNN, VectorEncoder, make_encoder
from proximo.networks.layers import MLP, LayerNorm, Linear
from proximo.networks.normalizer import make_statistics, normalized, with_observations
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, zeros

import toys
from helpers import drawn, small_config

IMAGE, MASKED_PARTS = toys.IMAGE, toys.masked(toys.PARTS, 4)
MINATAR = Box((10, 10, 4))
"""Numbers, as gymnax's MinAtar has them."""


def encoder_for(space, **settings):
    """An encoder of random weights, for which no initializer is compiled, and the number of its features."""
    sizes = []

    def make(key):
        encoder, size = make_encoder(key, space, small_config(**settings).network)
        sizes.append(size)
        return encoder

    return drawn(make), sizes[0]


def image(*shape, high=255.0):
    return Box(shape, 0.0, high, "uint8")


@pytest.mark.parametrize(("shape", "high", "settings"), [((5,), 1.0, {}), ((12, 12, 2), 4.0, {"encoder": "small_cnn"})])
def test_bytes_are_divided_by_their_upper_bound(shape, high, settings):
    (encoder, _), (of_image, _) = (encoder_for(image(*shape, high=x), **settings) for x in (high, 255.0))
    x = jnp.full((1, *shape), high, jnp.uint8)
    np.testing.assert_allclose(encoder(x), of_image(jnp.full_like(x, 255)), rtol=1e-5, atol=1e-6)
    assert np.abs(encoder(x) - encoder(jnp.zeros_like(x))).max() > 0.1


def test_an_entry_of_the_environment_may_be_called_previous_action():
    part = Dict((("previous_action", Box((3,))),))
    space = Dict((("inner", part), *part.spaces))
    encoder, features = encoder_for(space)
    assert features == 2 * 8
    assert encoder.parts["inner"].parts["previous_action"].mlp.layers
    assert make_statistics(space, True)["previous_action"] is not None
    assert make_statistics(space, True, ("previous_action",))["previous_action"] is None


@pytest.mark.parametrize(
    ("space", "settings", "kind", "features"),
    [
        (Box((3,)), {}, VectorEncoder, 8),
        (Box((3,)), {"hidden_sizes": ()}, VectorEncoder, 3),
        (Discrete(5), {"hidden_sizes": ()}, OneHotEncoder, 5),
        (IMAGE, {}, NatureCNN, 512),
        (IMAGE, {"encoder": "mlp"}, VectorEncoder, 8),
        (image(4, 36, 40), {}, NatureCNN, 512),
        (image(2, 3, 36, 40), {}, NatureCNN, 512),
        (image(8, 8, high=12.0), {}, VectorEncoder, 8),
        (image(10, 10, 4), {}, SmallCNN, 128),
        (MINATAR, {}, VectorEncoder, 8),
        (MINATAR, {"encoder": "small_cnn", "cnn_features": 0}, SmallCNN, 8 * 8 * 16),
        (IMAGE, {"encoder": "impala_cnn", "cnn_features": 0}, ImpalaCNN, 5 * 5 * 32),
        (IMAGE, {"cnn_features": 7, "layer_norm": True}, NatureCNN, 7),
        (MultiDiscrete((3, 2, 4)), {"hidden_sizes": ()}, OneHotEncoder, 9),
        (MultiDiscrete((3, 2, 4, 1), shape=(2, 2)), {}, OneHotEncoder, 8),
        (MultiBinary((2, 3)), {"hidden_sizes": ()}, VectorEncoder, 6),
    ],
)
def test_each_space_has_its_encoder(space, settings, kind, features):
    encoder, size = encoder_for(space, **settings)
    assert isinstance(encoder, kind)
    assert size == features
    assert jax.eval_shape(encoder, zeros(space, (4, 3))).shape == (4, 3, features)


def test_weights_start_orthogonal_with_their_gain_and_biases_at_zero():
    mlp = MLP.create(jax.random.key(0), 8, (6, 4), "tanh", layer_norm=False)
    for layer in mlp.layers:
        np.testing.assert_allclose(layer.weight.T @ layer.weight, 2.0 * np.eye(layer.weight.shape[1]), atol=1e-5)
        assert not jnp.any(layer.bias)
    small = Linear.create(jax.random.key(0), 8, 4, gain=0.01).weight
    np.testing.assert_allclose(small.T @ small, 1e-4 * np.eye(4), atol=1e-8)


def test_mlp_equals_its_layers_by_hand():
    layer, x = Linear(jnp.array([[1.0, 0.0], [2.0, -1.0]]), jnp.array([0.5, 0.0])), jnp.array([1.0, 1.0])
    norm = LayerNorm(jnp.array([2.0, 1.0]), jnp.array([0.0, 0.5]))  # of [3.5, -1.0]: [1, -1]
    assert MLP((layer,), (), "relu")(x).tolist() == [3.5, 0.0]
    assert MLP((layer,), (), "tanh")(x).tolist() == pytest.approx([0.998178, -0.761594], abs=1e-5)
    assert MLP((layer,), (norm,), "identity")(x).tolist() == pytest.approx([2.0, -0.5], abs=1e-5)


def test_impala_cnn_has_the_layers_of_its_paper():
    cnn, _ = encoder_for(image(84, 84, 4), encoder="impala_cnn")
    convolutions = sum(9 * a * b + b + 4 * (9 * b * b + b) for a, b in [(4, 16), (16, 32), (32, 32)])
    assert sum(leaf.size for leaf in jax.tree.leaves(cnn)) == convolutions + (11 * 11 * 32 + 1) * 256
    assert cnn.dense.weight.shape == (11 * 11 * 32, 256)


def test_impala_section_equals_its_formula():
    cnn, _ = encoder_for(IMAGE, encoder="impala_cnn")
    section, x = cnn.convolutions[2], jax.random.normal(jax.random.key(1), (2, 9, 9, 32))

    def convolved(layer, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, layer.weight, (1, 1), "SAME", dimension_numbers=numbers) + layer.bias

    y = convolved(section.convolution, x)
    y = jnp.pad(y, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-jnp.inf)  # 9 → 5: one row on either side
    y = jnp.stack([y[:, i : i + 9 : 2, j : j + 9 : 2] for i in range(3) for j in range(3)]).max(0)
    for first, second in section.blocks:
        y = y + convolved(second, jax.nn.relu(convolved(first, jax.nn.relu(y))))
    np.testing.assert_allclose(section(x), jax.nn.relu(y), atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "to_last"),
    [((36, 40), (0, 1)), ((4, 36, 40), (1, 2, 0)), ((2, 36, 40, 3), (1, 2, 0, 3)), ((2, 3, 36, 40), (2, 3, 0, 1))],
)
def test_each_order_of_axes_is_read_as_the_same_image(shape, to_last):
    images = np.random.default_rng(0).integers(0, 256, (2, *shape)).astype(np.uint8)
    plain = images.transpose(0, *(1 + axis for axis in to_last)).reshape(2, 36, 40, -1)
    read = [eqx.filter_jit(encoder_for(image(*x.shape[1:]))[0])(x) for x in (images, plain)]
    assert jnp.array_equal(*read)


@pytest.mark.parametrize(
    ("space", "given", "features"),
    [
        (Discrete(3, -1), [-1, 1], [[1, 0, 0], [0, 0, 1]]),
        (MultiDiscrete((3, 2, 1, 2), (0, 5, -1, 0), (2, 2)), [[[2, 5], [-1, 1]]], [[0, 0, 1, 1, 0, 1, 0, 1]]),
        (MultiBinary((2, 2)), [[[1, 0], [0, 1]]], [[1.0, -1.0, -1.0, 1.0]]),
    ],
)
def test_integers_are_one_hot_from_their_start_and_bits_are_minus_one_and_one(space, given, features):
    encoder, count = encoder_for(space, hidden_sizes=())
    assert count == len(features[0])
    for dtype in (bool, jnp.int8, jnp.uint8) if isinstance(space, MultiBinary) else (jnp.int32,):
        assert encoder(jnp.array(given, dtype)).tolist() == features


def test_features_of_parts_are_concatenated():
    encoder, size = encoder_for(toys.PARTS)
    assert isinstance(encoder, PartsEncoder)
    assert size == 8 * 3 + 512 + 8
    observation = jax.vmap(lambda key: toys.draw(key, toys.PARTS))(jax.random.split(jax.random.key(0), 6))
    whole, body = encoder(observation), encoder.parts["body"]
    pieces = [body.parts[i](observation["body"][i]) for i in range(3)]
    pieces += [encoder.parts[name](observation[name]) for name in ("camera", "level")]
    assert isinstance(encoder.parts["camera"], NatureCNN)
    assert jnp.array_equal(whole, jnp.concatenate(pieces, -1))
    assert all(float(jnp.ptp(whole[:, a:b], axis=0).max()) > 0 for a, b in ((0, 24), (24, 536), (536, 544)))


@pytest.mark.parametrize("wrap", [lambda s: Dict((("only", s),)), lambda s: Tuple((s,))], ids=["dict", "tuple"])
def test_dict_with_one_part_equals_that_part_alone(wrap):
    (alone, size), (wrapped, wrapped_size) = encoder_for(Box((3,))), encoder_for(wrap(Box((3,))))
    x = jnp.array([[1.0, -2.0, 0.5]])
    assert wrapped_size == size
    assert jnp.array_equal(wrapped({"only": x} if isinstance(wrapped.parts, dict) else (x,)), alone(x))


def test_only_floating_point_parts_have_statistics():
    statistics = make_statistics(MASKED_PARTS, True)
    assert statistics["body"][0].mean.shape == (3,)
    assert statistics["body"][1:] == (None, None)
    assert statistics["camera"] is statistics["level"] is statistics["action_mask"] is None
    assert make_statistics(MASKED_PARTS, False) is None
    for part in (("b", Box((2,), 0.0, 9.0, "int32")), ("action_mask", Box((2,)))):
        assert make_statistics(Dict((("a", Discrete(2)), part)), True) is None


def test_auto_normalizes_observations_of_at_most_two_axes():
    shapes = {"board": (2, 2, 2), "number": (), "stacked": (4, 3), "vector": (3,)}
    space = Dict({name: Box(shape) for name, shape in shapes.items()})
    assert [name for name, part in make_statistics(space, "auto").items() if part is None] == ["board"]
    assert None not in make_statistics(space, True).values()


def test_each_part_is_normalized_by_its_valid_observations():
    observation = jax.vmap(lambda key: toys.draw(key, MASKED_PARTS))(jax.random.split(jax.random.key(0), 50))
    statistics = with_observations(make_statistics(MASKED_PARTS, True), observation, jnp.arange(50) < 40)
    got, vectors = normalized(statistics, observation, 0.0), np.asarray(observation["body"][0])
    expected = (vectors - vectors[:40].mean(0)) / vectors[:40].std(0)
    np.testing.assert_allclose(got["body"][0], expected, rtol=1e-3, atol=1e-3)
    same = jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), got, observation)
    assert same.pop("body") == (False, True, True)
    assert set(same.values()) == {True}


@pytest.mark.parametrize(
    ("normalize", "clip", "bound"), [(True, 0.0, 10.0), (True, 2.0, 2.0), (False, 0.0, 50.0), (False, 2.0, 2.0)]
)
def test_observations_are_clipped_inside_the_policy(normalize, clip, bound):
    space = Dict((("n", Discrete(4)), ("x", Box((3,)))))
    policy = make_policy(jax.random.key(0), space, Discrete(2), small_config().network, normalize, clip)
    got = policy.normalize({"n": jnp.array([3]), "x": jnp.array([[-50.0, 0.0, 50.0]])})
    assert got["n"].tolist() == [3]
    np.testing.assert_allclose(got["x"][0], [-bound, 0.0, bound])
