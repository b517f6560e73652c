"""Checkpoints: states are restored bit for bit, damage always raises, and a crash at any moment loses nothing that was saved."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from made_runs import save_checkpoint
from proximo.errors import CheckpointError
from proximo.storage import checkpoint, checkpoint_format, retention, run_directory, run_lookup, save_run

SRC = Path(checkpoint.__file__).parents[2]


class Cell(eqx.Module):
    weight: jax.Array
    activation: object
    size: int = eqx.field(static=True)


class State(eqx.Module):
    cells: tuple[Cell, ...]
    extra: dict[str, object]
    key: jax.Array
    keys: jax.Array


class Crash(BaseException):
    """The process ends here: no handler of ours may count on running."""


def make_state(seed: int, size: int = 3) -> State:
    draw = jax.random.key(seed)
    cells = tuple(Cell(jax.random.normal(jax.random.fold_in(draw, i), (size, 2)), jnp.tanh, size) for i in range(2))
    extra = {
        "bf16": jax.random.normal(draw, (5,), jnp.bfloat16),
        "steps": jnp.array([2**32 - 1, seed], jnp.uint32),
        "healthy": jnp.array(seed % 2 == 0),
        "scalar": jnp.float32(seed) + 0.1,
        "empty": jnp.zeros((0, 4)),
        "pixels": jnp.arange(6, dtype=jnp.uint8).reshape(2, 3),
        "host": np.array([1e-300, np.pi, np.nan]),
        "transposed": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "a.b": jnp.ones(1),
        "a": {"b": jnp.zeros(1)},
        "nothing": None,
    }
    return State(cells, extra, jax.random.fold_in(draw, 7), jax.random.split(jax.random.key(seed, impl="rbg"), 3))


def raw(tree: object) -> dict[str, tuple[str, tuple, bytes]]:
    """Each leaf as type, shape and bytes: equal only when the bits are."""

    def bits(leaf):
        data = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        return str(leaf.dtype), leaf.shape, np.asarray(data).tobytes()

    return {name: bits(leaf) for name, leaf in checkpoint.flatten(tree).items()}


def constant(value: int) -> dict[str, np.ndarray]:
    """A state whose every element tells which save it is from."""
    return {"a": np.full(50, value), "b": np.full((3, 4), value, np.float32)}


def flip(path: Path, byte: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def test_every_kind_of_array_is_restored_bit_for_bit(tmp_path):
    state = make_state(4)
    path = save_checkpoint(tmp_path, 12, state, {})
    loaded = checkpoint.load(path).restore(make_state(5))
    assert path == tmp_path / "12"
    assert raw(loaded) == raw(state)
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    assert isinstance(loaded.extra["host"], np.ndarray)
    assert isinstance(loaded.extra["scalar"], jax.Array)


def test_restored_keys_draw_the_same_numbers(tmp_path):
    state = make_state(4)
    loaded = checkpoint.load(save_checkpoint(tmp_path, 1, state, {})).restore(make_state(5))
    assert str(jax.random.key_impl(loaded.keys)) == "rbg"
    assert (jax.random.uniform(loaded.key, (4,)) == jax.random.uniform(state.key, (4,))).all()


def test_static_parts_come_from_the_template(tmp_path):
    state = make_state(4)
    template = eqx.filter_eval_shape(make_state, 0)
    loaded = checkpoint.load(save_checkpoint(tmp_path, 1, state, {})).restore(template)
    assert isinstance(checkpoint.flatten(template)["key"], jax.ShapeDtypeStruct)
    assert raw(loaded)["key"] == raw(state)["key"]
    assert raw(loaded)["extra.bf16"] == raw(state)["extra.bf16"]
    assert loaded.cells[1].activation is jnp.tanh
    assert loaded.cells[1].size == 3


def test_restored_numpy_array_is_writable(tmp_path):
    loaded = checkpoint.load(save_checkpoint(tmp_path, 1, constant(3), {})).restore(constant(0))
    loaded["a"][0] = 9
    assert loaded["a"][:2].tolist() == [9, 3]


def test_names_of_arrays_are_dotted_and_distinct():
    names = list(checkpoint.flatten(make_state(0)))
    assert "cells.1.weight" in names
    assert "extra.a.b" in names
    assert 'extra."a.b"' in names
    assert not any("activation" in name or "size" in name for name in names)
    assert list(checkpoint.flatten(jnp.ones(2))) == ["value"]


def test_array_of_unsupported_type_raises(tmp_path):
    with pytest.raises(TypeError, match=r"^wide has the type complex128"):
        save_checkpoint(tmp_path, 1, {"wide": np.ones(2, np.complex128)}, {})
    assert checkpoint.steps(tmp_path) == []


def test_metadata_describes_the_arrays_and_stores_info(tmp_path):
    path = save_checkpoint(tmp_path, 7, make_state(1), {"return": float("nan"), "steps": np.int64(7), "note": {"a": [1.5]}})
    saved = checkpoint.load(path)
    assert saved.step == 7
    assert saved.info == {"return": None, "steps": 7, "note": {"a": [1.5]}}
    assert saved.leaves["extra.bf16"] == {"dtype": "bfloat16", "shape": [5], "stored": "uint16"}
    assert saved.leaves["keys"] == {"dtype": "key", "shape": [3], "stored": "uint32"}
    assert saved.keys == {"key": "threefry2x32", "keys": "rbg"}
    assert json.loads(saved.files[checkpoint.META])["versions"] == {"jax": jax.__version__, "numpy": np.__version__}


def test_numpy_and_safetensors_are_enough_to_read(tmp_path):
    state = make_state(3)
    path = save_checkpoint(tmp_path, 1, state, {})
    program = """
        import json, sys, hashlib
        from safetensors.numpy import load_file
        folder = sys.argv[1]
        meta = json.load(open(folder + "/meta.json"))
        arrays = load_file(folder + "/state.safetensors")
        digest = hashlib.sha256(open(folder + "/state.safetensors", "rb").read()).hexdigest()
        assert digest == meta["files"]["state.safetensors"]["sha256"]
        assert set(arrays) == set(meta["leaves"])
        assert all(arrays[name].dtype.name == leaf["stored"] for name, leaf in meta["leaves"].items())
        print(json.dumps({"jax": "jax" in sys.modules, "weight": arrays["cells.0.weight"].tolist()}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), path], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"jax": False, "weight": np.asarray(state.cells[0].weight).tolist()}


