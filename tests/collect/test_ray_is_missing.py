"""``--actors`` where Ray is not installed."""

import sys

from proximo.cli import main


def test_actors_without_ray_are_answered_before_a_run_directory_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    arguments = ["train", "CartPole-v1", "--actors", "2", "--total-steps", "2048", "--runs-dir", str(tmp_path)]
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith(
        "proximo: actors (Ray) needs a library that is not installed: pip install 'proximo[ray]'.\n"
    )
    assert list(tmp_path.iterdir()) == []
