"""``proximo tune``: what stands on stdout and on stderr, and every mistake in one sentence before anything is trained."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from commands import ended_at_once, flags, pressed_twice
from proximo.cli import main
from proximo.settings import make_config
from proximo.storage.run_directory import locked
from proximo.training.backends import JaxBackend
from proximo.training.interrupts import AbandonedError
from proximo.tuning import study as study_module
from proximo.tuning.space import read_space

ENV = "toys:Forbidden"
SMALL = {
    "num_envs": 8, "num_steps": 16, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": 8, "towers": "shared",
    "total_steps": 512, "eval_episodes": 64,
}  # fmt: skip
"""The program of tests/tuning/studies.py, so that it is compiled once."""
SPACE = "learning_rate: {low: 1e-4, high: 1e-1, log: true}\nnum_steps: [16, 32]\ngamma: [0.9, 0.99]\n"


def words(folder, *more, **settings):
    """A study of four trials, three of them together; ``num_steps`` is a flag and so leaves the space."""
    (folder / "space.yaml").write_text(SPACE)
    given = {"trials": 4, "seeds": 1, "together": 3, "evaluations": 1, "finalists": 1, **SMALL, **settings}
    more = [*more, *flags(space=folder / "space.yaml", tune_dir=folder / "tune", name="s", **given)]
    return ["tune", ENV, "--no-preset", *more]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a study that is over, and what was printed as JSON."""
    folder = tmp_path_factory.mktemp("tune")
    with pytest.MonkeyPatch.context() as patch:
        out = []
        patch.setattr("builtins.print", lambda *text, **_: out.append(text))
        assert main(words(folder, "--json")) == 0
    return folder / "tune" / "toys-Forbidden" / "s", json.loads(out[-1][0])


def test_study_leaves_its_folder_and_one_json_object(done):
    folder, found = done
    assert found["study"] == str(folder)
    assert found["trials"] == {"done": 4, "pruned": 0, "failed": 0}
    assert found["base"]["trial"] == 0
    assert set(found["best"]["settings"]) == {"learning_rate", "gamma"}, "num_steps was given as a flag"
    assert found["command"] == f"proximo train --config {folder}/preset.yaml"
    files = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert files == {"command.txt", "journal.log", "trials.csv", "preset.yaml"}
    assert not list(folder.parents[2].glob("runs*"))


def test_study_resumes_with_more_trials_and_prints_the_next_command(done, tmp_path, capsys):
    shutil.copytree(done[0], tmp_path / "tune" / "e" / "s")
    assert main(["tune", "--resume", "last", "--trials", "6", "--tune-dir", str(tmp_path / "tune")]) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in ("6, 4 of them finished", "6 trials: 6 done", "learning_rate"))
    assert out.endswith(f"Next:  proximo train --config {tmp_path}/tune/e/s/preset.yaml\n")


def test_ctrl_c_keeps_finished_trials_and_prints_the_resume_command(tmp_path, capsys, monkeypatch):
    train, batches = study_module.Study._train, []

    def interrupted(self, width):
        batches.append(width)
        if len(batches) == 2:
            signal.raise_signal(signal.SIGINT)
        train(self, width)

    monkeypatch.setattr(study_module.Study, "_train", interrupted)
    assert main(words(tmp_path)) == 130
    out = capsys.readouterr().out
    folder = tmp_path / "tune" / "toys-Forbidden" / "s"
    assert f"Stopped; the 3 finished trials are kept. Go on with: proximo tune --resume {folder}" in out
    assert make_config(file=folder / "preset.yaml").env.id == ENV
    monkeypatch.undo()
    assert main(["tune", "--resume", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == {"done": 4, "pruned": 0, "failed": 0}


def abandoned(*_):
    raise AbandonedError


@pytest.mark.parametrize(
    ("owner", "name", "replacement", "code", "start"),
    [
        (JaxBackend, "start", pressed_twice, "130", "Stopped at once; the finished trials are kept."),
        (study_module.Study, "_train", abandoned, "128", "Stopped; the 0 finished trials are kept."),
    ],
)
def test_json_is_an_object_even_if_the_process_is_left(tmp_path, capfd, monkeypatch, owner, name, replacement, code, start):
    monkeypatch.setattr("os._exit", ended_at_once)
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(SystemExit, match=code):
        main(words(tmp_path, "--json"))
    [(key, said)] = json.loads(capfd.readouterr().out).items()
    assert key == "error"
    assert said.startswith(start)
    assert said.endswith(f"Go on with: proximo tune --resume {tmp_path / 'tune' / 'toys-Forbidden' / 's'}")


@pytest.fixture
def nothing_trains(monkeypatch):
    for name in ("start", "prepare"):
        monkeypatch.setattr(JaxBackend, name, lambda *_: pytest.fail("computed before the mistake was found"))


def test_study_that_cannot_begin_or_continue_is_reported_in_one_sentence(done, tmp_path, nothing_trains, capsys):
    def said(*arguments):
        assert main(["tune", *map(str, arguments)]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    folder = done[0]
    again = words(folder.parents[2])[1:]
    assert f"{folder} exists already: continue it with `--resume {folder}`, or choose another --name." in said(*again)
    with locked(folder):
        assert "is in use by process" in said("--resume", folder)
    damaged = shutil.copytree(folder, tmp_path / "s") / "journal.log"
    lines = damaged.read_text().splitlines(keepends=True)
    damaged.write_text("".join([*lines[:3], "{torn\n", *lines[3:]]))
    assert "journal.log is damaged (" in said("--resume", damaged.parent)


def test_show_space_prints_a_valid_search_space(nothing_trains, tmp_path, capsys):
    words = ["tune", "gymnax:CartPole-v1", "--show-space", "--tune-dir", str(tmp_path / "t")]
    assert main([*words, "--gamma", "0.9", "--seed", "3", "--quiet"]) == 0
    shown, warned = capsys.readouterr()
    assert "seed = 3: the search uses seeds that are meant for reports (0 … 9): report its result on other seeds." in warned
    assert "gamma" not in yaml.safe_load(shown)
    (tmp_path / "s.yaml").write_text(shown)
    assert main([*words, "--space", str(tmp_path / "s.yaml")]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(shown)
    assert not (tmp_path / "t").exists()


def test_python_of_the_docs_runs_and_its_space_is_read(tmp_path, monkeypatch, capsys):
    """With trials that reach their number, instead of trainings."""

    class Counted:
        full_seconds = 0.0

        def __init__(self, configs, *_):
            self.live = set(range(len(configs)))

        def train(self, evaluations):
            yield 1.0, 1, {place: [float(place)] for place in self.live}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study_module, "Batch", Counted)
    page = (Path(__file__).parents[2] / "docs" / "tune.md").read_text()
    (declared,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    base = make_config("CartPole-v1", {}, preset=False)
    assert len(read_space(yaml.safe_load(declared), base, "docs/tune.md", in_jax=False)) == 7
    block = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    exec(compile(block.replace("gymnax:CartPole-v1", ENV), "docs/tune.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search("'learning_rate': .*preset.yaml", out)
