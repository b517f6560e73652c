"""The user's code as parts of an ``ActorCritic``: encoders, memories, heads, whole actor-critics,
distributions.

The user writes a network for one observation of one environment, without a base class of proximo. The
wrappers vmap it: outputs for one environment cannot depend on another one, and a wrong shape raises an error.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree, UInt32

from proximo.config import NetworkConfig
from proximo.config.custom import Custom, check_not_torch, resolve
from proximo.custom_code import custom_code_errors
from proximo.distributions import Distribution
from proximo.errors import ConfigError, is_integer
from proximo.networks.heads import Action, ActorHead, Numbers
from proximo.networks.layers import one_hot
from proximo.networks.recurrent.protocol import MemoryCell, NoMemory
from proximo.spaces import ActionSpace, Box, Dict, LeafSpace, MultiBinary, Space, components, zeros
from proximo.types import Observation, select

OUTPUTS = {"actor": ("parameters",), "critic": ("value",), "actor_critic": ("parameters", "value")}
"""What a network gives, by setting. Networks of other settings give features."""
DISTRIBUTION_METHODS = ("sample", "mode", "log_prob", "entropy", "to_space")


@dataclasses.dataclass(frozen=True)
class FixedLeaves:
    """Values that are not trained. They compare by content, so that networks made alike share one program."""

    tree: PyTree = dataclasses.field(compare=False)
    content: tuple[Any, ...]


def _content(x: Any) -> Any:
    """What a value or a function compares by. ``TypeError``: the object could hide arrays from JAX."""
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype, x.tobytes()
    is_function = isinstance(x, functools.partial) or (callable(x) and hasattr(x, "__name__"))
    if type(x).__eq__ is object.__eq__ and not is_function:
        raise TypeError(f"{type(x).__name__} has no equality")
    hash(x)
    return type(x), repr(x) if isinstance(x, float) else x  # NaN does not equal itself


class CustomModule(eqx.Module):
    """A pytree of the user's as an Equinox module. Its JAX arrays are ``parameters``; training changes the
    floating-point ones. All other leaves are fixed."""

    parameters: PyTree
    fixed: FixedLeaves = eqx.field(static=True)
    setting: str = eqx.field(static=True)
    """Name of the setting that the object was given for; error messages begin with it."""

    @classmethod
    def wrap(cls, setting: str, module: Any) -> CustomModule:
        """Wrap a registered pytree or a function. Raises ``ConfigError`` for other objects, also inside it."""
        check_not_torch(setting, module)
        parameters, fixed = eqx.partition(module, lambda x: isinstance(x, jax.Array))
        leaves, content = jax.tree.leaves(fixed), [jax.tree.structure(fixed)]
        for leaf in leaves:
            try:
                content.append(_content(leaf))
            except TypeError:
                raise ConfigError(
                    f"{setting}: {type(leaf).__name__} is not a pytree, so JAX cannot find the arrays in it. Make the class a subclass of "
                    "equinox.Module, or register it with jax.tree_util.register_dataclass. A field of a module that has no arrays may also be "
                    "equinox.field(static=True). See docs/custom-networks.md."
                ) from None
        return cls(parameters, FixedLeaves(fixed, tuple(content)), setting)

    @property
    def module(self) -> Any:
        """The user's object with the current parameters."""
        return eqx.combine(self.parameters, self.fixed.tree)

    def expect(self, fits: bool, sentence: str) -> None:
        """Raise ``ConfigError`` with the name of the setting and ``sentence`` if not ``fits``."""
        if not fits:
            raise ConfigError(f"{self.setting}: {sentence}.")

    def outputs(self, call: str, method: str, *examples: PyTree) -> PyTree[jax.ShapeDtypeStruct]:
        """Shapes of what ``method`` returns for ``examples``. ``call`` is the call in words, for errors."""
        with custom_code_errors(f"{self.setting}: {call}", ConfigError):
            return jax.eval_shape(lambda custom, *examples: getattr(custom.module, method)(*examples), self, *examples)


class CustomNetwork(eqx.Module):
    """An encoder, ``module(observation) -> features``; a head, ``module(features) -> numbers``; or a whole
    actor-critic, ``module(observation) -> (parameters, value)``. Without a module, ``x`` is passed on."""

    space: Space = eqx.field(static=True)
    """Space of one input. Other entries of a Dict observation are dropped."""
    custom: CustomModule | None

    def __call__(self, x: Observation) -> Any:
        x = {name: x[name] for name, _ in self.space.spaces} if isinstance(self.space, Dict) else x
        if (custom := self.custom) is None:
            return x
        ndim = jax.tree.leaves(x)[0].ndim - jax.tree.leaves(zeros(self.space, ()))[0].ndim
        return vmap_leading(lambda x: jax.tree.map(jnp.atleast_1d, custom.module(x)), ndim, x)


