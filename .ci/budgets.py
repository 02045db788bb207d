#!/usr/bin/env python3
"""Measures what the library costs. Fails where that is over a limit, or not what the table in docs/supported.md says.

    .ci/budgets.py [--without-features | --clean-build] [--rewrite]

Builds what it measures. --rewrite writes the table anew. Sizes and times differ a little from one compiler and machine
to the next, so of those only the limits are compared with the page; what can be counted is compared exactly.
--without-features measures the library without its default features instead, --clean-build the processor time of a build of
everything, which would take too long for every change: else the rows of the table stay as they are.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "supported.md"
BEGIN = "<!-- The table of budgets, written by .ci/budgets.py. -->\n"
END = "<!-- End of the table of budgets. -->\n"
HEAD = "| what | measured | at most |\n|---|---|---|\n"
MB = 1_000_000
# A function of the tables of kernels is a shell in which a body is compiled for one level. Shells that only serve
# others, for one body in several orders of operands, are not counted.
SHELL = re.compile(r" [tT] sterna::kernels::.*::(portable|avx2|avx512)(::kernel\d?|::shell)?(::<|$)")
# An instruction of a level that is called: code that should be part of a kernel was compiled for the lowest level.
CALLED_INSTRUCTION = re.compile(r" [tT] .*core_arch::x86::(sse|avx|f16c|fma)")

WITHOUT_FEATURES = "`libsterna.so` without default features, stripped"


class Row(typing.NamedTuple):
    """What was measured, what was found, how the page says it, the limit, and how the page says that."""

    what: str
    found: float
    said: str
    limit: float
    most: str


def run(*command, **options):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def stripped_size(library):
    with tempfile.NamedTemporaryFile() as file:
        run("strip", "-o", file.name, library)
        return os.path.getsize(file.name)


def target_folder():
    return pathlib.Path(json.loads(run("cargo", "metadata", "--no-deps", "--format-version=1"))["target_directory"])


def size_of_dnnl():
    with tempfile.TemporaryDirectory() as folder:
        # `cargo dnnl` without a build of its own.
        run(target_folder() / "release" / "sterna-dnnl", folder)
        return stripped_size(f"{folder}/libdnnl.so.3")


def dependencies(*features):
    tree = run("cargo", "tree", "--package", "sterna", "--edges=normal", "--prefix=none", *features)
    packages = {line.removesuffix(" (*)") for line in tree.splitlines()}
    return len(packages) - 1


def build(folder, *features):
    """The C library, built for release in a folder."""
    run("cargo", "cbuild", "--locked", "--release", "--package", "sterna-capi", "--target-dir", str(folder), *features)
    host = re.search(r"^host: (.*)$", run("rustc", "-vV"), re.M)[1]
    return folder / host / "release" / "libsterna.so"


def clean_build():
    """The C library, for release, into an empty folder: its processor time."""
    folder = target_folder() / "cargo-c"
    shutil.rmtree(folder, ignore_errors=True)
    run("cargo", "fetch", "--locked")
    began = time_of_children()
    build(folder)
    seconds = time_of_children() - began
    said = f"{seconds:.0f} s on {machine()}, rustc {run('rustc', '--version').split()[1]}"
    return Row("processor time of a clean build of `libsterna.so`", seconds, said, 400, "400 s")


def time_of_children():
    """Seconds that processes started from here have spent on processors, whatever else has run."""
    times = os.times()
    return times.children_user + times.children_system


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    return f"{os.cpu_count()} cores of {model}"


def size_without_features():
    # In one folder, each build would overwrite the library of the other.
    size = stripped_size(build(target_folder() / "cargo-c-plain", "--no-default-features"))
    return Row(WITHOUT_FEATURES, size, f"{size / MB:.2f} MB", 5.1 * MB, "5.1 MB")


def symbols_in(library, pattern):
    symbols = run("nm", "--demangle", str(library))
    return sum(1 for line in symbols.splitlines() if pattern.search(line))


def sizes_and_counts():
    # The same library as that of cargo-c, under another name.
    run("cargo", "build", "--release", "--package=sterna-capi", "--package=sterna-dnnl")
    library = target_folder() / "release" / "libsterna_capi.so"
    kernels, called = symbols_in(library, SHELL), symbols_in(library, CALLED_INSTRUCTION)
    plain, with_json = dependencies(), dependencies("--features=json")
    bare = dependencies("--no-default-features")
    # Each library with its size and its limit in megabytes; the first one has graph builders and sessions.
    sizes = [("libsterna.so", stripped_size(library), 7.8), ("libdnnl.so.3", size_of_dnnl(), 6.8)]
    if kernels == 0:
        sys.exit("no kernel was found in the library")
    return [
        Row(f"`{name}`, stripped", size, f"{size / MB:.2f} MB", limit * MB, f"{limit} MB")
        for name, size, limit in sizes
    ] + [
        Row("packages that the library depends on", plain, str(plain), 32, "32"),
        Row("the same, with the feature `json`", with_json, str(with_json), 40, "40"),
        Row("the same, without default features", bare, str(bare), 28, "28"),
        Row("kernels instantiated, at three levels", kernels, str(kernels), 3000, "3000"),
        Row("instructions of a level that are called, not part of a kernel", called, str(called), 0, "0"),
    ]


def main():
    slow = {"--without-features": size_without_features, "--clean-build": clean_build}
    rows = [measure() for option, measure in slow.items() if option in sys.argv[1:]] or sizes_and_counts()
    faults = [f"{row.what}: {row.said} is over {row.most}" for row in rows if row.found > row.limit]
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    shown = {cells[1]: cells[2:4] for cells in map(cells_of, table.removeprefix(HEAD).splitlines())}
    measured = {row.what: [row.said, row.most] for row in rows}
    print("\n".join(f"{what}: {said}, at most {most}" for what, (said, most) in measured.items()))
    if "--rewrite" in sys.argv[1:]:
        # The order of the rows is that of the table.
        lines = [f"| {what} | {said} | {most} |\n" for what, (said, most) in (shown | measured).items()]
        PAGE.write_text(before + BEGIN + HEAD + "".join(lines) + END + after)
    else:
        for row in rows:
            on_page = shown.get(row.what, ["nothing", "nothing"])
            if on_page[1] != row.most or (row.said.isdigit() and on_page[0] != row.said):
                faults.append(f"{row.what}: {row.said}, at most {row.most}; the page says {on_page}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return bool(faults)


def cells_of(line):
    return [cell.strip() for cell in line.split("|")]


if __name__ == "__main__":
    sys.exit(main())
