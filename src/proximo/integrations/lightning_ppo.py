"""What the two classes ``PPO`` share: a subclass with its own networks, ``forward`` and optimizer, as in lightning-baselines3."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import logging
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from jaxtyping import Array, Float, Key

from proximo import agent as agents
from proximo.agent import change_settings
from proximo.collect.environment import evaluation_environment, gymnasium_spaces
from proximo.config import LEAVES, override
from proximo.config.coercion import SCHEDULE
from proximo.config.schema import ALTERNATIVES
from proximo.config.validation import validate
from proximo.custom_code import custom_code_errors
from proximo.distributions import Distribution
from proximo.envs.custom import makes_environments
from proximo.errors import ConfigError
from proximo.evaluation.episodes import NETWORK_STREAM, Episodes, evaluation_key
from proximo.evaluation.policy import Policy
from proximo.integrations.lightning_training import LightningTraining, Shapes, is_jax_network
from proximo.networks import ActorCritic
from proximo.networks.custom.forward import Forward
from proximo.networks.custom.module import CustomModule
from proximo.other_libraries import load
from proximo.ppo.loss import with_value_and_entropy
from proximo.ppo.minibatches import Minibatch
from proximo.ppo.objectives import WholeLoss, clip
from proximo.rendering import window
from proximo.rendering.watching import acting, film
from proximo.signatures import answered
from proximo.spaces import Box, from_any
from proximo.training.agent_environment import make_environment

NO_CLIPPING = 1e9
"""``max_grad_norm`` of a Trainer without ``gradient_clip_val``."""
ENDLESS = 10**15
"""``total_steps`` of a Trainer without a last epoch or step."""
EPOCHS = ("total_steps", "total_updates", "eval_every")
"""Settings that follow from ``num_rollouts`` and the Trainer's ``max_epochs``."""
PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
TORCH = """{} is made of PyTorch, but proximo computes with JAX, which cannot differentiate PyTorch. Write the network in Equinox or in Flax:
    self.actor = equinox.nn.MLP(4, 2, 64, 2, activation=jax.numpy.tanh, key=self.next_key())  # jax.vmap(self.actor)(x) in forward
    self.actor = nnx.Sequential(nnx.Linear(4, 64, rngs=nnx.Rngs(0)), nnx.tanh, nnx.Linear(64, 2, rngs=nnx.Rngs(0)))  # self.actor(x)"""


class EvaluatedEpisodes(Episodes):
    """Episodes that unpack as in lightning-baselines3: ``returns, lengths = model.evaluate(10)``."""

    def __iter__(self) -> Iterator[list[Any]]:
        return iter((self.episode_return.tolist(), self.length.tolist()))


class SubprocVecEnv:
    """Environments that ``PPO`` makes, one for each of ``env_fns``: functions that make the same environment, or ids.

    ``PPO`` measures whether worker processes step them faster than one process.
    """

    seed: int | None = None
    env_settings: Mapping[str, Any] = types.MappingProxyType({})

    def __init__(self, env_fns: Sequence[Any]):
        self.env, self.num_envs = env_fns[0], len(env_fns)


@answered
def make_vec_env(
    env_id: Any,
    n_envs: int = 1,
    seed: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_cls: type[SubprocVecEnv] = SubprocVecEnv,
) -> SubprocVecEnv:
    """Describe environments for ``PPO``.

    Args:
        env_id: an id, or a class or a function that makes an environment.
        n_envs: number of environments.
        seed: ``seed`` of ``PPO``.
        env_kwargs: arguments of the environment.
        vec_env_cls: ``SubprocVecEnv``.

    Returns:
        The environments, which ``PPO`` makes.
    """
    described = vec_env_cls([env_id] * n_envs)
    described.seed, described.env_settings = seed, env_kwargs or {}
    return described


