"""``proximo watch``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from proximo.cli import POLICY_HELP, Parser, UsageError, add_env_flag, print_json, quiet_stdout
from proximo.errors import command

if TYPE_CHECKING:
    from proximo.rendering.watching import Subject

EPISODES = 3


def run(arguments: list[str]) -> int:
    """Play episodes in a window or write them to files."""
    options = make_parser().parse_args(arguments)
    paths = _asked_paths(options)

    from proximo.cli.playback import Playback
    from proximo.rendering.window import has_display
    from proximo.training.interrupts import Interrupts

    # Checked first, because libraries of environments hide windows for the whole process.
    in_window = not (paths or options.video or options.gif) and has_display()
    with quiet_stdout(options.json):
        subject = _subject(options)
    # The first Ctrl-C completes the recording, the second one drops it.
    with Interrupts(owns_process=False) as interrupts, quiet_stdout(options.json):
        playback = Playback(subject, options, interrupts)
        if in_window:
            playback.in_window()
        else:
            playback.into_files(paths or [subject.path.with_name(f"{subject.path.name}{end}") for end in _endings(options)])
    if options.json:
        print_json(playback.report())
    return 128 + interrupts.requested if interrupts.requested else 0


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo watch",
        description="Show a trained policy in a window, or write a video if there is no display. Of several seeds, the first is shown.",
        usage="proximo watch RUN [...]\n       proximo watch ENV --agent random [...]",
    )
    parser.add_argument("run", metavar="RUN", help=POLICY_HELP)
    parser.add_argument(
        "--agent",
        choices=("policy", "random"),
        default="policy",
        help="policy of a RUN, or random actions in an ENV (default policy)",
    )
    parser.add_argument("--episodes", type=int, default=EPISODES, metavar="N", help=f"number of episodes (default {EPISODES})")
    parser.add_argument("--stochastic", action="store_true", help="sample actions (default: the most probable action)")
    add_env_flag(parser)
    parser.add_episode_flags()
    parser.add_argument(
        "--max-steps", type=int, metavar="N", help="end an episode after N steps (default: eval_max_steps, or 10000)"
    )
    parser.add_argument("--fps", type=float, metavar="X", help="frames per second (default: those of the environment)")
    parser.add_argument("--video", action="store_true", help="write an mp4 even if there is a display")
    parser.add_argument("--gif", action="store_true", help="write a GIF; with --video also an mp4")
    parser.add_argument(
        "--out", type=Path, metavar="PATH", help="file to write, .mp4 or .gif (default RUN/videos/watch-STEP.mp4)"
    )
    parser.add_argument("--runs-dir", default="runs", metavar="FOLDER", help="folder of all runs (default runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _endings(options: argparse.Namespace) -> list[str]:
    return [*([".mp4"] if options.video or not options.gif else []), *([".gif"] if options.gif else [])]


def _asked_paths(options: argparse.Namespace) -> list[Path]:
    """The file of --out; none if it was not given."""
    out, wanted = options.out, _endings(options) if options.video or options.gif else []
    if out is None:
        return []
    if out.suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {out}: expected a name that ends in .mp4 or .gif.")
    if wanted and wanted != [out.suffix.lower()]:
        raise UsageError(f"--out {out} is one file, but {' and '.join(wanted)} was requested: omit --video and --gif.")
    return [out]


def _subject(options: argparse.Namespace) -> Subject:
    from proximo.rendering import watching

    watching.check(options.episodes, options.seed, options.max_steps, options.fps)
    changes = {"levels": options.levels, "env_settings": options.env_settings}
    if options.agent == "random":
        if options.env is not None:
            raise UsageError(
                f"--env is for a trained policy: use `{command('proximo', 'watch', options.env, '--agent', 'random')}`."
            )
        if options.stochastic:
            raise UsageError("--stochastic has no effect with --agent random, which draws every action: omit it.")
        return watching.untrained(options.run, Path(options.runs_dir), options.seed, **changes)
    return watching.trained(options.run, Path(options.runs_dir), not options.stochastic, **changes, other=options.env)
