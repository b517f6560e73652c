"""The NumPy runtime by itself: its arguments, and files that are damaged or malicious."""

import io
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from proximo.errors import ConfigError
from proximo.export import runtime
from proximo.export.folder import export
from proximo.export.policy_function import PolicyFunction
from proximo.export.runtime import ExportedPolicy, PolicyError
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from proximo.storage.checkpoint_format import flatten

import toys
from exports import made, write_numpy

N = 3


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    policy = made(toys.PARTS, Discrete(3), memory="gru", observe_reward=True)
    return write_numpy(PolicyFunction(policy, deterministic=False), tmp_path_factory.mktemp("data") / "policy.npz").read_bytes()


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


def exported(tmp_path, *spaces, **settings):
    return ExportedPolicy(write_numpy(PolicyFunction(made(*spaces, **settings)), tmp_path / "policy.npz"))


def all_outputs(policy, n, memory=None, **inputs):
    """Every output of a step, by name."""
    noise = {"noise": np.zeros((n, 3))} if policy.interface["noise"] else {}
    start = {"episode_start": [memory is None] * n, "reward": np.zeros(n)}
    return policy.run(
        {**flatten({"observation": observation(n)}), **start, **(memory or policy.init_memory(n)), **noise, **inputs}
    )


def test_memory_kept_across_episodes_needs_the_last_reward(tmp_path):
    policy = exported(tmp_path, None, Box((2,)), memory="gru", observe_reward=True, reset_memory=False)
    observation, start = np.zeros((N, 3), np.float32), [True] * N
    _, memory = policy.predict(observation, policy.init_memory(N), start)
    unpaid, paid = (policy.predict(observation, memory, start, reward=np.full(N, reward))[0] for reward in (0.0, 1.0))
    assert np.abs(paid - unpaid).max() > 1e-2
    with pytest.raises(PolicyError, match="reward was not given, but this policy observes it"):
        policy.predict(observation, memory, start)
    with pytest.raises(PolicyError, match=r"memory = None with episode_start = .*, but this policy has a memory"):
        policy.predict(observation, None, start)


def test_exported_policy_acts_and_updates_its_memory(path):
    policy = ExportedPolicy(path)
    action, memory = policy.predict(observation(), policy.init_memory(N), [True] * N)
    assert action.shape == (N,)
    assert action.dtype == np.int32
    _, again = policy.predict(observation(), memory, reward=np.ones(N))
    assert (again["memory.0"] != memory["memory.0"]).all()
    _, reset = policy.predict(observation(), memory, [True] * N)
    np.testing.assert_allclose(reset["memory.0"], memory["memory.0"], rtol=1e-6)
    assert set(all_outputs(policy, N)) == {"action", "value", "log_prob", "logits", "memory.0.next"}


def test_one_observation_is_acted_on_like_one_of_many(path):
    policy, single = ExportedPolicy(path), observation(1)
    single = {"camera": single["camera"][0], "body": tuple(x[0] for x in single["body"]), "level": 3}
    many, one = policy.init_memory(N), policy.init_memory()
    for t in range(3):
        actions, many = policy.predict(observation(), many, [t == 0] * N, reward=np.full(N, 0.5))
        action, one = policy.predict(single, one, t == 0, reward=0.5)
        assert action.shape == ()
        assert action == actions[1]
        np.testing.assert_allclose(one["memory.0"][0], many["memory.0"][1], rtol=1e-5, atol=1e-6)


def test_environments_do_not_affect_each_other(path):
    policy = ExportedPolicy(path)
    many = all_outputs(policy, 20)["logits"]
    for n in (1, 2, 9, 13, 14, 15, 16, 17, 18):
        np.testing.assert_allclose(all_outputs(policy, n)["logits"], many[:n], rtol=1e-5)
    assert len(policy._bound) <= runtime.MAX_SIZES


def test_a_key_samples_the_action(path):
    policy, rng = ExportedPolicy(path), np.random.default_rng(0)

    def sample(key):
        return policy.predict(observation(20), None, [True] * 20, deterministic=False, key=key)[0].tolist()

    assert sample(1) == sample(1) == sample(np.random.default_rng(1)) != sample(2)
    assert sample(rng) != sample(rng)
    greedy, _ = policy.predict(observation(20), None, [True] * 20)
    assert len(set(greedy.tolist())) == 1 < len(set(sample(0)))


