#!/usr/bin/env python3
"""Single ops beside torch, ONNX Runtime, OpenVINO and oneDNN: each row by turns with the Rust bench, in one run.

    python3 benches/peers/ops.py row_ops [FILTER]... --threads 2 --out rows.csv
    python3 benches/peers/ops.py matmul [FILTER]... --threads 2 --out products.csv

takes the rows of `cargo bench --bench row_ops -- --list` (or `matmul`) whose names hold every filter, and measures them as
`turns.py` says. The answers of the peers are compared with Sterna's before anything is timed. It needs numpy, and of
torch, onnxruntime with onnx, openvino, and onednn with onednn-devel what `--peers` names, in the environment of the Python
that runs it: that of `benches/peers` (README.md).

Peers: `torch` is softmax, log_softmax, layer_norm, rms_norm, sum, amax or mm, `onnxruntime` and `openvino` a model of one
node, `onednn` a graph of one op. Results go to memory of their own where the library can be told (torch: sum, amax and mm);
else the pages of a new result are part of the time, as they are for users. Products of s8 and those with an epilogue have
no peers here. The time of one that refuses a row is empty, and `note` says why.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from install import Places, default_cache
from turns import Bench, Refused, Run, Sampled, Table
from turns import add_options, built_bench, by_turns, keep_to, listed, numbers, reason, sampled, upper_halves

PEERS = ["torch", "onnxruntime", "openvino", "onednn"]
# The error that an answer may have as a share of the largest number.
TOLERANCE = {"f32": 1e-4, "bf16": 2e-2}
EPSILON = 1e-5


class Row:
    """What a peer computes, as arrays."""

    def __init__(self, sterna: Bench) -> None:
        kind, inputs, outputs = sterna.about
        self.kind, _, attribute = kind.partition(":")
        self.is_transposed = attribute == "transpose_b"
        ports = [port.split(":") for port in inputs.split("/") + outputs.split("/")]
        shapes = [tuple(int(dim) for dim in dims.split(",") if dim) for _, _, dims in ports]
        self.type = ports[0][1]
        sterna.samples(1)
        arrays = [numbers(sterna.bytes(int(id)), type, dims) for (id, type, _), dims in zip(ports, shapes)]
        count = len(inputs.split("/"))
        # Of several results the first is compared.
        self.inputs, self.expected = arrays[:count], arrays[count]

    def made(self, array: np.ndarray) -> np.ndarray:
        """What a library wrote, as numbers."""
        if self.type == "bf16":
            array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return array.reshape(self.expected.shape)

    def raw(self, array: np.ndarray) -> np.ndarray:
        """As the array lies in memory."""
        return upper_halves(array) if self.type == "bf16" else np.ascontiguousarray(array)

    def room(self) -> np.ndarray:
        """Memory for the result, all of it touched."""
        return np.full(self.expected.shape, 1, np.uint16 if self.type == "bf16" else np.float32)


def torch_peer(row: Row, threads: int) -> Run:
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    t = {"f32": torch.float32, "bf16": torch.bfloat16}[row.type]
    x, *more = (torch.from_numpy(np.array(array)).to(t) for array in row.inputs)
    out = torch.zeros(row.expected.shape, dtype=t)
    last = x.shape[-1:]
    aten = torch.ops.aten

    def layer_norm_backward() -> Any:
        gradient, means, variances, gamma, beta = more
        factors = (variances.to(torch.float32) + EPSILON).rsqrt().to(t)
        means, factors = (statistics.unsqueeze(-1) for statistics in (means, factors))
        every = [True, True, True]
        return lambda: aten.native_layer_norm_backward(gradient, x, last, means, factors, gamma, beta, every)[0]

    if row.kind == "LayerNormBackward":
        backward = layer_norm_backward()
    run = {
        "SoftMax": lambda: functional.softmax(x, -1),
        "LogSoftmax": lambda: functional.log_softmax(x, -1),
        "LayerNorm": lambda: functional.layer_norm(x, last, *more, eps=EPSILON),
        "RMSNorm": lambda: functional.rms_norm(x, last, *more, eps=EPSILON),
        "ReduceSum": lambda: torch.sum(x, -1, out=out),
        "ReduceMax": lambda: torch.amax(x, -1, out=out),
        "SoftMaxBackward": lambda: aten._softmax_backward_data.out(x, more[0], -1, t, grad_input=out),
        "LogSoftmaxBackward": lambda: aten._log_softmax_backward_data.out(x, more[0], -1, t, out=out),
        "GELUBackward": lambda: aten.gelu_backward.grad_input(more[0], x, grad_input=out),
        "LayerNormBackward": lambda: backward(),
        "MatMul": lambda: torch.mm(x, more[0].T if row.is_transposed else more[0], out=out),
    }[row.kind]

    def answer() -> Any:
        with torch.inference_mode():
            return run()

    answer.numbers = lambda result: result.to(torch.float32).numpy()
    return answer


def onnx_model(row: Row) -> bytes:
    import onnx
    from onnx import TensorProto, helper

    t = {"f32": TensorProto.FLOAT, "bf16": TensorProto.BFLOAT16}[row.type]
    names = [f"x{index}" for index in range(len(row.inputs))]
    value = helper.make_tensor_value_info
    inputs = [value(name, t, list(array.shape)) for name, array in zip(names, row.inputs)]
    constants = []
    node = partial(helper.make_node, outputs=["out"])
    axes = onnx.numpy_helper.from_array(np.array([-1], np.int64), "axes")
    match row.kind:
        case "SoftMax":
            made = node("Softmax", names, axis=-1)
        case "LogSoftmax":
            made = node("LogSoftmax", names, axis=-1)
        case "LayerNorm":
            made = node("LayerNormalization", names, axis=-1, epsilon=EPSILON)
        case "RMSNorm":
            made = node("RMSNormalization", names, axis=-1, epsilon=EPSILON)
        case "MatMul":
            made = node("Gemm", names, transB=1) if row.is_transposed else node("MatMul", names)
        case _:
            constants.append(axes)
            made = node(row.kind, [*names, "axes"], keepdims=0)
    output = value("out", t, list(row.expected.shape))
    graph = helper.make_graph([made], "op", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    return model.SerializeToString()


def onnxruntime_peer(row: Row, threads: int) -> Run:
    import onnxruntime
    from onnx import TensorProto

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(onnx_model(row), options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    t = TensorProto.BFLOAT16 if row.type == "bf16" else TensorProto.FLOAT
    kept, room = [row.raw(array) for array in row.inputs], row.room()
    for index, array in enumerate(kept):
        binding.bind_input(f"x{index}", "cpu", 0, t, array.shape, array.ctypes.data)
    binding.bind_output("out", "cpu", 0, t, room.shape, room.ctypes.data)

    def run() -> None:
        session.run_with_iobinding(binding)

    run.keeps = kept
    run.numbers = lambda _: row.made(room)
    return run


def openvino_peer(row: Row, threads: int) -> Run:
    import openvino

    config = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": row.type,
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model=onnx_model(row)), "CPU", config)
    request = compiled.create_infer_request()
    t = openvino.Type.bf16 if row.type == "bf16" else openvino.Type.f32
    kept, room = [row.raw(array) for array in row.inputs], row.room()

    def tensor(array: np.ndarray) -> Any:
        return openvino.Tensor(array, openvino.Shape(list(array.shape)), t)

    for index, array in enumerate(kept):
        request.set_input_tensor(index, tensor(array))
    request.set_output_tensor(0, tensor(room))

    def run() -> None:
        request.infer()

    run.keeps = kept
    run.numbers = lambda _: row.made(room)
    return run


def onednn_graph(row: Row) -> dict[str, Any]:
    def tensor(id: int, array: np.ndarray) -> dict[str, Any]:
        dims = list(array.shape)
        strides = [int(np.prod(dims[axis + 1 :])) for axis in range(len(dims))]
        about = {"layout_type": "strided", "property_type": "variable"}
        return {"id": id, "dtype": row.type, "shape": dims, "stride": strides} | about

    attributes: dict[str, tuple[str, Any]] = {
        "SoftMax": {"axis": ("s64", -1)},
        "LogSoftmax": {"axis": ("s64", -1)},
        "LayerNorm": {"keep_stats": ("bool", 0), "epsilon": ("f32", EPSILON)},
        "RMSNorm": {"epsilon": ("f32", EPSILON)},
        "MatMul": {"transpose_b": ("bool", int(row.is_transposed))},
    }.get(row.kind, {"axes": ("s64[]", [-1]), "keep_dims": ("bool", 0)})
    op = {
        "kind": row.kind,
        "attrs": {name: {"type": type, "value": value} for name, (type, value) in attributes.items()},
        "inputs": [tensor(id, array) for id, array in enumerate(row.inputs)],
        "outputs": [tensor(9, row.expected)],
    }
    return {"graph": [op]}


def onednn_peer(row: Row, threads: int) -> Any:
    from onednn_lines import Client, Lines

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = {id: row.raw(array) for id, array in enumerate(row.inputs)}
        Lines(onednn_graph(row)).save(folder, given)
        return Client(Places(default_cache()), folder, threads)


def candidate(name: str, row: Row, threads: int) -> tuple[Sampled, np.ndarray, Any]:
    """How a peer is timed, and its answer."""
    if name == "onednn":
        server = onednn_peer(row, threads)
        server.samples(1)
        return server.samples, row.made(np.frombuffer(server.bytes(9), row.room().dtype)), server
    make = {"torch": torch_peer, "onnxruntime": onnxruntime_peer, "openvino": openvino_peer}[name]
    run = make(row, threads)
    return partial(sampled, run), run.numbers(run()), None


def measure(bench: Path, name: str, threads: int, peers: list[str], rounds: int) -> list[dict[str, Any]]:
    sterna = Bench(bench, name, threads)
    row = Row(sterna)
    candidates: dict[str, Sampled] = {"sterna": sterna.samples}
    lines, servers = [], [sterna]
    most = float(np.abs(row.expected).max())
    for one in peers:
        try:
            samples, made, server = candidate(one, row, threads)
            servers += [server] if server else []
            worst = float(np.abs(made - row.expected).max()) / most
            if not worst <= TOLERANCE[row.type]:
                raise Refused(f"its answer is off by {worst:.2g} of the largest number")
            candidates[one] = samples
        except Exception as why:  # whatever a peer throws is its own, and the others go on
            lines.append({"peer": one, "us": "", "note": reason(why)})
    times = by_turns(candidates, rounds, threads)
    for server in servers:
        server.close()
    own = times["sterna"]
    for one, median in times.items():
        lines.append({"peer": one, "us": f"{median / 1e3:.1f}", "ratio": f"{median / own:.2f}"})
    return [{"row": name, "threads": threads} | line for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("of", choices=["row_ops", "matmul"], help="the bench")
    add_options(parser, PEERS)
    arguments = parser.parse_intermixed_args()
    bench = (arguments.bench or built_bench(arguments.of)).resolve()
    table = Table(["row", "threads", "peer", "us", "ratio", "note"], arguments.out)
    keep_to(arguments.threads)
    for name in listed(bench, arguments.filters):
        if not name.startswith(("epilogue", "varying", "s8", "transposed s8")):
            for line in measure(bench, name, arguments.threads, arguments.peers, arguments.rounds):
                table.add(line)


if __name__ == "__main__":
    main()
