"""The trainer of JAX environments: precision."""

import jax
import pytest

from proximo.collect import JaxTrainer

from helpers import small_collector


@pytest.mark.parametrize("method", ["update", "inspect_before"])
def test_matmul_precision_reaches_every_matrix_product(method):
    def products(precision):
        collector = small_collector(matmul_precision=precision)
        lowered = jax.jit(getattr(JaxTrainer(collector), method)).lower(collector.init(jax.random.key(0)))
        return [line for line in lowered.as_text().splitlines() if "dot_general" in line]

    assert products("highest")
    assert all("HIGHEST" in line for line in products("highest"))
    assert not any("HIGHEST" in line for line in products("default"))
