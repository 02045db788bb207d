#!/usr/bin/env python3
"""Checks that what benches/record/ holds is of use to a reader.

Each record is linked from a page of the repository, each chart is shown on one, and no link in the folder is broken. A
record is the newest of its bench and kind of machine, or a page shows it. Each line of history.csv is a ratio of a row.
Each decision that code names stands in decisions.md, and code names each that stands there. The picture of the README and the
tables of docs/peers.md and of the page on performance have the figures of their records, and so have the models of torch on the
README and on the page on PyTorch.
"""

import collections
import csv
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benches" / "record"
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
# Date, bench with the kind of machine, number of the run.
NAME = re.compile(r"\d{4}-\d\d-\d\d-(.*?)(-\d+)?\.md")
DECISION = re.compile(r"^\| `([a-z0-9-]+)` \|", re.MULTILINE)
# In a comment, or as a field of a table.
CITATION = re.compile(r'\bdecision: "?([a-z0-9-]+)')
# The newest record of models of torch that has inductor beside them.
TORCH_RECORD = RECORDS / "2026-11-29-torch-zen5.md"
COLUMNS = ["date", "revision", "machine", "bench", "row", "ratio"]


def tracked(pattern):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", pattern],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).exists()]


def links():
    """Page, whether an image is shown, and target of every link within the repository."""
    for page in tracked("*.md"):
        for mark, target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target:
                yield page, mark == "!", pathlib.Path(os.path.normpath(page.parent / target))


def of_links():
    linked, shown = set(), set()
    for page, is_image, target in links():
        if page != target:
            linked.add(target)
        if is_image:
            shown.add(target)
        if RECORDS in page.parents and not target.exists():
            yield f"{page.relative_to(ROOT)} links to {target.relative_to(ROOT)}, which is not there"
    for path in tracked("benches/record"):
        if path not in linked:
            yield f"{path.relative_to(ROOT)} is linked from no page"
        if path.suffix == ".svg" and path not in shown:
            yield f"{path.relative_to(ROOT)} is shown on no page"


def of_numbers():
    """A record stays if it is the newest of its bench and kind of machine, or if a page shows it."""
    shown = {target for page, _, target in links() if page.parent != RECORDS}
    of_bench = collections.defaultdict(list)
    for path in tracked("benches/record/*.md"):
        if name := NAME.fullmatch(path.name):
            of_bench[name[1]].append((path.name[:10], int((name[2] or "-1")[1:]), path))
    for runs in of_bench.values():
        for *_, path in sorted(runs)[:-1]:
            if path not in shown:
                yield f"{path.relative_to(ROOT)} is not the newest and on no page; history.py takes its ratios"


