import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.errors import EnvError
from proximo.networks.encoders import NatureCNN, OneHotEncoder, VectorEncoder, make_encoder
from proximo.networks.layers import MLP, Linear
from proximo.spaces import Box, Discrete

from helpers import small_config

IMAGE = Box((36, 36, 1), 0.0, 255.0, "uint8")


def encoder_for(space, **settings):
    return make_encoder(jax.random.key(0), space, small_config(**settings).network)


@pytest.mark.parametrize(
    ("space", "settings", "kind", "features"),
    [
        (Box((3,)), {}, VectorEncoder, 8),
        (Box((2, 3)), {}, VectorEncoder, 8),
        (Box((3,)), {"hidden_sizes": ()}, VectorEncoder, 3),
        (Discrete(5), {}, OneHotEncoder, 8),
        (Discrete(5), {"hidden_sizes": ()}, OneHotEncoder, 5),
        (IMAGE, {}, NatureCNN, 512),
        (IMAGE, {"encoder": "mlp"}, VectorEncoder, 8),
    ],
)
def test_each_space_has_its_encoder(space, settings, kind, features):
    encoder, size = encoder_for(space, **settings)
    assert isinstance(encoder, kind)
    assert size == features
    shape = space.shape if isinstance(space, Box) else ()
    dtype = space.dtype if isinstance(space, Box) else "int32"
    out = jax.eval_shape(encoder, jax.ShapeDtypeStruct((4, 3, *shape), dtype))
    assert out.shape == (4, 3, features)


@pytest.mark.parametrize("shape", [(35, 36, 1), (36, 20, 3)])
def test_images_too_small_for_the_cnn_are_an_error_that_says_the_fix(shape):
    with pytest.raises(EnvError, match=r"too small for nature_cnn: expected at least 36×36; set encoder = mlp"):
        encoder_for(Box(shape, 0.0, 255.0, "uint8"))


def test_the_cnn_on_a_vector_is_an_error_that_says_the_fix():
    with pytest.raises(EnvError, match=r"nature_cnn reads uint8 images .* not Box\(3,\) float32: set encoder = mlp"):
        encoder_for(Box((3,)), encoder="nature_cnn")


def test_the_cnn_reads_bytes_as_zero_to_one():
    cnn, _ = encoder_for(IMAGE)
    black, white = (jnp.full((1, 36, 36, 1), level, jnp.uint8) for level in (0, 255))
    features = eqx.filter_jit(lambda x: cnn(x))(jnp.concatenate([black, white]))
    assert jnp.all(features[0] == 0.0)
    assert 0.1 < float(jnp.abs(features[1]).max()) < 10.0


def test_the_cnn_sees_every_corner_of_the_image():
    cnn, _ = encoder_for(IMAGE)
    images = np.full((5, 36, 36, 1), 128, np.uint8)
    for number, corner in enumerate([(0, 0), (0, 35), (35, 0), (35, 35)]):
        images[number][corner] = 255
    features = eqx.filter_jit(lambda x: cnn(x))(jnp.asarray(images))
    assert jnp.all(jnp.abs(features[:4] - features[4]).max(-1) > 0)


def test_weights_start_orthogonal_with_their_gain_and_biases_at_zero():
    mlp = MLP.create(jax.random.key(0), 8, (6, 4), "tanh")
    for layer in mlp.layers:
        np.testing.assert_allclose(layer.weight.T @ layer.weight, 2.0 * np.eye(layer.weight.shape[1]), atol=1e-5)
        assert not jnp.any(layer.bias)
    small = Linear.create(jax.random.key(0), 8, 4, gain=0.01).weight
    np.testing.assert_allclose(small.T @ small, 1e-4 * np.eye(4), atol=1e-8)


def test_an_mlp_is_its_layers_by_hand():
    layer = Linear(jnp.array([[1.0, 0.0], [2.0, -1.0]]), jnp.array([0.5, 0.0]))
    out = MLP((layer,), "relu")(jnp.array([1.0, 1.0]))
    assert out.tolist() == [3.5, 0.0]
    assert MLP((layer,), "tanh")(jnp.array([1.0, 1.0])).tolist() == pytest.approx([0.998178, -0.761594], abs=1e-5)


def test_an_mlp_reads_bytes_as_zero_to_one():
    encoder, _ = encoder_for(Box((4,), 0.0, 255.0, "uint8"), hidden_sizes=())
    assert jnp.max(encoder(jnp.full((1, 4), 255, jnp.uint8))) == pytest.approx(1.0)
