"""A graph in JSON as `native/graph.cpp` reads it: a folder with lines, and the bytes of each input."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np

from install import HERE, Places, against, run
from turns import Bench, Refused

# Seconds after which an answer no longer comes: reference kernels take minutes on large graphs.
PATIENCE = 30.0
BITS = {"f32": 32, "s32": 32, "f16": 16, "bf16": 16, "s64": 64, "s4": 4, "u4": 4}
Tensor = dict[str, Any]


def _numbers(list: list[int]) -> str:
    return ",".join(map(str, list)) or "-"


def _attribute(name: str, attribute: dict[str, Any]) -> str:
    value = attribute["value"]
    text = "|".join(map(str, value)) if isinstance(value, list) else str(value)
    if attribute["type"] == "bool":
        text = str(int(value))
    return f"{name}={attribute['type']}:{text}"


def _line(op: dict[str, Any]) -> str:
    attributes = [_attribute(name, of) for name, of in op["attrs"].items() if of["value"] != []]
    ids = lambda tensors: _numbers([tensor["id"] for tensor in tensors])
    return " ".join(("op", op["kind"], ";".join(attributes) or "-", ids(op["inputs"]), ids(op["outputs"])))


class Lines:
    """The tensors of a graph: what enters it, what leaves it, and what stands between."""

    def __init__(self, graph: dict[str, Any]) -> None:
        self.graph = graph
        self.tensors: dict[int, Tensor] = {}
        consumed: set[int] = set()
        self.made: set[int] = set()
        for op in graph["graph"]:
            for tensor in op["inputs"] + op["outputs"]:
                self.tensors.setdefault(tensor["id"], tensor)
            consumed |= {tensor["id"] for tensor in op["inputs"]}
            self.made |= {tensor["id"] for tensor in op["outputs"]}
        self.inputs = [tensor for id, tensor in self.tensors.items() if id not in self.made]
        self.outputs = [tensor for id, tensor in self.tensors.items() if id in self.made - consumed]

    def _described(self, tensor: Tensor) -> str:
        dims, strides = tensor["shape"], tensor["stride"]
        is_made = tensor["id"] in self.made
        # A rank of 0 is also how a rank is written that nobody knows yet.
        shape = "?" if is_made and not dims else _numbers(dims)
        is_unknown = len(strides) != len(dims) or any(dim < 0 for dim in dims) or tensor["layout_type"] != "strided"
        places = "?" if is_unknown else _numbers(strides)
        return f"tensor {tensor['id']} {tensor['dtype']} {shape} {places} {tensor['property_type']}"

    def save(self, folder: Path, arrays: dict[int, np.ndarray] | None = None, seed: int = 2024) -> None:
        """Writes the lines, and the inputs: those that are given, and random ones."""
        is_on_integers = int(self.graph.get("fpmath_mode_apply_to_int") == "true")
        lines = [f"fpmath {self.graph.get('fpmath_mode', 'strict')} {is_on_integers}"]
        lines += map(self._described, self.tensors.values())
        lines += map(_line, self.graph["graph"])
        (folder / "graph.txt").write_text("".join(line + "\n" for line in lines))
        random = np.random.default_rng(seed)
        for tensor in self.inputs:
            given = (arrays or {}).get(tensor["id"])
            made = given if given is not None else self._random(tensor, random)
            made.tofile(folder / str(tensor["id"]))

    def _random(self, tensor: Tensor, random: np.random.Generator) -> np.ndarray:
        dims, type = tensor["shape"], tensor["dtype"]
        if any(dim < 0 for dim in dims):
            raise Refused("an input has unknown dims")
        strides = tensor["stride"] if len(tensor["stride"]) == len(dims) else [0] * len(dims)
        count = 1 + sum((dim - 1) * stride for dim, stride in zip(dims, strides) if dim)
        if not any(strides):
            count = int(np.prod(dims))
        if type in ("s32", "s64"):
            # Sizes of sequences, seeds and offsets.
            return np.full(count, 64, np.int32 if type == "s32" else np.int64)
        if type not in ("f32", "bf16", "f16"):
            most = {"boolean": 2, "f8_e4m3": 0x60}.get(type, 256)
            return random.integers(0, most, -(-count * BITS.get(type, 8) // 8), np.uint8)
        is_fill = any(op["kind"] == "Select" and tensor in op["inputs"] for op in self.graph["graph"])
        alone = np.full(1, -np.inf if is_fill else 0.5, np.float32)
        numbers = random.uniform(-1, 1, count).astype(np.float32) if count > 1 else alone
        if any(op["kind"] == "LayerNormBackward" and tensor in op["inputs"] for op in self.graph["graph"]):
            # Variances are positive.
            numbers = np.abs(numbers) + np.float32(0.5)
        if type == "bf16":
            return (numbers.view(np.uint32) >> 16).astype(np.uint16)
        return numbers.astype(np.float16) if type == "f16" else numbers


def client(places: Places) -> Path:
    """Builds the program, if it is not there or older than its source."""
    program, source = places.native("graph"), HERE / "native" / "graph.cpp"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        prefix = places.onednn_prefix
        flags = against(prefix / "include", prefix / "lib", "libdnnl.so")
        run(os.environ.get("CXX", "g++"), "-std=c++17", "-O3", source, "-o", program, *flags)
    return program


class Client(Bench):
    """The program with a library: oneDNN, or what stands in a folder of that name."""

    def __init__(self, places: Places, folder: Path, threads: int, library: Path | None = None) -> None:
        lib = places.onednn_prefix / "lib"
        variables = {
            "LD_LIBRARY_PATH": f"{library}:{lib}" if library else str(lib),
            "OCL_ICD_FILENAMES": str(lib / "libintelocl.so"),
            "OMP_NUM_THREADS": str(threads),
            "STERNA_NUM_THREADS": str(threads),
        }
        self.process = subprocess.Popen(
            [str(client(places)), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=os.environ | variables,
        )
        self.about = self.answer("ready")

    def answer(self, expected: str) -> list[str]:
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        try:
            # Libraries print lines of their own between.
            for line in self.process.stdout:
                words = line.split()
                if words and words[0] == expected:
                    return words[1:]
                if words and words[0] == "refused":
                    raise Refused(" ".join(words[1:]))
        finally:
            timer.cancel()
        code = self.process.wait()
        raise Refused(f"no answer in {PATIENCE:.0f} s" if code == -9 else f"it ended with {code}")
