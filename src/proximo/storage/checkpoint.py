"""Checkpoints, ``RUN/checkpoints/<step>/``: the whole training state, without pickle; and which of them stay.

A checkpoint has ``state.safetensors``, ``meta.json`` and, unless it was published, a copy of ``config.yaml``.
``docs/checkpoints.md`` describes them. Whoever writes or removes checkpoints must hold the lock of the run.
"""

import contextlib
import hashlib
import json
import operator
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from proximo.errors import CheckpointError, shown
from proximo.serialization import JsonObject, dump_json, read_json
from proximo.storage.atomic_files import remove, remove_folder, sync_folder, write_atomic, write_synced
from proximo.types import is_key

FORMAT = "proximo-checkpoint"
VERSION = 5
"""Raise it when a leaf of ``TrainState`` is added, removed or renamed."""
STATE, META, CONFIG = "state.safetensors", "meta.json", "config.yaml"
POLICY = "learner.policy"
"""Dotted name of the policy in a training state."""
HYPERPARAMETERS = "learner.hyperparameters."  # they are not stored, but come from config.yaml
NEW, ONLY = ".new", ".only"
"""Endings of the folder of a checkpoint that replaces the one of the same step, or all others, until these are removed."""
OF_ANOTHER_FORMAT = (KeyError, TypeError, ValueError, AttributeError, safetensors.SafetensorError)
"""What reading a file raises that another program wrote."""


class UnsupportedVersionError(CheckpointError):
    """The checkpoint is undamaged, but was written in another version of the format."""


def leaf_name(path: tuple[Any, ...]) -> str:
    """``learner.policy.layers.0.weight``. A key with a dot is quoted, so that no two leaves share a name."""
    parts = [jax.tree_util.keystr((key,), simple=True) for key in path]
    return ".".join(part if re.fullmatch(r'[^."]+', part) else json.dumps(part) for part in parts) or "value"


