"""``PPO`` of the bridges: the subclass of lightning-baselines3 on JAX modules; the gate runs these in an environment that has Lightning."""

import re
import warnings
from pathlib import Path

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

lightning = pytest.importorskip("lightning")

import torch  # noqa: E402
from flax import linen as flax_linen  # noqa: E402
from flax import nnx as flax_nnx  # noqa: E402

from proximo import distributions  # noqa: E402
from proximo.distributions import Categorical, Gaussian  # noqa: E402
from proximo.errors import ConfigError  # noqa: E402
from proximo.integrations import lightning as bridge  # noqa: E402
from proximo.integrations import pytorch_lightning as other_bridge  # noqa: E402
from proximo.integrations.flax import linen  # noqa: E402
from proximo.integrations.lightning import PPO, PPOModule, SubprocVecEnv, make_vec_env  # noqa: E402
from proximo.ppo import make_hyperparameters  # noqa: E402
from proximo.rendering import watching, window  # noqa: E402

BATCH = 64
SMALL = {"num_envs": 2, "buffer_length": 32, "batch_size": 16, "epochs_per_rollout": 2, "num_eval_episodes": 2, "seed": 100}
SILENT = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger", "enable_checkpointing"), False)
SILENT["accelerator"] = "cpu"
PAGE = Path(__file__).parents[2] / "docs" / "from-lightning-baselines3.md"


def networks(model):
    size = model.observation_space.shape[0]
    model.actor = eqx.nn.MLP(size, 2, 16, 1, activation=jnp.tanh, key=model.next_key())
    model.critic = eqx.nn.MLP(size, 1, 16, 1, activation=jnp.tanh, key=model.next_key())


class Model(PPO):
    def __init__(self, env="CartPole-v1", **kwargs):
        super().__init__(env, **{**SMALL, **kwargs})
        networks(self)

    def forward(self, x):
        return Categorical(jax.vmap(self.actor)(x)), jax.vmap(self.critic)(x).flatten()


def subclass(name="Changed", base=Model, init=None, **methods):
    """A subclass with these methods, which ends its ``__init__`` with ``init(model)``."""

    def initialize(self, *arguments, **settings):
        base.__init__(self, *arguments, **settings)
        init(self)

    return type(name, (base,), {**methods, **({"__init__": initialize} if init else {})})


def fit(model, epochs=1, folder=".", **options):
    trainer = lightning.Trainer(**{**SILENT, "max_epochs": epochs, "default_root_dir": folder, **options})
    trainer.fit(model, **({"ckpt_path": options.pop("ckpt_path")} if "ckpt_path" in options else {}))
    return trainer


def leaves(*trees):
    return [np.asarray(x) for x in jax.tree.leaves(trees) if eqx.is_inexact_array(x)]


def test_attributes_exist_before_the_networks_and_vectorized_environments_are_described():
    model = PPO(make_vec_env("CartPole-v1", n_envs=3, seed=7, vec_env_cls=SubprocVecEnv), eval_env=gym.make("CartPole-v1"))
    assert (model.observation_space.shape, model.action_space.n, model.num_envs, model.seed) == ((4,), 2, 3, 7)
    assert model.env is not None
    assert model.eval_env is not None
    assert "agent" not in vars(model)
    for bridges in (bridge, other_bridge):
        assert (bridges.make_vec_env, bridges.SubprocVecEnv) == (make_vec_env, SubprocVecEnv)


