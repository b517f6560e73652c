"""Saving and loading the whole training state: ``checkpoints/<step>/{state.safetensors, meta.json}``, never pickle.

NumPy and safetensors are enough to read a checkpoint. ``meta.json`` describes what safetensors cannot: a random key is stored as
its uint32 data (``keys`` has its implementation), and a bfloat16 leaf as its bits in uint16 (``stored``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from proximo.errors import CheckpointError, command, shown
from proximo.serialization import jsonable, read_json
from proximo.storage.atomic_files import sync_folder, write_synced

FORMAT = "proximo-checkpoint"
VERSION = 3
STATE, META = "state.safetensors", "meta.json"
MAX_LISTED = 8

_SCHEMA = {"step": int, "files": dict, "leaves": dict, "keys": dict, "info": dict, "versions": dict}
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NATIVE = {"bool", "float16", "float32", "float64", "complex64"} | _INTEGERS


class UnsupportedVersionError(CheckpointError):
    """The checkpoint is undamaged, but was written in another version of the format."""


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"Checkpoint {path} is damaged: {why}.")


def _foreign(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is not a proximo checkpoint: {why}.")


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _name(path: tuple[Any, ...]) -> str:
    """``learner.policy.layers.0.weight``. A dictionary key that contains a dot is quoted, so that no two leaves share a name."""
    parts = [jax.tree_util.keystr((key,), simple=True) for key in path]
    return ".".join(part if re.fullmatch(r'[^."]+', part) else json.dumps(part) for part in parts) or "value"


def flatten(tree: Any) -> dict[str, Any]:
    """The arrays of ``tree`` (or their ShapeDtypeStructs) by dotted name. Python values and functions are omitted."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves if _is_array(leaf)}


def _encode(state: Any) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, str]]:
    """The arrays as safetensors can store them, their description, and the implementations of the random keys."""
    leaves = flatten(state)
    keys = {n: str(jax.random.key_impl(leaf)) for n, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)}
    data = jax.device_get({name: jax.random.key_data(leaf) if name in keys else leaf for name, leaf in leaves.items()})
    stored, described = {}, {}
    for name, leaf in leaves.items():
        array = np.asarray(data[name], order="C")
        dtype = array.dtype.name
        if dtype not in _NATIVE:
            if array.dtype.itemsize > 2 or array.dtype.kind == "S":
                raise TypeError(f"{name} has the type {array.dtype}, which a checkpoint cannot store.")
            array = array.view(f"uint{8 * array.dtype.itemsize}")
        stored[name] = array
        described[name] = {"dtype": "key" if name in keys else dtype, "shape": list(leaf.shape), "stored": array.dtype.name}
    return stored, described, keys


def _render(meta: Mapping[str, Any]) -> bytes:
    return (json.dumps(meta, indent=1, sort_keys=True) + "\n").encode()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def save(folder: Path, step: int, state: Any, info: Mapping[str, Any]) -> Path:
    """Write ``folder/<step>`` so that a crash at any moment leaves a valid checkpoint. The caller must hold the lock of the run.

    Args:
        folder: folder of all checkpoints of a run, ``RUN/checkpoints``.
        step: number of environment steps learned from; the name of the checkpoint.
        state: any pytree of arrays.
        info: anything that JSON can store; NaN and infinity become null.

    Returns:
        Path of the checkpoint.

    Raises:
        CheckpointError: the disk is full, or the folder cannot be written.
        TypeError: an array has a type that safetensors cannot store.
    """
    arrays, leaves, keys = _encode(state)
    data = safetensors.numpy.save(arrays)
    content = {
        "format": FORMAT, "format_version": VERSION, "step": int(step), "info": jsonable(info), "leaves": leaves, "keys": keys,
        "files": {STATE: {"sha256": _hash(data), "size": len(data)}},
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
    }  # fmt: skip
    meta = _render({**content, "sha256": _hash(_render(content))})
    temporary, final = folder / f".saving-{step}-{os.getpid()}", folder / str(step)
    try:
        folder.mkdir(exist_ok=True)  # without parents: a removed run directory is not created again
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        write_synced(temporary / STATE, data)
        write_synced(temporary / META, meta)
        sync_folder(temporary)
        _install(temporary, final)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or error
        kept = "earlier checkpoints are intact" if steps(folder) else "there is no earlier one"
        raise CheckpointError(
            f"Cannot write checkpoint {final} ({reason}): {kept}. Free space, or check the permissions of the folder."
        ) from error
    return final


def _install(temporary: Path, final: Path) -> None:
    """Rename the finished ``temporary`` to ``final``. A folder cannot be replaced in one step, so an old one is set aside first."""
    old = final.with_name(f".replaced-{final.name}")
    while temporary.exists():
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(final, old)
        try:
            os.rename(temporary, final)
        except OSError:
            # A reader between the two renames has restored the old one: try again.
            if not final.exists():
                raise
    sync_folder(final.parent)
    sync_folder(final.parent.parent)
    shutil.rmtree(old, ignore_errors=True)


