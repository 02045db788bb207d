#!/usr/bin/env python3
"""Attention beside torch, ONNX Runtime and OpenVINO: each row by turns with the Rust bench, in one run.

    python3 benches/attention/peers.py [FILTER]... --threads 2 --out attention.csv

takes the rows of `cargo bench --bench attention -- --list` whose names hold every filter. Sterna is a process that
answers questions (`--serve`); the peers run here, on the bytes that Sterna wrote, and their answers are compared with
Sterna's before anything is timed. In each round every candidate has its turn; the number is the median over the rounds
of the best sample. All run on as many CPUs as threads. It needs numpy, and of torch, onnxruntime with onnx, and openvino
what `--peers` names, in the environment of the Python that runs it: a virtual environment outside of the source tree. That
of `benches/peers` will do.

Where the CPU has AMX, `ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16` in the environment keeps torch and OpenVINO from it.

`--chart FILE` draws the time of each row beside the share of tiles that its mask leaves, both as multiples of the same
program's unmasked row; it needs matplotlib, and the row without a mask.

Peers: `torch` is scaled_dot_product_attention with the mask as a tensor, `torch is_causal` with its flag instead,
`torch flex` is FlexAttention, compiled, with a block mask made of the mask before the time is taken, `onnxruntime` a
model of MatMul, Mul, Where, Softmax and MatMul, as exporters write it, `openvino` its ScaledDotProductAttention. The time
of one that refuses a row is empty, and `note` says why.
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
from pathlib import Path
from typing import Any, Callable

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PEERS = ["torch", "torch is_causal", "torch flex", "onnxruntime", "openvino"]
# Ids of the tensors in the bench.
Q, K, V, OUT, MASK = range(5)
# Nanoseconds that a sample takes at least: the clock is read once a sample.
SAMPLE = 2_000_000
# The error that an answer may have, by type: half a unit in the last place of numbers about 1, many times over.
TOLERANCE = {"f32": 1e-4, "bf16": 4e-2, "f16": 5e-3}

Run = Callable[[], Any]


class Refused(Exception):
    """The peer does not do this row."""


class Sterna:
    """The bench, asked for one row."""

    def __init__(self, bench: Path, row: str, threads: int) -> None:
        command = [str(bench), "--bench", "--serve", row, "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        words = self.answer("ready")
        self.type, (self.heads, self.queries, self.keys, self.depth) = words[0], map(int, words[1:5])
        self.pairs, self.tiles = map(float, words[5:7])

    def answer(self, expected: str) -> list[str]:
        line = self.process.stdout.readline().split()
        if not line or line[0] != expected:
            raise SystemExit(f"the bench answered {line} and not {expected!r}")
        return line[1:]

    def ask(self, question: str, expected: str) -> list[str]:
        print(question, file=self.process.stdin, flush=True)
        return self.answer(expected)

    def tensor(self, id: int) -> np.ndarray:
        """The bytes of a tensor as numbers; bf16 as the upper halves of f32."""
        with tempfile.NamedTemporaryFile() as file:
            self.ask(f"write {id} {file.name}", "written")
            data = Path(file.name).read_bytes()
        if id == MASK:
            return np.frombuffer(bytearray(data), np.bool_).reshape(self.queries, self.keys)
        rows = self.keys if id in (K, V) else self.queries
        shape = (1, self.heads, rows, self.depth)
        if self.type == "bf16":
            halves = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
            return halves.view(np.float32).reshape(shape)
        return np.frombuffer(data, {"f32": np.float32, "f16": np.float16}[self.type]).reshape(shape).copy()

    def samples(self, count: int) -> list[float]:
        return [float(word) for word in self.ask(f"run {count}", "times")]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Row:
    """What a peer computes, as arrays."""

    def __init__(self, name: str, sterna: Sterna, mask: np.ndarray | None) -> None:
        self.name, self.type, self.mask = name, sterna.type, mask
        self.q, self.k, self.v = (sterna.tensor(id) for id in (Q, K, V))
        sterna.samples(1)
        self.expected = sterna.tensor(OUT).astype(np.float64)

    @property
    def is_causal(self) -> bool:
        words = self.name.split()
        return len(words) > 2 and words[2] == "causal"


def torch_peer(row: Row, threads: int, how: str) -> Run:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(threads)
    t = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[row.type]
    q, k, v = (torch.from_numpy(np.array(array)).to(t) for array in (row.q, row.k, row.v))
    mask = None if row.mask is None else torch.from_numpy(np.array(row.mask))
    if how == "torch flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        attend = torch.compile(flex_attention)
        block = None
        if mask is not None:
            queries, keys = mask.shape
            block = create_block_mask(
                lambda b, h, i, j: mask[i, j], None, None, queries, keys, device="cpu", BLOCK_SIZE=128
            )
        run = lambda: attend(q, k, v, block_mask=block)
    elif how == "torch is_causal":
        if not row.is_causal:
            raise Refused("it is for causal masks")
        run = lambda: scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        run = lambda: scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def answer() -> Any:
        with torch.inference_mode():
            return run()

    answer.numbers = lambda result: result.to(torch.float64).numpy()
    return answer


def onnx_model(row: Row) -> bytes:
    """MatMul, scale, Where, SoftMax, MatMul: what exporters write, for runtimes to fuse."""
    import onnx
    from onnx import TensorProto, helper

    t = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}.get(row.type)
    if t is None:
        raise Refused("it has no kernels for bf16")
    value = helper.make_tensor_value_info
    dtype = np.float32 if row.type == "f32" else np.float16
    inputs = [value(name, t, list(array.shape)) for name, array in zip("qkv", (row.q, row.k, row.v))]
    scale = np.array(1 / np.sqrt(row.q.shape[-1]), dtype)
    constants = [onnx.numpy_helper.from_array(scale, "scale")]
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["scaled"]),
    ]
    last = "scaled"
    if row.mask is not None:
        inputs.append(value("mask", TensorProto.BOOL, list(row.mask.shape)))
        constants.append(onnx.numpy_helper.from_array(np.array(-np.inf, dtype), "nothing"))
        nodes.append(helper.make_node("Where", ["mask", "scaled", "nothing"], ["masked"]))
        last = "masked"
    nodes.append(helper.make_node("Softmax", [last], ["p"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["p", "v"], ["out"]))
    output = value("out", t, list(row.q.shape[:-1]) + [row.v.shape[-1]])
    graph = helper.make_graph(nodes, "attention", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def arrays(row: Row) -> dict[str, np.ndarray]:
    feed = {"q": row.q, "k": row.k, "v": row.v}
    return feed if row.mask is None else feed | {"mask": row.mask}


def onnxruntime_peer(row: Row, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(onnx_model(row), options, ["CPUExecutionProvider"])
    feed = {name: np.ascontiguousarray(array) for name, array in arrays(row).items()}

    def run() -> Any:
        return session.run(None, feed)[0]

    run.numbers = lambda result: result.astype(np.float64)
    return run


def openvino_peer(row: Row, threads: int) -> Run:
    import openvino
    from openvino import opset13

    types = {"f32": np.float32, "f16": np.float16}
    if row.type not in types:
        raise Refused("numpy has no bf16 to bind")
    parameter = lambda array, name: opset13.parameter(array.shape, array.dtype, name)
    inputs = [parameter(array, name) for name, array in arrays(row).items()]
    attention = opset13.scaled_dot_product_attention(*inputs)
    core = openvino.Core()
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": row.type,
    }
    compiled = core.compile_model(openvino.Model([attention], inputs, "attention"), "CPU", config)
    request = compiled.create_infer_request()
    for index, array in enumerate(arrays(row).values()):
        request.set_input_tensor(index, openvino.Tensor(array, shared_memory=True))

    def run() -> Any:
        request.infer()
        return request.get_output_tensor(0).data

    run.numbers = lambda result: np.array(result, np.float64)
    return run


def peer(name: str, row: Row, threads: int) -> Run:
    match name:
        case "onnxruntime":
            return onnxruntime_peer(row, threads)
        case "openvino":
            return openvino_peer(row, threads)
        case _:
            return torch_peer(row, threads, name)


def sampled(run: Run, count: int) -> list[float]:
    """Nanoseconds of an execution, of samples that are long enough."""

    def once(batch: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(batch):
            run()
        return (time.perf_counter_ns() - start) / batch

    batch = max(1, int(SAMPLE / max(once(1), 1)))
    return [once(batch) for _ in range(count)]


def measure(bench: Path, name: str, threads: int, peers: list[str], rounds: int) -> list[dict[str, Any]]:
    sterna = Sterna(bench, name, threads)
    mask = None
    if name.endswith(" tensor"):
        mask = sterna.tensor(MASK)
    elif name.endswith(" expression"):
        # The same mask as booleans.
        other = Sterna(bench, name.removesuffix("expression") + "tensor", threads)
        mask = other.tensor(MASK)
        other.close()
    row = Row(name, sterna, mask)
    candidates: dict[str, Callable[[int], list[float]]] = {"sterna": sterna.samples}
    lines = []
    for one in peers:
        try:
            run = peer(one, row, threads)
            error = np.abs(run.numbers(run()) - np.nan_to_num(row.expected))
            # A query without keys is NaN to some.
            worst = float(np.nanmax(error, initial=0))
            if worst > TOLERANCE[row.type]:
                raise Refused(f"its answer is off by {worst:.2g}")
            candidates[one] = lambda count, run=run: sampled(run, count)
        except Exception as why:  # whatever a peer throws is its own, and the others go on
            text = str(why).strip().splitlines() or [type(why).__name__]
            lines.append({"peer": one, "ms": "", "note": text[0][:120]})
    best: dict[str, list[float]] = {one: [] for one in candidates}
    for _ in range(rounds):
        for one, samples in candidates.items():
            best[one].append(min(samples(3)))
            if threads > 1:
                time.sleep(0.05)
    sterna.close()
    flops = 4.0 * sterna.heads * sterna.queries * sterna.keys * sterna.depth * sterna.pairs
    own = statistics.median(best["sterna"])
    for one, times in best.items():
        median = statistics.median(times)
        line = {"peer": one, "ms": f"{median / 1e6:.4f}", "gflops": f"{flops / median:.1f}"}
        lines.append(line | {"ratio": f"{median / own:.2f}"})
    place = {"row": name, "threads": threads, "pairs": f"{sterna.pairs:.4f}", "tiles": f"{sterna.tiles:.4f}"}
    return [place | line for line in lines]


def chart(lines: list[dict[str, Any]], path: Path) -> None:
    """Time against the tiles that a mask leaves; a program that leaves out what a mask does lies on the diagonal."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    # Type and shape of a row are its first words, so each program is compared with itself at that size.
    size = lambda line: tuple(line["row"].split()[:2])
    timed = [line for line in lines if line["ms"]]
    whole = {(line["peer"], size(line)): float(line["ms"]) for line in timed if line["row"].split()[2:] == ["full"]}
    points: dict[str, list[tuple[float, float]]] = {}
    for line in timed:
        if unmasked := whole.get((line["peer"], size(line))):
            points.setdefault(line["peer"], []).append((float(line["tiles"]), float(line["ms"]) / unmasked))
    if not points:
        raise SystemExit("the chart needs the row without a mask among the rows")
    matplotlib.rcParams.update({"svg.hashsalt": "sterna", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    least = min(tiles for found in points.values() for tiles, _ in found)
    axes.plot([least, 1], [least, 1], color="#999999", linewidth=1, linestyle="--", label="cost of the tiles left")
    for name, marker in zip(["sterna", *PEERS], "osD^vP"):
        if found := sorted(points.get(name, [])):
            axes.plot(*zip(*found), marker, markersize=5, alpha=0.8, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.set_xlabel("share of tiles that the mask leaves")
    axes.set_ylabel("time, as a multiple of the same program's unmasked time")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def built_bench() -> Path:
    """Builds the bench, and says where it is."""
    command = ["cargo", "bench", "--bench", "attention", "--no-run", "--message-format", "short"]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=True)
    line = next(line for line in done.stderr.splitlines() if "Executable" in line)
    return ROOT / line.split("(")[-1].rstrip(")")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("filters", nargs="*", metavar="FILTER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--bench", type=Path, help="the bench, if it is built already")
    parser.add_argument("--out", type=Path, help="also writes the table there, as CSV")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draws time against tiles left, as SVG")
    arguments = parser.parse_args()
    bench = (arguments.bench or built_bench()).resolve()
    listed = subprocess.run(
        [bench, "--bench", "--list", *arguments.filters], stdout=subprocess.PIPE, text=True, check=True
    )
    columns = ["row", "threads", "pairs", "tiles", "peer", "ms", "gflops", "ratio", "note"]
    files = [sys.stdout] + ([arguments.out.open("w")] if arguments.out else [])
    writers = [csv.DictWriter(file, columns, restval="") for file in files]
    for writer in writers:
        writer.writeheader()
    cpus = sorted(os.sched_getaffinity(0))
    # Threads and processes that this one starts inherit it.
    os.sched_setaffinity(0, cpus[: arguments.threads])
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    lines = []
    for name in listed.stdout.splitlines():
        for line in measure(bench, name, arguments.threads, arguments.peers, arguments.rounds):
            for writer, file in zip(writers, files):
                writer.writerow(line)
                file.flush()
            lines.append(line)
    if arguments.chart:
        chart(lines, arguments.chart)


if __name__ == "__main__":
    main()
