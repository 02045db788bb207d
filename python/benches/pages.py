"""The tables and the picture of `compare.py`."""

from __future__ import annotations

import datetime
import io
import platform
import shlex
import statistics
import sys

import matplotlib
from report import COLORS, FAINT, GRID, LIMIT, PAPER, TEXT, TITLES, duration, for_dark_pages, machine, multiple, place_and_day, says

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

COLUMNS = {
    "select": {"out": "with `out=`", "numpy": "np.where", "torch": "torch.where", "jax": "jax.numpy.where", "numexpr": "numexpr"},
    "attention": {"torch": "torch", "jax": "JAX", "onnxruntime": "ONNX Runtime"},
}
TITLES_OF_PARTS = {
    "select": "Select, f32",
    "attention": "Attention, 8 heads of 1024 queries and keys, depth 64",
}
LABELS = {"select": "sterna.select", "attention": "sterna.attention"}
INTRODUCTION = """\
*Sterna* is its time; the other columns are multiples of it, more than 1 if Sterna is faster. A time is the median over the
rounds of the best sample; all candidates run by turns in one process, on as many CPUs as threads. Every answer was compared
first: selects byte for byte, attention within 1e-4 in f32 and 5e-2 in bf16. A mask is a boolean tensor, but in the rows *an
option*, in which it is an argument: `causal=True` and `window=64` here, `is_causal` of torch and JAX, `local_window_size` of
JAX. ONNX Runtime runs MatMul, Mul, Where, Softmax and MatMul, as exporters write it. JAX has its arrays with heads behind
tokens, as it wants them, and its calls are compiled before. A dash: the peer does not take the row."""


def tables(table):
    for part, columns in COLUMNS.items():
        yield from ["", f"## {TITLES_OF_PARTS[part]}", "", "| row | Sterna | " + " | ".join(columns.values()) + " |"]
        yield "|---|" + "--:|" * (1 + len(columns))
        ratios = {peer: [] for peer in columns}
        for of, name, times in table:
            if of == part:
                own = times["sterna"]
                cells = [multiple(times[peer] / own) if peer in times else "–" for peer in columns]
                [ratios[peer].append(times[peer] / own) for peer in columns if peer in times]
                yield f"| {name} | {duration(own)} | " + " | ".join(cells) + " |"
        medians = [multiple(statistics.median(each)) if each else "–" for each in ratios.values()]
        yield "| *median* | | " + " | ".join(medians) + " |"


def write(folder, table, versions, options, load):
    folder.mkdir(parents=True, exist_ok=True)
    revision = says("git", "describe", "--always", "--dirty")
    lines = [
        f"# The Python package beside its peers, {datetime.date.today()}",
        "",
        INTRODUCTION,
        "",
        f"- Date: {datetime.date.today()}; revision {revision}; load average before {load}",
        f"- Machine: {', '.join(machine())}; {platform.system()} {platform.release()}",
        f"- Versions: CPython {platform.python_version()}, {', '.join(f'{name} {version}' for name, version in versions.items())}",
        f"- Command: `{shlex.join(['python', *sys.argv])}`; threads {options.threads}",
        *tables(table),
    ]
    (folder / "python.md").write_text("\n".join(lines) + "\n")
    picture(folder / "python.svg", table, options.threads)
    print(folder / "python.md", folder / "python.svg")


def picture(path, table, threads):
    """A line for each row, a dot for each peer."""
    colors = {"text.color": TEXT[0], "axes.labelcolor": TEXT[0], "xtick.color": TEXT[0], "ytick.color": TEXT[0],
              "axes.edgecolor": GRID[0], "figure.facecolor": PAPER[0], "axes.facecolor": PAPER[0]}  # fmt: skip
    matplotlib.rcParams.update(colors | {"svg.hashsalt": "sterna", "svg.fonttype": "none", "font.family": "sans-serif"})
    # Attention in f32 only: bf16 is in the table.
    shown = {part: [row for row in table if row[0] == part and not row[1].startswith("bf16")] for part in COLUMNS}
    heights = [len(rows) + 2 for rows in shown.values()]
    figure, all_axes = plt.subplots(
        2, 1, figsize=(9, 0.24 * sum(heights) + 1), height_ratios=heights, layout="constrained"
    )
    drawn = []
    for axes, (part, rows) in zip(all_axes, shown.items()):
        values = []
        for y, (_, _, times) in enumerate(rows):
            for peer in COLUMNS[part]:
                if peer in times and peer != "out":
                    value = times[peer] / times["sterna"]
                    values.append(value)
                    axes.plot(value, y, "o", color=COLORS[peer][0], markersize=5.5)
                    drawn += [peer] * (peer not in drawn)
        left, right = min(0.7, *values) * 0.85, max(values) * 1.25
        axes.axvline(1, color=LIMIT[0], linewidth=1.2, zorder=0)
        axes.set_xscale("log")
        axes.set_xlim(left, right)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), [name.removeprefix("f32 ") for _, name, _ in rows], fontsize=8.5)
        ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if left <= t <= right]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.tick_params(length=0)
        axes.grid(color=GRID[0], linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.set_title(f"{TITLES_OF_PARTS[part]}: times as multiples of {LABELS[part]} (red line)", fontsize=9.5, loc="left")
    all_axes[-1].set_xlabel(f"logarithmic; right of the line Sterna is faster; {threads} thread{'s' * (threads > 1)}; {place_and_day()}",
                            fontsize=8.5, color=FAINT[0])  # fmt: skip
    handles = [Line2D([], [], color=COLORS[peer][0], marker="o", markersize=5.5, linewidth=0) for peer in drawn]
    figure.legend(handles, [TITLES[peer] for peer in drawn], loc="outside upper center", ncols=len(drawn), frameon=False, fontsize=9)
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg", metadata={"Date": None})
    plt.close(figure)
    path.write_text(for_dark_pages(drawing.getvalue()))
