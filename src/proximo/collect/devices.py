"""Several devices: how a training is divided over a mesh.

Each device has an equal part of the environments, and a copy of everything else
(``proximo.math.across_devices``). If one program trains several seeds, and their number is a multiple of the
number of devices, the seeds are divided instead: they need no communication. Cores share any number of seeds
(``filled``).
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import multihost_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from proximo.config import Config, override
from proximo.config.validation import largest_divisor
from proximo.errors import ConfigError
from proximo.jax_setup import available_devices, core_devices
from proximo.math.across_devices import ENVS_AXIS
from proximo.ppo.state import RewardNormalizer
from proximo.processes.peers import current
from proximo.types import JaxCollectorState, Rollout, is_key

T = TypeVar("T")
SEED_GROUPS_AXIS = "seed_groups"
"""The axis of a mesh over which seeds are divided."""
DIVIDED = (RewardNormalizer, JaxCollectorState, Rollout)
"""The types with fields that have an axis of environments."""


def with_device_number(config: Config) -> Config:
    """``config`` with a number of devices for ``all``. Raises ``ConfigError`` if there are fewer."""
    asked, processes = config.run.devices, current().count
    if asked == processes == 1:
        return config
    if processes > 1 and config.run.seeds > 1 and config.run.seeds_mode == "vmap":
        raise ConfigError("seeds_mode = vmap: with several processes, seeds train one after the other: use serial or auto.")
    platform, available = jax.default_backend(), len(available_devices())
    if processes > 1 and asked not in (1, available, "all"):
        raise ConfigError(
            f"devices = {asked}, but {processes} processes have {available} devices together and use all: omit devices."
        )
    if asked == "all" or processes > 1:
        return override(config, {"devices": available})
    if asked > available:
        virtual = f", or JAX_NUM_CPU_DEVICES={asked} for virtual devices" if platform == "cpu" else ""
        fewer = " or fewer" if available > 1 else ""
        raise ConfigError(
            f"devices = {asked}, but JAX has {available} here ({platform}): set devices to {available}{fewer}, or to all{virtual}."
        )
    return config


def with_available_devices(config: Config) -> Config:
    """``config`` with as many of its devices as JAX has here."""
    asked = config.run.devices
    return config if asked == "all" else override(config, {"devices": min(asked, len(available_devices()))})


def make_mesh(config: Config, stacked: bool = False) -> Mesh | None:
    """The devices that ``config`` asks for; None for one device. Raises ``ConfigError`` if JAX has fewer, or
    if they cannot have equal parts of the environments, or of the seeds if these are ``stacked``."""
    count = int(with_device_number(config).run.devices)
    if count == 1:
        return None
    if not stacked or config.run.seeds % count:
        check_divisible(config, count)
    return _mesh(jax.devices()[:count], ENVS_AXIS)


def mesh_for(mesh: Mesh | None, num_seeds: int) -> Mesh | None:
    """``mesh`` for seeds in one program: with the axis of seeds, if they can be divided equally. Without a
    mesh, cores share the seeds, which are ``filled``."""
    if mesh is None:
        cores = _sharing_cores(num_seeds)
        return _mesh(cores, SEED_GROUPS_AXIS) if len(cores) > 1 else None
    return mesh if num_seeds % mesh.size else _mesh(list(mesh.devices.flat), SEED_GROUPS_AXIS)


def filled(seeds: list[T], mesh: Mesh | None) -> list[T]:
    """``seeds``, with the first one repeated until cores share them equally: a core would be idle otherwise.
    With a ``mesh``, none is repeated."""
    cores = [] if mesh else _sharing_cores(len(seeds))
    return seeds + seeds[:1] * (-len(seeds) % len(cores)) if cores else seeds


def _sharing_cores(num_seeds: int) -> list[Any]:
    """The cores that share so many seeds: as few as are needed to take as long as all cores would."""
    cores = core_devices()
    each = math.ceil(num_seeds / len(cores)) if cores else num_seeds
    return cores[: math.ceil(num_seeds / each)]


def _mesh(devices: list[Any], axis: str) -> Mesh:
    return jax.make_mesh((len(devices),), (axis,), axis_types=(AxisType.Auto,), devices=devices)


def check_divisible(config: Config, count: int) -> None:
    """Raise ``ConfigError`` unless ``count`` devices can have equal parts of environments and minibatches."""
    num_envs, num_minibatches = config.env.num_envs, config.ppo.num_minibatches
    if num_envs % count:
        raise ConfigError(
            f"num_envs = {num_envs} cannot be divided equally among {count} devices: choose a multiple of {count}, or use "
            f"{largest_divisor(num_envs, count)} devices."
        )
    each = config.batch_size // config.sequence_length // count
    if each % num_minibatches:
        raise ConfigError(
            f"num_minibatches = {num_minibatches}: each of {count} devices has {each} "
            f"{'sequences' if config.network.remembers else 'steps'} of a rollout: choose a divisor of {each}, such as "
            f"{largest_divisor(each, num_minibatches)}."
        )


def divided(function: Callable[..., Any], mesh: Mesh | AbstractMesh | None, stacked: bool = False) -> Callable[..., Any]:
    """``function``, divided over the devices of ``mesh``: each device calls it with its part of the arrays. Without a mesh,
    ``function`` itself. If ``stacked``, all arrays of more than zero axes have a leading axis of seeds."""
    if mesh is None:
        return function

    def on_devices(*arguments: Any) -> Any:
        results = jax.eval_shape(function, *arguments)  # of one device: the same tree
        in_specs, out_specs = (_specs(tree, mesh, stacked) for tree in (arguments, results))
        # JAX's types of values that vary between devices would reject scans in the code of users.
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)(*arguments)

    return on_devices


def placed(tree: T, mesh: Mesh | None, stacked: bool = False) -> T:
    """``tree`` with its arrays on the devices of ``mesh``. Arrays that are there already are not copied.
    Several processes call this together, each with the whole ``tree``. A ``jax.ShapeDtypeStruct`` gets the
    place of its array. In a compiled function, the place is a constraint."""
    if mesh is None:
        return tree
    shardings, leaves = _shardings(tree, mesh, stacked), jax.tree.leaves(tree)
    if any(isinstance(x, Tracer) for x in leaves):
        return jax.lax.with_sharding_constraint(tree, shardings)
    if isinstance(leaves[0], jax.ShapeDtypeStruct):
        return jax.tree.map(lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree, shardings)
    return jax.tree.map(_own_shards, tree, shardings) if mesh.is_multi_process else jax.device_put(tree, shardings)


def joined(rollout: Rollout, mesh: Mesh | None) -> Rollout:
    """A rollout on the devices of ``mesh``. Of several processes, each gives the part of its environments."""
    if mesh is None or not mesh.is_multi_process:
        return placed(rollout, mesh)

    def of_all(x: Any, sharding: NamedSharding) -> jax.Array:
        axis, shape = sharding.spec.index(ENVS_AXIS), list(x.shape)
        shape[axis] *= jax.process_count()
        return jax.make_array_from_process_local_data(sharding, np.asarray(x), tuple(shape))

    return jax.tree.map(of_all, rollout, _shardings(rollout, mesh, stacked=False))


def _own_shards(x: Any, sharding: NamedSharding) -> jax.Array:
    """``x``, which this process has whole, on the devices of all. ``jax.device_put`` would compare the values of all."""
    if _is_spread(x):
        return x
    numbers = numbers_of(x)
    return _like(jax.make_array_from_callback(numbers.shape, sharding, lambda index: numbers[index]), x)


def numbers_of(x: Any) -> np.ndarray:
    """An array as NumPy has it: of random keys, their data."""
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


def _like(numbers: Any, x: Any) -> Any:
    """``numbers`` as random keys if ``x`` has keys."""
    return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(x)) if is_key(x) else numbers


def _is_spread(x: Any) -> bool:
    """Whether other processes have parts of ``x``."""
    return isinstance(x, jax.Array) and not x.is_fully_addressable


def whole(tree: T) -> T:
    """``tree`` with whole arrays on one device of this process. Several processes call this together."""
    spread = list(filter(_is_spread, jax.tree.leaves(tree)))
    if spread:
        everywhere = NamedSharding(spread[0].sharding.mesh, PartitionSpec())
        gathered = iter(jax.jit(lambda arrays: arrays, out_shardings=everywhere)(spread))
        tree = jax.tree.map(lambda x: next(gathered) if _is_spread(x) else x, tree)
    return on_one_device(tree)


def from_first(tree: T | None, template: T) -> T:
    """The ``tree`` of process 0, in all processes; others give None. ``template`` has its shapes and types."""
    if tree is not None and jax.process_count() == 1:
        return tree

    def zeros(x: Any) -> Any:
        shape = jax.eval_shape(jax.random.key_data, x) if is_key(x) else x
        return np.zeros(shape.shape, shape.dtype)

    given = jax.tree.map(zeros, template) if tree is None else jax.tree.map(numbers_of, tree)
    sent = multihost_utils.broadcast_one_to_all(given)
    return jax.tree.map(lambda x, of: jax.random.wrap_key_data(x) if is_key(of) else jnp.asarray(x), sent, template)


def row_of(tree: T, index: int) -> T:
    """Row ``index`` of the first axis of all arrays in ``tree``."""
    if jax.default_backend() != "cpu":
        return jax.tree.map(lambda x: x[index], tree)
    # x[index] would compile two programs for each shape, and jnp.asarray one.
    return jax.tree.map(lambda x: _like(jax.device_put(np.array(numbers_of(x)[index])), x), tree)


def on_one_device(tree: T) -> T:
    """``tree`` with its arrays on one device, which then computes with them alone."""

    def moved(x: Any) -> Any:
        if not isinstance(x, jax.Array) or len(x.devices()) == 1:
            return x
        # An array of several processes has a copy on each device.
        return jax.device_put(x, jax.local_devices()[0]) if x.is_fully_addressable else x.addressable_data(0)

    return jax.tree.map(moved, tree)


def _shardings(tree: PyTree, mesh: Mesh, stacked: bool) -> PyTree:
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), _specs(tree, mesh, stacked))


def _specs(tree: PyTree, mesh: Mesh | AbstractMesh, stacked: bool) -> PyTree:
    """How each array of ``tree`` is divided: by its axis of environments, if it has one, or by seeds."""
    if mesh.axis_names == (SEED_GROUPS_AXIS,):
        return jax.tree.map(lambda x: PartitionSpec(SEED_GROUPS_AXIS) if x.ndim else PartitionSpec(), tree)

    def axis(node: PyTree, field: str) -> int | None:
        if isinstance(node, RewardNormalizer):
            return 0 if field == "running_return" else None
        if isinstance(node, Rollout):
            return 0 if field.startswith("last_") else 1
        return None if field in ("env_params", "key") else int(field == "burn_in_steps")

    def of_node(node: PyTree) -> PyTree:
        def of_array(path: tuple[Any, ...], _: Any) -> PartitionSpec:
            divided_axis = axis(node, path[0].name) if isinstance(node, DIVIDED) else None
            return PartitionSpec() if divided_axis is None else PartitionSpec(*[None] * (divided_axis + stacked), ENVS_AXIS)

        return jax.tree_util.tree_map_with_path(of_array, node)

    return jax.tree.map(of_node, tree, is_leaf=lambda node: isinstance(node, DIVIDED))
