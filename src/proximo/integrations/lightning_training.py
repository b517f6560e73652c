"""Training under a ``Trainer`` of Lightning: what ``PPOModule`` and ``PPO`` of both bridges share. The
algorithm is proximo's; PyTorch only has the shapes of the parameters, for summaries."""

import dataclasses
import functools
import inspect
import io
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from proximo.agent import PPO, change_settings, learn_in_calls, load_like
from proximo.collect.learning import policy_shapes
from proximo.config import Config, custom_settings, to_flat
from proximo.config.custom import Custom
from proximo.config.loading import RESUMABLE, changed_for_resume, resume_warnings, with_given
from proximo.config.schema import RUN_DIRECTORY
from proximo.config.typed_settings import AgentSettings
from proximo.custom_code import custom_code_errors
from proximo.errors import CheckpointError, ConfigError, lacking
from proximo.evaluation.episodes import Episodes
from proximo.evaluation.policy import Carried
from proximo.rendering.watching import film
from proximo.tracking.reporter import Reporter
from proximo.training.interrupts import Interrupts

try:
    import torch  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise lacking("proximo.integrations.lightning", "lightning") from error

ON_BAR = ("progress", "rollout/return_mean", "eval/return_mean")
STATE = "_extra_state"
NETWORKS = """
    self.actor = equinox.nn.MLP(4, 2, 64, 2, activation=jax.numpy.tanh, key=self.next_key())  # jax.vmap(self.actor)(x) in forward
    self.actor = nnx.Sequential(nnx.Linear(4, 64, rngs=nnx.Rngs(0)), nnx.tanh, nnx.Linear(64, 2, rngs=nnx.Rngs(0)))  # self.actor(x)"""


def _settings(config: Config) -> dict[str, Any]:
    """The settings by name, without those that only apply to run directories."""
    return {name: x for name, x in to_flat(config).items() if name not in RUN_DIRECTORY}


def is_jax_network(value: Any) -> bool:
    """Whether ``value`` is a Flax module, also one that is wrapped, or an Equinox module with arrays."""
    if isinstance(value, functools.partial):
        return getattr(value.func, "__module__", "") == "proximo.integrations.flax"
    libraries = {str(base.__module__).split(".")[0] for base in type(value).__mro__}
    return "flax" in libraries or ("equinox" in libraries and any(isinstance(x, jax.Array) for x in jax.tree.leaves(value)))


def _unwrapped(optimizer: Any) -> Any:
    """The optimizer in what ``configure_optimizers`` may return."""
    match optimizer:
        case ([*several], [*_]) if len(several) != 1:
            return several
        case [[one], _] | [one] | {"optimizer": one}:
            return _unwrapped(one)
    return optimizer


