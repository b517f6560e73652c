"""What the tests of exports share: policies as if loaded, and programs run by NumPy and by ONNX Runtime."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime

from proximo.export import numpy_file, onnx_model, runtime
from proximo.export.folder import _interface
from proximo.networks import make_policy
from proximo.run.policy import Policy
from proximo.spaces import Box, from_any

import toys
from helpers import small_config


def made(space=None, actions=None, **settings):
    """A policy on these spaces whose parts are all heard, as if loaded. Its numbers are NumPy's: fresh ones are compiled for seconds."""
    env = toys.AnySpaces(space or Box((3,)), actions or Box((2,)))
    config = small_config(**settings)
    spaces = from_any(env.observation_space, "observation"), from_any(env.action_space, "action")
    template = jax.eval_shape(
        lambda key: make_policy(key, *spaces, config.network, True, config.ppo.clip_observation), jax.random.key(0)
    )
    rng = np.random.default_rng(0)

    def drawn(path, leaf):
        x = rng.normal(size=leaf.shape)
        if "variance" in str(path[-1]):
            return jnp.asarray(0.5 + np.abs(x), leaf.dtype)
        width = int(np.prod(leaf.shape[:-1])) if len(leaf.shape) > 1 else 4
        return jnp.asarray(x / np.sqrt(width), leaf.dtype)

    return Policy(jax.tree_util.tree_map_with_path(drawn, template), env, config, step=0)


def by_numpy(program, folder, acting=None, batch=None):
    """The program through its file."""
    empty = {"observation": [], "reward": None, "carried": [], "noise": []}
    initial = {} if acting is None else {k: jax.device_get(x)[0] for k, x in acting.initial(1).items() if k in acting.carried}
    path = folder / "policy.npz"
    path.write_bytes(numpy_file.render(program, empty if acting is None else _interface(acting), initial, batch))
    return runtime.Policy(path).run


def by_onnx(program):
    """The program through ONNX's bytes."""
    session = onnxruntime.InferenceSession(onnx_model.build(program, {}).SerializeToString(), providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_outputs()]
    return lambda arrays: dict(zip(names, session.run(names, arrays), strict=True))