def test_sampling_needs_a_key_and_noise(path, tmp_path):
    policy, start = ExportedPolicy(path), [True] * N
    for key in (None, "0", 0.5, -1):
        with pytest.raises(PolicyError, match=r"key = .* with deterministic = False: expected an integer seed"):
            policy.predict(observation(), None, start, deterministic=False, key=key)
    with pytest.raises(PolicyError, match="key was given with deterministic = True, which ignores it"):
        policy.predict(observation(), None, start, key=0)
    with pytest.raises(PolicyError, match="This policy cannot sample: export it with --stochastic"):
        exported(tmp_path).predict(np.zeros(3), deterministic=False, key=0)


def test_an_action_mask_may_be_an_argument(tmp_path):
    space = Dict((("observation", Box((2,))), ("action_mask", MultiBinary((3,)))))
    policy, mask = exported(tmp_path, space, Discrete(3)), np.array([False, True, False])
    assert "action_mask" in [leaf["name"] for leaf in policy.program["inputs"]]
    for given in (np.ones(2), {"observation": np.ones(2)}):
        assert policy.predict(given, action_mask=mask)[0] == 1
    assert policy.predict({"observation": np.ones(2), "action_mask": mask})[0] == 1
    assert policy.predict(np.ones((3, 2)), action_mask=np.eye(3))[0].tolist() == [0, 1, 2]
    parts = exported(tmp_path, Dict((("observation", Box((2,))), ("action_mask", MultiBinary((5,))))), MultiDiscrete((3, 2)))
    assert parts.predict(np.ones(2), action_mask=(np.array([0, 0, 1]), np.array([1, 0])))[0].tolist() == [2, 0]
    with pytest.raises(PolicyError, match="action_mask allows no action, or none in one component"):
        parts.predict(np.ones(2), action_mask=[1, 1, 1, 0, 0])
    with pytest.raises(PolicyError, match="action_mask is not an array of bool"):
        parts.predict(np.ones(2), action_mask=((1, 1, 1), (0, 1), (1, (1, 0))))
    with pytest.raises(PolicyError, match=r"action_mask was not given, but .*: pass action_mask=…, such as info"):
        policy.predict(np.ones(2))
    with pytest.raises(PolicyError, match="action_mask allows no action"):
        policy.predict(np.ones((2, 2)), action_mask=[[1, 0, 0], [0, 0, 0]])
    with pytest.raises(PolicyError, match=r"observation.observation has nan: expected finite numbers"):
        policy.predict(np.array([1.0, np.nan]), action_mask=mask)
    with pytest.raises(PolicyError, match="action_mask was given twice"):
        policy.predict({"observation": np.ones(2), "action_mask": mask}, action_mask=mask)
    with pytest.raises(PolicyError, match="action_mask was given, but this policy was trained without action masks"):
        exported(tmp_path).predict(np.ones(3), action_mask=mask)


def _forms(masks, sizes):
    """Every form of N masks ``[N, sum(sizes)]`` that an environment may give, and of the first of them."""
    parts = [np.split(mask, np.cumsum(sizes)[:-1]) for mask in masks]
    objects = np.empty(len(masks), object)
    objects[:] = [tuple(one) for one in parts]
    columns = [np.stack(column) for column in zip(*parts, strict=True)]
    for kind in (tuple, list):
        yield kind(parts[0]), None
        yield kind(columns), len(masks)
        yield kind(kind(one) for one in parts), len(masks)
        yield kind(masks), len(masks)
    yield masks, len(masks)
    yield masks.astype(float), len(masks)
    yield objects, len(masks)
    yield masks[0].tolist(), None
    if len({*sizes}) == 1:
        yield masks.reshape(len(masks), len(sizes), -1), len(masks)
        yield masks[0].reshape(len(sizes), -1), None


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(3,), (3, 3), (3, 4)])
def test_masks_of_every_form_are_read_as_predict_reads_them(tmp_path, sizes, count):
    """Or rejected, as ``predict`` does if a sequence may be one of environments or one of components."""
    space = Dict((("observation", Box((2,))), ("action_mask", MultiBinary((sum(sizes),)))))
    policy = made(space, MultiDiscrete(sizes))
    loaded = ExportedPolicy(write_numpy(PolicyFunction(policy), tmp_path / "policy.npz"))
    rng, results = np.random.default_rng(0), []
    rows = [np.concatenate([np.eye(n, dtype=bool)[rng.integers(n)] for n in sizes]) for _ in range(count)]
    for mask, n in _forms(np.stack(rows), sizes):
        observation = np.ones(2) if n is None else np.ones((n, 2))
        try:
            expected = policy.predict(observation, action_mask=mask)[0]
        except ConfigError:
            with pytest.raises(PolicyError):
                loaded.predict(observation, action_mask=mask)
        else:
            np.testing.assert_array_equal(loaded.predict(observation, action_mask=mask)[0], expected)
            results.append(mask)
    assert len(results) >= 5


