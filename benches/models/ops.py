#!/usr/bin/env python3
"""ops.py [--short] [--seconds S] [--rounds N] [--threads N] [--out PAGE] [FILTER...]: single ops of ONNX, each a model, in Sterna and
ONNX Runtime, by turns.

A row is an op of one type and shapes, as models of other people have them. Both must give the same before either is timed. Each
has its own turn of some milliseconds in every round; the best run of a turn counts, and the best of the rounds. FILTERs are parts
of the names of rows. --short compares the answers of every eighth row, and times nothing. The end is 1 if an answer differs or a
row that ONNX Runtime runs is refused.

Needs the packages `numpy`, `onnx`, `onnxruntime` and `sterna`.
"""

import argparse
import datetime
import pathlib
import sys
import tempfile
import textwrap

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "benches/models"))
import python_peers  # noqa: E402
import report  # noqa: E402

TYPES = {
    "f32": np.float32, "f16": np.float16, "f64": np.float64, "s8": np.int8, "u8": np.uint8, "s32": np.int32, "s64": np.int64,
    "bool": np.bool_,
}  # fmt: skip
OPSET = 21
# The largest difference, as a share of the largest element: of floats by their type, of 8-bit results one step.
MOST = {"f32": 2e-5, "f16": 4e-3, "f64": 1e-12}

IMAGE, TOKENS, SQUARE = [8, 64, 56, 56], [64, 12, 128, 128], [1000, 1000]
WITH_SELF = [[SQUARE, SQUARE], [SQUARE, [1000]], [SQUARE, [1000, 1]], [IMAGE, [64, 1, 1]], [SQUARE, []], [[1000, 1], [1, 1000]]]
ROWS_AND_COLUMNS = [(SQUARE, 1), (SQUARE, 0), ([64, 100, 50], 1), ([100000, 8], 1)]

# Of one operand, and of two that broadcast: ops and the types that each has.
UNARY = {
    "f32": "Abs Acos Asinh Atan Ceil Celu Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsNaN LeakyRelu Log Mish Neg Reciprocal "
    "Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu",
    "f16": "Abs Exp Relu Sigmoid Sqrt Tanh",
    "f64": "Abs Exp Relu Sigmoid Sqrt Tanh",
}
BINARY = {
    "f32": "Add Div Max Mul Pow Sub",
    "f16": "Add Mul",
    "f64": "Add Div Max Mul Pow Sub",
    "s32": "Add Div Max Mul Pow Sub",
    "s64": "Add Div Max Mul Pow Sub",
}
COMPARISONS = {
    "f32": "Equal Greater Less LessOrEqual",
    "s32": "Equal Greater Less LessOrEqual",
    "s64": "Equal Greater Less LessOrEqual",
    "u8": "Equal",
    "bool": "And Or Xor",
}
CASTS = "f32-f16 f16-f32 u8-f32 f32-u8 s64-f32 f32-s64 s64-s32 s32-s64 bool-f32 f32-bool s32-f32 f32-s32 f64-f32 f32-f64 s8-f32"

# Reductions by their types, and what is reduced.
REDUCTIONS = {
    "f32": "ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare",
    "f16": "ReduceMax ReduceMean ReduceSum",
    "f64": "ReduceMax ReduceMean ReduceSum",
    "s32": "ReduceMax ReduceMean ReduceSum",
    "s64": "ReduceMax ReduceMean ReduceSum",
}
REDUCED = [
    (SQUARE, [1]), (SQUARE, [0]), (IMAGE, [2, 3]), ([8, 56, 56, 64], [1, 2]), ([64, 100, 50], [1]), ([1000000], [0]),
    ([100000, 8], [1]), ([8, 1000, 100], [0, 2]),
]  # fmt: skip

# Moves: dims, then what moves.
TRANSPOSED = [
    ([64, 512, 64], [1, 0, 2]), ([2, 128, 12, 64], [0, 2, 1, 3]), ([8, 16, 32, 64], [3, 2, 1, 0]), ([32, 100, 100, 12], [0, 3, 1, 2]),
    (SQUARE, [1, 0]), ([16, 7, 7, 512], [0, 3, 1, 2]),
]  # fmt: skip
SLICED = [
    (SQUARE, [0], [500], [1], [1]), (SQUARE, [1], [999], [1], [2]), (SQUARE, [-1], [-2000], [1], [-1]), (SQUARE, [3], [200], [0], [1]),
    ([16, 32, 56, 56], [0, 0], [50, 50], [2, 3], [1, 1]), ([16, 32, 56, 56], [0], [56], [3], [2]),
]  # fmt: skip
PADDED = [([8, 32, 56, 56], [0, 0, 1, 1, 0, 0, 1, 1]), ([8, 56, 56, 32], [0, 1, 1, 0, 0, 1, 1, 0]), ([64, 1000], [0, 3, 0, 3])]
EXPANDED = [([1000, 1], SQUARE), ([1, 1000], SQUARE), ([8, 4, 1, 128, 64], [8, 4, 4, 128, 64])]

