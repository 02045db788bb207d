"""Answers and times of all peers on one case, interleaved."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cases import DTYPES, Array, Case
from graphs import Graph
from install import HERE
from onednn_graph import save_lines
from python_peers import Request, numpy_peer
from servers import LIMIT, Failed, Refused, Server, Setting

SEED = 2024
EXAMPLES = HERE.parents[1] / "examples" / "graphs"
# Nanoseconds that a sample takes at least: the clock is read once a sample.
SAMPLE = 20_000
# Nanoseconds that a peer is given in one round, and the samples it takes at least and at most.
ROUND = 40_000_000
SAMPLES = (3, 200)
# Nanoseconds an execution from which one sample in a round must do.
SLOW = 1_000_000_000
# Seconds in which workers of the peer before go to sleep.
REST = 0.05


@dataclass
class Outcome:
    """What became of a peer on a case."""

    # ok, wrong, refused or failed.
    status: str
    version: str = ""
    reason: str = ""
    # Nanoseconds, the best sample of each round.
    rounds: list[float] = field(default_factory=list)

    @property
    def time(self) -> float | None:
        return statistics.median(self.rounds) if self.rounds else None


@dataclass(frozen=True)
class Row:
    """A case and what became of every peer on it."""

    case: Case
    threads: int
    outcomes: dict[str, Outcome]

    @property
    def limit(self) -> float | None:
        return self.outcomes[LIMIT].time


def _wrong(given: Array, expected: Array, graph: Graph) -> Array:
    """Where a result is not the answer: any NaN is one, other bits count where no error is allowed."""
    integers = np.dtype(f"u{given.itemsize}")
    differ = np.flatnonzero(given.view(integers) != expected.view(integers))
    given, expected = (array[differ].astype(np.float64) for array in (given, expected))
    are_near = np.isnan(given) & np.isnan(expected)
    if graph.relative or graph.absolute:
        are_near |= np.abs(given - expected) <= graph.relative * np.abs(expected) + graph.absolute
    return differ[~are_near]


def _compare(server: Server, expected: Array, graph: Graph, path: Path) -> str:
    """Says how the peer's result differs from the answer; nothing where it does not."""
    server.write(path)
    try:
        given = np.fromfile(path, expected.dtype)
    finally:
        path.unlink(missing_ok=True)
    if given.size != expected.size:
        return f"{given.size} elements, not {expected.size}"
    expected = expected.reshape(-1)
    wrong = _wrong(given, expected, graph)
    if not wrong.size:
        return ""
    first = wrong[0]
    return (
        f"{wrong.size} of {expected.size} elements differ, the first at {first}: "
        f"{given[first]}, not {expected[first]}"
    )


def _start(peers: list[str], case: Case, directory: Path, setting: Setting, expected: Array) -> tuple[
    list[Server], dict[str, Outcome]
]:
    """Starts the servers and checks their answers."""
    servers: list[Server] = []
    outcomes: dict[str, Outcome] = {}
    for peer in peers:
        try:
            server = Server(peer, case, directory, setting)
        except Refused as refusal:
            outcomes[peer] = Outcome("refused", reason=str(refusal))
            continue
        except Failed as failure:
            outcomes[peer] = Outcome("failed", reason=str(failure))
            continue
        servers.append(server)
        try:
            streams_only = peer == LIMIT and not case.is_select
            difference = "" if streams_only else _compare(server, expected, case.graph, directory / "dst.bin")
        except Failed as failure:
            outcomes[peer] = Outcome("failed", server.version, str(failure))
            continue
        outcomes[peer] = Outcome("wrong" if difference else "ok", server.version, difference)
    return servers, outcomes


def _effort(server: Server) -> tuple[int, int]:
    """Samples in a round and executions in a sample."""
    once = server.time(1, 1)[0]
    if once >= SLOW:
        return 1, 1
    batch = max(1, round(SAMPLE / once))
    once = min(server.time(2, batch))
    samples = round(ROUND / (once * batch))
    return min(max(samples, SAMPLES[0]), SAMPLES[1]), batch


def _time(servers: list[Server], outcomes: dict[str, Outcome], rounds: int, threads: int) -> None:
    """Every peer has its turn in every round; each round starts with another one."""
    running = [server for server in servers if outcomes[server.peer].status in ("ok", "wrong")]
    efforts = {server.peer: _effort(server) for server in running}
    for turn in range(rounds):
        first = turn % len(running)
        for server in running[first:] + running[:first]:
            if threads > 1:
                time.sleep(REST)
            outcomes[server.peer].rounds.append(min(server.time(*efforts[server.peer])))


def measure(case: Case, peers: list[str], setting: Setting, rounds: int) -> Row:
    """Checks all peers, and times them if there are rounds."""
    with tempfile.TemporaryDirectory(dir=setting.places.cache, prefix="case-") as name:
        directory = Path(name)
        inputs = case.make_inputs(SEED)
        for index, array in enumerate(inputs):
            array.tofile(directory / f"{index}.bin")
        if not case.is_select:
            shutil.copy(EXAMPLES / f"{case.name}.json", directory / "graph.json")
        if "onednn" in peers:
            save_lines(case, directory / "graph.json", directory / "graph.txt")
        if {"openvino", "onnxruntime"} & set(peers):
            from onnx_model import save_model

            save_model(case, directory / "graph.onnx")
        expected = numpy_peer(Request(case.graph, inputs, DTYPES[case.dtype], case.dims, 1, directory)).result()
        servers: list[Server] = []
        try:
            servers, outcomes = _start([LIMIT, "sterna", *peers], case, directory, setting, expected)
            if rounds:
                _time(servers, outcomes, rounds, setting.threads)
        finally:
            for server in servers:
                server.close()
    return Row(case, setting.threads, outcomes)
