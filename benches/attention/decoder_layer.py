#!/usr/bin/env python3
"""A whole layer of a decoder beside torch, eager and compiled: the example `decoder_layer` by turns with the same layer.

    python3 benches/attention/decoder_layer.py --threads 1 --tokens 512 --out decoder_layer.csv

The layer is that of `examples/decoder_layer.rs`: norm, packed queries, keys and values, rotary embedding, causal attention
of heads that share keys, projection, residual, norm, gated block, residual. Both sides make the same numbers by the same
formula, and the answer of torch is compared with that of Sterna before anything is timed. In each round every candidate has
its turn; the number is the median over the rounds of the least time of about a second. All run on as many CPUs as threads.
Weights are constants to all: Sterna packs them once, and torch compiles with `freezing`, which does the same.

It needs numpy and torch in the environment of the Python that runs it, and torch.compile a C++ compiler. Where the CPU has
AMX, `ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16` in the environment keeps torch from it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch
import torch._inductor.config
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

ROOT = Path(__file__).resolve().parents[2]
PEERS = ["eager", "compile"]
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
# The error that an answer may have as a share of the largest number.
TOLERANCE = {"f32": 1e-4, "bf16": 5e-2}
# Seconds of a sample.
SECONDS = 1.0


def numbers(index: int, dims: list[int], around: float, most: float) -> np.ndarray:
    """What the example puts into an input."""
    mixed = np.uint32(index * 0x9E37_79B9 & 0xFFFF_FFFF) ^ np.arange(np.prod(dims), dtype=np.uint32)
    mixed = mixed * np.uint32(2_654_435_761)
    mixed = (mixed ^ mixed >> np.uint32(15)) * np.uint32(0x85EB_CA6B)
    mixed = (mixed ^ mixed >> np.uint32(13)) >> np.uint32(8)
    unit = mixed.astype(np.float32) / np.float32(1 << 23) - np.float32(1)
    return (np.float32(around) + np.float32(most) * unit).reshape(dims)


class Layer(torch.nn.Module):
    def __init__(self, size: dict[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.depth = size["heads"], size["kv_heads"], size["depth"]
        width, self.inner = self.heads * self.depth, size["inner"]
        everything = (self.heads + 2 * self.kv_heads) * self.depth
        self.width = width

        def parameter(index: int, dims: list[int], around: float, most: float) -> torch.nn.Parameter:
            of = torch.from_numpy(numbers(index, dims, around, most)).to(dtype)
            return torch.nn.Parameter(of, requires_grad=False)

        def matrix(index: int, rows: int, columns: int) -> torch.nn.Parameter:
            return parameter(index, [rows, columns], 0.0, float(np.sqrt(np.float32(3.0 / rows))))

        self.first_gamma, self.packed = parameter(3, [width], 1.0, 0.2), matrix(4, width, everything)
        self.projection, self.second_gamma = matrix(5, width, width), parameter(6, [width], 1.0, 0.2)
        self.gate, self.up = matrix(7, width, self.inner), matrix(8, width, self.inner)
        self.down = matrix(9, self.inner, width)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        tokens, heads, kv_heads = x.shape[0], self.heads, self.kv_heads
        packed = rms_norm(x, (self.width,), self.first_gamma, 1e-5) @ self.packed
        packed = packed.view(tokens, heads + 2 * kv_heads, self.depth).transpose(0, 1)
        q, k, v = packed.split([heads, kv_heads, kv_heads])
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        attended = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)
        merged = attended[0].transpose(0, 1).reshape(tokens, self.width)
        between = merged @ self.projection + x
        normed = rms_norm(between, (self.width,), self.second_gamma, 1e-5)
        return (silu(normed @ self.gate) * (normed @ self.up)) @ self.down + between


def inputs(size: dict[str, Any], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    tokens, depth = size["tokens"], size["depth"]
    x = torch.from_numpy(numbers(0, [tokens, size["heads"] * depth], 0.0, 1.0)).to(dtype)
    pair = np.arange(depth) % (depth // 2)
    angles = np.arange(tokens)[:, None] * 10_000.0 ** (-2.0 * pair / depth)[None, :]
    return x, *(torch.from_numpy(of(angles).astype(np.float32)).to(dtype) for of in (np.cos, np.sin))


def sterna(example: Path, data_type: str, tokens: int, threads: int, path: str | None = None) -> dict[str, Any]:
    """What the example says of one run."""
    command = [str(example), "--time", data_type, str(tokens), str(threads), *([path] if path else [])]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def least(run: Callable[[], Any]) -> float:
    """Milliseconds of the fastest execution."""
    start, best = time.perf_counter(), float("inf")
    while time.perf_counter() - start < SECONDS:
        before = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - before)
    return 1e3 * best


def candidates(data_type: str, tokens: int, threads: int, peers: list[str], example: Path) -> dict[str, Callable]:
    """How each one is timed; those whose answers differ too much are refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "result")
        size = sterna(example, data_type, tokens, threads, path)
        expected = np.fromfile(path, np.float32)
    timed: dict[str, Callable] = {"sterna": lambda: sterna(example, data_type, tokens, threads)["ms"]}
    layer, given = Layer(size, TYPES[data_type]).eval(), inputs(size, TYPES[data_type])
    for peer in peers:
        called = torch.compile(layer) if peer == "compile" else layer

        def run(called: Callable = called) -> torch.Tensor:
            with torch.inference_mode(peer == "eager"), torch.no_grad():
                return called(*given)

        made = run().to(torch.float32).numpy().reshape(-1)
        worst = float(np.abs(made - expected).max() / np.abs(expected).max())
        if not worst <= TOLERANCE[data_type]:
            print(f"torch {peer} of {data_type} is off by {worst:.2g}, and not timed", file=sys.stderr)
            continue
        timed[f"torch {peer}"] = lambda run=run: least(run)
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512])
    parser.add_argument("--types", nargs="+", choices=list(TYPES), default=list(TYPES))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--example", type=Path, help="the example, if it is built already")
    parser.add_argument("--out", type=Path, help="also writes the table there, as CSV")
    arguments = parser.parse_args()
    example = arguments.example
    if example is None:
        subprocess.run(["cargo", "build", "--release", "--example", "decoder_layer"], cwd=ROOT, check=True)
        example = ROOT / "target/release/examples/decoder_layer"
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[: arguments.threads])
    torch.set_num_threads(arguments.threads)
    torch._inductor.config.freezing = True
    files = [sys.stdout] + ([arguments.out.open("w")] if arguments.out else [])
    writers = [csv.DictWriter(file, ["type", "tokens", "threads", "peer", "ms", "ratio"]) for file in files]
    for writer in writers:
        writer.writeheader()
    for data_type in arguments.types:
        for tokens in arguments.tokens:
            timed = candidates(data_type, tokens, arguments.threads, arguments.peers, example.resolve())
            times: dict[str, list[float]] = {name: [] for name in timed}
            for _ in range(arguments.rounds):
                for name, run in timed.items():
                    times[name].append(run())
            own = statistics.median(times["sterna"])
            for name, of in times.items():
                median = statistics.median(of)
                line = {"type": data_type, "tokens": tokens, "threads": arguments.threads, "peer": name}
                for writer, file in zip(writers, files):
                    writer.writerow(line | {"ms": f"{median:.3f}", "ratio": f"{median / own:.2f}"})
                    file.flush()


if __name__ == "__main__":
    main()
