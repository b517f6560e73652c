"""The units of a CNN that are 0 on all images."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import NetworkConfig
from proximo.networks.image_encoders import NatureCNN
from proximo.spaces import Box


def test_dead_units_are_0_on_all_images(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from dead_units import dead_units, layers

    encoder, _ = NatureCNN.create(jax.random.key(0), Box((4, 84, 84), 0, 255, "uint8"), NetworkConfig())
    x = np.random.default_rng(0).integers(0, 256, (4, 4, 84, 84), np.uint8)
    before = layers(encoder, x)
    np.testing.assert_allclose(before[-1], encoder(jnp.asarray(x)), rtol=1e-4, atol=1e-4)
    # The first five channels are off, the others on.
    bias = jnp.full_like(encoder.convolutions[1].bias, -100.0).at[5:].set(100.0)
    after = layers(eqx.tree_at(lambda e: e.convolutions[1].bias, encoder, bias), x)
    assert dead_units(after[0]) == dead_units(before[0]) < 32
    assert dead_units(after[1]) == 5
    active_once = np.zeros((4, 3, 3, 2))
    active_once[2, 1, 1, 0] = 1.0
    assert dead_units(active_once) == 1