POOLED = [
    ([8, 64, 112, 112], [3, 3], [2, 2], [1] * 4), (IMAGE, [2, 2], [2, 2], [0] * 4), ([8, 128, 28, 28], [3, 3], [1, 1], [1] * 4),
    ([4, 64, 400], [3], [2], [1, 1]),
]  # fmt: skip
# Data, and the places of a grid.
SAMPLED = [([256, 1, 16, 16], [9, 9]), ([1, 3, 224, 224], [224, 224]), ([1, 64, 56, 56], [56, 56]), ([8, 32, 40, 40], [300, 4])]
# Channels, dims of an image, lengths of a block, strides and pads.
OVERLAID = [(192, 28, 3, 2, 1), (64, 56, 3, 1, 1), (3, 224, 16, 16, 0), (64, 56, 2, 2, 0)]
RESIZED = [
    ("linear", [2, 64, 28, 28], 2), ("nearest", [2, 64, 28, 28], 2), ("linear", [2, 64, 28, 28], 1.5), ("linear", [2, 3, 256, 256], 0.5),
    ("cubic", [2, 3, 100, 100], 2), ("nearest", [2, 64, 56, 56], 0.5),
]  # fmt: skip
MULTIPLIED = [
    ([1, 768], [768, 768]), ([128, 768], [768, 3072]), ([7, 33], [33, 65]), ([12, 128, 64], [12, 64, 128]), ([1000, 8], [8, 8]),
    ([64, 64], [64, 64]), (SQUARE, [1000, 1]), ([12, 1, 64], [12, 64, 500]), ([4096, 16], [16, 4096]), ([16, 4096], [4096, 16]),
]  # fmt: skip
# Name, data, weights, and attributes beside what follows from them.
CONVOLUTIONS = [
    ("3 to 64 k7 s2", [1, 3, 224, 224], [64, 3, 7, 7], dict(strides=[2, 2], pads=[3] * 4)),
    ("64 k3", [1, 64, 56, 56], [64, 64, 3, 3], dict(pads=[1] * 4)),
    ("256 to 64 k1", [1, 256, 56, 56], [64, 256, 1, 1], {}),
    ("512 k3 of 7", [1, 512, 7, 7], [512, 512, 3, 3], dict(pads=[1] * 4)),
    ("depthwise 96 k7", [1, 96, 56, 56], [96, 1, 7, 7], dict(pads=[3] * 4, group=96)),
    ("depthwise 384 k3", [1, 384, 14, 14], [384, 1, 3, 3], dict(pads=[1] * 4, group=384)),
    ("depthwise 96 k3 s2", [1, 96, 56, 56], [96, 1, 3, 3], dict(pads=[1] * 4, strides=[2, 2], group=96)),
    ("groups 32 of 8 k3", [1, 256, 28, 28], [256, 8, 3, 3], dict(pads=[1] * 4, group=32)),
    ("1d 80 to 384 k3", [1, 80, 3000], [384, 80, 3], dict(pads=[1, 1])),
    ("1d 1 to 512 k10 s5", [1, 1, 16000], [512, 1, 10], dict(strides=[5])),
    ("1d depthwise 512 k31", [1, 512, 200], [512, 1, 31], dict(pads=[15, 15], group=512)),
    ("3d 3 to 32 k3", [1, 3, 16, 64, 64], [32, 3, 3, 3, 3], dict(pads=[1] * 6)),
    ("64 k3 dilated", [1, 64, 56, 56], [64, 64, 3, 3], dict(pads=[2] * 4, dilations=[2, 2])),
]
TRANSPOSED_CONVOLUTIONS = [
    ("64 to 32 k4 s2", [1, 64, 32, 32], [64, 32, 4, 4], dict(strides=[2, 2], pads=[1] * 4)),
    ("256 to 128 k2 s2", [1, 256, 28, 28], [256, 128, 2, 2], dict(strides=[2, 2])),
    ("1d 512 to 256 k16 s8", [1, 512, 100], [512, 256, 16], dict(strides=[8], pads=[4, 4])),
]


