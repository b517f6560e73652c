"""A policy goes to a folder or to the Hub and comes back as it was; nothing else comes with it."""

import hashlib
import importlib.util
import json
import os
import shlex
import shutil
from pathlib import Path
from unittest import mock

import huggingface_hub
import imageio_ffmpeg
import pytest
import yaml
from huggingface_hub.utils import filter_repo_objects

import proximo
from commands import BATCH, GRU, copied, final_state, rows, trained
from proximo import publish
from proximo.cli import main
from proximo.config import LEAVES
from proximo.errors import CheckpointError, ConfigError, EnvError, RunDirectoryError
from proximo.publish import hub, pull, push
from proximo.storage import checkpoint, run_directory, run_lookup
from proximo.storage.system_info import EXACT_VARIABLES

from helpers import bits

MIDDLE = 10 * BATCH


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run with memory, two of its checkpoints kept; trackers and folders as one machine has them."""
    folder = tmp_path_factory.mktemp("runs")
    return trained(
        folder, "r", "proximo:PocMemory", **GRU, total_steps=2 * MIDDLE, checkpoint_every=MIDDLE, keep_checkpoints=9, track="csv"
    )


@pytest.fixture(scope="module")
def published(run_dir, tmp_path_factory):
    """What ``push`` has returned, and the folder."""
    folder = tmp_path_factory.mktemp("published") / "poc"
    return push(f"{run_dir}@{MIDDLE}", folder, episodes=6), folder


@pytest.fixture
def folder(published, tmp_path):
    """A copy of the folder that a test may change."""
    return Path(shutil.copytree(published[1], tmp_path / "ppo-x"))


def test_pulled_policy_acts_like_the_published_one_and_resumes_to_the_same_bits(published, run_dir, tmp_path):
    pulled = pull(published[1], runs_dir=str(tmp_path))
    assert pulled == tmp_path / "proximo-PocMemory" / "r"
    ours, theirs = proximo.load_policy(f"{run_dir}@{MIDDLE}"), proximo.load_policy(pulled)
    assert theirs.step == MIDDLE
    assert bits(theirs.actor_critic) == bits(ours.actor_critic)
    found = proximo.evaluate(theirs, 6).summary()
    assert found == published[0].evaluation["greedy"] | {"ci95": proximo.evaluate(ours, 6).summary()["ci95"]}
    assert [row["step"] for row in rows(pulled)][-1] == MIDDLE, "the curve ends where the policy does"
    proximo.resume(pulled)
    assert final_state(pulled) == final_state(run_dir)
    assert rows(pulled) == rows(run_dir)


def test_policy_only_has_the_policy_and_continues_with_a_new_optimizer(published, run_dir, tmp_path):
    small = push(f"{run_dir}@{MIDDLE}", tmp_path / "small", episodes=2, clip=False, policy_only=True)
    pulled = pull(small.place, runs_dir=str(tmp_path), name="small")
    full, policy = (proximo.load_policy(run) for run in (f"{run_dir}@{MIDDLE}", pulled))
    assert bits(policy.actor_critic) == bits(full.actor_critic)
    [kept] = (pulled / "checkpoints" / str(MIDDLE)).glob("state.*")
    assert kept.stat().st_size < 0.5 * (published[1] / "checkpoints" / str(MIDDLE) / kept.name).stat().st_size
    with pytest.warns(UserWarning, match="has only the policy: optimizer, environments and random keys start anew"):
        [result] = proximo.resume(pulled)
    assert result.steps == 2 * MIDDLE


def test_the_evaluation_the_clip_and_the_card_are_of_the_published_checkpoint(published, run_dir):
    said, folder = published
    assert json.loads((folder / "evaluation.json").read_text()) == said.evaluation
    assert said.evaluation["step"] == MIDDLE
    assert {how: said.evaluation[how]["episodes"] for how in ("greedy", "sampled")} == {"greedy": 6, "sampled": 6}
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(folder / "replay.mp4"))
    assert frames == proximo.evaluate(f"{run_dir}@{MIDDLE}", 6).length[0] + 1
    assert said.warnings == ()
    text, greedy = (folder / "README.md").read_text(), said.evaluation["greedy"]
    assert f"{greedy['ci95'][0]:,.2f} … {greedy['ci95'][1]:,.2f}" in text
    assert "proximo pull path/to/this/folder" in text
    settings = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert settings["network"] == {"hidden_sizes": [8], "memory": "gru", "memory_size": 8}
    assert "track" not in text
    # They contain nothing about the machine.
    for name in ("config.yaml", "system.json", "README.md", "proximo.json"):
        assert str(run_dir.parents[1]) not in (folder / name).read_text()
    assert yaml.safe_load((folder / "config.yaml").read_text())["run"]["track"] == "none"
    system, ours = (json.loads((path / "system.json").read_text()) for path in (folder, run_dir))
    assert set(system["environment"]) <= set(EXACT_VARIABLES)
    assert system["versions"] == ours["versions"]


def test_publishing_again_replaces_what_was_published_and_leaves_the_rest(published, run_dir, folder):
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("kept")
    for _ in range(2):
        push(f"{run_dir}@last", folder, episodes=2, clip=False)
        assert [path.name for path in (folder / "checkpoints").iterdir()] == [str(2 * MIDDLE)]
        (folder / "checkpoints" / str(2 * MIDDLE) / ".DS_Store").write_text("x")
    assert not (folder / "replay.mp4").exists()
    assert "<video" not in (folder / "README.md").read_text()
    assert (folder / ".git" / "config").read_text() == "kept"
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


def test_pulling_again_reuses_the_run_and_never_overwrites_another(published, run_dir, tmp_path):
    pulled = pull(published[1], runs_dir=str(tmp_path))
    assert pull(published[1], runs_dir=str(tmp_path)) == pulled
    other = push(str(run_dir), tmp_path / "other", episodes=2, clip=False)
    before = final_state(pulled)
    with pytest.raises(RunDirectoryError, match=r"already exists and is another run: choose another --name"):
        pull(other.place, runs_dir=str(tmp_path))
    assert final_state(pulled) == before
    assert pull(other.place, runs_dir=str(tmp_path), name="other").name == "other"
    with pytest.raises(ConfigError, match="expected a plain name"):
        pull(other.place, runs_dir=str(tmp_path), name="../up")
    newest, _ = run_lookup.find_run("last", tmp_path)
    assert newest.name == "other", "what came last, whenever it was trained"


def rewritten(folder, **changes):
    """``folder`` with another manifest; a value of None is left out."""
    manifest = {**json.loads((folder / "proximo.json").read_text()), **changes}
    (folder / "proximo.json").write_text(json.dumps({name: x for name, x in manifest.items() if x is not None}))


def listed(folder, name, data):
    """Add ``name`` with the hash of ``data`` to the manifest of ``folder``."""
    files = json.loads((folder / "proximo.json").read_text())["files"]
    rewritten(folder, files={**files, name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}})


STATE = f"checkpoints/{MIDDLE}/state.safetensors"
UNLISTED = ("../evil.py", "evil.py", "checkpoints/../evil.py", "checkpoints/1\n/meta.json", "README.md")


def linked(path):
    """Replace a file or folder by a link to it."""
    shutil.move(path, path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def manifest(**changes):
    return lambda folder: rewritten(folder, **changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / STATE).write_bytes(bytes((folder / STATE).stat().st_size)), f"is damaged: {STATE} has the sha256 .*, which differs"),
        (lambda folder: os.truncate(folder / STATE, 2**40), f"damaged: {STATE} has 1,099,511,627,776 bytes, expected [0-9,]+"),
        (lambda folder: ((folder / STATE).unlink(), os.mkfifo(folder / STATE)), f"{STATE} is a link or another special file"),
        (lambda folder: (folder / STATE).unlink(), rf"or damaged: cannot read {STATE} \(No such file"),
        (lambda folder: linked(folder / "README.md"), "README.md is a link or another special file: a published policy must contain only regular"),
        (lambda folder: linked(folder / "checkpoints"), "is a link or"),
        (lambda folder: os.truncate(folder / "proximo.json", 10**7 + 1), "proximo.json has 10,000,001 bytes, expected at most 10,000,000"),
        (manifest(format="other"), "has the format other, version 1: this proximo reads proximo-published, version 1"),
        (manifest(format_version=["x" * 10**6]), "has the format proximo-published, version .{60}…?"),
        (manifest(step=None), r"proximo.json is damaged \(KeyError: 'step'\)"),
        (manifest(files=[]), r"proximo.json is damaged \(TypeError"),
        (manifest(files={}), r"proximo.json is damaged \(KeyError"),
        (manifest(step=1e300), r"proximo.json is damaged \(ValueError"),
        (manifest(environment="x" * 400), "settings are for 'proximo:PocMemory', not for 'x{79}…"),
        (manifest(step=7), "has no checkpoint of step 7"),
        (manifest(name="r\x1b[31m"), r"name = 'r\\x1b\[31m': expected a plain name"),
        *((lambda folder, name=name: listed(folder, name, b"x"), "which is not a file of a published policy") for name in UNLISTED),
    ],
)  # fmt: skip
def test_folder_without_a_published_policy_raises_one_sentence(folder, tmp_path, change, message):
    change(folder)
    with pytest.raises((CheckpointError, ConfigError), match=message) as told:
        pull(folder, runs_dir=str(tmp_path / "runs"))
    assert "\n" not in str(told.value)
    assert not list(tmp_path.glob("runs/*/*"))


@pytest.mark.parametrize("change", ["bytes", "type", "key", "evaluation", "policy"])
def test_unreadable_state_is_refused_at_pull(folder, tmp_path, change):
    path = folder / "checkpoints" / str(MIDDLE)
    data, meta = (path / "state.safetensors").read_bytes(), json.loads((path / "meta.json").read_text())
    name = next(name for name in meta["leaves"] if name.startswith("learner.policy."))
    if change == "bytes":
        data = data[8:]
    elif change == "type":
        meta["leaves"][name]["dtype"] = "floaty"
    elif change == "key":
        meta["keys"] = dict.fromkeys(meta["keys"], "mersenne")
    elif change == "evaluation":
        meta["info"]["best"] = {"step": "x"}
    else:
        meta["leaves"] = {name: leaf for name, leaf in meta["leaves"].items() if not name.startswith("learner.policy.")}
    del meta["sha256"]  # the checksums are valid
    meta["files"] = {"state.safetensors": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}}
    for file, content in (("state.safetensors", data), ("meta.json", checkpoint.signed(meta))):
        (path / file).write_bytes(content)
        listed(folder, f"checkpoints/{MIDDLE}/{file}", content)
    with pytest.raises(CheckpointError, match=r"is damaged: state.safetensors does not match meta.json"):
        pull(folder, runs_dir=str(tmp_path / "runs"))
    assert not list(tmp_path.glob("runs/*/*"))


def test_edited_card_is_pulled_unlisted_files_are_not_and_proposed_commands_can_be_copied(folder, tmp_path, capsys):
    rewritten(folder, name="$(touch harm); [red]r")
    (folder / "toys.py").write_text("raise SystemExit")
    (folder / "README.md").write_text("by hand")
    assert main(["pull", str(folder), "--runs-dir", str(tmp_path / "my runs")]) == 0
    run_dir, watch, evaluate = capsys.readouterr().out.splitlines()
    assert shlex.split(watch.removeprefix("Next:")) == ["proximo", "watch", run_dir]
    assert shlex.split(evaluate) == ["proximo", "eval", run_dir]
    assert (Path(run_dir) / "README.md").read_text() == "by hand"
    assert {path.name for path in Path(run_dir).iterdir()} == {
        "README.md", "checkpoints", "command.txt", "config.yaml", "evaluation.json", "metrics.jsonl", "pulled.json", "system.json",
        "videos",
    }  # fmt: skip


def asking_for(folder, env_id="proximo:PocMemory", eval_env="", wrappers="none", **settings):
    """``folder`` with a stranger's settings, who asks for other environments, a tracker and Ray actors."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["env"] |= {"id": env_id, "env_settings": settings, "wrappers": wrappers, "actors": 8}
    config["run"] |= {"track": "pathlib:Path", "eval_env": eval_env}
    text = yaml.safe_dump(config).encode()
    (folder / "config.yaml").write_bytes(text)
    rewritten(folder, environment=env_id)
    listed(folder, "config.yaml", text)