def test_equal_states_make_equal_files(tmp_path):
    paths = [save_checkpoint(tmp_path / name, 1, make_state(2), {"a": 1}) for name in ("one", "two")]
    for name in (checkpoint.STATE, checkpoint.META):
        assert (paths[0] / name).read_bytes() == (paths[1] / name).read_bytes()


def test_any_flipped_bit_of_the_metadata_raises(tmp_path):
    path = save_checkpoint(tmp_path, 1, constant(1), {"note": "x y"})
    good = (path / checkpoint.META).read_bytes()
    for byte in range(0, len(good), 3):
        flip(path / checkpoint.META, byte, byte % 8)
        with pytest.raises(CheckpointError):
            checkpoint.load(path)
        (path / checkpoint.META).write_bytes(good)
    checkpoint.load(path)


def test_any_flipped_bit_of_the_state_raises_with_both_hashes(tmp_path):
    path = save_checkpoint(tmp_path, 1, constant(1), {})
    expected = checkpoint_format._sha256(checkpoint.load(path).files[checkpoint.STATE])
    for byte in range(0, (path / checkpoint.STATE).stat().st_size, 7):
        flip(path / checkpoint.STATE, byte, byte % 8)
        with pytest.raises(CheckpointError, match=rf"state.safetensors has the sha256 [0-9a-f]{{64}}, expected {expected}"):
            checkpoint.load(path).restore(constant(0))
        flip(path / checkpoint.STATE, byte, byte % 8)
    checkpoint.load(path)


def test_truncated_and_missing_files_raise(tmp_path):
    path = save_checkpoint(tmp_path, 1, constant(1), {})
    state, meta = path / checkpoint.STATE, path / checkpoint.META
    whole = state.read_bytes()
    state.write_bytes(whole[:100])
    with pytest.raises(CheckpointError, match=f"state.safetensors has 100 bytes, expected {len(whole)}"):
        checkpoint.load(path)
    state.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read state.safetensors"):
        checkpoint.load(path)
    meta.write_bytes(meta.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match=r"meta.json is not valid JSON"):
        checkpoint.load(path)


def test_spaces_added_to_the_metadata_raise(tmp_path):
    path = save_checkpoint(tmp_path, 1, constant(1), {})
    meta = path / checkpoint.META
    meta.write_bytes(meta.read_bytes().replace(b": ", b":  ", 1))
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(path)


