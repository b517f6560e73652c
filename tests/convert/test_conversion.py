"""Settings of other libraries as ours: values, the report, and a file that gives the same settings again."""

import math

import pytest

from proximo.config.schema import BY_NAME
from proximo.convert import convert
from proximo.convert.values import expression
from proximo.errors import ConfigError
from proximo.settings import make_config

ZOO = """
default: {n_timesteps: !!float 1e6, policy: 'MlpPolicy'}
atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_envs: 8
  n_steps: 128
  n_timesteps: !!float 1e7
  batch_size: 256
CartPole-v1: &base {n_envs: 8, n_timesteps: !!float 1e5, policy: 'MlpPolicy', n_steps: 32, batch_size: 256, n_epochs: 20,
                    learning_rate: lin_0.001, clip_range: lin_0.2}
Pendulum-v1:
  <<: *base
  normalize: "dict(norm_obs=True, norm_reward=False)"
  use_sde: True
  sde_sample_freq: 4
  learning_rate: !!float 1e-3
  target_kl: 2e-2
  policy_kwargs: "dict(log_std_init=-2, ortho_init=False, activation_fn=nn.ReLU, net_arch=dict(pi=[256, 32], vf=[256, 32]))"
PendulumNoVel-v1:
  env_wrapper: [{rl_zoo3.wrappers.FrameSkip: {skip: 2}}, rl_zoo3.wrappers.Unknown]
  policy_kwargs: "dict(lstm_hidden_size=64, enable_critic_lstm=True, net_arch=dict(pi=[64], vf=[32]))"
  policy: 'MlpLstmPolicy'
  n_envs: 4
  n_timesteps: !!float 1e5
  n_steps: 1024
"""
TRUNCATED = """
environment: {type: CartPoleMasked}
gamma: 0.99
lamda: 0.9
updates: 100
epochs: 3
n_workers: 16
worker_steps: 256
n_mini_batch: 8
value_loss_coefficient: 0.2
hidden_layer_size: 128
max_grad_norm: 0.25
recurrence: {sequence_length: -1, hidden_state_size: 64, layer_type: lstm, reset_hidden_state: False}
learning_rate_schedule: {initial: 3.0e-4, final: 1.0e-4, power: 1.0, max_decay_steps: 200}
beta_schedule: {initial: 0.001, final: 0.0001, power: 2.0, max_decay_steps: 50}
clip_range_schedule: {initial: 0.1, final: 0.1, power: 1.0, max_decay_steps: 1000}
"""
MEMORY_GYM = "{type: MemoryGym, name: MortarMayhem-Grid-v0, reset_params: {start-seed: 5, num-seeds: 100, command_count: [10]}}"
FILES = {
    "ppo.yml": ZOO,
    "truncated.yaml": TRUNCATED,
    "memory_gym.yaml": TRUNCATED.replace("{type: CartPoleMasked}", MEMORY_GYM),
}