def of_history():
    with (RECORDS / "history.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        if next(lines, None) != COLUMNS:
            yield f"history.csv: the first line is not {','.join(COLUMNS)}"
        for cells in lines:
            try:
                good = len(cells) == len(COLUMNS) and float(cells[-1]) > 0
            except ValueError:
                good = False
            if not good:
                yield f"history.csv: line {lines.line_num} is no ratio of a row"


def of_decisions():
    listed = DECISION.findall((RECORDS / "decisions.md").read_text(encoding="utf-8"))
    cited = collections.defaultdict(set)
    for path in [*tracked("*.rs"), *tracked("python/sterna/*.py")]:
        for name in CITATION.findall(path.read_text(encoding="utf-8")):
            cited[name].add(str(path.relative_to(ROOT)))
    for name, count in collections.Counter(listed).items():
        if count > 1:
            yield f"decisions.md has {count} rows {name}"
    for name in sorted(cited.keys() - set(listed)):
        yield f"{', '.join(sorted(cited[name]))}: decisions.md has no row {name}"
    for name in sorted(set(listed) - cited.keys()):
        yield f"decisions.md: no code names {name}"


def tables(path):
    """The cells of the rows of all tables of a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]


def of_picture():
    done = subprocess.run(
        [sys.executable, ROOT / "benches/attention/picture.py", "--check"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        yield done.stderr.strip()


def of_pages():
    """Times of selects, with their limits, and times and ratios of attention, are those of the records that the pages name."""
    selects = tables(RECORDS / "2026-11-22-peers-zen5-6.md")
    of_selects = {tuple(cells[1:3]): cells for cells in selects}
    attention = tables(RECORDS / "2026-11-25-attention-peers-2.md")
    seen = 0
    for page in ("docs/peers.md", "docs/guide/performance.md"):
        for cells in tables(ROOT / page):
            if len(cells) in (4, 10) and re.fullmatch(r"[\d.]+ (ns|µs|ms)", cells[1]):
                seen += 1
                row = of_selects.get(tuple(cells[1:3]), [])
                nearest = cells[3].split()[-1] if len(cells) == 4 else cells[-1].split()[-1]
                if not any(nearest in cell.split() or nearest in cell for cell in row):
                    yield f"{page}: the record has no row {cells}"
            elif len(cells) == 7 and cells[2].endswith(" ms"):
                seen += 1
                number = cells[2].split()[0]
                shown = [cell.replace("refused", "–") for cell in cells[3:]]
                digits = len(number.partition(".")[2])
                if not any(
                    len(row) > 6 and row[0].split()[0] == cells[0].split()[0]
                    and [row[3], *row[5:]] == shown and f"{float(row[2]):.{digits}f}" == number
                    for row in attention
                ):
                    yield f"{page}: the record has no row {cells}"
    if seen < 25:
        yield f"{seen} rows of the pages were compared with records"


def of_models():
    """Ratios of models of torch, on one thread with padding, are those of the record that the pages name."""
    record = TORCH_RECORD.relative_to(ROOT)
    # The first table of the record: the model, and of each type the ratios of torch and of inductor.
    listed = [cells for cells in tables(TORCH_RECORD) if len(cells) == 13]
    known = {cells[0]: [cells[2], cells[3], cells[8], cells[9]] for cells in listed}
    for page, fewest in (("README.md", 3), ("docs/guide/pytorch.md", 26)):
        text, seen = (ROOT / page).read_text(encoding="utf-8"), 0
        if TORCH_RECORD.name not in text:
            yield f"{page} does not name {record}"
        for cells in tables(ROOT / page):
            if len(cells) == 5 and re.fullmatch(r"[\d.]+", cells[1]):
                seen += 1
                name = cells[0].lower()
                if cells[1:] not in (known.get(name), known.get(name.replace("-", ""))):
                    yield f"{page}: {record} has no row {cells}"
        if seen < fewest:
            yield f"{page}: {seen} models were compared with {record}"


def of_whole_models():
    """The table of whole models on docs/peers.md has the rows of the record that it names: latency on one thread and memory."""
    page = (ROOT / "docs/peers.md").read_text(encoding="utf-8").partition("## Whole models")[2].partition("\n## ")[0]
    named = re.search(r"`(\d{4}-\d\d-\d\d-models-[a-z0-9-]+\.md)`", page)
    if not named:
        return (yield "docs/peers.md names no record of whole models")
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")][2:]
    text = (RECORDS / named[1]).read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    rows = []
    for title in ("Latency, 1 thread", "Peak memory"):
        lines = [line for line in parts[title].splitlines() if line.startswith("|")][2:]
        rows.append([[re.sub(r" \(\d+\)", "", cell.strip()) for cell in line.split("|")[1:-1]] for line in lines])
    expected = [[*latency[:6], memory[1], *memory[2:6]] for latency, memory in zip(*rows)]
    for row in expected:
        if row not in shown:
            yield f"docs/peers.md: {named[1]} has {row}"
    if len(shown) != len(expected):
        yield f"docs/peers.md shows {len(shown)} models, {named[1]} has {len(expected)}"


problems = [*of_picture(), *of_pages(), *of_models(), *of_whole_models(), *of_links(), *of_numbers(), *of_history(), *of_decisions()]
print("\n".join(problems) or "every record is linked, every decision is named")
sys.exit(bool(problems))
