"""Write settings of another library as a file for `proximo train --config`. What changes and what has no equal is listed on standard error.

proximo convert FILE [--env ID] [--out FILE]
proximo convert "python ppo.py --env-id CartPole-v1 ..." [--out FILE]
"""

import os
import sys

from proximo.cli import Options, Parser, UsageError
from proximo.errors import ConfigError, command, instead_of_os_errors, printable


def make_parser() -> Parser:
    parser = Parser("convert", __doc__)
    source = (
        "a file of hyperparameters of RL Zoo, a config of recurrent-ppo-truncated-bptt, or a command line of CleanRL, pytorch-ppo, "
        "PPO-JAX or Baselines, as a file or as text"
    )
    parser.add("source", source, "FILE", type=str)
    parser.add("--env", "the environment whose settings are read, if the file has several", "ID", default="")
    parser.add("--out", "file to write (default: standard output)", "FILE")
    return parser


def run(options: Options) -> int:
    from proximo.convert import convert

    source, out = options.source, options.out
    if out is not None and os.path.exists(out) and os.path.exists(source) and out.samefile(source):
        raise UsageError(f"--out {out} is the file that is converted: choose another name.")
    converted = convert(source, options.env)
    print(printable(converted.report), file=sys.stderr)
    if out is None:
        print(converted.yaml, end="")
        return 0
    with instead_of_os_errors(ConfigError, f"Cannot write --out {out}", "choose another file."):
        out.write_text(converted.yaml, encoding="utf-8")
    print(f"\nNext:  {command('proximo', 'train', '--config', out)}", file=sys.stderr)
    return 0
