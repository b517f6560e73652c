"""Checkpoints are restored bit for bit; damage always raises; a failure at any moment loses nothing that was saved."""

import hashlib
import json
import os
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from made_runs import flip, save_checkpoint
from proximo.config import Config
from proximo.errors import CheckpointError
from proximo.storage import checkpoint, run_lookup


class Cell(eqx.Module):
    weight: jax.Array
    activation: object
    size: int = eqx.field(static=True)


class State(eqx.Module):
    cells: tuple[Cell, ...]
    extra: dict[str, object]
    key: jax.Array
    keys: jax.Array


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


@pytest.mark.parametrize("of_shapes", [False, True])
def test_every_kind_of_array_is_restored_bit_for_bit(tmp_path, of_shapes):
    state, template = make_state(4), make_state(5)
    if of_shapes:
        template = jax.tree.map(lambda x: jax.eval_shape(lambda: x) if isinstance(x, jax.Array) else x, template)
    path = save_checkpoint(tmp_path, 12, state, {})
    loaded = checkpoint.load(path).restore(template)
    assert path == tmp_path / "12"
    assert raw(loaded) == raw(state)
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    assert loaded.cells[1].activation is jnp.tanh, "static parts come from the template"
    assert isinstance(loaded.extra["scalar"], jax.Array)
    assert str(jax.random.key_impl(loaded.keys)) == "rbg"
    assert (jax.random.uniform(loaded.key, (4,)) == jax.random.uniform(state.key, (4,))).all()


def test_metadata_describes_the_arrays_so_that_numpy_and_safetensors_can_read_them(tmp_path):
    state = make_state(1)
    path = save_checkpoint(tmp_path, 7, state, {"return": float("nan"), "steps": np.int64(7), "note": {"a": [1.5]}})
    assert sorted(file.name for file in path.iterdir()) == [checkpoint.META, checkpoint.STATE]
    meta, arrays = json.loads((path / checkpoint.META).read_text()), safetensors.numpy.load_file(path / checkpoint.STATE)
    assert set(arrays) == set(meta["leaves"]) >= {"cells.1.weight", "extra.a.b", 'extra."a.b"'}
    assert not any("activation" in name or "size" in name for name in arrays)
    assert all(arrays[name].dtype.name == leaf["stored"] for name, leaf in meta["leaves"].items())
    np.testing.assert_array_equal(arrays["cells.0.weight"], state.cells[0].weight)
    assert (meta["step"], meta["info"]) == (7, {"return": None, "steps": 7, "note": {"a": [1.5]}})
    assert meta["leaves"]["extra.bf16"] == {"dtype": "bfloat16", "shape": [5], "stored": "uint16"}
    assert meta["leaves"]["keys"] == {"dtype": "key", "shape": [3], "stored": "uint32"}
    assert meta["keys"] == {"key": "threefry2x32", "keys": "rbg"}
    assert meta["versions"] == {"jax": jax.__version__, "numpy": np.__version__}
    assert hashlib.sha256((path / checkpoint.STATE).read_bytes()).hexdigest() == meta["files"][checkpoint.STATE]["sha256"]
    assert list(checkpoint.flatten(jnp.ones(2))) == ["value"]


@pytest.mark.parametrize(("name", "every"), [(checkpoint.META, 3), (checkpoint.STATE, 7)])
def test_any_flipped_bit_raises(tmp_path, name, every):
    path = save_checkpoint(tmp_path, 1, constant(1), {"note": "x y"}) / name
    good = path.read_bytes()
    for byte in range(0, len(good), every):
        flip(path, byte, byte % 8)
        with pytest.raises(CheckpointError):
            checkpoint.load(path.parent)
        path.write_bytes(good)
    checkpoint.load(path.parent)


def rewrite_meta(path: Path, **changes: object) -> None:
    """Change meta.json and make its own hash right again: what another program would have written."""
    content = json.loads((path / checkpoint.META).read_bytes())
    content.pop("sha256")
    content.update(changes)
    (path / checkpoint.META).write_bytes(checkpoint.signed(content))


