"""Rows of a bench of Cargo and their peers by turns, in one run: what the scripts that measure so share.

Sterna is a process that answers questions (`--serve`, `benches/serve/mod.rs`); the peers run in the script, on the bytes
that Sterna wrote. In each round every candidate has its turn; the number is the median over the rounds of the best sample.
All run on as many CPUs as threads.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# Nanoseconds that a sample takes at least: the clock is read once a sample.
SAMPLE = 2_000_000
# Samples of a turn.
SAMPLES = 3
# Seconds in which workers of the candidate before go to sleep.
REST = 0.05
# Types of numpy by type; bf16 is read as the upper halves of f32.
TYPES = {"f32": np.float32, "f16": np.float16, "s32": np.int32, "boolean": np.bool_, "u8": np.uint8, "s8": np.int8}

Run = Callable[[], Any]
# Nanoseconds of as many samples as are asked for.
Sampled = Callable[[int], list[float]]


class Refused(Exception):
    """The peer does not do this row."""


class Bench:
    """A process that holds one row. `about` is what it says of the row."""

    def __init__(self, bench: Path, row: str, threads: int) -> None:
        command = [str(bench), "--bench", "--serve", row, "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.about = self.answer("ready")

    def answer(self, expected: str) -> list[str]:
        line = self.process.stdout.readline().split()
        if not line or line[0] != expected:
            raise SystemExit(f"the bench answered {line} and not {expected!r}")
        return line[1:]

    def ask(self, question: str, expected: str) -> list[str]:
        print(question, file=self.process.stdin, flush=True)
        return self.answer(expected)

    def bytes(self, id: int) -> bytearray:
        with tempfile.NamedTemporaryFile() as file:
            self.ask(f"write {id} {file.name}", "written")
            return bytearray(Path(file.name).read_bytes())

    def samples(self, count: int) -> list[float]:
        return [float(word) for word in self.ask(f"run {count}", "times")]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def numbers(data: bytearray, type: str, shape: Iterable[int]) -> np.ndarray:
    """Bytes as an array; bf16 becomes f32."""
    if type == "bf16":
        halves = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return halves.view(np.float32).reshape(*shape)
    return np.frombuffer(data, TYPES[type]).reshape(*shape)


def upper_halves(array: np.ndarray) -> np.ndarray:
    """bf16 as it lies in memory, of numbers that are bf16 already."""
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def sampled(run: Run, count: int) -> list[float]:
    """Nanoseconds of an execution, of samples that are long enough."""

    def once(batch: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(batch):
            run()
        return (time.perf_counter_ns() - start) / batch

    batch = max(1, int(SAMPLE / max(once(1), 1)))
    return [once(batch) for _ in range(count)]


def by_turns(candidates: dict[str, Sampled], rounds: int, threads: int) -> dict[str, float]:
    """Nanoseconds of an execution of each."""
    best: dict[str, list[float]] = {one: [] for one in candidates}
    for _ in range(rounds):
        for one, samples in candidates.items():
            best[one].append(min(samples(SAMPLES)))
            if threads > 1:
                time.sleep(REST)
    return {one: statistics.median(times) for one, times in best.items()}


def reason(why: Exception) -> str:
    """What a peer said, in a line."""
    text = str(why).strip().splitlines() or [type(why).__name__]
    return text[0][:120]


def built_bench(name: str) -> Path:
    """Builds the bench, and says where it is."""
    command = ["cargo", "bench", "--bench", name, "--no-run", "--message-format", "short"]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=True)
    line = next(line for line in done.stderr.splitlines() if "Executable" in line)
    return ROOT / line.split("(")[-1].rstrip(")")


def listed(bench: Path, filters: list[str]) -> list[str]:
    """Names of the rows that hold every filter."""
    command = [bench, "--bench", "--list", *filters]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def add_options(parser: argparse.ArgumentParser, peers: list[str]) -> None:
    parser.add_argument("filters", nargs="*", metavar="FILTER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", nargs="+", choices=peers, default=peers)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--bench", type=Path, help="the bench, if it is built already")
    parser.add_argument("--out", type=Path, help="also writes the table there, as CSV")


def keep_to(threads: int) -> None:
    """As many CPUs as threads; what this process starts inherits it."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:threads])
    os.environ["OMP_NUM_THREADS"] = str(threads)


class Table:
    """Lines as CSV, on standard output and in a file."""

    def __init__(self, columns: list[str], path: Path | None) -> None:
        self.lines: list[dict[str, Any]] = []
        self.files = [sys.stdout] + ([path.open("w")] if path else [])
        self.writers = [csv.DictWriter(file, columns, restval="") for file in self.files]
        for writer in self.writers:
            writer.writeheader()

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        for writer, file in zip(self.writers, self.files):
            writer.writerow(line)
            file.flush()