class CustomCell(MemoryCell):
    """A custom memory: ``init() -> state`` and ``step(state, x) -> (state, out)`` of one environment. ``step`` of
    a whole actor-critic returns ``(state, parameters, value)``. The wrapper resets the state at episode starts
    and keeps it on padding steps; an ``unroll(state, x, episode_start, valid) -> (state, out)`` over ``T``
    steps does both."""

    custom: CustomModule
    space: Space = eqx.field(static=True)
    """Space of one input ``x``."""

    @property
    def full_precision(self) -> bool:
        """The module's attribute of that name; without one, True for a module with its own ``unroll``."""
        return bool(getattr(self.custom.module, "full_precision", self.has_unroll))

    @property
    def has_unroll(self) -> bool:
        """Whether the module has its own ``unroll``."""
        return callable(getattr(self.custom.module, "unroll", None))

    def init(self, batch: Any) -> PyTree[Array]:  # a symbolic number in an export
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *np.shape(x))), self.custom.module.init())

    def step(self, state: PyTree, x: PyTree, episode_start: Array, valid: Array) -> tuple[PyTree, PyTree]:
        def step_one(state, x):
            state, *out = self.custom.module.step(state, x)
            return state, _outputs(jax.tree.map(jnp.atleast_1d, out))

        # With another compute_dtype, the given state has that type, but arrays that the module creates may be float32.
        state = select(episode_start, _cast_like(self.init(episode_start.shape[0]), state), state)
        new_state, out = jax.vmap(step_one)(state, x)
        return select(valid, _cast_like(new_state, state), state), out

    def unroll(self, state: PyTree, x: PyTree, episode_start: Array, valid: Array) -> tuple[PyTree, PyTree]:
        if not self.has_unroll:
            return super().unroll(state, x, episode_start, valid)

        def unroll_one(state, *steps):
            last, *out = self.custom.module.unroll(state, *steps)
            return _cast_like(last, state), _outputs([part.reshape((part.shape[0], -1)) for part in out])

        return jax.vmap(unroll_one, in_axes=(0, 1, 1, 1), out_axes=(0, 1))(state, x, episode_start, valid)


class CustomDistribution(Distribution):
    """A batch of distributions of a custom family, whose methods are written for one action."""

    parameters: Numbers
    family: CustomModule

    def sample(self, noise: UInt32[Array, "*batch 2"]) -> Action:
        """An action for each distribution; ``noise`` contains the data of one random key for each."""
        return self._each("sample", jax.random.wrap_key_data(noise, impl="threefry2x32"))

    def mode(self) -> Action:
        return self._each("mode")

    def log_prob(self, action: Action) -> Array:
        return self._each("log_prob", action)

    def entropy(self) -> Array:
        return self._each("entropy")

    def _each(self, method: str, *arrays: Array) -> Array:
        return vmap_leading(getattr(self.family.module, method), self.parameters.ndim - 1, self.parameters, *arrays)


class CustomHead(ActorHead):
    """Reads the parameters from a readout and samples from a custom family."""

    space: LeafSpace = eqx.field(static=True)
    family: CustomModule
    action_ndim: int = eqx.field(static=True)
    """Number of axes of one sampled action."""

    def distribution(self, numbers: Numbers, mask: None) -> CustomDistribution:
        return CustomDistribution(numbers, self.family)

    def to_space(self, action: Action) -> Action:
        return vmap_leading(self.family.module.to_space, action.ndim - self.action_ndim, action)

    def from_space(self, action: Action) -> Action:
        has_inverse = hasattr(self.family.module, "from_space")
        self.family.expect(has_inverse, "it has no method from_space(action), the inverse of to_space: add it to pretrain")
        return vmap_leading(self.family.module.from_space, action.ndim - len(self.space.shape), action)

    def features(self, action: Action) -> Numbers:
        taken = self.to_space(action)
        taken = taken.reshape((*action.shape[: action.ndim - self.action_ndim], -1))
        if isinstance(self.space, Box | MultiBinary):
            return taken.astype(float)
        return one_hot(taken, *components(self.space)).astype(float)


def make_module(setting: str, value: str | Custom, methods: tuple[str, ...], *arguments: Any) -> CustomModule:
    """Make and wrap the user's object for ``setting``: a class or a function is called with ``arguments``, an
    object is used as it is. Raises ``ConfigError`` for other code, or if it raises."""
    made = resolve(setting, value, methods)
    if inspect.isclass(made) or inspect.isroutine(made) or isinstance(made, functools.partial):
        with custom_code_errors(f"{setting} = {value}, when it was made,", ConfigError):
            made = made(*arguments)
    return CustomModule.wrap(setting, made)


def is_array(shape: PyTree, *, floating: bool = False) -> bool:
    """Whether a result of ``CustomModule.outputs`` is one array (``floating``: of floating-point numbers)."""
    return isinstance(shape, jax.ShapeDtypeStruct) and (not floating or jnp.issubdtype(shape.dtype, jnp.floating))