@pytest.mark.parametrize(
    ("setting", "env_id"),
    [("env_id", "my_package:MyEnv-v0"), ("eval_env", "venv.__main__:X-v0"), ("wrappers", "my_package.module:MyEnv")],
)
def test_pulled_module_names_require_trust_code(folder, tmp_path, env_id, setting):
    asking_for(folder, **{setting: env_id})
    with pytest.raises(ConfigError, match=r"a module to import from your Python path.*--trust-code"):
        pull(folder, runs_dir=str(tmp_path / "runs"))
    assert not list(tmp_path.glob("runs/*"))


def test_whatever_names_code_or_a_machine_is_refused_or_reset(folder, tmp_path):
    """Whoever adds a setting whose value is any text decides here what ``pull`` does with it."""
    asking_for(folder)
    config = run_directory.read_config(pull(folder, runs_dir=str(tmp_path / "runs")))
    assert (config.env.actors, config.env.num_workers, config.run.track) == (0, -1, "none")
    texts = {name for name, leaf in LEAVES.items() if leaf.type in (str, tuple[str, ...])}
    names_no_code = {"levels", "privileged", "drop_observations", "action_relevance"}
    assert texts - {*publish.OF_THE_MACHINE} - names_no_code == {"id", "eval_env", "wrappers"}


