#!/usr/bin/env python3
"""Times models of convolutions in eager torch and through Sterna, by turns, in both layouts of images.

    python benches/torch/images.py [--models resnet,mobilenet] [--layouts first,last] [--tasks inference,train] [--types f32]
        [--threads 1,2] [--seconds 2] [--explain]

Prints a row for each: the shortest times in milliseconds, torch's by ours, and the distance of the results as `models.py`
has it. The models are those of transformers with random weights, a small U-Net, and the first two layers of Whisper. An
image has 224 × 224 elements; inference has one, training two, with gradients of all parameters, norms that follow the batch,
and without an optimizer. `--explain` also says what runs where.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from models import TYPES, by_turns, distance, forward, training_step

SIDE = 224


class Halved(torch.nn.Module):
    """A level of a U-Net: two convolutions, half the size, what lies within, and back beside what was there."""

    def __init__(self, width: int, within: torch.nn.Module | None) -> None:
        super().__init__()
        part = lambda a, b: torch.nn.Sequential(
            torch.nn.Conv2d(a, b, 3, padding=1, bias=False), torch.nn.BatchNorm2d(b), torch.nn.ReLU()
        )
        self.before = torch.nn.Sequential(part(width, width), part(width, width))
        self.down = torch.nn.Conv2d(width, 2 * width, 2, 2)
        self.within = part(2 * width, 2 * width) if within is None else within
        self.up = torch.nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.behind = part(2 * width, width)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x = self.before(pixel_values)
        return self.behind(torch.cat([x, self.up(self.within(self.down(x)))], 1))  # type: ignore[no-any-return]


def u_net() -> torch.nn.Module:
    levels = Halved(16, Halved(32, Halved(64, None)))
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), levels, torch.nn.Conv2d(16, 4, 1))


class Stem(torch.nn.Module):
    """The first layers of Whisper."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Conv1d(80, 384, 3, padding=1), torch.nn.Conv1d(384, 384, 3, 2, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        gelu = torch.nn.functional.gelu
        return gelu(self.two(gelu(self.one(pixel_values)))).permute(0, 2, 1)


def reg_net() -> torch.nn.Module:
    return hf.RegNetModel(
        hf.RegNetConfig(embedding_size=32, hidden_sizes=[64, 128, 288, 672], depths=[2, 5, 8, 2], groups_width=16)
    )


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "resnet": lambda: hf.ResNetModel(hf.ResNetConfig()),
    "regnet": reg_net,
    "mobilenet": lambda: hf.MobileNetV2Model(hf.MobileNetV2Config()),
    "convnext": lambda: hf.ConvNextModel(hf.ConvNextConfig(depths=[2, 2, 4, 2])),
    "unet": u_net,
    "whisper": Stem,
}


def main() -> None:
    parts = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=parts, default=list(MODELS))
    parser.add_argument("--layouts", type=parts, default=["first", "last"])
    parser.add_argument("--tasks", type=parts, default=["inference", "train"])
    parser.add_argument("--types", type=parts, default=["f32"])
    parser.add_argument("--threads", type=lambda text: list(map(int, parts(text))), default=[1])
    parser.add_argument("--seconds", type=float, default=2, help="how long a row is timed")
    parser.add_argument("--explain", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    cpus = sorted(os.sched_getaffinity(0))
    print("| model | task | type | channels | threads | eager, ms | Sterna, ms | eager / Sterna | distance |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.models:
        for task in options.tasks:
            for dtype in options.types:
                for layout in options.layouts if name != "whisper" else options.layouts[:1]:
                    for threads in options.threads:
                        torch.set_num_threads(threads)
                        os.sched_setaffinity(0, set(cpus[-threads:]))
                        print(row(name, task, dtype, layout, threads, options), flush=True)


def row(name: str, task: str, dtype: str, layout: str, threads: int, options: Any) -> str:
    import sterna.torch

    torch._dynamo.reset()
    torch.manual_seed(0)
    memory = torch.channels_last if layout == "last" else torch.contiguous_format
    of_type = getattr(torch, TYPES[dtype])
    model = MODELS[name]().to(of_type).to(memory_format=memory).train(task == "train")
    batch = 2 if task == "train" else 1
    if name == "whisper":
        x = torch.randn(batch, 80, 3000, dtype=of_type)
    else:
        x = torch.randn(batch, 3, SIDE, SIDE, dtype=of_type).contiguous(memory_format=memory)
    step = training_step if task == "train" else forward
    whole: Callable[..., Any] = model if name != "unet" else lambda pixel_values: model(pixel_values)
    ways = {"eager": whole, "sterna": torch.compile(whole, backend=sterna.torch.backend)}
    given = {"pixel_values": x}
    results = {way: step(model, function, given) for way, function in ways.items()}
    calls = {way: lambda function=function: step(model, function, given) for way, function in ways.items()}
    times = by_turns(calls, options.seconds)
    about = [name, task, dtype, layout, str(threads), *(f"{times[way] * 1e3:.2f}" for way in ways)]
    about += [f"{times['eager'] / times['sterna']:.2f}", f"{distance(results['sterna'], results['eager']):.0e}"]
    told = f"| {' | '.join(about)} |"
    if options.explain:
        if task == "train":
            found = sterna.torch.explain(whole, **given)
        else:
            with torch.no_grad():
                found = sterna.torch.explain(whole, **given)
        told += f"\n{found}"
    return told


if __name__ == "__main__":
    main()
