"""Timing servers of the peers that Python drives: `python python_peers.py NAME --name value …`.

They answer the protocol that README.md describes, as the servers in Rust and C++ do.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from cases import DTYPES, Array, Dims


@dataclass(frozen=True)
class Request:
    """A case as the arguments describe it, with its inputs."""

    dtype: str
    dims: Dims
    threads: int
    cond: Array
    then: Array
    else_: Array

    def output(self) -> Array:
        """Memory for the result, all of it touched."""
        return np.full(self.dims, 0xA5, np.uint8).repeat(self.then.itemsize).view(self.then.dtype).reshape(self.dims)


@dataclass(frozen=True)
class Peer:
    """A compiled select: `execute` runs it, `result` runs it and hands out the result."""

    version: str
    execute: Callable[[], Any]
    result: Callable[[], Array]
    # Memory that the library points to and does not own.
    keeps: object = None


def numpy_peer(request: Request) -> Peer:
    cond = request.cond.view(bool)

    def execute() -> Array:
        return np.where(cond, request.then, request.else_)

    return Peer(np.__version__, execute, execute)


def onnxruntime_peer(request: Request) -> Peer:
    import onnx
    import onnxruntime as ort

    element = onnx.helper.np_dtype_to_tensor_dtype(DTYPES[request.dtype])
    element_types = {"cond": onnx.TensorProto.BOOL, "then": element, "else": element, "dst": element}
    arrays = {"cond": request.cond, "then": request.then, "else": request.else_, "dst": request.output()}

    def info(name: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, element_types[name], arrays[name].shape)

    inputs = ["cond", "then", "else"]
    node = onnx.helper.make_node("Where", inputs, ["dst"])
    graph = onnx.helper.make_graph([node], "select", [info(name) for name in inputs], [info("dst")])
    opset = onnx.helper.make_opsetid("", 21)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name in inputs:
        array = arrays[name]
        binding.bind_input(name, "cpu", 0, element_types[name], array.shape, array.ctypes.data)
    dst = arrays["dst"]
    binding.bind_output("dst", "cpu", 0, element, dst.shape, dst.ctypes.data)

    def execute() -> None:
        session.run_with_iobinding(binding)

    def result() -> Array:
        dst.view(np.uint8).fill(0xA5)
        execute()
        return dst

    return Peer(ort.__version__, execute, result, keeps=arrays)


def jax_peer(request: Request) -> Peer:
    # JAX reads these when it is imported.
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    import jax
    import jax.numpy as jnp

    select = jax.jit(jnp.where)
    operands = [jnp.asarray(a) for a in (request.cond.view(bool), request.then, request.else_)]

    def execute() -> Any:
        return select(*operands).block_until_ready()

    return Peer(jax.__version__, execute, lambda: np.asarray(execute()))


def torch_peer(request: Request) -> Peer:
    import torch

    torch.set_num_threads(request.threads)
    if request.dtype == "bf16":
        raise TypeError("NumPy's bfloat16 does not pass to torch")
    array = request.output()
    dst = torch.from_numpy(array)
    cond, then, else_ = (torch.from_numpy(a) for a in (request.cond.view(bool), request.then, request.else_))

    def execute() -> None:
        torch.where(cond, then, else_, out=dst)

    def result() -> Array:
        array.view(np.uint8).fill(0xA5)
        execute()
        return array

    return Peer(torch.__version__, execute, result)


PEERS: dict[str, Callable[[Request], Peer]] = {
    "numpy": numpy_peer,
    "onnxruntime": onnxruntime_peer,
    "jax": jax_peer,
    "torch": torch_peer,
}


def parse_dims(text: str) -> Dims:
    return tuple(int(dim) for dim in text.split(",") if dim)


def read_request(arguments: argparse.Namespace) -> Request:
    def read(name: str, dtype: np.dtype[Any], dims: Dims) -> Array:
        return np.fromfile(arguments.dir / f"{name}.bin", dtype).reshape(dims)

    data = DTYPES[arguments.dtype]
    cond = read("cond", np.dtype(np.uint8), arguments.cond)
    then, else_ = read("then", data, arguments.then), read("else", data, arguments.else_)
    return Request(arguments.dtype, arguments.dst, arguments.threads, cond, then, else_)


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
    parser.add_argument("--dtype", choices=DTYPES, required=True)
    for name in ("cond", "then", "dst"):
        parser.add_argument(f"--{name}", type=parse_dims, required=True)
    parser.add_argument("--else", dest="else_", type=parse_dims, required=True)
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
