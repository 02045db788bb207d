"""report.py MODELS.JSON: the tables of a run."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TITLES = {
    "sterna": "Sterna",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "rten": "rten",
    "tract": "tract",
    "candle": "candle-onnx",
}
# Threads of a run and callers at once, of the rows that the tables of one setting take.
ALONE = [(1, 1), (2, 1)]
AT_ONCE = (1, 4)


@dataclass(frozen=True)
class Table:
    """A figure of each model and peer."""

    title: str
    about: str
    unit: str
    setting: tuple[int, int]
    # The figure of an answer, if it has one; less is better.
    figure: Callable[[dict], float | None]
    # One figure of those of all rounds.
    of_rounds: Callable[[list[float]], float] = min


def latency(said: dict) -> float:
    return said["p50"] * 1e3


TABLES = [
    *(Table(f"Latency, {threads} thread{'s' * (threads > 1)}", "The median of the runs after the first.", "ms",
            (threads, callers), latency) for threads, callers in ALONE),
    *(Table(f"Processor time, {threads} thread{'s' * (threads > 1)}",
            "Time of all threads on a processor, by run: what other work on the machine does not change.", "ms",
            (threads, callers), lambda said: said["processor"] * 1e3, statistics.median) for threads, callers in ALONE),
    Table("A cache that grows", "The median of runs with caches of 480, 481 and so on to 511 rows, 1 thread.", "ms", (1, 1),
          lambda said: said["grown"] * 1e3 if said["grown"] else None),
    Table("Four callers on two CPUs", "Seconds divided by the runs that four callers of one model end in them.", "ms a run",
          AT_ONCE, lambda said: 1e3 / said["rate"]),
    Table("Processor time of four callers", "The same, while four callers run one model.", "ms", AT_ONCE,
          lambda said: said["processor_together"] * 1e3 if said.get("processor_together") else None, statistics.median),
    Table("Load", "From the path of the file to a model that can be run.", "ms", (1, 1), lambda said: said["load"] * 1e3),
    Table("Load and first run", "From the path of the file to the first result.", "ms", (1, 1),
          lambda said: (said["load"] + said["first"]) * 1e3),
    Table("Peak memory", "The most that the process had in memory at once, beyond what it had before the model was loaded.",
          "MB", (1, 1), lambda said: said["peak"] - said["before"], statistics.median),
    Table("Peak memory of four callers", "The same, of one model that four callers run.", "MB", AT_ONCE,
          lambda said: said["peak"] - said["before"], statistics.median),
    Table("Peak memory of the process", "The same with the program itself, which for two of the peers is Python.", "MB",
          (1, 1), lambda said: said["peak"], statistics.median),
]


def digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


class Notes:
    """Footnotes of the page; equal ones share a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f"({self.texts.index(text) + 1})"

    def lines(self) -> list[str]:
        return [f"({number}) {text}  " for number, text in enumerate(self.texts, 1)]


def lines(table: Table, answers: list[dict], models: list[str], peers: list[str], notes: Notes) -> list[str]:
    titles = [TITLES[peer] for peer in peers if peer != "sterna"]
    shown = [f"## {table.title}", "", table.about, "", f"| model | Sterna, {table.unit} | {' | '.join(titles)} |",
             "|" + "---|" * (len(titles) + 2)]
    for model in models:
        figures, marks = {}, {}
        for peer in peers:
            of_both = [said for said in answers if (said["model"], said["peer"]) == (model, peer)]
            said = [one for one in of_both if (one["threads"], one["callers"]) == table.setting and "refused" not in one]
            if found := [figure for one in said if (figure := table.figure(one)) is not None]:
                figures[peer] = table.of_rounds(found)
            if why := next((why for one in of_both if (why := one.get("refused") or one.get("wrong"))), None):
                word = "wrong" if said else "refused"
                marks[peer] = f" {word} " + notes.mark(f"{TITLES[peer]}, {model}: {short(why)}")
        if not figures:
            continue
        own = figures.get("sterna")
        cells = [model, (digits(own) if own else "") + marks.get("sterna", "")]
        for peer in peers:
            if peer != "sterna":
                ratio = f"{figures[peer] / own:.2f}" if own and peer in figures else ""
                cells.append((ratio + marks.get(peer, "")).strip())
        shown.append("| " + " | ".join(cells) + " |")
    return [*shown, ""] if shown[-1].startswith("| ") else []


def short(text: str) -> str:
    return textwrap.shorten(text.replace("|", "\\|"), 200, placeholder=" …")


def says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.strip()


def machine() -> str:
    wanted = ("Model name", "CPU family", "Model", "CPU(s)", "L1d cache", "L2 cache", "L3 cache", "Hypervisor vendor")
    facts = dict(line.split(":", 1) for line in says("lscpu").splitlines() if ":" in line)
    return ", ".join(f"{name}: {facts[name].strip()}" for name in wanted if name in facts)


def versions(answers: list[dict]) -> str:
    known = {said["peer"]: said["version"] for said in answers if "version" in said}
    return ", ".join(f"{TITLES[peer]} {known[peer]}" for peer in TITLES if peer in known and peer != "sterna")


INTRODUCTION = """\
Six exported models, each loaded and run by Sterna and its peers in processes of their own, by turns. Columns of peers are
the peer's figure divided by Sterna's; above 1 Sterna is ahead. Times are those of the best round, memory and time on a
processor are the median of the rounds. Every result was compared with that of torch: *wrong* stands beside a figure whose result differs by more
than 1e-4 of the largest element, *refused* where a peer does not take the model.
"""


def markdown(answers: list[dict], command: str) -> str:
    models = list(dict.fromkeys(said["model"] for said in answers))
    peers = [peer for peer in TITLES if any(said["peer"] == peer for said in answers)]
    revision = says("git", "describe", "--always", "--dirty")
    notes = Notes()
    page = [
        "# Whole models beside their peers", "", textwrap.fill(INTRODUCTION, 120, break_on_hyphens=False), "",
        f"- Date: {datetime.date.today()}; revision {revision}; {says('rustc', '--version')}",
        f"- Machine: {machine()}; {platform.system()} {platform.release()}",
        f"- Versions: {versions(answers)}",
        f"- Command: `{command}`", "",
    ]
    for table in TABLES:
        page += lines(table, answers, models, peers, notes)
    return "\n".join([*page, *notes.lines()]).rstrip() + "\n"


if __name__ == "__main__":
    print(markdown([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()], "…"), end="")