def test_a_mask_may_have_axes_for_the_components(tmp_path):
    one = np.eye(3)[[2, 0]]
    space = Dict((("observation", Box((2,))), ("action_mask", MultiBinary((2, 3)))))
    assert exported(tmp_path, space, MultiDiscrete((3, 3))).predict(np.ones(2), action_mask=one)[0].tolist() == [2, 0]
    space = Dict((("observation", Box((2,))), ("action_mask", MultiBinary((12,)))))
    policy = exported(tmp_path, space, MultiDiscrete((3,) * 4, (0,) * 4, (2, 2)))
    assert policy.predict(np.ones(2), action_mask=np.stack([one, one[::-1]]))[0].tolist() == [[2, 0], [0, 2]]
    with pytest.raises(
        PolicyError, match="action_mask is a sequence of 2 arrays, which may be the masks of 2 environments or of 2"
    ):
        exported(tmp_path, Dict((("observation", Box((2,))), ("action_mask", MultiBinary((6,))))), MultiDiscrete((3, 3))).predict(
            np.ones((2, 2)), action_mask=[np.ones((2, 3)), np.ones((2, 3))]
        )


def test_a_batch_of_one_takes_a_mask_and_wrong_shapes_raise(tmp_path):
    policy = exported(tmp_path, Dict((("observation", Box((2,))), ("action_mask", MultiBinary((3,))))), Discrete(3))
    assert policy.predict(np.ones((1, 2)), action_mask=[[0, 1, 0]])[0].tolist() == [1]
    for mask in ([1, 1], [], [[1, 1, 1, 1]], (np.ones(4),)):
        with pytest.raises(PolicyError, match=r"action_mask has the shape \(.*\): expected \(3,\), or N of them stacked"):
            policy.predict(np.ones((1, 2)) if len(mask) == 1 else np.ones(2), action_mask=mask)
    choices = exported(tmp_path, MultiDiscrete((3, 3, 3)), Discrete(3))
    with pytest.raises(PolicyError, match=r"observation has the shape \(4,\): expected \(3,\), or N of them stacked"):
        choices.predict([0, 1, 2, 0])


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_actions_have_the_type_of_the_action_space(tmp_path, dtype):
    policy = made(None, Box((2,), -1.0, 1.0, dtype))
    files = export(policy, tmp_path / "export", format="numpy", deterministic=False)  # which checks the parity, too
    export(policy, tmp_path / "greedy", format="numpy")
    loaded = ExportedPolicy(files.folder / "policy.npz")
    for sampling in ({}, {"deterministic": False, "key": 0}):
        assert loaded.predict(np.ones(3), **sampling)[0].dtype == policy.predict(np.ones(3))[0].dtype == dtype


def test_a_policy_without_memory_needs_none(tmp_path):
    policy = exported(tmp_path)
    action, memory = policy.predict(np.ones(3))
    assert memory == {}
    np.testing.assert_array_equal(action, policy.predict(np.ones(3), memory, False)[0])


