"""``PPO`` of both packages: a subclass has its own networks, ``forward`` and optimizer, as lightning-baselines3."""

import dataclasses
import functools
import itertools
import logging
import types
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo import agent as agents
from proximo.agent import make_environment
from proximo.collect.environment import evaluation_environment
from proximo.config import LEAVES, override
from proximo.config.coercion import ScheduleText
from proximo.config.schema import ALTERNATIVES
from proximo.config.validation import validate
from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError
from proximo.evaluation.episodes import NETWORK_STREAM, Episodes, evaluation_key
from proximo.integrations.lightning_training import LightningTraining, Shapes, is_jax_network
from proximo.networks.custom.forward import Forward
from proximo.networks.custom.networks import CustomModule
from proximo.other_libraries import load
from proximo.ppo.loss import WholeLoss, ppo_loss
from proximo.ppo.minibatches import Minibatch
from proximo.rendering import watching, window
from proximo.spaces import Box
from proximo.types import Scalar

NO_EFFECT = ("total_steps", "total_updates", "eval_every", "normalize_observation", "clip_observation")
"""Settings without an effect on ``PPO``, beside all of the networks."""


class SubprocVecEnv:
    """Environments that ``PPO`` makes, one for each function or id in ``env_fns``, which are the same."""

    def __init__(self, env_fns: Sequence[Any], **settings: Any):
        self.env, self.num_envs = env_fns[0], len(env_fns)
        self.settings = {"num_envs": self.num_envs, **settings}


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
    return vec_env_cls([env_id] * n_envs, seed=seed, env_settings=env_kwargs or {})


