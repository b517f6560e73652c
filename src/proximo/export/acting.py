"""What a policy computes in a row, as a function of named arrays; and the program of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from proximo.distributions import Gaussian
from proximo.errors import ConfigError
from proximo.export import equations, sizes
from proximo.export.lower import lower
from proximo.export.program import Program
from proximo.networks import ActorCritic
from proximo.networks.heads import ActorHead, BernoulliHead, CategoricalHead, GaussianHead, ProductHead
from proximo.networks.own_head import OwnDistribution
from proximo.run.checkpoint import flatten
from proximo.run.policy import Policy
from proximo.spaces import PREVIOUS_ACTION, PREVIOUS_REWARD, Space, from_any, without, zeros
from proximo.types import Previous

FIRST, OBSERVATION, MEMORY, NOISE, NEXT = "first", "observation", "memory", "noise", ".next"
ACTION, VALUE, LOG_PROB = "action", "value", "log_prob"
Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Acting:
    """A policy as one function ``arrays by name -> arrays by name``: observation, ``first``, what is carried and, where it is
    sampled, noise in; action, value, log-probability, the distribution's parameters and what is carried out."""

    policy: Policy
    stochastic: bool

    @functools.cached_property
    def network(self) -> ActorCritic:
        """In float32 whatever it was trained in: other runtimes have no bfloat16."""
        network = self.policy.network
        torsos = tuple(dataclasses.replace(torso, compute_dtype="float32") for torso in network.torsos)
        return eqx.tree_at(lambda n: n.torsos, network, torsos)

    @functools.cached_property
    def carried(self) -> tuple[str, ...]:
        """The inputs that are the outputs of the row before, behind whose names stands ``.next``."""
        previous = (PREVIOUS_ACTION,) if PREVIOUS_ACTION in self.network.added else ()
        return (*flatten({MEMORY: self.network.init_memory(1)}), *previous)

    @functools.cached_property
    def space(self) -> Space:
        """Of the observations that the policy acts by: without what only the value reads."""
        return without(from_any(self.policy.env.observation_space, "observation"), self.network.privileged)

    def observation(self, n: int) -> Any:
        """Storage for N observations."""
        return zeros(self.space, (n,))

    def initial(self, n: int) -> Arrays:
        """What is carried before the first row."""
        network = self.network
        before = network.nothing_before(n)
        arrays = flatten({MEMORY: network.init_memory(n)})
        return arrays if before is None else {**arrays, PREVIOUS_ACTION: before.action}

    def inputs(self, n: int) -> Arrays:
        """All inputs in order, as zeros."""
        arrays = {**flatten({OBSERVATION: self.observation(n)}), FIRST: jnp.zeros(n, bool)}
        if PREVIOUS_REWARD in self.network.added:
            arrays[PREVIOUS_REWARD] = jnp.zeros(n)
        arrays |= {name: x for name, x in self.initial(n).items() if name in self.carried}
        if self.stochastic:
            arrays |= flatten({NOISE: self._noise_shapes(n)})
        return {name: jnp.zeros(x.shape, x.dtype) for name, x in arrays.items()}

    def __call__(self, network: ActorCritic, arrays: Arrays) -> Arrays:
        """All outputs in order, by ``network`` (that of ``self``, apart so that it can be an argument of a compiled function)."""
        arrays = {name: jnp.asarray(x) for name, x in arrays.items()}
        first = arrays[FIRST]
        n = first.shape[0]
        observation = _unflattened(OBSERVATION, self.observation(n), arrays)
        memory = _unflattened(MEMORY, network.init_memory(n), arrays)
        before = network.nothing_before(n)
        if before is not None:
            before = Previous(arrays.get(PREVIOUS_ACTION, before.action), arrays.get(PREVIOUS_REWARD, before.reward))
        if network.privileged:
            blank = zeros(from_any(self.policy.env.observation_space, "observation"), (n,))
            observation = {**jax.tree.map(jnp.asarray, blank), **observation}
        observed = network.observed(observation, first, before)
        after, distribution, value = network.forward(memory, observed, first, jnp.ones_like(first))
        noise = self._noise(arrays, n)
        action = distribution.mode() if noise is None else distribution.sample(noise)
        # A value of half an observation is none.
        known = {} if network.privileged else {VALUE: value}
        outputs = {ACTION: network.to_space(action), **known, LOG_PROB: distribution.log_prob(action)}
        outputs |= _parameters(distribution, outputs)
        outputs |= {name + NEXT: x for name, x in flatten({MEMORY: after}).items()}
        if PREVIOUS_ACTION in self.carried:
            outputs[PREVIOUS_ACTION + NEXT] = network.actor.features(action)
        return outputs

    def _noise(self, arrays: Arrays, n: int) -> Any:
        if not self.stochastic:
            return None
        return _unflattened(NOISE, self._noise_shapes(n), arrays)

    def _noise_shapes(self, n: int) -> Any:
        return jax.eval_shape(lambda: self.network.actor.noise(jax.random.key(0), (n,)))

    def program(self, batch: int | None) -> Program:
        """The computation as a program, for any number of environments, or for ``batch``. Raises ``NotExportedError``, and ``ConfigError`` for noise
        that cannot be drawn elsewhere."""
        if self.stochastic:
            self.noise_family()

        def traced(n: int) -> tuple[equations.Function, list[str]]:
            names, outputs = list(self.inputs(n)), []

            def function(*arrays: Array) -> Sequence[Array]:
                made = self(self.network, dict(zip(names, arrays, strict=True)))
                outputs[:] = made
                return list(made.values())

            shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.inputs(n).values()]
            return equations.trace(function, *shapes), outputs

        def described(n: int) -> dict[str, Any]:
            return {name: (tuple(x.shape), str(x.dtype)) for name, x in self.inputs(n).items()}

        if batch is not None:
            function, names = traced(batch)
            return lower(function, described(batch), names)
        small, large = sizes.TRACED
        (one, names), (other, _) = traced(small), traced(large)
        return lower(equations.merge(one, other), _merged(described(small), described(large)), names)

    def noise_family(self) -> str:
        """How the noise is distributed, by its name in ``numpy.random.Generator``."""
        return noise_family(self.network.actor)


def noise_family(actor: ActorHead) -> str:
    """gumbel, logistic or normal. Raises ``ConfigError`` for a head that is not proximo's."""
    families = {(CategoricalHead, ProductHead): "gumbel", (BernoulliHead,): "logistic", (GaussianHead,): "normal"}
    for heads, family in families.items():
        if isinstance(actor, heads):
            return family
    raise ConfigError(
        f"--stochastic: the noise of {type(actor).__name__} is not known; export without it and sample by its parameters."
    )


def _parameters(distribution: Any, taken: Arrays) -> Arrays:
    """The parameters of the distribution, a row for each environment."""
    if isinstance(distribution, Gaussian):
        mean = distribution.mean
        return {"mean": mean, "log_std": jnp.broadcast_to(distribution.log_std, mean.shape)}
    if isinstance(distribution, OwnDistribution):
        return {"parameters": distribution.parameters}
    return {f"distribution.{name}" if name in taken else name: x for name, x in flatten(distribution).items()}


def _unflattened(root: str, template: Any, arrays: Arrays) -> Any:
    """``template`` with the arrays of its leaves' names."""
    names = list(flatten({root: template}))
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in names])


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: (sizes.merged(shape, other[name][0]), dtype) for name, (shape, dtype) in one.items()}
