"""Show a trained policy in a window, or write a video if there is no display. Of several seeds, the first is shown.

proximo watch RUN [...]
proximo watch ENV --agent random [...]
"""

import contextlib
import functools
from collections.abc import Iterator
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

    at_random = options.agent == "random"
    if at_random and options.env is not None:
        raise UsageError(f"--env is for a trained policy: use `{command('proximo', 'watch', options.env, '--agent', 'random')}`.")
    if at_random and options.stochastic:
        raise UsageError("--stochastic has no effect with --agent random, which draws every action: omit it.")

    from proximo.rendering import watching, window
    from proximo.storage import zoo
    from proximo.training.interrupts import Interrupts

    # Checked first, because libraries of environments hide windows for the whole process.
    in_window = not (out or options.video or options.gif) and window.has_display()
    with quiet_stdout(options.json):
        names = "runs_dir", "levels", "env_settings", "episodes", "seed", "max_steps", "fps"
        given = {name: getattr(options, name) for name in names}
        subject = watching.find(
            options.run, other=options.env, at_random=at_random, deterministic=not options.stochastic, **given
        )
        report = {
            "run": None if subject.run_dir is None else zoo.label(subject.run_dir),
            "step": None if subject.policy is None else subject.policy.step,
            "env": subject.config.env.id,
            "agent": subject.acts,
            "seed": options.seed,
            "episodes": [],
            "files": [],
            "frames": 0,
            "fps": subject.rate,
        }
        with Interrupts(owns_process=False) as interrupts:  # the first Ctrl-C completes the recording, the second one drops it
            play = functools.partial(_play, subject, interrupts, report)
            if in_window:
                watching.show(subject, play)  # the environment's own window, or ours with --fps
            else:
                paths = [out] if out else [subject.path.with_name(subject.path.name + ending) for ending in endings]
                videos, _ = watching.record(play(), paths, subject.rate)
                report["fps"] = videos[0].fps
                for video in videos if report["frames"] else []:
                    report["files"].append(str(video.path))
                    print(f"{video.path} ({report['frames']:,} frames, {video.fps:g} per second)", flush=True)
    if options.json:
        print_json(report)
    return 128 + interrupts.requested if interrupts.requested else 0


def _play(subject: Any, interrupts: Any, report: dict[str, Any], window: bool = False) -> Iterator[Any]:
    """All steps until Ctrl-C. Prints a line for each episode, and completes ``report``."""
    with contextlib.closing(subject.play(window)) as steps:
        for step in steps:
            if interrupts.requested:
                return
            if not report["frames"]:  # only now, because an environment that cannot be drawn has no first frame
                if subject.policy is not None:
                    print_warnings(subject.policy.warnings)
                if subject.seeds:
                    first, *rest = subject.seeds
                    print(f"showing {first}" + (f" (others: {', '.join(rest)})" if rest else ""))
                print(subject, flush=True)
            report["frames"] += 1
            yield step
            if step.ended:
                report["episodes"].append(step.outcome)
                success = "" if step.success is None else ", success" if step.success else ", no success"
                cut = f", cut after {step.step:,} steps" if step.ended == "cut" else ""
                played = f"return {number(step.episode_return)}, length {step.step:,}{success}{cut}"
                print(f"episode {step.episode + 1}: {played}", flush=True)
