"""Run forged programs with the NumPy runtime: modified real programs, and random programs of all operations.

    python tests/export/forged_programs.py src/proximo/export/runtime.py policy.npz MUTATED RANDOM [SEED]

Prints how many gave a result and how many a PolicyError. Anything else ends the process: another error, a crash, a shape that is
not the inferred one, an allocation beyond the limit.
"""

import importlib.util
import io
import json
import resource
import sys

import numpy as np

LIMIT = 6 * 2**30
WEIRD = [0, -1, 1, 2, 3, 7, 64, -9, 255, 10**4, 2**31, 2**40, -(2**63), 10**30]


def load(path):
    spec = importlib.util.spec_from_file_location("proximo_policy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def file_of(program, arrays):
    data = io.BytesIO()
    text = np.frombuffer(json.dumps(program).encode(), np.uint8)
    np.savez(data, **{**arrays, "program": text})
    return data.getvalue()


class Forger:
    def __init__(self, runtime, seed):
        self.runtime, self.rng = runtime, np.random.default_rng(seed)

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def small(self):
        return int(self.rng.integers(-1, 5))

    def changed(self, value):
        """``value`` with one change somewhere in it."""
        if isinstance(value, dict) and value and self.rng.random() < 0.95:
            key = self.pick(list(value))
            return {**value, key: self.changed(value[key])}
        if isinstance(value, list) and value and self.rng.random() < 0.9:
            i = int(self.rng.integers(len(value)))
            return self.pick(
                [[*value[:i], self.changed(value[i]), *value[i + 1 :]], value[:i] + value[i + 1 :], [*value, value[i]]]
            )
        if isinstance(value, int):
            return self.pick([value + self.small()] * 4 + [-value, self.pick(WEIRD), [1, value], None])
        if isinstance(value, str):
            return self.pick([value + "x", "", None, 0, self.pick(self.runtime.DTYPES), self.pick(list(self.runtime.OPERATIONS))])
        return self.pick([None, [], {}, 0, True, [[[]]], "x", 1.5])

    def mutated(self, program):
        """A real program with one or two changes, most of them in a node of a random operation."""
        program = {**program, "nodes": list(program["nodes"])}
        for _ in range(int(self.rng.choice([1, 1, 1, 2]))):
            if self.rng.random() < 0.85:
                names = sorted(
                    {node[0] for node in program["nodes"] if isinstance(node, list) and node and isinstance(node[0], str)}
                )
                name = self.pick(names)
                i = self.pick(
                    [i for i, node in enumerate(program["nodes"]) if isinstance(node, list) and node and node[0] == name]
                )
                node = list(program["nodes"][i])
                part = self.pick([1, 2]) if len(node) > 2 else 0
                node[part] = self.changed(node[part])
                program["nodes"][i] = node
            else:
                key = self.pick([key for key in program if key != "nodes"])
                program = {**program, key: self.changed(program[key])}
        return program

    def attribute(self, kind, rank):
        def number():
            return self.pick(WEIRD) if self.rng.random() < 0.03 else self.small()

        def dim():
            return [self.small(), self.small()] if self.rng.random() < 0.2 else number()

        return {
            "int": number,
            "ints": lambda: [number() for _ in range(max(0, rank - int(self.rng.integers(3))))],
            "flag": lambda: bool(self.rng.integers(2)),
            "dim": dim,
            "dims": lambda: [dim() for _ in range(rank)],
            "dtype": lambda: self.pick(self.runtime.DTYPES),
            "how": lambda: self.pick(["set", "add", "multiply", "maximum", "minimum"]),
        }[kind]()

    def random(self, shapes):
        """A program of up to six operations whose outputs are all of its values, with the shapes that are inferred."""
        arrays = {}
        inputs = [{"name": "episode_start", "shape": [[1, 0]], "dtype": "bool"}]
        for i in range(4):
            shape = [int(x) for x in self.rng.integers(0, 5, int(self.rng.integers(0, 5)))]
            arrays[f"constant_{i}"] = self.rng.normal(size=shape).astype(self.pick(["float32", "int32", "uint8"]))
        constants = [{"shape": list(x.shape), "dtype": x.dtype.name} for x in arrays.values()]
        empty = {
            "observation": [], "noise": [], "reward": False, "reset_memory": True, "memory": [], "mask_sizes": [], "action_dtype": "int32",
        }  # fmt: skip
        program = {
            "format": self.runtime.FORMAT,
            "version": self.runtime.VERSION,
            "batch": None,
            "inputs": inputs,
            "interface": empty,
        }
        program |= {"constants": constants, "nodes": [], "outputs": []}
        known = [(0, "episode_start"), *((i + 1, x["shape"]) for i, x in enumerate(constants))]
        for _ in range(int(self.rng.integers(1, 7))):
            for _ in range(20):  # until one fits: a program that fails at its first operation tests little
                name = self.pick(list(self.runtime.OPERATIONS))
                _, count, kinds = self.runtime.OPERATIONS[name]
                places = [int(self.rng.integers(len(known))) for _ in range(2 if count is None else count)]
                rank = len(shapes(program, 3)[places[0]]) if places else 1
                node = [name, places, {key: self.attribute(kind, rank) for key, kind in kinds.items()}]
                trial = {**program, "nodes": [*program["nodes"], node]}
                try:
                    shapes(trial, 3)
                except ValueError:
                    continue
                program = trial
                known.append((len(known), ""))
                break
            else:
                program["nodes"].append(node)
                break
        try:
            found = shapes(program, 3)
        except ValueError:
            found = []
        program["outputs"] = [
            {"name": f"v{i}" if i else "action", "value": i, "shape": list(x), "dtype": "float32"} for i, x in enumerate(found)
        ]
        program["outputs"] = program["outputs"] or [{"name": "action", "value": 0, "shape": [3], "dtype": "bool"}]
        return program, arrays


def fed(program):
    """Valid inputs for the program, if they are small."""
    shapes = {leaf["name"]: [d if isinstance(d, int) else 3 * d[0] + d[1] for d in leaf["shape"]] for leaf in program["inputs"]}
    return {name: np.ones(shape, bool) if np.prod(shape) < 10**6 else 0 for name, shape in shapes.items()}


def main(runtime_path, policy_path, mutated, random, seed=0):
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    runtime = load(runtime_path)
    forger = Forger(runtime, int(seed))
    with np.load(policy_path) as file:
        arrays = dict(file)
    program = json.loads(arrays.pop("program").tobytes())
    counts = {"results": 0, "errors": 0}

    def run(data, shapes_hold):
        try:
            policy = runtime.ExportedPolicy(io_path(data))
            policy.run(fed(policy.program))
            counts["results"] += 1
        except runtime.PolicyError as error:
            message = str(error)
            counts["errors"] += 1
            if len(message) > 2000 or (shapes_hold and "has the shape" in message):
                raise SystemExit(f"wrong shape or long message: {message[:2000]}") from error

    def io_path(data):
        with open(policy_path, "wb") as file:
            file.write(data)
        return policy_path

    for _ in range(int(mutated)):
        run(file_of(forger.mutated(program), arrays), False)
    for _ in range(int(random)):
        made, constants = forger.random(runtime.infer_shapes)
        run(file_of(made, constants), True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
