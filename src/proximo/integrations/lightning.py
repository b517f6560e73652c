"""``PPOModule`` and ``PPO`` for ``lightning.Trainer``."""

from proximo.errors import lacking

try:
    import lightning  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise lacking("proximo.integrations.lightning", "lightning") from error

from proximo.integrations.lightning_ppo import LightningPPO, SubprocVecEnv, make_vec_env
from proximo.integrations.lightning_training import LightningTraining

__all__ = ["PPO", "PPOModule", "SubprocVecEnv", "make_vec_env"]


class PPOModule(LightningTraining, lightning.LightningModule):
    """Proximal Policy Optimization under ``lightning.Trainer.fit``.

        trainer.fit(module := PPOModule("CartPole-v1"))
        module.agent.evaluate(100)

    One batch of Lightning is one update. One epoch is the time between two evaluations (``eval_every``).
    Training ends at ``total_steps``.

    Args:
        env: An id, an environment, or a function that makes one, as for ``proximo.PPO``.
        preset: Use the preset of the environment, or, without one, the defaults for its kind.
        **settings: Settings by name, as for ``proximo.PPO``.

    Attributes:
        agent: The ``PPO`` that learns. Use it to predict, evaluate and save.

    Raises:
        ConfigError: A setting is unknown or invalid.
    """


class PPO(LightningPPO, lightning.LightningModule):
    """Proximal Policy Optimization with the networks of a subclass, as in lightning-baselines3.

        class Model(PPO):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.actor = eqx.nn.MLP(4, 2, 64, 2, activation=jnp.tanh, key=self.next_key())
                self.critic = eqx.nn.MLP(4, "scalar", 64, 2, activation=jnp.tanh, key=self.next_key())

            def forward(self, x):
                return Categorical(jax.vmap(self.actor)(x)), jax.vmap(self.critic)(x)

    A subclass may also define ``configure_optimizers()``, ``predict(x, deterministic)`` and
    ``training_step(minibatch, index)``. The first ``fit``, ``evaluate`` or ``predict`` makes the agent from
    all attributes that have floating-point arrays; from then on they are current.

    Args:
        env: An id, an environment, a function that makes one, or what ``make_vec_env`` returns.
        eval_env: Environment of the evaluations; None: ``env``.
        **settings: Settings with the names and the defaults of lightning-baselines3 (docs/from-lightning-baselines3.md), or others of proximo
            by name. Schedules are functions of the remaining progress, 1 to 0.

    Attributes:
        observation_space, action_space, env, eval_env, num_envs: What the arguments describe, as soon as ``super().__init__`` has
            returned. The spaces are of ``proximo.spaces``.
        agent: The ``proximo.PPO`` that learns.

    Raises:
        ConfigError: A setting is unknown or invalid, or has no effect.
    """
