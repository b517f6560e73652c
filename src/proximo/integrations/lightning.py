"""``PPOModule`` for ``lightning.Trainer``."""

from __future__ import annotations

from proximo.errors import lacking

try:
    import lightning  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise lacking("proximo.integrations.lightning", "lightning") from error

from proximo.integrations.lightning_training import LightningTraining


class PPOModule(LightningTraining, lightning.LightningModule):
    """Proximal Policy Optimization under ``lightning.Trainer.fit``.

        trainer.fit(module := PPOModule("CartPole-v1"))
        module.agent.evaluate(100)

    One batch of Lightning is one update. One epoch is the time between two evaluations (``eval_every``). Training ends at
    ``total_steps``.

    Args:
        env: An id, an environment, or a function that makes one, as for ``proximo.PPO``.
        preset: Use the preset of the environment, or, without one, the defaults for its kind.
        **settings: Settings by name, as for ``proximo.PPO``.

    Attributes:
        agent: The ``PPO`` that learns. Use it to predict, evaluate and save.

    Raises:
        ConfigError: A setting is unknown or invalid.
    """
