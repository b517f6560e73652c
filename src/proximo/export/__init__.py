"""Export of a trained policy to a folder with an ONNX model, for use without proximo and JAX. It is written after it was checked."""

import dataclasses
import hashlib
from pathlib import Path

from proximo import __version__
from proximo.config import to_mapping
from proximo.errors import CheckpointError, ConfigError, instead_of_os_errors, lacking
from proximo.evaluation.policy import Policy
from proximo.export import parity
from proximo.export.parity import ParityError
from proximo.export.policy_function import NEXT, REWARD, PolicyFunction
from proximo.serialization import JsonObject, dump_json, json_object, read_yaml
from proximo.spaces import ACTION_MASK
from proximo.storage.atomic_files import write_atomic
from proximo.storage.system_info import version

__all__ = ["ExportResult", "ParityError", "export"]

ONNX, RUNTIME, METADATA, README = "policy.onnx", "proximo_policy.py", "metadata.json", "README.md"
FORMAT, VERSION = "proximo-export", 3
"""Of the folder. Version 1 had other names, version 2 a runtime that needed only NumPy."""
HERE = Path(__file__).parent
MEANINGS = read_yaml((HERE / "meanings.yaml").read_bytes())


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """The folder that was written, its metadata, and warnings."""

    folder: Path
    metadata: JsonObject
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
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose another --out.")
    found = [name for name in (ONNX, RUNTIME, METADATA, README) if (folder / name).exists()]
    if found and json_object(folder / METADATA).get("format") != FORMAT:
        raise ConfigError(f"{folder} contains {found[0]!r}, and no {METADATA} of an export: choose another --out, or empty it.")
    try:
        from proximo.export import onnx_model, runtime
    except ImportError:
        raise lacking("An export", "onnx") from None
    function, environment, step = PolicyFunction(policy, deterministic), policy.config.env.id, policy.step
    properties = {"run": run, "step": str(step), "environment": environment, "proximo": __version__}
    model, exported = onnx_model.build(function, batch, properties)
    inputs, outputs = (
        [{"name": x.name, "shape": x.shape, "dtype": runtime.dtype_of(x), "meaning": _meaning(x.name, function)} for x in leaves]
        for leaves in (exported.session.get_inputs(), exported.session.get_outputs())
    )
    metadata = {
        "format": FORMAT, "version": VERSION, "run": run, "step": step, "environment": environment,
        "observation_space": str(function.space), "action_space": str(policy.env.action_space),
        "environments": batch or "N",
        "actions": "the most probable ones" if deterministic else "sampled by the input noise; with zeros the most probable ones",
        "inputs": inputs, "outputs": outputs, "interface": exported.interface, "settings": to_mapping(policy.config),
        "versions": {"proximo": __version__, **{name: version(name) for name in ("jax", "jax2onnx", "numpy", "onnxruntime")}},
        "parity": {
            "against": "JAX", "steps": parity.STEPS, "tolerance": parity.TOLERANCE,
            "largest_error": parity.check(function, exported.run, batch),
        },
        "latency_microseconds": parity.latency(function, exported, (batch,) if batch else parity.SIZES),
    }  # fmt: skip
    contents = {ONNX: model, RUNTIME: Path(runtime.__file__).read_bytes(), README: _readme(metadata, function).encode()}
    metadata["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    contents[METADATA] = dump_json(metadata).encode()
    with instead_of_os_errors(CheckpointError, f"Cannot write {folder}", "choose another --out."):
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            write_atomic(folder / name, data)
    dtype = policy.config.network.compute_dtype
    narrow = f"the policy was trained in {dtype}; the export computes in float32, and was checked in float32."
    return ExportResult(folder, metadata, (*policy.warnings, *([narrow] if dtype != "float32" else [])))


def _meaning(name: str, function: PolicyFunction) -> str:
    """The meaning of an input or output."""
    if name.endswith(NEXT):
        return f"{name.removesuffix(NEXT)} of the next step"
    if name == "episode_start" and not function.actor_critic.reset_memory:
        return "ignored: the policy keeps its memory, last action and last reward across episodes"
    family = f" ({function.actor_critic.actor.noise_family})" if name == "noise" else ""
    return MEANINGS.get(name.split(".")[0], "a parameter of the distribution") + family


def _readme(metadata: JsonObject, function: PolicyFunction) -> str:
    """The README of an export, with runnable code."""
    inputs, samples = function.inputs(1), not function.deterministic
    given = ", action_mask=action_mask" * (ACTION_MASK in inputs) + ", reward=reward" * (REWARD in inputs)
    may_sample = function.actor_critic.actor.noise_family is not None
    template = (HERE / "readme.md").read_text(encoding="utf-8")
    return template.format(
        **{**metadata, **metadata["parity"], "run": metadata["run"] or "unknown", "version": __version__},
        batch=metadata["environments"] if metadata["environments"] != "N" else "",
        numpy="import numpy as np\n\n" * samples,
        rng="rng = np.random.default_rng(0)\n" * samples,
        given=given + ", deterministic=False, key=rng" * samples,
        stochastic=", or export with `proximo export --stochastic`" * may_sample,
    )
