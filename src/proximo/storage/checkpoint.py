"""Saving and loading the whole training state in ``checkpoints/<step>/``, never with pickle.

``checkpoint_format`` describes the files, ``run_lookup`` finds a checkpoint of a run, ``retention`` removes old ones.
"""

from __future__ import annotations

import contextlib
import operator
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

from proximo.errors import CheckpointError
from proximo.storage.atomic_files import remove_folder, sync_folder, write_synced
from proximo.storage.checkpoint_format import (
    META,
    OF_ANOTHER_FORMAT,
    STATE,
    VERSION,
    UnsupportedVersionError,
    damaged,
    flatten,
    is_stored,
    leaf_name,
    read,
)

POLICY = "learner.policy"
"""Dotted name of the policy in a training state."""
CURRENT = "current"
"""File in ``RUN/checkpoints`` while a run is replaced: the step of the only checkpoint that counts."""
REPLACEMENT = ".new"
"""Ending of the folder of a checkpoint that replaces one of the same step, until that one is removed."""


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
        kept = "earlier checkpoints are intact" if steps(folder) else "there is no earlier one"
        raise CheckpointError(
            f"Cannot write checkpoint {final} ({error.strerror}): {kept}. Free space, or check the permissions of the folder."
        ) from error
    return final


def finish_replacements(folder: Path) -> None:
    """Remove each checkpoint that was replaced, and rename its replacement. The caller holds the run's lock."""
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
    """The step in ``folder/current``: an agent is saved, or a save was interrupted. None without it."""
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
    meta: dict[str, Any]
    """The content of ``meta.json``."""
    files: dict[str, bytes]
    """The content of ``state.safetensors`` and ``meta.json``, by name."""

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    @property
    def step(self) -> int:
        """Environment steps learned from."""
        return self.meta["step"]

    @property
    def info(self) -> dict[str, Any]:
        """What ``encode`` was given: in a run ``best``, ``evaluation`` and, with callbacks, ``callbacks``."""
        return self.meta["info"]

    @property
    def best(self) -> dict[str, Any] | None:
        """Step and ``return_mean`` of the best evaluation so far; None before the first."""
        return self.info.get("best")

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The last evaluation; None before the first."""
        return self.info.get("evaluation")

    @property
    def leaves(self) -> dict[str, dict[str, Any]]:
        """``dtype``, ``shape`` and ``stored`` (the type in the file) of each array, by its dotted name."""
        return {name: leaf for name, leaf in self.meta["leaves"].items() if is_stored(name)}

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
            A pytree like ``template``: NumPy arrays where it has NumPy arrays, JAX arrays elsewhere.

        Raises:
            CheckpointError: the names, shapes or types are not those of ``template``.
            UnsupportedVersionError: only the policy of this version can be restored.
        """
        if not part and self.meta["format_version"] != VERSION:
            raise UnsupportedVersionError(
                f"Checkpoint {self.path} has the format version {self.meta['format_version']}, of which this proximo can only use the policy: "
                "train again, or continue with the proximo that wrote it (system.json of the run has its version)."
            )
        prefix = f"{part}." if part else ""
        needed = {prefix + name: leaf for name, leaf in flatten(template).items()}
        saved = {name for name in self.leaves if name.startswith(prefix)}
        for fault, names in (("it lacks", needed.keys() - saved), ("it has the unexpected", saved - needed.keys())):
            if names:
                raise self._misfit(f"{fault} {min(names)!r} ({len(names)} in all)")
        with self._arrays() as arrays:
            values = {name: self._decoded(name, arrays[name], leaf) for name, leaf in needed.items()}
        return jax.tree_util.tree_map_with_path(lambda where, leaf: values.get(prefix + leaf_name(where), leaf), template)

    def check_readable(self) -> None:
        """Raise ``CheckpointError`` unless it has a policy, every array is stored as described, and evaluations are numbers."""
        with self._arrays() as arrays:
            for summary in filter(None, (self.best, self.evaluation, {"step": self.info.get("evaluation_steps", 0)})):
                _ = operator.index(summary["step"]) + float(summary.get("return_mean") or 0)
            for name, leaf in self.leaves.items():
                if list(shape := self._value(name, arrays[name]).shape) != leaf["shape"]:
                    raise ValueError(f"{name} has the shape {shape}")
            if not any(name.startswith(f"{POLICY}.") for name in self.leaves):
                raise KeyError(POLICY)

    @contextlib.contextmanager
    def _arrays(self) -> Iterator[dict[str, np.ndarray]]:
        """Context manager: the arrays in the file. What decoding them raises becomes a ``CheckpointError``."""
        try:
            yield safetensors.numpy.load(self.files[STATE])
        except (safetensors.SafetensorError, *OF_ANOTHER_FORMAT) as error:
            raise damaged(self.path, f"{STATE} does not match {META} ({type(error).__name__}: {error})") from error

    def _value(self, name: str, array: np.ndarray) -> Any:
        if implementation := self.meta["keys"].get(name):
            return jax.random.wrap_key_data(jnp.array(array), impl=implementation)
        return array.view(jnp.dtype(self.meta["leaves"][name]["dtype"]))

    def _decoded(self, name: str, array: np.ndarray, template: Any) -> Any:
        """One array, of NumPy or JAX like ``template``. Raises ``CheckpointError`` if it does not fit."""
        value = self._value(name, array)
        for what, found, needed in (("shape", value.shape, template.shape), ("type", value.dtype, template.dtype)):
            if found != needed:
                raise self._misfit(f"{name} has the {what} {found}, these settings need {needed}")
        if name in self.meta["keys"]:
            return value
        return np.array(value) if isinstance(template, np.ndarray | np.generic) else jnp.array(value)

    def _misfit(self, fault: str) -> CheckpointError:
        return CheckpointError(
            f"Checkpoint {self.path} does not fit these settings: {fault}. It was probably made with other network settings (encoder, "
            "hidden_sizes, memory), another environment or another num_envs: use the config.yaml of its run."
        )


def load(path: Path) -> Checkpoint:
    """Read the checkpoint ``RUN/checkpoints/<step>`` and verify every byte of it. Raises ``CheckpointError`` if it is missing, damaged,
    written by another program, or in another version of the format."""
    found = in_effect(path)
    try:
        return Checkpoint(found, *read(found))
    except CheckpointError:
        if not found.is_dir() and not path.is_dir():
            others = ", ".join(map(str, steps(path.parent))) or "none"
            raise CheckpointError(f"{path.parents[1]} has no checkpoint of step {path.name}; it has {others}.") from None
        again = in_effect(path)  # it may have been replaced while it was read
        return Checkpoint(again, *read(again))
