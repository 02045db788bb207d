#!/usr/bin/env python3
"""Builds and runs what stands in a tree of oneDNN's sources: its graph examples and API tests against Sterna's stand-in for its
library, and its batch files through `sterna batch`.

    .ci/onednn.py examples SOURCE --headers FOLDER --stand-in DIR
    .ci/onednn.py batches SOURCE --sterna PROGRAM [--seconds N] [--file FILE]...

SOURCE is a tree of the release whose headers are in FOLDER. DIR is what `cargo dnnl DIR` wrote. Nothing in SOURCE is changed.
The first form fails if anything but the rows of KNOWN fails, and if one of these no longer does. The second prints a table in
Markdown, and fails if a result is wrong.
"""

import argparse
import collections
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Sources that are not for a CPU alone, or not for clients of the library, by the beginnings of their names.
LEFT_OUT = {
    "examples/graph/sycl_": "wants SYCL",
    "examples/graph/gpu_": "wants a GPU",
    "tests/gtests/graph/api/sycl/": "wants SYCL",
    "tests/gtests/graph/api/ocl/": "wants OpenCL",
    "tests/gtests/graph/unit/": "tests oneDNN's own classes, which no library exports",
}

NXC_WITHOUT_CHANNELS = "an op without data_format is NXC, whose channels do not fit; oneDNN compiles it without looking"
LAYOUT_ANY = "hands inputs of layout any to compile; the place of what a client holds cannot be chosen"

# Tests that fail, and why. The beginning of a reason says whose choice it is.
KNOWN = {
    "CAPI.CompileBN": "wants no pair of ports in place; the result may replace the input, so there is one",
    "CAPI.CompileConv2DBiasSum": NXC_WITHOUT_CHANNELS,
    "CAPI.CompileConvBN": NXC_WITHOUT_CHANNELS,
    "CAPI.CompileGroupedConvBN": NXC_WITHOUT_CHANNELS,
    "CAPI.CompileConvBNStandalone": "takes the first of two independent partitions for the second op's; here they are in the order of the ops",
    "CAPI.CompileConv2DSumConv2D": LAYOUT_ANY,
    "CAPI.CompileSumConv2DStridedBN": LAYOUT_ANY,
}
# The same on machines where oneDNN has no kernels for a type.
KNOWN_HERE = {
    "APIPartition.F8MatmulPartition": "wants three partitions without AVX512-FP16, where oneDNN has no products of f8; Sterna has",
}

SECONDS = 600


class Failed(Exception):
    """What a command said, and how it ended."""


