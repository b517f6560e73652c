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


def test_convert_does_not_replace_its_source(tmp_path, capsys):
    path = tmp_path / "ppo.yml"
    path.write_text(text := "CartPole-v1:\n  n_timesteps: !!float 1e5\n  policy: 'MlpPolicy'\n")
    assert main(["convert", str(path), "--out", str(tmp_path / "." / "ppo.yml")]) == 2
    assert capsys.readouterr().err.endswith("ppo.yml is the file that is converted: choose another name.\n")
    assert path.read_text() == text


def test_a_file_of_another_library_names_convert(tmp_path, capsys):
    path = tmp_path / "theirs.yaml"
    path.write_text("recurrence: {layer_type: gru}\n")
    assert main(["train", "CartPole-v1", "--config", str(path)]) == 2
    assert f"`proximo convert {path}`" in capsys.readouterr().err
