"""The arguments that ours_host.py and peers/sb3.py have in common; each runs in an environment of its own."""

import argparse

MUJOCO_TASKS = ("HalfCheetah-v5",)
"""The environments that need MuJoCo."""


def host_parser(description: str) -> argparse.ArgumentParser:
    """Environment, setting, and how long and how often it is measured."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", action="store_true", help="sample the memory of all processes")
    return parser