def test_defaults_are_those_of_the_library_without_preset_or_normalization(tmp_path):
    plain = subclass(base=PPO, init=networks, forward=Model.forward)
    model = plain("CartPole-v1")
    config = model.agent.config
    ppo = config.ppo
    assert (config.env.num_envs, ppo.num_steps, ppo.num_epochs, config.batch_size // ppo.num_minibatches) == (1, 2048, 10, 64)
    clipped = ppo.clip_eps.initial, ppo.clip_value_eps.initial
    assert (ppo.gamma, ppo.gae_lambda, *clipped, ppo.target_kl) == (0.99, 0.95, 0.2, 0.0, 0.0)
    assert (ppo.vf_coef, ppo.ent_coef.initial, config.run.eval_episodes, config.run.eval_every) == (1.0, 0.0, 10, 2048)
    assert (ppo.normalize_observation, ppo.normalize_reward, ppo.normalize_advantage) == (False, False, "minibatch")
    assert model.seed != plain("CartPole-v1").seed
    assert float(optax.global_norm(model.agent.policy.actor_critic.normalizer)) == 0


def test_names_of_both_libraries_and_remaining_progress():
    model = Model(
        clip_range=lambda progress: 0.2 * progress, clip_range_vf=None, target_kl=None, value_coef=0.25, entropy_coef=0.01, num_rollouts=3,
        learning_rate=lambda left: 1e-3 * left, gamma=0.9, num_workers=0,
    )  # fmt: skip
    ppo = model.agent.config.ppo
    assert (ppo.vf_coef, ppo.ent_coef.initial, ppo.gamma, model.agent.config.run.eval_every) == (0.5, 0.01, 0.9, 3 * BATCH)
    h, start, quarter, end = make_hyperparameters(ppo), *map(jnp.float32, (0, 0.25, 1))
    assert (float(h.clip_eps(start)), float(h.clip_eps(end))) == (pytest.approx(0.2), 0.0)
    assert float(h.learning_rate(quarter)) == pytest.approx(0.75e-3)


def test_an_epoch_is_num_rollouts_rollouts_and_total_steps_follow_from_max_epochs(tmp_path):
    model = Model(num_rollouts=2)
    trainer = fit(model, 3, tmp_path)
    assert model.agent.step == model.agent.config.ppo.total_steps == 6 * BATCH
    assert (trainer.current_epoch, trainer.global_step) == (3, 6)
    assert [row["step"] // BATCH for row in model.agent.history if "eval/return_mean" in row] == [2, 4, 6]
    fit(model, 1, tmp_path)
    assert model.agent.config.ppo.total_steps == model.agent.step == 8 * BATCH
    fit(model, -1, tmp_path, max_steps=3)
    assert model.agent.step == 11 * BATCH


def test_forward_gets_stacked_raw_observations_and_learning_differentiates_it(tmp_path):
    shapes = set()

    def forward(self, x):
        shapes.add((x.shape, isinstance(x, jax.core.Tracer)))
        distribution, value = Model.forward(self, x)
        return Categorical(distribution.logits * self.scale), value

    model = subclass(forward=forward, init=lambda self: setattr(self, "scale", jnp.ones(())))()
    before = leaves(model.actor, model.critic, model.scale)
    fit(model, 1, tmp_path)
    after = leaves(model.actor, model.critic, model.scale)
    assert all((x != y).any() for x, y in zip(before, after, strict=True))
    assert {shape for (*_, shape), _ in shapes} == {4}
    assert {(2, 4), (16, 4)} <= {shape for shape, _ in shapes}  # acts, learns
    x = np.ones((5, 4), np.float32)
    distribution, value = model(x)
    theirs, of_agent = model.agent.forward(x)
    np.testing.assert_allclose(distribution.logits, theirs.logits, rtol=1e-5)
    np.testing.assert_allclose(value, of_agent, rtol=1e-5)
    model.agent.learn(BATCH)
    assert any((x != y).any() for x, y in zip(after, leaves(model.actor, model.critic, model.scale), strict=True))
    with pytest.raises(ConfigError, match=r"self\.actor is being trained"):
        model.actor = eqx.nn.Linear(4, 2, key=jax.random.key(0))


def flax_nnx_networks(model):
    rngs = flax_nnx.Rngs(0)
    model.actor = flax_nnx.Sequential(flax_nnx.Linear(4, 8, rngs=rngs), jnp.tanh, flax_nnx.Linear(8, 2, rngs=rngs))
    model.critic = flax_nnx.Linear(4, 1, rngs=rngs)


def flax_linen_networks(model):
    model.actor = linen(flax_linen.Sequential([flax_linen.Dense(8), jnp.tanh, flax_linen.Dense(2)]))
    model.critic = linen(flax_linen.Dense(1))(model.next_key(), 4)


@pytest.mark.parametrize("make", [flax_nnx_networks, flax_linen_networks])
def test_flax_modules_are_trained_as_they_stand(tmp_path, make):
    model = subclass(init=make, forward=lambda self, x: (Categorical(self.actor(x)), self.critic(x).flatten()))()
    fit(model, 1, tmp_path)
    assert model.actor(np.zeros((3, 4), np.float32)).shape == (3, 2)
    assert all(np.isfinite(x).all() for x in leaves(model.agent.policy.actor_critic))
    assert model.agent.step == BATCH


class Spaces(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (3,))

    def __init__(self, action_space):
        self.action_space, self.taken = action_space, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.left -= 1
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), 1.0, self.left == 0, False, {}


BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 4]))


