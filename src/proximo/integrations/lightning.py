"""``PPOModule``: training under Lightning's ``Trainer``. The algorithm and the parameters are proximo's: the module has no PyTorch
parameters."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

from proximo.agent import PPO, learn_in_calls, load
from proximo.config import Config, custom_settings, to_mapping
from proximo.config.custom import Custom
from proximo.config.loading import RESUMABLE, changed_for_resume, resume_warnings
from proximo.config.schema import RUN_DIRECTORY
from proximo.config.typed_settings import AgentSettings
from proximo.errors import CheckpointError, ConfigError, lacking
from proximo.tracking.reporter import Reporter
from proximo.training.interrupts import Interrupts

try:
    import lightning  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]
    from lightning.pytorch.utilities import rank_zero_warn  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise lacking("proximo.integrations.lightning", "lightning") from error

ON_BAR = ("rollout/return_mean", "eval/return_mean")
STATE = "_extra_state"


def _settings(config: Config) -> dict[str, Any]:
    """The settings by name, without those that only apply to run directories."""
    return {name: x for group in to_mapping(config).values() for name, x in group.items() if name not in RUN_DIRECTORY}


class _Warner(Reporter):
    def warned(self, message: str) -> None:
        rank_zero_warn(message)


class _UpdatesUntilEvaluation:
    """The data of one epoch: one item for each update until the next evaluation or the end of training. It starts at the agent's current
    step, also after a resume."""

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


class PPOModule(lightning.LightningModule):  # pyright: ignore[reportAttributeAccessIssue]  (without the library, it finds this module)
    """Proximal Policy Optimization under ``lightning.Trainer.fit``.

        trainer.fit(module := PPOModule("CartPole-v1"))
        module.agent.evaluate(100)

    One batch of Lightning is one update. One epoch is the time between two evaluations (``eval_every``). Training ends at
    ``total_steps``.

    Args:
        env: An id, an environment, or a function that makes one, as for ``proximo.PPO``.
        preset: Use the preset of the environment.
        **settings: Settings by name, as for ``proximo.PPO``.

    Attributes:
        agent: The ``PPO`` that learns. Use it to predict, evaluate and save.

    Raises:
        ConfigError: A setting is unknown or invalid.
    """

    def __init__(self, env: Any, *, preset: bool = True, **settings: Unpack[AgentSettings]):
        super().__init__()
        self.automatic_optimization = False
        self.agent = PPO(env, preset=preset, **settings)
        self._env = None if isinstance(env, str) else env
        asked = _settings(self.agent.config)
        self.save_hyperparameters({"env": asked.pop("id"), "preset": False, **asked})
        self._calls: Any = None

    def configure_optimizers(self) -> list[Any]:
        """Return no optimizer, because JAX does the learning."""
        return []

    def train_dataloader(self) -> _UpdatesUntilEvaluation:
        return _UpdatesUntilEvaluation(self.agent)

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            raise ConfigError(
                f"PPOModule trains in one process, but this Trainer has {self.trainer.world_size}: set devices=1, num_nodes=1."
            )

    def on_train_start(self) -> None:
        for warning in self.agent.warnings:
            rank_zero_warn(warning)
        self._interrupts = Interrupts()
        self._calls = learn_in_calls(self.agent, self._steps_left(), self._interrupts, _Warner(), max_updates=1)
        with self._interrupts:
            next(self._calls)  # compiles

    def on_train_epoch_start(self) -> None:
        self._steps_left()

    def _steps_left(self) -> int:
        config, step = self.agent.config, self.agent.step
        if step >= config.total_updates * config.batch_size:
            # The Trainer's min_epochs or min_steps may also ask for more.
            raise ConfigError(f"PPOModule is complete at step {step}: set a larger total_steps to continue.")
        return config.ppo.total_steps - step

    def training_step(self, batch: int, batch_idx: int) -> None:
        """Run one update, and the evaluation after it if one is due."""
        known, config = len(self.agent.history), self.agent.config
        with self._interrupts:
            continues = next(self._calls, False) is None
        count = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        count.increment_ready()
        count.increment_completed()  # global_step counts updates, because there is no PyTorch optimizer to count
        for row in self.agent.history[known:]:
            self._log_row({name: x for name, x in row.items() if x is not None})
        self._show("progress", self.agent.step / (config.total_updates * config.batch_size), True)
        if not continues:
            self.trainer.should_stop = True

    def _log_row(self, row: dict[str, Any]) -> None:
        """Log a row. Loggers get it directly, because Lightning would round the environment step to float32. Callbacks and the progress bar
        get it from ``self.log``."""
        step = row.pop("step")
        for logger in self.loggers:
            logger.log_metrics(row, step=step)
        for name, x in row.items():
            self._show(name, x, name in ON_BAR)

    def _show(self, name: str, x: float, on_bar: bool) -> None:
        self.log(name, x, prog_bar=on_bar, logger=False, batch_size=1)

    def on_train_end(self) -> None:
        self._calls.close()

    def get_extra_state(self) -> Any:
        """The files of ``PPO.save`` as the bytes of a zip archive, for every checkpoint. Nothing of proximo is pickled."""
        packed = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(self.agent.save(folder).rglob("*")):
                archive.write(path, path.relative_to(folder))
        return torch.frombuffer(bytearray(packed.getvalue()), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Continue from a checkpoint. Raises ``ConfigError`` if this module has settings that a resume cannot change."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                with zipfile.ZipFile(io.BytesIO(state.cpu().numpy().tobytes())) as archive:
                    archive.extractall(folder)
            except zipfile.BadZipFile as error:
                raise CheckpointError(f"The state in this checkpoint is damaged: {error}.") from error
            custom: dict[str, Any] = {name: x for name, x in custom_settings(self.agent.config).items() if isinstance(x, Custom)}
            agent = load(Path(folder), env=self._env, **custom)
        ours, theirs = _settings(self.agent.config), _settings(agent.config)
        changed = {name: x for name, x in ours.items() if x != theirs[name]}
        for name in changed.keys() - RESUMABLE:
            raise ConfigError(
                f"The checkpoint was made with {name} = {theirs[name]!r}, but this module has {ours[name]!r}: use the same value, or "
                "PPOModule.load_from_checkpoint(path)."
            )
        saved, agent.config = agent.config, changed_for_resume(agent.config, changed)
        for warning in resume_warnings(saved, agent.config):
            rank_zero_warn(warning)
        self.agent = agent

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if STATE not in checkpoint.get("state_dict", {}):
            raise CheckpointError("This checkpoint is not from a PPOModule: its state_dict has no _extra_state.")
