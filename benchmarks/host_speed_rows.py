"""The comparisons of host_speed.py: environments, settings, programs of proximo and of the peers, and the marks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One program of proximo: its arguments, whether it is reported separately and meets no mark, and the name of its mark."""

    arguments: tuple[str, ...] = ()
    apart: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """An environment and a setting, common to all programs."""

    title: str
    setting: tuple[str, ...]
    env: str
    peers: dict[str, tuple[str, ...]]
    ours: dict[str, Variant]
    marks: dict[str, tuple[float, float]]
    """Mark and aim of the fastest variant with this mark: ratios to the peer."""
    peer_env: str = ""
    memory: bool = False
    stepping: bool = False
    common: tuple[str, ...] = ()
    """Arguments for proximo's programs only."""


SB3 = {
    f"SB3 {mode}, {threads} thread{'s' if threads > 1 else ''}": ("--mode", mode, "--threads", str(threads))
    for mode in ("dummy", "subproc")
    for threads in (1, 2)
}
CLEANRL = {f"CleanRL, {threads} thread{'s' if threads > 1 else ''}": ("--threads", str(threads)) for threads in (1, 2)}
"""Its own script, which needs an older Gymnasium, where HalfCheetah's version is 4."""
BEHIND = {"one update behind": Variant(("--lag",), apart=True)}
ENVPOOL = ("--env", "envpool:LunarLander-v3")


def setting(num_envs: int, num_steps: int, batch_size: int, epochs: int) -> tuple[str, ...]:
    flags = {"--num-envs": num_envs, "--num-steps": num_steps, "--batch-size": batch_size, "--epochs": epochs}
    return tuple(word for flag, value in flags.items() for word in (flag, str(value)))


def halfcheetah(num_envs: int, num_steps: int) -> Row:
    """The settings of CleanRL's script: proximo, CleanRL and Stable-Baselines3 normalize observations and rewards."""
    sb3 = {name: (*mode, "--normalize") for name, mode in SB3.items() if num_envs > 1 or "dummy" in name}
    workers = {"2 workers": Variant(("--workers", "2"))} if num_envs > 1 else {}
    return Row(
        f"HalfCheetah-v5, {num_envs} × {num_steps}, batch 64, 10 epochs",
        setting(num_envs, num_steps, 64, 10),
        "HalfCheetah-v5",
        {**sb3, **CLEANRL},
        {"as set": Variant(), **workers, **BEHIND},
        {"": (7.0, 10.0)},
        common=("--set", "normalize_observation=true", "normalize_reward=true"),
    )


ROWS = {
    "cartpole": Row(
        "CartPole-v1, 8 × 128, batch 256, 4 epochs",
        setting(8, 128, 256, 4),
        "CartPole-v1",
        SB3,
        {
            "as set (Gymnasium's vectorized CartPole)": Variant(),
            "plain environments": Variant(("--workers", "0")),
            "2 workers": Variant(("--workers", "2")),
            **BEHIND,
        },
        {"": (5.0, 6.0)},
    ),
    "lunarlander": Row(
        "LunarLander-v3, 16 × 1024, batch 64, 4 epochs",
        setting(16, 1024, 64, 4),
        "LunarLander-v3",
        SB3,
        {
            "as set": Variant(),
            "2 workers, overlap": Variant(("--workers", "2", "--overlap")),
            "EnvPool": Variant(ENVPOOL, mark="envpool"),
            "EnvPool, overlap": Variant((*ENVPOOL, "--overlap"), mark="envpool"),
            **BEHIND,
        },
        {"": (4.5, 6.0), "envpool": (9.5, 10.0)},
    ),
    "pong": Row(
        "Pong, 8 × 128, Nature CNN, batch 256, 4 epochs",
        setting(8, 128, 256, 4),
        "ale:pong",
        SB3,
        {
            "ale:pong": Variant(),
            "envpool:Pong-v5": Variant(("--env", "envpool:Pong-v5")),
            "ale:pong, bfloat16": Variant(("--set", "compute_dtype=bfloat16"), apart=True),
            **BEHIND,
        },
        {"": (2.5, 3.0)},
        peer_env="PongNoFrameskip-v4",
        memory=True,
        common=("--images",),
    ),
    "halfcheetah": halfcheetah(1, 2048),
    "halfcheetah8": halfcheetah(8, 256),
    "stepping": Row(
        "LunarLander-v3, 16 environments, stepping without learning",
        ("--num-envs", "16"),
        "LunarLander-v3",
        {
            "AsyncVectorEnv, next-step reset": ("--mode", "async"),
            "AsyncVectorEnv, same-step reset": ("--mode", "async", "--autoreset", "same_step"),
        },
        {"2 workers": Variant(("--workers", "2")), "2 workers, overlap": Variant(("--workers", "2", "--overlap"))},
        {"": (3.0, 4.0)},
        stepping=True,
        common=("--stepping", "--num-steps", "1024"),
    ),
}