NEWER = (
    "Checkpoint {} has the format version {}, but this proximo reads version 5: load it with the proximo that wrote it (system.json of the run "
    "has its version), or train again."
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: (path / checkpoint.STATE).unlink(), r"is damaged: cannot read state\.safetensors \(No such file"),
        (lambda path: (path / checkpoint.META).unlink(), r"is damaged: cannot read meta\.json \(No such file"),
        (lambda path: os.truncate(path / checkpoint.STATE, 99), "state.safetensors has the sha256 [0-9a-f]{64}, expected"),
        (lambda path: os.truncate(path / checkpoint.META, 99), r"meta\.json was not written by proximo \(ValueError"),
        (lambda path: flip(path / checkpoint.META, -9, 0), "meta.json does not match its own sha256"),
        (lambda path: (path / checkpoint.META).write_text('{"model": "other"}'), r"not written by proximo \(KeyError: 'sha256'"),
        (lambda path: (path / checkpoint.META).write_text("[1, 2]"), "not written by proximo"),
        (lambda path: (path / checkpoint.META).write_text("[" * 200_000 + "]" * 200_000), "not written by proximo"),
        (lambda path: rewrite_meta(path, files={}), r"not written by proximo \(KeyError: 'state.safetensors'"),
        (lambda path: rewrite_meta(path, format="orbax"), "has the format version 'of another program'"),
        (lambda path: rewrite_meta(path, format_version=4), re.escape(NEWER.format("", 4)[12:])),
        (lambda path: rewrite_meta(path, format_version=6), re.escape(NEWER.format("", 6)[12:])),
        (lambda path: rewrite_meta(path, keys={"a": "mersenne"}), "state.safetensors does not match meta.json"),
        (lambda path: rewrite_meta(path, leaves={"a": {}, "b": {}}), "state.safetensors does not match meta.json"),
        (lambda path: path.rename(path.with_name("3")), "has no checkpoint of step 1; it has 3, 20"),
    ],
)
def test_each_fault_of_a_checkpoint_raises_one_sentence(tmp_path, change, words):
    save_checkpoint(tmp_path, 20, constant(1))
    path = save_checkpoint(tmp_path, 1, constant(1))
    change(path)
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(path).restore(constant(0))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"a": jnp.ones((3, 2)), "key": jax.random.key(0)}, r"a is float32\[2\], expected float32\[3, 2\] \(1 differ\)"),
        ({"a": jnp.ones(2, jnp.bfloat16), "key": jax.random.key(0)}, r"a is float32\[2\], expected bfloat16\[2\]"),
        ({"a": jnp.ones(2), "key": jax.random.key(0, impl="rbg")}, r"key is key<fry>\[\], expected key<rbg>\[\]"),
        ({"a": jax.random.key(0), "key": jnp.ones(2, jnp.uint32)}, r"a is float32\[2\], expected key<fry>\[\] \(2 differ\)"),
        (
            {"a": jnp.ones(2), "gru": jnp.ones(2)},
            r"gru is no array, expected float32\[2\] \(2 differ\)\. .*other network settings",
        ),
        ({"a": jnp.ones(2)}, r"key is key<fry>\[\], expected no array \(1 differ\)\. .*other network settings"),
    ],
)
def test_an_array_that_does_not_fit_the_settings_raises(tmp_path, template, words):
    path = save_checkpoint(tmp_path, 1, {"a": jnp.ones(2), "key": jax.random.key(0)}, {})
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(path).restore(template)