@pytest.mark.parametrize(
    ("space", "outputs", "make"),
    [
        (gym.spaces.MultiDiscrete([3, 3]), 6, lambda model, out: distributions.ProductCategorical(out.reshape(-1, 2, 3))),
        (gym.spaces.MultiBinary(2), 2, lambda model, out: distributions.Bernoulli(out)),
        (BOX, 2, lambda model, out: Gaussian(out, model.log_std)),
        (BOX, 2, lambda model, out: distributions.TanhGaussian(out, model.log_std, (True, True))),
        (BOX, 4, lambda model, out: distributions.Beta(1 + jnp.exp(out[:, :2]), 1 + jnp.exp(out[:, 2:]))),
        (BOX, 2, lambda model, out: distributions.StateDependentGaussian.of(out, jnp.tanh(out), model.matrix)),
    ],
    ids=["product", "bernoulli", "gaussian", "tanh", "beta", "sde"],
)
def test_forward_may_return_any_distribution(tmp_path, space, outputs, make):
    class Of(PPO):
        def __init__(self):
            super().__init__(Spaces(space), **{**SMALL, "num_workers": 0})
            self.actor, self.critic = (eqx.nn.Linear(3, n, key=self.next_key()) for n in (outputs, 1))
            self.log_std, self.matrix = jnp.zeros(2), jnp.zeros((2, 2))

        def forward(self, x):
            return make(self, jax.vmap(self.actor)(x)), jax.vmap(self.critic)(x)[:, 0]

    model = Of()
    before = leaves(model.actor, model.critic)
    fit(model, 1, tmp_path)
    assert all((x != y).any() for x, y in zip(before, leaves(model.actor, model.critic), strict=True))
    assert abs(model.agent.history[0]["train/ratio_max"] - 1) < 1
    returns, lengths = model.evaluate(3)
    assert (returns, lengths) == ([5.0] * 3, [5] * 3)


def test_a_gaussians_samples_are_actions_and_only_clipped():
    def forward(self, x):
        return Gaussian(jnp.full((len(x), 2), 1.5) + 0 * self.actor, jnp.zeros(2)), jnp.zeros(len(x))

    model = subclass(base=PPO, init=lambda self: setattr(self, "actor", jnp.zeros(())), forward=forward)(Spaces(BOX), **SMALL)
    np.testing.assert_allclose(model.predict(np.zeros((2, 3), np.float32)), np.full((2, 2), 1.5))


def having(make, base=Model, name="Mine"):
    """A class whose instances have this network as ``actor``."""
    return subclass(name, base, lambda self: setattr(self, "actor", make()))


three_actions = subclass(predict=lambda self, x, deterministic: np.zeros(3))
outside_jax = subclass(predict=lambda self, x, deterministic: x)
no_loss = subclass("Mine", training_step=lambda self, minibatch, index: 0.0)
without_value = subclass(forward=lambda self, x: Categorical(jax.vmap(self.actor)(x)))
gaussian = subclass(forward=lambda self, x: (Gaussian(x, x), x[:, 0]))
four_choices = subclass(forward=lambda self, x: (Categorical(x), x[:, 0]))
column = subclass(forward=lambda self, x: (Categorical(x[:, :2]), x[:, :1]))
misspelled = subclass(forward=lambda self, x: self.actr(x))
keyed = subclass(forward=lambda self, x: (Categorical(self.next_key()), x))
FOR_3 = "for 3 observations: expected"


