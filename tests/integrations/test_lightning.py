"""``PPOModule``: Lightning's Trainer drives the same training, to the same bits; the gate runs these in an environment that has Lightning."""

import signal

import jax
import numpy as np
import optax
import pytest

lightning = pytest.importorskip("lightning")

import pytorch_lightning  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger, Logger  # noqa: E402

import proximo  # noqa: E402
from commands import BATCH, GRU, SMALL, final_state  # noqa: E402
from proximo.errors import CheckpointError, ConfigError, EnvError, TrainingError  # noqa: E402
from proximo.integrations import pytorch_lightning as other_package  # noqa: E402
from proximo.integrations.lightning import PPOModule  # noqa: E402

from gym_toys import Countdown  # noqa: E402
from toys import Broken, RandomEnds  # noqa: E402

UPDATES, EPOCH = 22, 5
SETTINGS = {name: x for name, x in SMALL.items() if name != "tensorboard"}
SETTINGS |= {"total_steps": UPDATES * BATCH, "eval_every": EPOCH * BATCH}
OF_AGENT = {name: x for name, x in SETTINGS.items() if name != "total_steps"}


def module(env="toys:RandomEnds", **settings):
    return PPOModule(env, preset=False, **{**SETTINGS, **settings})


def trainer(folder, **options):
    silent = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return lightning.Trainer(**{"accelerator": "cpu", "max_epochs": -1, "default_root_dir": folder, **silent, **options})


def saved(agent, folder):
    return final_state(agent.save(folder))


def rows(agent):
    return [{name: x for name, x in row.items() if not name.startswith("time/")} for row in agent.history]


