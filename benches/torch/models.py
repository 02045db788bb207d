#!/usr/bin/env python3
"""Times whole models in eager torch, through Sterna and through inductor, by turns, and says how far results are apart.

    python benches/torch/models.py --out DIR [--models bert,llama] [--tasks prefill,padded,train,decode,decode-static] [--types f32,bf16]
        [--threads 1,2] [--scale full|small|long] [--seconds 2] [--without-inductor]

Writes DIR/torch.md, a table, and DIR/torch.json, a line for each row. Needs the packages sterna, torch and transformers. Each row
is a process of its own, so that no compiled code is shared; inductor's cache is a new folder each time.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

TASKS = ("prefill", "padded", "train")
#: What a decoder does besides, if asked for: the tokens after a short prompt, with a cache that grows or one of full size.
DECODING = ("decode", "decode-static")
PROMPT, DECODED = 16, 32
#: How far results may be apart. In bf16, gradients that are all but 0 are the last bits of larger numbers, and a token whose
#: router holds two experts equal may go to either.
MOST_DISTANCE = {"f32": 1e-3, "bf16": 0.8}
TYPES = {"f32": "float32", "bf16": "bfloat16"}
BATCH = 2


def main() -> None:
    options = parsed()
    if options.row:
        print(json.dumps(row(*options.row.split(","), options)))
        return
    import architectures

    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with (out / "torch.json").open("w") as lines:
        for name in options.models or architectures.ARCHITECTURES:
            for task in options.tasks:
                if task in DECODING and architectures.ARCHITECTURES[name].inputs != "decoder":
                    continue
                for dtype in options.types:
                    for threads in options.threads:
                        found = in_process(f"{name},{task},{dtype},{threads}")
                        print(json.dumps(found), file=lines, flush=True)
                        print(line(found), flush=True)
                        rows.append(found)
    (out / "torch.md").write_text(HEAD + "\n".join(map(line, rows)) + "\n\n" + means(rows))
    if any("failed" in found or found["distance"]["sterna"] > MOST_DISTANCE[found["type"]] for found in rows):
        sys.exit("rows failed, or gave something else than eager torch")


def parsed() -> argparse.Namespace:
    parts = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="torch-models", help="the folder of the results")
    parser.add_argument("--models", type=parts, help="names of the table of architectures; all unless given")
    parser.add_argument("--tasks", type=parts, default=list(TASKS), help=f"of {', '.join(TASKS + DECODING)}")
    parser.add_argument("--types", type=parts, default=list(TYPES))
    parser.add_argument("--threads", type=lambda text: list(map(int, parts(text))), default=[1])
    parser.add_argument("--scale", choices=("full", "small", "long"), default="full")
    parser.add_argument("--seconds", type=float, default=2, help="how long a row is timed")
    parser.add_argument("--without-inductor", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def in_process(row: str) -> dict[str, Any]:
    """A row, measured by a process."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        command = [sys.executable, __file__, *sys.argv[1:], "--row", row]
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    name, task, dtype, threads = row.split(",")
    about = {"model": name, "task": task, "type": dtype, "threads": int(threads)}
    return about | (json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {"failed": ran.returncode})


def row(name: str, task: str, dtype: str, threads: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    import architectures
    import sterna.torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(int(threads))
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-int(threads) :]))
    scale = architectures.SCALES[options.scale]
    model, given = prepared(name, task, dtype, scale)
    backends = {"eager": None, "sterna": sterna.torch.backend, "inductor": "inductor"}
    if options.without_inductor:
        del backends["inductor"]
    step = {"train": training_step, "decode": decode, "decode-static": decode_static}.get(task, forward)
    whole = model.forward if task in DECODING else model
    results, first, calls = {}, {}, {}
    for way, chosen in backends.items():
        function = whole if chosen is None else torch.compile(whole, backend=chosen)
        begin = time.perf_counter()
        results[way] = step(model, function, given)
        first[way] = time.perf_counter() - begin
        calls[way] = lambda function=function: step(model, function, given)
    times = by_turns(calls, options.seconds)
    found: dict[str, Any] = {"time": times, "first": first}
    found["distance"] = {way: distance(results[way], results["eager"]) for way in results if way != "eager"}
    return found


def prepared(name: str, task: str, dtype: str, scale: Any) -> tuple[Any, dict[str, Any]]:
    """A model, and the inputs of a task."""
    import torch

    import architectures

    kind = architectures.ARCHITECTURES[name]
    of_type = getattr(torch, TYPES[dtype])
    model = kind.model(scale).to(of_type)
    given = architectures.inputs(kind.inputs, scale, BATCH, task != "prefill", of_type)
    if task in DECODING:
        given = {name: one[:, :PROMPT] for name, one in given.items()}
    elif kind.inputs in ("decoder", "pair", "sound"):
        given["use_cache"] = False
    return model, given