class LightningPPO(LightningTraining):
    """The methods of ``PPO``. The other base class is the ``LightningModule`` of one of the packages."""

    follows = frozenset({"total_steps", "max_grad_norm", "seed"})
    without_effect = ()
    _networks: tuple[str, ...] = ()  # names of the attributes that the agent trains
    _policy: Any = None  # of a copy: the ActorCritic whose networks it has
    _logged: Any = None  # of a copy that is traced: what it has logged, by name

    def __init__(self, env: Any, eval_env: Any = None, **settings: Any):
        super(LightningTraining, self).__init__()  # of the LightningModule
        settings = {**(env.settings if isinstance(env, SubprocVecEnv) else {"num_envs": getattr(env, "num_envs", 1)}), **settings}
        self._given, self._given_eval = (x.env if isinstance(x, SubprocVecEnv) else x for x in (env, eval_env))
        self._verbose, seed = settings.pop("verbose", 0), settings.pop("seed", None)
        self.seed = int(np.random.default_rng().integers(2**32)) if seed is None else seed
        self._keys = itertools.count()
        self._settings = {**_our_settings(settings), "seed": self.seed}
        made, config = make_environment(self._given, self._settings, preset=False)
        self.observation_space, self.action_space, self.num_envs = made.observation_space, made.action_space, config.env.num_envs
        self.env = made if isinstance(env, str) else env
        self.eval_env = self.env if eval_env is None else eval_env
        self._own = frozenset(self.__dict__)

    @functools.cached_property
    def agent(self) -> agents.PPO:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The ``proximo.PPO`` that learns, made at the first use from the networks that the subclass has by then."""
        self._check_parameters()
        settings = {**self._settings, "total_steps": self._settings["eval_every"], **self._given_optimizer()}
        if type(self).training_step is not LightningPPO.training_step:
            if "objective" in settings:
                raise ConfigError(f"objective has no effect on {type(self).__name__}, whose training_step is the whole loss.")
            settings["objective"] = WholeLoss(self._run_training_step)
        modules, predict = self._wrapped_networks(), type(self).predict is not LightningPPO.predict
        settings["actor_critic"] = Forward(modules, self._run_forward, self._run_predict if predict else None)
        agent = agents.PPO(self._given, eval_env=self._given_eval, preset=False, verbose=self._verbose, **settings)
        self.jax_parameters = Shapes({name: x.parameters for name, x in modules.items()})
        self._networks = tuple(modules)
        for name in modules:
            del self.__dict__[name]  # __getattr__ returns it with its current parameters
        return agent

    def _wrapped_networks(self) -> dict[str, CustomModule]:
        """The attributes of the subclass that have floating-point arrays."""
        modules = {}
        for name, value in [(name, value) for name, value in self.__dict__.items() if name not in self._own]:
            if any(base.__module__.startswith("flax.nnx") for base in type(value).__mro__):
                from proximo.integrations import flax

                module: Any = value
                flax.nnx(lambda *_, rngs, module=module: module)(jax.random.key(0), 0)  # raises if it has more than parameters
            if isinstance(value, functools.partial) and is_jax_network(value):  # proximo.integrations.flax.linen(…)
                value = value(self.next_key(), self.observation_space)
            if any(map(eqx.is_inexact_array, jax.tree.leaves(value))):
                modules[name] = CustomModule.wrap(f"self.{name}", value)
        if not modules:
            flax = next((name for name, value in self.__dict__.items() if name not in self._own and is_jax_network(value)), "")
            way = f"wrap self.{flax} by proximo.integrations.flax.linen" if flax else "set self.actor and self.critic"
            raise ConfigError(f"{type(self).__name__} has no network: {way} in its __init__.")
        return modules

    def __getattr__(self, name: str) -> Any:
        if name in self._networks:
            return self.agent.policy.actor_critic.torsos[0].modules[name].module  # pyright: ignore[reportAttributeAccessIssue]
        return super().__getattr__(name)  # pyright: ignore[reportAttributeAccessIssue]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._networks:
            raise ConfigError(f"self.{name} is being trained since the first fit, evaluate or predict: set it in __init__.")
        super().__setattr__(name, value)

    def _copy(self, modules: dict[str, CustomModule], policy: Any = None, logged: Any = None) -> Self:
        """A copy whose networks are ``modules``, so that a traced call leaves nothing in ``self``."""
        copy, networks = object.__new__(type(self)), {name: x.module for name, x in modules.items()}
        copy.__dict__.update(self.__dict__, **networks, _policy=policy, _logged=logged)
        return copy

    def _run_forward(self, modules: dict[str, CustomModule], x: Any) -> Any:
        return self._copy(modules, logged={}).forward(x)

    def _run_training_step(self, policy: Any, minibatch: Minibatch) -> tuple[Scalar, dict[str, Array]]:
        copy = self._copy(policy.torsos[0].modules, policy, {})
        step: Any = type(self).training_step  # of the class: Lightning calls that of the instance
        return step(copy, minibatch, minibatch.index), copy._logged

    def _run_predict(self, policy: Any, x: Any, deterministic: bool) -> np.ndarray:
        space = policy.actor.space
        shape = len(jax.tree.leaves(x)[0]), *space.shape
        with custom_code_errors("predict", ConfigError):
            action = np.asarray(self._copy(policy.torsos[0].modules, policy).predict(x, deterministic=deterministic))
        if action.shape != shape:
            raise ConfigError(f"predict returns {action.shape} for {shape[0]} observations: expected actions of shape {shape}.")
        return np.clip(action, *space.bounds()).astype(space.dtype) if isinstance(space, Box) else action

    def next_key(self) -> Key[Array, ""]:
        """A key that no earlier call has returned."""
        if self._logged is not None:
            raise ConfigError("next_key() in forward or training_step would always return the same key: JAX compiles them once.")
        return jax.random.fold_in(evaluation_key(self.seed, NETWORK_STREAM), next(self._keys))

    def forward(self, x: Any) -> tuple[Any, Array]:
        """The distributions and the values for N stacked, unnormalized observations. A subclass defines it."""
        raise ConfigError(
            f"{type(self).__name__} has no forward(self, x): define it, to return (distribution, value) of N inputs."
        )

    def predict(self, x: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or for N stacked ones. A subclass may define it for N."""
        policy = self.agent.policy
        policy = policy if self._policy is None else dataclasses.replace(policy, actor_critic=self._policy)
        return policy.predict(x, deterministic=deterministic, key=None if deterministic else self.next_key())[0]

    def training_step(self, minibatch: Minibatch, index: Any) -> Scalar:
        """The loss of one minibatch. Override this to modify the algorithm; ``super().training_step`` is
        PPO's loss.

        Args:
            minibatch: what ``objective`` gets (docs/custom-losses.md).
            index: number of the minibatch in its epoch.

        Returns:
            The loss. It is traced in JAX. ``self.log`` records a metric.
        """
        loss, metrics = ppo_loss(self._policy, minibatch)
        self._logged.update(metrics)
        return loss

    def log(self, name: str, value: Any, *arguments: Any, **options: Any) -> None:
        """Log a metric: in ``training_step`` one of the update, elsewhere as in Lightning."""
        if self._logged is None:
            super().log(name, value, *arguments, **options)
        else:
            self._logged[name] = jnp.asarray(value, float)

    def _set_hparams(self, hparams: Any) -> None:
        """What ``save_hyperparameters`` saves: no objects, because no checkpoint can contain them."""
        plain = {name: x for name, x in hparams.items() if isinstance(x, str | int | float | list | tuple | dict | None)}
        super()._set_hparams(plain)  # pyright: ignore[reportAttributeAccessIssue]

    def evaluate(
        self, num_eval_episodes: int | None = None, deterministic: bool = True, render: bool = False, *, seed: int = 0
    ) -> Episodes:
        """Play whole episodes on ``eval_env``, with ``predict`` if the subclass defines it.

        Args:
            num_eval_episodes: number of episodes; None: the argument of the constructor.
            deterministic: whether to take the most probable action.
            render: whether to show the episodes; without a display, the first is written to ``video_path``.
            seed: seed of the episodes, 0 or more.

        Returns:
            The episodes, which unpack as ``returns, lengths``.

        Raises:
            ConfigError: an argument is out of range.
            EnvError: the environment cannot be drawn.
        """
        policy, count = self.agent.policy, self._settings["eval_episodes"] if num_eval_episodes is None else num_eval_episodes
        played = self.agent.evaluate(count, deterministic=deterministic, seed=seed, env=self._given_eval)
        env, config = evaluation_environment(policy.config, policy.env, self._given_eval)
        policy = dataclasses.replace(policy, env=env, config=config)
        if render and window.has_display():
            watching.show(watching.acting(policy, deterministic=deterministic, episodes=count, seed=seed))
        elif render:
            watching.film(policy, self.video_path, seed)
        return played

    def configure_callbacks(self) -> list[Any]:
        """Return no callbacks. Lightning calls this first, and refuses ``gradient_clip_val`` without automatic
        optimization, which therefore stays on until ``setup``."""
        self.automatic_optimization = self.trainer.accumulate_grad_batches == 1
        return []

    def setup(self, stage: str) -> None:
        _ = self.agent  # is made now, if it was not yet
        super().setup(stage)
        self.automatic_optimization = False
        self.training_step = types.MethodType(LightningTraining.training_step, self)

    def train_dataloader(self) -> Any:
        """The updates of an epoch. ``total_steps`` follows from the limits and counters of the Trainer."""
        trainer, config, step = self.trainer, self.agent.config, self.agent.step
        epoch, total, clip_val = config.run.eval_every, 10**15, trainer.gradient_clip_val
        if trainer.max_epochs is not None and trainer.max_epochs >= 0:
            total = step // epoch * epoch + (trainer.max_epochs - trainer.current_epoch) * epoch
        elif trainer.max_steps >= 0:
            total = step + (trainer.max_steps - trainer.global_step) * config.batch_size
        if clip_val:
            if trainer.gradient_clip_algorithm == "value":
                raise ConfigError("gradient_clip_algorithm = 'value': proximo clips the norm of the gradient: leave it out.")
            logger = logging.getLogger(type(trainer).__mro__[-2].__module__)  # of Lightning, also for a subclass of its Trainer
            logger.info(f"gradient_clip_val={clip_val} of the Trainer sets max_grad_norm of proximo.")
        changes = {"total_steps": max(total, config.batch_size), "max_grad_norm": clip_val or self._settings["max_grad_norm"]}
        agents.change_settings(self.agent, validate(override(config, changes)))
        return super().train_dataloader()


