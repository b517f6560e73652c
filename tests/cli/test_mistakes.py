"""Every mistake in a command is one sentence on stderr, before anything is computed or written."""

import shlex

import pytest

from proximo.cli import VERBS, main
from proximo.training.backends import JaxBackend

MISTAKES = {
    "trian": "Unknown command 'trian' (did you mean 'train'?): expected one of {verbs}.",
    "enjoy": "Unknown command 'enjoy' (use `proximo watch`): expected one of {verbs}.",
    "'x\x1b]0;title\x07'": "Unknown command 'x\\x1b]0;title\\x07': expected one of {verbs}.",
    "--frobnicate": "Unrecognized arguments: --frobnicate; see `proximo --help`.",
    "eval x --episodes many": "Argument --episodes: invalid int value: 'many'; see `proximo eval --help`.",
    "eval r --episodes-file nowhere/lines.jsonl": "expected a file in a folder that exists.",
    "eval r --greedy --stochastic": "not allowed with argument --greedy",
    "eval last --n-episodes 3": "Unrecognized arguments: --n-episodes 3; see `proximo eval --help`. --n-episodes: use --episodes.",
    "watch --model=models/run.nn": "The following arguments are required: RUN; see `proximo watch --help`. --model: give the run without a flag, "
    "as a path, a name or last, such as last@best.",
    "watch .": "No run '.': looked for one at that path",
    "watch proximo:PocMemory": "`proximo watch proximo:PocMemory --agent random` shows it untrained",
    "watch CartPol-v1 --agent random": "'CartPol-v1' is neither an environment nor a run in ",
    "watch gym_toys:DrawnWalk --agent random --fps 0": "fps = 0.0: expected a number that is more than 0, and 240 at most.",
    "watch gym_toys:DrawnWalk --agent random --out x.avi": "x.avi: expected a name that ends in .mp4 or .gif.",
    "watch r --out x.mp4 --gif": "is one file, but .gif was requested",
    "watch r --stochastic --agent random": "--stochastic has no effect with --agent random",
    "train": "No environment given: name one, as in `proximo train CartPole-v1`",
    "train gymnax:CartPole-v1 --num-workers 2": "num_workers is for Gymnasium environments: it has no effect on gymnax:CartPole-v1, a JAX environment",
    "train Cartpol": "Unknown environment 'Cartpol' (did you mean 'CartPole-v1'?)",
    "train proximo:PocMemry --show-config": "proximo has no environment 'PocMemry' (did you mean 'PocMemory'?)",
    "train toys:RandomEnds two": "Unexpected 'two': expected one environment, then flags",
    "train toys:RandomEnds --num-envs": "Argument --num-envs: expected one argument",
    "train toys:RandomEnds --memory-settings.window 8": "the entry window of memory_settings, as in --memory-settings window=VALUE",
    "train toys:RandomEnds --lamda 1 --lr=1": "gae_lambda here. Unknown setting 'lr': lr is called learning_rate here",
    "train toys:RandomEnds --env-settings size=3": "env_settings: toys:RandomEnds has no parameter 'size'",
    "train odd_envs:Sized --env-settings sise=3": "has no parameter 'sise' (did you mean 'size'?)",
    "train odd_envs:SwappedReset": "SwappedReset.reset returns an observation {{'time': 'int32[]'}}: its observation space is Box(3,) float32",
    "train odd_envs:NoStep": "'odd_envs:NoStep' is a class without step: expected the class of a JAX or Gymnasium environment",
    "train odd_envs:OneValueReset": "odd_envs:OneValueReset.reset returns one value: expected (state, observation)",
    "train odd_envs:OddSpace": "is not supported: expected Box, Discrete, MultiDiscrete",
    "train broken_envs:Stranger": "Making broken_envs:Stranger raised TypeError: Stranger.reset() got an unexpected keyword argument",
    "train CartPole-v1 --config theirs.yaml": "`proximo convert theirs.yaml`",
    "train CartPole-v1 --num-processes 2": "--num-processes has no effect without --distributed: add it.",
    "train --resume g --smoke": "omit --config, --no-preset, --show-config and --smoke.",
    "check proximo:PocMemory --env-settings max_step=3": "has no parameter 'max_step' (did you mean 'max_steps'?)",
    "tune": "No environment given: name one, as in `proximo train CartPole-v1`",
    "tune toys:Forbidden --runs-dir x": "`proximo tune` does not accept --runs-dir, because trials write no runs; see `proximo tune --help`.",
    "tune toys:Forbidden --space none.yaml": "Cannot read --space none.yaml (No such file or directory).",
    "tune toys:Forbidden --pruner best": "Argument --pruner: invalid choice: 'best'",
    "tune toys:Forbidden --resume last": "only --trials and --seconds can change, not env.",
    "tune --resume last --gamma 0.9 --seeds 3": "only --trials and --seconds can change, not --seeds, --gamma.",
    "tune --resume nothing": "No study 'nothing': looked for one at that path",
    "tune --resume last": "There is no study in ",
    "convert theirs.yaml --out ./theirs.yaml": "--out theirs.yaml is the file that is converted: choose another name.",
    "export r --batch 0": "--batch 0: expected at least 1.",
    "export r --format numpy": "--format: an export has one format, ONNX, which its proximo_policy.py runs by ONNX Runtime; leave it out.",
    "export g": "contains several seeds (seed-0, seed-1): name one of them",
    "push g published": "contains several seeds (seed-0, seed-1): name one of them",
    "report": "The following arguments are required: RUN; see `proximo report --help`.",
    "report gg": "No run 'gg': looked for one at that path, and for that name among the 1 runs in runs (did you mean 'g'?). The newest (last) is "
    "toys-RandomEnds/g.",
    "launch -n 0 -- train x": "-n 0: expected 1 or more processes.",
    "launch -n 2 -- eval x": "eval cannot be launched: expected train, as in `proximo launch -n 2 -- train brax:ant --num-envs 4096`.",
}  # fmt: skip


@pytest.mark.parametrize("words", MISTAKES)
def test_mistake_is_one_sentence_before_anything_is_computed_or_written(tmp_path, monkeypatch, capsys, words):
    for name in ("start", "prepare"):
        monkeypatch.setattr(JaxBackend, name, lambda *_: pytest.fail("computed before the mistake was found"))
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        (folder := tmp_path / "runs" / "toys-RandomEnds" / "g" / f"seed-{seed}").mkdir(parents=True)
        (folder / "config.yaml").write_text("{}")
    (tmp_path / "theirs.yaml").write_text("CartPole-v1: {n_timesteps: 100000, policy: MlpPolicy}\n")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert main(shlex.split(words)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("proximo: ")) == ("", 1, True)
    sentence = MISTAKES[words].format(verbs=", ".join(VERBS))
    assert err.endswith(f"{sentence}\n") if sentence.endswith(".") else sentence in err
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before
