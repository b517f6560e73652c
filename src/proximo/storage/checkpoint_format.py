"""The files of a checkpoint, ``state.safetensors`` and ``meta.json``: encoding a state, and verifying what was read. The third one, a copy of
``config.yaml``, has the settings of the run when it was saved; ``meta.json`` has its hash. A published checkpoint does not have it.

NumPy and safetensors are enough to read a checkpoint. ``meta.json`` describes what safetensors cannot: a random key is stored as
its uint32 data (``keys`` has its implementation), and a bfloat16 leaf as its bits in uint16 (``stored``).
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
"""Of version 4, only policies are read: its training states have other leaves."""
STATE, META, CONFIG = "state.safetensors", "meta.json", "config.yaml"
OF_ANOTHER_FORMAT = (KeyError, TypeError, ValueError, AttributeError)
"""What reading a file raises that another program wrote."""


class UnsupportedVersionError(CheckpointError):
    """The checkpoint is undamaged, but was written in another version of the format."""


def damaged(path: Path, why: str) -> CheckpointError:
    """The error for files that are not what proximo wrote."""
    return CheckpointError(f"Checkpoint {path} is damaged: {why}.")


def is_stored(name: str) -> bool:
    """Whether a checkpoint stores the array ``name``. Hyperparameters come from ``config.yaml``."""
    return not name.startswith("learner.hyperparameters.")


def leaf_name(path: tuple[Any, ...]) -> str:
    """``learner.policy.layers.0.weight``. A key with a dot is quoted, so that no two leaves share a name."""
    parts = [jax.tree_util.keystr((key,), simple=True) for key in path]
    return ".".join(part if re.fullmatch(r'[^."]+', part) else json.dumps(part) for part in parts) or "value"


def flatten(tree: Any) -> dict[str, Any]:
    """The arrays of ``tree`` (or their ShapeDtypeStructs) that a checkpoint stores, by dotted name."""
    leaves = [(leaf_name(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    arrays = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)
    return {name: leaf for name, leaf in leaves if isinstance(leaf, arrays) and is_stored(name)}


def encode(step: int, state: Any, info: Mapping[str, Any], config: str | None = None) -> dict[str, bytes]:
    """The content of the files of a checkpoint, by name.

    Args:
        step: environment steps learned from.
        state: any pytree of arrays.
        info: anything that JSON can store; NaN and infinity become null.
        config: the text of ``config.yaml``.

    Raises:
        safetensors.SafetensorError: an array has a type that safetensors cannot store.
    """
    leaves = flatten(state)
    keys = {n: str(jax.random.key_impl(leaf)) for n, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)}
    data = jax.device_get({name: jax.random.key_data(leaf) if name in keys else leaf for name, leaf in leaves.items()})
    arrays = {name: np.asarray(array, order="C") for name, array in data.items()}
    stored = {n: x.view(f"uint{8 * x.dtype.itemsize}") if x.dtype.kind == "V" else x for n, x in arrays.items()}  # bfloat16
    described = {
        name: {
            "dtype": "key" if name in keys else arrays[name].dtype.name,
            "shape": list(leaf.shape),
            "stored": stored[name].dtype.name,
        }
        for name, leaf in leaves.items()
    }
    files = {STATE: safetensors.numpy.save(stored)} | ({} if config is None else {CONFIG: config.encode()})
    meta = {
        "format": FORMAT, "format_version": VERSION, "step": int(step), "info": jsonable(info), "leaves": described, "keys": keys,
        "files": {name: {"sha256": sha256(data), "size": len(data)} for name, data in files.items()},
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
    }  # fmt: skip
    return {**files, META: render({**meta, "sha256": sha256(render(meta))})}


def render(meta: Mapping[str, Any]) -> bytes:
    """The text of ``meta.json``. The hash in it is the one of the text without it."""
    return (json.dumps(meta, indent=1, sort_keys=True) + "\n").encode()


def sha256(data: bytes) -> str:
    """The SHA-256 of ``data`` as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The content of ``meta.json``, and both files by name. Raises ``CheckpointError`` unless all bytes are right."""
    files: dict[str, bytes] = {}
    try:
        for name in (META, STATE):
            files[name] = (path / name).read_bytes()
    except OSError as error:
        raise damaged(path, f"cannot read {META if META not in files else STATE} ({error.strerror})") from error
    try:
        meta = read_json(files[META])
        expected = meta.pop("sha256")
        version = meta["format_version"] if meta["format"] == FORMAT else "of another program"
        step = operator.index(meta["step"])
        same_text = render({**meta, "sha256": expected}) == files[META]
        found = sha256(render(meta)) if same_text else "of another text"
        hashes = {META: (found, expected), STATE: (sha256(files[STATE]), meta["files"][STATE]["sha256"])}
        if CONFIG in meta["files"] and (path / CONFIG).is_file():
            hashes[CONFIG] = sha256((path / CONFIG).read_bytes()), meta["files"][CONFIG]["sha256"]
    except OF_ANOTHER_FORMAT as error:
        raise damaged(path, f"{META} was not written by proximo ({type(error).__name__}: {error})") from error
    for name, (actual, expected) in hashes.items():
        if actual != expected:
            raise damaged(path, f"{name} has the sha256 {actual}, expected {expected}")
    if version not in READABLE:
        raise UnsupportedVersionError(
            f"Checkpoint {path} has the format version {shown(version)}, but this proximo reads versions {READABLE[0]} to {VERSION}: load it "
            "with the proximo that wrote it (system.json of the run has its version), or train again."
        )
    if re.fullmatch(r"\d+(\.\w+)?", path.name) and step != int(path.stem):
        raise damaged(path, f"it was saved as step {step}, and its folder was renamed: restore the name")
    return meta, files