def describe_shape(shape: PyTree) -> str:
    """``(3, 4) float32`` for an array; for any other pytree the type and the shape of each leaf."""
    if isinstance(shape, jax.ShapeDtypeStruct | jax.Array):
        return f"{shape.shape} {shape.dtype}"
    return f"{type(shape).__name__} of {', '.join(map(describe_shape, jax.tree.leaves(shape))) or 'nothing'}"


def vmap_leading(function: Callable[..., Any], ndim: int, *arrays: PyTree[Array]) -> PyTree[Array]:
    """Apply ``function`` to each element along the ``ndim`` leading axes that all ``arrays`` share."""
    lead = jax.tree.leaves(arrays[0])[0].shape[:ndim]
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[ndim:])), arrays)
    return jax.tree.map(lambda y: y.reshape((*lead, *y.shape[1:])), jax.vmap(function)(*flat))


def _outputs(out: list[Array]) -> Any:
    """The features of a memory, or the parameters and the value of a whole actor-critic."""
    return tuple(out) if len(out) > 1 else out[0]


def _cast_like(tree: PyTree[Array], like: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, like)


def make_parts(
    setting: str, key: Key[Array, ""], inputs: Space | int, config: NetworkConfig, count: int = 0
) -> tuple[CustomNetwork, MemoryCell, int]:
    """The network for ``setting`` as an encoder and a memory, and its number of outputs. Either the encoder or
    the memory passes its inputs on. ``inputs`` is the space of the observations or a number of features,
    ``count`` the number of parameters of the distribution. Raises ``ConfigError`` for other outputs."""
    space, what = (Box((inputs,)), f"{inputs} features") if isinstance(inputs, int) else (inputs, f"observation of {inputs}")
    names = OUTPUTS.get(setting, ("features",))
    arguments = (key, inputs, count) if "parameters" in names else (key, inputs)
    if setting == "memory" or (setting == "actor_critic" and config.remembers):
        custom = make_module(setting, getattr(config, setting), ("init", "step"), *arguments)
        state, call = custom.outputs("init()", "init"), "step(state, x)"
        out, names = custom.outputs(call, "step", state, zeros(space, ())), ("state", *names)
        encoder, cell = CustomNetwork(space, None), CustomCell(custom, space)
    else:
        custom = make_module(setting, getattr(config, setting), ("__call__",), *arguments)
        state, call = None, f"{setting}({what})"
        out = custom.outputs(call, "__call__", zeros(space, ()))
        encoder, cell = CustomNetwork(space, custom), NoMemory()
    outputs = out if len(names) > 1 else (out,)
    fits = isinstance(outputs, tuple) and len(outputs) == len(names)
    custom.expect(fits, f"{call} gives {describe_shape(out)}, expected a tuple of {', '.join(names)}")
    total = 0
    for name, given in zip(names, outputs, strict=True):
        if name == "state":
            kept = (jax.tree.structure(given), describe_shape(given)) == (jax.tree.structure(state), describe_shape(state))
            expected = f"expected it as init() gives it, {describe_shape(state)}"
            custom.expect(kept, f"{call} gives the state {describe_shape(given)}, {expected}")
            continue
        size = {"parameters": count, "value": 1}.get(name)
        shape = given.shape if is_array(given, floating=True) else (0, 0)
        shape = (1,) if shape == () and size == 1 else shape  # one number
        custom.expect(
            len(shape) == 1 and size in (None, *shape),
            f"{call} gives {describe_shape(given)} as {name}, expected a vector of {'' if size is None else f'{size} '}floating-point numbers: "
            "it is called for one observation of one environment, without a batch axis",
        )
        total += shape[0]
    return encoder, cell, total


def make_family(value: str | Custom, space: ActionSpace) -> tuple[CustomModule, int, int]:
    """The custom family of a ``distribution`` setting, the number of its parameters, and the number of axes
    of one sampled action. Raises ``ConfigError`` if a method returns another shape."""
    family = make_module("distribution", value, DISTRIBUTION_METHODS, space)
    count: Any = getattr(family.module, "num_parameters", None)
    family.expect(is_integer(count) and count > 0, f"num_parameters is {count!r}: expected the number of outputs of the actor")
    parameters, key = jax.ShapeDtypeStruct((int(count),), jnp.float32), jax.eval_shape(jax.random.key, 0)
    action, mode = family.outputs("sample", "sample", parameters, key), family.outputs("mode", "mode", parameters)
    same = is_array(action) and describe_shape(action) == describe_shape(mode)
    family.expect(same, f"sample gives {describe_shape(action)} and mode {describe_shape(mode)}: expected the same from both")
    for name, arguments in {"log_prob": (parameters, action), "entropy": (parameters,), "to_space": (action,)}.items():
        shape, meaning = (), "one floating-point number, summed over the components"
        if name == "to_space":
            shape, meaning = space.shape, f"an action of {space}"
        out = family.outputs(name, name, *arguments)
        fits = is_array(out, floating=name != "to_space") and out.shape == shape
        family.expect(fits, f"{name} gives {describe_shape(out)}, expected {meaning}, of shape {shape}")
    return family, int(count), len(action.shape)
