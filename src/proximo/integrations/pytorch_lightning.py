"""``PPOModule`` and ``PPO`` for ``pytorch_lightning.Trainer``."""

from proximo.errors import lacking

try:
    import pytorch_lightning  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise lacking("proximo.integrations.pytorch_lightning", "lightning") from error

from proximo.integrations.lightning_ppo import LightningPPO, SubprocVecEnv, make_vec_env
from proximo.integrations.lightning_training import LightningTraining

__all__ = ["PPO", "PPOModule", "SubprocVecEnv", "make_vec_env"]


class PPOModule(LightningTraining, pytorch_lightning.LightningModule):
    """Proximal Policy Optimization under ``pytorch_lightning.Trainer.fit``, with the arguments and attributes
    of ``proximo.integrations.lightning.PPOModule``."""


class PPO(LightningPPO, pytorch_lightning.LightningModule):
    """Proximal Policy Optimization with the networks of a subclass, with the arguments and attributes of
    ``proximo.integrations.lightning.PPO``."""
