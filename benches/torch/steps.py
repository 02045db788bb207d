#!/usr/bin/env python3
"""Where the time of models goes that run through Sterna, by kinds of steps, beside what the machine can do.

    python benches/torch/steps.py [--models bert,llama,mistral] [--types f32,bf16] [--rounds 20]

One thread, on a core of its own, padded rows as in `models.py`. A step is a partition of Sterna or a call of torch. Products and
attention stand beside the rate of a product of 2048 × 2048 × 2048 in torch, all else beside a copy of 16 MB: bytes are those of the
tensors that a step reads and writes, so that what lies in caches may be above it. Prints a table for each model.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from typing import Any


@dataclass
class Spent:
    """The shortest time of a step, and its work."""

    kind: str
    flops: int
    bytes: int
    seconds: float = float("inf")


def main() -> None:
    parts = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=parts, default=["bert", "llama", "mistral"])
    parser.add_argument("--types", type=parts, default=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for dtype in options.types:
        for name in options.models:
            print("\n".join(table(name, dtype, options.rounds)), flush=True)


def table(name: str, dtype: str, rounds: int) -> list[str]:
    """The rows of a model."""
    import torch

    import architectures
    import models
    import sterna.torch

    torch.set_num_threads(1)
    model, given = models.prepared(name, "padded", dtype, architectures.FULL)
    steps = timed_steps()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=sterna.torch.backend)
    whole = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        models.forward(model, compiled, given)
        whole = min(whole, time.perf_counter() - begin)
    most = rates(getattr(torch, models.TYPES[dtype]))
    groups: dict[str, list[Spent]] = {}
    for step in steps:
        groups.setdefault(step.kind, []).append(step)
    rows = [
        f"\n{name}, {dtype}: {whole * 1e3:.1f} ms, of which {sum(one.seconds for one in steps) * 1e3:.1f} in steps;"
        f" product {most[0]:.0f} GFLOP/s, copy {most[1]:.1f} GB/s\n",
        "| steps | number | ms | share | rate | of the limit |",
        "|---|---|---|---|---|---|",
    ]
    for label, found in sorted(groups.items(), key=lambda item: -sum(one.seconds for one in item[1])):
        seconds = sum(one.seconds for one in found)
        flops, moved = sum(one.flops for one in found), sum(one.bytes for one in found)
        rate, unit, limit = (flops, "GFLOP/s", most[0]) if flops else (moved, "GB/s", most[1])
        rate *= 1e-9 / seconds
        share = seconds / whole
        rows.append(
            f"| {label} | {len(found)} | {seconds * 1e3:.2f} | {share:.1%} | {rate:.0f} {unit} | {rate / limit:.2f} |"
        )
    return rows


def timed_steps() -> list[Spent]:
    """Makes programs that are written from now on time their steps; gives what they find."""
    from sterna.torch import _explain, _runtime

    found: list[Spent] = []
    write = ORIGINAL.setdefault("step", _runtime.Writer.step)

    def step(writer: Any, one: Any) -> None:
        flops = sum(map(_explain.flops_of, one.nodes))
        moved = sum(writer.bytes_of(number) for number in (*one.inputs, *one.outputs) if number in writer.layouts)
        spent = Spent(kind_of(one), flops, moved)
        found.append(spent)

        def ended(begin: float) -> None:
            spent.seconds = min(spent.seconds, time.perf_counter() - begin)

        writer.names["clock"] = time.perf_counter
        writer.lines.append("begin = clock()")
        write(writer, one)
        writer.lines.append(f"{writer.constant(ended)}(begin)")

    _runtime.Writer.step = step  # type: ignore[method-assign]
    return found


ORIGINAL: dict[str, Any] = {}


def kind_of(step: Any) -> str:
    if step.compiled is None:
        return "views" if step.call is None else "calls of torch"
    kinds = {op["kind"] for op in step.partition.ops}
    if "MatMul" in kinds and "SoftMax" in kinds:
        return "attention"
    for kind, label in (("MatMul", "products"), ("LayerNorm", "norms"), ("RMSNorm", "norms")):
        if kind in kinds:
            return label
    if any(kind.startswith(("Reduce", "SoftMax")) for kind in kinds):
        return "rows"
    return "lookups" if any(kind.startswith("Gather") for kind in kinds) else "pointwise and moves"


def rates(of_type: Any) -> tuple[float, float]:
    """GFLOP/s of a product, and GB/s of a copy, which reads and writes."""
    import torch

    x = torch.randn(2048, 2048).to(of_type)
    y = torch.zeros(4 << 20)
    return 2 * 2048**3 * 1e-9 / shortest(lambda: x @ x), 2 * y.nbytes * 1e-9 / shortest(y.clone)


def shortest(call: Any) -> float:
    least = float("inf")
    for _ in range(10):
        begin = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - begin)
    return least


if __name__ == "__main__":
    main()
