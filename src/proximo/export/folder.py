"""The folder of an export. It is written under a temporary name, checked, and then renamed."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np

from proximo import __version__
from proximo.config import to_mapping
from proximo.errors import CheckpointError, ConfigError, lacking
from proximo.evaluation.policy import Policy
from proximo.export import latency, numpy_file, parity, runtime
from proximo.export.documentation import input_meaning, output_meaning, readme
from proximo.export.policy_function import NEXT, NOISE, REWARD, PolicyFunction
from proximo.export.program import Program
from proximo.export.sizes import BatchDependentError, NotExportedError, axes
from proximo.serialization import json_object, jsonable
from proximo.spaces import ACTION_MASK, Discrete, LeafSpace, MultiDiscrete, components, from_any, mask_sizes, tree
from proximo.storage.atomic_files import move_files, sync_folder, write_synced
from proximo.storage.system_info import version

Format = Literal["onnx", "numpy", "both"]
ONNX, NUMPY, RUNTIME, METADATA, README = "policy.onnx", "policy.npz", "proximo_policy.py", "metadata.json", "README.md"
FORMAT, VERSION = "proximo-export", 2
"""Of the folder. Version 1 had other names of inputs and of functions."""
FILES = (ONNX, NUMPY, RUNTIME, METADATA, README)
TEMPORARY = ".proximo-export-"
"""Beginning of the name of a folder that is not complete."""


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """The folder that was written, its metadata, and warnings."""

    folder: Path
    metadata: dict[str, Any]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"ExportResult({str(self.folder)!r}: {', '.join(sorted([METADATA, *self.metadata['sha256']]))})"


def onnx_is_installed() -> bool:
    """Whether the libraries that ONNX needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def export(
    policy: Policy,
    folder: Path,
    run: str = "",
    format: Format | None = None,
    deterministic: bool = True,
    batch: int | None = None,
) -> ExportResult:
    """Write ``policy`` into ``folder``, for use without proximo and JAX.

    Args:
        policy: The policy.
        folder: The folder to write. If it exists, it stays, and files of an earlier export in it are replaced one by one.
        run: Name of the run, for the metadata.
        format: Which files to write: ``onnx``, ``numpy`` or ``both``. None: both, or a warning and ``numpy`` if ONNX is not installed.
        deterministic: Whether the exported policy chooses the most probable action only. If false, it has the input ``noise``, and can
            also sample its actions.
        batch: The number of environments that it acts on; None for any number.

    Raises:
        ConfigError: If the policy cannot be exported, or if ``folder`` contains anything but an export.
        EnvError: If ONNX is requested and not installed.
        ParityError: If the export does not compute what JAX computes. Nothing is written then.
        CheckpointError: If the folder cannot be written.
    """
    _check_folder(folder)
    exists = folder.is_dir()  # perhaps the working folder of a shell, a link, or a mounted file system
    if batch is not None and batch < 1:
        raise ConfigError(f"batch = {batch}: expected at least 1, or None for any number of environments.")
    warnings = [*policy.warnings]
    if format not in (None, *get_args(Format)):
        raise ConfigError(f"format = {format!r}: expected {', '.join(get_args(Format))}, or None.")
    if format is None and not onnx_is_installed():
        warnings.append("ONNX is not installed, so policy.onnx was not written: pip install 'proximo[onnx]'.")
        format = "numpy"
    if format != "numpy" and not onnx_is_installed():
        raise lacking("ONNX", "onnx")
    policy_function = PolicyFunction(policy, deterministic)
    program = _program(policy_function, batch)
    contents: dict[str, bytes] = {}
    if format != "onnx":
        contents[NUMPY] = numpy_file.render(program, interface(policy_function), initial_memory(policy_function), batch)
        contents[RUNTIME] = Path(runtime.__file__).read_bytes()
    if format != "numpy":
        from proximo.export import onnx_model

        properties = {"run": run, "step": str(policy.step), "environment": policy.config.env.id, "proximo": __version__}
        contents[ONNX] = onnx_model.build(program, properties).SerializeToString()
    temporary = (folder if exists else folder.parent) / f"{TEMPORARY}{secrets.token_hex(4)}"
    try:
        metadata = _write_and_check(temporary, contents, policy_function, program, run, batch)
        sync_folder(temporary)
        if exists:
            _install(temporary, folder)
        else:
            os.rename(temporary, folder)
            sync_folder(folder.parent)
    except OSError as error:
        raise CheckpointError(f"Cannot write {folder} ({error.strerror or error}): choose another --out.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if policy.config.network.compute_dtype != "float32":
        warnings.append(
            f"the policy was trained in {policy.config.network.compute_dtype}; the export computes in float32, and was checked in float32."
        )
    return ExportResult(folder, metadata, tuple(warnings))


def _install(made: Path, folder: Path) -> None:
    """Move the files of a new export to ``folder``, and remove those of an earlier one."""
    stale = set(FILES) - {path.name for path in made.iterdir()}
    move_files(made, folder, last=METADATA)  # it has the hashes of the others
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)


def _program(policy_function: PolicyFunction, batch: int | None) -> Program:
    try:
        return policy_function.program(batch)
    except BatchDependentError as error:
        raise ConfigError(
            f"This policy cannot be exported for any number of environments, because {error}: give their number with --batch."
        ) from error
    except NotExportedError as error:
        raise ConfigError(f"This policy cannot be exported: {error}.") from error


