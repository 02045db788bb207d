#!/usr/bin/env python3
"""Prints the rows of records as lines of history.csv: `history.py RECORD.md … >>history.csv`.

A line is date, revision, machine, bench, row, ratio. A row names what was measured, the threads (`1t`, `2t`) and, if a
record has more than one ratio for it, which one. Answers that were refused or wrong are left out, and tables without ratios
are named.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MACHINES = {
    ("6", "143"): "Sapphire Rapids",
    ("6", "207"): "Emerald Rapids",
    ("25", "1"): "Zen 3",
    ("25", "17"): "Zen 4",
    ("26", "2"): "Zen 5",
}
UNITS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}
FUSION = {5: "apart/fused", 7: "memory/fused", 8: "arithmetic/fused"}


def tables(text: str) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Headings above, column names and cells of every row of every table."""
    headings, head = ["", "", ""], None
    for line in text.splitlines():
        if mark := re.match(r"(#+) (.*)", line):
            level = len(mark[1])
            headings[level - 1 :] = [mark[2]] + [""] * (3 - level)
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if head is None:
            head = cells
        elif not set(line) <= set("|-: "):
            yield headings, head, cells


def nanoseconds(time: str) -> float:
    number, unit = time.split()
    return float(number) * UNITS[unit]


def of_peers(threads: str, head: list[str], cells: list[str]) -> Iterator[tuple[str, str]]:
    for name, cell in list(zip(head, cells))[2:-1]:
        if cell.startswith("refused") or "wrong" in cell:
            continue
        # Calls on a few elements are given as times.
        ratio = f"{nanoseconds(cell) / nanoseconds(cells[1]):.2f}" if " " in cell else cell
        yield f"{cells[0]} {threads} {name}/limit", ratio


def of_limits(head: list[str], cells: list[str]) -> Iterator[tuple[str, str]]:
    """The shares behind each time."""
    threads = ""
    for name, cell in zip(head, cells):
        if mark := re.fullmatch(r"(\d) threads?(, ms)?", name):
            threads = f"{mark[1]}t"
        elif name.startswith("of ") and cell != "–":
            yield f"{threads} {name}", cell


def rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Bench, row and ratio."""
    for headings, head, cells in tables(text):
        threads = next((f"{mark[1]}t" for mark in map(re.compile(r"(\d) thread").match, headings[1:]) if mark), "")
        if head[:3] == ["row", "MB", "stores of the limit"]:
            yield "ratio", f"{cells[0]} 1t", cells[5]
            yield "ratio", f"{cells[0]} 2t", cells[8]
        elif head[:2] == ["row", "MB"]:
            yield "ratio", f"{cells[0]} 2t Sterna/streamed", cells[8]
        elif head[:2] == ["graph", "sizes"]:
            yield "fusion --sweep", f"{cells[0]} 1t least apart/fused of {cells[1]} sizes", cells[3]
            yield "fusion --sweep", f"{cells[0]} 2t least apart/fused of {cells[1]} sizes", cells[5]
        elif head[:3] == ["graph", "Sterna, ms", "oneDNN, ms"]:
            yield "onednn graphs", f"{cells[0]} oneDNN/Sterna", cells[3]
        elif head[0] == "model" and head[1].startswith("Sterna, "):
            for name, cell in zip(head[2:], cells[2:]):
                if re.fullmatch(r"[0-9.]+", cell):
                    yield "models", f"{cells[0]}, {headings[1].lower()} {name}/Sterna", cell
        elif head[:3] == ["row", "threads", "Sterna, us"]:
            for name, cell in zip(head[3:], cells[3:]):
                if re.fullmatch(r"[0-9.]+", cell):
                    yield "rows", f"{cells[0]} {cells[1]}t {name}/Sterna", cell
        elif head[:3] == ["row", "1 thread", "of limit"]:
            yield from (("matmul", f"{cells[0]} {what}", ratio) for what, ratio in of_limits(head, cells))
        elif head[0] == "network":
            # Channels last, then first.
            ratios = [cell for name, cell in zip(head, cells) if name == "torch / Sterna"]
            what = f", {headings[1].lower()}" if "," in headings[1] else ", f32, one thread"
            for layout, cell in zip(("nxc", "ncx"), ratios):
                yield "convolution", f"{cells[0]} {layout}{what} torch/Sterna", cell
        elif head[0] == "graph":
            bench = "fusion --huge" if headings[1] == "In huge pages" else "fusion"
            for column, what in FUSION.items():
                yield bench, f"{cells[0]} {cells[1]} {threads} {what}", cells[column]
        elif head[:2] == ["case", "limit"]:
            bench = "peers --graphs" if "graphs" in headings[0] else "peers"
            yield from ((bench, row, ratio) for row, ratio in of_peers(threads, head, cells))
        elif head[0] == "row" and "1 thread, ms" in head:
            yield from (("attention", f"{cells[0]} {what}", ratio) for what, ratio in of_limits(head, cells))
        elif head[:3] == ["row", "tiles kept", "Sterna"]:
            for name, cell in list(zip(head, cells))[3:]:
                if ", " in cell:
                    yield "attention peers", f"{cells[0]} {name}/Sterna", cell.split(", ")[1]
        else:
            print(f"no ratios are known in a table of {head}", file=sys.stderr)


def main() -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    for record in map(Path, sys.argv[1:]):
        text = record.read_text(encoding="utf-8")
        date = record.name[:10]
        # The first that looks like one: `commit c62e722`, `revision 2008d7b`.
        revision = re.search(r"(?:commit|revision)\s([0-9a-f]{7,})", text)[1]
        # As `lscpu` prints them, or in a sentence.
        cpu = re.search(r"CPU family:\s*(\d+).*?Model:\s*(\d+)", text, re.S) or re.search(r"family (\d+),\s+model (\d+)", text)
        family, model = cpu.groups()
        machine = MACHINES.get((family, model), f"family {family} model {model}")
        out.writerows((date, revision, machine, *row) for row in rows(text))


if __name__ == "__main__":
    main()