def test_environment_settings_cannot_execute_other_callables(folder, tmp_path):
    asking_for(folder, "subprocess:Popen", args=["touch", str(tmp_path / "evil")])
    pulled = pull(folder, runs_dir=str(tmp_path / "runs"), trust_code=True)
    for act in (proximo.load_policy, proximo.resume, proximo.evaluate):
        with pytest.raises(EnvError, match="'subprocess' is a part of Python or a program"):
            act(str(pulled))
    assert not (tmp_path / "evil").exists()


def test_code_in_a_published_folder_is_not_run(folder, tmp_path, monkeypatch):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    asking_for(folder, f"{folder.name}.evil:Env")
    monkeypatch.chdir(folder.parent)
    monkeypatch.syspath_prepend(str(folder.parent))
    with pytest.raises(CheckpointError, match="is a published policy: make a run of it with `proximo pull"):
        proximo.evaluate(str(folder))
    pulled = pull(folder, runs_dir=str(tmp_path / "runs"), trust_code=True)
    with pytest.raises(EnvError, match=r"is inside the run .*: code in a run is never imported"):
        proximo.evaluate(str(pulled))


def test_checkpoint_deleted_during_its_evaluation_with_other_settings_is_published(run_dir, tmp_path, monkeypatch):
    run, evaluate, filmed = copied(run_dir, tmp_path), publish.evaluate_policy, []

    def slow(*arguments, **settings):
        shutil.rmtree(run / "checkpoints" / str(MIDDLE))
        return evaluate(*arguments, **settings)

    monkeypatch.setattr(publish, "evaluate_policy", slow)

    def film(policy, path, *numbers):
        filmed.append((policy.config.env.env_settings, *numbers))
        path.write_bytes(b"x")

    monkeypatch.setattr(publish, "film", film)
    said = push(f"{run}@{MIDDLE}", tmp_path / "out", episodes=2, seed=5, env_settings={"show_steps": 1})
    assert filmed == [({"show_steps": 1}, 5, publish.CLIP_STEPS)]
    assert (said.evaluation["seed"], said.evaluation["env_settings"]) == (5, {"show_steps": 1})
    assert proximo.load_policy(pull(tmp_path / "out", runs_dir=str(tmp_path / "runs"))).step == MIDDLE


