#!/usr/bin/env python3
"""Attention beside torch, ONNX Runtime and OpenVINO: each row by turns with the Rust bench, in one run.

    python3 benches/attention/peers.py [FILTER]... --threads 2 --out attention.csv

takes the rows of `cargo bench --bench attention -- --list` whose names hold every filter and no word of `--without`
(`--without backward`), and measures them as `benches/peers/turns.py` says. The answers of the peers are compared with
Sterna's before anything is timed. Rows on compressed or quantised tensors are left out: no peer has them. It needs numpy,
and of torch, onnxruntime with onnx, and openvino what `--peers` names, in the environment of the Python that runs it: a
virtual environment outside of the source tree. That of `benches/peers` will do.

Where the CPU has AMX, `ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16` in the environment keeps torch and OpenVINO from it.

`--chart FILE` draws the time of each row beside the share of tiles that its mask leaves, both as multiples of the same
program's unmasked row; it needs matplotlib, and the row without a mask.

Peers: `torch` is scaled_dot_product_attention with the mask as a tensor, `torch is_causal` with its flag instead,
`torch flex` is FlexAttention, compiled, with a block mask made of the mask before the time is taken, `onnxruntime` a
model of MatMul, Mul, Where, Softmax and MatMul, as exporters write it, `openvino` its ScaledDotProductAttention; in bf16
its tensors are f32, and it computes in bf16. `ggml` is the flash attention of llama.cpp (package `ggml-py`, built from source,
so it is left out if it is not there): queries, weights and result in f32, keys and values of the type, the mask an additive one
in f16. Rows of gradients have `torch` alone: autograd through what it runs forward,
which is run once before. The time of one that refuses a row is empty, and `note` says why.
"""

from __future__ import annotations

import argparse
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers"))

from turns import Bench, Refused, Run, Sampled, Table
from turns import add_options, built_bench, by_turns, keep_to, listed, numbers, reason, sampled, upper_halves

PEERS = ["torch", "torch is_causal", "torch flex", "onnxruntime", "openvino", "ggml"]
# Ids of the tensors in the bench.
Q, K, V, OUT, MASK = range(5)
D_OUT, D_Q, D_K, D_V = (1 << 20) + 1, (1 << 20) + 3, (1 << 20) + 4, (1 << 20) + 5
# The error that an answer may have, by type: half a unit in the last place of numbers about 1, many times over.
TOLERANCE = {"f32": 1e-4, "bf16": 4e-2, "f16": 5e-3}


class Sterna(Bench):
    """The bench, asked for one row."""

    def __init__(self, bench: Path, row: str, threads: int) -> None:
        super().__init__(bench, row, threads)
        self.type, (self.heads, self.queries, self.keys, self.depth) = self.about[0], map(int, self.about[1:5])
        self.pairs, self.tiles = map(float, self.about[5:7])

    def tensor(self, id: int) -> np.ndarray:
        if id == MASK:
            return numbers(self.bytes(id), "boolean", (self.queries, self.keys))
        rows = self.keys if id in (K, V, D_K, D_V) else self.queries
        return numbers(self.bytes(id), self.type, (1, self.heads, rows, self.depth))


class Row:
    """What a peer computes, as arrays."""

    def __init__(self, name: str, sterna: Sterna, mask: np.ndarray | None) -> None:
        self.name, self.type, self.mask = name, sterna.type, mask
        self.q, self.k, self.v = (sterna.tensor(id) for id in (Q, K, V))
        self.is_backward = name.endswith(" backward")
        self.d_out = sterna.tensor(D_OUT) if self.is_backward else None
        sterna.samples(1)
        results = (D_Q, D_K, D_V) if self.is_backward else (OUT,)
        self.expected = [sterna.tensor(id).astype(np.float64) for id in results]

    @property
    def is_causal(self) -> bool:
        words = self.name.split()
        return len(words) > 2 and words[2] == "causal"

    def error(self, made: list[np.ndarray]) -> float:
        """The largest error of all results; that of a gradient is a share of the largest number in it."""

        def of(given: np.ndarray, expected: np.ndarray) -> float:
            if np.isnan(given).all():
                return np.inf
            # A query without keys is NaN to some.
            worst = float(np.nanmax(np.abs(given - np.nan_to_num(expected)), initial=0))
            return worst / float(np.abs(expected).max()) if self.is_backward else worst

        return max(map(of, made, self.expected))


def torch_peer(row: Row, threads: int, how: str) -> Run:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(threads)
    t = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[row.type]
    tensor = lambda array: torch.from_numpy(np.array(array)).to(t)
    q, k, v = (tensor(array).requires_grad_(row.is_backward) for array in (row.q, row.k, row.v))
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

    if row.is_backward:
        out, d_out = run(), tensor(row.d_out)

        def answer() -> Any:
            return torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)

    else:

        def answer() -> Any:
            with torch.inference_mode():
                return [run()]

    answer.numbers = lambda results: [result.to(torch.float64).numpy() for result in results]
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

    run.numbers = lambda result: [result.astype(np.float64)]
    return run


def openvino_peer(row: Row, threads: int) -> Run:
    import openvino
    from openvino import opset13

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

    run.numbers = lambda result: [np.array(result, np.float64)]
    return run


