"""``proximo watch``."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proximo.cli import POLICY_HELP, Parser, UsageError, print_json, print_warnings, quiet_stdout
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
    parser.add_other_env()
    parser.add_episode_flags()
    parser.add_flag("--max-steps", "end an episode after N steps (default: eval_max_steps, or 10000)", "N", type=int)
    parser.add_flag("--fps", "frames per second (default: the environment's)", "X", type=float)
    parser.add_flag("--video", "write an mp4 even if there is a display")
    parser.add_flag("--gif", "write a GIF; with --video also an mp4")
    parser.add_flag("--out", "file to write, .mp4 or .gif (default RUN/videos/watch-STEP.mp4)", "PATH", type=Path)
    parser.add_runs_dir()
    parser.add_json()
    return parser


def run(options: argparse.Namespace) -> int:
    """Play episodes in a window or write them to files."""
    paths = _asked_paths(options)

    from proximo.rendering import watching, window
    from proximo.storage import zoo
    from proximo.training.interrupts import Interrupts

    # Checked first, because libraries of environments hide windows for the whole process.
    in_window = not (paths or options.video or options.gif) and window.has_display()
    # The first Ctrl-C completes the recording, the second one drops it.
    with quiet_stdout(options.json):
        watching.check(options.episodes, options.seed, options.max_steps, options.fps)
        subject = _subject(options)
        with Interrupts(owns_process=False) as interrupts:
            playback = Playback(subject, options, interrupts)
            fps = options.fps or subject.fps
            if in_window:
                window.show(subject, playback.frames, options.fps)  # the environment's own window, or ours with --fps
            else:
                paths = paths or [subject.path.with_name(f"{subject.path.name}{end}") for end in _endings(options)]
                fps = _record(playback, paths, fps)
    if options.json:
        print_json(
            {
                "run": None if subject.run_dir is None else zoo.label(subject.run_dir),
                "step": subject.step,
                "env": subject.config.env.id,
                "agent": subject.acts,
                "seed": options.seed,
                "episodes": playback.episodes,
                "files": [str(path) for path in paths if playback.count],
                "frames": playback.count,
                "fps": fps,
            }
        )
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


class Playback:
    """Plays the episodes of one call, and prints a line for each. ``count`` is the number of frames so far."""

    def __init__(self, subject: Subject, options: argparse.Namespace, interrupts: Interrupts):
        self.subject, self.options, self.interrupts = subject, options, interrupts
        self.episodes: list[dict[str, Any]] = []
        self.count = 0

    def frames(self, shows_itself: bool = False) -> Iterator[PlayedStep]:
        """All frames until Ctrl-C."""
        rows = self.subject.play(self.options.episodes, self.options.seed, self.options.max_steps, shows_itself)
        with contextlib.closing(rows):  # pyright: ignore[reportArgumentType]
            for row in rows:
                if self.interrupts.requested:
                    return
                if not self.count:  # only now, because an environment that cannot be drawn has no first frame
                    self._announce()
                self.count += 1
                yield row
                if row.ended:
                    self.episodes.append(row.outcome)
                    success = "" if row.success is None else ", success" if row.success else ", no success"
                    cut = f", cut after {row.step:,} steps" if row.ended == "cut" else ""
                    played = f"return {number(row.episode_return)}, length {row.step:,}{success}{cut}"
                    print(f"episode {row.episode + 1}: {played}", flush=True)

    def _announce(self) -> None:
        print_warnings(self.subject.warnings)
        if self.subject.seeds:
            first, *rest = self.subject.seeds
            print(f"showing {first}" + (f" (others: {', '.join(rest)})" if rest else ""))
        print(self.subject, flush=True)


def _record(playback: Playback, paths: list[Path], fps: float) -> float:
    """Record all frames. Files get their names only when they are complete. Returns their frames per second."""
    from proximo.rendering.video import recording

    with contextlib.ExitStack() as stack:
        recorders = [stack.enter_context(recording(path, fps)) for path in reversed(paths)]  # completed in the order of paths
        for row in playback.frames():
            frame = row.draw()
            assert frame is not None
            for recorder in recorders:
                recorder.add(frame)
    for recorder in reversed(recorders if playback.count else []):
        print(f"{recorder.path} ({playback.count:,} frames, {recorder.fps:g} per second)", flush=True)
    return recorders[-1].fps