def numbers(dims, data_type, low=1, high=9):
    """Random elements: integers between two numbers; floats of a normal distribution, whose sizes are above 0 if low is."""
    draw, of = np.random.default_rng(1), TYPES[data_type]
    if data_type in MOST:
        normal = draw.standard_normal(dims)
        return np.asarray(np.abs(normal) + 0.01 if low > 0 else normal).astype(of)
    if data_type == "bool":
        return draw.random(dims) < 0.5
    return np.asarray(draw.integers(low, high, dims)).astype(of)


def signed(dims, data_type):
    return numbers(dims, data_type, 0, 100)


def s64s(*values):
    return np.array(values, np.int64)


def indices(dims, below):
    return np.random.default_rng(2).integers(0, below, dims)


def row(name, op, inputs, constants=(), **attributes):
    """The name of a row, its op, the arrays of its inputs, those of its constants behind them, and its attributes."""
    return name, op, list(inputs), list(constants), attributes


def elements():
    for data_type, ops in UNARY.items():
        for op in ops.split():
            positive = op in ("Log", "Sqrt", "Acos")
            x = numbers(SQUARE, data_type) if positive else signed(SQUARE, data_type)
            yield row(f"{op} {data_type}", op, [x % 1 if op == "Acos" else x])
    for data_type, ops in BINARY.items():
        for op in ops.split():
            for a, b in WITH_SELF:
                yield row(f"{op} {data_type} {a} {b}", op, [numbers(a, data_type), numbers(b, data_type)])
    for data_type, ops in COMPARISONS.items():
        for op in ops.split():
            yield row(f"{op} {data_type}", op, [numbers(SQUARE, data_type), numbers(SQUARE, data_type).T.copy()])
    for pair in CASTS.split():
        a, b = pair.split("-")
        to = helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[b]))
        yield row(f"Cast {a} to {b}", "Cast", [numbers(SQUARE, a)], to=to)
    for data_type in ("f32", "s64", "u8"):
        yield row(f"Where {data_type}", "Where", [numbers(SQUARE, "bool"), *[signed(SQUARE, data_type)] * 2])


def moves():
    for data_type in ("f32", "f16", "u8", "s64"):
        for dims, order in TRANSPOSED:
            yield row(f"Transpose {data_type} {dims} {order}", "Transpose", [signed(dims, data_type)], perm=order)
        for dims, *ranges in SLICED:
            constants = [s64s(*values) for values in ranges]
            yield row(f"Slice {data_type} {dims} {ranges}", "Slice", [signed(dims, data_type)], constants)
        for mode in ("constant", "reflect", "edge"):
            for dims, pads in PADDED:
                yield row(f"Pad {data_type} {mode} {dims}", "Pad", [signed(dims, data_type)], [s64s(*pads)], mode=mode)
        for dims, to in EXPANDED:
            yield row(f"Expand {data_type} {dims}", "Expand", [signed(dims, data_type)], [s64s(*to)])
        for dims, axis in [([300, 1000], 0), ([300, 1000], 1), ([64, 30, 500], 1), ([1000, 20, 30], 2)]:
            pair = [signed(dims, data_type)] * 2
            yield row(f"Concat {data_type} {dims} {axis}", "Concat", pair, axis=axis)
        yield row(f"Tile {data_type}", "Tile", [signed([200, 100], data_type)], [s64s(1, 10)])
        yield row(f"Gather {data_type} rows", "Gather", [signed([30000, 64], data_type), indices([4096], 30000)])
        yield row(f"Gather {data_type} columns", "Gather", [signed(SQUARE, data_type), indices([500], 1000)], axis=1)
        each = [signed(SQUARE, data_type), indices([1000, 500], 1000)]
        yield row(f"GatherElements {data_type}", "GatherElements", each, axis=1)
        yield row(f"DepthToSpace {data_type}", "DepthToSpace", [signed(IMAGE, data_type)], blocksize=2)