class Recorded(Logger):
    name, version = "recorded", 0

    def __init__(self):
        super().__init__()
        self.rows, self.settings = [], {}

    def log_metrics(self, metrics, step=None):
        self.rows.append({"step": step, **metrics})

    def log_hyperparams(self, params, *_, **__):
        self.settings = dict(params)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted training, by ``PPO.learn``."""
    agent = proximo.PPO("toys:RandomEnds", preset=False, **OF_AGENT, **GRU, learning_rate="linear(1e-3, 0)")
    agent.learn(UPDATES * BATCH)
    return agent, saved(agent, tmp_path_factory.mktemp("whole") / "saved")


def same(**settings):
    return module(**GRU, learning_rate="linear(1e-3, 0)", **settings)


def checkpoint_of(learner, folder):
    """A checkpoint after two updates."""
    first = trainer(folder, max_steps=2, enable_checkpointing=False)
    first.fit(learner)
    first.save_checkpoint(folder / "c.ckpt")
    return folder / "c.ckpt"


@pytest.fixture(scope="module")
def two_updates(tmp_path_factory):
    return checkpoint_of(module(), tmp_path_factory.mktemp("two"))


def calling(hook, call):
    """A callback with this hook alone."""
    callback = Callback()
    setattr(callback, hook, call)
    return callback


@pytest.mark.parametrize("package", [lightning, pytorch_lightning], ids=lambda package: package.__name__)
def test_fit_equals_learn_bit_for_bit_with_the_same_rows(tmp_path, whole, package):
    agent, state = whole
    cls, recorded = (PPOModule if package is lightning else other_package.PPOModule), Recorded()
    learner = cls("toys:RandomEnds", preset=False, **SETTINGS, **GRU, learning_rate="linear(1e-3, 0)")
    options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "max_epochs": -1}
    fitted = package.Trainer(accelerator="cpu", logger=recorded if package is lightning else False, **options)
    fitted.fit(learner)
    assert saved(learner.agent, tmp_path / "saved") == state
    assert rows(learner.agent) == rows(agent)
    assert (fitted.global_step, fitted.current_epoch) == (UPDATES, -(-UPDATES // EPOCH))
    if package is lightning:
        logged = [{name: x for name, x in row.items() if x is not None} for row in agent.history]
        names = "step", "eval/return_mean"
        assert [[row.get(x) for x in names] for row in recorded.rows] == [[row.get(x) for x in names] for row in logged]
        assert all(isinstance(row["step"], int) for row in recorded.rows)
        assert (recorded.settings["env"], recorded.settings["num_envs"]) == ("toys:RandomEnds", SETTINGS["num_envs"])


def optimized(make, env="toys:RandomEnds", **settings):
    """A module with ``configure_optimizers``."""
    cls = type("WithOptimizer", (PPOModule,), {"configure_optimizers": make})
    return cls(env, **{**SETTINGS, "preset": False, **settings})


def test_configure_optimizers_may_return_an_optax_transformation(tmp_path):
    small = {"hidden_sizes": 4, "eval_episodes": 0}
    expected = proximo.PPO("toys:RandomEnds", preset=False, **{**OF_AGENT, **small, "learning_rate": 1e-2}).learn(2 * BATCH)
    fixed, of_rate = optax.adam(1e-2, eps=1e-5), lambda rate: optax.adam(rate, eps=1e-5)
    for made, rate in ((fixed, 3e-4), (of_rate, 1e-2)):
        learner = optimized(lambda _, made=made: made, learning_rate=rate, **small)
        trainer(tmp_path, max_steps=2).fit(learner)
        for ours, theirs in zip(
            *(jax.tree.leaves(agent.policy.actor_critic) for agent in (learner.agent, expected)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_an_optimizer_replaces_the_learning_rate_of_a_preset(tmp_path):
    learner = optimized(lambda _: optax.adam(1e-3), "gymnax:CartPole-v1", preset=True, eval_episodes=0)
    assert learner.agent.config.ppo.learning_rate != proximo.Config().ppo.learning_rate
    trainer(tmp_path, max_steps=1).fit(learner)
    assert learner.agent.step == learner.agent.config.batch_size


def test_a_resume_has_the_evaluation_environment_of_the_module(tmp_path):
    path = checkpoint_of(module(eval_env=RandomEnds(), eval_max_steps=7), tmp_path)
    second = module(eval_env=RandomEnds(), eval_max_steps=9)
    trainer(tmp_path, max_steps=3).fit(second, ckpt_path=path)
    assert second.agent.step == 3 * BATCH
    assert second.agent._evaluated_on[1].run.eval_max_steps == 9


@pytest.mark.parametrize(("part", "update"), [("batch", 7), ("batch", EPOCH), ("epoch", EPOCH), ("batch", UPDATES - 1)])
def test_a_fit_resumed_from_lightnings_checkpoint_equals_the_uninterrupted_one(tmp_path, whole, part, update, recwarn):
    path, learner = tmp_path / "c.ckpt", same()
    kept = calling(f"on_train_{part}_end", lambda fitted, *_: fitted.global_step < update or fitted.save_checkpoint(path))
    trainer(tmp_path, callbacks=[kept], max_steps=update, enable_checkpointing=False).fit(learner)
    assert learner.agent.step == update * BATCH
    resumed, second = same(), trainer(tmp_path, enable_checkpointing=False)
    second.fit(resumed, ckpt_path=path)
    assert saved(resumed.agent, tmp_path / "saved") == whole[1]
    assert second.global_step == UPDATES
    assert [r["step"] for r in resumed.agent.history if "eval/return_mean" in r] == [
        r["step"] for r in whole[0].history if "eval/return_mean" in r
    ]
    assert not [w for w in recwarn if "resum" in str(w.message)]


def test_two_resumes_on_a_gymnasium_environment_are_equal(tmp_path):
    path, states = checkpoint_of(module(Countdown), tmp_path), []
    for name in "ab":
        resumed = module(Countdown)
        trainer(tmp_path, max_steps=4, enable_checkpointing=False).fit(resumed, ckpt_path=path)
        assert resumed.agent.step == 4 * BATCH
        states.append(saved(resumed.agent, tmp_path / name))
    assert states[0] == states[1]


def test_model_checkpoint_keeps_the_best_evaluation_and_it_is_loaded(tmp_path):
    best = ModelCheckpoint(tmp_path, monitor="eval/return_mean", mode="max")
    learner = module(seed=3)
    trainer(tmp_path, callbacks=[best]).fit(learner)
    evaluations = {row["step"]: row["eval/return_mean"] for row in learner.agent.history if "eval/return_mean" in row}
    assert len(evaluations) == 5
    assert len(set(evaluations.values())) > 1
    evaluations = {step: np.float32(mean) for step, mean in evaluations.items()}  # as Lightning compares them
    highest = max(evaluations.values())
    assert float(best.best_model_score) == highest
    loaded = PPOModule.load_from_checkpoint(best.best_model_path, weights_only=True)  # no pickle of anything of ours
    assert loaded.agent.step == next(step for step, mean in evaluations.items() if mean == highest)
    assert loaded.agent.config.run.seed == 3
    assert loaded.agent.history == [row for row in learner.agent.history if row["step"] <= loaded.agent.step]
    assert PPOModule.load_from_checkpoint(best.best_model_path, total_steps=64 * BATCH).agent.config.total_updates == 64


EARLY = EarlyStopping("eval/return_mean", mode="max", stopping_threshold=-1e9, check_finite=True)


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        ({"max_steps": 7}, 7),
        ({"max_time": {"seconds": 0}}, 0),
        ({"fast_dev_run": 3}, 3),
        ({"limit_train_batches": 2}, UPDATES),
        ({"max_epochs": 2, "limit_train_batches": 2}, 4),
        ({"callbacks": [EARLY]}, EPOCH),
    ],
)
def test_trainer_limits_stop_training_which_then_continues(tmp_path, options, updates):
    learner = module()
    trainer(tmp_path, **options, enable_checkpointing=False).fit(learner)
    assert learner.agent.step == updates * BATCH
    if updates < UPDATES:
        ends = []
        heard = calling("on_train_epoch_end", lambda _, fitted: ends.append(fitted.agent.step // BATCH))
        trainer(tmp_path, callbacks=[heard], enable_checkpointing=False).fit(learner)
        assert ends == [boundary for boundary in (*range(EPOCH, UPDATES, EPOCH), UPDATES) if boundary > updates]
    assert learner.agent.learn(BATCH).step == (UPDATES + 1) * BATCH


def test_an_environment_may_be_an_object(tmp_path):
    path = checkpoint_of(learner := module(RandomEnds()), tmp_path)
    with pytest.raises(EnvError, match="was given as an object, so it has no id by which it can be found again"):
        PPOModule.load_from_checkpoint(path)
    loaded = PPOModule.load_from_checkpoint(path, env=RandomEnds())
    assert saved(loaded.agent, tmp_path / "a") == saved(learner.agent, tmp_path / "b")


def test_agent_can_predict_and_save_between_updates_and_have_a_frozen_module_of_pytorch(tmp_path):
    steps = []

    def ask(fitted, learner, *_):
        learner.agent.predict(np.zeros(3, np.float32))
        steps.append(proximo.load(learner.agent.save(tmp_path / "asked")).step)

    asks = calling("on_train_batch_end", ask)
    trainer(tmp_path, callbacks=[asks], max_steps=3, enable_checkpointing=False).fit(with_head(trained=False))
    assert steps == [BATCH, 2 * BATCH, 3 * BATCH]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("within", [True, False])
def test_module_continues_after_a_signal(tmp_path, monkeypatch, number, within):
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    learner = module()

    def interrupt(is_now):
        if is_now:
            signal.raise_signal(number)

    between = calling("on_train_batch_end", lambda fitted, *_: interrupt(fitted.global_step == 3 and not within))
    advanced = lambda reporter, steps, *_: interrupt(steps == 3 * BATCH and within)  # noqa: E731
    monkeypatch.setattr("proximo.tracking.reporter.Reporter.advanced", advanced)
    try:
        with pytest.raises((SystemExit, lightning.pytorch.utilities.exceptions.SIGTERMException)):
            trainer(tmp_path, callbacks=[between], enable_checkpointing=False).fit(learner)
        assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
    assert learner.agent.step == 3 * BATCH
    trainer(tmp_path, enable_checkpointing=False).fit(learner)
    assert learner.agent.step == UPDATES * BATCH


class NanAfterThreeUpdates(Broken):
    default_params = {"observation": -1, "reward": 20}  # noqa: RUF012  (8 steps an update)


def test_nan_stops_training_with_its_source_and_without_later_checkpoints(tmp_path):
    every = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1)
    with pytest.raises(TrainingError, match="NaN or infinity in the reward"):
        trainer(tmp_path, callbacks=[every]).fit(module(NanAfterThreeUpdates()))
    assert len(list(tmp_path.glob("*.ckpt"))) == 2


def test_metrics_reach_the_logger_and_progress_bar_of_lightning(tmp_path, capsys):
    logger = CSVLogger(tmp_path, name="", version="")
    learner = module()
    trainer(tmp_path, logger=logger, enable_progress_bar=True, enable_checkpointing=False).fit(learner)
    steps = [line.split(",")[0] for line in (tmp_path / "metrics.csv").read_text().splitlines()]
    assert len(steps) > len(learner.agent.history) / 2
    out = capsys.readouterr().out
    assert f"{UPDATES % EPOCH}/{EPOCH}" in out
    assert f"Step {UPDATES * BATCH}/{UPDATES * BATCH}" in out
    assert "Epoch" not in out
    assert "progress" in out


def test_resume_accepts_longer_training_but_no_other_settings(tmp_path, two_updates):
    with pytest.raises(ConfigError, match="made with num_epochs = 2, but this module has 3: use the same value, or PPOModule"):
        trainer(tmp_path).fit(module(num_epochs=3), ckpt_path=two_updates)
    longer = module(total_steps=30 * BATCH)
    with pytest.warns(UserWarning, match=f"total_steps {UPDATES * BATCH} → {30 * BATCH}: schedules stretch over the new total"):
        trainer(tmp_path, max_steps=3, enable_checkpointing=False).fit(longer, ckpt_path=two_updates)
    assert longer.agent.step == 3 * BATCH


def test_unrelated_checkpoint_raises_one_sentence(tmp_path, two_updates):
    path, content = tmp_path / "c.ckpt", torch.load(two_updates, weights_only=True)
    damaged = {"_extra_state": torch.zeros(9, dtype=torch.uint8)}
    for state, message in (({}, "is not from a PPOModule"), (damaged, "The state in this checkpoint is damaged")):
        torch.save({**content, "state_dict": state}, path)
        with pytest.raises(CheckpointError, match=message):
            PPOModule.load_from_checkpoint(path)
        with pytest.raises(CheckpointError, match=message):
            trainer(tmp_path).fit(module(), ckpt_path=path)


def test_fitting_a_complete_training_raises(tmp_path):
    learner = module(total_steps=2 * BATCH)
    trainer(tmp_path, enable_checkpointing=False).fit(learner)
    for model, options in ((learner, {}), (module(total_steps=2 * BATCH), {"min_steps": 3})):
        with pytest.raises(ConfigError, match=f"is complete at step {2 * BATCH}: set a larger total_steps"):
            trainer(tmp_path, **options, enable_checkpointing=False).fit(model)


def with_head(trained):
    model = module()
    model.head = torch.nn.Linear(3, 4).requires_grad_(trained)
    return model


def adam_of_torch(model):
    return torch.optim.Adam(model.parameters())


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (lambda: module(num_env=3), {}, r"num_env.*called num_envs here"),
        (lambda: module(track="csv"), {}, "track is a setting of run directories"),
        (lambda: module(encoder=torch.nn.Linear(3, 4), hidden_sizes=(64, 64)), {}, "encoder: Linear is a PyTorch module"),
        (lambda: with_head(True), {}, r"^head\.weight is a PyTorch parameter, but proximo trains with JAX"),
        (lambda: optimized(adam_of_torch), {}, "returned Adam: expected one optax optimizer, not a P"),
        (lambda: optimized(lambda _: None), {}, "^optimizer = None: expected"),
        (lambda: optimized(lambda _: optax.sgd(1e-2), learning_rate=1e-2), {}, "learning_rate = .* has no effect with optimizer"),
        (module, {"gradient_clip_val": 0.3}, r"^Trainer\(gradient_clip_val=0.3\) .* use PPOModule\(…, max_grad_norm=0.3\)\.$"),
        (module, {"world_size": 2}, "PPOModule trains in one process, but this Trainer has 2: set devices=1"),
    ],
)
def test_mistake_raises_one_sentence(tmp_path, make, options, sentence):
    processes = options.pop("world_size", 1)
    fitted = trainer(tmp_path, **options)
    fitted.strategy.world_size = processes
    with pytest.raises(ConfigError, match=sentence):
        fitted.fit(make())


def test_summary_counts_parameters_which_no_checkpoint_has(tmp_path):
    learner = module(normalize_observation=True, **GRU)
    policy = learner.agent.policy.actor_critic
    count = sum(leaf.size for leaf in jax.tree.leaves((policy.torsos, policy.actor, policy.critic)))
    summary = lightning.pytorch.utilities.model_summary.ModelSummary(learner)
    assert (summary.total_parameters, summary.trainable_parameters) == (count, count)
    assert list(learner.to("cpu").state_dict()) == ["_extra_state"]


def test_module_predicts_and_evaluates_and_renders_like_its_agent(tmp_path):
    learner, observation = module("toys:Drawn"), np.zeros(3, np.float32)
    action, _ = learner.predict(observation)
    assert action == learner.agent.predict(observation)[0]
    distribution, value = learner(observation)
    assert (distribution.mode()[0], value.shape) == (action, (1,))
    trainer(tmp_path, enable_checkpointing=False, max_steps=1).fit(learner)
    episodes = learner.evaluate(3, seed=5, render=True)
    assert episodes.summary() == learner.agent.evaluate(3, seed=5).summary()
    assert learner.video_path == tmp_path / "videos" / f"evaluate-{BATCH}.mp4"
    assert learner.video_path.stat().st_size > 1000