def rewrite_meta(path: Path, **changes: object) -> None:
    """Change meta.json and make its own hash right again: what another program would have written."""
    content = json.loads((path / checkpoint.META).read_bytes())
    content.pop("sha256")
    content.update(changes)
    content["sha256"] = checkpoint_format._sha256(checkpoint_format._render(content))
    (path / checkpoint.META).write_bytes(checkpoint_format._render(content))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "orbax"}, "not a proximo checkpoint: its format is 'orbax'"),
        ({"leaves": None}, "not a proximo checkpoint: meta.json lacks leaves"),
        (
            {"files": {"state.safetensors": {"size": 1, "sha256": ""}, "../../etc/passwd": {}}},
            r"names '../../etc/passwd', expected state.safetensors alone",
        ),
        ({"files": {"state.safetensors": 3}}, "does not describe its leaves"),
        ({"keys": {"none": "threefry2x32"}}, "does not describe its leaves"),
        ({"files": {}}, "not a proximo checkpoint: meta.json lacks state.safetensors"),
    ],
)
def test_files_of_other_programs_raise_another_error_than_damage(tmp_path, changes, words):
    path = save_checkpoint(tmp_path, 1, constant(1), {})
    rewrite_meta(path, **changes)
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(path)


@pytest.mark.parametrize("text", ['{"model": "other"}', "[1, 2]", '{"a": NaN}'])
def test_json_of_another_program_raises(tmp_path, text):
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "meta.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"not a proximo checkpoint: meta.json does not contain the format"):
        checkpoint.load(tmp_path / "5")


def test_missing_checkpoint_raises_with_the_existing_steps(tmp_path):
    for step in (100, 20):
        save_checkpoint(tmp_path, step, constant(step), {})
    with pytest.raises(CheckpointError, match=r"no checkpoint .*/7; the steps saved in .*: 20, 100\."):
        checkpoint.load(tmp_path / "7")


def test_missing_and_unexpected_arrays_raise_with_likely_cause(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"a": np.ones(2), "lstm": np.ones(2)}, {})
    with pytest.raises(CheckpointError, match=r"lacks 'gru' \(1 in all\) and has the unexpected 'lstm' .*other network settings"):
        checkpoint.load(path).restore({"a": np.ones(2), "gru": np.ones(2)})


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"a": jnp.ones((3, 2)), "key": jax.random.key(0)}, r"a has the shape \(2,\), these settings need \(3, 2\)"),
        ({"a": jnp.ones(2, jnp.bfloat16), "key": jax.random.key(0)}, "a has the type float32, these settings need bfloat16"),
        ({"a": jnp.ones(2), "key": jax.random.key(0, impl="rbg")}, r"key has the type key<fry>, these settings need key<rbg>"),
        ({"a": jnp.ones(2), "key": jnp.ones(2, jnp.uint32)}, r"key has the (shape|type)"),
        ({"a": jax.random.key(0), "key": jax.random.key(0)}, "a has the shape"),
    ],
)
def test_wrong_shape_or_type_raises(tmp_path, template, words):
    path = save_checkpoint(tmp_path, 1, {"a": jnp.ones(2), "key": jax.random.key(0)}, {})
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(path).restore(template)