@pytest.mark.parametrize(
    ("cls", "settings", "sentence"),
    [
        (Model, {"clip_range": 0.1, "clip_eps": 0.1}, "clip_range is called clip_eps in proximo, and both were given"),
        (Model, {"memory": "gru"}, "memory has no effect on PPO, whose forward.x. has its own networks .*, no memory"),
        (Model, {"hidden_sizes": (8,)}, "hidden_sizes has no effect on PPO"),
        (Model, {"normalize_observation": True}, "normalize_observation has no effect on PPO"),
        (Model, {"total_steps": 9}, "total_steps has no effect on PPO, .*; num_rollouts and the Trainer's max_epochs set"),
        (Model, {"clip_rang": 9}, "clip_rang"),
        (Model, {"use_sde": True}, "use_sde has no effect on PPO, whose forward.x. has its own networks and distribution"),
        (PPO, {}, r"PPO has no network: set self\.actor and self\.critic in its __init__"),
        (subclass("Without", PPO, networks), {}, r"Without has no forward\(self, x\): define it"),
        (having(lambda: flax_linen.Dense(2), PPO), {}, r"wrap self\.actor by proximo\.integrations\.flax\.linen in its __init__"),
        (having(lambda: flax_nnx.BatchNorm(4, rngs=flax_nnx.Rngs(0))), {}, "BatchNorm has variables besides its param"),
        (three_actions, {}, r"predict returns \(3,\) for \d+ observations: expected"),
        (outside_jax, {"env": "gymnax:CartPole-v1"}, "predict runs outside JAX, on Gymnasium environments only"),
        (no_loss, {"objective": "kl_penalty"}, "objective has no effect on Mine, whose training_step is the whole loss"),
        (without_value, {}, rf"forward\(x\) returns Categorical of \(3, 2\) float32 {FOR_3} \(distribution, value\), a Cat"),
        (gaussian, {}, "forward.x. returns Gaussian of .*: expected .* a Categorical of .3, 2. float32 for the actions"),
        (four_choices, {}, rf"Categorical of \(3, 4\) float32 and \(3,\) float32 {FOR_3} .* Categorical of \(3, 2\)"),
        (column, {}, rf"returns .* and \(3, 1\) float32 {FOR_3} .* \(3,\) float32, as from self.critic"),
        (misspelled, {}, "forward.x. raised AttributeError: .*actr"),
        (keyed, {}, "next_key.. in forward or training_step would always return the same key"),
    ],
)
def test_mistake_raises_one_sentence(cls, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        cls(**{"env": "CartPole-v1", **settings}).evaluate(1)


def test_next_key_is_always_another_one_and_follows_from_the_seed():
    model = Model()
    keys = {tuple(jax.random.key_data(model.next_key()).tolist()) for _ in range(5)}
    again = Model()
    assert len(keys) == 5
    assert {tuple(jax.random.key_data(again.next_key()).tolist()) for _ in range(5)} == keys


class Always(Model):
    """Plays 1, which ends an episode early."""

    def predict(self, x, deterministic=True):
        assert isinstance(x, np.ndarray)
        self.seen.append(leaves(self.actor)[0].copy())
        return np.ones(len(x), int)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = []


def test_an_overridden_predict_plays_all_episodes_outside_jax(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = Always(num_eval_episodes=8)
    fit(model, 2, tmp_path)
    during = [row["eval/return_mean"] for row in model.agent.history if "eval/return_mean" in row]
    assert all(8 <= mean <= 11 for mean in during)
    assert (model.seen[0] != model.seen[-1]).any()  # the current weights of each evaluation
    np.testing.assert_array_equal(model.seen[-1], leaves(model.actor)[0])
    returns, lengths = model.evaluate(num_eval_episodes=10)
    assert (len(returns), returns) == (10, [float(x) for x in lengths])
    assert all(8 <= length <= 11 for length in lengths)
    assert isinstance(returns, list)
    assert model.evaluate().summary()["episodes"] == 8
    assert model.agent.render(max_steps=20).frames <= 12
    assert model.agent.watch("w.gif", episodes=1).exists()


def test_predict_returns_actions_alone_and_may_be_extended():
    model, plain = subclass(predict=lambda self, x, deterministic=True: Model.predict(self, x, deterministic))(), Model()
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    assert model.predict(x).shape == (6,)
    assert model.predict(x[0]).shape == ()
    np.testing.assert_array_equal(model.predict(x), plain.predict(x))
    assert len({tuple(model.predict(x, deterministic=False)) for _ in range(8)}) > 1
    assert model.evaluate(4).summary() == plain.evaluate(4).summary()


def test_jax_environments_are_trained(tmp_path):
    model = Model("gymnax:CartPole-v1")
    assert model.observation_space.shape == (4,)
    before = leaves(model.actor)
    fit(model, 2, tmp_path)
    assert (before[0] != leaves(model.actor)[0]).any()
    assert len(model.evaluate(3).length) == 3


def test_training_step_of_the_base_class_is_the_loss_of_ppo(tmp_path):
    indices = []

    def training_step(self, minibatch, index):
        indices.append(index)
        self.log("index", index)
        self.log_dict({"twice": 2.0 * index})
        return Model.training_step(self, minibatch, index)

    models = subclass(training_step=training_step)(entropy_coef=0.01), Model(entropy_coef=0.01)
    for model in models:
        fit(model, 2, tmp_path)
    for ours, theirs in zip(*(leaves(model.actor, model.critic) for model in models), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert isinstance(indices[0], jax.core.Tracer)
    row, expected = ({name: x for row in model.agent.history for name, x in row.items()} for model in models)
    assert (row["train/index"], row["train/twice"]) == (1.5, 3.0)  # means of 0 … 3
    assert row["train/loss"] == pytest.approx(expected["train/loss"], abs=1e-5)


def test_an_overridden_training_step_replaces_the_loss(tmp_path):
    def training_step(self, minibatch, index):
        distribution, value = self(minibatch.observation[0])
        assert distribution.logits.shape == (len(minibatch.observation[0]), 2)
        return minibatch.mean((value[None] - minibatch.target) ** 2)

    model = subclass(training_step=training_step)()
    before = leaves(model.actor), leaves(model.critic)
    fit(model, 1, tmp_path)
    assert all((x == y).all() for x, y in zip(before[0], leaves(model.actor), strict=True))
    assert all((x != y).any() for x, y in zip(before[1], leaves(model.critic), strict=True))


def test_gradient_clip_val_of_the_trainer_sets_max_grad_norm_with_one_line(tmp_path, caplog):
    model, notice = Model(), "gradient_clip_val=0.5 of the Trainer sets max_grad_norm of proximo."
    trainer = fit(model, 1, tmp_path, gradient_clip_val=0.5)
    assert [record.message for record in caplog.records].count(notice) == 1
    assert model.agent.config.ppo.max_grad_norm == 0.5
    assert float(model.agent._state.learner.hyperparameters.max_grad_norm) == 0.5
    assert trainer.gradient_clip_val == 0.5
    fit(model, 1, tmp_path)
    assert float(model.agent._state.learner.hyperparameters.max_grad_norm) == model.agent.config.ppo.max_grad_norm > 1e6
    with pytest.raises(ConfigError, match="gradient_clip_algorithm"):
        fit(model, 1, tmp_path, gradient_clip_val=0.5, gradient_clip_algorithm="value")


def test_configure_optimizers_is_used_in_every_form_of_lightning(tmp_path):
    none = optax.sgd(0.0)
    frozen = subclass(configure_optimizers=lambda self: self.form)
    for form in (none, [none], ([none], []), {"optimizer": none}):
        model = frozen()
        model.form, before = form, leaves(model.actor, model.critic)
        fit(model, 1, tmp_path)
        assert all((x == y).all() for x, y in zip(before, leaves(model.actor, model.critic), strict=True))


def test_render_opens_a_window_where_there_is_a_display(tmp_path, monkeypatch):
    shown = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(window, "has_display", lambda: True)
    monkeypatch.setattr(watching, "show", lambda subject: shown.extend(step.ended for step in subject.play()))
    model = Always()
    model.evaluate(2, render=True)
    assert len([ended for ended in shown if ended]) == 2
    monkeypatch.setattr(window, "has_display", lambda: False)
    model.evaluate(1, render=True)
    assert model.video_path.stat().st_size > 1000


@pytest.mark.parametrize("verbose", [0, 2, True])
def test_verbose_is_accepted(verbose):
    for model in (Model(verbose=verbose), PPOModule("gymnax:CartPole-v1", verbose=verbose)):
        assert model.agent.verbose == int(verbose)


def test_checkpoints_contain_the_networks_and_training_goes_on(tmp_path):
    class Saving(Model):
        def __init__(self, width=16, **kwargs):
            super().__init__(**kwargs)
            self.save_hyperparameters()

    env = make_vec_env("CartPole-v1", n_envs=2)
    model = Saving(env=env, clip_range=lambda left: 0.2 * left, width=17, seed=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", ".*(training batches|num_workers|LeafSpec|GPU).*")
        trainer = fit(model, 2, tmp_path)
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    loaded = Saving.load_from_checkpoint(tmp_path / "c.ckpt", env=env, clip_range=lambda left: 0.2 * left, weights_only=True)
    assert (loaded.hparams.width, loaded.agent.config.run.seed) == (17, model.seed)
    assert not {"env", "clip_range"} & (loaded.hparams.keys() - {"env"})
    for ours, theirs in zip(leaves(loaded.actor), leaves(model.actor), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    resumed = Saving(env=env, clip_range=lambda left: 0.2 * left, seed=None)
    longer = lightning.Trainer(**SILENT, max_epochs=3, default_root_dir=tmp_path)
    longer.fit(resumed, ckpt_path=tmp_path / "c.ckpt")
    assert resumed.agent.config.ppo.total_steps == resumed.agent.step == 3 * BATCH


def test_pytorch_modules_raise_an_error_with_one_line_of_equinox_and_one_of_flax():
    for make in (lambda: torch.nn.Linear(4, 2), lambda: torch.nn.Parameter(torch.zeros(2))):
        with pytest.raises(ConfigError, match=r"actor.* is a PyTorch parameter") as raised:
            having(make)().evaluate(1)
        lines = str(raised.value).splitlines()
        assert [name in line for name, line in zip(("equinox.nn.MLP", "nnx.Linear"), lines[1:], strict=True)] == [True, True]
    assert isinstance(having(lambda: torch.nn.Linear(4, 2).requires_grad_(False))().actor, torch.nn.Linear)


NOTHING = {name: lambda self, *arguments: 0.0 for name in ("forward", "predict", "training_step")}


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        *((name, subclass("Mine", PPOModule, **{name: method})) for name, method in NOTHING.items()),
        ("forward", subclass("Mine", PPOModule, forward=jax.jit(NOTHING["forward"]))),
        ("actor", having(lambda: eqx.nn.Linear(4, 2, key=jax.random.key(0)), PPOModule)),
        ("actor", having(lambda: flax_nnx.Linear(4, 2, rngs=flax_nnx.Rngs(0)), PPOModule)),
        ("actor", having(lambda: linen(flax_linen.Dense(2)), PPOModule)),
    ],
)
def test_override_or_network_without_an_effect_on_ppomodule_names_ppo(name, cls):
    with pytest.raises(ConfigError, match=rf"Mine\.{name} has no effect in a subclass of PPOModule: derive the class from PPO"):
        fit(cls("gymnax:CartPole-v1"))


def test_overrides_that_call_super_keep_their_meaning(tmp_path):
    class Counted(PPOModule):
        steps = 0

        def training_step(self, batch, batch_idx):
            self.steps += 1
            return super().training_step(batch, batch_idx)

    small = {"num_envs": 2, "num_steps": 32, "total_steps": 2 * BATCH, "hidden_sizes": 4, "eval_episodes": 0}
    module = Counted("toys:RandomEnds", preset=False, **small)
    fit(module, -1, tmp_path)
    assert module.steps == 2


@pytest.mark.learning
@pytest.mark.parametrize(("epochs", "score"), [(2, 40), pytest.param(20, 475, marks=pytest.mark.slow)])
def test_the_changed_example_reaches_its_scores(epochs, score, tmp_path, monkeypatch):
    """The first block of the page; random actions have a return of 22."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(window, "has_display", lambda: False)
    page, names = PAGE.read_text(), {"__name__": "__main__"}
    program, *others = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert page.index(program) < page.index("\n## ")
    exec(compile(program.replace("max_epochs=5", f"max_epochs={epochs}"), str(PAGE), "exec"), names)
    model = names["model"]
    assert model.agent.step == epochs * 8 * 2048
    assert list(Path("lightning_logs").rglob("videos/*.mp4"))
    assert model.agent.evaluate(100).summary()["return_mean"] >= score
    for block in others:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["return_mean"] > 9
