"""Shared by the tests of exports: policies as if loaded, and their exports."""

from proximo.evaluation.policy import Policy
from proximo.export import onnx_model
from proximo.export.policy_function import PolicyFunction
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


def exported(policy, deterministic=True, batch=None):
    """The ``ExportedPolicy`` of ``policy``."""
    return onnx_model.build(PolicyFunction(policy, deterministic), batch, {})[1]
