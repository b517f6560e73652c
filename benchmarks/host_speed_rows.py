"""The comparisons of host_speed.py: environments, settings, programs of proximo and of the peers, and the marks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Variant:
    """One program of proximo: its arguments, whether it is reported separately and meets no mark, and the name of its mark."""

    arguments: tuple[str, ...] = ()
    apart: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Mark:
    """A ratio that the fastest of the variants with this mark must reach."""

    title: str
    asked: float
    aim: float


@dataclass(frozen=True)
class Row:
    """An environment and a setting, common to all programs."""

    title: str
    setting: tuple[str, ...]
    env: str
    peers: dict[str, tuple[str, ...]]
    ours: dict[str, Variant]
    marks: dict[str, Mark]
    peer_env: str = ""
    memory: bool = False
    stepping: bool = False
    common: tuple[str, ...] = field(default=())
    """Arguments for proximo's programs only."""


SB3 = {
    f"SB3 {mode}, {threads} thread{'s' if threads > 1 else ''}": ("--mode", mode, "--threads", str(threads))
    for mode in ("dummy", "subproc")
    for threads in (1, 2)
}
CLEANRL = {f"CleanRL, {threads} thread{'s' if threads > 1 else ''}": ("--threads", str(threads)) for threads in (1, 2)}
"""Its own script, which needs an older Gymnasium, where HalfCheetah's version is 4."""
BEHIND = "one update behind"


def halfcheetah(num_envs: int, num_steps: int) -> Row:
    """The settings of CleanRL's script: proximo, CleanRL and Stable-Baselines3 normalize observations and rewards."""
    sb3 = {name: (*mode, "--normalize") for name, mode in SB3.items() if num_envs > 1 or "dummy" in name}
    title = f"HalfCheetah-v5, {num_envs} × {num_steps}, batch 64, 10 epochs"
    return Row(
        title,
        ("--num-envs", str(num_envs), "--num-steps", str(num_steps), "--batch-size", "64", "--epochs", "10"),
        "HalfCheetah-v5",
        {**sb3, **CLEANRL},
        {
            "as set": Variant(),
            **({"2 workers": Variant(("--workers", "2"))} if num_envs > 1 else {}),
            BEHIND: Variant(("--lag",), apart=True),
        },
        {"": Mark(f"{title}: training steps/s", 7.0, 10.0)},
        common=("--set", "normalize_observation=true", "normalize_reward=true"),
    )


ROWS = {
    "cartpole": Row(
        "CartPole-v1, 8 × 128, batch 256, 4 epochs",
        ("--num-envs", "8", "--num-steps", "128", "--batch-size", "256", "--epochs", "4"),
        "CartPole-v1",
        SB3,
        {
            "as set (Gymnasium's vectorised CartPole)": Variant(),
            "plain environments, in process": Variant(("--workers", "0")),
            "plain environments, in process, overlap": Variant(("--workers", "0", "--overlap")),
            "2 workers": Variant(("--workers", "2")),
            "2 workers, overlap": Variant(("--workers", "2", "--overlap")),
            f"{BEHIND}": Variant(("--lag",), apart=True),
            f"plain environments, {BEHIND}": Variant(("--workers", "0", "--lag"), apart=True),
        },
        {"": Mark("CartPole-v1, 8 × 128, batch 256, 4 epochs: training steps/s", 5.0, 6.0)},
    ),
    "lunarlander": Row(
        "LunarLander-v3, 16 × 1024, batch 64, 4 epochs",
        ("--num-envs", "16", "--num-steps", "1024", "--batch-size", "64", "--epochs", "4"),
        "LunarLander-v3",
        SB3,
        {
            "as set": Variant(),
            "in process": Variant(("--workers", "0")),
            "2 workers": Variant(("--workers", "2")),
            "2 workers, overlap": Variant(("--workers", "2", "--overlap")),
            f"2 workers, {BEHIND}": Variant(("--workers", "2", "--lag"), apart=True),
            "EnvPool": Variant(("--env", "envpool:LunarLander-v3"), mark="envpool"),
            "EnvPool, overlap": Variant(("--env", "envpool:LunarLander-v3", "--overlap"), mark="envpool"),
            f"EnvPool, {BEHIND}": Variant(("--env", "envpool:LunarLander-v3", "--lag"), apart=True, mark="envpool"),
        },
        {
            "": Mark("LunarLander-v3, 16 × 1024, batch 64, 4 epochs: training steps/s", 4.5, 6.0),
            "envpool": Mark("the same on envpool:LunarLander-v3, against SB3 on Gymnasium", 9.5, 10.0),
        },
    ),
    "pong": Row(
        "Pong, 8 × 128, Nature CNN, batch 256, 4 epochs",
        ("--num-envs", "8", "--num-steps", "128", "--batch-size", "256", "--epochs", "4"),
        "ale:pong",
        SB3,
        {
            "ale:pong": Variant(),
            "envpool:Pong-v5": Variant(("--env", "envpool:Pong-v5")),
            "PongNoFrameskip-v4, 2 workers": Variant(
                ("--env", "ale_py:PongNoFrameskip-v4", "--workers", "2", "--set", "preprocessing=atari", "frame_stack=4")
            ),
            f"ale:pong, {BEHIND}": Variant(("--lag",), apart=True),
            "ale:pong, bfloat16": Variant(("--set", "compute_dtype=bfloat16"), apart=True),
        },
        {"": Mark("Pong, 8 × 128, Nature CNN, batch 256, 4 epochs, CPU: training steps/s", 2.5, 3.0)},
        peer_env="PongNoFrameskip-v4",
        memory=True,
        common=("--images",),
    ),
    "halfcheetah": halfcheetah(1, 2048),
    "halfcheetah8": halfcheetah(8, 256),
    "stepping": Row(
        "LunarLander-v3, 16, stepping alone",
        ("--num-envs", "16"),
        "LunarLander-v3",
        {
            "AsyncVectorEnv, next-step reset": ("--mode", "async"),
            "AsyncVectorEnv, same-step reset": ("--mode", "async", "--autoreset", "same_step"),
            "SyncVectorEnv, next-step reset": ("--mode", "sync"),
        },
        {
            "2 workers": Variant(("--workers", "2")),
            "2 workers, overlap": Variant(("--workers", "2", "--overlap")),
            "in process": Variant(("--workers", "0"), mark="none"),
        },
        {"": Mark("stepping alone, LunarLander-v3, 16: our workers against AsyncVectorEnv", 3.0, 4.0)},
        stepping=True,
        common=("--stepping", "--num-steps", "1024"),
    ),
}