def test_steps_are_sorted_as_numbers(tmp_path):
    for step in (100, 9, 20):
        save_checkpoint(tmp_path, step, constant(step), {})
    for name in (".saving-300-1", "007", "notes", "-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "400").write_text("a file")
    assert checkpoint.steps(tmp_path) == [9, 20, 100]
    assert checkpoint.steps(tmp_path / "nowhere") == []


def test_load_newest_skips_damaged_ones_with_warnings(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, constant(step), {})
    flip(tmp_path / "3" / checkpoint.STATE, 300, 1)
    (tmp_path / "2" / checkpoint.META).unlink()
    found, warnings = run_lookup.load_newest(tmp_path)
    assert found.path == tmp_path / "1"
    assert len(warnings) == 2
    assert re.search(r"/3 is damaged: .* sha256 [0-9a-f]{12}…, expected [0-9a-f]{12}…\. It was skipped\.$", warnings[0])
    assert "/2 is not a proximo checkpoint" in warnings[1]


def test_renamed_checkpoint_is_skipped_for_a_valid_one(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path, step, constant(step), {})
    (tmp_path / "2").rename(tmp_path / "30")
    found, (warning,) = run_lookup.load_newest(tmp_path)
    assert found.path == tmp_path / "1"
    assert "/30 is damaged: it was saved as step 2, and its folder was renamed: restore the name. It was skipped." in warning
    (tmp_path / "30").rename(tmp_path / "best")
    assert checkpoint.load(tmp_path / "best").step == 2, "a name that is no step claims none"


@pytest.mark.parametrize("depth", [500, 5_000, 200_000])
def test_deeply_nested_metadata_is_damage(tmp_path, depth):
    for step in (1, 2):
        save_checkpoint(tmp_path, step, constant(step), {})
    (tmp_path / "2" / checkpoint.META).write_text('{"format": "proximo-checkpoint", "info": ' + "[" * depth + "]" * depth + "}")
    found, (warning,) = run_lookup.load_newest(tmp_path)
    assert found.path == tmp_path / "1"
    assert "/2 is damaged" in warning


def test_no_valid_checkpoint_raises(tmp_path):
    with pytest.raises(CheckpointError) as raised:
        run_lookup.load_newest(tmp_path / "r" / "checkpoints")
    assert str(raised.value) == (
        f"There is no checkpoint in {tmp_path}/r/checkpoints: none was saved yet. Wait, or if no process trains it, go on "
        f"with: proximo train --resume {tmp_path}/r"
    )
    save_checkpoint(tmp_path, 1, constant(1), {})
    flip(tmp_path / "1" / checkpoint.STATE, 300, 1)
    with pytest.raises(CheckpointError, match=r"no valid checkpoint in .*/1 is damaged"):
        run_lookup.load_newest(tmp_path)


def test_many_damaged_checkpoints_raise_one_short_sentence(tmp_path):
    for step in (1, 20, 3):
        save_checkpoint(tmp_path, step, constant(step), {})
        flip(tmp_path / str(step) / checkpoint.STATE, 300, 1)
    with pytest.raises(CheckpointError) as raised:
        run_lookup.load_newest(tmp_path)
    assert re.fullmatch(
        rf"There is no valid checkpoint in {tmp_path}: all 3 are damaged \(20, 3, 1; the newest: state.safetensors has the sha256 "
        r"[0-9a-f]{12}…, expected [0-9a-f]{12}…\). Start a new run.",
        str(raised.value),
    )
    (tmp_path / "20" / checkpoint.META).unlink()
    with pytest.raises(
        CheckpointError, match=r"\(20, 3, 1; the newest: not a proximo checkpoint: cannot read meta.json \(No such file"
    ):
        run_lookup.load_newest(tmp_path)
    for step in range(100, 110):
        (tmp_path / str(step)).mkdir()
    with pytest.raises(CheckpointError, match=r"all 13 are damaged \(109, 108, 107, 106, 105, 104, 103, 102, …; the newest"):
        run_lookup.load_newest(tmp_path)


def crash_at(monkeypatch, count: int, error: type[BaseException]) -> None:
    """Let the ``count``-th call that reaches the disk raise instead, and every later one too."""
    calls = {"n": 0}

    def dying(real):
        def call(*args, **kwargs):
            calls["n"] += 1
            if calls["n"] >= count:
                raise error(28, "No space left on device")
            return real(*args, **kwargs)

        return call

    for name in ("rename", "replace", "fsync", "mkdir"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))


@pytest.mark.parametrize("error", [Crash, OSError])
@pytest.mark.parametrize("step", [1, 2])
def test_crash_at_any_disk_operation_leaves_a_valid_checkpoint(tmp_path, monkeypatch, step, error):
    finished, count = False, 0
    while not finished:
        count += 1
        folder = tmp_path / str(count)
        save_checkpoint(folder, 1, constant(1), {})
        with monkeypatch.context() as patched:
            crash_at(patched, count, error)
            try:
                save_checkpoint(folder, step, constant(2), {})
                finished = True
            except (Crash, CheckpointError):
                pass
        saved, warnings = run_lookup.load_newest(folder)
        assert warnings == []
        found = saved.restore(constant(0))["a"]
        assert found[0] == (2 if finished else found[0])
        assert (found == found[0]).all()
        assert found[0] in (1, 2)
        # The next process goes on as if nothing had happened.
        save_checkpoint(folder, step, constant(3), {})
        retention.prune(folder, keep=1, protect=set())
        assert [path.name for path in folder.iterdir()] == [str(step)]
        assert checkpoint.load(folder / str(step)).restore(constant(0))["a"][0] == 3
    assert count > 6


