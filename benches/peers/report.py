"""The tables and the chart."""

from __future__ import annotations

import datetime
import io
import os
import platform
import statistics
import subprocess
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from install import HERE
from measure import Outcome, Row

TITLES = {
    "sterna": "Sterna",
    "candle": "candle",
    "onednn": "oneDNN Graph",
    "openvino": "OpenVINO",
    "onnxruntime": "ONNX Runtime",
    "numpy": "NumPy",
    "jax": "JAX jit",
    "numexpr": "numexpr",
    "torch": "torch",
    "torch.compile": "torch.compile",
}
# Of light pages and of dark ones.
COLORS = {
    "sterna": ("#111111", "#f5f5f5"),
    "candle": ("#d95f02", "#ff9a52"),
    "onednn": ("#1b70c4", "#6cb4f5"),
    "openvino": ("#7b4fb5", "#bf9bf0"),
    "onnxruntime": ("#2a9d55", "#6fd196"),
    "numpy": ("#b58c00", "#f0cc55"),
    "jax": ("#d1488f", "#f58fc4"),
    "numexpr": ("#1b70c4", "#6cb4f5"),
    "torch": ("#8c6d4f", "#cfae8e"),
    "torch.compile": ("#5d7d83", "#a3c4ca"),
}
PAPER = ("#ffffff", "#14171c")
TEXT = ("#1f2328", "#e6e8eb")
FAINT = ("#6b737c", "#9aa4b0")
GRID = ("#dddfe2", "#363d46")
LIMIT = ("#b00020", "#ff7a85")
NANOSECONDS = {"ns": 1.0, "µs": 1e3, "ms": 1e6}


def duration(nanoseconds: float) -> str:
    unit = max((u for u in NANOSECONDS if nanoseconds >= NANOSECONDS[u]), key=lambda u: NANOSECONDS[u], default="ns")
    return f"{nanoseconds / NANOSECONDS[unit]:.3g} {unit}"


