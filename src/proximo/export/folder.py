"""The folder that an export leaves: written beside, checked, and only then given its name."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from proximo import __version__
from proximo.config import to_mapping
from proximo.errors import CheckpointError, ConfigError, lacking
from proximo.export import latency, numpy_file, parity, runtime
from proximo.export.acting import NEXT, NOISE, OBSERVATION, Acting, noise_family
from proximo.export.describe import input_meaning, output_meaning, readme
from proximo.export.program import Program
from proximo.export.sizes import BatchDependentError, NotExportedError
from proximo.run.checkpoint import flatten
from proximo.run.files import plain, sync_folder, write_synced
from proximo.run.policy import Policy
from proximo.spaces import PREVIOUS_REWARD, from_any

Format = Literal["onnx", "numpy", "both"]
ONNX, NUMPY, RUNTIME, METADATA, README = "policy.onnx", "policy.npz", "proximo_policy.py", "metadata.json", "README.md"
FILES = (ONNX, NUMPY, RUNTIME, METADATA, README)


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written, and what was found."""

    folder: Path
    metadata: dict[str, Any]
    warnings: tuple[str, ...]


def onnx_is_there() -> bool:
    """Whether the libraries that ONNX takes are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def export(
    policy: Policy, folder: Path, run: str = "", format: Format = "both", stochastic: bool = False, batch: int | None = None
) -> Exported:
    """Write ``policy`` into ``folder``, for use without proximo and without JAX.

    ``stochastic``: noise is an input, by which actions are sampled. ``batch``: for so many environments only; None: for any
    number. Raises ``ConfigError`` for what cannot be exported and for a folder that is something else, ``EnvError`` where ONNX is asked
    for and not installed, ``ParityError`` where the result is not what JAX computes: then nothing is written.
    """
    folder = folder if folder.name not in ("", "..") else folder.resolve()
    _hold_folder(folder)
    if format != "numpy" and not onnx_is_there():
        raise lacking("ONNX", "onnx")
    acting, warnings = Acting(policy, stochastic), [*policy.warnings]
    program = _program(acting, batch)
    contents: dict[str, bytes] = {}
    if format != "onnx":
        initial = {name: np.asarray(x)[0] for name, x in acting.initial(1).items() if name in acting.carried}
        contents[NUMPY] = numpy_file.render(program, _interface(acting), initial, batch)
        contents[RUNTIME] = Path(runtime.__file__).read_bytes()
    if format != "numpy":
        from proximo.export import onnx_model

        facts = {"run": run, "step": str(policy.step), "environment": policy.config.env.id, "proximo": __version__}
        contents[ONNX] = onnx_model.build(program, facts).SerializeToString()
    temporary = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    try:
        metadata = _write_and_check(temporary, contents, acting, program, run, batch)
        _install(temporary, folder)
    except OSError as error:
        raise CheckpointError(f"Cannot write {folder} ({error.strerror or error}): choose another --out.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if policy.config.network.compute_dtype != "float32":
        warnings.append(
            f"the policy was trained in {policy.config.network.compute_dtype}; the export computes in float32, and was checked in it."
        )
    return Exported(folder, metadata, tuple(warnings))


def _program(acting: Acting, batch: int | None) -> Program:
    try:
        return acting.program(batch)
    except BatchDependentError as error:
        raise ConfigError(
            f"This policy cannot be exported for any number of environments, because {error}: give their number with --batch."
        ) from error
    except NotExportedError as error:
        raise ConfigError(f"This policy cannot be exported: {error}.") from error


def _interface(acting: Acting) -> dict[str, Any]:
    """What ``runtime.Policy`` must know beside the program."""
    inputs = acting.inputs(1)
    observation = acting.observation(1)
    return {
        "observation": [
            {"name": name, "path": path}
            for name, path in zip(flatten({OBSERVATION: observation}), _paths(observation), strict=True)
        ],
        "reward": PREVIOUS_REWARD if PREVIOUS_REWARD in inputs else None,
        "resets": acting.network.reset_memory,
        "carried": [{"input": name, "output": name + NEXT} for name in acting.carried],
        "noise": [{"name": name, "family": noise_family(acting.network.actor)} for name in inputs if name.split(".")[0] == NOISE],
    }


def _paths(observation: Any) -> list[list[str | int]]:
    """How each leaf is reached in dicts and tuples."""
    if isinstance(observation, np.ndarray):
        return [[]]
    parts = sorted(observation.items()) if isinstance(observation, dict) else enumerate(observation)
    return [[key, *path] for key, part in parts for path in _paths(part)]


def _write_and_check(
    folder: Path, contents: Mapping[str, bytes], acting: Acting, program: Program, run: str, batch: int | None
) -> dict[str, Any]:
    folder.mkdir(parents=True)
    for name, data in contents.items():
        write_synced(folder / name, data)
    ways = runners(folder, contents)
    own = acting.policy.config.network.compute_dtype == "float32" and not acting.stochastic
    checked = {**ways, **({"policy": parity.policy_runner(acting)} if own else {})}
    errors = parity.check(acting, checked, batch)
    speed = latency.measure(acting, ways, latency.SIZES if batch is None else (batch,))
    metadata = _metadata(acting, program, run, batch)
    metadata["parity"] = {
        "against": "JAX", "steps": parity.STEPS, "environments": batch or parity.ENVIRONMENTS, "tolerance": parity.TOLERANCE,
        "largest_error": {name: errors[name] for name in ways},
    }  # fmt: skip
    metadata["latency_microseconds"] = speed
    write_synced(folder / README, readme(metadata, acting, [*contents]).encode())
    files = [*contents, README]
    metadata["sha256"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    write_synced(folder / METADATA, (json.dumps(plain(metadata), indent=1) + "\n").encode())
    return metadata


def runners(folder: Path, files: Iterable[str]) -> dict[str, parity.Runner]:
    """What plays the ``files`` of an export."""
    found: dict[str, parity.Runner] = {}
    if ONNX in files:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(folder / ONNX, options, providers=["CPUExecutionProvider"])
        names = [x.name for x in session.get_outputs()]
        found["onnxruntime"] = lambda arrays: dict(zip(names, session.run(names, arrays), strict=True))
    if NUMPY in files:
        found["numpy"] = runtime.Policy(folder / NUMPY).run
    return found


def _metadata(acting: Acting, program: Program, run: str, batch: int | None) -> dict[str, Any]:
    policy, env = acting.policy, acting.policy.env
    initial = {name: np.asarray(x)[0] for name, x in acting.initial(1).items() if name in acting.carried}
    return {
        "format": "proximo-export",
        "version": 1,
        "run": run,
        "step": policy.step,
        "environment": policy.config.env.id,
        "observation_space": str(acting.space),
        "action_space": str(from_any(env.action_space, "action")),
        "environments": "N" if batch is None else batch,
        "actions": "sampled by the input noise; zeros take the most probable ones"
        if acting.stochastic
        else "the most probable ones",
        "inputs": [
            {"name": name, "shape": _shape(x.shape), "dtype": x.dtype, "meaning": input_meaning(name, acting)}
            for name, x in program.inputs.items()
        ],
        "outputs": [
            {"name": name, "shape": _shape(x.shape), "dtype": x.dtype, "meaning": output_meaning(name, acting)}
            for name, x in program.outputs.items()
        ],
        "carried": [
            {"input": name, "output": name + NEXT, "initial": row.tolist() if row.any() else "zeros"}
            for name, row in initial.items()
        ],
        "settings": to_mapping(policy.config),
        "versions": {"proximo": __version__, **{name: _version(name) for name in ("jax", "numpy", "onnx", "onnxruntime")}},
    }


def _shape(shape: Any) -> list[Any]:
    return [size if isinstance(size, int) else str(size) for size in shape]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _hold_folder(folder: Path) -> None:
    """Raise ``ConfigError`` where ``folder`` holds anything but an earlier export."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose another --out.")
    strange = (
        sorted(path.name for path in folder.iterdir() if path.name not in (*FILES, "__pycache__")) if folder.is_dir() else []
    )
    if strange:
        raise ConfigError(f"{folder} holds {strange[0]!r}, which is of no export: choose another --out, or empty it.")


def _install(temporary: Path, folder: Path) -> None:
    """Give the finished folder its name, in place of an earlier export."""
    sync_folder(temporary)
    old = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    if folder.exists():
        os.rename(folder, old)
    os.rename(temporary, folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