def rows_and_columns():
    for data_type, ops in REDUCTIONS.items():
        for op in ops.split():
            for dims, axes in REDUCED:
                # Sums of both signs cancel out, and products of many overflow.
                x = numbers(dims, data_type, 0 if op == "ReduceProd" else 1, 3)
                yield row(f"{op} {data_type} {dims} {axes}", op, [x], [s64s(*axes)], keepdims=0)
    for dims, axis in ROWS_AND_COLUMNS:
        for op in ("Softmax", "LogSoftmax"):
            yield row(f"{op} {dims} {axis}", op, [signed(dims, "f32")], axis=axis)
        for op in ("ArgMax", "ArgMin"):
            yield row(f"{op} {dims} {axis}", op, [signed(dims, "f32")], axis=axis, keepdims=0)
        yield row(f"CumSum {dims} {axis}", "CumSum", [numbers(dims, "s64", 0, 3)], [np.array(axis)])
    for dims in ([1000, 768], [4096, 64], [100, 4096]):
        factors = [signed(dims[-1:], "f32")] * 2
        yield row(f"LayerNormalization {dims}", "LayerNormalization", [signed(dims, "f32")], factors, axis=-1)
    yield row("Softmax heads", "Softmax", [signed(TOKENS, "f32")], axis=-1)
    yield row("DynamicQuantizeLinear", "DynamicQuantizeLinear", [signed(SQUARE, "f32")])
    quantized = [np.float32(0.02), np.uint8(128)]
    yield row("QuantizeLinear u8", "QuantizeLinear", [signed(SQUARE, "f32")], quantized)
    yield row("DequantizeLinear u8", "DequantizeLinear", [numbers(SQUARE, "u8", 0, 255)], quantized)