def test_full_disk_raises_and_leaves_no_files(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, 1, constant(1), {})
    with monkeypatch.context() as patched:
        crash_at(patched, 4, OSError)
        with pytest.raises(CheckpointError, match=r"Cannot write checkpoint .*/2 \(No space left on device\)"):
            save_checkpoint(tmp_path, 2, constant(2), {})
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_kill_while_saving_keeps_the_last_valid_checkpoint(tmp_path):
    # One process imports JAX and forks the savers before any backend has started its threads.
    program = """
        import mmap, os, random, signal, struct, sys, time
        from pathlib import Path
        import numpy as np
        from proximo.storage import checkpoint
        from proximo.storage.checkpoint_format import encode
        rng, folder, counter = random.Random(0), Path(sys.argv[1]), mmap.mmap(-1, 8)
        state = lambda value: {"a": np.full(50_000, value), "b": np.full(3, value)}
        saved = lambda: struct.unpack("q", counter[:])[0]
        parent, kinds, trials, begin = os.getpid(), set(), 0, time.monotonic()
        checkpoint.write(folder, 0, encode(0, state(0), {"value": 0}))
        one_save = time.monotonic() - begin
        # At least one kill must have fallen into a save, or nothing is tested.
        while trials < 3 or ".saving" not in kinds or (trials < 20 and time.monotonic() - begin < 4):
            trials, goal = trials + 1, saved() + 2
            child = os.fork()
            if child == 0:
                value = saved()
                while os.getppid() == parent:
                    value += 1
                    checkpoint.write(folder, value % 3, encode(value % 3, state(value), {"value": value}))
                    counter[:] = struct.pack("q", value)
                os._exit(0)
            while saved() < goal:
                assert os.waitpid(child, os.WNOHANG) == (0, 0), "the saving process ended by itself"
                time.sleep(0.0005)
            time.sleep(rng.uniform(0, one_save))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            kinds |= {path.name.split("-")[0] for path in folder.glob(".*")}
            values = []
            for step in checkpoint.steps(folder):
                found = checkpoint.load(folder / str(step))
                loaded = found.restore(state(0))
                values.append(found.info["value"])
                assert (loaded["a"] == values[-1]).all() and (loaded["b"] == values[-1]).all()
            assert {saved(), saved() - 1} <= set(values), (saved(), values)
    """
    environment = {**os.environ, "PYTHONPATH": str(SRC), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "checkpoints")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr


def test_checkpoint_contains_no_pickle(tmp_path):
    path = save_checkpoint(tmp_path, 1, make_state(1), {})
    assert sorted(file.name for file in path.iterdir()) == [checkpoint.META, checkpoint.STATE]
    assert set(safetensors.numpy.load_file(path / checkpoint.STATE)) == set(checkpoint.load(path).leaves)
    for module in (checkpoint, run_directory):
        assert "import pickle" not in Path(module.__file__).read_text()


@pytest.mark.parametrize("version", [1, 3, 6])
def test_checkpoint_of_another_format_version_raises_one_sentence(tmp_path, version):
    for step in (1, 2):
        path = save_checkpoint(tmp_path, step, constant(step), {})
    rewrite_meta(path, format_version=version)
    for load in (lambda: checkpoint.load(path), lambda: run_lookup.load_newest(tmp_path)):  # never skipped for an older one
        with pytest.raises(CheckpointError) as raised:
            load()
        assert str(raised.value) == (
            f"Checkpoint {path} has the format version {version}, but this proximo reads versions 4 to 5: load it with the proximo that "
            "wrote it (system.json of the run has its version), or train again."
        )


def test_policy_alone_is_read_from_the_earlier_format(tmp_path):
    tree = {"learner": {"policy": {"a": np.arange(3.0)}, "steps": np.zeros(2)}}
    path = save_checkpoint(tmp_path, 1, tree)
    rewrite_meta(path, format_version=4)
    saved = checkpoint.load(path)
    np.testing.assert_array_equal(saved.restore({"a": np.zeros(3)}, part=checkpoint.POLICY)["a"], np.arange(3.0))
    with pytest.raises(
        CheckpointError, match="has the format version 4, of which this proximo can only use the policy: train again"
    ):
        saved.restore(tree)


def test_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, 5, constant(1))
    read = checkpoint.read

    def replaced_first(path):
        monkeypatch.setattr(checkpoint, "read", read)
        save_checkpoint(tmp_path, 5, constant(2))
        raise CheckpointError("damaged")

    monkeypatch.setattr(checkpoint, "read", replaced_first)
    assert (checkpoint.load(tmp_path / "5").restore(constant(0))["a"] == 2).all()


def test_pointer_to_a_missing_checkpoint_removes_no_other(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path / "checkpoints", step, constant(step))
    (tmp_path / "checkpoints" / checkpoint.CURRENT).write_text("3")
    save_run.finish(tmp_path)
    assert checkpoint.steps(tmp_path / "checkpoints") == [1, 2]
