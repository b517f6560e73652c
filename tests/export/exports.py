"""Shared by the tests of exports: policies as if loaded, and programs run by NumPy and by ONNX Runtime."""

import onnxruntime

from proximo.evaluation.policy import Policy
from proximo.export import numpy_file, onnx_model, runtime
from proximo.export.folder import initial_memory, interface
from proximo.networks import make_policy
from proximo.spaces import Box, from_any

import toys
from helpers import drawn, small_config


def made(space=None, actions=None, **settings):
    """A policy on these spaces, as if loaded, whose parts all have an effect."""
    env = toys.AnySpaces(space or Box((3,)), actions or Box((2,)))
    config = small_config(**settings)
    spaces = from_any(env.observation_space, "observation"), from_any(env.action_space, "action")
    network = drawn(lambda key: make_policy(key, *spaces, config.network, True, config.ppo.clip_observation))
    return Policy(network, env, config, step=0)


def write_numpy(policy_function, path, batch=None):
    """The ``policy.npz`` of a policy."""
    program = policy_function.program(batch)
    path.write_bytes(numpy_file.render(program, interface(policy_function), initial_memory(policy_function), batch))
    return path


def by_numpy(program, folder, policy_function=None, batch=None):
    """Runs the program from its file."""
    described = {
        "observation": [], "reward": False, "reset_memory": True, "memory": [], "noise": [], "mask_sizes": [], "action_dtype": "int32",
    }  # fmt: skip
    initial = {}
    if policy_function is not None:
        described, initial = interface(policy_function), initial_memory(policy_function)
    path = folder / "policy.npz"
    path.write_bytes(numpy_file.render(program, described, initial, batch))
    return runtime.ExportedPolicy(path).run


def by_onnx(program):
    """Runs the program by ONNX Runtime."""
    session = onnxruntime.InferenceSession(onnx_model.build(program, {}).SerializeToString(), providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_outputs()]
    return lambda arrays: dict(zip(names, session.run(names, arrays), strict=True))
