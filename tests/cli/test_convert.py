"""``proximo convert``: settings on standard output or in a file, the report on standard error."""

import yaml

from proximo.cli import main


def test_convert_writes_a_file_that_train_accepts(tmp_path, capsys):
    out = tmp_path / "ours.yaml"
    assert main(["convert", "python ppo.py --env-id CartPole-v1 --capture_video", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "CartPole-v1, from CleanRL (ppo.py):" in printed.err
    assert "capture_video = true: the number of environment steps between two videos" in printed.err
    assert main(["train", "--config", str(out), "--show-config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["ppo"]["num_steps"], shown["ppo"]["learning_rate"]) == (128, "linear(0.00025, 0)")