def test_the_newest_valid_checkpoint_is_loaded_with_a_warning_for_each_newer_one(tmp_path):
    assert checkpoint.steps(tmp_path / "checkpoints") == []
    for which in ("last", "best"):
        with pytest.raises(CheckpointError) as raised:
            run_lookup.find_checkpoint(tmp_path, which, Config())
        assert str(raised.value) == (
            f"There is no checkpoint in {tmp_path}/checkpoints: none was saved yet. Wait, or if no process trains it, go on "
            f"with: proximo train --resume {tmp_path}"
        )
    folder = tmp_path / "checkpoints"
    for step in (100, 9, 20):
        save_checkpoint(folder, step, constant(step), {})
    for name in (".saving-300-1", "007", "notes", "-3"):
        (folder / name).mkdir()
    (folder / "400").write_text("a file")
    assert checkpoint.steps(folder) == [9, 20, 100]
    save_checkpoint(folder, 101, constant(1))
    rewrite_meta(folder / "101", format_version=6)
    with pytest.raises(CheckpointError, match=re.escape(NEWER.format(folder / "101", 6))):  # never skipped
        run_lookup.load_newest(folder)
    checkpoint.keep(folder, [9, 20, 100])
    flip(folder / "100" / checkpoint.STATE, 300, 1)
    (folder / "20" / checkpoint.META).unlink()
    found, warnings = run_lookup.load_newest(folder)
    assert found.path == folder / "9"
    assert len(warnings) == 2
    assert re.search(r"/100 is damaged: .* sha256 [0-9a-f]{12}…, expected [0-9a-f]{12}…\. It was skipped\.$", warnings[0])
    assert "/20 is damaged: cannot read meta.json" in warnings[1]
    flip(folder / "9" / checkpoint.STATE, 300, 1)
    with pytest.raises(CheckpointError, match=r"no valid checkpoint among the 3 in .*/100 is damaged: .*Start a new run\."):
        run_lookup.load_newest(folder)


@pytest.mark.parametrize("step", [1, 2])
def test_disk_error_at_any_operation_leaves_a_valid_checkpoint(tmp_path, monkeypatch, step):
    finished, count, operations = False, 0, ("rename", "replace", "fsync", "mkdir")
    while not finished:
        count += 1
        folder, left = tmp_path / str(count), iter(range(count, 0, -1))
        save_checkpoint(folder, 1, constant(1), {})

        def failing(real, left=left):
            def call(*args, **kwargs):
                if next(left, 1) == 1:
                    raise OSError(28, "No space left on device")
                return real(*args, **kwargs)

            return call

        with monkeypatch.context() as patched:
            for name in operations:
                patched.setattr(os, name, failing(getattr(os, name)))
            try:
                save_checkpoint(folder, step, constant(2), {})
                finished = True
            except CheckpointError as error:
                message = str(error)
        saved, warnings = run_lookup.load_newest(folder)
        assert warnings == []
        found = set(saved.restore(constant(0))["a"])
        assert found in ({2},) if finished else found in ({1}, {2})
        assert not list(folder.glob(".saving*"))
        # The next save goes on as if nothing had happened.
        save_checkpoint(folder, step, constant(3), {})
        checkpoint.keep(folder, [step])
        assert [path.name for path in folder.iterdir()] == [str(step)]
        assert checkpoint.load(folder / str(step)).restore(constant(0))["a"][0] == 3
    assert count > 6
    assert re.search(rf"Cannot write checkpoint .*/{step} \(No space left on device\): earlier checkpoints are intact", message)


def test_only_what_is_not_needed_is_removed(tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (1, 2, 3, 4, 5):
        save_checkpoint(folder, step, constant(step))
    for name in (".saving-6-99", ".removing-0", ".removing-5"):
        (folder / name).mkdir()
    assert checkpoint.keep(folder, {1, 4, 5, 77}) == [2, 3]
    assert sorted(path.name for path in folder.iterdir()) == ["1", "4", "5"]
    assert checkpoint.keep(folder, [1, None]) == [4, 5]
    assert checkpoint.steps(folder) == [1]


def test_best_is_a_file_that_names_the_checkpoint(tmp_path):
    assert checkpoint.best_step(tmp_path) is None
    for step in (3, 12):
        checkpoint.mark_best(tmp_path, step)
        assert (tmp_path / "best").read_text() == f"checkpoints/{step}\n"
        assert checkpoint.best_step(tmp_path) == step
    (tmp_path / "best").write_text("../elsewhere")
    with pytest.raises(CheckpointError, match=r"best is damaged: it names '../elsewhere', expected checkpoints/<step>"):
        checkpoint.best_step(tmp_path)
