"""The NumPy runtime by itself: what it is given, and files that are damaged or mean harm."""

import io
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from proximo.export import numpy_file, runtime
from proximo.export.acting import Acting
from proximo.export.folder import _interface
from proximo.export.runtime import Policy, PolicyError
from proximo.spaces import Discrete

import toys
from exports import made

N = 3


@pytest.fixture(scope="module")
def data():
    acting = Acting(made(toys.PARTS, Discrete(3), memory="gru", observe_reward=True), stochastic=True)
    initial = {name: np.asarray(x)[0] for name, x in acting.initial(1).items() if name in acting.carried}
    return numpy_file.render(acting.program(None), _interface(acting), initial, None)


@pytest.fixture
def path(data, tmp_path):
    path = tmp_path / "policy.npz"
    path.write_bytes(data)
    return path


def observation(n=N):
    body = (np.zeros((n, 3)), np.ones((n, 3), int), np.ones((n, 2, 2), bool))
    return {"camera": np.zeros((n, 2, 36, 37), np.uint8), "body": body, "level": np.full(n, 3)}


def changed(path, change):
    """The file with its program, or its arrays, changed."""
    with np.load(path) as file:
        arrays = dict(file)
    program = json.loads(arrays["program"].tobytes())
    change(program, arrays)
    if "program" in arrays:
        arrays["program"] = np.frombuffer(json.dumps(program).encode(), np.uint8)
    np.savez(path, **arrays)
    return path


def test_carried_memory_observes_the_reward_of_one_step_episodes(tmp_path):
    acting = Acting(made(None, Discrete(3), memory="gru", observe_reward=True, reset_memory=False), stochastic=False)
    initial = {name: np.asarray(x)[0] for name, x in acting.initial(1).items() if name in acting.carried}
    (tmp_path / "policy.npz").write_bytes(numpy_file.render(acting.program(None), _interface(acting), initial, None))
    policy, row, first = Policy(tmp_path / "policy.npz"), np.zeros((N, 3), np.float32), [True] * N
    memory, _ = policy(policy.init_memory(N), row, first)
    unpaid, paid = (policy.step(memory, row, first, np.full(N, reward))[1]["logits"] for reward in (0.0, 1.0))
    assert np.abs(paid - unpaid).max() > 1e-2
    with pytest.raises(PolicyError, match="reward was not given"):
        policy(memory, row, first)


def test_it_acts_and_remembers(path):
    policy = Policy(path)
    memory, action = policy(policy.init_memory(N), observation(), [True] * N)
    assert action.shape == (N,)
    assert action.dtype == np.int32
    again, outputs = policy.step(memory, observation(), [False] * N, reward=np.ones(N))
    assert set(outputs) == {"action", "value", "log_prob", "logits"}
    assert (again["memory.0"] != memory["memory.0"]).all()
    emptied, _ = policy.step(memory, observation(), [True] * N)
    np.testing.assert_allclose(emptied["memory.0"], memory["memory.0"], rtol=1e-6)


def test_rows_do_not_know_of_each_other(path):
    policy = Policy(path)
    memory = policy.init_memory(20)
    _, many = policy.step(memory, observation(20), [True] * 20)
    for n in (1, 2, 9, 13, 14, 15, 16, 17, 18):
        _, few = policy.step(policy.init_memory(n), observation(n), [True] * n)
        np.testing.assert_allclose(few["logits"], many["logits"][:n], rtol=1e-5)
    assert len(policy._bound) <= runtime.MOST_SIZES


def test_noise_samples(path):
    policy, rng = Policy(path), np.random.default_rng(0)
    actions = [policy(policy.init_memory(N), observation(), [True] * N, noise=policy.noise(rng, N))[1] for _ in range(20)]
    assert len(np.unique(actions)) > 1


def test_what_does_not_fit_is_told(path):
    policy = Policy(path)
    memory = policy.init_memory(N)
    with pytest.raises(PolicyError, match=r"first has the shape \(\): expected one flag for each environment"):
        policy(memory, observation(), True)
    with pytest.raises(PolicyError, match="The observation lacks its part 'level'"):
        policy(memory, {k: v for k, v in observation().items() if k != "level"}, [True] * N)
    with pytest.raises(PolicyError, match=r"observation.camera has the shape \(2, 2, 36, 37\): expected \(3, 2, 36, 37\)"):
        policy(memory, {**observation(), "camera": observation(2)["camera"]}, [True] * N)
    with pytest.raises(PolicyError, match=r"observation.level is no array of int32"):
        policy(memory, {**observation(), "level": ["a", "b", "c"]}, [True] * N)
    with pytest.raises(PolicyError, match="reward was not given: this policy observes it"):
        policy(memory, observation(), [False] * N)
    with pytest.raises(PolicyError, match=r"memory.0 has the shape \(2, 8\): expected \(3, 8\)"):
        policy(policy.init_memory(2), observation(), [True] * N)
    with pytest.raises(PolicyError, match=r"The inputs lack 'memory.0': expected"):
        policy({}, observation(), [True] * N)
    with pytest.raises(PolicyError, match="have the unknown 'hidden'"):
        policy({**memory, "hidden": 0}, observation(), [True] * N)


def test_a_file_for_one_size_says_so(path):
    policy = Policy(changed(path, lambda program, _: program.update(batch=2)))
    with pytest.raises(PolicyError, match=r"first has 3 flags: this policy was exported for 2 environments \(--batch\)"):
        policy(policy.init_memory(N), observation(), [True] * N)