def multiple(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


class Notes:
    """Footnotes of a table; equal ones share a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f"({self.texts.index(text) + 1})"

    def lines(self) -> list[str]:
        return [f"({i}) {text}  " for i, text in enumerate(self.texts, 1)]


def _value(row: Row, time: float) -> str:
    if row.case.absolute or row.limit is None:
        return duration(time)
    return multiple(time / row.limit)


def _cell(row: Row, peer: str, notes: Notes) -> str:
    outcome = row.outcomes[peer]
    words = [] if outcome.time is None else [_value(row, outcome.time)]
    if outcome.status != "ok" or outcome.time is None:
        words.append(outcome.status)
    if outcome.status != "ok":
        words.append(notes.mark(f"{TITLES[peer]}: {outcome.reason}"))
    return " ".join(words)


def _nearest(row: Row, peers: list[str]) -> str:
    """The fastest peer that gives the right answer, as a multiple of Sterna's time."""
    times = {p: o.time for p in peers if (o := row.outcomes[p]).status == "ok" and o.time is not None}
    own = row.outcomes["sterna"].time
    if not times or own is None:
        return "none"
    nearest = min(times, key=lambda peer: times[peer])
    return f"{TITLES[nearest]} {multiple(times[nearest] / own)}"


def _limit_cell(row: Row) -> str:
    return "" if row.limit is None else duration(row.limit)


def table(rows: list[Row], peers: list[str]) -> list[str]:
    """Rows of one number of threads."""
    notes = Notes()
    heads = ["case", "limit", "Sterna", *(TITLES[peer] for peer in peers), "nearest peer, as a multiple of Sterna"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        values = [_cell(row, peer, notes) for peer in ["sterna", *peers]]
        lines.append("| " + " | ".join([row.case.label, _limit_cell(row), *values, _nearest(row, peers)]) + " |")
    return [*lines, "", *notes.lines()]


def says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.strip()


def machine() -> list[str]:
    wanted = ("Model name", "CPU family", "Model", "CPU(s)", "L1d cache", "L2 cache", "L3 cache", "Hypervisor vendor")
    facts = dict(line.split(":", 1) for line in says("lscpu").splitlines() if ":" in line)
    return [f"{name}: {facts[name].strip()}" for name in wanted if name in facts]


def _versions(rows: list[Row], peers: list[str]) -> list[str]:
    def version(peer: str) -> str:
        return next((row.outcomes[peer].version for row in rows if row.outcomes[peer].version), "unknown")

    limit = next(iter(rows[0].outcomes.values())).version
    return [f"limit {limit}", *(f"{TITLES[peer]} {version(peer)}" for peer in ["sterna", *peers])]


def _circumstances(rows: list[Row], peers: list[str], command: str, load: str) -> list[str]:
    revision = says("git", "describe", "--always", "--dirty")
    return [
        f"- Date: {datetime.date.today()}; revision {revision}; load average before {load}",
        f"- Machine: {', '.join(machine())}; {platform.system()} {platform.release()}",
        f"- Versions: {', '.join(_versions(rows, peers))}",
        f"- Command: `{command}`",
    ]


INTRODUCTION = """\
Times as multiples of the limit: {limit}, with the stores that are faster. Less is better; {below}.
Every number is the median over the rounds of the best sample in each; all peers run in turn in every round. Each result
was compared with the answer, {answer}: *wrong* stands beside a time whose result differs, *refused* where a peer does
not take the case.
"""

OF_SELECTS = {
    "title": "# Select beside its peers",
    "limit": "a plain loop over the same arrays with the widest vectors, which reads both sides",
    "below": """below 1 is possible where whole stretches of the condition are equal, for then only one side need be read.
One call on [16] is given as time""",
    "answer": "byte for byte",
}
OF_GRAPHS = {
    "title": "# Fused graphs beside their peers",
    "limit": "a loop that reads as many bytes as the inputs are, and writes as many as the result",
    "below": "much arithmetic keeps all of them away from 1",
    "answer": "byte for byte, or within a tolerance where functions are approximated",
}


def _introduction(is_of_selects: bool) -> list[str]:
    words = OF_SELECTS if is_of_selects else OF_GRAPHS
    text = textwrap.fill(INTRODUCTION.format(**words), 120, break_on_hyphens=False)
    return [words["title"], "", text, "", "Figures vary from machine to machine and from run to run.", ""]


def markdown(rows: list[Row], peers: list[str], command: str, load: str) -> str:
    lines = [*_introduction(rows[0].case.is_select), *_circumstances(rows, peers, command, load)]
    for threads in sorted({row.threads for row in rows}):
        lines += ["", f"## {threads} thread{'s' if threads > 1 else ''}", ""]
        lines += table([row for row in rows if row.threads == threads], peers)
    return "\n".join(lines).rstrip() + "\n"


def _dot(axes: Axes, y: float, row: Row, peer: str, left: float) -> None:
    """A dot at the median of the rounds, a line from one quartile to the other, and the number."""
    outcome = row.outcomes[peer]
    if outcome.time is None or row.limit is None:
        axes.text(left * 1.03, y, f"{TITLES[peer]}: {outcome.status}", va="center", fontsize=8, color=FAINT[0])
        return
    value, color = outcome.time / row.limit, COLORS[peer][0]
    end = value
    if len(outcome.rounds) > 1:
        lower, _, upper = statistics.quantiles(outcome.rounds, n=4, method="inclusive")
        end = upper / row.limit
        axes.plot([lower / row.limit, end], [y, y], color=color, linewidth=1.2)
    wrong = outcome.status == "wrong"
    axes.plot(value, y, marker="x" if wrong else "o", color=color, markersize=5)
    text = multiple(value) + (" wrong" if wrong else "")
    weight = "bold" if peer == "sterna" else "normal"
    axes.annotate(text, (end, y), (6, 0), textcoords="offset points", va="center", fontsize=8, weight=weight,
                  color=TEXT[0])


def _wrapped(label: str) -> str:
    """A label in lines of its parts: [brackets] stay whole."""
    return label.replace(", then", ",\nthen").replace(", else", ",\nelse").replace(", every", ",\nevery")


def for_dark_pages(svg: str) -> str:
    """Gives each color its counterpart for readers who prefer dark pages."""
    rules = "".join(
        f'[style*="{name}: {light}"]{{{name}:{dark}!important}}'
        for light, dark in [PAPER, TEXT, FAINT, GRID, LIMIT, *COLORS.values()]
        for name in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    head = svg.index(">", svg.index("<svg")) + 1
    return svg[:head] + style + svg[head:]


def place_and_day() -> str:
    facts = dict(fact.split(": ", 1) for fact in machine())
    name = facts.get("Model name", platform.machine())
    family = f"family {facts['CPU family']}, model {facts['Model']}, " if "CPU family" in facts else ""
    return f"{name}, {family}{facts.get('CPU(s)', os.cpu_count())} CPUs, {datetime.date.today()}"


def chart(rows: list[Row], peers: list[str], path: Path) -> None:
    """Dots grouped by case, at the first number of threads, on a logarithmic scale."""
    first = min(row.threads for row in rows)
    shown = [row for row in rows if row.threads == first and not row.case.absolute and row.limit is not None]
    lanes = ["sterna", *peers]
    height = 0.86 / len(lanes)
    values = [o.time / row.limit for row in shown for p in lanes if (o := row.outcomes[p]).time and row.limit]
    left, right = min(0.5, *values) * 0.85, max(values) * 1.8
    colors = {"text.color": TEXT[0], "axes.labelcolor": TEXT[0], "xtick.color": TEXT[0], "ytick.color": TEXT[0],
              "axes.edgecolor": GRID[0], "figure.facecolor": PAPER[0], "axes.facecolor": PAPER[0]}
    fonts = {"svg.hashsalt": "sterna", "svg.fonttype": "none", "font.family": "sans-serif"}
    matplotlib.rcParams.update(colors | fonts)
    figure, axes = plt.subplots(figsize=(10, 1.6 + 0.16 * len(lanes) * len(shown)), layout="constrained")
    for index, row in enumerate(shown):
        for place, peer in enumerate(lanes):
            _dot(axes, index + (place - (len(lanes) - 1) / 2) * height, row, peer, left)
    axes.axvline(1, color=LIMIT[0], linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_yticks(range(len(shown)), [_wrapped(row.case.label) for row in shown], fontsize=9)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if left <= t <= right]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.tick_params(length=0)
    axes.grid(axis="x", color=GRID[0], linewidth=0.6)
    axes.set_axisbelow(True)
    for y in range(1, len(shown)):
        axes.axhline(y - 0.5, color=GRID[0], linewidth=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    threads = f"{first} thread{'s' if first > 1 else ''}"
    axes.set_xlabel(f"time as a multiple of the limit (red line), {threads}, logarithmic; less is better;\n"
                    "dots are medians of the rounds, lines go from one quartile to the other")
    axes.set_title(place_and_day(), fontsize=9, color=FAINT[0], loc="left")
    handles = [Line2D([], [], color=COLORS[peer][0], marker="o", markersize=5, linewidth=1.2) for peer in lanes]
    labels = [TITLES[peer] for peer in lanes]
    figure.legend(handles, labels, loc="outside upper center", ncols=len(lanes), frameon=False, fontsize=9)
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg", metadata={"Date": None})
    plt.close(figure)
    path.write_text(for_dark_pages(drawing.getvalue()))


def load_average() -> str:
    return f"{os.getloadavg()[0]:.1f}"