def _our_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Our settings for those of a ``PPO``: with names of lightning-baselines3 or of proximo, and defaults of
    lightning-baselines3."""
    table = load("lightning_baselines3").sections["PPO"]
    ours = {name: x for name, x in given.items() if name not in table}
    for name, x in given.items():
        setting = next(iter(table[name].ours), "") if name in table else name
        if name in NO_EFFECT or (setting in LEAVES and LEAVES[setting].group == "network" and x not in (None, False, -1)):
            raise ConfigError(
                f"{name} has no effect on PPO, whose forward(x) has its own networks and distribution, no memory, and unnormalized observations; "
                f"num_rollouts and the Trainer's max_epochs set the steps. Leave it out, or use PPOModule(…, {setting}=…)."
            )
    taken = ours.keys() | {size for size, count in ALTERNATIVES.items() if count in ours}
    settings = {"normalize_observation": False, "normalize_reward": False, "max_grad_norm": 1e9, **ours}
    for name, entry in table.items():
        value, (setting, *_) = given.get(name, entry.default), (*entry.ours, "")
        if name in given and setting in taken:
            raise ConfigError(f"{name} is called {setting} in proximo, and both were given: leave one of them out.")
        if setting != "sde_every" and (name in given or (entry.default is not None and setting not in taken)):
            settings[setting] = 0 if value is None else value * entry.times if entry.times != 1 else value
    settings["eval_every"] *= settings["num_envs"] * settings["num_steps"]
    for name, x in settings.items():
        if callable(x) and name in LEAVES and LEAVES[name].base is ScheduleText:
            # It gets the remaining progress because of the name of its parameter.
            settings[name] = lambda progress_remaining, function=x: function(progress_remaining)
    return settings
