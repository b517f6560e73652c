"""A process that ends at any moment of a save leaves the old or the new state, and never a mixture."""

import builtins
import contextlib
import io
import itertools
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import proximo
from commands import BATCH, SMALL
from proximo.callbacks import BestModel
from proximo.config import Config, override
from proximo.errors import CheckpointError
from proximo.evaluation.policy import load_policy
from proximo.processes.peers import ALONE
from proximo.storage import checkpoint, run_directory, run_lookup
from proximo.storage.checkpoint import META, STATE
from proximo.tracking.reporter import Reporter
from proximo.tracking.run_trackers import read_rows
from proximo.training import resuming
from proximo.training.seed_run import SeedRun

from helpers import bits

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a prepared process is copied for each crash"),
    pytest.mark.filterwarnings("ignore:.*fork:"),  # the copies only write files
]
DIED = 7
OPERATIONS = ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink", "remove", "rmdir", "symlink", "truncate")


class File:
    """A file whose writes are two operations each."""

    def __init__(self, file, done):
        self.file, self.done = file, done

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, data):
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            self.file.write(part)
            self.file.flush()
            self.done()
        return len(data)


def die_after(count: int) -> None:
    """End this process after its ``count``-th operation on files."""
    left = iter(range(count - 1, -1, -1))

    def done() -> None:
        if next(left) == 0:
            os._exit(DIED)

    def counted(real: Callable, convert: Callable = lambda result: result) -> Callable:
        def call(*args, **options):
            result = convert(real(*args, **options))
            done()
            return result

        return call

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))
    io.open = builtins.open = counted(io.open, lambda file: File(file, done))


def crashes(tmp_path, before, save: Callable, every: int) -> Iterator[Path]:
    """For each ``every``-th operation of ``save(folder)``: a copy of the folder ``before``, if any, in which a process has ended
    after it. The last one has the finished save."""
    for count in itertools.count(1, every):
        folder = tmp_path / "crashed"
        shutil.rmtree(folder, ignore_errors=True)
        if before is not None:
            shutil.copytree(before, folder, symlinks=True)
        if (pid := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                try:
                    die_after(count)
                    save(folder)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
            os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, DIED), f"at operation {count}"
        yield folder
        if code == 0:
            assert count > 20, "the operations were not counted"
            return


@pytest.fixture(scope="module")
def agents():
    """Agents by name. No shape shows the other activation of the second one."""
    settings = {name: value for name, value in SMALL.items() if name not in ("tensorboard", "total_steps")}

    def prepared(seed, updates, **changed):
        agent = proximo.PPO("toys:RandomEnds", preset=False, seed=seed, **{**settings, **changed})
        step, files = updates * BATCH, {}
        history = [{"step": BATCH * i, "loss": seed + i / 7} for i in range(1, updates + 1)]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(run_directory, "write_run", lambda folder, step, made: files.update(made))
            run_directory.save_run(None, agent.config, step, agent._current_state(), None, history)
        save = partial(run_directory.write_run, step=step, files=files)
        return SimpleNamespace(agent=agent, step=step, history=history, files=files, save=save)

    return {
        "old": prepared(1, 5),
        "other activation": prepared(2, 5, activation="relu"),
        "other shape": prepared(3, 3, hidden_sizes=[16]),
        "later": prepared(4, 7),
    }


@pytest.fixture(autouse=True)
def faster(monkeypatch):
    """Each crash reads one of a few settings, and the processes do not wait for the disk."""
    monkeypatch.setattr(run_directory, "read_yaml", cache(run_directory.read_yaml))
    monkeypatch.setattr(os, "fsync", lambda file: None)


def changes(found: list) -> list:
    """``found`` without repetitions."""
    return [key for key, _ in itertools.groupby(found)]


def found(folder, agents) -> str:
    """The name of the agent in ``folder``, whose settings, state and history must all be its."""
    config = run_directory.read_config(folder)
    saved, warnings = run_lookup.find_checkpoint(folder, "last", config)
    (name,) = [name for name, agent in agents.items() if agent.files[STATE] == saved.files[STATE]]
    agent = agents[name].agent
    rows = saved.path / "metrics.jsonl"
    history = read_rows(rows if rows.exists() else folder / "metrics.jsonl")
    assert warnings == []
    assert (config.network, config.env, config.run.seed) == (agent.config.network, agent.config.env, agent.config.run.seed)
    assert history == agents[name].history
    return name


