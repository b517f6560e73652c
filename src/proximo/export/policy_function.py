"""One step of a policy as a function of named arrays, and its translation to a program."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from proximo.distributions import Gaussian
from proximo.errors import ConfigError
from proximo.evaluation.policy import Policy
from proximo.export import flat_jaxpr, sizes
from proximo.export.program import Program
from proximo.export.translation import translate
from proximo.networks import ActorCritic
from proximo.networks.custom.head import CustomDistribution
from proximo.networks.heads import BernoulliHead, CategoricalHead, GaussianHead, ProductHead
from proximo.spaces import (
    ACTION_MASK,
    OBSERVATION,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    Box,
    Discrete,
    LeafSpace,
    MultiDiscrete,
    Space,
    components,
    from_any,
    tree,
    without,
    zeros,
)
from proximo.storage.checkpoint_format import flatten
from proximo.types import Previous

EPISODE_START, REWARD, MEMORY, NOISE, NEXT = "episode_start", "reward", "memory", "noise", ".next"
PREVIOUS_ACTION_MEMORY = f"{MEMORY}.{PREVIOUS_ACTION}"
ACTION, VALUE, LOG_PROB = "action", "value", "log_prob"
Arrays = dict[str, Any]
NOISE_FAMILIES = {CategoricalHead: "gumbel", ProductHead: "gumbel", BernoulliHead: "logistic", GaussianHead: "normal"}
"""The noise that samples the action of a head, by its name in ``numpy.random.Generator``."""


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyFunction:
    """One step of a policy: a function from arrays by name to arrays by name.

    Inputs are the observation, ``episode_start``, the memory, the last reward if the policy observes it, and noise if it samples.
    Outputs are the action, value, log-probability, the parameters of the distribution, and the memory of the next step.
    """

    policy: Policy
    deterministic: bool = True
    """Whether the action is the most probable one. If not, it is sampled with the input ``noise``."""

    @functools.cached_property
    def actor_critic(self) -> ActorCritic:
        """The networks in float32, even if they were trained in bfloat16, which other runtimes lack."""
        actor_critic = self.policy.actor_critic
        torsos = tuple(dataclasses.replace(torso, compute_dtype="float32") for torso in actor_critic.torsos)
        return eqx.tree_at(lambda n: n.torsos, actor_critic, torsos)

    @functools.cached_property
    def space(self) -> Space:
        """The space of the observations, without entries that only the value reads."""
        return without(from_any(self.policy.env.observation_space, "observation"), self.actor_critic.privileged)

    @property
    def action_dtype(self) -> str:
        """The type of the actions of ``Policy.predict``. Those of the program are float32 or integers."""
        space = from_any(self.policy.env.action_space, "action")
        return space.dtype if isinstance(space, Box) else "int32"

    @property
    def is_exact(self) -> bool:
        """Whether ``Policy.predict`` acts with the numbers of the program: not computed in bfloat16, sampled, or rounded to float16."""
        return self.deterministic and self.policy.config.network.compute_dtype == "float32" and self.action_dtype != "float16"

    def observation(self, n: int) -> Any:
        """N observations: the first choice of each component, and zeros."""
        return jax.tree.map(_with_first_choices, zeros(self.space, (n,)), tree(lambda leaf: leaf, self.space))

    def observation_inputs(self, observation: Any) -> Arrays:
        """The leaves of N observations by the names of their inputs."""
        masked = f"{OBSERVATION}.{ACTION_MASK}"
        return {ACTION_MASK if name == masked else name: x for name, x in flatten({OBSERVATION: observation}).items()}

    def observation_of(self, arrays: Arrays) -> Any:
        """The observations among the inputs, in the structure of their space."""
        template = self.observation(len(arrays[EPISODE_START]))
        return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in self.observation_inputs(template)])

    def memory_of(self, arrays: Arrays) -> Any:
        """The memory of the networks among the inputs."""
        return _unflattened(MEMORY, self.actor_critic.init_memory(len(arrays[EPISODE_START])), arrays)

    def init_memory(self, n: int) -> Arrays:
        """The memory before the first step, by name."""
        before = self.actor_critic.no_previous_step(n)
        arrays = flatten({MEMORY: self.actor_critic.init_memory(n)})
        if before is None or PREVIOUS_ACTION not in self.actor_critic.observed_previous:
            return arrays
        return {**arrays, PREVIOUS_ACTION_MEMORY: before.action}

    @functools.cached_property
    def memory_names(self) -> tuple[str, ...]:
        """The inputs that are the memory; each one is an output of the last step, with ``.next`` after its name."""
        return tuple(self.init_memory(1))

    def inputs(self, n: int) -> Arrays:
        """All inputs in order, as zeros."""
        arrays = {**self.observation_inputs(self.observation(n)), EPISODE_START: jnp.zeros(n, bool)}
        if PREVIOUS_REWARD in self.actor_critic.observed_previous:
            arrays[REWARD] = jnp.zeros(n)
        arrays |= self.init_memory(n)
        if not self.deterministic:
            arrays |= flatten({NOISE: self._noise_shapes(n)})
        return {name: jnp.zeros(x.shape, x.dtype) for name, x in arrays.items()}

    def __call__(self, actor_critic: ActorCritic, arrays: Arrays) -> Arrays:
        """All outputs in order. ``actor_critic`` is that of ``self``; it is an argument so that its arrays are arguments of a compiled
        function."""
        arrays = {name: jnp.asarray(x) for name, x in arrays.items()}
        episode_start = arrays[EPISODE_START]
        n = episode_start.shape[0]
        observation, memory = self.observation_of(arrays), self.memory_of(arrays)
        before = actor_critic.no_previous_step(n)
        if before is not None:
            before = Previous(arrays.get(PREVIOUS_ACTION_MEMORY, before.action), arrays.get(REWARD, before.reward))
        if actor_critic.privileged:
            blank = zeros(from_any(self.policy.env.observation_space, "observation"), (n,))
            observation = {**jax.tree.map(jnp.asarray, blank), **observation}
        observed = actor_critic.with_previous_step(observation, episode_start, before)
        after, distribution, value = actor_critic.forward(memory, observed, episode_start, jnp.ones_like(episode_start))
        if self.deterministic:
            action = distribution.mode()
        else:
            action = distribution.sample(_unflattened(NOISE, self._noise_shapes(n), arrays))
        # Without the privileged entries of the observation the value would be wrong.
        known = {} if actor_critic.privileged else {VALUE: value}
        outputs = {ACTION: actor_critic.to_space(action), **known, LOG_PROB: distribution.log_prob(action)}
        outputs |= _parameters(distribution, outputs)
        outputs |= {name + NEXT: x for name, x in flatten({MEMORY: after}).items()}
        if PREVIOUS_ACTION_MEMORY in self.memory_names:
            outputs[PREVIOUS_ACTION_MEMORY + NEXT] = actor_critic.actor.features(action)
        return outputs

    def _noise_shapes(self, n: int) -> Any:
        return jax.eval_shape(lambda: self.actor_critic.actor.noise(jax.random.key(0), (n,)))

    def program(self, batch: int | None) -> Program:
        """The computation as a program for any number of environments, or for ``batch`` environments.

        Raises ``NotExportedError`` for computations without a translation, and ``ConfigError`` for unknown noise."""
        if not self.deterministic:
            self.noise_family()

        def traced(n: int) -> tuple[flat_jaxpr.FlatJaxpr, list[str]]:
            names, outputs = list(self.inputs(n)), []

            def function(*arrays: Array) -> Sequence[Array]:
                made = self(self.actor_critic, dict(zip(names, arrays, strict=True)))
                outputs[:] = made
                return list(made.values())

            shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.inputs(n).values()]
            return flat_jaxpr.trace(function, *shapes), outputs

        def described(n: int) -> dict[str, Any]:
            return {name: (tuple(x.shape), str(x.dtype)) for name, x in self.inputs(n).items()}

        if batch is not None:
            function, names = traced(batch)
            return translate(function, described(batch), names)
        small, large = sizes.TRACED
        (one, names), (other, _) = traced(small), traced(large)
        return translate(flat_jaxpr.merge(one, other), _merged(described(small), described(large)), names)

    @property
    def can_sample(self) -> bool:
        """Whether the action can be sampled with noise of a known family. If not, ``noise_family`` raises."""
        return isinstance(self.actor_critic.actor, tuple(NOISE_FAMILIES))

    def noise_family(self) -> str:
        """The distribution of the noise, by its name in ``numpy.random.Generator``. Raises ``ConfigError`` for a custom head."""
        actor = self.actor_critic.actor
        for head, family in NOISE_FAMILIES.items():
            if isinstance(actor, head):
                return family
        raise ConfigError(
            f"--stochastic: the noise of {type(actor).__name__} is unknown. Export without --stochastic, and sample from the parameters of the distribution."
        )


def _with_first_choices(x: np.ndarray, leaf: LeafSpace) -> np.ndarray:
    return x + np.reshape(components(leaf)[1], leaf.shape).astype(x.dtype) if isinstance(leaf, Discrete | MultiDiscrete) else x


def _parameters(distribution: Any, taken: Arrays) -> Arrays:
    """The parameters of the distribution by name; those that share a name with one of ``taken`` get a prefix."""
    if isinstance(distribution, Gaussian):
        mean = distribution.mean
        return {"mean": mean, "log_std": jnp.broadcast_to(distribution.log_std, mean.shape)}
    if isinstance(distribution, CustomDistribution):
        return {"parameters": distribution.parameters}
    return {f"distribution.{name}" if name in taken else name: x for name, x in flatten(distribution).items()}


def _unflattened(root: str, template: Any, arrays: Arrays) -> Any:
    """``template`` with the arrays that have the names of its leaves."""
    names = list(flatten({root: template}))
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in names])


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: (sizes.merged(shape, other[name][0]), dtype) for name, (shape, dtype) in one.items()}