def interface(policy_function: PolicyFunction) -> dict[str, Any]:
    """What ``runtime.ExportedPolicy`` must know of the inputs and outputs of the program."""
    inputs = policy_function.inputs(1)
    observation = policy_function.observation(1)
    names = policy_function.observation_inputs(observation)
    choices = map(_choices, jax.tree.leaves(tree(lambda leaf: leaf, policy_function.space)))
    return {
        "observation": [
            {"name": name, "path": path, "choices": x} for name, path, x in zip(names, _paths(observation), choices, strict=True)
        ],
        "mask_sizes": mask_sizes(from_any(policy_function.policy.env.action_space, "action")) if ACTION_MASK in inputs else [],
        "action_dtype": policy_function.action_dtype,
        "reward": REWARD in inputs,
        "reset_memory": policy_function.actor_critic.reset_memory,
        "memory": [{"input": name, "output": name + NEXT} for name in policy_function.memory_names],
        "noise": [{"name": name, "family": policy_function.noise_family()} for name in inputs if name.split(".")[0] == NOISE],
    }


def _choices(leaf: LeafSpace) -> list[tuple[int, ...]] | None:
    """The first choice and the number of choices of each component; None for an observation without choices."""
    if not isinstance(leaf, Discrete | MultiDiscrete):
        return None
    counts, starts = components(leaf)
    return [starts, counts]


def initial_memory(policy_function: PolicyFunction) -> dict[str, np.ndarray]:
    """The memory of one environment before the first step."""
    return {name: np.asarray(x)[0] for name, x in policy_function.init_memory(1).items()}


def _paths(observation: Any) -> list[list[str | int]]:
    """The keys and places that lead to each leaf of dicts and tuples."""
    if isinstance(observation, np.ndarray):
        return [[]]
    parts = sorted(observation.items()) if isinstance(observation, dict) else enumerate(observation)
    return [[key, *path] for key, part in parts for path in _paths(part)]


def _write_and_check(
    folder: Path, contents: Mapping[str, bytes], policy_function: PolicyFunction, program: Program, run: str, batch: int | None
) -> dict[str, Any]:
    folder.mkdir(parents=True)
    for name, data in contents.items():
        write_synced(folder / name, data)
    found = runners(folder, contents)
    checked = dict(found)
    if policy_function.is_exact:
        checked["policy"] = parity.predict_runner(policy_function)
    errors = parity.check(policy_function, checked, batch)
    speed = latency.measure(policy_function, found, latency.SIZES if batch is None else (batch,))
    metadata = _metadata(policy_function, program, run, batch)
    metadata["parity"] = {
        "against": "JAX", "steps": parity.STEPS, "environments": batch or parity.ENVIRONMENTS, "tolerance": parity.TOLERANCE,
        "largest_error": {name: errors[name] for name in found},
    }  # fmt: skip
    metadata["latency_microseconds"] = speed
    write_synced(folder / README, readme(metadata, policy_function, [*contents]).encode())
    files = [*contents, README]
    metadata["sha256"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    write_synced(folder / METADATA, (json.dumps(jsonable(metadata), indent=1) + "\n").encode())
    return metadata


def runners(folder: Path, files: Iterable[str]) -> dict[str, parity.Runner]:
    """The functions that compute the outputs of an export's ``files``, by the name of their library."""
    found: dict[str, parity.Runner] = {}
    if ONNX in files:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(folder / ONNX, options, providers=["CPUExecutionProvider"])
        names = [x.name for x in session.get_outputs()]
        found["onnxruntime"] = lambda arrays: dict(zip(names, session.run(names, arrays), strict=True))
    if NUMPY in files:
        found["numpy"] = runtime.ExportedPolicy(folder / NUMPY).run
    return found


def _metadata(policy_function: PolicyFunction, program: Program, run: str, batch: int | None) -> dict[str, Any]:
    policy, env = policy_function.policy, policy_function.policy.env
    return {
        "format": FORMAT,
        "version": VERSION,
        "run": run,
        "step": policy.step,
        "environment": policy.config.env.id,
        "observation_space": str(policy_function.space),
        "action_space": str(from_any(env.action_space, "action")),
        "environments": "N" if batch is None else batch,
        "actions": "the most probable ones"
        if policy_function.deterministic
        else "sampled by the input noise; with zeros the most probable ones",
        "inputs": [
            {"name": name, "shape": axes(x.shape), "dtype": x.dtype, "meaning": input_meaning(name, policy_function)}
            for name, x in program.inputs.items()
        ],
        "outputs": [
            {"name": name, "shape": axes(x.shape), "dtype": x.dtype, "meaning": output_meaning(name, policy_function)}
            for name, x in program.outputs.items()
        ],
        "memory": [
            {"input": name, "output": name + NEXT, "initial": x.tolist() if x.any() else "zeros"}
            for name, x in initial_memory(policy_function).items()
        ],
        "settings": to_mapping(policy.config),
        "versions": {"proximo": __version__, **{name: version(name) for name in ("jax", "numpy", "onnx", "onnxruntime")}},
    }


def _check_folder(folder: Path) -> None:
    """Raise ``ConfigError`` if ``folder`` contains anything but an earlier export."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose another --out.")
    found = {path.name for path in folder.iterdir()} - {"__pycache__"} if folder.is_dir() else set()
    content = {name for name in found if not name.startswith(TEMPORARY)}  # of an export that was killed
    if unknown := content - {*FILES}:
        raise ConfigError(
            f"{folder} contains {min(unknown)!r}, which is not part of an export: choose another --out, or empty it."
        )
    if content and json_object(folder / METADATA).get("format") != FORMAT:
        raise ConfigError(
            f"{folder} contains {min(content)!r}, and no {METADATA} of an export: choose another --out, or empty it."
        )
