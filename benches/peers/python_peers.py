"""Timing servers of the peers that Python drives: `python python_peers.py NAME --name value …`.

They answer the protocol that README.md describes, as the servers in Rust and C++ do.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import numpy as np

from cases import DTYPES, Array, Dims
from graphs import GRAPHS, SELECT, Graph


@dataclass(frozen=True)
class Request:
    """A case as the arguments describe it, with its inputs."""

    graph: Graph
    inputs: list[Array]
    dtype: np.dtype[Any]
    dims: Dims
    threads: int
    # Where the model in ONNX is.
    model: Path

    def output(self) -> Array:
        """Memory for the result, all of it touched."""
        return np.full(self.dims, 0xA5, np.uint8).repeat(self.dtype.itemsize).view(self.dtype).reshape(self.dims)


@dataclass(frozen=True)
class Peer:
    """A compiled graph: `execute` runs it, `result` runs it and hands out the result."""

    version: str
    execute: Callable[[], Any]
    result: Callable[[], Array]
    # Memory that the library points to and does not own.
    keeps: object = None


# What the expressions of graphs.py call, as far as all libraries have it.
NAMES = "abs arange clip float32 int32 int64 isnan log maximum tanh where zeros".split()


def namespace(module: Any, **own: Any) -> SimpleNamespace:
    """The functions of a library, and what it calls or does otherwise."""
    return SimpleNamespace(**{name: getattr(module, name) for name in NAMES}, **own)


def numpy_peer(request: Request) -> Peer:
    def sigmoid(x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    def gelu(x: Array) -> Array:
        y = x.astype(np.float32)
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * (y * y * y))))
        return y.astype(x.dtype)

    functions = namespace(np, astype=np.astype, sigmoid=sigmoid, gelu=gelu)
    # The conversion of the logarithm of 0 is not used.
    np.seterr(all="ignore")

    def execute() -> Array:
        return request.graph.expression(functions, *request.inputs)

    return Peer(np.__version__, execute, execute)


def onnxruntime_peer(request: Request) -> Peer:
    import onnxruntime as ort
    from onnx.helper import np_dtype_to_tensor_dtype

    options = ort.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(request.model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    dst = request.output()

    def place(array: Array) -> tuple[Any, ...]:
        return "cpu", 0, np_dtype_to_tensor_dtype(array.dtype), array.shape, array.ctypes.data

    for info, array in zip(session.get_inputs(), request.inputs, strict=True):
        binding.bind_input(info.name, *place(array))
    binding.bind_output("dst", *place(dst))

    def execute() -> None:
        session.run_with_iobinding(binding)

    def result() -> Array:
        dst.view(np.uint8).fill(0xA5)
        execute()
        return dst

    return Peer(ort.__version__, execute, result, keeps=request)


def jax_peer(request: Request) -> Peer:
    # JAX reads these when it is imported.
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    import jax
    import jax.numpy as jnp

    def gelu(x: Any) -> Any:
        return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)

    functions = namespace(jnp, astype=jnp.astype, sigmoid=jax.nn.sigmoid, gelu=gelu)
    compiled = jax.jit(partial(request.graph.expression, functions))
    operands = [jnp.asarray(array) for array in request.inputs]

    def execute() -> Any:
        return compiled(*operands).block_until_ready()

    return Peer(jax.__version__, execute, lambda: np.asarray(execute()))


def torch_peer(request: Request, compiles: bool = False) -> Peer:
    import torch

    torch.set_num_threads(request.threads)

    def tensor(array: Array) -> Any:
        """NumPy's bfloat16 passes as integers."""
        is_bf16 = array.dtype == DTYPES["bf16"]
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if is_bf16 else torch.from_numpy(array)

    operands = [tensor(array) for array in request.inputs]
    if request.graph is SELECT and not compiles:
        array = request.output()
        where = partial(torch.where, *operands, out=tensor(array))

        def refilled() -> Array:
            array.view(np.uint8).fill(0xA5)
            where()
            return array

        return Peer(torch.__version__, where, refilled)
    gelu = partial(torch.nn.functional.gelu, approximate="tanh")
    functions = namespace(torch, astype=lambda x, dtype: x.to(dtype), sigmoid=torch.sigmoid, gelu=gelu)
    expression = partial(request.graph.expression, functions)
    if compiles:
        expression = torch.compile(expression, dynamic=False)

    def execute() -> Any:
        with torch.inference_mode():
            return expression(*operands)

    def result() -> Array:
        value = execute()
        is_bf16 = value.dtype == torch.bfloat16
        return value.view(torch.int16).numpy().view(request.dtype) if is_bf16 else value.numpy()

    return Peer(torch.__version__, execute, result)


PEERS: dict[str, Callable[[Request], Peer]] = {
    "numpy": numpy_peer,
    "onnxruntime": onnxruntime_peer,
    "jax": jax_peer,
    "torch": torch_peer,
    "torch.compile": partial(torch_peer, compiles=True),
}


def parse_operand(text: str) -> tuple[np.dtype[Any], Dims]:
    dtype, _, dims = text.partition(":")
    return DTYPES[dtype], tuple(int(dim) for dim in dims.split(",") if dim)


def read_request(arguments: argparse.Namespace) -> Request:
    def read(index: int, text: str) -> Array:
        dtype, dims = parse_operand(text)
        return np.fromfile(arguments.dir / f"{index}.bin", dtype).reshape(dims)

    inputs = [read(index, text) for index, text in enumerate(arguments.inputs.split("/"))]
    dtype, dims = parse_operand(arguments.output)
    graph = GRAPHS.get(arguments.graph, SELECT)
    return Request(graph, inputs, dtype, dims, arguments.threads, arguments.dir / "graph.onnx")


def run(execute: Callable[[], Any], samples: int, batch: int) -> list[float]:
    """Nanoseconds an execution, one number a sample."""
    times = []
    for _ in range(samples):
        start = perf_counter_ns()
        for _ in range(batch):
            execute()
        times.append((perf_counter_ns() - start) / batch)
    return times


def say(*words: object) -> None:
    print(*words, flush=True)


def answer(peer: Peer) -> None:
    say("ready", peer.version)
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        if command == "run":
            samples, batch = map(int, rest.split())
            say("times", *(f"{time:.2f}" for time in run(peer.execute, samples, batch)))
        elif command == "write":
            peer.result().tofile(rest)
            say("written")
        else:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--graph", choices=["select", *GRAPHS], required=True)
    for name in ("inputs", "output", "read"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        peer = PEERS[arguments.peer](read_request(arguments))
        peer.execute()
    except Exception as error:  # What a library refuses, it says in exceptions of all kinds.
        say("refused", " ".join(str(error).split()) or type(error).__name__)
        return
    gc.disable()
    answer(peer)


if __name__ == "__main__":
    main()
