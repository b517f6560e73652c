"""The whole training state on disk: ``checkpoints/<step>/{state.safetensors, meta.json}``, never pickle.

NumPy and safetensors alone can read it. ``meta.json`` describes what safetensors cannot say: a random key is stored as
its uint32 data (the implementation stands under ``keys``), a bfloat16 leaf as its bits in uint16 (``stored``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from proximo.errors import CheckpointError, command, shown
from proximo.run.files import plain, sync_folder, write_synced
from proximo.serialization import read_json

FORMAT = "proximo-checkpoint"
VERSION = 2
STATE, META = "state.safetensors", "meta.json"
MOST_LISTED = 8

_SCHEMA = {"step": int, "files": dict, "leaves": dict, "keys": dict, "info": dict, "versions": dict}
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NATIVE = {"bool", "float16", "float32", "float64", "complex64"} | _INTEGERS


class UnsupportedVersionError(CheckpointError):
    """The checkpoint is whole, and another version of proximo's."""


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"Checkpoint {path} is damaged: {why}.")


def _foreign(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is not a proximo checkpoint: {why}.")


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(path: tuple[Any, ...]) -> str:
    """``learner.policy.layers.0.weight``; a dictionary's key with a dot in it is quoted, so that no two leaves share a name."""
    parts = [str(next(getattr(key, a) for a in ("name", "idx", "key") if hasattr(key, a))) for key in path]
    return ".".join(part if re.fullmatch(r'[^."]+', part) else json.dumps(part) for part in parts) or "value"


def flatten(tree: Any) -> dict[str, Any]:
    """The arrays of ``tree`` (ShapeDtypeStructs too) by dotted name; Python values and functions are left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves if _is_array(leaf)}


def _encode(state: Any) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, str]]:
    """The leaves as safetensors can hold them, their description, and the implementations of the random keys."""
    leaves = flatten(state)
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in leaves.items() if _is_key(leaf)}
    data = jax.device_get({name: jax.random.key_data(leaf) if name in keys else leaf for name, leaf in leaves.items()})
    stored, described = {}, {}
    for name, leaf in leaves.items():
        array = np.asarray(data[name], order="C")
        described[name] = {"dtype": "key" if name in keys else array.dtype.name, "shape": list(leaf.shape)}
        if array.dtype.name not in _NATIVE:
            if array.dtype.itemsize > 2 or array.dtype.kind == "S":
                raise TypeError(f"{name} has the type {array.dtype}, which a checkpoint cannot hold.")
            array = array.view(f"uint{8 * array.dtype.itemsize}")
        described[name]["stored"] = array.dtype.name
        stored[name] = array
    return stored, described, keys


def _render(meta: Mapping[str, Any]) -> bytes:
    return (json.dumps(meta, indent=1, sort_keys=True) + "\n").encode()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def save(folder: Path, step: int, state: Any, info: Mapping[str, Any]) -> Path:
    """Write ``folder/<step>`` so that a crash at any moment leaves a valid checkpoint. The caller holds the run's lock.

    ``state`` is any pytree of arrays, ``info`` what JSON can hold (NaN becomes null). Returns the checkpoint's path.
    Raises ``CheckpointError`` when the disk is full or cannot be written to.
    """
    arrays, leaves, keys = _encode(state)
    data = safetensors.numpy.save(arrays)
    content = {
        "format": FORMAT, "format_version": VERSION, "step": int(step), "info": plain(info), "leaves": leaves, "keys": keys,
        "files": {STATE: {"sha256": _hash(data), "size": len(data)}},
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
    }  # fmt: skip
    meta = _render({**content, "sha256": _hash(_render(content))})
    temporary, final = folder / f".saving-{step}-{os.getpid()}", folder / str(step)
    try:
        folder.mkdir(exist_ok=True)  # without parents: a removed run folder is not created again
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
    """Give the finished ``temporary`` its name. A folder cannot be replaced in one step: the old one waits beside it."""
    old = final.with_name(f".replaced-{final.name}")
    while temporary.exists():
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(final, old)
        try:
            os.rename(temporary, final)
        except OSError:
            # A reader that saw the gap between the two renames has put the old one back: once more.
            if not final.exists():
                raise
    sync_folder(final.parent)
    sync_folder(final.parent.parent)
    shutil.rmtree(old, ignore_errors=True)


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint in ``folder``, ascending; one whose replacement was cut short is put back first."""
    for old in folder.glob(".replaced-*"):
        final = folder / old.name.removeprefix(".replaced-")
        # The rename fails where another reader was faster, or this user may not write.
        with contextlib.suppress(OSError):
            if not final.exists():
                os.rename(old, final)
    return sorted(int(path.name) for path in folder.glob("*") if re.fullmatch("0|[1-9][0-9]*", path.name) and path.is_dir())


def _read_meta(path: Path) -> dict[str, Any]:
    """``meta.json``, proven to be undamaged, ours, and of a version that this code reads."""
    if not path.is_dir():
        others = ", ".join(str(step) for step in steps(path.parent)) or "none"
        raise CheckpointError(f"There is no checkpoint {path}; the steps saved in {path.parent}: {others}.")
    try:
        raw = (path / META).read_bytes()
    except OSError as error:
        raise _foreign(path, f"cannot read {META} ({error.strerror})") from error
    try:
        content = read_json(raw)
        rendered = _render(content)
    except ValueError as error:
        raise _damaged(path, f"{META} is not valid JSON ({error})") from error
    if not isinstance(content, dict) or (content.get("format") != FORMAT and "sha256" not in content):
        raise _foreign(path, f"{META} does not say format {FORMAT!r}, something else wrote it")
    expected = content.pop("sha256", "none")
    actual = _hash(_render(content))
    # The second test is for what JSON does not see, such as the spaces between values.
    if actual != expected or rendered != raw:
        raise _damaged(path, f"the content of {META} has the sha256 {actual}, expected {expected}")
    if content.get("format") != FORMAT:
        raise _foreign(path, f"its format is {shown(content.get('format'))}, expected {FORMAT!r}")
    if content.get("format_version") != VERSION:
        raise UnsupportedVersionError(
            f"Checkpoint {path} has the unsupported format version {shown(content.get('format_version'))}; this proximo reads "
            f"version {VERSION}: use the proximo that wrote it."
        )
    wrong = [key for key, kind in _SCHEMA.items() if not isinstance(content.get(key), kind)]
    if wrong or STATE not in content["files"]:
        raise _foreign(path, f"{META} lacks {', '.join(wrong) or STATE}")
    if not _is_described(content):
        raise _foreign(path, f"{META} does not describe its leaves and {STATE}")
    if path.name.isdecimal() and content["step"] != int(path.name):
        raise _damaged(path, f"it was saved as step {content['step']}, and its folder was renamed: restore the name")
    elsewhere = [name for name in content["files"] if name != STATE]
    if elsewhere:  # a checkpoint that comes from others must not have this process read what it likes
        raise _foreign(path, f"{META} names {shown(elsewhere[0])}, expected {STATE} alone")
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


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    """``meta.json`` and the bytes of the state, all files checked."""
    meta = _read_meta(path)
    expected = meta["files"][STATE]
    try:
        if (path / STATE).stat().st_size != expected["size"]:
            raise _damaged(path, f"{STATE} has {(path / STATE).stat().st_size} bytes, expected {expected['size']}")
        data = (path / STATE).read_bytes()
    except OSError as error:
        raise _damaged(path, f"cannot read {STATE} ({error.strerror})") from error
    actual = _hash(data)
    if actual != expected["sha256"]:
        raise _damaged(path, f"{STATE} has the sha256 {actual}, expected {expected['sha256']}")
    return meta, data


def verify(path: Path) -> dict[str, Any]:
    """Check every file of a checkpoint and return its metadata (``step``, ``info``, ``leaves`` …).

    Raises ``CheckpointError`` when it is missing, damaged, not ours, or of an unsupported version.
    """
    return _read(path)[0]


def read_summary(path: Path, name: str) -> dict[str, Any] | None:
    """The summary of an evaluation in a checkpoint; None before the first evaluation.

    Args:
        path: folder of the checkpoint.
        name: ``best`` or ``evaluation`` (the last one).

    Raises:
        CheckpointError: the checkpoint is damaged, or the entry is not a summary of an evaluation.
    """
    summary = verify(path)["info"].get(name)
    if summary is not None and not (
        isinstance(summary, dict)
        and type(summary.get("step")) is int
        and 0 <= summary["step"] < 2**63
        and isinstance(summary.get("mean_return", ""), int | float if name == "best" else int | float | None)  # None: NaN
    ):
        raise _foreign(path, f"its {name} is {shown(summary)}, expected the summary of an evaluation")
    return summary


def _decode(name: str, array: np.ndarray, meta: Mapping[str, Any], template: Any, path: Path) -> Any:
    """One leaf in the kind of the template's (NumPy or JAX). Raises ``CheckpointError`` when shape or type differ."""
    described = meta["leaves"][name]
    if name in meta["keys"]:
        value = jax.random.wrap_key_data(jnp.array(array), impl=meta["keys"][name])
    elif isinstance(template, np.ndarray | np.generic):
        value = np.array(array).view(jnp.dtype(described["dtype"]))
    else:
        value = jnp.array(array.view(jnp.dtype(described["dtype"])))
    for what, found, needed in (("shape", value.shape, template.shape), ("type", value.dtype, template.dtype)):
        if found != needed:
            raise CheckpointError(
                f"Checkpoint {path}: {name} has the {what} {found}, these settings need {needed}. It was probably made with "
                "other network settings, another environment or another num_envs: use the config.yaml of its run."
            )
    return value


def load(path: Path, template: Any, part: str = "") -> Any:
    """The saved state in the structure of ``template``, whose leaves are arrays, random keys or ShapeDtypeStructs; of it
    only the ``part`` that has this dotted name, where one is given.

    What is not an array (functions, static fields) comes from the template. Raises ``CheckpointError`` when the
    checkpoint is damaged, or its names, shapes or types are not the template's.
    """
    meta, data = _read(path)
    prefix = f"{part}." if part else ""
    needed = {prefix + name: leaf for name, leaf in flatten(template).items()}
    missing = [name for name in needed if name not in meta["leaves"]]
    unexpected = [name for name in meta["leaves"] if name.startswith(prefix) and name not in needed]
    if missing or unexpected:
        lists = (("lacks", missing), ("has, beyond them,", unexpected))
        parts = [f"{what} {names[0]!r} ({len(names)} in all)" for what, names in lists if names]
        raise CheckpointError(
            f"Checkpoint {path} does not hold the leaves that these settings need: it {' and '.join(parts)}. It was probably "
            "made with other network settings (encoder, hidden_sizes, memory) or another environment: use its run's config.yaml."
        )
    try:
        arrays = safetensors.numpy.load(data)
        values = {name: _decode(name, arrays[name], meta, leaf, path) for name, leaf in needed.items()}
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:  # what another program has written
        raise _foreign(path, f"{STATE} is not what {META} says ({type(error).__name__}: {error})") from error
    return jax.tree_util.tree_map_with_path(
        lambda where, leaf: values[prefix + _name(where)] if _is_array(leaf) else leaf, template
    )


def newest_valid(folder: Path) -> tuple[Path, list[str]]:
    """The newest undamaged checkpoint, and a warning for each newer one that was passed over.

    Raises ``CheckpointError`` when there is none: training never starts from scratch silently.
    """
    saved = steps(folder)[::-1]
    if not saved:
        raise CheckpointError(
            f"There is no checkpoint in {folder}: none was saved yet. Wait, or where it does not train any more, go on with: "
            f"{command('proximo', 'train', '--resume', folder.parent)}"
        )
    damages: list[str] = []
    for step in saved:
        path = folder / str(step)
        try:
            verify(path)
        except UnsupportedVersionError:
            raise  # it is whole: passing over it would lose what came after
        except CheckpointError as error:
            damages.append(re.sub("([0-9a-f]{12})[0-9a-f]{52}", r"\1…", str(error)))
            continue
        return path, [f"{damage} It was passed over." for damage in damages]
    if len(saved) == 1:
        raise CheckpointError(f"There is no valid checkpoint in {folder}. {damages[0]} Start a new run.")
    listed = ", ".join(map(str, saved[:MOST_LISTED])) + (", …" if len(saved) > MOST_LISTED else "")
    newest = f"{folder / str(saved[0])} is "
    reason = damages[0].removeprefix(f"Checkpoint {newest}damaged: ").removeprefix(newest).rstrip(".")
    raise CheckpointError(
        f"There is no valid checkpoint in {folder}: all {len(saved)} are damaged ({listed}; the newest: {reason}). Start a new run."
    )