class _UpdatesUntilEvaluation:
    """The data of one epoch: an item for each update until the next evaluation or the end of the training."""

    def __init__(self, agent: PPO):
        self._agent, self._config = agent, agent.config

    def __len__(self) -> int:
        return min(self._config.eval_updates, self._config.total_updates)

    def __iter__(self) -> Iterator[int]:
        update, every = self._agent.step // self._config.batch_size, self._config.eval_updates
        return iter(range(update, min((update // every + 1) * every, self._config.total_updates)))

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state. Lightning resumes within an epoch only if this method exists."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Ignore the state, which is empty."""


class Shapes(torch.nn.Module):
    """Parameters without numbers in the shapes of JAX's, for Lightning's summary. No checkpoint contains them."""

    def __init__(self, parameters: PyTree):
        super().__init__()
        for i, leaf in enumerate(jax.tree.leaves(parameters)):
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                self.register_parameter(f"parameter{i}", torch.nn.Parameter(torch.empty(leaf.shape, device="meta")))

    def _apply(self, *_: Any, **__: Any) -> Self:
        return self

    def _save_to_state_dict(self, *_: Any, **__: Any) -> None: ...

    def _load_from_state_dict(self, *_: Any, **__: Any) -> None: ...


class LightningTraining:
    """The hooks of ``PPOModule``. The other base class is the ``LightningModule`` of one of the packages."""

    follows: frozenset[str] = frozenset()  # settings that a resume takes from the checkpoint, or from the Trainer
    without_effect: tuple[str, ...] = ("forward", "predict", "training_step")  # methods that a subclass must not replace
    _calls: Any = None
    _folder = Path()

    automatic_optimization: bool
    loggers: Any
    trainer: Any
    log: Any
    save_hyperparameters: Any
    named_parameters: Any

    def __init__(self, env: Any, *, preset: bool = True, **settings: Unpack[AgentSettings]):
        super().__init__()  # of the LightningModule
        self.automatic_optimization = False
        self.agent = PPO(env, preset=preset, **settings)
        asked = _settings(self.agent.config)
        self.save_hyperparameters({"env": asked.pop("id"), "preset": False, **asked})
        self.jax_parameters = Shapes(dataclasses.replace(policy_shapes(self.agent.env, self.agent.config), normalizer=None))

    def _check_overrides(self) -> None:
        """Raise ``ConfigError`` if a network, or a method without ``super()``, has no effect."""
        names = [name for name, x in self.__dict__.items() if self.without_effect and is_jax_network(x)]
        for name in self.without_effect:
            method = getattr(type(self), name)
            code = getattr(inspect.unwrap(method), "__code__", None)  # None: a jitted method or a partial
            if method.__module__ != __name__ and "super" not in getattr(code, "co_names", ()):
                names.append(name)
        if names:
            raise ConfigError(
                f"{type(self).__name__}.{names[0]} has no effect in a subclass of PPOModule: derive the class from PPO of the same module, or pass "
                "a network as encoder, actor, critic or actor_critic (docs/custom-networks.md)."
            )

    def configure_optimizers(self) -> Any:
        """None. A subclass may return a value of the setting ``optimizer``, such as ``optax.adam(3e-4)``."""
        return []

    def configure_callbacks(self) -> list[Any]:
        """Return no callback. Lightning calls this first, so settings of the Trainer are checked here."""
        if clip := self.trainer.gradient_clip_val:
            raise ConfigError(
                f"Trainer(gradient_clip_val={clip}) has no effect on proximo, which clips the gradient's norm itself: leave it out, and use "
                f"PPOModule(…, max_grad_norm={clip})."
            )
        return []

    def predict(self, *arguments: Any, **named: Any) -> tuple[np.ndarray, Carried]:
        """The action for one observation, or for N stacked ones, with the arguments of ``agent.predict``."""
        return self.agent.predict(*arguments, **named)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """The distribution of the action and the value, with the arguments of ``agent.forward``."""
        return self.agent.forward(*arguments, **named)

    def evaluate(self, episodes: int = 100, *, render: bool = False, seed: int = 0, **arguments: Any) -> Episodes:
        """Play whole episodes with the arguments of ``agent.evaluate``. ``render`` writes the first one, with
        the most probable actions, to ``video_path``.

        Returns:
            The episodes. ``.summary()`` returns their mean return and other statistics.

        Raises:
            ConfigError: An argument is out of range.
            EnvError: The environment cannot be drawn.
        """
        played = self.agent.evaluate(episodes, seed=seed, **arguments)
        if render:
            film(self.agent.policy, self.video_path, seed)
        return played

    @property
    def video_path(self) -> Path:
        """``videos/evaluate-STEP.mp4`` in the folder of the last fit's logger, or in the current one."""
        return self._folder / "videos" / f"evaluate-{self.agent.step}.mp4"

    def train_dataloader(self) -> _UpdatesUntilEvaluation:
        return _UpdatesUntilEvaluation(self.agent)

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            raise ConfigError(
                f"{type(self).__name__} trains in one process, but this Trainer has {self.trainer.world_size}: "
                "set devices=1, num_nodes=1."
            )
        self._check_overrides()
        self._check_parameters()
        if given := self._given_optimizer():
            change_settings(self.agent, with_given(self.agent.config, given))
        self._folder = Path(self.trainer.log_dir or self.trainer.default_root_dir)  # kept: the module may outlive its Trainer

    def _check_parameters(self) -> None:
        """Raise ``ConfigError`` for trainable PyTorch parameters: no optimizer would train them."""
        for name, parameter in self.named_parameters():
            if parameter.requires_grad and not name.startswith("jax_parameters."):
                raise ConfigError(
                    f"{name} is a PyTorch parameter, but proximo trains with JAX, which cannot differentiate PyTorch. Call requires_grad_(False) on "
                    f"its module if it needs no training. Otherwise derive the class from PPO, with networks of Equinox or Flax:{NETWORKS}"
                )

    def _given_optimizer(self) -> dict[str, Any]:
        """What ``configure_optimizers`` returns, as a setting. Lightning's call then gets nothing."""
        with custom_code_errors("configure_optimizers", ConfigError):
            optimizer = _unwrapped(self.configure_optimizers())
        self.configure_optimizers = lambda: []  # noqa: PIE807 (Lightning reads its __code__)
        if optimizer == []:
            return {}
        if isinstance(optimizer, torch.optim.Optimizer | list | dict):
            raise ConfigError(
                f"configure_optimizers returned {type(optimizer).__name__}: expected one optax optimizer, not a PyTorch optimizer, because JAX does the learning. "
                "Return an optax transformation, such as optax.adam(3e-4), or a function such as optax.sgd; or set optimizer and learning_rate."
            )
        return {"optimizer": optimizer}

    def on_train_start(self) -> None:
        for warning in self.agent.warnings:
            warnings.warn(warning, stacklevel=2)
        self._interrupts = Interrupts()
        self._calls = learn_in_calls(self.agent, self._steps_left(), self._interrupts, Reporter(), max_updates=1)
        with self._interrupts:
            next(self._calls)  # compiles

    def on_train_epoch_start(self) -> None:
        self._steps_left()
        self._describe_bar()

    def _steps_left(self) -> int:
        config, step = self.agent.config, self.agent.step
        if step >= config.total_updates * config.batch_size:
            # The Trainer's min_epochs or min_steps may also ask for more.
            raise ConfigError(f"{type(self).__name__} is complete at step {step}: set a larger total_steps to continue.")
        return config.ppo.total_steps - step

    def training_step(self, batch: int, batch_idx: int) -> None:
        """Run one update, and the evaluation after it if one is due."""
        known, config = len(self.agent.history), self.agent.config
        with self._interrupts:
            continues = next(self._calls, False) is None
        count = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        count.increment_ready()
        count.increment_completed()  # global_step counts updates, because there is no PyTorch optimizer to count
        shown = {"progress": self.agent.step / (config.total_updates * config.batch_size)}
        for row in self.agent.history[known:]:
            values = {name: x for name, x in row.items() if x is not None and name != "step"}
            for logger in self.loggers:  # directly, because Lightning would round the environment step to float32
                logger.log_metrics(dict(values), step=row["step"])
            shown |= values
        for name, x in shown.items():  # for callbacks and the progress bar
            self.log(name, x, prog_bar=name in ON_BAR, logger=False, batch_size=1)
        self._describe_bar()
        if not continues:
            self.trainer.should_stop = True

    def _describe_bar(self) -> None:
        """Count environment steps on Lightning's progress bar, which shows epochs otherwise."""
        bar: Any = self.trainer.progress_bar_callback
        if bar is None or not bar.is_enabled:
            return
        text = f"Step {self.agent.step:,}/{self.agent.config.total_updates * self.agent.config.batch_size:,}"
        if hasattr(bar, "progress"):  # RichProgressBar
            bar.progress.update(bar.train_progress_bar_id, description=text)
        elif hasattr(bar, "train_progress_bar"):  # TQDMProgressBar
            bar.train_progress_bar.set_description(text, refresh=False)

    def on_train_end(self) -> None:
        self._calls.close()

    def get_extra_state(self) -> Any:
        """The files of ``PPO.save`` as a zip archive: nothing of proximo is pickled."""
        packed = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(self.agent.save(folder).rglob("*")):
                archive.write(path, path.relative_to(folder))
        return torch.frombuffer(bytearray(packed.getvalue()), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Continue from a checkpoint."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                with zipfile.ZipFile(io.BytesIO(state.cpu().numpy().tobytes())) as archive:
                    archive.extractall(folder)
            except zipfile.BadZipFile as error:
                raise CheckpointError(f"The state in this checkpoint is damaged: {error}.") from error
            custom: dict[str, Any] = {name: x for name, x in custom_settings(self.agent.config).items() if isinstance(x, Custom)}
            agent = load_like(self.agent, Path(folder), custom)
        ours, theirs = _settings(self.agent.config), _settings(agent.config)
        changed = {name: x for name, x in ours.items() if x != theirs[name] and name not in self.follows}
        for name in changed.keys() - RESUMABLE:
            raise ConfigError(
                f"The checkpoint was made with {name} = {theirs[name]!r}, but this module has {ours[name]!r}: use the same value, or "
                f"{type(self).__name__}.load_from_checkpoint(path)."
            )
        saved = agent.config
        change_settings(agent, changed_for_resume(agent.config, changed))
        for warning in resume_warnings(saved, agent.config):
            warnings.warn(warning, stacklevel=2)
        self.agent = agent

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if STATE not in checkpoint.get("state_dict", {}):
            raise CheckpointError(f"This checkpoint is not from a {type(self).__name__}: its state_dict has no _extra_state.")