def forward(model: Any, function: Any, given: dict[str, Any]) -> list[Any]:
    import torch

    import architectures

    with torch.no_grad():
        return architectures.tensors_of(function(**given))


def training_step(model: Any, function: Any, given: dict[str, Any]) -> list[Any]:
    """Outputs, and the gradients of a loss that all of them have a share in."""
    import torch

    import architectures

    model.zero_grad(set_to_none=True)
    outputs = architectures.tensors_of(function(**given))
    sum(output.float().square().mean() for output in outputs).backward()
    # A compiled model gives zeros where eager torch gives none.
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters()]
    return [output.detach() for output in outputs] + gradients


def decode(model: Any, function: Any, given: dict[str, Any], **options: Any) -> list[Any]:
    """The logits of the tokens after a prompt, by the loop of transformers around a compiled step. The tokens are fixed,
    since another choice between two that are near would change all that follows."""
    import torch

    def chosen(ids: Any, scores: Any) -> Any:
        made = torch.full_like(scores, -torch.inf)
        made[:, 4 + 7 * ids.shape[1] % (scores.shape[1] - 4)] = 0
        return made

    model.forward = function
    with torch.no_grad():
        made = model.generate(
            **given, max_new_tokens=DECODED, min_new_tokens=DECODED, do_sample=False, pad_token_id=0,
            return_dict_in_generate=True, output_logits=True, logits_processor=[chosen], **options,
        )  # fmt: skip
    return list(made.logits)


def decode_static(model: Any, function: Any, given: dict[str, Any]) -> list[Any]:
    return decode(model, function, given, cache_implementation="static", disable_compile=True)


def by_turns(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The shortest time of each way, in seconds."""
    least = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds * len(calls)
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for way, call in calls.items():
            # Threads of torch's pool spin for milliseconds after their last work, which was that of another way.
            call()
            begin = time.perf_counter()
            call()
            least[way] = min(least[way], time.perf_counter() - begin)
        rounds += 1
    return least


def distance(results: list[Any], expected: list[Any]) -> float:
    """The largest difference as a share of the largest number of its tensor; of gradients that are all but 0, of 1e-3
    of the largest of all."""
    most = max(float(tensor.abs().max()) for tensor in expected if tensor.numel())
    shares = [0.0]
    for result, wanted in zip(results, expected, strict=True):
        if wanted.numel():
            size = max(float(wanted.abs().max()), 1e-3 * most)
            shares.append(float((result.float() - wanted.float()).abs().max()) / size)
    return max(shares)


HEAD = """\
| model | task | type | threads | eager, ms | eager / Sterna | inductor / Sterna | first call, s: Sterna | inductor | distance |
|---|---|---|---|---|---|---|---|---|---|
"""


def means(rows: list[dict[str, Any]]) -> str:
    """Geometric means of the ratios of all models."""
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for found in rows:
        if "time" in found:
            groups.setdefault((found["task"], found["type"], str(found["threads"])), []).append(found["time"])
    lines = ["| task | type | threads | models | eager / Sterna | inductor / Sterna |", "|---|---|---|---|---|---|"]
    for name, times in groups.items():
        ratios = {way: [one[way] / one["sterna"] for one in times if way in one] for way in ("eager", "inductor")}
        made = [f"{statistics.geometric_mean(some):.2f}" if some else "–" for some in ratios.values()]
        lines.append("| " + " | ".join([*name, str(len(times)), *made]) + " |")
    return "\n".join(lines) + "\n"


def line(found: dict[str, Any]) -> str:
    about = [found["model"], found["task"], found["type"], str(found["threads"])]
    if "failed" in found:
        return "| " + " | ".join([*about, f"failed: {found['failed']}"]) + " |"
    times, first = found["time"], found["first"]
    ratio = lambda way: f"{times[way] / times['sterna']:.2f}" if way in times else "–"
    made = [
        f"{times['eager'] * 1e3:.1f}", ratio("eager"), ratio("inductor"), f"{first['sterna']:.1f}",
        f"{first['inductor']:.1f}" if "inductor" in first else "–", f"{found['distance']['sterna']:.0e}",
    ]  # fmt: skip
    return "| " + " | ".join(about + made) + " |"


if __name__ == "__main__":
    main()
