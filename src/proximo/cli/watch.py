"""``proximo watch``."""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proximo.cli import EPISODE_FLAGS, POLICY_HELP, Parser, UsageError, print_json, print_warnings, quiet_stdout
from proximo.errors import command
from proximo.tracking.progress import number

if TYPE_CHECKING:
    from proximo.rendering.play import PlayedStep
    from proximo.rendering.watching import Subject
    from proximo.training.interrupts import Interrupts

EPISODES = 3


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo watch",
        description="Show a trained policy in a window, or write a video if there is no display. Of several seeds, the first is shown.",
        usage="proximo watch RUN [...]\n       proximo watch ENV --agent random [...]",
    )
    parser.add_argument("run", metavar="RUN", help=POLICY_HELP)
    agents = "policy of a RUN, or random actions in an ENV (default policy)"
    parser.add_argument("--agent", choices=("policy", "random"), default="policy", help=agents)
    parser.add_flag("--episodes", f"number of episodes (default {EPISODES})", "N", type=int, default=EPISODES)
    parser.add_flag("--stochastic", "sample actions (default: the most probable action)")
    parser.add_shared("--env", *EPISODE_FLAGS)
    parser.add_flag("--max-steps", "end an episode after N steps (default: eval_max_steps, or 10000)", "N", type=int)
    parser.add_flag("--fps", "frames per second (default: the environment's)", "X", type=float)
    parser.add_flag("--video", "write an mp4 even if there is a display")
    parser.add_flag("--gif", "write a GIF; with --video also an mp4")
    parser.add_flag("--out", "file to write, .mp4 or .gif (default RUN/videos/watch-STEP.mp4)", "PATH", type=Path)
    parser.add_shared("--runs-dir", "--json")
    return parser


def run(options: argparse.Namespace) -> int:
    """Play episodes in a window or write them to files."""
    paths = _asked_paths(options)

    from proximo.rendering import watching, window
    from proximo.storage import zoo
    from proximo.training.interrupts import Interrupts

    # Checked first, because libraries of environments hide windows for the whole process.
    in_window = not (paths or options.video or options.gif) and window.has_display()
    with quiet_stdout(options.json):
        watching.check(options.episodes, options.seed, options.max_steps, options.fps)
        subject = _subject(options)
        report = {
            "run": None if subject.run_dir is None else zoo.label(subject.run_dir),
            "step": subject.step,
            "env": subject.config.env.id,
            "agent": subject.acts,
            "seed": options.seed,
            "episodes": [],
            "files": [],
            "frames": 0,
            "fps": options.fps or subject.fps,
        }
        with Interrupts(owns_process=False) as interrupts:  # the first Ctrl-C completes the recording, the second one drops it
            frames = functools.partial(_frames, subject, options, interrupts, report)
            if in_window:
                window.show(subject, frames, options.fps)  # the environment's own window, or ours with --fps
            else:
                paths = paths or [subject.path.with_name(f"{subject.path.name}{end}") for end in _endings(options)]
                _record(frames(), paths, report)
    if options.json:
        print_json(report)
    return 128 + interrupts.requested if interrupts.requested else 0


def _endings(options: argparse.Namespace) -> list[str]:
    return [*([".mp4"] if options.video or not options.gif else []), *([".gif"] if options.gif else [])]


def _asked_paths(options: argparse.Namespace) -> list[Path]:
    """The file of --out; none if it was not given."""
    if (out := options.out) is None:
        return []
    if out.suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {out}: expected a name that ends in .mp4 or .gif.")
    if (options.video or options.gif) and (wanted := _endings(options)) != [out.suffix.lower()]:
        raise UsageError(f"--out {out} is one file, but {' and '.join(wanted)} was requested: omit --video and --gif.")
    return [out]


def _subject(options: argparse.Namespace) -> Subject:
    from proximo.rendering import watching

    runs_dir, changes = Path(options.runs_dir), {"levels": options.levels, "env_settings": options.env_settings}
    if options.agent == "policy":
        return watching.trained(options.run, runs_dir, not options.stochastic, **changes, other=options.env)
    if options.env is not None:
        raise UsageError(f"--env is for a trained policy: use `{command('proximo', 'watch', options.env, '--agent', 'random')}`.")
    if options.stochastic:
        raise UsageError("--stochastic has no effect with --agent random, which draws every action: omit it.")
    return watching.untrained(options.run, runs_dir, options.seed, **changes)


def _frames(
    subject: Subject, options: argparse.Namespace, interrupts: Interrupts, report: dict[str, Any], shows_itself: bool = False
) -> Iterator[PlayedStep]:
    """All frames until Ctrl-C. Prints a line for each episode, and completes ``report``."""
    rows = subject.play(options.episodes, options.seed, options.max_steps, shows_itself)
    with contextlib.closing(rows):  # pyright: ignore[reportArgumentType]
        for row in rows:
            if interrupts.requested:
                return
            if not report["frames"]:  # only now, because an environment that cannot be drawn has no first frame
                print_warnings(subject.warnings)
                if subject.seeds:
                    first, *rest = subject.seeds
                    print(f"showing {first}" + (f" (others: {', '.join(rest)})" if rest else ""))
                print(subject, flush=True)
            report["frames"] += 1
            yield row
            if row.ended:
                report["episodes"].append(row.outcome)
                success = "" if row.success is None else ", success" if row.success else ", no success"
                cut = f", cut after {row.step:,} steps" if row.ended == "cut" else ""
                played = f"return {number(row.episode_return)}, length {row.step:,}{success}{cut}"
                print(f"episode {row.episode + 1}: {played}", flush=True)


def _record(rows: Iterator[PlayedStep], paths: list[Path], report: dict[str, Any]) -> None:
    """Record all frames. Files get their names only when they are complete."""
    from proximo.rendering.video import recording

    with contextlib.ExitStack() as stack:
        # Completed in the order of the paths.
        recorders = [stack.enter_context(recording(path, report["fps"])) for path in reversed(paths)]
        for row in rows:
            frame = row.draw()
            assert frame is not None
            for recorder in recorders:
                recorder.add(frame)
    report["fps"] = recorders[-1].fps
    for recorder in reversed(recorders if report["frames"] else []):
        report["files"].append(str(recorder.path))
        print(f"{recorder.path} ({report['frames']:,} frames, {recorder.fps:g} per second)", flush=True)
