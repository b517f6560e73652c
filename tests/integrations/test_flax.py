import jax
import jax.numpy as jnp
import pytest

from proximo.collect import JaxTrainer
from proximo.collect.learning import check_policy
from proximo.errors import ConfigError
from proximo.spaces import Box, Discrete
from proximo.storage import checkpoint

import toys
from helpers import small_collector, small_config

nn = pytest.importorskip("flax.linen")
flax = pytest.importorskip("proximo.integrations.flax")
flax_nnx = pytest.importorskip("flax.nnx")

ENV = toys.AnySpaces(Box((3,)), Discrete(4))


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.tanh(nn.Dense(5)(x))


class Normalised(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=True)(x)


class Network(flax_nnx.Module):
    def __init__(self, size, count, *, rngs):
        self.hidden = flax_nnx.Linear(size, 5, rngs=rngs)
        self.actor, self.critic = flax_nnx.Linear(5, count, rngs=rngs), flax_nnx.Linear(5, 1, rngs=rngs)

    def __call__(self, x):
        x = jnp.tanh(self.hidden(x))
        return self.actor(x), self.critic(x)


KINDS = {
    "linen": {
        "encoder": flax.linen(Encoder()),
        "memory": flax.linen(nn.OptimizedLSTMCell(features=6)),
        "actor": lambda key, features, count: flax.linen(nn.Dense(count))(key, features),
        "critic": flax.linen(nn.Dense(1)),
    },
    "nnx": {"actor_critic": flax.nnx(lambda space, count, rngs: Network(space.size, count, rngs=rngs)), "towers": "separate"},
    "nnx cell": {"memory": flax.nnx(lambda features, rngs: flax_nnx.GRUCell(features, 6, rngs=rngs))},
}


@pytest.mark.parametrize("kind", KINDS)
def test_flax_module_learns(kind):
    """Ratio 1 in the first minibatch, and no parameter as it was."""
    sizes = {"hidden_sizes": (64, 64), "memory_size": 128, "num_epochs": 1, "num_minibatches": 1}
    collector = small_collector(ENV, **sizes, **KINDS[kind])
    state = collector.init(jax.random.key(0))
    parameters = "variables.params" if kind == "linen" else "parameters"
    assert any(f".custom.parameters.{parameters}." in name for name in checkpoint.flatten(state.learner.policy)), (
        "as in checkpoints"
    )
    after, metrics = jax.jit(lambda s: JaxTrainer(collector).advance(s, jnp.int32(1), 1))(state)
    assert abs(metrics["train/ratio_max"][0] - 1.0) < 1e-5
    before, learned = ((p.torsos, p.actor, p.critic) for p in (state.learner.policy, after.learner.policy))
    assert jax.tree.structure(before) == jax.tree.structure(learned)
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), before, learned)
    assert sum(jax.tree.leaves(changed)) >= len(jax.tree.leaves(changed)) - 1  # one bias of a cell may have no gradient yet


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"encoder": flax.linen(Normalised())}, "Normalised has the variables batch_stats, which change while it runs"),
        ({"encoder": flax.nnx(lambda space, rngs: flax_nnx.Dropout(0.5, rngs=rngs))}, "Dropout has variables besides its param"),
    ],
)
def test_wrong_module_raises_one_sentence(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_policy(ENV, small_config(**settings, hidden_sizes=(64, 64)))