def test_arguments_that_do_not_match_raise(path):
    policy, start = ExportedPolicy(path), [True] * N
    memory = policy.init_memory(N)
    for given in (None, [True, False, True]):
        with pytest.raises(
            PolicyError, match=r"memory = None with episode_start = .*, but this policy has a memory: pass memory="
        ):
            policy.predict(observation(), None, given, reward=np.zeros(N))
    with pytest.raises(PolicyError, match=r"memory is tuple: expected policy\.init_memory\(N\)"):
        policy.predict(observation(), ())
    with pytest.raises(PolicyError, match=r"episode_start has the shape \(\): expected \(3,\), one for each observation"):
        policy.predict(observation(), memory, True)
    with pytest.raises(PolicyError, match="The observation lacks its part 'level'"):
        policy.predict({k: v for k, v in observation().items() if k != "level"}, memory, start)
    with pytest.raises(PolicyError, match=r"observation.camera has the shape \(2, 2, 36, 37\): expected \(3, 2, 36, 37\)"):
        policy.predict({**observation(), "camera": observation(2)["camera"]}, memory, start)
    with pytest.raises(
        PolicyError, match=r"observation.level has the shape \(\): expected 0 axes, or 1 if observations are stacked"
    ):
        policy.predict({**observation(), "level": 3}, memory, start)
    with pytest.raises(PolicyError, match=r"observation.level is not an array of int32"):
        policy.predict({**observation(), "level": ["a", "b", "c"]}, memory, start)
    for part, given, has in (("camera", 0.5, r"0\.5"), ("camera", 256, "256"), ("level", np.nan, "nan")):
        wrong = np.full(np.shape(observation()[part]), given)
        with pytest.raises(PolicyError, match=rf"observation\.{part} (has {has}, which is not of|is not an array of) u?int"):
            policy.predict({**observation(), part: wrong}, memory, start)
    for given in (1, 6):
        with pytest.raises(
            PolicyError, match=rf"observation\.level has {given}: expected 2 to 5\. Pass the numbers of the environment"
        ):
            policy.predict({**observation(), "level": np.array([3, given, 3])}, memory, start)
    with pytest.raises(PolicyError, match=r"episode_start = .*0\.5.*: expected True where an episode begins"):
        policy.predict(observation(), memory, [0.5, 0.0, 1.0])
    with pytest.raises(PolicyError, match="reward was not given, but this policy observes it"):
        policy.predict(observation(), policy.predict(observation(), memory, start)[1])
    with pytest.raises(PolicyError, match=r"memory.0 has the shape \(2, 8\): expected \(3, 8\), for 3 environments"):
        policy.predict(observation(), policy.init_memory(2), start)
    with pytest.raises(PolicyError, match=r"The inputs lack 'memory.0': expected"):
        policy.predict(observation(), {}, start)
    with pytest.raises(PolicyError, match=r"reward has nan: expected finite numbers"):
        policy.predict(observation(), memory, reward=np.array([0.0, np.nan, 0.0]))
    for number in (0, True, "2"):
        with pytest.raises(PolicyError, match=r"num_envs = .*: expected a number of environments, 1 or more"):
            policy.init_memory(number)
    with pytest.raises(PolicyError, match="have the unknown 'hidden'"):
        policy.predict(observation(), {**memory, "hidden": 0}, start)


def test_a_fixed_batch_takes_no_other_number(path):
    policy = ExportedPolicy(changed(path, lambda program, _: program.update(batch=2)))
    with pytest.raises(PolicyError, match=r"episode_start has 3 flags: this policy was exported for 2 environments \(--batch\)"):
        policy.predict(observation(), None, [True] * N)


def test_changed_or_truncated_files_raise(path, data):
    for at in (len(data) // 3, len(data) // 2):
        path.write_bytes(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])
        with pytest.raises(PolicyError, match="is damaged"):
            ExportedPolicy(path)
        path.write_bytes(data[:at])
        with pytest.raises(PolicyError, match="is damaged"):
            ExportedPolicy(path)


