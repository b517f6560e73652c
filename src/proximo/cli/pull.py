"""Download a published policy. It becomes a run that every command accepts.

proximo pull FOLDER [...]
proximo pull hf:OWNER/NAME[@REVISION] [...]
proximo pull zoo:NAME [...]
"""

from proximo.cli import Options, Parser, print_json
from proximo.errors import command, printable


def make_parser() -> Parser:
    parser = Parser("pull", __doc__)
    parser.add("source", "a published folder, hf:OWNER/NAME on the Hugging Face Hub, or zoo:NAME", "FOLDER", type=str)
    parser.add("--name", "name of the run (default: its name when it was published)", "NAME", default="")
    parser.add("--trust-code", "accept a policy that imports a module from your Python path")
    parser.add_shared("--runs-dir", "--json")
    return parser


def run(options: Options) -> int:
    from proximo.publish import pull

    run_dir = pull(options.source, name=options.name, trust_code=options.trust_code, runs_dir=options.runs_dir)
    if options.json:
        print_json({"run": str(run_dir)})
        return 0
    following = command("proximo", "watch", run_dir), command("proximo", "eval", run_dir)
    print(f"{printable(str(run_dir))}\nNext:  {following[0]}\n       {following[1]}")
    return 0