def images():
    for data_type in ("f32", "f16"):
        for dims, kernel, strides, pads in POOLED:
            for op in ("MaxPool", "AveragePool"):
                attributes = dict(kernel_shape=kernel, strides=strides, pads=pads)
                yield row(f"{op} {data_type} {dims} {kernel}", op, [signed(dims, data_type)], **attributes)
        for op in ("GlobalAveragePool", "GlobalMaxPool"):
            yield row(f"{op} {data_type}", op, [signed(IMAGE, data_type)])
        for mode, dims, by in RESIZED:
            if data_type == "f16" and mode == "cubic":
                continue
            scales = np.array([1, 1, by, by], np.float32)
            yield row(f"Resize {data_type} {mode} {dims} {by}", "Resize", [signed(dims, data_type)], [None, scales], mode=mode)
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for dims, places in SAMPLED:
                points = np.random.default_rng(3).uniform(-1.2, 1.2, [dims[0], *places, 2]).astype(np.float32)
                attributes = dict(mode=mode, padding_mode=padding)
                yield row(f"GridSample {mode} {padding} {dims}", "GridSample", [signed(dims, "f32"), points], **attributes)
    for channels, length, block, stride, pad in OVERLAID:
        blocks = ((length + 2 * pad - block) // stride + 1) ** 2
        constants = [s64s(length, length), s64s(block, block)]
        attributes = dict(strides=[stride] * 2, pads=[pad] * 4)
        columns = signed([1, channels * block**2, blocks], "f32")
        yield row(f"Col2Im {channels} of {length} k{block} s{stride}", "Col2Im", [columns], constants, **attributes)
    for op, rows in (("Conv", CONVOLUTIONS), ("ConvTranspose", TRANSPOSED_CONVOLUTIONS)):
        for name, dims, weights, attributes in rows:
            yield row(f"{op} {name}", op, [signed(dims, "f32")], [signed(weights, "f32")], **attributes)


def products():
    for data_type in ("f32", "f16", "f64"):
        for a, b in MULTIPLIED:
            yield row(f"MatMul {data_type} {a} {b}", "MatMul", [signed(a, data_type), signed(b, data_type)])
    for a, b in (([128, 768], [768, 768]), ([1, 768], [768, 768])):
        integers = numbers(a, "u8", 0, 255), numbers(b, "s8", -100, 100)
        yield row(f"MatMulInteger {a}", "MatMulInteger", [integers[0]], [integers[1]])


def all_rows():
    for part in (elements, moves, rows_and_columns, images, products):
        yield from part()


def model(op, inputs, constants, attributes):
    """A model of one node, and what its inputs are given."""
    feeds = {f"x{place}": array for place, array in enumerate(inputs)}
    weights = {f"w{place}": np.asarray(array) for place, array in enumerate(constants) if array is not None}
    names = list(feeds) + ["" if array is None else f"w{place}" for place, array in enumerate(constants)]
    outputs = ["y"] + (["scale", "zero"] if op == "DynamicQuantizeLinear" else [])
    node = helper.make_node(op, names, outputs, **attributes)

    def port(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    ports = [port(name, array) for name, array in feeds.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "op", ports, results, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made), feeds


def of_sterna(path, threads):
    import sterna

    session = sterna.load(path, engine=sterna.Engine(threads=threads))
    return lambda feeds: next(iter(session.run(feeds).values()))


PEERS = {"ONNX Runtime": python_peers.first_of_runtime, "Sterna": of_sterna}


def differs(result, expected):
    """True if two results are further apart than rounding explains."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return True
    name = next((name for name, of in TYPES.items() if of == expected.dtype), None)
    a, b = (np.asarray(array, np.float64) for array in (result, expected))
    apart = np.abs(np.where(np.isfinite(b), a - b, 0))
    if name in MOST:
        return bool(apart.max(initial=0) > MOST[name] * np.abs(b[np.isfinite(b)]).max(initial=1))
    return bool(apart.max(initial=0) > (1 if name in ("u8", "s8") else 0))


def compared(path, feeds, threads):
    """The peers that run a model, and why the row is wrong, if it is."""
    runs, expected = {}, None
    for peer, make in PEERS.items():
        try:
            run = make(path, threads)
            result = np.asarray(run(feeds))
        except Exception as error:  # each peer refuses in ways of its own
            if peer == "Sterna" and runs:
                return runs, f"refused: {str(error).splitlines()[-1][:150]}"
            continue
        if expected is not None and differs(result, expected):
            return runs, "another result"
        expected, runs[peer] = result, run
    return runs, None


ABOUT = """\
`benches/models/ops.py` runs single ops of ONNX on {threads} thread{s}. Sterna and ONNX Runtime {runtime} run for {seconds} s a round,
by turns in one process; the best run counts, of {rounds} rounds. The ratio is the time of ONNX Runtime divided by Sterna's: above 1
Sterna is ahead. {date}; {machine}.
"""


def slowest_first(times, heading, unit):
    """A table of names with the seconds of Sterna and of its peer, the slowest beside its peer first."""
    by = {"ms": 1e3, "µs": 1e6}[unit]
    rows = sorted((peer / ours, name, ours * by, peer * by) for name, (ours, peer) in times.items())
    counts = [sum(ratio < bound for ratio, *_ in rows) for bound in (0.8, 1.0)]
    text = f"{len(rows)} rows: {counts[0]} below 0.8, {counts[1]} below 1.\n\n"
    text += f"| {heading} | ratio | Sterna, {unit} | ONNX Runtime, {unit} |\n|---|---|---|---|\n"
    return text + "".join(f"| {name} | {ratio:.2f} | {ours:.1f} | {peer:.1f} |\n" for ratio, name, ours, peer in rows)


def page(arguments, times):
    """The table, slowest rows first."""
    about = ABOUT.format(
        machine=report.machine(), date=datetime.date.today().isoformat(), seconds=arguments.seconds, rounds=arguments.rounds,
        runtime=onnxruntime.__version__, threads=arguments.threads, s="s" * (arguments.threads > 1),
    )  # fmt: skip
    return textwrap.fill(about, 120, break_on_hyphens=False) + "\n\n" + slowest_first(times, "row", "µs")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filters", nargs="*", help="parts of names of rows; all without any")
    parser.add_argument("--short", action="store_true", help="compares every eighth row and times nothing")
    parser.add_argument("--seconds", type=float, default=0.05, help="how long a turn runs a row (0.05)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each (2)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, help="the page that is written, instead of printing it")
    arguments = parser.parse_args()
    times, wrong = {}, []
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name) / "op.onnx"
    rows = [made for made in all_rows() if not arguments.filters or any(part in made[0] for part in arguments.filters)]
    for name, op, inputs, constants, attributes in rows[:: 8 if arguments.short else 1]:
        made, feeds = model(op, inputs, constants, attributes)
        onnx.save(made, path)
        runs, fault = compared(path, feeds, arguments.threads)
        if fault:
            wrong.append(f"{name}: {fault}")
        if fault or arguments.short or len(runs) < len(PEERS):
            continue
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(arguments.rounds):
            for peer, run in runs.items():
                best[peer] = min(best[peer], *python_peers.turn(run, feeds, arguments.seconds))
        times[name] = best["Sterna"], best["ONNX Runtime"]
    if times and arguments.out:
        arguments.out.write_text(page(arguments, times))
    elif times:
        print(page(arguments, times), end="")
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
