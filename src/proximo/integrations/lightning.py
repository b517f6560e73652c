"""``PPOModule``: proximo's training at the pace of Lightning's ``Trainer``; no second algorithm, and no parameters in PyTorch."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proximo.config import Config, own_code, to_mapping
from proximo.errors import CheckpointError, ConfigError, lacking
from proximo.own_code import Own
from proximo.run import PPO, load
from proximo.run.agent import OF_RUNS
from proximo.run.interrupts import Interrupts
from proximo.run.progress import Reporter
from proximo.run.settings import RESUMABLE, changed_for_resume

try:
    import lightning  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]
    from lightning.pytorch.utilities import rank_zero_warn  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise lacking("proximo.integrations.lightning", "lightning") from error

ON_BAR = ("rollout/return_mean", "eval/mean_return")
STATE = "_extra_state"


def _settings(config: Config) -> dict[str, Any]:
    """The settings by name, without those that only runs on the disk have."""
    return {name: x for group in to_mapping(config).values() for name, x in group.items() if name not in OF_RUNS}


class _Warner(Reporter):
    def warned(self, message: str) -> None:
        rank_zero_warn(message)


class _UntilEvaluation:
    """An item for each update until the next evaluation, or the end: an epoch. Where it goes on after a resume is the agent's to know."""

    def __init__(self, agent: PPO):
        self._agent, self._config = agent, agent.config

    def __len__(self) -> int:
        return min(self._config.eval_updates, self._config.total_updates)

    def __iter__(self) -> Iterator[int]:
        update, every = self._agent.step // self._config.batch_size, self._config.eval_updates
        return iter(range(update, min((update // every + 1) * every, self._config.total_updates)))

    def state_dict(self) -> dict[str, Any]:
        """Nothing; that there is one tells Lightning that an epoch can be resumed in its middle."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""


class PPOModule(lightning.LightningModule):
    """Proximal Policy Optimization under ``lightning.Trainer.fit``.

        trainer.fit(module := PPOModule("CartPole-v1"))
        module.agent.evaluate(100)

    ``env``, ``preset``, ``seed`` and ``settings`` are those of ``proximo.PPO``; it learns until ``total_steps``. A batch of Lightning's is an update, an
    epoch what lies between two evaluations (``eval_every``). ``agent`` is the ``PPO``: it predicts, is judged and saved.
    """

    def __init__(self, env: Any, *, preset: bool = True, seed: int = 0, **settings: Any):
        super().__init__()
        self.automatic_optimization = False
        self.agent = PPO(env, preset=preset, seed=seed, **settings)
        self._env = None if isinstance(env, str) else env
        asked = _settings(self.agent.config)
        self.save_hyperparameters({"env": asked.pop("id"), "preset": False, **asked})
        self._calls: Any = None

    def configure_optimizers(self) -> list[Any]:
        """None: what learns is compiled by JAX."""
        return []

    def train_dataloader(self) -> _UntilEvaluation:
        return _UntilEvaluation(self.agent)

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            raise ConfigError(
                f"PPOModule trains in one process, this Trainer has {self.trainer.world_size}: give it devices=1, num_nodes=1."
            )

    def on_train_start(self) -> None:
        for warning in self.agent.warnings:
            rank_zero_warn(warning)
        self._interrupts = Interrupts()
        self._calls = self.agent.calls(self._steps_left(), self._interrupts, reporter=_Warner(), most_updates=1)
        with self._interrupts:
            next(self._calls)  # compiles

    def on_train_epoch_start(self) -> None:
        self._steps_left()

    def _steps_left(self) -> int:
        config, step = self.agent.config, self.agent.step
        if step >= config.total_updates * config.batch_size:
            # Also where min_epochs or min_steps of the Trainer's ask for more.
            raise ConfigError(f"PPOModule is complete at step {step}: give a larger total_steps to go on.")
        return config.ppo.total_steps - step

    def training_step(self, batch: int, batch_idx: int) -> None:
        """One update, and the evaluation behind it where one is due."""
        known, config = len(self.agent.history), self.agent.config
        with self._interrupts:
            goes_on = next(self._calls, False) is None
        count = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        count.increment_ready()
        count.increment_completed()  # global_step counts updates, as no optimizer of PyTorch's does
        for row in self.agent.history[known:]:
            self._log_row({name: x for name, x in row.items() if x is not None})
        self._show("progress", self.agent.step / (config.total_updates * config.batch_size), True)
        if not goes_on:
            self.trainer.should_stop = True

    def _log_row(self, row: dict[str, Any]) -> None:
        """To loggers by the environment step, which Lightning's own way would keep in float32; then to its callbacks."""
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
        """What ``PPO.save`` writes, as the bytes of a zip file: in every checkpoint, without a pickle of anything of ours."""
        packed = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(self.agent.save(folder).rglob("*")):
                archive.write(path, path.relative_to(folder))
        return torch.frombuffer(bytearray(packed.getvalue()), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Go on where a checkpoint stands. Raises ``ConfigError`` where this module has settings that a resume cannot change."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                with zipfile.ZipFile(io.BytesIO(state.cpu().numpy().tobytes())) as archive:
                    archive.extractall(folder)
            except zipfile.BadZipFile as error:
                raise CheckpointError(f"The state in this checkpoint is damaged: {error}.") from error
            own: dict[str, Any] = {name: x for name, x in own_code(self.agent.config).items() if isinstance(x, Own)}
            agent = load(Path(folder), env=self._env, **own)
        ours, theirs = _settings(self.agent.config), _settings(agent.config)
        changed = {name: x for name, x in ours.items() if x != theirs[name]}
        for name in changed.keys() - RESUMABLE:
            raise ConfigError(
                f"The checkpoint was made with {name} = {theirs[name]!r}, this module has {ours[name]!r}: give it the same, or make it by "
                "PPOModule.load_from_checkpoint(path)."
            )
        agent.config = changed_for_resume(agent.config, changed)
        if "total_steps" in changed:
            rank_zero_warn(f"total_steps {theirs['total_steps']} → {ours['total_steps']}: schedules stretch over the new total.")
        self.agent = agent

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if STATE not in checkpoint.get("state_dict", {}):
            raise CheckpointError("This checkpoint is not one of a PPOModule: its state_dict has no _extra_state.")
