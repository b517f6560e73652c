"""The settings of a training from all their sources: default < preset, or defaults of the kind of environment <
file < flag; and as keyword arguments in the help of functions that take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from proximo.config import LEAVES, Config, override, presets, text_of
from proximo.config.coercion import plain
from proximo.config.loading import Layer, merged, read_file, resolve, tree_layer
from proximo.config.schema import OF_PRESET
from proximo.config.typed_settings import Settings
from proximo.config.validation import largest_divisor, validate
from proximo.envs.libraries import num_agents
from proximo.errors import ConfigError

if TYPE_CHECKING:
    from proximo.envs import Environment

T = TypeVar("T")


def lists_settings(settings: Any, without: Collection[str] = ()) -> Callable[[T], T]:
    """Decorator of a function or class with the keyword arguments ``Unpack[settings]``: replaces them in its signature
    by the settings of this ``TypedDict`` that are not in ``without``, and appends their help texts to its docstring."""
    leaves = [leaf for leaf in LEAVES.values() if leaf.name in settings.__annotations__ and leaf.name not in without]

    def decorate(listed: Any) -> Any:
        signature = inspect.signature(listed)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        for leaf in leaves:
            kind, default = settings.__annotations__[leaf.name].__forward_arg__, plain(leaf.default)
            parameters.append(inspect.Parameter(leaf.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        listed.__signature__ = signature.replace(parameters=parameters)
        if listed.__doc__ is not None:  # python -OO
            lines = [f"    {leaf.name} ({text_of(leaf.default) or 'empty'}): {leaf.help}." for leaf in leaves]
            listed.__doc__ = "\n".join([inspect.cleandoc(listed.__doc__), "", "Settings:", *lines, ""])
        return listed

    return decorate


@lists_settings(Settings)
def make_config(
    env: str = "",
    settings: Mapping[str, Any] | None = None,
    file: str | Path | None = None,
    preset: bool = True,
    **more: Unpack[Settings],
) -> Config:
    """Make the validated settings of a run.

    An environment that has no preset is made once, because the defaults depend on its spaces, unless all of them are given.

    Args:
        env: id of the environment; by default the one in ``settings`` or ``file``.
        settings: values by name, such as ``{"gamma": 0.99}``. They override ``file``.
        file: a YAML file with groups of settings. It overrides the preset.
        preset: whether to start from the preset of the environment, or, if it has none, from the defaults for its kind.
            ``preprocessing`` of Atari games is a default in any case.
        more: further settings by name, such as ``gamma=0.99``. They override ``settings``.

    Returns:
        All settings.

    Raises:
        ConfigError: a name is unknown, a value has a wrong type or is out of range, or two settings contradict each other.
        EnvError: the environment has no preset and cannot be made.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(f"settings = {settings!r}: expected a dict of settings; a YAML file is file=….")
    layers = [Layer({**(settings or {}), **more, **({"id": env} if env else {})})]
    if file is not None:
        layers.insert(0, tree_layer(read_file(Path(file)), str(file)))
    given = merged(layers)
    env_id = given.get("id")
    if not preset or not isinstance(env_id, str) or not env_id:
        return _validated(resolve(layers))
    if tuned := presets.load(env_id):
        layers = [tree_layer(presets.for_memory(tuned, given.get("memory")), OF_PRESET.format(env_id)), *layers]
    config = resolve(layers)
    if tuned or presets.names_of_kinds() <= given.keys():
        return _validated(config)
    return with_defaults(layers, _environment(config))


def _validated(config: Config) -> Config:
    return validate(config, agents_of(config) if config.env.id and config.ppo.minibatch_size else 1)


def agents_of(config: Config) -> int:
    """Agents of the environment of ``config``, which is made. ``minibatch_size`` counts the steps of all."""
    return num_agents(_environment(config))


def _environment(config: Config) -> Environment:
    # Imported here, because the settings of an environment with a preset need no JAX.
    from proximo.collect.environment import preprocessing_of
    from proximo.envs import make_env
    from proximo.jax_setup import prepare_jax

    prepare_jax(config.shares_program)
    from_file = config.given.get("id") != config.env.id
    return make_env(config.env.id, config.env.env_settings, preprocessing_of(config), from_file)


def with_defaults(layers: Sequence[Layer], env: Environment) -> Config:
    """The validated settings in ``layers`` over the defaults for the kind of ``env``."""
    from proximo.collect.environment import has_vector_env

    config, given = resolve(layers), merged(layers).keys()
    kind = _kind_of(env, config)
    defaults = tree_layer(presets.load_kind(kind), f"the defaults for {presets.KINDS[kind]}")
    settings = dict(defaults.settings)
    if "num_envs" in given and kind != "memory":  # the rollout keeps its size, and does not get shorter
        size = settings["num_envs"] * settings["num_steps"]
        settings["num_steps"] = max(settings["num_steps"], size // config.env.num_envs)
    if has_vector_env(env):
        settings.pop("stagger_steps", None)
    if "objective" in given and config.ppo.objective != settings.get("objective"):
        settings.pop("clip_eps", None)  # it was tuned for the objective of the kind
    config = resolve([Layer(settings, defaults.origin), *layers])
    if not given & {"num_minibatches", "minibatch_size"}:
        config = override(config, {"num_minibatches": _fitting_minibatches(config, kind)})
    return validate(config, num_agents(env))


def _kind_of(env: Environment, config: Config) -> str:
    import jax

    from proximo.networks.encoders import cnn_for
    from proximo.spaces import Box, Joint, tree

    if any(jax.tree.leaves(tree(lambda part: cnn_for(part, config.network), env.observation_space))):
        return "images"
    if config.network.remembers:
        return "memory"
    parts = [leaf.space for leaf in env.action_space.parts] if isinstance(env.action_space, Joint) else [env.action_space]
    return "continuous" if all(isinstance(part, Box) for part in parts) else "discrete"


def _fitting_minibatches(config: Config, kind: str) -> int:
    """The number of minibatches of a kind, or fewer, which divide the rollout and are not smaller than in a rollout of the kind."""
    from proximo.collect.devices import with_device_number

    tuned = presets.load_kind(kind)
    smallest = tuned["env"]["num_envs"] * tuned["ppo"]["num_steps"] // tuned["ppo"]["num_minibatches"]
    devices = with_device_number(config).run.devices
    assert devices != "all"
    sequences = config.batch_size // max(1, config.sequence_length) // devices
    count = min(tuned["ppo"]["num_minibatches"], config.batch_size // smallest)
    return largest_divisor(max(1, sequences), max(1, count))