@pytest.fixture
def files(tmp_path):
    """A function that gives the path and the environment of ``FILE for ENV``, and a command line as it is."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def found(source):
        name, _, env = source.partition(" for ")
        return str(tmp_path / name) if name in FILES else source, env

    return found


def given(config, **expected):
    """The values that ``config`` has where ``expected`` names one; schedules as text where it has text."""
    found = {name: leaf.value_in(config) for name, leaf in BY_NAME.items() if name in expected}
    return {name: str(value) if isinstance(expected[name], str) else value for name, value in found.items()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ppo.yml for CartPole-v1", {
            "id": "CartPole-v1", "num_envs": 8, "num_steps": 32, "num_minibatches": 1, "num_epochs": 20, "total_steps": 100_000,
            "learning_rate": "linear(0.001, 0)", "clip_eps": "linear(0.2, 0)", "gamma": 0.99, "vf_coef": 1.0, "clip_value_eps": "0.0",
        }),
        ("ppo.yml for Pendulum-v1", {
            "num_envs": 8, "normalize_observation": True, "normalize_reward": False, "sde_every": 4, "log_std_init": -0.2671,
            "activation": "relu", "hidden_sizes": (256, 32), "towers": "separate", "target_kl": pytest.approx(0.03),
        }),
        ("ppo.yml for PendulumNoVel-v1", {  # sequences that the minibatches divide
            "memory": "lstm", "memory_size": 64, "hidden_sizes": (), "head_sizes": (64,), "critic_head_sizes": (32,), "num_minibatches": 32,
            "sequence_length": 128, "action_repeat": 2,
        }),
        ("ppo.yml for PongNoFrameskip-v4", {
            "preprocessing": "atari", "frame_stack": 4, "life_loss": True, "clip_reward": "sign", "towers": "shared", "num_steps": 128,
        }),
        ("ppo.yml for Acrobot-v1", {"num_steps": 2048}),
        ("truncated.yaml", {
            "id": "CartPoleNoVel-v1", "max_episode_steps": 200, "reward_scale": 0.01, "num_envs": 16, "num_steps": 256,
            "total_steps": 409_600, "num_epochs": 3, "num_minibatches": 8, "gae_lambda": 0.9, "vf_coef": 0.4, "max_grad_norm": 0.25,
            "sequence_length": 0, "memory": "lstm", "memory_size": 64, "memory_settings.horizon": 2, "reset_memory": False,
            "clip_value_eps": "0.1", "shared_sizes": (128,), "head_sizes": (128,), "hidden_sizes": (), "optimizer": "adamw",
            "learning_rate": "linear(0.0003, 0.0001, 2)", "ent_coef": "polynomial(0.001, 0.0001, 2, 0.5)",
        }),
        ("memory_gym.yaml", {"id": "memory-gym:MortarMayhem-Grid", "levels": "5:105", "env_settings": {"command_count": [10]}}),
        ("python ppo.py",
         {"id": "CartPole-v1", "num_envs": 4, "learning_rate": "linear(0.00025, 0)", "clip_value_eps": "0.2", "seed": 1, "target_kl": 0.0}),
        ("uv run python cleanrl/ppo_continuous_action.py --env-id Hopper-v4 --no-anneal-lr --clip_vloss False --target-kl=0.02 --track",
         {"id": "Hopper-v4", "num_steps": 2048, "num_minibatches": 32, "clip_value_eps": "0.0", "target_kl": 0.02, "track": "wandb",
          "normalize_observation": True}),
        ("python rpo_continuous_action.py --rpo-alpha 0.01", {"id": "HalfCheetah-v4", "rpo_alpha": 0.01, "total_steps": 8_000_000}),
        ("python ppo_atari_lstm.py \\\n  --env-id PongNoFrameskip-v4 --norm-adv False",
         {"memory": "lstm", "memory_size": 128, "preprocessing": "atari", "frame_stack": 1, "normalize_advantage": "none", "towers": "shared"}),
        ("python ppo_atari_envpool.py --env-id Pong-v5", {"id": "envpool:Pong-v5", "clip_eps": "0.1", "clip_reward": "sign"}),
        ('main.py --env_name="LunarLander-v3" --model="mlp"',
         {"id": "LunarLander-v3", "num_envs": 8, "num_steps": 128, "clip_eps": "0.1", "clip_value_eps": "0.1", "ent_coef": "0.01",
          "normalize_advantage": "batch", "optimizer_settings.eps": 1e-8, "normalize_observation": True, "normalize_reward": True,
          "encoder": "mlp", "total_steps": 10**10 * 1024}),
        ("python main.py --env=PongNoFrameskip-v4 --model=cnn --end_on_life_loss=True --clip_rewards=True --num_iterations 100",
         {"id": "PongNoFrameskip-v4", "preprocessing": "atari", "frame_stack": 1, "life_loss": True, "clip_reward": "sign", "towers": "shared",
          "normalize_reward": False, "encoder": "nature_cnn", "total_steps": 102_400}),
        ("python ppo_jax.py --num_iterations=500_000 --num-envs=8 --env_name=Acrobot-v1 --clip_vloss --capture_video --track",
         {"id": "Acrobot-v1", "num_envs": 8, "num_steps": 128, "total_steps": 500_000, "learning_rate": "0.0003", "max_grad_norm": 1e9,
          "track": "wandb", "clip_value_eps": "0.0", "vf_coef": 1.0, "normalize_observation": False, "optimizer_settings.eps": 1e-8, "seed": 1}),
        ("python -m baselines.run --alg=ppo2 --network=mlp --num_timesteps=2e8 --num_hidden=64 --num_layers=3 --num_env=12 --nsteps=128 "
         "--lr=2.5e-4 --cliprange=.1 --env=LunarLander-v3",
         {"id": "LunarLander-v3", "num_envs": 12, "hidden_sizes": (64, 64, 64), "total_steps": 200_000_000, "clip_value_eps": "0.1",
          "learning_rate": "0.00025", "clip_eps": "0.1", "normalize_observation": False, "normalize_reward": False, "towers": "shared",
          "vf_coef": 0.5}),
        ("export CUDA_VISIBLE_DEVICES=1 && python -m baselines.run --alg=ppo2 --network=cnn_lstm --nlstm=256 --env=PongNoFrameskip-v4 "
         "--save_interval=10",
         {"preprocessing": "atari", "frame_stack": 4, "memory": "lstm", "memory_size": 256, "sequence_length": 0,
          "learning_rate": "linear(2.5e-4, 0)", "num_steps": 128, "checkpoint_every": 10_240}),
    ],
)  # fmt: skip
def test_a_source_becomes_settings_with_the_defaults_of_its_program(files, tmp_path, source, expected):
    converted = convert(*files(source))
    assert given(converted.config, **expected) == expected
    (tmp_path / "ours.yaml").write_text(converted.yaml)
    assert make_config(file=tmp_path / "ours.yaml") == converted.config


def test_the_report_names_what_changes_and_what_has_no_equal(files):
    report, _, missing = convert(*files("ppo.yml for Pendulum-v1")).report.partition("Not converted:")
    assert "vf_coef = 0.5, the default  →  vf_coef = 1 (give twice the value" in report
    assert "ortho_init = false: layers are always initialized orthogonally" in missing
    assert "env_wrapper Unknown" in convert(*files("ppo.yml for PendulumNoVel-v1")).report.partition("Not converted:")[2]
    assert "num_minibatches = 5  →  4" in convert("python ppo.py --num-minibatches 5").report


@pytest.mark.parametrize(
    "source",
    [*(f"python ppo.py --env-id {env_id}" for env_id in ("CartPoleNoVel-v1", "craftax:Craftax-Symbolic-v1", "not_installed:Env")),
     "ppo_jax.py --decay_lr", "python -m baselines.run --network=lstm", "LunarLander-v3: Mlp", "CarRacing-v3: Cnn", "Hopper-v5: Mlp"],
)  # fmt: skip
def test_the_file_gives_the_same_settings_whatever_the_preset(tmp_path, source):
    env, _, policy = source.partition(": ")
    if policy:
        settings = f"{{policy: {policy}LstmPolicy, n_envs: 8, n_steps: 512, batch_size: 128, n_timesteps: 1e6}}"
        source = tmp_path / "ppo.yml"
        source.write_text(f"{env}: {settings}")
    converted = convert(str(source))
    (tmp_path / "ours.yaml").write_text(converted.yaml)
    assert make_config(file=tmp_path / "ours.yaml") == converted.config


NO_LAYER = "log_std_init = -2 with use_sde: no layer gives the number of features n; set log_std_init to -2 + ½ ln n"
ADAM = {"weight_decay": 0.1, "eps": 1e-6, "b1": 0.8, "b2": 0.99}
BETAS = "optimizer_class=th.optim.AdamW, optimizer_kwargs=dict(weight_decay=0.1, eps=1e-6, betas=(0.8, 0.99), amsgrad=True)"
SEVERAL = {"towers": "shared", "hidden_sizes": (), "head_sizes": (32,), "critic_head_sizes": (16,)}


SCREEN = "- AtariWrapper: {clip_reward: false, frame_skip: 1, noop_max: 0, screen_size: 64, terminal_on_life_loss: true}"
NORMALIZE = "\"dict(norm_obs=True, norm_reward=False, norm_obs_keys=['a'], gamma=0.9, clip_reward=5.0, clip_obs=5.0)\""


@pytest.mark.parametrize(
    ("policy", "arguments", "expected", "missing"),
    [
        # The initial noise of gSDE is the one of Stable-Baselines3.
        ("Mlp+sde", "log_std_init=-2, net_arch=[dict(pi=[32, 16], vf=[8])]", {"log_std_init": -2 + math.log(16) / 2}, []),
        ("Cnn+sde", "log_std_init=-2", {"log_std_init": -2 + math.log(512) / 2}, []),
        ("MlpLstm+sde", "log_std_init=-2, net_arch=[], lstm_hidden_size=128", {"log_std_init": -2 + math.log(128) / 2}, []),
        ("Mlp+sde", "log_std_init=-2, net_arch=[]", {"log_std_init": -2}, [NO_LAYER]),
        ("Mlp+sde", "", {"log_std_init": 2}, ["log_std_init = 0 with use_sde: the equivalent is 2.0794, but proximo allows at most 2"]),
        # The optimizer has the numbers of PyTorch.
        ("Mlp", BETAS, {"optimizer": "adamw", **{f"optimizer_settings.{name}": x for name, x in ADAM.items()}},
         ["optimizer_kwargs amsgrad = true: nothing in proximo corresponds to it", "AdamW: it decays every parameter"]),
        ("Mlp", "optimizer_kwargs=dict(weight_decay=0.1)", {"optimizer_settings.weight_decay": 0}, ["optimizer_kwargs weight_decay = 0.1"]),
        ("Mlp", "optimizer_class=th.optim.RMSprop", {"optimizer": "adam"}, ["optimizer_class = RMSprop"]),
        # Layers follow the entries of an observation, and defaults that are written out change no tower.
        ("MultiInput", "net_arch=dict(pi=[32], vf=[16])", SEVERAL, ["the CNN of MultiInputPolicy: it has 256 features"]),
        ("Mlp", "share_features_extractor=True", {"towers": "separate"}, []),
        ("MlpLstm", "shared_lstm=True, enable_critic_lstm=False", {"towers": "shared"}, []),
        ("CnnLstm", "enable_critic_lstm=True", {"towers": "shared"},
         ["enable_critic_lstm = true: policy and value share the convolutions and have an LSTM each"]),
        ("CnnLstm", "share_features_extractor=False", {"towers": "separate"}, []),
        # Wrappers
        ("Mlp", f"env_wrapper:\n    {SCREEN}", {"preprocessing": "atari", "clip_reward": "none", "life_loss": True},
         [f"env_wrapper AtariWrapper {name}:" for name in ("frame_skip = 1", "noop_max = 0", "screen_size = 64")]),
        ("Mlp", "env_wrapper:\n    - AtariWrapper: {frame_skip: 4, noop_max: 30, action_repeat_probability: 0.0}", {"preprocessing": "atari"}, []),
        ("Mlp", f"normalize: {NORMALIZE}", {"normalize_observation": True, "normalize_reward": False, "clip_observation": 5.0},
         [f"normalize {name}:" for name in ("norm_obs_keys = a", "gamma = 0.9", "clip_reward = 5")]),
        ("Mlp", "normalize: {norm_obs: false, clip_obs: 5.0, gamma: 0.99, epsilon: 1.0e-8}", {"clip_observation": 0.0}, []),
    ],
)  # fmt: skip
def test_arguments_of_policies_and_wrappers_are_converted_or_reported(tmp_path, policy, arguments, expected, missing):
    policy, _, sde = policy.partition("+")
    text = arguments if ":" in arguments else f'use_sde: {bool(sde)}\n  policy_kwargs: "dict({arguments})"'
    (tmp_path / "ppo.yml").write_text(f"Pendulum-v1:\n  policy: {policy}Policy\n  {text}\n")
    converted = convert(str(tmp_path / "ppo.yml"))
    found = given(converted.config, **expected)
    assert found == (pytest.approx(expected, abs=1e-4) if sde else expected)
    report = [line.strip() for line in converted.report.partition("Not converted:")[2].splitlines()[1:]]
    assert [start for line, start in zip(report, missing, strict=True) if not line.startswith(start)] == []


@pytest.mark.parametrize(
    ("source", "env", "message"),
    [
        ("ppo.yml", "", r"names 3 environments: choose one with --env, as in `proximo convert .*ppo.yml --env CartPole-v1`"),
        ("no.yml", "", r"Cannot read .*no.yml \(No such file"),
        ("python dqn.py --lr 3", "", r"dqn.py: expected one program that proximo knows: ppo.py, .*, main.py, .*, baselines.run"),
        ("python train.py --algo ppo", "", r"train.py: PPO-JAX has no flag --algo; expected a file of "),
        ("python -m baselines.run --num_env=0", "", r"num_envs = 0: expected at least 1"),
        ("zero.yml", "", r"batch_size = 0 is no value that RL Zoo accepts"),
        ("python ppo.py CartPole-v1", "", r"Unexpected 'CartPole-v1' in the command line: expected flags"),
        ("ours.yaml", "", r"has settings of proximo already"),
        ("python -m baselines.run --alg=deepq", "", r"alg = deepq: proximo has one algorithm, PPO"),
        ("other.yaml", "", r"expected a file of hyperparameters of RL Zoo"),
        ("flat.yaml", "", r"names no environments: choose one with --env, as in `proximo convert .*flat.yaml --env CartPole-v1`"),
        ("flat.yaml", "CartPole-v1", r"policy_kwargs = 'dict\(a=f\(\)\)': expected names with values"),
        ("wrong.yaml", "", r"wrong.yaml: environment type 'Nonsense': expected one of PocMemoryEnv, "),
    ],
)
def test_what_cannot_be_read_is_answered(files, tmp_path, source, env, message):
    contents = {
        "ours.yaml": "env: {id: CartPole-v1}", "other.yaml": "a: 1", "flat.yaml": "n_steps: 32\npolicy_kwargs: dict(a=f())",
        "zero.yml": "CartPole-v1: {n_envs: 8, policy: MlpPolicy, batch_size: 0}",
        "wrong.yaml": TRUNCATED.replace("CartPoleMasked", "Nonsense"),
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    path = tmp_path / source
    with pytest.raises(ConfigError, match=message):
        convert(source if " " in source else str(path), env)


def test_a_folder_or_a_large_file_is_answered(tmp_path):
    (tmp_path / "large.yaml").write_bytes(b"#" * 1_000_000)
    with pytest.raises(ConfigError, match=r"Cannot read .* \(Is a directory\)"):
        convert(str(tmp_path))
    with pytest.raises(ConfigError, match="it has 1,000,000 characters, expected at most 200,000"):
        convert(str(tmp_path / "large.yaml"))
    with pytest.raises(ConfigError, match="expected at most 200,000"):
        make_config(file=tmp_path / "large.yaml")


def test_expressions_are_read_without_running_them():
    assert expression("dict(a=[1, -2.5], b={'c': nn.ReLU}, d=None)") == {"a": [1, -2.5], "b": {"c": "ReLU"}, "d": None}
    for code in ("__import__('os').getcwd()", "dict(a=1 + x)", "f()"):
        with pytest.raises(ValueError, match="malformed"):
            expression(code)
