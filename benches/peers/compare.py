#!/usr/bin/env python3
"""Times Sterna beside its peers on the same selects or graphs, and checks that all give the same answer.

Installs what it needs into a cache directory, then runs itself there. README.md says what is measured.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# Nothing is written beside the sources, by the servers neither.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

from install import PACKAGES, Places, build_native, build_rust, default_cache, install  # noqa: E402

if TYPE_CHECKING:
    from measure import Row

# Peers that are known to give another answer to a select: OpenVINO's CPU plugin cuts s64 to 32 bits.
KNOWN_WRONG = {("openvino", "s64")}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    torches = [peer for peer in PACKAGES if peer.startswith("torch")]
    default = [peer for peer in PACKAGES if peer not in torches]
    parser.add_argument("--peers", nargs="+", choices=PACKAGES, default=default, metavar="PEER",
                        help=f"the peers to compare with, of: {', '.join(PACKAGES)} (all but torch)")
    parser.add_argument("--graphs", action="store_true", help="fused graphs in place of selects")
    parser.add_argument("--torch", action="store_true", help="torch as well: its wheel brings gigabytes along")
    parser.add_argument("--short", action="store_true", help="small cases, for the answer and not for the time")
    parser.add_argument("--cases", nargs="+", type=int, metavar="N", help="only these cases, counted from 1")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], metavar="N", help="numbers of threads (1)")
    parser.add_argument("--rounds", type=int, default=7, help="turns that every peer has in every case (7)")
    parser.add_argument("--pages", choices=["huge", "small"], default="huge",
                        help="pages of large blocks of memory (huge)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where peers.md and peers.svg are written")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="DIR",
                        help="where the environment and the programs are kept (%(default)s)")
    parser.add_argument("--onednn", type=Path, metavar="DIR",
                        help="another build of oneDNN: a folder with include and lib")
    arguments = parser.parse_args()
    if arguments.torch:
        arguments.peers += [peer for peer in torches if peer not in arguments.peers]
    return arguments


def enter(places: Places) -> None:
    """Goes on in the environment's Python."""
    if Path(sys.prefix).resolve() != places.venv.resolve():
        os.execv(places.python, [str(places.python), *sys.argv])


def choose_cpus(threads: int) -> list[int]:
    """The last ones: the first is where systems tend to do their own work."""
    available = sorted(os.sched_getaffinity(0))
    if threads > len(available):
        sys.exit(f"{threads} threads need as many CPUs; there are {len(available)}")
    return available[-threads:]


def judge(rows: list[Row], peers: list[str]) -> int:
    """Prints what is not right, and counts. Refusals are the peers' right, but not Sterna's."""
    from servers import LIMIT

    passed = failed = skipped = 0
    for row in rows:
        for peer, outcome in row.outcomes.items():
            ours = peer in (LIMIT, "sterna")
            is_known = row.case.is_select and (peer, row.case.dtype) in KNOWN_WRONG
            known = outcome.status == "wrong" and is_known
            if outcome.status == "ok":
                passed += 1
            elif known or (outcome.status == "refused" and not ours):
                skipped += 1
            else:
                failed += 1
                print(f"{row.case.label}: {peer} {outcome.status}: {outcome.reason}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed


def command(words: list[str]) -> str:
    """How to repeat this run: without the paths of this machine."""
    kept, rest = [], iter(words)
    for word in rest:
        name, is_joined, _ = word.partition("=")
        if name not in ("--out", "--cache"):
            kept.append(word)
        elif not is_joined:
            next(rest, None)
    return shlex.join(["python3", "benches/peers/compare.py", *kept, "--out", "DIR"])


def compare(arguments: argparse.Namespace, places: Places) -> int:
    from cases import CASES, GRAPH_CASES, SHORT_CASES, SHORT_GRAPH_CASES
    from measure import measure
    from report import chart, load_average, markdown, table
    from servers import Setting

    suites = ((CASES, SHORT_CASES), (GRAPH_CASES, SHORT_GRAPH_CASES))
    cases = suites[arguments.graphs][arguments.short]
    if arguments.cases:
        cases = [cases[number - 1] for number in arguments.cases]
    rounds = 0 if arguments.short else arguments.rounds
    load = load_average()
    rows = []
    for threads in arguments.threads:
        setting = Setting(places, choose_cpus(threads), arguments.pages == "huge")
        for case in cases:
            rows.append(measure(case, arguments.peers, setting, rounds))
            print("\n".join(table(rows[-1:], arguments.peers)), flush=True)
    if arguments.out and rounds:
        arguments.out.mkdir(parents=True, exist_ok=True)
        text = markdown(rows, arguments.peers, command(sys.argv[1:]), load)
        (arguments.out / "peers.md").write_text(text)
        chart(rows, arguments.peers, arguments.out / "peers.svg")
    return judge(rows, arguments.peers)


def main() -> None:
    arguments = parse()
    places = Places(arguments.cache.resolve(), arguments.onednn and arguments.onednn.resolve())
    install(places, arguments.peers)
    enter(places)
    build_native(places, arguments.peers)
    build_rust(places)
    sys.exit(1 if compare(arguments, places) else 0)


if __name__ == "__main__":
    main()