class LightningPPO(LightningTraining):
    """The methods of ``PPO``. The other base class is the ``LightningModule`` of one of Lightning's packages."""

    bridge_class = "PPO"

    def __init__(self, env: Any, eval_env: Any = None, **settings: Any):
        super(LightningTraining, self).__init__()  # of the LightningModule
        self.automatic_optimization = False
        self._calls, self._folder = None, Path()
        self._agent: agents.PPO | None = None
        self._clipping: tuple[Any, float] = None, 0.0
        """The last Trainer, and its ``gradient_clip_val``."""
        self._acting: ActorCritic | None = None
        self._logged: dict[str, Array] | None = None
        """Of a copy that is traced: what it has logged."""
        if isinstance(env, SubprocVecEnv):
            described = {"num_envs": env.num_envs, "seed": env.seed, "env_settings": dict(env.env_settings)}
            settings = {name: x for name, x in described.items() if x} | settings
        self._given, self._given_eval = (x.env if isinstance(x, SubprocVecEnv) else x for x in (env, eval_env))
        settings.setdefault("num_envs", getattr(self._given, "num_envs", 1))
        self._saved = {
            name: x for name, x in (("env", self._given), ("eval_env", self._given_eval)) if isinstance(x, str)
        } | settings
        seed, self._verbose = settings.pop("seed", None), settings.pop("verbose", 0)
        self.follows = frozenset({"total_steps", "max_grad_norm"} | ({"seed"} if seed is None else set()))
        self.seed = self._saved["seed"] = int(np.random.default_rng().integers(2**32)) if seed is None else seed
        self._keys = itertools.count()
        self._settings, every = _our_settings(settings), settings.get("sde_sample_freq", -1)
        self._sde_every = every if every > 0 else self._settings["num_steps"]
        self._made, config = make_environment(self._given, {**self._settings, "seed": self.seed}, preset=False)
        self.num_envs, self.num_eval_episodes = config.env.num_envs, config.run.eval_episodes
        self.env = self._made if isinstance(self._given, str) or makes_environments(self._given) else self._given
        self.eval_env = evaluation_environment(config, self._made, self._given_eval)[0] if eval_env is not None else self.env
        theirs = gymnasium_spaces(self._given, self._made)
        self._is_gymnasium = theirs is not None
        self.observation_space, self.action_space = theirs or (self._made.observation_space, self._made.action_space)
        super().save_hyperparameters(_plain(self._saved))
        self._networks: tuple[str, ...] = ()
        """Names of the attributes that the agent trains."""
        self._own = frozenset(self.__dict__)

    @property
    def agent(self) -> agents.PPO:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The ``proximo.PPO`` that learns. It is made at the first use, from the networks that the subclass has by then."""
        if self._agent is None:
            self._agent = self._make_agent()
            for name in self._networks:
                del self.__dict__[name]  # __getattr__ returns it with its current parameters
        return self._agent

    @agent.setter
    def agent(self, agent: agents.PPO) -> None:
        self._agent, self.seed = agent, agent.config.run.seed

    def _make_agent(self) -> agents.PPO:
        name, cls = type(self).__name__, type(self)
        if cls.forward is LightningPPO.forward:
            raise ConfigError(f"{name} has no forward: define forward(self, x), which returns (distribution, value) of N inputs.")
        if (predicts := cls.predict is not LightningPPO.predict) and not self._is_gymnasium:
            raise ConfigError(
                f"{name}.predict runs outside JAX, on Gymnasium environments only: leave it out on {self._made}, where forward chooses the actions."
            )
        modules = self._wrapped_networks()
        network = Forward(modules, self._run_forward, self._run_predict if predicts else None, self._sde_every)
        settings = {**self._settings, "actor_critic": network, "total_steps": self._settings["eval_every"], "seed": self.seed}
        if cls.training_step is not LightningPPO.training_step:
            if {"objective", "dual_clip"} & settings.keys():
                raise ConfigError(f"objective has no effect on {name}, whose training_step is the whole loss: omit one of them.")
            settings["objective"] = WholeLoss(self._run_training_step)
        optimizer = self._given_optimizer()
        if optimizer is not None:
            settings["optimizer"] = optimizer
        agent = agents.PPO(self._given, eval_env=self._given_eval, preset=False, verbose=self._verbose, **settings)
        self.jax_parameters, self._networks = Shapes({name: x.parameters for name, x in modules.items()}), tuple(modules)
        return agent

    def _wrapped_networks(self) -> dict[str, CustomModule]:
        """The attributes of the subclass that have floating-point arrays."""
        modules, space = {}, from_any(self._made.observation_space, "observation")
        for name, value in self.__dict__.items():
            if name in self._own:
                continue
            with custom_code_errors(f"self.{name}", ConfigError):
                made = _from_flax(value, self.next_key, space) if is_jax_network(value) else value
            if any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(made)):
                modules[name] = CustomModule.wrap(f"self.{name}", made)
        if not modules:
            raise ConfigError(
                f"{type(self).__name__} has no network: set self.actor and self.critic in __init__, to modules of Equinox or Flax."
            )
        return modules

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_networks", ()):
            return _networks_of(self.agent.policy.actor_critic)[name]
        return super().__getattr__(name)  # pyright: ignore[reportAttributeAccessIssue]

    def __setattr__(self, name: str, value: Any) -> None:
        parameters = value.parameters() if isinstance(value, torch.nn.Module) else [value]
        if not isinstance(value, Shapes) and any(isinstance(x, torch.nn.Parameter) and x.requires_grad for x in parameters):
            raise ConfigError(TORCH.format(f"self.{name} = {type(value).__name__}(…)"))
        if name in self.__dict__.get("_networks", ()):
            raise ConfigError(f"self.{name} is being trained since the first fit, evaluate or predict: set it in __init__.")
        super(LightningTraining, self).__setattr__(name, value)

    def _copy(self, policy: ActorCritic | None, modules: dict[str, Any], logged: dict[str, Array] | None) -> LightningPPO:
        """A copy whose networks are ``modules``, so that a traced call leaves nothing in ``self``."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **modules, _acting=policy, _logged=logged)
        return copy

    def _run_forward(self, modules: dict[str, CustomModule], x: Any) -> Any:
        return self._copy(None, _objects(modules), {}).forward(x)

    def _run_training_step(self, policy: ActorCritic, minibatch: Minibatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        logged: dict[str, Array] = {}
        step: Any = type(self).training_step  # of the class: Lightning calls that of the instance
        return step(self._copy(policy, _networks_of(policy), logged), minibatch, minibatch.index), logged

    def _run_predict(self, policy: ActorCritic, x: Any, deterministic: bool) -> np.ndarray:
        space, count = policy.actor.space, len(jax.tree.leaves(x)[0])
        with custom_code_errors("predict", ConfigError):
            action = np.asarray(self._copy(policy, _networks_of(policy), None).predict(x, deterministic=deterministic))
        if action.shape != (count, *space.shape):
            raise ConfigError(
                f"predict returns {action.shape} for {count} observations: expected their actions, an array of shape {(count, *space.shape)}."
            )
        return np.clip(action, *space.bounds()).astype(space.dtype) if isinstance(space, Box) else action

    def next_key(self) -> Key[Array, ""]:
        """Return a random key that no earlier call has returned.

        Raises:
            ConfigError: it is called in ``forward`` or ``training_step``, which are compiled once, so that the key would always be the same.
        """
        if self._logged is not None:
            raise ConfigError("next_key() in forward or training_step would always return the same key: JAX compiles them once.")
        return jax.random.fold_in(evaluation_key(self.seed, NETWORK_STREAM), next(self._keys))

    def forward(self, x: Any) -> tuple[Distribution, Array]:
        """The distributions of the actions and the values for N stacked, unnormalized observations. A subclass defines it."""
        raise NotImplementedError

    def predict(self, x: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or for N stacked ones. A subclass may define it for N observations."""
        agent = self.agent
        policy = agent.policy if self._acting is None else Policy(self._acting, agent.env, agent.config, agent.step)
        return policy.predict(x, deterministic=deterministic, key=None if deterministic else self.next_key())[0]

    def training_step(self, minibatch: Minibatch, index: Any) -> Float[Array, ""]:
        """The loss of one minibatch. Override this to modify the algorithm; ``super().training_step`` is PPO's loss.

        Args:
            minibatch: what ``objective`` gets (docs/custom-losses.md).
            index: number of the minibatch in its epoch.

        Returns:
            The loss. It is traced in JAX. ``self.log`` records a metric.
        """
        assert self._acting is not None  # a copy that is traced
        return with_value_and_entropy(clip(self._acting, minibatch)[0], minibatch)[0]

    def log(self, name: str, value: Any, *arguments: Any, **options: Any) -> None:
        """Log a metric: in ``training_step`` one of the update, elsewhere as in Lightning."""
        if self._logged is None:
            super().log(name, value, *arguments, **options)
        else:
            self._logged[name] = jnp.asarray(value, float)

    def save_hyperparameters(self, *arguments: Any, ignore: Any = None, frame: Any = None, logger: bool = True) -> None:
        """Save the arguments of ``__init__``. Environments, functions and other objects are left out, because no checkpoint can contain them."""
        frame = frame or inspect.currentframe().f_back  # pyright: ignore[reportOptionalMemberAccess]
        ignored = [ignore] if isinstance(ignore, str) else list(ignore or ())
        super().save_hyperparameters(*arguments, ignore=[*ignored, "env", "eval_env"], frame=frame, logger=logger)
        kept = {name: x for name, x in _plain({**self._saved, **self.hparams}).items() if name not in ignored}
        self._hparams, self._hparams_initial = type(self.hparams)(kept), type(self.hparams)(kept)

    def evaluate(
        self,
        num_eval_episodes: int | None = None,
        deterministic: bool = True,
        render: bool = False,
        record: bool = False,
        record_fn: str | Path | None = None,
        *,
        seed: int = 0,
    ) -> EvaluatedEpisodes:
        """Play whole episodes on ``eval_env``, with ``predict`` if the subclass defines it.

        Args:
            num_eval_episodes: number of episodes; None: the argument of the constructor.
            deterministic: whether to take the most probable action.
            render: whether to show the episodes in a window, or, without a display, to write the first one to ``video_path``.
            record: whether to write the first episode as a video.
            record_fn: file of the video; None: ``video_path``.
            seed: seed of the episodes, 0 or more.

        Returns:
            The episodes, which unpack as ``returns, lengths``.

        Raises:
            ConfigError: an argument is out of range.
            EnvError: the environment cannot be drawn.
        """
        policy, count = self.agent.policy, self.num_eval_episodes if num_eval_episodes is None else num_eval_episodes
        played = self.agent.evaluate(count, deterministic=deterministic, seed=seed, env=self._given_eval)
        env, config = evaluation_environment(policy.config, policy.env, self._given_eval)
        policy = dataclasses.replace(policy, env=env, config=config)
        if shows := render and window.has_display():
            subject = acting(policy, deterministic)
            window.show(subject, lambda itself: subject.play(count, seed, None, itself), None)
        if record or (render and not shows):
            film(policy, Path(record_fn or self.video_path), seed)
        return EvaluatedEpisodes(**vars(played))

    def configure_callbacks(self) -> list[Any]:
        """Return no callback. Lightning calls this first, so ``gradient_clip_val`` of the Trainer becomes ``max_grad_norm`` here."""
        trainer = self.trainer
        clip_val = trainer.gradient_clip_val or (self._clipping[1] if self._clipping[0] is trainer else 0.0)
        self._clipping = trainer, clip_val
        if clip_val:
            if trainer.gradient_clip_algorithm == "value":
                raise ConfigError("gradient_clip_algorithm = 'value': proximo clips the norm of the gradient: leave it out.")
            logger = "lightning.pytorch" if self.package == "lightning" else self.package
            logging.getLogger(logger).info(f"gradient_clip_val={clip_val} of the Trainer sets max_grad_norm of proximo.")
            trainer.gradient_clip_val = (
                None  # until the training starts, because Lightning refuses it without a PyTorch optimizer
            )
        return []

    def setup(self, stage: str) -> None:
        _ = self.agent  # is made now, if it was not yet
        super().setup(stage)
        self.training_step = types.MethodType(LightningTraining.training_step, self)

    def train_dataloader(self) -> Any:
        """The updates of an epoch. The Trainer's limits determine ``total_steps`` here, where a resume has restored its counters."""
        trainer, config, step = self.trainer, self.agent.config, self.agent.step
        epoch, total = config.run.eval_every, ENDLESS
        if trainer.max_epochs is not None and trainer.max_epochs >= 0:
            total = step // epoch * epoch + (trainer.max_epochs - trainer.current_epoch) * epoch
        elif trainer.max_steps >= 0:
            total = step + (trainer.max_steps - trainer.global_step) * config.batch_size
        clipping = self._clipping[1] or self._settings["max_grad_norm"]
        changes = {"total_steps": max(total, config.batch_size), "max_grad_norm": clipping}
        change_settings(self.agent, validate(override(config, changes)))
        return super().train_dataloader()

    def on_train_start(self) -> None:
        self.trainer.gradient_clip_val = self._clipping[1] or None
        super().on_train_start()


def _our_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Our settings for those of a ``PPO``: with names of lightning-baselines3 or of proximo, and defaults of lightning-baselines3."""
    table = load("lightning_baselines3").sections["PPO"]
    ours = {name: x for name, x in given.items() if name not in table}
    for name in ours:
        if name in EPOCHS:
            raise ConfigError(f"{name} follows from num_rollouts of PPO and max_epochs of the Trainer: set these.")
        if name in ("normalize_observation", "clip_observation") or (name in LEAVES and LEAVES[name].group == "network"):
            raise ConfigError(
                f"{name} has no effect on PPO, whose forward(x) has its own networks, no memory, and unnormalized observations: leave it out, or "
                f"use PPOModule(…, {name}=…)."
            )
    taken = set(ours) | {size for size, count in ALTERNATIVES.items() if count in ours}
    settings = {"normalize_observation": False, "normalize_reward": False, "max_grad_norm": NO_CLIPPING, **ours}
    for name, entry in table.items():
        if len(entry.ours) != 1 or name in ("env", "eval_env", "seed", "use_sde", "sde_sample_freq"):
            continue
        if name in given and entry.ours[0] in taken:
            raise ConfigError(f"{name} is called {entry.ours[0]} in proximo, and both were given: leave one of them out.")
        if name in given or (entry.default is not None and entry.ours[0] not in taken):
            value = given.get(name, entry.default)
            settings[entry.ours[0]] = 0 if value is None else value * entry.times if entry.times != 1 else value
    if given.get("use_sde"):
        raise ConfigError("use_sde = True: instead, return a StateDependentGaussian from forward, which PPO samples from.")
    settings["eval_every"] *= settings["num_envs"] * settings["num_steps"]
    return {
        name: _of_remaining(x) if callable(x) and name in LEAVES and LEAVES[name].type == SCHEDULE else x
        for name, x in settings.items()
    }


def _of_remaining(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``function`` of the remaining progress as one of the completed share."""

    def of_completed(completed: Any) -> Any:
        return function(1.0 - completed)

    of_completed.__module__ = function.__module__  # by which schedules of optax are recognized
    return of_completed


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that any checkpoint can contain."""
    return {name: x for name, x in arguments.items() if isinstance(x, PLAIN)}


def _from_flax(value: Any, next_key: Callable[[], Any], space: Any) -> Any:
    """A module of Flax as a pytree with its parameters, which are made for observations of ``space`` if it has none yet."""
    if isinstance(value, functools.partial):  # proximo.integrations.flax.linen(…)
        return value(next_key(), space)
    library = next((str(base.__module__) for base in type(value).__mro__ if str(base.__module__).startswith("flax.")), "")
    if not library:
        return value
    from proximo.integrations import flax

    if library.startswith("flax.linen"):
        return flax.linen(value)(next_key(), space)
    return flax.nnx(lambda space, rngs: value)(next_key(), space)


def _objects(modules: dict[str, CustomModule]) -> dict[str, Any]:
    """The user's objects with the current parameters: of nnx the module instead of its parameters and its graph."""
    flax: Any = sys.modules.get("proximo.integrations.flax")
    found = {name: custom.module for name, custom in modules.items()}
    return {name: x.module if flax and isinstance(x, flax.NnxModule) else x for name, x in found.items()}


def _networks_of(policy: ActorCritic) -> dict[str, Any]:
    return _objects(policy.torsos[0].modules)  # pyright: ignore[reportAttributeAccessIssue]