@pytest.mark.parametrize(("before", "after"), [(None, "old"), ("old", "other activation"), ("old", "other shape")])
def test_killed_save_of_an_agent_leaves_the_old_or_the_new_one(tmp_path, agents, before, after):
    if before is not None:
        agents[before].save(tmp_path / "before")
    names = []
    every = 1 if after == "other shape" else 2
    for folder in crashes(tmp_path, None if before is None else tmp_path / "before", agents[after].save, every):
        if before is None and not (folder / "config.yaml").exists():
            with pytest.raises(CheckpointError, match=r"No run"):
                run_lookup.find_single_run(str(folder), tmp_path)
            names.append("nothing")
        else:
            names.append(found(folder, agents))
            if names.count(names[-1]) == 10:
                expected, loaded = agents[names[-1]], proximo.load(folder)
                assert (loaded.step, loaded.history) == (expected.step, expected.history)
                for policy in (loaded.policy, load_policy(folder)):
                    assert bits(policy.actor_critic) == bits(expected.agent.policy.actor_critic)
        if len(names) % 10:
            continue
        # The next save is as good as any, and leaves nothing else.
        agents["later"].save(folder)
        assert found(folder, agents) == "later"
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
        kept = {f"checkpoints/{7 * BATCH}/{name}" for name in (STATE, META, "config.yaml")}
        hidden = {name for name in files if name.split("/")[-1].startswith(".")}
        assert files - hidden == kept | {"command.txt", "config.yaml", "metrics.jsonl", "system.json"}
        assert not any("checkpoints" in name for name in hidden)
    assert changes(names) == [before or "nothing", after], "one moment separates both"


def test_killed_save_of_the_best_model_leaves_each_seed_with_the_old_or_the_new_one(tmp_path, agents):
    def save(seeds):
        def to(folder):
            for seed, name in enumerate(seeds):
                write = agents[name].save
                BestModel(folder).on_evaluation(SimpleNamespace(is_best=True, save=write, seed=seed, is_one_of_several=True))

        return to

    before, after = ["old", "other activation"], ["later", "old"]
    save(before)(tmp_path / "before")
    states = []
    for folder in crashes(tmp_path, tmp_path / "before", save(after), every=12):
        states.append([found(folder / f"seed-{seed}", agents) for seed in range(2)])
    assert changes(states) == [before, [after[0], before[1]], after]


CONFIG = override(Config(), {"id": "toys:RandomEnds", "keep_checkpoints": 2, "tensorboard": False, "num_envs": 1, "num_steps": 1})


@pytest.mark.parametrize(("step", "left"), [(3, [1, 2, 3]), (2, [1, 2])])
def test_killed_save_of_a_training_leaves_the_old_or_the_new_checkpoint(tmp_path, step, left):
    """Of two seeds, also if a checkpoint of the same step is replaced, and with another best checkpoint."""

    def write(folder, step, value, best):
        for seed in range(2):
            run_dir = folder / f"seed-{seed}"
            seed_run = SeedRun(CONFIG, run_dir)
            seed_run.open(print)
            seed_run.evaluation_steps, seed_run.best = value, {"step": best, "return_mean": 1.0}
            seed_run.checkpoint_writer(step, {"x": np.full(9, value)})()

    for seed in range(2):
        (tmp_path / "before").mkdir(exist_ok=True)
        run_directory.write_start_files(tmp_path / "before" / f"seed-{seed}", CONFIG, "proximo train", {})
    for i in (1, 2):
        write(tmp_path / "before", i, 10 * i, best=1)
    values = []
    for folder in crashes(tmp_path, tmp_path / "before", partial(write, step=step, value=99, best=step), every=2):
        run_dirs = [folder / f"seed-{seed}" for seed in range(2)]
        values.append([])
        for run_dir in run_dirs:
            saved, warnings = run_lookup.find_checkpoint(run_dir, "last", run_directory.read_config(run_dir))
            value = saved.info["evaluation_steps"]
            assert (saved.restore({"x": np.zeros(9, int)})["x"] == value).all()
            assert (warnings, {value, saved.step} in ({20, 2}, {99, step})) == ([], True)
            assert checkpoint.best_step(run_dir) in ({1} if value == 20 else {1, step})
            assert set(checkpoint.steps(run_dir / "checkpoints")) <= set(left)
            values[-1].append(value)
        starts = resuming.starts(run_dirs, [CONFIG] * 2, "last", True, Reporter(), ALONE)
        assert len({start.step for start in starts}) == 1, "seeds of one program continue from one step"
    assert changes(values) == [[20, 20], [99, 20], [99, 99]]
