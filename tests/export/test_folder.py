"""The folder of an export: its content, that it needs neither JAX nor proximo, and that an invalid one is never left."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from proximo.errors import ConfigError, EnvError
from proximo.export import ParityError, export, folder, latency, parity
from proximo.export.policy_function import PolicyFunction
from proximo.spaces import Box, Dict, Discrete, MultiDiscrete

import toys
from exports import made

ALL = {"policy.onnx", "policy.npz", "proximo_policy.py", "metadata.json", "README.md"}
KINDS = {
    "parts": {
        "space": toys.PARTS,
        "actions": MultiDiscrete((3, 2)),
        "memory": "gru",
        "observe_action": True,
        "observe_reward": True,
    },
    "sampled": {
        "space": toys.masked(Dict((("observation", Box((3,))),)), 3), "actions": Discrete(3, 1), "memory": "gtrxl", "memory_window": 3, "memory_heads": 2,
    },
}  # fmt: skip
BARRIER = """
import sys

class Barrier:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "proximo", "equinox"):
            raise ImportError(name + " is not to be imported")

sys.meta_path.insert(0, Barrier())
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(latency, "BUDGET", 0.0)
    monkeypatch.setattr(latency, "SIZES", (1,))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "SIZES", (1,))
        patch.setattr(latency, "BUDGET", 0.0)
        patch.setattr(parity, "STEPS", 10)
        base = tmp_path_factory.mktemp("exports")
        return {
            kind: export(made(**settings), base / kind, "runs/a/b", deterministic=kind != "sampled")
            for kind, settings in KINDS.items()
        }


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


def run_python(code, where):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=where, capture_output=True, text=True, env={"PYTHONDONTWRITEBYTECODE": "1"}
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [0, 1], ids=["numpy", "onnx"])
def test_the_readme_runs_without_jax_and_proximo(exported, kind, block):
    site = f"sys.path += {sys.path!r}\n"
    done = run_python(BARRIER + site + python_blocks(exported[kind].folder / "README.md")[block], exported[kind].folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"\[*-?\d", done.stdout)


def test_sample_of_a_masked_policy_passes_an_allowing_mask(exported):
    code = python_blocks(exported["sampled"].folder / "README.md")
    assert "observation = np.zeros((3,), np.float32)" in code[0]
    assert "action_mask = np.ones((3,), np.bool_)" in code[0]
    assert code[0].count("action_mask=action_mask") == 2
    assert "'action_mask': np.ones((1, 3), np.bool_)" in code[1]


def test_import_barrier_blocks_jax():
    done = run_python(BARRIER + f"sys.path += {sys.path!r}\nimport jax", ".")
    assert "jax is not to be imported" in done.stderr


def test_the_runtime_imports_only_numpy_and_the_standard_library(exported):
    source = (exported["parts"].folder / "proximo_policy.py").read_text()
    imported = re.findall(r"^(?:from|import) ([\w.]+)", source, re.MULTILINE)
    assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names) | {"numpy", "proximo_policy"}


def test_both_files_act_like_jax_without_jax(exported, tmp_path):
    """The actions of 20 steps of two environments, in a process without JAX."""
    kind = exported["parts"]
    policy = made(**KINDS["parts"])
    rng, memory, rows, actions = np.random.default_rng(3), policy.init_memory(2), {}, []
    episode_start = rng.random((20, 2)) < 0.2
    episode_start[0] = True
    for t in range(20):
        policy_function = PolicyFunction(policy)
        row = parity.random_inputs(policy_function, rng, 2, begins=False) | {"episode_start": episode_start[t]}
        rows |= {f"{t} {name}": x for name, x in row.items()}
        body = tuple(row[f"observation.body.{i}"] for i in range(3))
        observation = {"camera": row["observation.camera"], "body": body, "level": row["observation.level"]}
        action, memory = policy.predict(observation, memory, episode_start[t], reward=row["reward"])
        actions.append(action)
    np.savez(tmp_path / "rows.npz", **rows)
    code = f"""
import numpy as np, onnxruntime, json
from proximo_policy import ExportedPolicy
rows = np.load({str(tmp_path / "rows.npz")!r})
policy = ExportedPolicy()
session = onnxruntime.InferenceSession("policy.onnx")
names = [x.name for x in session.get_outputs()]
found = []
for run in (policy.run, lambda arrays: dict(zip(names, session.run(names, arrays)))):
    memory = policy.init_memory(2)
    for t in range(20):
        row = {{name.split(" ")[1]: rows[name] for name in rows.files if name.split(" ")[0] == str(t)}}
        outputs = run({{**row, **memory}})
        memory = {{name: outputs[name + ".next"] for name in memory}}
        found.append(outputs["action"].tolist())
assert not any(name.split(".")[0] in ("jax", "proximo") for name in sys.modules)
print(json.dumps(found))
"""
    done = run_python(BARRIER + f"sys.path += {sys.path!r}\n" + code, kind.folder)
    assert done.stderr == ""
    expected = np.stack(actions).tolist()
    assert json.loads(done.stdout) == expected + expected