def test_files_that_are_not_policies_raise(tmp_path):
    with pytest.raises(PolicyError, match=r"Cannot read .*nothing.npz"):
        ExportedPolicy(tmp_path / "nothing.npz")
    for name, content in {"text": b"hello", "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PolicyError, match="is damaged, or not a policy of proximo"):
            ExportedPolicy(tmp_path / name)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(PolicyError, match="is damaged, or not a policy of proximo"):
        ExportedPolicy(tmp_path / "array.npy")
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    with pytest.raises(PolicyError, match="it contains no program"):
        ExportedPolicy(tmp_path / "arrays.npz")


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
        with pytest.raises(PolicyError, match="is damaged, or not a policy of proximo"):
            ExportedPolicy(tmp_path / name)
    assert not (tmp_path / "harm-was-done").exists()


def _first_node(**changes):
    def change(program, _):
        node = program["nodes"][0]
        program["nodes"][0] = [changes.get("name", node[0]), changes.get("places", node[1]), changes.get("attributes", node[2])]

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p, a: p.update(version=1), "has the format version 1; this file reads version 3: use the proximo_policy.py that"),
        (lambda p, a: p.update(format="other"), "the format of its program is not 'proximo-policy'"),
        (_first_node(name="__import__"), "its operation '__import__' is unknown"),
        (_first_node(places=[10**6]), "does not have the inputs and attributes that it takes"),
        (_first_node(attributes={"function": "os.system"}), "does not have the inputs and attributes that it takes"),
        (lambda p, a: p["outputs"][0].update(value=10**6), "an output of it does not exist"),
        (lambda p, a: p["inputs"][0].update(dtype="object"), "is not described"),
        (lambda p, a: p.pop("nodes"), r"its program is incomplete \(KeyError"),
        (lambda p, a: p.update(nodes=[1]), "its program is incomplete"),
        (lambda p, a: a.pop("constant_0"), "its array constant_0 is not of shape"),
        (lambda p, a: a.update(constant_0=np.zeros((1, 2, 3))), "its array constant_0 is not of shape"),
        (lambda p, a: a.pop("initial.memory.0"), "its interface names 'memory.0', which does not exist"),
        (lambda p, a: p["interface"]["noise"][0].update(family="cauchy"), "its interface names 'cauchy'"),
        (lambda p, a: p["interface"].update(reset_memory="no"), "a flag of its interface is not true or false"),
        (
            lambda p, a: p["interface"].update(mask_sizes=[3]),
            "its action mask does not have the components that its interface lists",
        ),
        (lambda p, a: p["interface"].update(action_dtype="object"), "its actions are of 'object'"),
        (
            lambda p, a: p["interface"]["observation"][-1].update(choices=[[0], [2**63]]),
            "does not have the choices that its interface",
        ),
        (lambda p, a: a.pop("program"), "it contains no program"),
    ],
)
def test_an_incomplete_program_raises(path, change, why):
    with pytest.raises(PolicyError, match=why):
        ExportedPolicy(changed(path, change))


def test_outputs_of_another_shape_raise(path):
    def change(program, _):
        next(leaf for leaf in program["outputs"] if leaf["name"] == "value")["shape"] = [[1, 0], 2]

    policy = ExportedPolicy(changed(path, change))
    with pytest.raises(PolicyError, match=r"value has the shape \(3,\): expected \(3, 2\)"):
        policy.predict(observation(), None, [True] * N)


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
        (lambda p, a: p["interface"]["memory"].append(p["interface"]["memory"][0]), "its interface names 'memory.0'"),
        (lambda p, a: p["interface"]["memory"][0].update(output="action"), "its interface names 'memory.0'"),
        (lambda p, a: p.update(batch="three"), "its number of environments is 'three'"),
        (lambda p, a: p["inputs"][1].update(name="\x1b[31m"), r"its input or output '\\x1b\[31m' is not described"),
    ],
)
def test_loading_a_forged_program_raises(path, change, why):
    with pytest.raises(PolicyError, match=why):
        ExportedPolicy(changed(path, change))


def test_deep_nesting_and_compression_bombs_are_policy_errors(path):
    def write(name, content):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
            np.save(file, np.frombuffer(content, np.uint8))

    write("program.npy", b"[" * 10**5)
    with pytest.raises(PolicyError, match="it contains no program"):
        ExportedPolicy(path)
    write("constant_0.npy", bytes(10**8))
    with pytest.raises(PolicyError, match="its content is too large for the size of the file"):
        ExportedPolicy(path)


def test_any_program_gives_a_result_or_a_policy_error(path):
    """Runs in a subprocess, because a failure may be a crash of the interpreter."""
    script = Path(__file__).with_name("forged_programs.py")
    asked = [sys.executable, script, runtime.__file__, path, "120", "300"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    assert json.loads(done.stdout)["results"] > 100
