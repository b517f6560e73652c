"""The folder of an export. Its files are written after the model was checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from proximo import __version__
from proximo.config import to_mapping
from proximo.errors import CheckpointError, ConfigError, lacking
from proximo.evaluation.policy import Policy
from proximo.export import parity
from proximo.export.policy_function import PolicyFunction
from proximo.serialization import json_object, jsonable
from proximo.storage.atomic_files import write_atomic
from proximo.storage.system_info import version

ONNX, RUNTIME, METADATA, README = "policy.onnx", "proximo_policy.py", "metadata.json", "README.md"
FORMAT, VERSION = "proximo-export", 3
"""Of the folder. Version 1 had other names, version 2 a runtime that needed only NumPy."""


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """The folder that was written, its metadata, and warnings."""

    folder: Path
    metadata: dict[str, Any]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"ExportResult({str(self.folder)!r}: {', '.join(sorted([METADATA, *self.metadata['sha256']]))})"


def export(policy: Policy, folder: Path, run: str = "", deterministic: bool = True, batch: int | None = None) -> ExportResult:
    """Write ``policy`` into ``folder``, for use without proximo and JAX.

    Args:
        policy: The policy.
        folder: The folder to write. Files of an earlier export in it are replaced.
        run: Name of the run, for the metadata.
        deterministic: Whether the exported policy chooses the most probable action only. If false, it has the input ``noise``, and can
            also sample its actions.
        batch: The number of environments that it acts on; None for any number.

    Returns:
        The folder, its metadata, and warnings.

    Raises:
        ConfigError: If the policy cannot be exported, or if ``folder`` has other files of the same names.
        EnvError: If a library of the extra ``onnx`` is not installed.
        ParityError: If the export does not compute what JAX computes. Nothing is written then.
        CheckpointError: If the folder cannot be written.
    """
    if batch is not None and batch < 1:
        raise ConfigError(f"batch = {batch}: expected at least 1, or None for any number of environments.")
    _check_folder(folder)
    try:
        from proximo.export import documentation, onnx_model, runtime
    except ImportError:
        raise lacking("An export", "onnx") from None
    function = PolicyFunction(policy, deterministic)
    properties = {"run": run, "step": str(policy.step), "environment": policy.config.env.id, "proximo": __version__}
    model, exported = onnx_model.build(function, batch, properties)
    metadata = {
        "format": FORMAT, "version": VERSION, "run": run, "step": policy.step, "environment": policy.config.env.id,
        "observation_space": str(function.space), "action_space": str(policy.env.action_space),
        "environments": batch or "N",
        "actions": "the most probable ones" if deterministic else "sampled by the input noise; with zeros the most probable ones",
        "inputs": documentation.described(exported.session.get_inputs(), function),
        "outputs": documentation.described(exported.session.get_outputs(), function),
        "interface": exported.interface,
        "settings": to_mapping(policy.config),
        "versions": {"proximo": __version__, **{name: version(name) for name in ("jax", "jax2onnx", "numpy", "onnxruntime")}},
        "parity": {
            "against": "JAX", "steps": parity.STEPS, "tolerance": parity.TOLERANCE,
            "largest_error": parity.check(function, exported.run, batch),
        },
        "latency_microseconds": parity.latency(function, exported, (batch,) if batch else parity.SIZES),
    }  # fmt: skip
    readme = documentation.readme(metadata, function).encode()
    contents = {ONNX: model, RUNTIME: Path(runtime.__file__).read_bytes(), README: readme}
    metadata["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    contents[METADATA] = (json.dumps(jsonable(metadata), indent=1) + "\n").encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            write_atomic(folder / name, data)
    except OSError as error:
        raise CheckpointError(f"Cannot write {folder} ({error.strerror or error}): choose another --out.") from error
    dtype = policy.config.network.compute_dtype
    narrow = f"the policy was trained in {dtype}; the export computes in float32, and was checked in float32."
    return ExportResult(folder, metadata, (*policy.warnings, *([narrow] if dtype != "float32" else [])))


def _check_folder(folder: Path) -> None:
    """Raise ``ConfigError`` if files that an export would replace are not those of an earlier export."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose another --out.")
    found = [name for name in (ONNX, RUNTIME, METADATA, README) if (folder / name).exists()]
    if found and json_object(folder / METADATA).get("format") != FORMAT:
        raise ConfigError(f"{folder} contains {found[0]!r}, and no {METADATA} of an export: choose another --out, or empty it.")
