"""``proximo watch``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from proximo.cli import Parser, UsageError, quiet_stdout

if TYPE_CHECKING:
    from proximo.run.watching import Subject

EPISODES = 3


def run(arguments: list[str]) -> int:
    """Play episodes, in a window or into a file."""
    options = make_parser().parse_args(arguments)
    paths = _asked_paths(options)

    from proximo.cli.show import Show, Stop
    from proximo.cli.window import has_display
    from proximo.run.files import plain

    # Looked at first: libraries of environments hide windows for the whole process.
    in_window = not paths and not options.video and has_display()
    with quiet_stdout(options.json):
        subject = _subject(options)
    with Stop() as stop, quiet_stdout(options.json):
        show = Show(subject, options, stop)
        if in_window:
            show.in_window()
        else:
            show.into_files(paths or [subject.path.with_name(f"{subject.path.name}{end}") for end in _endings(options)])
    if options.json:
        print(json.dumps(plain(show.report()), allow_nan=False))
    return 130 if stop.asked else 0


def make_parser() -> Parser:
    """The flags of the verb."""
    parser = Parser(
        prog="proximo watch",
        description="Watch a trained policy play: in a window, or without a display as an mp4.",
        usage="proximo watch RUN [...]\n       proximo watch ENV --agent random [...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "run", metavar="RUN", help="a path, a name, or last; with @best, @last or @STEP behind it (of several seeds: the first)"
    )
    parser.add_argument(
        "--agent", choices=("policy", "random"), default="policy", help="random: before any training; takes an id"
    )
    parser.add_argument("--episodes", type=int, default=EPISODES, help=f"how many (default {EPISODES})")
    parser.add_argument("--stochastic", action="store_true", help="sample actions; the default takes the most probable one")
    parser.add_argument("--seed", type=int, default=0, help="of the environments, as in eval (default 0)")
    parser.add_argument("--levels", help="play levels of this range, as 1000:1050, instead of those trained on")
    parser.add_argument("--env-settings", default="", help="parameters of the environment, as key=value,key=value")
    parser.add_argument("--max-steps", type=int, metavar="N", help="cut an episode after so many steps (default 10000)")
    parser.add_argument("--fps", type=float, help="frames per second (default: the environment's own)")
    parser.add_argument("--video", action="store_true", help="write an mp4 although there is a display")
    parser.add_argument("--gif", action="store_true", help="write a gif; with --video both")
    parser.add_argument("--out", type=Path, metavar="PATH", help="the file, .mp4 or .gif (default RUN/videos/watch-STEP.mp4)")
    parser.add_argument("--runs-dir", default="runs", help="folder of all runs (default runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _endings(options: argparse.Namespace) -> list[str]:
    return [*([".mp4"] if options.video or not options.gif else []), *([".gif"] if options.gif else [])]


def _asked_paths(options: argparse.Namespace) -> list[Path]:
    """The files that --out names; none where it was not given."""
    out, wanted = options.out, _endings(options) if options.video or options.gif else []
    if out is None:
        return []
    if out.suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {out}: expected a name that ends in .mp4 or .gif.")
    if wanted and wanted != [out.suffix.lower()]:
        raise UsageError(f"--out {out} names one file, and {' and '.join(wanted)} was asked for: leave out --video and --gif.")
    return [out]


def _subject(options: argparse.Namespace) -> Subject:
    from proximo.coercion import coerce
    from proximo.config import LEAVES
    from proximo.run import watching

    watching.hold(options.episodes, options.seed, options.max_steps, options.fps)
    changes = {"levels": options.levels, "env_settings": coerce(LEAVES["env_settings"], options.env_settings)}
    if options.agent == "random":
        if options.stochastic:
            raise UsageError("--stochastic is for a policy: --agent random draws every action.")
        return watching.untrained(options.run, Path(options.runs_dir), options.seed, **changes)
    return watching.trained(options.run, Path(options.runs_dir), options.stochastic, **changes)
