#!/usr/bin/env python3
"""Loss and gradients of the example `training` beside those of torch, on the same inputs and parameters.

    python3 benches/attention/training.py

The example writes a step (`--dump`), once without and once with Dropout, whose masks torch takes over; torch computes the
same model with autograd. A gradient may differ by 1e-4 of its largest number. It needs numpy and torch in the environment
of the Python that runs it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import log_softmax, scaled_dot_product_attention

ROOT = Path(__file__).resolve().parents[2]
LAYERS, HEADS = 2, 2
# The order in which the example updates its parameters: backward.
NAMES = [
    "unembedding",
    *(f"{layer} {name}" for layer in (1, 0) for name in ("down", "up", "projection", "q", "k", "v")),
    "embedding",
    "places",
]
TOLERANCE = 1e-4


def loss_of(p: dict[str, torch.Tensor], tokens: torch.Tensor, wanted: torch.Tensor, drop) -> torch.Tensor:
    """The model of `examples/training.rs`."""
    state = tokens @ p["embedding"] + p["places"]
    count, width = state.shape
    for layer in range(LAYERS):
        of = lambda name: p[f"{layer} {name}"]
        split = lambda name: (state @ of(name)).view(count, HEADS, width // HEADS).transpose(0, 1)
        attended = scaled_dot_product_attention(split("q"), split("k"), split("v"), is_causal=True)
        merged = attended.transpose(0, 1).reshape(count, width)
        between = state + drop(2 * layer, merged @ of("projection"))
        state = between + drop(2 * layer + 1, torch.relu(between @ of("up")) @ of("down"))
    return -(log_softmax(state @ p["unembedding"], -1) * wanted).sum() / count


def compare(example: Path, probability: float) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = ["--dropout", str(probability)] if probability else []
        subprocess.run([example, "--dump", folder, *options], check=True)
        read = lambda name: torch.from_numpy(np.load(folder / f"{name}.npy"))
        parameters = {name: read(f"parameter_{place}") for place, name in enumerate(NAMES)}
        gradients = {name: read(f"gradient_{place}") for place, name in enumerate(NAMES)}
        tokens, wanted, loss = read("tokens"), read("wanted"), read("loss")
        masks = [read(f"mask_{place}") for place in range(2 * LAYERS)] if probability else []
    drop = lambda place, x: x * masks[place] / (1 - probability) if masks else x
    leaves = {name: of.requires_grad_() for name, of in parameters.items()}
    made = loss_of(leaves, tokens, wanted, drop)
    made.backward()
    made = made.detach()
    worst = {name: float((leaves[name].grad - of).abs().max() / of.abs().max()) for name, of in gradients.items()}
    worst["loss"] = float(((made - loss) / loss).abs())
    where = max(worst, key=worst.get)
    kept = f", {float(sum(mask.float().mean() for mask in masks)) / len(masks):.3f} kept" if masks else ""
    print(f"dropout {probability}{kept}: loss {float(made):.4f}, off by at most {worst[where]:.2g} ({where})")
    return worst[where] <= TOLERANCE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--example", type=Path, help="the example, if it is built already")
    example = parser.parse_args().example
    if example is None:
        subprocess.run(["cargo", "build", "--release", "--example", "training"], cwd=ROOT, check=True)
        example = ROOT / "target/release/examples/training"
    if not all([compare(example.resolve(), probability) for probability in (0.0, 0.2)]):
        sys.exit("the gradients of torch differ")


if __name__ == "__main__":
    main()
