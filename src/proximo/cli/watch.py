"""Show a trained policy in a window, or write a video if there is no display. Of several seeds, the first is shown.

proximo watch RUN [...]
proximo watch ENV --agent random [...]
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proximo.cli import EPISODE_FLAGS, POLICY_HELP, Options, Parser, UsageError, print_json, print_warnings, quiet_stdout
from proximo.errors import command
from proximo.tracking.progress import number


def make_parser() -> Parser:
    parser = Parser("watch", __doc__)
    parser.add("run", POLICY_HELP, "RUN")
    agents = "policy of a RUN, or random actions in an ENV (default policy)"
    parser.add("--agent", agents, choices=("policy", "random"), default="policy")
    parser.add("--episodes", "number of episodes (default 3)", "N", default=3)
    parser.add("--stochastic", "sample actions (default: the most probable action)")
    parser.add_shared("--env", *EPISODE_FLAGS)
    parser.add("--max-steps", "end an episode after N steps (default: eval_max_steps, or 10000)", "N")
    parser.add("--fps", "frames per second (default: the environment's)", "FPS")
    parser.add("--video", "write an mp4 even if there is a display")
    parser.add("--gif", "write a GIF; with --video also an mp4")
    parser.add("--out", "file to write, .mp4 or .gif (default RUN/videos/watch-STEP.mp4)", "FILE")
    parser.add_shared("--runs-dir", "--json")
    return parser


def run(options: Options) -> int:
    out, endings = options.out, [*([".mp4"] if options.video or not options.gif else []), *([".gif"] if options.gif else [])]
    if out is not None and out.suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {out}: expected a name that ends in .mp4 or .gif.")
    if out is not None and (options.video or options.gif) and endings != [out.suffix.lower()]:
        raise UsageError(f"--out {out} is one file, but {' and '.join(endings)} was requested: omit --video and --gif.")

    from proximo.rendering import watching, window
    from proximo.storage import zoo
    from proximo.training.interrupts import Interrupts

    # Checked first, because libraries of environments hide windows for the whole process.
    in_window = not (out or options.video or options.gif) and window.has_display()
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
                _record(frames(), [out] if out else [subject.path.with_name(subject.path.name + end) for end in endings], report)
    if options.json:
        print_json(report)
    return 128 + interrupts.requested if interrupts.requested else 0


def _subject(options: Options) -> Any:
    from proximo.rendering import watching

    changes = {"levels": options.levels, "env_settings": options.env_settings}
    if options.agent == "policy":
        return watching.trained(options.run, options.runs_dir, not options.stochastic, **changes, other=options.env)
    if options.env is not None:
        raise UsageError(f"--env is for a trained policy: use `{command('proximo', 'watch', options.env, '--agent', 'random')}`.")
    if options.stochastic:
        raise UsageError("--stochastic has no effect with --agent random, which draws every action: omit it.")
    return watching.untrained(options.run, options.runs_dir, options.seed, **changes)


def _frames(subject: Any, options: Options, interrupts: Any, report: dict[str, Any], shows_itself: bool = False) -> Iterator[Any]:
    """All frames until Ctrl-C. Prints a line for each episode, and completes ``report``."""
    with contextlib.closing(subject.play(options.episodes, options.seed, options.max_steps, shows_itself)) as rows:
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


def _record(rows: Iterator[Any], paths: list[Path], report: dict[str, Any]) -> None:
    """Record all frames. Files get their names only when they are complete."""
    from proximo.rendering.video import recording

    with contextlib.ExitStack() as stack:
        # Completed in the order of the paths.
        recorders = [stack.enter_context(recording(path, report["fps"])) for path in reversed(paths)][::-1]
        for row in rows:
            frame = row.draw()
            for recorder in recorders:
                recorder.add(frame)
    report["fps"] = recorders[0].fps
    for recorder in recorders if report["frames"] else []:
        report["files"].append(str(recorder.path))
        print(f"{recorder.path} ({report['frames']:,} frames, {recorder.fps:g} per second)", flush=True)