def flatten(tree: Any) -> dict[str, Any]:
    """The arrays of ``tree`` (or their ShapeDtypeStructs) that a checkpoint stores, by dotted name."""
    leaves = [(leaf_name(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    arrays = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)
    return {n: leaf for n, leaf in leaves if isinstance(leaf, arrays) and not n.startswith(HYPERPARAMETERS)}


def encode(step: int, state: Any, info: Mapping[str, Any], config: str | None = None) -> dict[str, bytes]:
    """The content of the files of a checkpoint, by name, after ``step`` environment steps.

    ``info`` is anything that JSON can store (NaN becomes null), ``config`` the text of ``config.yaml``.
    """
    leaves = flatten(state)
    keys = {n: str(jax.random.key_impl(x)) for n, x in leaves.items() if is_key(x)}
    data = jax.device_get({n: jax.random.key_data(x) if n in keys else x for n, x in leaves.items()})
    stored, described = {}, {}
    for name, array in data.items():
        dtype = array.dtype
        bits = f"uint{8 * dtype.itemsize}" if dtype.kind == "V" else dtype  # of bfloat16
        stored[name] = np.asarray(array, order="C").view(bits)
        types = {"dtype": "key" if name in keys else dtype.name, "stored": stored[name].dtype.name}
        described[name] = {**types, "shape": list(leaves[name].shape)}
    files = {STATE: safetensors.numpy.save(stored)} | ({} if config is None else {CONFIG: config.encode()})
    meta = {
        "format": FORMAT, "format_version": VERSION, "step": int(step), "info": info,
        "leaves": described, "keys": keys, "files": {name: described_file(data) for name, data in files.items()},
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
    }  # fmt: skip
    return {**files, META: signed(meta)}


def described_file(data: bytes) -> JsonObject:
    """Hash and size of a file, as ``meta.json`` and ``proximo.json`` list them."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def signed(meta: Mapping[str, Any]) -> bytes:
    """The text of ``meta.json``. The hash in it is the one of the text without it."""
    sha256 = hashlib.sha256(dump_json(meta, sort_keys=True).encode()).hexdigest()
    return dump_json({**meta, "sha256": sha256}, sort_keys=True).encode()


def write(folder: Path, step: int, files: Mapping[str, bytes], ending: str = "") -> Path:
    """Write the ``files`` that ``encode`` has made to ``RUN/checkpoints/<step>``, with the ``ending`` ``ONLY`` if no other checkpoint
    counts from then on. A crash at any moment leaves a valid checkpoint. Raises ``CheckpointError`` if it cannot be written."""
    temporary, final = folder / f".saving-{step}-{os.getpid()}", folder / str(step)
    try:
        folder.mkdir(exist_ok=True)  # without parents: a removed run directory is not created again
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, content in files.items():
            write_synced(temporary / name, content)
        sync_folder(temporary)
        _finish_replacements(folder)
        # From here on, this checkpoint counts.
        os.rename(temporary, folder / f"{step}{ending or (NEW if final.exists() else '')}")
        sync_folder(folder)
        _finish_replacements(folder)
        sync_folder(folder.parent)  # folder itself may be new
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        kept = "earlier checkpoints are intact" if steps(folder) else "there is no earlier one"
        raise CheckpointError(
            f"Cannot write checkpoint {final} ({error.strerror}): {kept}. Free space, or check the permissions of the folder."
        ) from error
    return final


def _finish_replacements(folder: Path) -> None:
    for new in folder.glob(f"*{NEW}"):
        old = new.with_suffix("")
        if old.exists():
            remove_folder(old)
        os.rename(new, old)


def in_effect(path: Path) -> Path:
    """The folder of the checkpoint ``path``, or its replacement if there is one."""
    replacements = (path.with_name(path.name + ending) for ending in (ONLY, NEW))
    return next((found for found in replacements if found.is_dir()), path)


def only_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that replaces all others in ``folder``: an agent is being saved, or its save was interrupted."""
    return next(folder.glob(f"*{ONLY}"), None)


def steps(folder: Path) -> list[int]:
    """The steps of all checkpoints in ``folder`` that count, in ascending order."""
    only = only_checkpoint(folder)
    names = [path.name for path in ([only] if only else folder.glob("[0-9]*")) if path.is_dir()]
    found = {name.removesuffix(ONLY).removesuffix(NEW) for name in names}
    return sorted(int(name) for name in found if re.fullmatch("0|[1-9][0-9]*", name))


def keep(folder: Path, kept: Collection[int | None]) -> list[int]:
    """Remove what interrupted saves have left, and all checkpoints but those of the steps ``kept``. Returns the removed steps."""
    _finish_replacements(folder)
    for leftover in folder.glob(".*"):
        with contextlib.suppress(OSError):
            remove(leftover)
    removed = [step for step in steps(folder) if step not in kept]
    for step in reversed(removed):  # so that a kill in between leaves a prefix of the run
        remove_folder(folder / str(step))
    return removed


def mark_best(run_dir: Path, step: int | None) -> None:
    """Write ``checkpoints/<step>`` into the file ``RUN/best``; for None, remove it."""
    if step is None:
        (run_dir / "best").unlink(missing_ok=True)
    else:
        write_atomic(run_dir / "best", f"checkpoints/{step}\n")


def best_step(run_dir: Path) -> int | None:
    """The step that ``RUN/best`` names; None without it. Raises ``CheckpointError`` if it is damaged."""
    best = run_dir / "best"
    if not best.is_file():
        return None
    target = best.read_text(errors="replace").strip()
    if (step := re.fullmatch(r"checkpoints/(\d{1,20})", target)) is None:
        raise CheckpointError(f"{best} is damaged: it names {shown(target)}, expected checkpoints/<step>.")
    return int(step[1])


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and verified once. Nothing here reads the disk again."""

    path: Path
    step: int
    """Environment steps learned from."""
    info: JsonObject = field(repr=False)
    """The ``info`` of ``encode``. In a run: ``best`` and ``evaluation`` (None before the first), ``evaluation_steps``
    and ``callbacks``."""
    meta: JsonObject = field(repr=False)
    """The content of ``meta.json``."""
    files: dict[str, bytes] = field(repr=False)
    """The content of ``state.safetensors`` and ``meta.json``, by name."""

    @property
    def policy_only(self) -> bool:
        """Whether it has the networks and their normalizer, and no other part of the training state."""
        return all(name.startswith(f"{POLICY}.") for name in self.meta["leaves"])

    def restore(self, template: Any, part: str = "") -> Any:
        """The saved state, or a ``part`` of it such as ``POLICY``, as a pytree like ``template``: with NumPy arrays where
        it has NumPy arrays, JAX arrays elsewhere. All that is no array (functions, static fields) comes from ``template``.

        Raises ``CheckpointError`` if names, shapes or types differ.
        """
        prefix = f"{part}." if part else ""
        values, needed = self.values(prefix), {prefix + n: leaf for n, leaf in flatten(template).items()}
        found, expected = ({n: f"{x.dtype}{list(x.shape)}" for n, x in arrays.items()} for arrays in (values, needed))
        if wrong := [name for name in sorted(found.keys() | expected) if found.get(name) != expected.get(name)]:
            first, none = wrong[0], "no array"
            raise CheckpointError(
                f"Checkpoint {self.path} does not fit these settings: {first} is {found.get(first, none)}, expected "
                f"{expected.get(first, none)} ({len(wrong)} differ). It was probably made with other network settings (encoder, "
                "hidden_sizes, memory), another environment or another num_envs: use the config.yaml of its run."
            )

        def restored(at: Any, leaf: Any) -> Any:
            value = values.get(prefix + leaf_name(at), leaf)
            if not isinstance(value, np.ndarray):
                return value
            # A copy, because what was read cannot be written to.
            return (np.array if isinstance(leaf, np.ndarray | np.generic) else jnp.array)(value)

        return jax.tree_util.tree_map_with_path(restored, template)

    def values(self, prefix: str) -> dict[str, Any]:
        """The NumPy arrays and random keys whose names begin with ``prefix``. Raises ``CheckpointError`` if there is
        none, if they differ from ``meta.json``, or if the evaluations in ``info`` are not numbers."""
        try:
            for summary in filter(None, (self.info.get("best"), self.info.get("evaluation"))):
                _ = operator.index(summary["step"]) + float(summary["return_mean"] or 0)
            _ = operator.index(self.info.get("evaluation_steps", 0))
            arrays, keys, values = safetensors.numpy.load(self.files[STATE]), self.meta["keys"], {}
            for name, leaf in self.meta["leaves"].items():
                if name.startswith(prefix):
                    if name in keys:
                        values[name] = jax.random.wrap_key_data(jnp.array(arrays[name]), impl=keys[name])
                    else:
                        values[name] = arrays[name].view(jnp.dtype(leaf["dtype"]))
                    if list(values[name].shape) != leaf["shape"]:
                        raise ValueError(f"{name} has the shape {values[name].shape}")
            if not values:
                raise KeyError(prefix)
        except OF_ANOTHER_FORMAT as error:
            raise _damaged(self.path, f"{STATE} does not match {META} ({type(error).__name__}: {error})") from error
        return values


def load(path: Path) -> Checkpoint:
    """Read the checkpoint ``RUN/checkpoints/<step>`` and verify every byte of it. Raises ``CheckpointError`` if it is missing,
    damaged, or in another format."""
    try:
        return _read(in_effect(path))
    except CheckpointError:
        return _read(in_effect(path))  # it may have been replaced while it was read


def _read(path: Path) -> Checkpoint:
    if not path.is_dir():
        others = ", ".join(map(str, steps(path.parent))) or "none"
        raise CheckpointError(f"{path.parents[1]} has no checkpoint of step {path.name}; it has {others}.")
    try:
        files = {name: (path / name).read_bytes() for name in (META, STATE)}
        meta = read_json(files[META])
        del meta["sha256"]
        version = meta["format_version"] if meta["format"] == FORMAT else "of another program"
        step, info = operator.index(meta["step"]), meta["info"]
        if signed(meta) != files[META]:
            raise _damaged(path, f"{META} does not match its own sha256")
        for name in [STATE, *([CONFIG] if CONFIG in meta["files"] and (path / CONFIG).is_file() else [])]:
            actual = described_file(files.get(name) or (path / name).read_bytes())["sha256"]
            if actual != (expected := meta["files"][name]["sha256"]):
                raise _damaged(path, f"{name} has the sha256 {actual}, expected {expected}")
    except OSError as error:
        raise _damaged(path, f"cannot read {Path(error.filename or STATE).name} ({error.strerror})") from error
    except OF_ANOTHER_FORMAT as error:
        raise _damaged(path, f"{META} was not written by proximo ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise UnsupportedVersionError(
            f"Checkpoint {path} has the format version {shown(version)}, but this proximo reads version {VERSION}: load it with the "
            "proximo that wrote it (system.json of the run has its version), or train again."
        )
    if re.fullmatch(r"\d+(\.\w+)?", path.name) and step != int(path.stem):
        raise _damaged(path, f"it was saved as step {step}, and its folder was renamed: restore the name")
    return Checkpoint(path, step, info, meta, files)


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"Checkpoint {path} is damaged: {why}.")
