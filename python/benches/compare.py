"""`sterna.select` beside NumPy's and torch's `where`, and `sterna.attention` beside torch's.

    python python/benches/compare.py [--threads N] [--seconds S]

Candidates run by turns in one process, and each figure is the smallest of its rounds. Answers are compared before anything
is timed. A ratio above 1 says how many times as fast Sterna is. Without torch its columns are left out.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import sterna

try:
    import torch
except ImportError:
    torch = None


def minima(candidates, seconds):
    """The shortest time of a call of each candidate, in seconds; all by turns."""
    counts = {}
    for name, call in candidates.items():
        call()
        began = time.perf_counter()
        call()
        took = max(time.perf_counter() - began, 1e-7)
        counts[name] = max(1, min(20_000, int(0.002 / took)))
    best = dict.fromkeys(candidates, float("inf"))
    until = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < until or rounds < 5:
        rounds += 1
        for name, call in candidates.items():
            count = counts[name]
            began = time.perf_counter()
            for _ in range(count):
                call()
            best[name] = min(best[name], (time.perf_counter() - began) / count)
    return best


def row(name, times):
    own = times.pop("sterna")
    ratios = "".join(f"  {other} {took / own:6.2f}" for other, took in times.items())
    print(f"{name:44} {1e6 * own:10.2f} µs{ratios}", flush=True)


def selects(seconds):
    print("select; ratios of where's time to Sterna's")
    random = np.random.default_rng(0)
    for shape in [(16,), (1024,), (256, 256), (1024, 1024), (4096, 4096)]:
        for kind in ("arrays", "scalar", "row mask"):
            cond = random.random(shape[-1:] if kind == "row mask" else shape) < 0.5
            x = random.standard_normal(shape, np.float32)
            y = np.float32(-1) if kind == "scalar" else random.standard_normal(shape, np.float32)
            out = np.empty(shape, np.float32)
            assert np.array_equal(sterna.select(cond, x, y), np.where(cond, x, y))
            candidates = {
                "sterna": lambda cond=cond, x=x, y=y: sterna.select(cond, x, y),
                "np.where": lambda cond=cond, x=x, y=y: np.where(cond, x, y),
                "with out": lambda cond=cond, x=x, y=y, out=out: sterna.select(cond, x, y, out=out),
            }
            if torch:
                tensors = [torch.from_numpy(np.asarray(each)) for each in (cond, x, y)]
                candidates["torch.where"] = lambda tensors=tensors: torch.where(*tensors)
            row(f"{'x'.join(map(str, shape))} f32, {kind}", minima(candidates, seconds))


def attentions(seconds):
    if not torch:
        print("attention: no torch here")
        return
    print("attention, 8 heads of 1024 tokens of 64; ratios of torch's time to Sterna's")
    attend = torch.nn.functional.scaled_dot_product_attention
    tokens = 1024
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)
    forms = {
        "no mask": ({}, None),
        "causal": ({"causal": True}, j <= i),
        "window of 128": ({"causal": True, "window": 128}, (j <= i) & (i - j < 128)),
        "padding of a third": ({"mask": j < 683}, (j < 683).expand(tokens, tokens)),
        "causal documents": ({"mask": (j <= i) & (i // 256 == j // 256)}, (j <= i) & (i // 256 == j // 256)),
    }
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
        q, k, v = (torch.randn(1, 8, tokens, 64, generator=torch.manual_seed(seed)).to(dtype) for seed in range(3))
        out = torch.empty_like(q)
        for name, (options, mask) in forms.items():
            given = {"is_causal": True} if name == "causal" else {"attn_mask": mask}
            sterna.attention(q, k, v, out=out, **options)
            torch.testing.assert_close(out, attend(q, k, v, **given), atol=tolerance, rtol=tolerance)
            candidates = {
                "sterna": lambda options=options: sterna.attention(q, k, v, out=out, **options),
                "torch": lambda given=given: attend(q, k, v, **given),
            }
            row(f"{str(dtype).removeprefix('torch.')}, {name}", minima(candidates, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    options = parser.parse_args()
    if torch:
        torch.set_num_threads(options.threads)
    # The engine that the process shares keeps its compiled calls; its threads are those of STERNA_NUM_THREADS.
    print(f"threads: torch {options.threads}, Sterna {sterna.Engine().threads}")
    selects(options.seconds)
    attentions(options.seconds)


if __name__ == "__main__":
    main()