def ggml_peer(row: Row, threads: int) -> Run:
    import ctypes
    from importlib.util import find_spec

    found = find_spec("ggml")
    if found is None:
        raise Refused("the package ggml-py is not there")
    folder = Path(found.origin).parent / "lib"
    base, cpu = (ctypes.CDLL(str(folder / f"libggml-{name}.so")) for name in ("base", "cpu"))
    pointer, size, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float

    class Parameters(ctypes.Structure):
        _fields_ = [("size", size), ("buffer", pointer), ("no_alloc", ctypes.c_bool)]

    class Plan(ctypes.Structure):
        _fields_ = [("work_size", size), ("work", pointer), ("threads", ctypes.c_int), ("pool", pointer)]
        # What follows them in any version.
        _fields_ += [("rest", pointer * 8)]

    def function(of: Any, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(of, f"ggml_{name}")
        found.restype, found.argtypes = result, arguments
        return found

    cpu.ggml_cpu_init()
    bytes = sum(4 * array.size for array in (row.q, row.k, row.v, row.q)) + (1 << 24)
    bytes += 0 if row.mask is None else 2 * row.mask.size
    context = function(base, "init", pointer, Parameters)(Parameters(bytes, None, False))
    new = function(base, "new_tensor_4d", pointer, pointer, ctypes.c_int, *[ctypes.c_int64] * 4)
    data = function(base, "get_data", pointer, pointer)

    def tensor(type: int, array: np.ndarray) -> int:
        dims = (1,) * (4 - array.ndim) + array.shape
        made = new(context, type, *dims[::-1])
        array = np.ascontiguousarray(array)
        ctypes.memmove(data(made), array.ctypes.data, array.nbytes)
        return made

    stored = {"f32": 0, "f16": 1, "bf16": 30}[row.type]
    raw = upper_halves if row.type == "bf16" else lambda array: array
    q = tensor(0, row.q.astype(np.float32))
    k, v = (tensor(stored, raw(array)) for array in (row.k, row.v))
    mask = None if row.mask is None else tensor(1, np.where(row.mask, 0, -np.inf).astype(np.float16))
    attend = function(base, "flash_attn_ext", pointer, *[pointer] * 5, *[real] * 3)
    out = attend(context, q, k, v, mask, 1 / np.sqrt(row.q.shape[-1]), 0, 0)
    graph = function(base, "new_graph", pointer, pointer)(context)
    function(base, "build_forward_expand", None, pointer, pointer)(graph, out)
    plan = function(cpu, "graph_plan", Plan, pointer, ctypes.c_int, pointer)(graph, threads, None)
    work = np.empty(plan.work_size + 64, np.uint8)
    plan.work = work.ctypes.data
    compute = function(cpu, "graph_compute", ctypes.c_int, pointer, pointer)

    def run() -> None:
        if compute(graph, ctypes.byref(plan)) != 0:
            raise Refused("it failed")

    def made(_: Any) -> list[np.ndarray]:
        heads, queries, depth = row.q.shape[1], row.q.shape[2], row.v.shape[-1]
        numbers = (real * (heads * queries * depth)).from_address(data(out))
        return [np.array(numbers, np.float64).reshape(1, queries, heads, depth).transpose(0, 2, 1, 3)]

    run.numbers, run.keeps = made, work
    weakref.finalize(run, function(base, "free", None, pointer), context)
    return run


def peer(name: str, row: Row, threads: int) -> Run:
    if row.is_backward and not name.startswith("torch"):
        raise Refused("it has no gradients")
    match name:
        case "onnxruntime":
            return onnxruntime_peer(row, threads)
        case "openvino":
            return openvino_peer(row, threads)
        case "ggml":
            return ggml_peer(row, threads)
        case _:
            return torch_peer(row, threads, name)


def measure(bench: Path, name: str, threads: int, peers: list[str], rounds: int) -> list[dict[str, Any]]:
    sterna = Sterna(bench, name, threads)
    mask = None
    forward = name.removesuffix(" backward")
    if forward.endswith(" tensor"):
        mask = sterna.tensor(MASK)
    elif forward.endswith(" expression"):
        # The same mask as booleans.
        other = Sterna(bench, forward.removesuffix("expression") + "tensor", threads)
        mask = other.tensor(MASK)
        other.close()
    row = Row(name, sterna, mask)
    candidates: dict[str, Sampled] = {"sterna": sterna.samples}
    lines = []
    for one in peers:
        try:
            run = peer(one, row, threads)
            worst = row.error(run.numbers(run()))
            if not worst <= TOLERANCE[row.type]:
                raise Refused(f"its answer is off by {worst:.2g}")
            candidates[one] = lambda count, run=run: sampled(run, count)
        except Exception as why:  # whatever a peer throws is its own, and the others go on
            lines.append({"peer": one, "ms": "", "note": reason(why)})
    times = by_turns(candidates, rounds, threads)
    sterna.close()
    products = 10.0 if row.is_backward else 4.0
    flops = products * sterna.heads * sterna.queries * sterna.keys * sterna.depth * sterna.pairs
    own = times["sterna"]
    for one, median in times.items():
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
    for name, marker in zip(["sterna", *PEERS], "osD^vPX"):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, PEERS)
    parser.add_argument("--without", action="append", default=[], metavar="WORD", help="leaves out rows with the word")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draws time against tiles left, as SVG")
    arguments = parser.parse_intermixed_args()
    bench = (arguments.bench or built_bench("attention")).resolve()
    columns = ["row", "threads", "pairs", "tiles", "peer", "ms", "gflops", "ratio", "note"]
    table = Table(columns, arguments.out)
    keep_to(arguments.threads)
    # Rows `on` a type hold other tensors than the peers take.
    without = {"on", *arguments.without}
    for name in listed(bench, arguments.filters):
        if without.isdisjoint(name.split()):
            for line in measure(bench, name, arguments.threads, arguments.peers, arguments.rounds):
                table.add(line)
    if arguments.chart:
        chart(table.lines, arguments.chart)


if __name__ == "__main__":
    main()
