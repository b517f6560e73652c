"""The folder of an export: its content needs neither JAX nor proximo, and an invalid one is never left."""

import hashlib
import json
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

from proximo.errors import CheckpointError, ConfigError, EnvError
from proximo.export import ParityError, export, parity
from proximo.spaces import Box, Dict, Discrete, MultiDiscrete

import toys
from exports import made

FILES = {"policy.onnx", "proximo_policy.py", "metadata.json", "README.md"}
KINDS = {
    "parts": {
        "space": toys.PARTS, "actions": MultiDiscrete((3, 2)), "memory": "gru", "observe_action": True, "observe_reward": True,
    },
    "sampled": {"space": toys.masked(Dict((("observation", Box((3,))),)), 3), "actions": Discrete(3, 1), "memory": "lru"},
}  # fmt: skip
OBSERVATIONS = {
    "parts": {"body": ([0.1, 0.2, 0.3], [1, 0, -2], [[True, False], [True, True]]), "camera": np.ones((2, 36, 37), int).tolist(), "level": 3},
    "sampled": {"observation": [0.1, 0.2, 0.3]},
}  # fmt: skip
BARRIER = f"""
import sys

class Barrier:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "jax2onnx", "proximo", "equinox"):
            raise ImportError(name + " is not to be imported")

sys.meta_path.insert(0, Barrier())
sys.path += {sys.path!r}
try:
    import jax
    raise SystemExit("the barrier has a hole")
except ImportError:
    pass
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(parity, "CALLS", 2)
    monkeypatch.setattr(parity, "SIZES", (1,))
    monkeypatch.setattr(parity, "STEPS", 5)
    monkeypatch.setattr(parity, "ENVIRONMENTS", (2,))


@pytest.mark.parametrize("kind", KINDS)
def test_the_readme_runs_without_jax_and_proximo_and_acts_alike(kind, tmp_path):
    policy, observation = made(**KINDS[kind]), OBSERVATIONS[kind]
    done = export(policy, tmp_path / "out", "runs/a/b", deterministic=kind != "sampled")
    [code] = re.findall(r"```python\n(.*?)```", (done.folder / "README.md").read_text(), re.DOTALL)
    mask = {"action_mask": [0, 1, 1]} if kind == "sampled" else {}
    given = f"{observation = }\n{mask = }\naction_mask, reward = [0, 1, 1], 0.5\n"
    check = "import json\nprint(json.dumps(policy.predict(observation, None, True, **mask)[0].tolist()))"
    words, environment = [sys.executable, "-c", BARRIER + given + code + check], {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=done.folder, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == policy.predict(observation, None, True, **mask)[0].tolist()


def test_the_metadata_describe_the_files(tmp_path):
    done = export(made(**KINDS["parts"]), tmp_path / "out", "runs/a/b")
    metadata = json.loads((done.folder / "metadata.json").read_text())
    assert {path.name for path in done.folder.iterdir()} == FILES
    for name, digest in metadata["sha256"].items():
        assert hashlib.sha256((done.folder / name).read_bytes()).hexdigest() == digest
    model = onnx.load(done.folder / "policy.onnx")
    for side, entries in (("input", model.graph.input), ("output", model.graph.output)):
        shapes = {x.name: [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] for x in entries}
        assert {leaf["name"]: leaf["shape"] for leaf in metadata[f"{side}s"]} == shapes
        assert all(leaf["meaning"] for leaf in metadata[f"{side}s"])
    assert {leaf["name"]: leaf["dtype"] for leaf in metadata["inputs"]} == {
        "observation.body.0": "float32", "observation.body.1": "int32", "observation.body.2": "bool",
        "observation.camera": "uint8", "observation.level": "int32", "episode_start": "bool", "reward": "float32",
        "memory.0": "float32", "memory.previous_action": "float32",
    }  # fmt: skip
    outputs = {"action", "value", "log_prob", "logits", "memory.0.next", "memory.previous_action.next"}
    assert {leaf["name"] for leaf in metadata["outputs"]} == outputs
    assert metadata["interface"]["memory"] == {"memory.0": 0, "memory.previous_action": 0}
    assert metadata["environments"] == "N"
    assert metadata["parity"]["largest_error"] <= 2e-5
    assert set(metadata["latency_microseconds"]["1"]) == {"jax", "onnxruntime"}
    assert metadata["settings"]["network"]["memory"] == "gru"
    properties = {p.key: p.value for p in model.metadata_props}
    assert (properties["run"], properties["step"]) == ("runs/a/b", "0")


def test_an_export_replaces_an_earlier_one_and_nothing_else_and_a_wrong_one_nothing(tmp_path, monkeypatch):
    policy, target = made(), tmp_path / "out"
    target.mkdir()
    for name, content in {"metadata.json": '{"format": "proximo-export"}', "thesis.txt": "years of work"}.items():
        (target / name).write_text(content)
    export(policy, target)
    assert {path.name for path in target.iterdir()} == FILES | {"thesis.txt"}
    assert export(policy, target, batch=2).metadata["environments"] == 2
    assert "policy.init_memory(2)" in (target / "README.md").read_text()
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    monkeypatch.setattr(parity, "TOLERANCE", -1.0)
    for out in (target, tmp_path / "other"):
        with pytest.raises(ParityError, match=r"Export failed: at step .*nothing was written"):
            export(policy, out)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_folders_that_cannot_be_written_raise_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("not of an export")
    for folder, kind, sentence in (
        ("", ConfigError, r"contains 'README.md', and no metadata.json of an export: choose another --out"),
        ("README.md", ConfigError, r"README.md is a file: choose another --out\.$"),
        ("README.md/a", CheckpointError, r"^Cannot write .*README.md/a \(Not a directory\): choose another --out\.$"),
    ):
        with pytest.raises(kind, match=sentence):
            export(made(), tmp_path / folder)
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    monkeypatch.delitem(sys.modules, "proximo.export.onnx_model")
    monkeypatch.delattr("proximo.export.onnx_model")
    with pytest.raises(EnvError, match=r"^An export needs a library that is not installed: pip install 'proximo\[onnx\]'\.$"):
        export(made(), tmp_path / "other")


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [({}, "or export with `proximo export --stochastic`."), ({"distribution": "beta"}, "with the parameters in the outputs.")],
)
def test_the_readme_explains_how_to_sample(tmp_path, settings, sampling):
    policy = made(actions=Box((2,), -1.0, 1.0), **settings)
    assert sampling in (export(policy, tmp_path / "out").folder / "README.md").read_text()
    if settings:
        with pytest.raises(ConfigError, match=r"^--stochastic: the noise of BetaHead is unknown\. Export without --stochastic"):
            export(policy, tmp_path / "other", deterministic=False)
