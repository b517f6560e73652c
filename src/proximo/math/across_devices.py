"""Reductions over the devices that share a rollout; on one device, they change nothing.

Each device has the transitions of a part of the environments. Every statistic of the algorithm is a sum over
all transitions, so it becomes global by ``total``, before it is divided by the global count.
"""

import jax
from jaxtyping import Array, Bool, Key, PyTree, Shaped

from proximo.types import Scalar

ENVS_AXIS = "envs"
"""The axis of the mesh over which environments are divided."""


def is_divided() -> bool:
    """Whether the function that is being traced runs on several devices, under ``jax.shard_map`` over ``ENVS_AXIS``."""
    mesh = jax.sharding.get_abstract_mesh()
    return ENVS_AXIS in mesh.manual_axes and mesh.shape[ENVS_AXIS] > 1


def num_devices() -> int:
    """Number of devices that share the rollout."""
    return jax.lax.axis_size(ENVS_AXIS) if is_divided() else 1


def total(x: PyTree[Array]) -> PyTree[Array]:
    """Sum of ``x`` over the devices.

    Its derivative is that of this device's summand, times the number of devices. So the mean of all devices'
    gradients (``mean_of_devices``) is the gradient of a global loss, whether a term is such a sum or the same
    on each device.
    """
    return jax.tree.map(_sum, x) if is_divided() else x


@jax.custom_jvp
def _sum(x: Array) -> Array:
    return jax.lax.psum(x, ENVS_AXIS)


@_sum.defjvp
def _sum_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _sum(*primals), num_devices() * tangents[0]


def mean_of_devices(x: PyTree[Array]) -> PyTree[Array]:
    """Mean of ``x`` over the devices."""
    return jax.tree.map(lambda x: x / num_devices(), total(x)) if is_divided() else x


def largest(x: Scalar) -> Scalar:
    """The largest ``x`` of all devices, without a derivative."""
    return jax.lax.pmax(jax.lax.stop_gradient(x), ENVS_AXIS) if is_divided() else x


def smallest(x: Scalar) -> Scalar:
    """The smallest ``x`` of all devices, without a derivative: a maximum, which the compiler can combine with others."""
    return -largest(-x) if is_divided() else x


def on_any_device(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether ``flag`` is true on any device."""
    return largest(flag.astype("float32")) > 0 if is_divided() else flag


def is_equal(x: Scalar) -> Bool[Array, ""]:
    """Whether ``x`` is the same number on all devices."""
    return largest(x) == smallest(x)


def own_part(x: PyTree[Shaped[Array, "T N ..."]]) -> PyTree[Shaped[Array, "T n ..."]]:
    """The columns of this device's environments, from arrays of all ``N`` environments."""
    if not is_divided():
        return x

    def columns(x):
        size = x.shape[1] // num_devices()
        return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(ENVS_AXIS) * size, size, axis=1)

    return jax.tree.map(columns, x)


def own_key(key: Key[Array, ""]) -> Key[Array, ""]:
    """A random key of this device alone."""
    return jax.random.fold_in(key, jax.lax.axis_index(ENVS_AXIS)) if is_divided() else key
