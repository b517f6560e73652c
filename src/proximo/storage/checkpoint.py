"""Saving and loading the whole training state: ``checkpoints/<step>/{state.safetensors, meta.json, config.yaml}``, never pickle.

``checkpoint_format`` describes the files, ``run_lookup`` finds the newest or the best checkpoint of a run, ``retention`` removes old ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from proximo.errors import CheckpointError, shown
from proximo.storage.atomic_files import remove_folder, sync_folder, write_synced
from proximo.storage.checkpoint_format import (
    META,
    REPLACEMENT,
    STATE,
    VERSION,
    UnsupportedVersionError,
    flatten,
    foreign,
    is_stored,
    leaf_name,
    read,
)

POLICY = "learner.policy"
"""Dotted name of the policy in a training state."""
CURRENT = "current"
"""File in ``RUN/checkpoints`` while ``save_run`` replaces a run: the step of the only checkpoint that counts."""


def write(folder: Path, step: int, files: Mapping[str, bytes]) -> Path:
    """Write ``folder/<step>`` so that a crash at any moment leaves a valid checkpoint. The caller must hold the lock of the run. Another
    thread may do it while the training goes on.

    Args:
        folder: folder of all checkpoints of a run, ``RUN/checkpoints``.
        step: environment steps learned from.
        files: what ``checkpoint_format.encode`` has made.

    Raises:
        CheckpointError: the disk is full, or the folder cannot be written.
    """
    temporary, final = folder / f".saving-{step}-{os.getpid()}", folder / str(step)
    try:
        folder.mkdir(exist_ok=True)  # without parents: a removed run directory is not created again
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, content in files.items():
            write_synced(temporary / name, content)
        sync_folder(temporary)
        finish_replacements(folder)
        os.rename(temporary, folder / f"{step}{REPLACEMENT}" if final.exists() else final)  # from here on, this checkpoint counts
        sync_folder(folder)
        finish_replacements(folder)
        sync_folder(folder.parent)  # folder itself may be new
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or error
        kept = "earlier checkpoints are intact" if steps(folder) else "there is no earlier one"
        raise CheckpointError(
            f"Cannot write checkpoint {final} ({reason}): {kept}. Free space, or check the permissions of the folder."
        ) from error
    return final


def finish_replacements(folder: Path) -> None:
    """Remove each checkpoint that was replaced, and give its name to its replacement. The caller must hold the lock of the run."""
    for new in folder.glob(f"*{REPLACEMENT}"):
        old = new.with_suffix("")
        if old.exists():
            remove_folder(old)
        os.rename(new, old)


def steps(folder: Path) -> list[int]:
    """The steps of all checkpoints in ``folder`` that count, in ascending order."""
    names = {path.name.removesuffix(REPLACEMENT) for path in folder.glob("[0-9]*") if path.is_dir()}
    found = sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))
    current = current_step(folder)
    return [current] if current in found else found


def current_step(folder: Path) -> int | None:
    """The step in ``folder/current``: a save of an agent goes on or was interrupted. None without such a file."""
    try:
        return int((folder / CURRENT).read_text())
    except (OSError, ValueError):
        return None


def in_effect(path: Path) -> Path:
    """The folder of the checkpoint ``path``, or its replacement if there is one."""
    new = path.with_name(path.name + REPLACEMENT)
    return new if new.is_dir() else path


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A checkpoint that was read and verified once. Nothing here reads the disk again."""

    path: Path
    step: int
    """Environment steps learned from."""
    info: dict[str, Any]
    """What ``encode`` was given: in a run ``best``, ``evaluation`` and, with callbacks, ``callbacks``."""
    leaves: dict[str, dict[str, Any]]
    """``dtype``, ``shape`` and ``stored`` (the type in the file) of each array, by its dotted name."""
    keys: dict[str, str]
    """The implementation of each random key, by its dotted name."""
    files: dict[str, bytes]
    """The content of ``state.safetensors`` and ``meta.json``, by name."""
    settings: str | None = None
    """Hash of the settings that a resume may not change; None in a published policy and in version 4."""
    version: int = VERSION
    """Version of the format."""

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
            raise foreign(self.path, f"its {name} is {shown(summary)}, expected the summary of an evaluation")
        return summary

    @property
    def policy_only(self) -> bool:
        """Whether it has the networks and their normalizer, and no other part of the training state."""
        return bool(self.leaves) and all(name.startswith(f"{POLICY}.") for name in self.leaves)

    def restore(self, template: Any, part: str = "") -> Any:
        """The saved state in the structure of ``template``.

        Args:
            template: pytree whose leaves are arrays, random keys or ShapeDtypeStructs. Everything else in the result (functions,
                static fields, hyperparameters) comes from it.
            part: dotted name of a part of the state, such as ``POLICY``; the whole state by default.

        Returns:
            A pytree like ``template``: NumPy arrays where ``template`` has NumPy arrays, JAX arrays elsewhere.

        Raises:
            CheckpointError: the names, shapes or types are not those of ``template``.
            UnsupportedVersionError: only the policy of this version can be restored.
        """
        if not part and self.version != VERSION:
            raise UnsupportedVersionError(
                f"Checkpoint {self.path} has the format version {self.version}, of which this proximo can only use the policy: train again, or "
                "continue with the proximo that wrote it (system.json of the run has its version)."
            )
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
        with self._arrays() as arrays:
            values = {name: self._decode(name, arrays[name], leaf) for name, leaf in needed.items()}
        return jax.tree_util.tree_map_with_path(lambda where, leaf: values.get(prefix + leaf_name(where), leaf), template)

    def check_readable(self) -> None:
        """Raise ``CheckpointError`` unless it has a policy and every array is stored as described."""
        with self._arrays() as arrays:
            for name, leaf in self.leaves.items():
                value = self._value(name, arrays[name])
                if list(value.shape) != leaf["shape"]:
                    raise ValueError(f"{name} has the shape {value.shape}")
            if not any(name.startswith(f"{POLICY}.") for name in self.leaves):
                raise KeyError(POLICY)

    @contextlib.contextmanager
    def _arrays(self) -> Iterator[dict[str, np.ndarray]]:
        """The arrays in the file. What they raise when they are decoded becomes a ``CheckpointError``."""
        try:
            yield safetensors.numpy.load(self.files[STATE])
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:  # another program wrote the file
            raise foreign(self.path, f"{STATE} does not match {META} ({type(error).__name__}: {error})") from error

    def _value(self, name: str, array: np.ndarray) -> Any:
        if name in self.keys:
            return jax.random.wrap_key_data(jnp.array(array), impl=self.keys[name])
        return array.view(jnp.dtype(self.leaves[name]["dtype"]))

    def _decode(self, name: str, array: np.ndarray, template: Any) -> Any:
        """One array of the same kind as ``template`` (NumPy or JAX). Raises ``CheckpointError`` if shape or type differ."""
        value = self._value(name, array)
        if name not in self.keys:
            value = np.array(value) if isinstance(template, np.ndarray | np.generic) else jnp.array(value)
        for what, found, needed in (("shape", value.shape, template.shape), ("type", value.dtype, template.dtype)):
            if found != needed:
                raise CheckpointError(
                    f"Checkpoint {self.path}: {name} has the {what} {found}, these settings need {needed}. It was probably made with "
                    "other network settings, another environment or another num_envs: use the config.yaml of its run."
                )
        return value


def load(path: Path) -> Checkpoint:
    """Read the checkpoint ``RUN/checkpoints/<step>`` and verify every byte of it. Raises ``CheckpointError`` if it is missing, damaged,
    written by another program, or in another version of the format."""
    inode = _inode(path)
    try:
        meta, files = read(found := in_effect(path))
    except CheckpointError:
        if _inode(path) not in (inode, 0):  # it was replaced while it was read
            return load(path)
        if not path.is_dir():
            others = ", ".join(str(step) for step in steps(path.parent)) or "none"
            raise CheckpointError(f"There is no checkpoint {path}; the steps saved in {path.parent}: {others}.") from None
        raise
    leaves = {name: leaf for name, leaf in meta["leaves"].items() if is_stored(name)}
    return Checkpoint(
        found, meta["step"], meta["info"], leaves, meta["keys"], files, meta.get("settings"), meta["format_version"]
    )


def _inode(path: Path) -> int:
    """The inode of the folder that is loaded for the checkpoint ``path``; 0 if it does not exist."""
    try:
        return in_effect(path).stat().st_ino
    except OSError:
        return 0
