"""Write a policy as files that run without proximo and JAX."""

from proximo.cli import POLICY_HELP, Options, Parser, UsageError, print_warnings


def make_parser() -> Parser:
    parser = Parser("export", __doc__)
    parser.add("run", POLICY_HELP, "RUN")
    parser.add("--out", "folder to write to (default RUN/export)", "FOLDER")
    parser.add("--stochastic", "add an input for noise, which samples the actions (default: the most probable actions)")
    parser.add("--batch", "accept only N environments (default: any number)", "N")
    parser.add_shared("--runs-dir")
    return parser


def run(options: Options) -> int:
    if options.batch is not None and options.batch < 1:
        raise UsageError(f"--batch {options.batch}: expected at least 1.")
    from proximo.evaluation.policy import load_policy
    from proximo.export import METADATA, export
    from proximo.jax_setup import prepare_jax
    from proximo.storage import run_lookup, zoo

    prepare_jax()
    policy = load_policy(options.run, options.runs_dir)
    run_dir = run_lookup.find_run(options.run, options.runs_dir)[0]
    out = options.out or zoo.output_folder(run_dir) / "export"
    done = export(policy, out, zoo.label(run_dir), not options.stochastic, options.batch)
    print_warnings(done.warnings)
    parity = done.metadata["parity"]
    print(f"{done.folder}: {', '.join(sorted([METADATA, *done.metadata['sha256']]))}")
    print(f"largest error against JAX over {parity['steps']} steps with resets: {parity['largest_error']:.1e}")
    for count, speed in done.metadata["latency_microseconds"].items():
        figures = ", ".join(f"{name} {microseconds:,.0f}" for name, microseconds in speed.items())
        print(f"median microseconds per step of {count} environment{'s' if count != '1' else ''}: {figures}")
    return 0
