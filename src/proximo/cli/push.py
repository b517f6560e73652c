"""Publish a policy in a folder or on the Hugging Face Hub, with a card of its results, a clip and its settings.

proximo push RUN FOLDER [...]
proximo push RUN hf:OWNER/NAME [...]
"""

import dataclasses
import functools
import sys
from typing import Any

from proximo.cli import EPISODE_FLAGS, RUN_HELP, Options, Parser, print_json, print_warnings, quiet_stdout
from proximo.errors import command


def make_parser() -> Parser:
    parser = Parser("push", __doc__)
    parser.add("run", RUN_HELP, "RUN")
    parser.add("to", "an empty or earlier published folder, or hf:OWNER/NAME", "FOLDER", type=str)
    parser.add("--episodes", "episodes of each evaluation, greedy and sampled (default 100)", "N", default=100)
    parser.add_shared(*EPISODE_FLAGS)
    parser.add("--no-clip", "do not record a video")
    parser.add("--policy-only", "publish the policy without the optimizer, in a third of the space")
    parser.add("--private", "make a new repository on the Hub private")
    parser.add_shared("--runs-dir", "--json")
    return parser


def run(options: Options) -> int:
    from proximo.publish import push
    from proximo.tracking.progress import amount

    names = "episodes", "seed", "levels", "env_settings", "policy_only", "private", "runs_dir"
    given: dict[str, Any] = {name: getattr(options, name) for name in names}
    with quiet_stdout(options.json):
        progress = functools.partial(print, end=" …\n", file=sys.stderr, flush=True)
        published = push(options.run, options.to, clip=not options.no_clip, on_progress=progress, **given)
    print_warnings(published.warnings)
    if options.json:
        print_json(dataclasses.asdict(published))
        return 0
    print(f"{published.place}: {', '.join(published.files)}")
    greedy = published.evaluation["greedy"]
    low, high = greedy["ci95"]
    mean = f"greedy: return {greedy['return_mean']:,.2f} ± {greedy['return_std']:,.2f} (standard deviation)"
    print(f"{mean}, 95 % of the mean {low:,.2f} … {high:,.2f}, over {amount(greedy['episodes'], 'episode')}")
    if published.url is not None:
        print(published.url)
    print(f"Fetch it with:  {command('proximo', 'pull', published.place)}")
    return 0
