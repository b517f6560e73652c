"""What an update communicates, counted from its compiled program, and how several GPUs should scale by it. ``devices.py`` prints both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax

from proximo.collect import JaxCollector, JaxTrainer
from proximo.collect.devices import divided
from proximo.config import Config
from proximo.envs import make_env
from proximo.math.across_devices import ENVS_AXIS
from proximo.ppo.optimizer import Optimizer
from proximo.settings import make_config

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("gymnax:CartPole-v1", {"num_envs": 64}),
    "gru": ("proximo:PocMemory", {"num_envs": 64, "memory": "gru", "sequence_length": 32, "memory_size": 64}),
    "cnn": ("image_envs:Squares", {"num_envs": 8, "num_steps": 32}),
}
"""Settings whose update is counted. What it communicates does not depend on ``num_envs`` and ``num_steps``."""

ITEM_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}  # fmt: skip
COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?[\w.\-]+ = (\(.*?\)|\S+) ([a-z][\w\-]*)\(")
CALLED = re.compile(
    r"(?:body|calls|to_apply|branch_computations|true_computation|false_computation)=\{?(%?[\w.\-]+(?:, ?%[\w.\-]+)*)"
)
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class AllReduce(NamedTuple):
    """An operation that adds or compares numbers of all devices."""

    times: int
    """How often the program runs it."""
    size: int
    """Bytes of one run."""


def mesh_of(count: int) -> jax.sharding.Mesh:
    """The first ``count`` devices."""
    return jax.make_mesh((count,), (ENVS_AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:count])


def all_reduces(program: str) -> list[AllReduce]:
    """The all-reduce operations of a compiled program.

    Args:
        program: the text of an optimized HLO module (``compiled.as_text()``). Each branch of a conditional is counted.

    Raises:
        ValueError: a loop that communicates has an unknown number of iterations, or a device communicates in another way.
    """
    entry, lines = computations(program)

    def of_line(line: str) -> list[AllReduce]:
        if not (match := INSTRUCTION.match(line)):
            return []
        result, operation = match.groups()
        if operation in ("all-reduce", "all-reduce-start"):
            return [AllReduce(1, size_of(result))]
        if re.match(r"all-(gather|to-all)|reduce-scatter|collective-|send$", operation):
            raise ValueError(f"the program has an operation {operation}: expected all-reduce only")
        called = [one.strip(" %") for names in CALLED.findall(line) for one in names.split(",")]
        inner, trips = [each for name in called for each in of_computation(name)], TRIPS.search(line)
        if inner and operation == "while" and not trips:
            raise ValueError("a loop that communicates has an unknown number of iterations")
        return [AllReduce(times * (int(trips[1]) if trips else 1), size) for times, size in inner]

    def of_computation(name: str) -> list[AllReduce]:
        return [each for line in lines[name] for each in of_line(line)]

    return of_computation(entry)


def computations(program: str) -> tuple[str, dict[str, list[str]]]:
    """The name of the entry computation of an HLO module, and the lines of all its computations by name."""
    lines: dict[str, list[str]] = {}
    entry = name = ""
    for line in program.splitlines():
        if match := COMPUTATION.match(line):
            name = match[1]
            lines[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name:
            lines[name].append(line)
    return entry, lines


def size_of(result: str) -> int:
    """Bytes of a type in HLO, such as ``f32[3,2]{1,0}`` or a tuple of types."""
    arrays = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", result)
    return sum(ITEM_BYTES[kind] * math.prod(int(n) for n in shape.split(",") if n) for kind, shape in arrays)


class Communication(NamedTuple):
    """What one update communicates: ``K M`` gradient steps, and some numbers once."""

    parameters: int
    gradient_steps: int
    step_scalars: int
    """Numbers that a gradient step adds or compares beside the gradient."""
    other_numbers: int
    """Numbers of four bytes that are communicated outside of gradient steps."""
    operations: tuple[AllReduce, ...]

    @property
    def size(self) -> int:
        """Bytes of all operations."""
        return sum(times * size for times, size in self.operations)

    @property
    def formula(self) -> int:
        """``4 (K M (P + s) + u)`` bytes."""
        return 4 * (self.gradient_steps * (self.parameters + self.step_scalars) + self.other_numbers)


def config_of(case: str, **more: Any) -> Config:
    """The settings of a case."""
    env_id, settings = CASES[case]
    return make_config(env_id, {**settings, **more}, preset=False)


def communication(config: Config) -> Communication:
    """What an update with ``config`` communicates, counted from the program that is compiled for two devices."""
    collector = JaxCollector(config, make_env(config.env.id))
    state = jax.eval_shape(collector.init, jax.random.key(0))
    program = jax.jit(divided(JaxTrainer(collector).update, mesh_of(2))).lower(state).compile()
    found = all_reduces(program.as_text())
    vector = jax.eval_shape(lambda key: Optimizer(collector.init(key).learner).start.parameters, jax.random.key(0))
    steps = config.ppo.num_epochs * config.ppo.num_minibatches
    of_step = sum(size for times, size in found if times == steps)
    other = sum(times * size for times, size in found if times != steps)
    return Communication(vector.size, steps, of_step // 4 - vector.size, other // 4, tuple(found))


class Link(NamedTuple):
    """The connection of neighbouring GPUs."""

    gigabytes_per_second: float
    """In each direction."""
    hop_microseconds: tuple[float, float]
    """Latency from one GPU to the next, in NCCL's protocols LL and Simple."""


# Bandwidths are those of the data sheets. Latencies are those of NCCL's own model (src/graph/tuning.cc), except for TCP, whose 50 µs are assumed.
LINKS = {
    "NVLink 4": Link(450.0, (0.47, 3.4)),
    "PCIe 4.0 ×16": Link(31.5, (1.0, 5.7)),
    "100 Gb/s RDMA": Link(12.5, (2.7, 9.6)),
    "10 Gb/s TCP": Link(1.25, (50.0, 50.0)),
}
START_MICROSECONDS = (3.6, 8.4)
"""Latency of an all-reduce without its hops, in LL and Simple, also of NCCL's model."""
BANDWIDTH_SHARES = (0.25, 1.0)
"""The share of the bandwidth that LL and Simple use, also of NCCL's model."""
DRAWING = {"mlp": 0.009, "gru": 0.001, "cnn": 0.0}
"""Share of an update in which random numbers are drawn, measured with 64 environments on the CPU. Each device draws those of all."""


def all_reduce_seconds(size: int, count: int, link: Link) -> float:
    """Time of an all-reduce of ``size`` bytes in a ring of ``count`` devices, in NCCL's faster protocol."""
    hops = 2 * (count - 1)
    return min(
        1e-6 * (start + hops * hop) + hops / count * size / (1e9 * share * link.gigabytes_per_second)
        for start, hop, share in zip(START_MICROSECONDS, link.hop_microseconds, BANDWIDTH_SHARES, strict=True)
    )


def communication_seconds(operations: Iterable[AllReduce], count: int, link: Link) -> float:
    """Time that ``count`` devices communicate in one update."""
    return sum(times * all_reduce_seconds(size, count, link) for times, size in operations)


def efficiency(compute: float, communicated: float, drawing: float, count: int) -> float:
    """Weak scaling: the share of linear speedup that ``count`` devices reach with ``count`` times the environments.

    Args:
        compute: seconds of an update on one device.
        communicated: seconds of communication.
        drawing: share of the update in which one device draws random numbers.
        count: number of devices.
    """
    return compute / (compute * (1 + drawing * (count - 1)) + communicated)