def test_a_flipped_bit_and_a_cut_are_found(path, data):
    for at in (len(data) // 3, len(data) // 2):
        path.write_bytes(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])
        with pytest.raises(PolicyError, match="is damaged"):
            Policy(path)
        path.write_bytes(data[:at])
        with pytest.raises(PolicyError, match="is damaged"):
            Policy(path)


def test_other_files_are_told(tmp_path):
    with pytest.raises(PolicyError, match=r"Cannot read .*nothing.npz"):
        Policy(tmp_path / "nothing.npz")
    for name, content in {"text": b"hello", "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PolicyError, match="is damaged, or no policy of proximo"):
            Policy(tmp_path / name)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(PolicyError, match="is damaged, or no policy of proximo"):
        Policy(tmp_path / "array.npy")
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    with pytest.raises(PolicyError, match="it holds no program"):
        Policy(tmp_path / "arrays.npz")


class Harm:
    """Leaves a file where it is unpickled."""

    def __reduce__(self):
        return open, ("harm-was-done", "w")


def test_a_pickle_is_never_opened(tmp_path, path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Harm()))
    objects = np.empty(1, object)
    objects[0] = Harm()
    target = io.BytesIO()
    np.savez(target, program=objects, allow_pickle=True)
    (tmp_path / "objects.npz").write_bytes(target.getvalue())
    for name in ("pickle.npz", "objects.npz"):
        with pytest.raises(PolicyError, match="is damaged, or no policy of proximo"):
            Policy(tmp_path / name)
    assert not (tmp_path / "harm-was-done").exists()


def _first_node(**changes):
    def change(program, _):
        node = program["nodes"][0]
        program["nodes"][0] = [changes.get("name", node[0]), changes.get("places", node[1]), changes.get("attributes", node[2])]

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p, a: p.update(version=2), "has the format version 2; this file reads version 1"),
        (lambda p, a: p.update(format="other"), "its program does not say format 'proximo-policy'"),
        (_first_node(name="__import__"), "its operation '__import__' is unknown"),
        (_first_node(places=[10**6]), "does not have the inputs and attributes that it takes"),
        (_first_node(attributes={"function": "os.system"}), "does not have the inputs and attributes that it takes"),
        (lambda p, a: p["outputs"][0].update(value=10**6), "an output of it does not exist"),
        (lambda p, a: p["inputs"][0].update(dtype="object"), "is not described"),
        (lambda p, a: p.pop("nodes"), r"its program is not whole \(KeyError"),
        (lambda p, a: p.update(nodes=[1]), "its program is not whole"),
        (lambda p, a: a.pop("constant_0"), "its array constant_0 is not of shape"),
        (lambda p, a: a.update(constant_0=np.zeros((1, 2, 3))), "its array constant_0 is not of shape"),
        (lambda p, a: a.pop("initial.memory.0"), "its interface names 'memory.0', which is not there"),
        (lambda p, a: p["interface"]["noise"][0].update(family="cauchy"), "its interface names 'cauchy'"),
        (lambda p, a: a.pop("program"), "it holds no program"),
    ],
)
def test_a_program_that_is_not_whole_is_refused(path, change, why):
    with pytest.raises(PolicyError, match=why):
        Policy(changed(path, change))


def test_shapes_that_do_not_follow_are_told(path):
    def change(program, _):
        next(leaf for leaf in program["outputs"] if leaf["name"] == "value")["shape"] = [[1, 0], 2]

    policy = Policy(changed(path, change))
    with pytest.raises(PolicyError, match=r"value has the shape \(3,\): expected \(3, 2\)"):
        policy(policy.init_memory(N), observation(), [True] * N)


def _convolution(program):
    return next(node for node in program["nodes"] if node[0] == "convolution")[2]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p, a: _convolution(p).update(dilation=[-9, 1]), "its operation 'convolution', number .* fails"),
        (lambda p, a: _convolution(p).update(strides=[0, 0]), "its operation 'convolution', number .* fails"),
        (lambda p, a: _convolution(p).update(groups=10**9), "its operation 'convolution', number .* fails"),
        (lambda p, a: p["nodes"].append(["range", [], {"size": 10**12, "to": "int64"}]), "need more memory than"),
        (lambda p, a: p["nodes"].append(["reshape", [0], {"sizes": [-1, 10**30]}]), "'reshape', number .* fails"),
        (lambda p, a: p["interface"]["carried"].append(p["interface"]["carried"][0]), "its interface names 'memory.0'"),
        (lambda p, a: p["interface"]["carried"][0].update(output="action"), "its interface names 'memory.0'"),
        (lambda p, a: p.update(batch="three"), "its number of environments is 'three'"),
        (lambda p, a: p["inputs"][1].update(name="\x1b[31m"), r"its input or output '\\x1b\[31m' is not described"),
    ],
)
def test_loading_a_forged_program_raises(path, change, why):
    with pytest.raises(PolicyError, match=why):
        Policy(changed(path, change))


def test_deep_nesting_and_compression_bombs_are_policy_errors(path):
    def write(name, content):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
            np.save(file, np.frombuffer(content, np.uint8))

    write("program.npy", b"[" * 10**5)
    with pytest.raises(PolicyError, match="it holds no program"):
        Policy(path)
    write("constant_0.npy", bytes(10**8))
    with pytest.raises(PolicyError, match="its content is too large for the size of the file"):
        Policy(path)


def test_any_program_gives_a_result_or_a_policy_error(path):
    """Runs in a subprocess, because a failure may be a crash of the interpreter."""
    script = Path(__file__).with_name("forged_programs.py")
    asked = [sys.executable, script, runtime.__file__, path, "120", "300"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    assert json.loads(done.stdout)["results"] > 100