def run(command, **options):
    """What a command prints, if it succeeds."""
    try:
        ended = subprocess.run(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
            errors="replace", **options,
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(f"it takes longer than {SECONDS} s") from late
    if ended.returncode:
        raise Failed(f"ends with {ended.returncode}\n{ended.stdout[-3000:]}")
    return ended.stdout


class Client:
    """Compiles clients against oneDNN's headers, and runs them on the stand-in."""

    def __init__(self, source, headers, stand_in, folder):
        self.source, self.headers, self.stand_in, self.folder = source, headers, stand_in, folder

    def compiled(self, name, includes, words):
        made = self.folder / name
        folders = [word for include in includes for word in ("-I", self.source / include)]
        run([
            *os.environ.get("CXX", "c++").split(), "-std=c++17", "-O1", "-w", "-pthread", "-I", self.stand_in / "include",
            *folders, "-isystem", self.headers, *words, "-o", made,
        ])
        return made

    def built(self, name, sources, includes, options=(), libraries=()):
        return self.compiled(name, includes, [*options, *sources, *libraries, "-L", self.stand_in, "-ldnnl"])

    @functools.cached_property
    def gtest(self):
        """The tests' framework: oneDNN's copy, or where it has none that of the system."""
        for source in self.source.glob("tests/gtests/gtest/**/gtest-all.cc"):
            return self.compiled("gtest.o", ["tests/gtests", "tests/gtests/gtest"], ["-c", source])
        return "-lgtest"

    def ran(self, program, *arguments):
        return run([program, *arguments], env={**os.environ, "LD_LIBRARY_PATH": str(self.stand_in)}, cwd=self.folder)


def is_left_out(source, path):
    name = path.relative_to(source).as_posix()
    return any(name.startswith(start) for start in LEFT_OUT)


def example(client, path):
    """Runs an example; answers with the outcome of each of its tests, of which it is the only one."""
    program = client.built(path.stem, [path], ["examples", "examples/graph"])
    said = client.ran(program, "cpu") if "parse_engine_kind" in path.read_text() else client.ran(program)
    return {path.stem: None if "passed on CPU" in said else said}


def api_test(client, path):
    """Runs a file of API tests; answers with the outcome of each of them."""
    tests = client.source / "tests/gtests/graph"
    sources = [path, tests / "api/api_test_main.cpp", tests / "api/test_api_common.cpp", tests / "test_allocator.cpp"]
    # The helpers of oneDNN's other tests want its own classes, and its API tests none of these helpers.
    options = ["-DDNNL_TEST_COMMON_HPP", "-include", "cstring", "-include", "oneapi/dnnl/dnnl.hpp"]
    includes = [".", "tests", "tests/gtests", "tests/gtests/graph", "tests/gtests/graph/api"]
    program = client.built(path.stem, sources, includes, options, [client.gtest])
    report = client.folder / f"{path.stem}.json"
    try:
        client.ran(program, "--engine=cpu", f"--gtest_output=json:{report}")
    except Failed:
        if not report.exists():
            raise
    outcomes = {}
    for suite in json.loads(report.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            faults = [fault["failure"] for fault in case.get("failures", [])]
            outcomes[f"{suite['name']}.{case['name']}"] = "\n".join(faults) or None
    return outcomes


def examples(arguments):
    source = arguments.source.resolve()
    found = [(example, path) for path in sorted(source.glob("examples/graph/*.cpp"))]
    names = sorted(source.glob("tests/gtests/graph/api/test_c*_api_*.cpp"))
    found += [(api_test, path) for path in names]
    if not found:
        sys.exit(f"{source} has neither examples/graph nor tests/gtests/graph/api")
    passed, failed, known = 0, [], set()
    with tempfile.TemporaryDirectory() as folder:
        client = Client(source, arguments.headers.resolve(), arguments.stand_in.resolve(), pathlib.Path(folder))
        for kind, path in found:
            if is_left_out(source, path):
                continue
            try:
                outcomes = kind(client, path)
            except Failed as why:
                outcomes = {path.stem: str(why)}
            for name, fault in outcomes.items():
                reason = KNOWN.get(name) or KNOWN_HERE.get(name)
                word = "passed" if fault is None else "known" if reason else "FAILED"
                print(f"{word:7} {path.name}: {name}{f': {reason}' if word == 'known' else ''}", flush=True)
                passed += fault is None
                known |= {name} if reason and (fault or name in KNOWN_HERE) else set()
                failed += [f"{name}: it no longer fails"] if name in KNOWN and fault is None else []
                failed += [f"{path.name}: {name}: {fault}"] if word == "FAILED" else []
    print(*(f"left out: {start}*: {why}" for start, why in LEFT_OUT.items()), sep="\n")
    print(f"{passed} passed, {len(failed)} failed, {len(known)} known")
    if failed:
        sys.exit("\n".join(failed))


def kind_of(reason):
    """A reason without the numbers of one graph."""
    reason = re.sub(r"\(op \d+\)|\(tensor \d+\)|\{[^}]*\}|\d+", "…", reason or "")
    return re.sub(r"(…\s*)+", "… ", reason).strip()


def batches(arguments):
    folder = arguments.source.resolve() / "tests/benchdnn/inputs/graph"
    # The other files are made of these.
    files = arguments.file or sorted(folder.glob("*/harness_*"))
    if not files:
        sys.exit(f"{folder} has no harness files")
    words = ["passed", "ran", "refused", "late", "missing", "wrong", "failed"]
    rows, reasons = [], collections.Counter()
    for file in files:
        ended = subprocess.run(
            [arguments.sterna, "batch", file, "--case-dir", folder, "--check", "--json", "--time-limit", str(arguments.seconds)],
            stdout=subprocess.PIPE, text=True,
        )
        if not ended.stdout:
            sys.exit(f"{file} cannot be read")
        graphs = json.loads(ended.stdout)["graphs"]
        outcomes = collections.Counter(graph["outcome"] for graph in graphs)
        lines = len({graph["line"] for graph in graphs})
        name = file.resolve().relative_to(folder)
        rows.append([f"`{name}`", lines, len(graphs), *(outcomes[word] for word in words)])
        for graph in graphs:
            if graph["outcome"] in ("ran", "refused", "wrong", "failed"):
                reasons[graph["outcome"], pathlib.PurePath(graph["case"]).stem, kind_of(graph["reason"])] += 1
    print("| file | lines | graphs |", " | ".join(words), "|")
    print("|---|" + "--:|" * (2 + len(words)))
    for row in rows:
        print("|", " | ".join(map(str, row)), "|")
    for (word, case, reason), count in sorted(reasons.items()):
        print(f"{word} {count} {case}: {reason}")
    if any(row[-1] or row[-2] for row in rows):
        sys.exit("a result is wrong, or a graph did not run to its end")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("examples")
    command.add_argument("source", type=pathlib.Path)
    command.add_argument("--headers", type=pathlib.Path, required=True)
    command.add_argument("--stand-in", type=pathlib.Path, required=True)
    command.set_defaults(run=examples)
    command = commands.add_parser("batches")
    command.add_argument("source", type=pathlib.Path)
    command.add_argument("--sterna", type=pathlib.Path, required=True)
    command.add_argument("--seconds", type=float, default=10)
    command.add_argument("--file", type=pathlib.Path, action="append")
    command.set_defaults(run=batches)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
