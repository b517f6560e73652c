"""``proximo train``: what stands on stdout and on stderr, and every mistake in one sentence before anything is compiled."""

import json
from pathlib import Path

import pytest

from commands import BATCH, train_words
from proximo.cli import main, train
from proximo.config import LEAVES
from proximo.storage import run_directory
from proximo.training.seed_run import Result

ENV = "toys:RandomEnds"


def test_json_of_several_seeds_has_each_of_them():
    def result(seed, mean, together=1):
        return Result(run_dir=Path(f"g/seed-{seed}"), steps=10, seconds=2.0, compile_seconds=1.0, steps_per_second=5.0,
                      evaluation_seconds=0.5, return_mean=mean, seeds_together=together)  # fmt: skip

    summary = train.summary([result(0, 1.0), result(1, 3.0), result(2, None)])
    assert (summary["run_dir"], summary["return_mean"], summary["steps_per_second"]) == ("g", 2.0, 5.0)
    assert train.summary([result(seed, 1.0, together=3) for seed in range(3)])["steps_per_second"] == 15.0
    assert [seed["run_dir"] for seed in summary["seeds"]] == ["g/seed-0", "g/seed-1", "g/seed-2"]


def test_smoke_is_three_updates_with_all_parts_and_json_one_object_of_seven_results(tmp_path, capsys):
    assert main([*train_words(tmp_path, "r"), "--smoke", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert tuple(result) == train.RESULTS
    assert out.count("\n") == 1
    assert (result["run_dir"], result["steps"]) == (str(tmp_path / "toys-RandomEnds" / "r"), 3 * BATCH)
    assert result["return_mean"] is not None
    config = run_directory.read_config(Path(result["run_dir"]))
    assert (config.run.eval_episodes, config.run.eval_every, config.run.eval_max_steps) == (2, 3 * BATCH, 1000)
    assert "environment  toys:RandomEnds" in err
    assert "mean return" in err
    assert main([*train_words(tmp_path, "q"), "--smoke", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--num-envs", "4"], {"num_envs": "4"}), (["--num_envs=4"], {"num_envs": "4"}), (["--log-std-init", "-1.5"], {"log_std_init": "-1.5"}),
        (["--normalize-reward"], {"normalize_reward": "true"}), (["--no-tensorboard"], {"tensorboard": "false"}),
        (["--hidden-sizes", "8,8", "--env-settings", "a=1,b=2"], {"hidden_sizes": "8,8", "env_settings": "a=1,b=2"}),
        (["--eval-env-settings", "a=1", "--eval_env_settings", "b=3"], {"eval_env_settings": "a=1,b=3"}),
    ],
)  # fmt: skip
def test_every_form_of_a_flag_is_read(words, settings):
    assert train.make_parser().parse_args([ENV, *words]).settings == settings


def test_help_shows_common_settings_and_help_all_every_one_with_its_explanation(capsys):
    def shown(flag):
        with pytest.raises(SystemExit):
            main(["train", flag])
        return " ".join(capsys.readouterr().out.split())

    short, whole = shown("--help"), shown("--help-all")
    assert "All settings: --help-all." in short
    assert "(default 1000000)" in short
    for name, leaf in LEAVES.items():
        flag = f"--{name.replace('_', '-')} "
        assert (flag in short) == (name in train.COMMON)
        assert name == "id" or (flag in whole and " ".join(leaf.help.split()) in whole)
