#!/usr/bin/env python3
"""Graphs in JSON on oneDNN and on the stand-in for it, by turns: one client, two libraries.

    cargo dnnl DIR
    python3 benches/peers/onednn_graphs.py --stand-in DIR --attention examples/graphs/*.json --out graphs.csv

measures masked attention in the forms of `attention_graphs.py`, and the graphs of the files.
`native/graph.cpp` is compiled once, against the headers of oneDNN, and finds the one library or the other. Both get the
same inputs: random ones, conditions of which one half is true, sizes of 64, -inf in scalars of Selects; every shape must be
known. The time is that of
all partitions of the graph, one after the other. `difference` is the largest between the results of both, as a share of the
largest number: large where masked rows are NaN in one library and 0 in the other, or where a graph of small integers stands
between two of them. A graph that a library refuses has an empty time, and `note` says why.

It needs numpy, and onednn with onednn-devel, in the environment of the Python that runs it: that of this folder.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from attention_graphs import GRAPHS
from install import Places, default_cache
from onednn_lines import Client, Lines
from turns import Sampled, Table, by_turns, keep_to, numbers, reason

# Nanoseconds of an execution from which one sample a turn must do.
SLOW = 200_000_000


def outputs(client: Client, lines: Lines) -> list[np.ndarray]:
    """What leaves the graph, as numbers in the order of memory."""
    made = []
    for tensor in lines.outputs:
        data, type = client.bytes(tensor["id"]), tensor["dtype"]
        if type in ("f32", "f16", "bf16", "s8", "u8", "s32"):
            made.append(numbers(data, type, [-1]).astype(np.float64))
    return made


def difference(pair: list[list[np.ndarray]]) -> float:
    worst = 0.0
    for one, other in zip(*pair):
        if one.size != other.size:
            return np.inf
        are_equal = (one == other) | (np.isnan(one) & np.isnan(other))
        most = float(np.abs(other[np.isfinite(other)]).max(initial=1e-30))
        with np.errstate(invalid="ignore"):
            apart = np.where(are_equal, 0.0, np.abs(one - other))
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max(initial=0)) / most)
    return worst


def sampled_of(client: Client) -> Sampled:
    """One sample a turn of what is slow."""
    (once,) = client.samples(1)
    return (lambda _: client.samples(1)) if once > SLOW else client.samples


def measure(name: str, graph: dict[str, Any], libraries: dict[str, Path | None], threads: int, rounds: int) -> dict[str, Any]:
    line: dict[str, Any] = {"graph": name, "threads": threads}
    lines = Lines(graph)
    clients: dict[str, Client] = {}
    notes = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        lines.save(folder)
        for library, place in libraries.items():
            try:
                clients[library] = Client(Places(default_cache()), folder, threads, place)
                line[f"{library} partitions"] = clients[library].about[-2]
            except Exception as why:  # whatever a library throws is its own
                clients.pop(library, None)
                notes.append(f"{library}: {reason(why)}")
        if len(clients) == len(libraries):
            line["difference"] = f"{difference([outputs(client, lines) for client in clients.values()]):.2g}"
        candidates = {library: sampled_of(client) for library, client in clients.items()}
        times = by_turns(candidates, rounds, threads)
        for client in clients.values():
            client.close()
    line |= {f"{library} ms": f"{time / 1e6:.4f}" for library, time in times.items()}
    if len(times) == len(libraries):
        line["ratio"] = f"{times['onednn'] / times['sterna']:.2f}"
    return line | {"note": "; ".join(notes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="*", type=Path, metavar="GRAPH")
    parser.add_argument("--attention", action="store_true", help="masked attention too")
    parser.add_argument("--stand-in", type=Path, required=True, metavar="DIR", help="what `cargo dnnl` wrote")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also writes the table there, as CSV")
    arguments = parser.parse_intermixed_args()
    libraries = {"sterna": arguments.stand_in.resolve(), "onednn": None}
    times = [f"{library} {what}" for what in ("partitions", "ms") for library in libraries]
    table = Table(["graph", "threads", *times, "ratio", "difference", "note"], arguments.out)
    keep_to(arguments.threads)
    graphs = {name: make() for name, make in GRAPHS.items()} if arguments.attention else {}
    graphs |= {path.stem: json.loads(path.read_text()) for path in arguments.graphs}
    for name, graph in graphs.items():
        try:
            table.add(measure(name, graph, libraries, arguments.threads, arguments.rounds))
        except Exception as why:  # a graph whose shapes are unknown, or of a later format
            table.add({"graph": name, "threads": arguments.threads, "note": reason(why)})


if __name__ == "__main__":
    main()