def steps(folder: Path) -> list[int]:
    """The steps of all checkpoints in ``folder``, in ascending order. Restores a checkpoint whose replacement was interrupted."""
    for old in folder.glob(".replaced-*"):
        final = folder / old.name.removeprefix(".replaced-")
        # The rename fails if another reader was faster, or this user has no permission to write.
        with contextlib.suppress(OSError):
            if not final.exists():
                os.rename(old, final)
    return sorted(int(path.name) for path in folder.glob("*") if re.fullmatch("0|[1-9][0-9]*", path.name) and path.is_dir())


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A checkpoint that was read and verified once. Nothing here reads the disk again."""

    path: Path
    step: int
    """Environment steps learned from."""
    info: dict[str, Any]
    """What ``save`` was given: in a run ``total_steps``, ``best``, ``evaluation`` and, with callbacks, ``callbacks``."""
    leaves: dict[str, dict[str, Any]]
    """``dtype``, ``shape`` and ``stored`` (the type in the file) of each array, by its dotted name."""
    keys: dict[str, str]
    """The implementation of each random key, by its dotted name."""
    files: dict[str, bytes]
    """The content of both files, by name."""

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    @property
    def best(self) -> dict[str, Any] | None:
        """Step and ``return_mean`` of the best evaluation so far; None before the first. Raises ``CheckpointError`` if it is invalid."""
        return self._summary("best", int | float)

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The last evaluation; None before the first. Raises ``CheckpointError`` if it is invalid."""
        return self._summary("evaluation", int | float | None)  # None stands for NaN

    def _summary(self, name: str, of_return: Any) -> dict[str, Any] | None:
        summary = self.info.get(name)
        if summary is not None and not (
            isinstance(summary, dict)
            and type(summary.get("step")) is int
            and 0 <= summary["step"] < 2**63
            and isinstance(summary.get("return_mean", ""), of_return)
        ):
            raise _foreign(self.path, f"its {name} is {shown(summary)}, expected the summary of an evaluation")
        return summary

    def restore(self, template: Any, part: str = "") -> Any:
        """The saved state in the structure of ``template``.

        Args:
            template: pytree whose leaves are arrays, random keys or ShapeDtypeStructs. Everything else in the result (functions,
                static fields) comes from it.
            part: dotted name of a part of the state, such as ``learner.policy``; the whole state by default.

        Returns:
            A pytree like ``template``: NumPy arrays where ``template`` has NumPy arrays, JAX arrays elsewhere.

        Raises:
            CheckpointError: the names, shapes or types are not those of ``template``.
        """
        prefix = f"{part}." if part else ""
        needed = {prefix + name: leaf for name, leaf in flatten(template).items()}
        missing = [name for name in needed if name not in self.leaves]
        unexpected = [name for name in self.leaves if name.startswith(prefix) and name not in needed]
        if missing or unexpected:
            lists = (("lacks", missing), ("has the unexpected", unexpected))
            parts = [f"{what} {names[0]!r} ({len(names)} in all)" for what, names in lists if names]
            raise CheckpointError(
                f"Checkpoint {self.path} does not fit these settings: it {' and '.join(parts)}. It was probably "
                "made with other network settings (encoder, hidden_sizes, memory) or another environment: use the config.yaml of its run."
            )
        try:
            arrays = safetensors.numpy.load(self.files[STATE])
            values = {name: self._decode(name, arrays[name], leaf) for name, leaf in needed.items()}
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:  # another program wrote the file
            raise _foreign(self.path, f"{STATE} does not match {META} ({type(error).__name__}: {error})") from error
        return jax.tree_util.tree_map_with_path(
            lambda where, leaf: values[prefix + _name(where)] if _is_array(leaf) else leaf, template
        )

    def _decode(self, name: str, array: np.ndarray, template: Any) -> Any:
        """One array of the same kind as ``template`` (NumPy or JAX). Raises ``CheckpointError`` if shape or type differ."""
        dtype = self.leaves[name]["dtype"]
        if name in self.keys:
            value = jax.random.wrap_key_data(jnp.array(array), impl=self.keys[name])
        elif isinstance(template, np.ndarray | np.generic):
            value = np.array(array).view(jnp.dtype(dtype))
        else:
            value = jnp.array(array.view(jnp.dtype(dtype)))
        for what, found, needed in (("shape", value.shape, template.shape), ("type", value.dtype, template.dtype)):
            if found != needed:
                raise CheckpointError(
                    f"Checkpoint {self.path}: {name} has the {what} {found}, these settings need {needed}. It was probably made with "
                    "other network settings, another environment or another num_envs: use the config.yaml of its run."
                )
        return value


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and verify every byte of it.

    Args:
        path: folder of the checkpoint, ``RUN/checkpoints/<step>``.

    Raises:
        CheckpointError: it is missing, damaged, written by another program, or in another version of the format.
    """
    if not path.is_dir():
        others = ", ".join(str(step) for step in steps(path.parent)) or "none"
        raise CheckpointError(f"There is no checkpoint {path}; the steps saved in {path.parent}: {others}.")
    try:
        raw = (path / META).read_bytes()
    except OSError as error:
        raise _foreign(path, f"cannot read {META} ({error.strerror})") from error
    meta = _checked_meta(path, raw)
    expected = meta["files"][STATE]
    try:
        data = (path / STATE).read_bytes()
    except OSError as error:
        raise _damaged(path, f"cannot read {STATE} ({error.strerror})") from error
    if len(data) != expected["size"]:
        raise _damaged(path, f"{STATE} has {len(data)} bytes, expected {expected['size']}")
    actual = _hash(data)
    if actual != expected["sha256"]:
        raise _damaged(path, f"{STATE} has the sha256 {actual}, expected {expected['sha256']}")
    return Checkpoint(path, meta["step"], meta["info"], meta["leaves"], meta["keys"], {META: raw, STATE: data})


def _checked_meta(path: Path, raw: bytes) -> dict[str, Any]:
    """The content of ``meta.json``. Raises ``CheckpointError`` unless it is undamaged, ours, and in the version that this code reads."""
    try:
        content = read_json(raw)
        rendered = _render(content)
    except ValueError as error:
        raise _damaged(path, f"{META} is not valid JSON ({error})") from error
    if not isinstance(content, dict) or (content.get("format") != FORMAT and "sha256" not in content):
        raise _foreign(path, f"{META} does not contain the format {FORMAT!r}, so another program wrote it")
    expected = content.pop("sha256", "none")
    actual = _hash(_render(content))
    # The second test finds what JSON ignores, such as the spaces between values.
    if actual != expected or rendered != raw:
        raise _damaged(path, f"the content of {META} has the sha256 {actual}, expected {expected}")
    if content.get("format") != FORMAT:
        raise _foreign(path, f"its format is {shown(content.get('format'))}, expected {FORMAT!r}")
    if content.get("format_version") != VERSION:
        raise UnsupportedVersionError(
            f"Checkpoint {path} has the format version {shown(content.get('format_version'))}, but this proximo reads version {VERSION}: "
            "load it with the proximo that wrote it (system.json of the run has its version), or train again."
        )
    wrong = [key for key, kind in _SCHEMA.items() if not isinstance(content.get(key), kind)]
    if wrong or STATE not in content["files"]:
        raise _foreign(path, f"{META} lacks {', '.join(wrong) or STATE}")
    if not _is_described(content):
        raise _foreign(path, f"{META} does not describe its leaves and {STATE}")
    if path.name.isdecimal() and content["step"] != int(path.name):
        raise _damaged(path, f"it was saved as step {content['step']}, and its folder was renamed: restore the name")
    others = [name for name in content["files"] if name != STATE]
    if others:  # a checkpoint of a stranger must not choose which files this process reads
        raise _foreign(path, f"{META} names {shown(others[0])}, expected {STATE} alone")
    return content


def _is_described(content: dict[str, Any]) -> bool:
    """Whether file and leaves are described as ``save`` does it."""
    state = content["files"][STATE]
    leaves = content["leaves"].values()
    return (
        isinstance(state, dict)
        and isinstance(state.get("size"), int)
        and isinstance(state.get("sha256"), str)
        and all(isinstance(leaf, dict) and isinstance(leaf.get("dtype"), str) for leaf in leaves)
        and all(name in content["leaves"] and isinstance(kind, str) for name, kind in content["keys"].items())
    )


def load_newest(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The newest valid checkpoint in ``folder``, and a warning for each newer one that was skipped.

    Raises:
        CheckpointError: there is no valid checkpoint (training never starts from scratch silently), or the newest undamaged one
            is in another version of the format.
    """
    saved = steps(folder)[::-1]
    if not saved:
        raise CheckpointError(
            f"There is no checkpoint in {folder}: none was saved yet. Wait, or if no process trains it, go on with: "
            f"{command('proximo', 'train', '--resume', folder.parent)}"
        )
    damages: list[str] = []
    for step in saved:
        try:
            return load(folder / str(step)), [f"{damage} It was skipped." for damage in damages]
        except UnsupportedVersionError:
            raise  # it is undamaged: skipping it would lose everything learned since the one before
        except CheckpointError as error:
            damages.append(re.sub("([0-9a-f]{12})[0-9a-f]{52}", r"\1…", str(error)))
    if len(saved) == 1:
        raise CheckpointError(f"There is no valid checkpoint in {folder}. {damages[0]} Start a new run.")
    listed = ", ".join(map(str, saved[:MAX_LISTED])) + (", …" if len(saved) > MAX_LISTED else "")
    newest = f"{folder / str(saved[0])} is "
    reason = damages[0].removeprefix(f"Checkpoint {newest}damaged: ").removeprefix(newest).rstrip(".")
    raise CheckpointError(
        f"There is no valid checkpoint in {folder}: all {len(saved)} are damaged ({listed}; the newest: {reason}). Start a new run."
    )
