"""`sterna.select` beside `np.where`, `torch.where`, `jax.numpy.where` and numexpr, and `sterna.attention` beside torch, JAX and
ONNX Runtime on the masks of `benches/attention`.

    python python/benches/compare.py --out DIR

writes `DIR/python.md`, the tables of a record, and `DIR/python.svg`, a picture of them. It needs the package and, of its
peers, what it shall be compared with, in the versions of `benches/peers/requirements.txt`:

    pip install ./python -c benches/peers/requirements.txt jax matplotlib ml_dtypes numexpr onnx onnxruntime torch

The columns of a peer that is not there are empty. Candidates run by turns in one process, on as many CPUs as threads; a time
is the median over the rounds of the best sample. Answers are compared before anything is timed. `--short` only compares them,
on small cases.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benches" / folder) for folder in ("peers", "attention")]

PEERS_OF_SELECT = ["numpy", "torch", "jax", "numexpr"]
PEERS_OF_ATTENTION = ["torch", "jax", "onnxruntime"]
SHAPES = [(16,), (1024,), (256, 256), (1024, 1024), (4096, 4096)]
SHORT_SHAPES = [(16,), (33, 65)]
# Batch, heads, queries and keys, depth.
ATTENTION = (1, 8, 1024, 64)
SHORT_ATTENTION = (1, 2, 256, 32)
# The error that an answer may have, by type, at numbers about 1.
TOLERANCE = {"f32": 1e-4, "bf16": 5e-2}
KINDS = {"arrays": "cond, x and y arrays", "scalar": "y a number", "row": "cond one row for all"}


def peers(threads):
    """The packages that are there, told to use so many threads."""
    found = {}
    for name in ("torch", "jax", "numexpr", "onnxruntime"):
        try:
            found[name] = importlib.import_module(name)
        except ImportError:
            print(f"left out: {name} is not installed", file=sys.stderr)
    if torch := found.get("torch"):
        torch.set_num_threads(threads)
    if numexpr := found.get("numexpr"):
        numexpr.set_num_threads(threads)
    return found


def select_row(shape, kind, found, np, sterna):
    """The candidates of a select, each a call and what makes an array of NumPy of its answer."""
    random = np.random.default_rng(0)
    cond = random.random(shape[-1:] if kind == "row" else shape) < 0.5
    x = random.standard_normal(shape, np.float32)
    y = np.float32(-1) if kind == "scalar" else random.standard_normal(shape, np.float32)
    out = np.empty(shape, np.float32)
    calls = {
        "sterna": (lambda: sterna.select(cond, x, y), np.asarray),
        "out": (lambda: sterna.select(cond, x, y, out=out), np.asarray),
        "numpy": (lambda: np.where(cond, x, y), np.asarray),
    }
    if torch := found.get("torch"):
        tensors = [torch.from_numpy(np.asarray(each)) for each in (cond, x, y)]
        calls["torch"] = (lambda: torch.where(*tensors), lambda result: result.numpy())
    if jax := found.get("jax"):
        arrays = [jax.numpy.asarray(each) for each in (cond, x, y)]
        calls["jax"] = (lambda: jax.numpy.where(*arrays).block_until_ready(), np.asarray)
    if numexpr := found.get("numexpr"):
        names = {"cond": cond, "x": x, "y": y}
        calls["numexpr"] = (lambda: numexpr.evaluate("where(cond, x, y)", local_dict=names), np.asarray)
    return calls, np.where(cond, x, y)


def attention_row(of, form, mask, shape, threads, found, np, sterna):
    """The candidates of an attention. `form` is "tensor", or the option that stands for the mask."""
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16 if of == "bf16" else np.float32)
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal(shape, np.float32).astype(dtype) for _ in range(3))
    out = np.empty(shape, dtype)
    window = max(shape[-2] // 16, 1)
    is_whole = bool(mask.all())
    options = {"causal": {"causal": True}, "window": {"causal": True, "window": window}}.get(form)
    if options is None:
        options = {} if is_whole else {"mask": mask}
    as_f64 = lambda result: np.asarray(result).astype(np.float64)
    calls = {"sterna": (lambda: sterna.attention(q, k, v, out=out, **options), as_f64)}
    if torch := found.get("torch"):
        torch_type = torch.bfloat16 if of == "bf16" else torch.float32
        given = [torch.from_numpy(each.astype(np.float32)).to(torch_type) for each in (q, k, v)]
        how = {"attn_mask": None if is_whole else torch.from_numpy(mask)}
        if form == "causal":
            how = {"is_causal": True}
        if form != "window":
            attend = torch.nn.functional.scaled_dot_product_attention
            calls["torch"] = (lambda: attend(*given, **how), lambda result: result.to(torch.float64).numpy())
    if jax := found.get("jax"):
        # Its heads stand behind the tokens.
        turned = [jax.numpy.asarray(np.ascontiguousarray(each.swapaxes(1, 2))) for each in (q, k, v)]
        masked = None if is_whole or form != "tensor" else jax.numpy.asarray(mask)[None, None]
        fixed = {"causal": {"is_causal": True}, "window": {"is_causal": True, "local_window_size": (window - 1, 0)}}.get(form, {})
        run = jax.jit(lambda q, k, v, mask: jax.nn.dot_product_attention(q, k, v, mask=mask, **fixed))
        calls["jax"] = (
            lambda: run(*turned, masked).block_until_ready(),
            lambda result: as_f64(result).swapaxes(1, 2),
        )
    if (ort := found.get("onnxruntime")) and of == "f32" and form == "tensor":
        from peers import onnx_model

        row = types.SimpleNamespace(type=of, q=q, k=k, v=v, mask=None if is_whole else mask)
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = threads
        session = ort.InferenceSession(onnx_model(row), settings, ["CPUExecutionProvider"])
        feed = {"q": q, "k": k, "v": v} | ({} if is_whole else {"mask": mask})
        calls["onnxruntime"] = (lambda: session.run(None, feed)[0], as_f64)
    scores = np.where(mask, q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / np.sqrt(shape[-1]), -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    total = weights.sum(-1, keepdims=True)
    return calls, np.where(total > 0, weights / np.where(total > 0, total, 1), 0) @ v.astype(np.float64)


def rows(short, threads, found, np, sterna):
    """Every row: its part, name, candidates, answer and the error that an answer may have."""
    for shape in SHORT_SHAPES if short else SHAPES:
        for kind in KINDS:
            calls, answer = select_row(shape, kind, found, np, sterna)
            yield "select", f"{'x'.join(map(str, shape))}, {KINDS[kind]}", calls, answer, 0.0
    from masks import masks

    shape = SHORT_ATTENTION if short else ATTENTION
    for of, tolerance in TOLERANCE.items():
        for name, mask in masks(shape[-2]).items():
            forms = ["tensor"] + [name] * (name in ("causal", "window"))
            for form in forms:
                said = "" if form == "tensor" else ", an option"
                calls, answer = attention_row(of, form, mask, shape, threads, found, np, sterna)
                yield "attention", f"{of} {name}{said}", calls, answer, tolerance


def checked(name, calls, answer, tolerance, np):
    """The calls that give the right answer; a wrong one of Sterna ends the run."""
    right = {}
    for peer, (call, as_array) in calls.items():
        given = as_array(call())
        # A query without keys is NaN to some.
        error = np.abs(np.nan_to_num(given) - answer).max() if tolerance else float(not np.array_equal(given, answer))
        if error <= tolerance:
            right[peer] = call
        elif peer in ("sterna", "out"):
            sys.exit(f"{name}: the answer of Sterna is off by {error}")
        else:
            print(f"{name}: {peer} is off by {error:.2g}", file=sys.stderr)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="where python.md and python.svg are written")
    parser.add_argument("--short", action="store_true", help="compares the answers of small cases and times nothing")
    options = parser.parse_args()
    load = f"{os.getloadavg()[0]:.1f}"
    os.environ["STERNA_NUM_THREADS"] = str(options.threads)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from turns import by_turns, keep_to, sampled

    # Before anybody counts CPUs.
    keep_to(options.threads)
    import numpy as np

    import sterna

    found = peers(options.threads)
    table = []
    for part, name, calls, answer, tolerance in rows(options.short, options.threads, found, np, sterna):
        right = checked(name, calls, answer, tolerance, np)
        if options.short:
            continue
        candidates = {peer: lambda count, call=call: sampled(call, count) for peer, call in right.items()}
        times = by_turns(candidates, options.rounds, options.threads)
        table.append((part, name, times))
        own = times["sterna"]
        others = "  ".join(f"{peer} {time / own:.2f}" for peer, time in times.items() if peer != "sterna")
        print(f"{part:9} {name:34} {own / 1e3:10.2f} µs  {others}", flush=True)
    if options.short:
        print(f"the answers of {', '.join(['sterna', 'numpy', *found])} agree")
    if options.out:
        from pages import write

        versions = {"sterna": sterna, "numpy": np, **found}
        write(options.out, table, {name: module.__version__ for name, module in versions.items()}, options, load)


if __name__ == "__main__":
    main()