def test_environment_without_a_renderer_is_published_without_a_clip(tmp_path):
    run = trained(tmp_path / "runs", "r", total_steps=64)
    said = push(str(run), tmp_path / "out", episodes=2)
    assert [warning[:19] for warning in said.warnings] == ["no clip was recorde"]
    assert "replay.mp4" not in said.files
    text = (tmp_path / "out" / "README.md").read_text()
    assert "`toys:RandomEnds` is code that this folder does not contain" in text
    assert f"Note: {said.warnings[0]}" in text
    with pytest.raises(ConfigError, match="--trust-code"):
        pull(tmp_path / "out", runs_dir=str(tmp_path / "runs"), name="theirs")
    assert pull(tmp_path / "out", runs_dir=str(tmp_path / "runs"), name="theirs", trust_code=True).name == "theirs"


class Hub:
    """The Hub's library, its signatures held, over a folder."""

    def __init__(self, folder):
        self.folder, self.private, self.revisions = folder, {}, []

    def names(self, repo_id):
        return [p.relative_to(self.folder / repo_id).as_posix() for p in (self.folder / repo_id).rglob("*") if p.is_file()]

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        assert exist_ok
        if repo_id not in self.private:
            self.private[repo_id] = bool(private)
            (self.folder / repo_id).mkdir(parents=True, exist_ok=True)
        return f"the hub's page of {repo_id}"

    def list_repo_files(self, repo_id):
        return self.names(repo_id)

    def model_info(self, repo_id):
        return mock.Mock(private=self.private[repo_id])

    def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns):
        for name in filter_repo_objects(self.names(repo_id), allow_patterns=delete_patterns):
            (self.folder / repo_id / name).unlink()
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)

    def snapshot_download(self, repo_id, *, revision=None, local_dir=None, allow_patterns=None):
        if not (self.folder / repo_id).is_dir():
            raise UnreachableError(f"404: no repository\n{repo_id}")
        self.revisions.append(revision)
        for name in filter_repo_objects(self.names(repo_id), allow_patterns=allow_patterns):
            (Path(local_dir) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / repo_id / name, Path(local_dir) / name)