def test_the_metadata_describe_the_files(exported):
    done = exported["parts"]
    metadata = json.loads((done.folder / "metadata.json").read_text())
    assert {path.name for path in done.folder.iterdir()} == ALL
    for name, digest in metadata["sha256"].items():
        assert hashlib.sha256((done.folder / name).read_bytes()).hexdigest() == digest
    graph = onnx.load(done.folder / "policy.onnx").graph
    for side, entries in (("input", graph.input), ("output", graph.output)):
        shapes = {x.name: [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] for x in entries}
        assert {leaf["name"]: leaf["shape"] for leaf in metadata[f"{side}s"]} == shapes
    names = [leaf["name"] for leaf in metadata["inputs"]]
    assert names == [
        "observation.body.0", "observation.body.1", "observation.body.2", "observation.camera", "observation.level", "episode_start",
        "reward", "memory.0", "memory.previous_action",
    ]  # fmt: skip
    assert [entry["output"] for entry in metadata["memory"]] == ["memory.0.next", "memory.previous_action.next"]
    assert metadata["environments"] == "N"
    assert max(metadata["parity"]["largest_error"].values()) <= 1e-5
    assert set(metadata["latency_microseconds"]["1"]) == {"jax", "onnxruntime", "numpy"}
    assert metadata["settings"]["network"]["memory"] == "gru"
    assert all(leaf["meaning"] for side in ("inputs", "outputs") for leaf in metadata[side])


def test_the_model_names_its_run(exported):
    properties = {p.key: p.value for p in onnx.load(exported["parts"].folder / "policy.onnx").metadata_props}
    assert properties["run"] == "runs/a/b"
    assert properties["step"] == "0"


def test_a_wrong_export_leaves_the_earlier_one_unchanged(tmp_path, monkeypatch):
    policy, target = made(), tmp_path / "export"
    export(policy, target, format="numpy")
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    monkeypatch.setattr(parity, "TOLERANCE", 0.0)
    for out in (target, tmp_path / "other"):
        with pytest.raises(ParityError, match=r"Export failed: at step .*nothing was written"):
            export(policy, out, format="both")
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


@pytest.mark.parametrize("name", [".", "link"])
def test_a_folder_that_exists_stays(tmp_path, monkeypatch, name):
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    monkeypatch.chdir(tmp_path / "here" if name == "." else tmp_path)
    for format, expected in (("both", ALL), ("numpy", ALL - {"policy.onnx"})):
        export(made(), Path(name), format=format)
        assert {path.name for path in Path(name).iterdir()} == {path.name for path in (tmp_path / "here").iterdir()} == expected
    assert (tmp_path / "link").is_symlink()
    assert Path.cwd().exists()


def test_an_export_replaces_an_earlier_one_and_nothing_else(tmp_path):
    export(made(), tmp_path / "out", format="both")
    export(made(), tmp_path / "out", format="numpy")
    assert {path.name for path in (tmp_path / "out").iterdir()} == ALL - {"policy.onnx"}
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"out contains 'thesis.txt', which is not part of an export: choose another --out"):
        export(made(), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("not of an export")
    with pytest.raises(ConfigError, match=r"mine contains 'README.md', and no metadata.json of an export: choose another --out"):
        export(made(), tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"thesis.txt is a file: choose another --out"):
        export(made(), tmp_path / "out" / "thesis.txt")


def test_numpy_files_are_written_without_onnx(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "onnx_is_installed", lambda: False)
    with pytest.raises(EnvError, match=r"ONNX needs a library that is not installed: pip install 'proximo\[onnx\]'\."):
        export(made(), tmp_path / "a", format="onnx")
    assert export(made(), tmp_path / "b", format="numpy").metadata["parity"]["largest_error"].keys() == {"numpy"}


def test_an_export_for_a_fixed_batch_runs(tmp_path):
    done = export(made(actions=Box((2,), -1.0, 1.0)), tmp_path / "out", batch=2)
    assert done.metadata["environments"] == 2
    assert done.metadata["inputs"][0]["shape"] == [2, 3]
    for block in python_blocks(done.folder / "README.md"):
        assert run_python(f"import sys; sys.path += {sys.path!r}\n{block}", done.folder).returncode == 0


@pytest.mark.parametrize(
    ("actions", "settings", "sampling"),
    [
        (Box((2,), -1.0, 1.0), {}, "`proximo export --stochastic` writes a policy that samples."),
        (Discrete(3, 1), {}, "draw from the softmax of the output `logits` and add 1."),
        (Box((2,), -1.0, 1.0), {"distribution": "beta"}, "draw from the distribution with its parameters in the outputs (`alpha`, `beta`)"),
        (Discrete(3), {"distribution": "custom_networks:Choice"}, "with its parameters in the outputs (`parameters`)"),
    ],
)  # fmt: skip
def test_the_readme_explains_how_to_sample(tmp_path, actions, settings, sampling):
    policy = made(actions=actions, **settings)
    done = export(policy, tmp_path / "out", format="numpy")
    note = next(line for line in (done.folder / "README.md").read_text().splitlines() if "sampl" in line)
    assert sampling in note
    known = "cannot sample from this distribution" not in note
    assert PolicyFunction(policy).can_sample == known
    if not known:
        with pytest.raises(ConfigError, match="--stochastic: the noise"):
            export(policy, tmp_path / "other", deterministic=False, format="numpy")


def test_unknown_noise_of_a_custom_head_raises():
    class Stranger:
        pass

    with pytest.raises(ConfigError, match="--stochastic: the noise of Stranger is unknown"):
        PolicyFunction.noise_family(SimpleNamespace(actor_critic=SimpleNamespace(actor=Stranger())))
