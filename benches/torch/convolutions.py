#!/usr/bin/env python3
"""The rows of `cargo bench --bench convolution` in torch, whose kernels on CPUs are those of oneDNN.

    cargo bench --bench convolution -- 'f32 nxc' --threads 1 > rows.txt
    python3 benches/torch/convolutions.py rows.txt

reads a table of the bench and measures the same layers with `torch.nn.functional.conv2d` and its siblings, and the two
gradients with `torch.ops.aten.convolution_backward`, on as many threads: `nxc` rows with `channels_last` operands, `ncx`
rows with contiguous ones. It prints for each row Sterna's microseconds, torch's, and the ratio of torch's to Sterna's;
above 1 Sterna is faster. Behind the rows stand the sums of each network, each layer as often as the network has it. A time
is the best of some rounds of calls that together take 2 ms, as in the bench. Results go to new memory in torch. A type
other than f32 and bf16 has no peer here.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch

SAMPLE_SECONDS = 0.002
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
FORWARD = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


class Row:
    """A layer, from the name of a row."""

    def __init__(self, name: str) -> None:
        self.kind, _, rest = name.partition(" ") if name.split()[0] in ("data", "weights", "transposed") else ("", "", name)
        self.network, data_type, self.format, image, kernel, stride, to, groups, times = rest.split()
        self.type = TYPES[data_type]
        self.channels, *self.image = map(int, image.split("x"))
        self.kernel, self.stride, self.to = int(kernel[1:]), int(stride[1:]), int(to)
        self.groups, self.times = int(groups[1:]), int(times[1:])
        self.pad = 0 if self.kernel == self.stride else (self.kernel - 1) // 2

    def call(self) -> Callable[[], object]:
        rank = len(self.image)

        def made(*dims: int) -> torch.Tensor:
            tensor = torch.rand(dims).sub(0.5).to(self.type)
            is_last = self.format == "nxc" and rank in LAST
            return tensor.contiguous(memory_format=LAST[rank]) if is_last else tensor

        image = made(1, self.channels, *self.image)
        weights = made(self.to, self.channels // self.groups, *[self.kernel] * rank)
        if not self.kind:
            bias, forward = made(self.to) if rank not in LAST else torch.rand(self.to).to(self.type), FORWARD[rank]
            return lambda: forward(image, weights, bias, self.stride, self.pad, 1, self.groups)
        windows = FORWARD[rank](image, weights, None, self.stride, self.pad, 1, self.groups)
        each = [[number] * rank for number in (self.stride, self.pad, 1)]
        masks = {"data": [True, False, False], "weights": [False, True, False]}
        if self.kind == "transposed":
            size = [count - (of - 1) * self.stride - self.kernel + 2 * self.pad for count, of in zip(self.image, windows.shape[2:])]
            arguments = (windows, weights, torch.rand(self.channels).to(self.type), *each, True, size, self.groups)
            return lambda: torch.ops.aten.convolution(*arguments)
        backward = torch.ops.aten.convolution_backward
        arguments = (windows, image, weights, None, *each, False, [0] * rank, self.groups, masks[self.kind])
        return lambda: backward(*arguments)


def seconds(call: Callable[[], object], rounds: int) -> float:
    def timed(runs: int) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            call()
        return (time.perf_counter() - start) / runs

    once = min(timed(1) for _ in range(3))
    runs = max(1, min(10**6, round(SAMPLE_SECONDS / max(once, 1e-9))))
    return min(timed(runs) for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="what the bench printed")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    threads = 0

    def print_sums() -> None:
        for network, (ours, theirs) in sums.items():
            print(f"{'sum of ' + network:<60}{ours:>10.1f}{theirs:>10.1f}{theirs / ours:>8.2f}")
        sums.clear()

    for line in arguments.rows.read_text().splitlines():
        words = line.rsplit(maxsplit=3)
        if line.endswith(("thread", "threads")):
            print_sums()
            threads = int(line.split()[0])
            torch.set_num_threads(threads)
            print(f"\n{line}\n{'row':<60}{'µs':>10}{'torch':>10}{'ratio':>8}{'of limit':>10}")
        elif len(words) == 4 and words[0].split()[-1].startswith("x") and threads:
            name, ours, limit = words[0].strip(), float(words[1]), words[3]
            row = Row(name)
            theirs = seconds(row.call(), arguments.rounds) * 1e6
            print(f"{name:<60}{ours:>10.1f}{theirs:>10.1f}{theirs / ours:>8.2f}{limit:>10}", flush=True)
            network = f"{row.kind} {row.network}".strip()
            for at, of in enumerate((ours, theirs)):
                sums[network][at] += of * row.times
    print_sums()


if __name__ == "__main__":
    main()
