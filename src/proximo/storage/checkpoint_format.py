"""The files of a checkpoint, ``state.safetensors`` and ``meta.json``: encoding a state, and verifying what was read. The third one, a copy of
``config.yaml``, is the settings of the run when it was saved; a published checkpoint does not have it.

NumPy and safetensors are enough to read a checkpoint. ``meta.json`` describes what safetensors cannot: a random key is stored as
its uint32 data (``keys`` has its implementation), and a bfloat16 leaf as its bits in uint16 (``stored``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from proximo.errors import CheckpointError, shown
from proximo.serialization import jsonable, read_json

FORMAT = "proximo-checkpoint"
VERSION = 5
"""Raise it when a leaf of ``TrainState`` is added, removed or renamed."""
READABLE = (4, VERSION)
"""Of version 4, which has no hash and no copy of the settings, only policies are read: its training states have other leaves."""
STATE, META, CONFIG = "state.safetensors", "meta.json", "config.yaml"
REPLACEMENT = ".new"
"""Ending of the folder of a checkpoint that replaces one of the same step, until that one is removed."""

_SCHEMA = {"step": int, "files": dict, "leaves": dict, "keys": dict, "info": dict, "versions": dict}
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NATIVE = {"bool", "float16", "float32", "float64", "complex64"} | _INTEGERS


class SavedConfig(NamedTuple):
    """The settings that a checkpoint stores."""

    text: str
    """The content of ``config.yaml``."""
    sha256: str
    """Hash of the settings that a resume may not change."""


class UnsupportedVersionError(CheckpointError):
    """The checkpoint is undamaged, but was written in another version of the format."""


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"Checkpoint {path} is damaged: {why}.")


def foreign(path: Path, why: str) -> CheckpointError:
    """The error for files that another program wrote."""
    return CheckpointError(f"{path} is not a proximo checkpoint: {why}.")


def is_stored(name: str) -> bool:
    """Whether a checkpoint stores the array ``name``. Hyperparameters are settings: they come from ``config.yaml``."""
    return not name.startswith("learner.hyperparameters.")


def leaf_name(path: tuple[Any, ...]) -> str:
    """``learner.policy.layers.0.weight``. A dictionary key that contains a dot is quoted, so that no two leaves share a name."""
    parts = [jax.tree_util.keystr((key,), simple=True) for key in path]
    return ".".join(part if re.fullmatch(r'[^."]+', part) else json.dumps(part) for part in parts) or "value"


def flatten(tree: Any) -> dict[str, Any]:
    """The arrays of ``tree`` (or their ShapeDtypeStructs) that a checkpoint stores, by dotted name."""
    leaves = [(leaf_name(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    arrays = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)
    return {name: leaf for name, leaf in leaves if isinstance(leaf, arrays) and is_stored(name)}


def encode(step: int, state: Any, info: Mapping[str, Any], config: SavedConfig | None = None) -> dict[str, bytes]:
    """The content of the files of a checkpoint, by name.

    Args:
        step: environment steps learned from.
        state: any pytree of arrays.
        info: anything that JSON can store; NaN and infinity become null.
        config: the settings of the run.

    Raises:
        TypeError: an array has a type that safetensors cannot store.
    """
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
    tensors = safetensors.numpy.save(stored)
    meta = {
        "format": FORMAT, "format_version": VERSION, "step": int(step), "info": jsonable(info), "leaves": described, "keys": keys,
        "files": {STATE: {"sha256": _sha256(tensors), "size": len(tensors)}},
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
        **({"settings": config.sha256} if config else {}),
    }  # fmt: skip
    files = {STATE: tensors, META: _render({**meta, "sha256": _sha256(_render(meta))})}
    return files if config is None else {**files, CONFIG: config.text.encode()}


def _render(meta: Mapping[str, Any]) -> bytes:
    return (json.dumps(meta, indent=1, sort_keys=True) + "\n").encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The content of ``meta.json`` and that of both files by name, after verifying every byte. Raises ``CheckpointError``."""
    try:
        raw = (path / META).read_bytes()
    except OSError as error:
        raise foreign(path, f"cannot read {META} ({error.strerror})") from error
    meta = _checked_meta(path, raw)
    expected = meta["files"][STATE]
    try:
        data = (path / STATE).read_bytes()
    except OSError as error:
        raise _damaged(path, f"cannot read {STATE} ({error.strerror})") from error
    if len(data) != expected["size"]:
        raise _damaged(path, f"{STATE} has {len(data)} bytes, expected {expected['size']}")
    actual = _sha256(data)
    if actual != expected["sha256"]:
        raise _damaged(path, f"{STATE} has the sha256 {actual}, expected {expected['sha256']}")
    return meta, {META: raw, STATE: data}


def _checked_meta(path: Path, raw: bytes) -> dict[str, Any]:
    """The content of ``meta.json``. Raises ``CheckpointError`` unless it is undamaged, ours, and in the version that this code reads."""
    try:
        content = read_json(raw)
        rendered = _render(content)
    except ValueError as error:
        raise _damaged(path, f"{META} is not valid JSON ({error})") from error
    if not isinstance(content, dict) or (content.get("format") != FORMAT and "sha256" not in content):
        raise foreign(path, f"{META} does not contain the format {FORMAT!r}, so another program wrote it")
    expected = content.pop("sha256", "none")
    actual = _sha256(_render(content))
    # The second test finds what JSON ignores, such as the spaces between values.
    if actual != expected or rendered != raw:
        raise _damaged(path, f"the content of {META} has the sha256 {actual}, expected {expected}")
    if content.get("format") != FORMAT:
        raise foreign(path, f"its format is {shown(content.get('format'))}, expected {FORMAT!r}")
    if content.get("format_version") not in READABLE:
        raise UnsupportedVersionError(
            f"Checkpoint {path} has the format version {shown(content.get('format_version'))}, but this proximo reads versions {READABLE[0]} to {VERSION}: "
            "load it with the proximo that wrote it (system.json of the run has its version), or train again."
        )
    wrong = [key for key, kind in _SCHEMA.items() if not isinstance(content.get(key), kind)]
    if wrong or STATE not in content["files"]:
        raise foreign(path, f"{META} lacks {', '.join(wrong) or STATE}")
    if not _is_described(content):
        raise foreign(path, f"{META} does not describe its leaves and {STATE}")
    name = path.name.removesuffix(REPLACEMENT)
    if name.isdecimal() and content["step"] != int(name):
        raise _damaged(path, f"it was saved as step {content['step']}, and its folder was renamed: restore the name")
    others = [name for name in content["files"] if name != STATE]
    if others:  # a checkpoint of a stranger must not choose which files this process reads
        raise foreign(path, f"{META} names {shown(others[0])}, expected {STATE} alone")
    return content


def _is_described(content: dict[str, Any]) -> bool:
    """Whether file and leaves are described as ``encode`` does it."""
    state = content["files"][STATE]
    leaves = content["leaves"].values()
    return (
        isinstance(state, dict)
        and isinstance(state.get("size"), int)
        and isinstance(state.get("sha256"), str)
        and isinstance(content.get("settings", ""), str)
        and all(isinstance(leaf, dict) and isinstance(leaf.get("dtype"), str) for leaf in leaves)
        and all(name in content["leaves"] and isinstance(kind, str) for name, kind in content["keys"].items())
    )