class UnreachableError(Exception):
    """As those of httpx, which are neither OSError nor ValueError."""


@pytest.fixture
def the_hub(tmp_path, monkeypatch):
    fake = Hub(tmp_path / "hub")
    api = mock.create_autospec(huggingface_hub.HfApi, instance=True)
    for name in ("create_repo", "list_repo_files", "model_info", "upload_folder"):
        getattr(api, name).side_effect = getattr(fake, name)
    monkeypatch.setattr(huggingface_hub, "HfApi", mock.create_autospec(huggingface_hub.HfApi, return_value=api))
    download = mock.create_autospec(huggingface_hub.snapshot_download, side_effect=fake.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return fake


def test_policy_pushed_to_the_hub_is_pulled_unchanged(the_hub, run_dir, tmp_path):
    said = push(f"{run_dir}@{MIDDLE}", "hf:me/poc", episodes=2, private=True)
    assert (said.place, said.url) == ("hf:me/poc", "the hub's page of me/poc")
    assert the_hub.private == {"me/poc": True}
    card = huggingface_hub.ModelCard.load(the_hub.folder / "me/poc/README.md")
    [result] = card.data.eval_results
    types = (result.task_type, result.dataset_type, result.metric_type)
    assert types == ("reinforcement-learning", "proximo:PocMemory", "mean_reward")
    greedy = said.evaluation["greedy"]
    assert result.metric_value == f"{greedy['return_mean']:.2f} +/- {greedy['return_std']:.2f}"
    assert {"ppo", "recurrent", "gru", "proximo:PocMemory"} <= set(card.data.tags)
    assert "proximo pull hf:me/poc" in card.text
    (the_hub.folder / "me/poc/evil.py").write_text("raise SystemExit")
    (the_hub.folder / "me/poc/deep").mkdir()
    (the_hub.folder / "me/poc/deep/huge.json").write_text("not to be fetched")
    pulled = pull("hf:me/poc@v1", runs_dir=str(tmp_path / "runs"))
    assert the_hub.revisions == ["v1"]
    assert not (pulled / "evil.py").exists()
    assert pull("hf:me/poc", runs_dir=str(tmp_path / "runs")) == pulled, "the same once more"
    assert checkpoint.steps(pulled / "checkpoints") == [MIDDLE]
    push(f"{run_dir}@last", "hf:me/poc", episodes=2, clip=False)
    newer = pull("hf:me/poc", runs_dir=str(tmp_path / "runs"), name="newer")
    assert checkpoint.steps(newer / "checkpoints") == [2 * MIDDLE]
    assert not (newer / "videos").exists()


@pytest.mark.parametrize(
    ("to", "settings", "sentence"),
    [
        ("hf:poc", {}, "expected hf:OWNER/NAME"),
        ("hf:me/poc/more", {}, "expected hf:OWNER/NAME"),
        ("hf:me/new", {"episodes": 0}, "episodes = 0: expected a whole number"),
        ("hf:me/new", {"seed": -1}, "seed = -1: expected a whole number"),
        ("hf:me/new@v1", {}, "push writes to the main branch"),
        ("folder", {"private": True}, "private = True needs a repository on the Hub"),
        ("{}/me/llm", {}, "contains 'model.bin' but no proximo.json: choose an empty folder"),
        ("{}/me/llm/model.bin", {}, r"Cannot write to .*model.bin \(File exists\): choose another folder"),
        ("hf:me/public", {"private": True}, "exists and is public"),
        ("hf:me/llm", {}, r"contains 'model.bin' but no proximo.json: choose another repository"),
    ],
)
def test_upload_problems_raise_before_the_evaluation(the_hub, run_dir, monkeypatch, to, settings, sentence):
    for repository in ("me/public", "me/llm"):
        the_hub.create_repo(repository, exist_ok=True)
    (the_hub.folder / "me/llm/model.bin").write_text("mine")
    monkeypatch.setattr("proximo.publish.evaluate_policy", lambda *_, **__: pytest.fail("evaluated"))
    with pytest.raises((ConfigError, RunDirectoryError, hub.HubError), match=sentence):
        push(str(run_dir), to.format(the_hub.folder), **settings)
    assert "me/new" not in the_hub.private
    assert the_hub.names("me/llm") == ["model.bin"]


def test_a_missing_library_or_published_policy_raises_one_sentence(the_hub, run_dir, tmp_path, monkeypatch):
    with pytest.raises(hub.HubError, match=r"refuses the request for me/none: 404: no repository me/none"):
        pull("hf:me/none", runs_dir=str(tmp_path))
    for folder in (copied(run_dir, tmp_path), "nowhere", "x" * 400):
        with pytest.raises(CheckpointError, match=r"is not a published policy, or damaged: cannot read proximo.json"):
            pull(folder, runs_dir=str(tmp_path / "runs"))
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "huggingface_hub" else real(name, *rest))
    with pytest.raises(EnvError, match=r"pip install 'proximo\[hub\]'"):
        push(str(run_dir), "hf:me/poc")
