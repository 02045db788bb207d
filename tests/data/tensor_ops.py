"""Writes tensor_ops.txt beside it: what ops on whole tensors give, worked out by NumPy in float64, those
on images by torch in float64.

    pip install numpy ml_dtypes torch
    python3 tests/data/tensor_ops.py

A block is one op: its kind and what is shown, then lines `attr NAME TYPE VALUES`, `in TYPE DIMS BYTES` and
`out TYPE DIMS BYTES`; dims are joined by `x`, bytes are in hexadecimal digits, little-endian, and a NaN is the one that
the interpreter gives. Results are rounded to float32, and from there to their type. Formulas are NumPy's own functions
where it has one, else those of the documentation.
"""

import itertools
import pathlib

import ml_dtypes
import numpy as np
import torch

TYPES = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8_e5m2": ml_dtypes.float8_e5m2,
    "f8_e4m3": ml_dtypes.float8_e4m3fn, "u8": np.uint8, "s8": np.int8, "s32": np.int32, "s64": np.int64,
}
NANS = {"f32": 0x7FC00000, "f16": 0x7E00, "bf16": 0x7FC0, "f8_e5m2": 0x7E, "f8_e4m3": 0x7F}
FLOATS = ["f32", "bf16", "f16"]
INF, NAN = np.inf, np.nan

random = np.random.default_rng(25)
lines = []


class Tensor:
    """A type by name, and its elements."""

    def __init__(self, data_type, array, packed=None):
        self.data_type, self.array, self.packed = data_type, array, packed

    def text(self):
        dims = "x".join(map(str, self.array.shape)) or "scalar"
        if self.packed is not None:
            return f"{self.data_type} {dims} {self.packed.hex() or '-'}"
        raw = bytearray(np.ascontiguousarray(self.array).tobytes())
        size = self.array.dtype.itemsize
        if self.data_type in NANS:
            for i in np.flatnonzero(np.isnan(self.array.astype(np.float64).ravel())):
                raw[i * size:(i + 1) * size] = NANS[self.data_type].to_bytes(size, "little")
        return f"{self.data_type} {dims} {raw.hex() or '-'}"

    @property
    def f64(self):
        return self.array.astype(np.float64)


def tensor(data_type, numbers):
    """Elements nearest to numbers."""
    with np.errstate(all="ignore"):
        return Tensor(data_type, np.asarray(numbers, np.float64).astype(np.float32).astype(TYPES[data_type]))


def integers(data_type, numbers):
    return Tensor(data_type, np.asarray(numbers, TYPES[data_type]))


def nibbles(data_type, numbers):
    """Elements of four bits, two a byte, the first in the low half."""
    numbers = np.asarray(numbers)
    flat = [int(x) & 15 for x in numbers.ravel()]
    flat += [0] * (len(flat) % 2)
    return Tensor(data_type, numbers, bytes(a | b << 4 for a, b in zip(flat[::2], flat[1::2])))


def normal(data_type, *shape):
    return tensor(data_type, random.normal(size=shape))


def block(kind, shows, inputs, outputs, **attrs):
    lines.append(f"{kind}: {shows}")
    for name, value in attrs.items():
        if isinstance(value, bool):
            lines.append(f"attr {name} bool {str(value).lower()}")
        elif isinstance(value, str):
            lines.append(f"attr {name} string {value}")
        elif isinstance(value, int):
            lines.append(f"attr {name} s64 {value}")
        elif isinstance(value, float):
            lines.append(f"attr {name} f32 {np.float32(value)!r}".replace("np.float32(", "").replace(")", ""))
        elif value and isinstance(value[0], float):
            lines.append(f"attr {name} f32[] {' '.join(str(float(np.float32(x))) for x in value)}")
        else:
            lines.append(f"attr {name} s64[] {' '.join(map(str, value))}".rstrip())
    lines.extend(f"in {each.text()}" for each in inputs)
    lines.extend(f"out {each.text()}" for each in outputs)
    lines.append("")


def f32(value):
    return float(np.float32(value))


# Products.

PRODUCTS = [
    ("batches that broadcast", (2, 1, 3, 4), (5, 4, 2), False, False, (2,)),
    ("both transposed, a bias of one column", (4, 3), (2, 4), True, True, (3, 1)),
    ("rank 6", (1, 2, 1, 2, 3, 5), (2, 3, 1, 5, 4), False, False, None),
    ("a vector and a batch", (5,), (2, 5, 3), True, False, None),
    ("a batch and a vector", (2, 3, 5), (5,), False, True, None),
    ("more columns than one block", (3, 7), (7, 21), False, False, (21,)),
    ("more rows than one task", (70, 3), (9, 3), False, True, None),
    ("no products", (2, 0), (0, 3), False, False, (3,)),
]
for (shows, a, b, ta, tb, bias), data_type in itertools.product(PRODUCTS, FLOATS):
    x, y = normal(data_type, *a), normal(data_type, *b)
    turned = [np.swapaxes(z.f64, -1, -2) if t and z.f64.ndim > 1 else z.f64 for z, t in ((x, ta), (y, tb))]
    result = np.matmul(*turned)
    inputs = [x, y]
    if bias is not None:
        inputs.append(normal(data_type, *bias))
        result = result + inputs[-1].f64
    for to in dict.fromkeys([data_type, "f32"] if shows == PRODUCTS[0][0] else [data_type]):
        block("MatMul", f"{shows}, {data_type} to {to}", inputs, [tensor(to, result)], transpose_a=ta, transpose_b=tb)

# Softmaxes and their gradients.

with np.errstate(all="ignore"):
    for data_type, (shape, axis) in itertools.product(FLOATS, [((3, 4), -1), ((2, 3, 2), 1), ((5,), 0), ((1, 2, 3, 2, 1, 2), 2), ((2, 0), 1), ((3, 1), 1)]):
        x = tensor(data_type, 3 * random.normal(size=shape))
        if shape == (3, 4):
            x.array[0], x.array[1, 1:], x.array[2, 2] = -INF, -INF, -INF
        top = x.f64.max(axis, keepdims=True, initial=-INF)
        for mode in ["none", "inf_as_zero"]:
            shift = np.where((top == -INF) & (mode == "inf_as_zero"), 0, top)
            powers = np.exp(x.f64 - shift)
            total = powers.sum(axis, keepdims=True)
            lost = (total == 0) & (mode == "inf_as_zero")
            result = np.where(total == 0, 0, powers / total)
            stats = np.where(lost, 0, shift + np.log(total))
            block("SoftMax", f"{data_type} {shape}, {mode}", [x], [tensor(data_type, result), tensor("f32", stats)], axis=axis, mode=mode)
        log = x.f64 - top - np.log(np.exp(x.f64 - top).sum(axis, keepdims=True))
        block("LogSoftmax", f"{data_type} {shape}", [x], [tensor(data_type, log)], axis=axis)
        gradient, dst = normal(data_type, *shape), tensor(data_type, np.abs(random.normal(size=shape)))
        d, y = gradient.f64, dst.f64
        result = y * (d - (y * d).sum(axis, keepdims=True))
        for to in dict.fromkeys([data_type, "f32"]):
            block("SoftMaxBackward", f"{data_type} to {to} {shape}", [gradient, dst], [tensor(to, result)], axis=axis)
        result = d - np.exp(y) * d.sum(axis, keepdims=True)
        block("LogSoftmaxBackward", f"{data_type} {shape}", [gradient, dst], [tensor(data_type, result)], axis=axis)

# Reductions.

REDUCTIONS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": lambda x, axis, keepdims: np.max(x, axis=axis, keepdims=keepdims, initial=-INF),
    "ReduceMin": lambda x, axis, keepdims: np.min(x, axis=axis, keepdims=keepdims, initial=INF),
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, axis, keepdims: np.sum(np.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)),
}
SHAPES = [
    ((3, 4), [1]), ((3, 4), [0, -1]), ((2, 3, 4), [-3]), ((2, 3, 2, 2, 1, 3), [5, 1, -2]), ((4,), [0]), ((2, 0, 3), [1]),
    ((2, 0, 3), [2]), ((0,), [-1]), ((2, 3), []), ((), []), ((1, 1, 5), [2, 0]),
]
with np.errstate(all="ignore"):
    import warnings

    warnings.simplefilter("ignore")
    for (kind, function), (shape, axes), keep, data_type in itertools.product(REDUCTIONS.items(), SHAPES, [False, True], FLOATS):
        x = normal(data_type, *shape)
        if shape == (2, 3, 4):
            x.array[0, 0, 0], x.array[1, 1, 1], x.array[0, 2, 2] = NAN, INF, -INF
        result = function(x.f64, axis=tuple(axes), keepdims=keep) if axes else x.f64
        dst = tensor(data_type, result)
        block(kind, f"{data_type} {shape} along {axes}, keep_dims {keep}", [x], [dst], axes=axes, keep_dims=keep)
        if data_type == "f32" and axes:
            block(kind, f"{shape} along an input {axes}", [x, integers("s32", axes)], [dst], keep_dims=keep)

# Norms.


def moments(x, axes):
    return x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


for data_type, (shape, begin, affine) in itertools.product(
    FLOATS, [((2, 3, 4), -1, (4,)), ((2, 3, 4), 1, (3, 4)), ((2, 3, 4), 0, (4,)), ((5,), -1, None), ((1, 2, 1, 3, 2, 2), 3, (1, 2)), ((3, 1), 1, (1,))]
):
    x, axes = normal(data_type, *shape), tuple(range(begin % len(shape), len(shape)))
    mean, variance = moments(x.f64, axes)
    epsilon = 0.0625
    result = (x.f64 - mean) / np.sqrt(variance + epsilon)
    for of_statistics in ["f32", "bf16"] if data_type == "bf16" else ["f32"]:
        inputs = [x]
        scaled = result
        if affine:
            inputs += [normal(of_statistics, *affine), normal(of_statistics, *affine)]
            scaled = inputs[1].f64 * result + inputs[2].f64
        squeezed = [tensor(of_statistics, y.reshape(shape[:begin % len(shape)])) for y in (mean, variance)]
        block("LayerNorm", f"{data_type} {shape} from {begin}", inputs, [tensor(data_type, scaled), *squeezed], begin_norm_axis=begin, epsilon=epsilon, use_affine=affine is not None)
        block("LayerNorm", f"{data_type} {shape} from {begin}, result alone", inputs, [tensor(data_type, scaled)], begin_norm_axis=begin, epsilon=epsilon, keep_stats=False)

        diff = normal(data_type, *shape)
        m, v = (tensor(of_statistics, y.reshape(shape[:begin % len(shape)])) for y in (mean, variance))
        keep = mean.shape
        deviation = np.sqrt(v.f64.reshape(keep) + epsilon)
        normalised = (x.f64 - m.f64.reshape(keep)) / deviation
        gamma = inputs[1] if affine else None
        g = diff.f64 * (gamma.f64 if affine else 1)
        d = (g - g.mean(axes, keepdims=True) - normalised * (g * normalised).mean(axes, keepdims=True)) / deviation
        backward = [x, diff, m, v]
        outputs = [tensor(data_type, d)]
        if affine:
            backward += [gamma, inputs[2]]
            over = tuple(range(len(shape) - len(affine)))
            fits = tuple(i for i, (a, b) in enumerate(zip(affine, shape[len(over):])) if a != b)

            def onto(y):
                return y.sum(over).sum(fits, keepdims=True)

            outputs += [tensor(of_statistics, onto(diff.f64 * normalised)), tensor(of_statistics, onto(diff.f64))]
        block("LayerNormBackward", f"{data_type} {shape} from {begin}", backward, outputs, begin_norm_axis=begin, epsilon=epsilon, use_affine=affine is not None)

    root = x.f64 / np.sqrt((x.f64**2).mean(axes, keepdims=True) + epsilon)
    block("RMSNorm", f"{data_type} {shape} from {begin}", [x], [tensor(data_type, root)], begin_norm_axis=begin, epsilon=epsilon)
    gamma = normal("f32", *shape[-1:])
    block("RMSNorm", f"{data_type} {shape} from {begin}, scaled", [x, gamma], [tensor(data_type, root * gamma.f64)], begin_norm_axis=begin, epsilon=epsilon)

for data_type, (shape, groups, nxc) in itertools.product(FLOATS, [((2, 6, 3), 3, False), ((2, 3, 6), 2, True), ((1, 4), 4, False), ((3, 2, 2, 4), 1, True), ((2, 4, 1, 2, 3, 2), 2, False)]):
    x = normal(data_type, *shape)
    channels = shape[-1] if nxc else shape[1]
    gamma, beta = normal("f32", channels), normal("f32", channels)
    first = np.moveaxis(x.f64, -1, 1) if nxc else x.f64
    grouped = first.reshape(shape[0], groups, -1)
    mean, variance = moments(grouped, 2)
    normalised = ((grouped - mean) / np.sqrt(variance + 0.5)).reshape(first.shape)
    along = (1, channels) + (1,) * (len(shape) - 2)
    scaled = gamma.f64.reshape(along) * normalised + beta.f64.reshape(along)
    statistics = [tensor("f32", y.reshape(shape[0], groups)) for y in (mean, variance)]
    back = (lambda y: np.moveaxis(y, 1, -1)) if nxc else (lambda y: y)
    options = dict(groups=groups, epsilon=0.5, data_format="NXC" if nxc else "NCX")
    block("GroupNorm", f"{data_type} {shape}", [x, gamma, beta], [tensor(data_type, back(scaled)), *statistics], **options)
    block("GroupNorm", f"{data_type} {shape}, plain", [x], [tensor(data_type, back(normalised))], keep_stats=False, use_affine=False, **options)

# Gradients of biases and slopes.

for data_type, (shape, nxc) in itertools.product(FLOATS, [((2, 3, 4), True), ((2, 3, 4), False), ((5,), True), ((2, 3), False), ((1, 3, 2, 2, 2, 2), False), ((0, 3), True)]):
    d = normal(data_type, *shape)
    channel = len(shape) - 1 if nxc else 1
    result = d.f64.sum(tuple(i for i in range(len(shape)) if i != channel))
    block("BiasAddBackward", f"{data_type} {shape}", [d], [tensor(data_type, result)], data_format="NXC" if nxc else "NCX")

for data_type, (shape, slope, nxc) in itertools.product(FLOATS, [((2, 3, 4), (4,), True), ((2, 3, 4), (3,), False), ((2, 3), (1,), True), ((2, 3, 4), (3, 4), True), ((2, 3, 4), (3, 1), True), ((2, 2), (2, 2), True)]):
    x, d, s = normal(data_type, *shape), normal(data_type, *shape), normal(data_type, *slope)
    x.array.flat[0] = 0
    full = s.f64.reshape(1, 3, 1) if not nxc else s.f64
    full = np.broadcast_to(full, shape)
    of_slope = np.where(x.f64 > 0, 0, d.f64 * x.f64)
    held = (1, 3, 1) if not nxc else (1,) * (len(shape) - len(slope)) + slope
    over = tuple(i for i in range(len(shape)) if held[i] != shape[i])
    result = [np.where(x.f64 > 0, d.f64, d.f64 * full), of_slope.sum(over).reshape(slope)]
    block("PReLUBackward", f"{data_type} {shape} {slope}", [x, s, d], [tensor(data_type, y) for y in result], data_format="NXC" if nxc else "NCX")

# Moves.

six = normal("f32", 2, 1, 3, 2, 1, 2)
block("StaticTranspose", "rank 6", [six], [Tensor("f32", six.array.transpose(3, 0, 5, 2, 1, 4))], order=[3, 0, -1, 2, -5, 4])
for data_type in FLOATS:
    parts = [normal(data_type, 2, n, 3) for n in (1, 0, 4)]
    for axis in (1, -2):
        block("Concat", f"{data_type} along {axis}", parts, [Tensor(data_type, np.concatenate([x.array for x in parts], axis))], axis=axis)
rank_5 = [normal("f32", 2, 1, 2, 1, n) for n in (3, 1)]
block("Concat", "the last of five dims", rank_5, [Tensor("f32", np.concatenate([x.array for x in rank_5], 4))], axis=4)
block("Concat", "one input", rank_5[:1], rank_5[:1], axis=0)

# Quantisation.


def rounded(x):
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float64).astype(np.float32).astype(np.float64)


def quantised(x, scale, zp, data_type):
    steps = rounded(x / scale)
    steps = steps if zp is None else rounded(steps + zp)
    if data_type.startswith("f8"):
        return Tensor(data_type, steps.astype(np.float32).astype(TYPES[data_type]))
    bounds = np.iinfo(TYPES[data_type])
    return integers(data_type, np.nan_to_num(np.clip(np.rint(steps), bounds.min, bounds.max), nan=0).astype(np.int64))


TIES = [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 1e9, -1e9, INF, -INF, NAN, -0.0, 127.5, -128.5, 255.5, 3.25]
with np.errstate(all="ignore"):
    for data_type in ["u8", "s8"]:
        x = tensor("f32", TIES)
        block("Quantize", f"ties and bounds, {data_type}", [x], [quantised(x.f64, 1, None, data_type)], scales=[1.0])
        block("Quantize", f"a zero point, {data_type}", [x], [quantised(x.f64, f32(0.1), 3, data_type)], scales=[0.1], zps=[3])
    for data_type in ["f8_e5m2", "f8_e4m3"]:
        edges = TIES + [240, 248, 464, 464.1, 480, 57344, 61439, 61440, 2**-9, 2**-10, 1.5 * 2**-10, 2**-16, 2**-17, 1.1 * 2**-17, 0.0171875, 1.0625, 1.1875, 1.125]
        edges += list(4 * random.normal(size=40)) + list(2.0 ** random.uniform(-18, 17, size=60))
        x = tensor("f32", edges)
        block("Quantize", f"edges of {data_type}", [x], [quantised(x.f64, 1, None, data_type)], scales=[1.0])
        block("Quantize", f"a scale, {data_type}", [x], [quantised(x.f64, f32(0.3), None, data_type)], scales=[0.3])
        every = Tensor(data_type, np.arange(256, dtype=np.uint8).view(TYPES[data_type]))
        block("Dequantize", f"every {data_type}", [every], [tensor("f32", every.f64 * f32(0.3))], scales=[0.3])
for shape, axis in [((2, 3, 4), 1), ((2, 3, 4), -1), ((3,), 0), ((2, 1, 3, 1, 2, 1), 2)]:
    n = shape[axis]
    along = tuple(n if i == axis % len(shape) else 1 for i in range(len(shape)))
    scales = [f32(x) for x in np.abs(random.normal(size=n)) / 40 + 0.01]
    zps = [int(x) for x in random.integers(-20, 20, n)]
    full = (np.reshape(scales, along), np.reshape(zps, along))
    x = normal("f32", *shape)
    for data_type in ["u8", "s8"]:
        named = dict(qtype="per_channel", axis=axis)
        q = quantised(x.f64, *full, data_type)
        block("Quantize", f"per channel {axis} of {shape}, {data_type}", [x], [q], scales=scales, zps=zps, **named)
        back = rounded(rounded(q.f64 - full[1]) * full[0])
        block("Dequantize", f"per channel {axis} of {shape}, {data_type}", [q], [tensor("f32", back)], scales=scales, zps=zps, **named)
        for of_zps in ["s8", "s32"]:
            parameters = [tensor("f32", scales), integers(of_zps, zps)]
            block("DynamicQuantize", f"per channel {axis} of {shape}, {data_type}, {of_zps}", [x, *parameters], [q], **named)
            block("DynamicDequantize", f"per channel {axis} of {shape}, {data_type}, {of_zps}", [q, *parameters], [tensor("f32", back)], **named)
        one = quantised(x.f64, full[0], 2, data_type)
        block("DynamicQuantize", f"one zero point, {shape}, {data_type}", [x, tensor("f32", scales), integers("u8", [2])], [one], **named)
x = normal("f32", 3, 3)
for data_type in ["u8", "s8"]:
    block("DynamicQuantize", f"per tensor, {data_type}", [x, tensor("f32", [0.05])], [quantised(x.f64, f32(0.05), None, data_type)])
    q = quantised(x.f64, f32(0.05), 7, data_type)
    for to in FLOATS:
        scale = tensor(to, [0.05])
        back = rounded((q.f64 - 7) * scale.f64)
        block("DynamicDequantize", f"per tensor, {data_type} to {to}", [q, scale, integers("s32", [7])], [tensor(to, back)])
for (shape, group), data_type, to in itertools.product([((2, 4, 6), (1, 2, 1)), ((2, 4, 6), (2, 1, 3)), ((6,), (3,)), ((3, 5), (1, 5)), ((1, 2, 4, 1, 2, 2), (1, 1, 4, 1, 1, 2))], ["u8", "s8", "s4", "u4"], FLOATS):
    low, high = {"u8": (0, 256), "s8": (-128, 128), "s4": (-8, 8), "u4": (0, 16)}[data_type]
    make = nibbles if data_type.endswith("4") else integers
    q = make(data_type, random.integers(low, high, shape))
    counts = [a // b for a, b in zip(shape, group)]
    scales = tensor(to, np.abs(random.normal(size=counts)))
    of_zps = data_type if data_type.endswith("4") else "s32"
    zps = make(of_zps, random.integers(*{"s4": (-8, 8), "u4": (0, 16), "s32": (-9, 9)}[of_zps], counts))

    def spread(y):
        for axis, n in enumerate(group):
            y = np.repeat(y, n, axis)
        return y

    # Groups of rank 1 are refused: their scales must have rank 2 or more.
    if len(shape) > 1:
        back = rounded(rounded(q.f64 - spread(zps.f64)) * spread(scales.f64))
        named = dict(qtype="per_group", group_shape=list(group))
        block("DynamicDequantize", f"groups {group} of {shape}, {data_type} to {to}", [q, scales, zps], [tensor(to, back)], **named)
        plain = rounded(q.f64 * spread(scales.f64))
        block("DynamicDequantize", f"groups {group} of {shape} without zero points, {data_type} to {to}", [q, scales], [tensor(to, plain)], **named)

# Dropout. Its masks were compared with those of oneDNN 3.13.

BITS = 0xFFFFFFFF


def philox(counter, key):
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & BITS, (a >> 32) ^ counter[3] ^ key[1], a & BITS]
        key = [(key[0] + 0x9E3779B9) & BITS, (key[1] + 0xBB67AE85) & BITS]
    return counter


def word(i, seed, offset):
    seed, offset, x = seed % 2**64, offset % 2**64, i & ~3
    if offset == 0:
        return philox([x, x + 1, x, x + 3], [seed & BITS] * 2)[2]
    return philox([offset & BITS, offset >> 32, x & BITS, x >> 32], [seed & BITS, seed >> 32])[i & 3]


for data_type, (seed, offset, p) in itertools.product(FLOATS, [(7, 3, 0.5), (7, 0, 0.5), (0x123456789ABC, 0x987654321, 0.3), (0x123456789ABC, 0, 0.3), (-5, -9, 0.7), (7, 3, 1.0), (7, 3, 0.0), (1, 1, 0.1)]):
    x = normal(data_type, 2, 3, 5)
    x.array[0, 0, :4] = [NAN, INF, -0.0, -INF]
    p = f32(p)
    kept = np.array([word(i, seed, offset) > BITS * p for i in range(30)]).reshape(2, 3, 5)
    factor = float(np.float32(1) / np.float32(1 - np.float32(p))) if p != 1 else 0.0
    with np.errstate(all="ignore"):
        result = tensor(data_type, np.where(kept, rounded(x.f64 * factor), 0))
    inputs = [x, integers("s64", [seed]), integers("s64", np.array(offset)), tensor("f32", p)]
    block("Dropout", f"{data_type}, seed {seed}, offset {offset}, {p}", inputs, [result, integers("u8", kept)])
    block("Dropout", f"{data_type}, seed {seed}, offset {offset}, {p}, no mask", inputs, [result])

# Slopes along the only dim, whatever the format.

for data_type, slopes, data_format in itertools.product(FLOATS, (5, 1), ("NCX", "NXC")):
    x, d, s = normal(data_type, 5), normal(data_type, 5), normal(data_type, slopes)
    of_slope = np.where(x.f64 > 0, 0, d.f64 * x.f64)
    result = [np.where(x.f64 > 0, d.f64, d.f64 * s.f64), of_slope if slopes == 5 else of_slope.sum(keepdims=True)]
    block("PReLUBackward", f"{data_type} (5,) ({slopes},) {data_format}", [x, s, d], [tensor(data_type, y) for y in result], data_format=data_format)

# Convolutions and their gradients.

# Spatial dims, kernel, strides, dilations, pads before and behind, groups, batch, channels of a group: of the image, of the
# windows.
CONVOLUTIONS = [
    ((5, 6), (3, 2), (1, 1), (1, 1), (0, 0), (0, 0), 1, 2, 2, 3),
    ((5, 7), (3, 3), (2, 3), (1, 1), (1, 0), (0, 2), 1, 1, 1, 2),
    ((6, 5), (2, 3), (2, 1), (3, 2), (1, 2), (2, 1), 2, 1, 2, 1),
    ((9,), (4,), (2,), (2,), (3,), (0,), 3, 2, 1, 2),
    ((3, 4, 4), (2, 1, 3), (1, 2, 2), (1, 1, 1), (1, 0, 1), (0, 0, 1), 1, 1, 2, 1),
    ((4, 4), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, 1, 3, 2),
    ((2, 2), (2, 2), (3, 3), (1, 1), (2, 2), (2, 2), 1, 1, 1, 1),
]
CONVOLVED = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
for (spatial, kernel, strides, dilations, begin, end, groups, batch, of_image, of_windows), data_type, nxc in itertools.product(CONVOLUTIONS, FLOATS, [False, True]):
    if nxc and data_type != "f32":
        continue
    to_data = (lambda y: np.moveaxis(y, 1, -1)) if nxc else (lambda y: y)
    to_weights = (lambda y: np.moveaxis(y, (0, 1), (-1, -2))) if nxc else (lambda y: y)
    image, weights = normal(data_type, batch, groups * of_image, *spatial), normal(data_type, groups * of_windows, of_image, *kernel)
    x, w = (torch.tensor(y.f64, requires_grad=True) for y in (image, weights))
    around = [pad for pair in zip(reversed(begin), reversed(end)) for pad in pair]
    y = CONVOLVED[len(spatial)](torch.nn.functional.pad(x, around), w, None, strides, 0, dilations, groups)
    windows = normal(data_type, *y.shape)
    y.backward(torch.tensor(windows.f64))
    covered = [s * (n - 1) + d * (k - 1) + 1 - b - e for s, n, d, k, b, e in zip(strides, y.shape[2:], dilations, kernel, begin, end)]
    of_y, of_x = normal(data_type, groups * of_windows), normal(data_type, groups * of_image)
    along = (-1,) + (1,) * len(spatial)

    def laid(value, order):
        return Tensor(value.data_type, np.ascontiguousarray(order(value.array)))

    def result(numbers, order):
        return tensor(data_type, order(numbers))

    image, windows, weights = laid(image, to_data), laid(windows, to_data), laid(weights, to_weights)
    dx, dw, y = x.grad.numpy(), w.grad.numpy(), y.detach().numpy()
    steps = dict(strides=list(strides), pads_begin=list(begin), pads_end=list(end), dilations=list(dilations), groups=groups, data_format="NXC" if nxc else "NCX")
    forward = dict(steps, weights_format="XIO" if nxc else "OIX")
    backward = dict(steps, weights_format="XOI" if nxc else "IOX")
    shows = f"{spatial} by {kernel}, {data_type} {steps['data_format']}"
    src_shape, weights_shape = list(image.array.shape), list(weights.array.shape)
    block("Convolution", shows, [image, weights], [result(y, to_data)], **forward)
    block("Convolution", f"{shows}, a bias", [image, weights, of_y], [result(y + of_y.f64.reshape(along), to_data)], **forward)
    block("ConvolutionBackwardData", shows, [windows, weights], [result(dx, to_data)], dst_shape=src_shape, **forward)
    block("ConvolutionBackwardWeights", shows, [image, windows], [result(dw, to_weights)], weights_shape=weights_shape, **forward)
    block("ConvTransposeBackwardData", shows, [image, weights], [result(y, to_data)], **backward)
    block("ConvTransposeBackwardWeights", shows, [windows, image], [result(dw, to_weights)], weights_shape=weights_shape, **backward)
    over = [n - c for n, c in zip(spatial, covered)]
    block("ConvTranspose", shows, [windows, weights], [result(dx, to_data)], output_padding=over, **backward)
    block("ConvTranspose", f"{shows}, a bias", [windows, weights, of_x], [result(dx + of_x.f64.reshape(along), to_data)], output_padding=over, **backward)
    if data_type == "f32":
        block("ConvolutionBackwardData", f"{shows}, its shape an input", [windows, weights, integers("s32", src_shape)], [result(dx, to_data)], **forward)
        block("ConvolutionBackwardData", f"{shows}, padding of the output", [windows, weights], [result(dx, to_data)], output_padding=over, **forward)
        block("ConvolutionBackwardWeights", f"{shows}, its shape an input", [image, windows, integers("s32", weights_shape)], [result(dw, to_weights)], **forward)
        block("ConvTransposeBackwardWeights", f"{shows}, its shape an input", [windows, image, integers("s32", weights_shape)], [result(dw, to_weights)], **backward)

for word, (n, k, s, d) in itertools.product(["SAME_UPPER", "SAME_LOWER", "VALID"], [(7, 3, 2, 1), (8, 3, 2, 1), (8, 2, 3, 2), (5, 1, 2, 1), (5, 4, 1, 1)]):
    total = 0 if word == "VALID" else max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
    ends = (total - total // 2, total // 2) if word == "SAME_LOWER" else (total // 2, total - total // 2)
    x, w = normal("f32", 1, 2, n), normal("f32", 2, 2, k)
    y = torch.nn.functional.conv1d(torch.nn.functional.pad(torch.tensor(x.f64), ends), torch.tensor(w.f64), None, s, 0, d)
    named = dict(strides=[s], pads_begin=[9], pads_end=[9], dilations=[d], auto_pad=word, data_format="NCX")
    block("Convolution", f"{word} {n} {k} {s} {d}", [x, w], [tensor("f32", y.numpy())], weights_format="OIX", **named)
    total = 0 if word == "VALID" else max(d * (k - 1) + 1 - s, 0)
    ends = (total - total // 2, total // 2) if word == "SAME_LOWER" else (total // 2, total - total // 2)
    y = torch.nn.functional.conv_transpose1d(torch.tensor(x.f64), torch.tensor(w.f64), None, s, 0, 0, 1, d).numpy()
    y = y[:, :, ends[0]:y.shape[2] - ends[1]]
    block("ConvTranspose", f"{word} {n} {k} {s} {d}", [x, w], [tensor("f32", y)], weights_format="IOX", **named)

# Batch normalisation.

BATCH_NORMS = [
    ((2, 3, 4), "NCX", True), ((2, 4, 3), "NXC", True), ((3, 2, 2, 5), "NXC", False), ((2, 3, 2, 2, 3), "NCX", True),
    ((5, 2), "NXC", True), ((2, 7, 1), "NCX", False),
]


def channels_last(y, data_format):
    return np.moveaxis(y, 1, -1) if data_format == "NCX" else y


def channels_back(y, data_format):
    return np.moveaxis(y, -1, 1) if data_format == "NCX" else y


for (data_type, of_statistics), (shape, data_format, affine) in itertools.product([("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("f16", "f32")], BATCH_NORMS):
    shows = f"{data_type} and {of_statistics} {shape} {data_format}"
    x, d = normal(data_type, *shape), normal(data_type, *shape)
    channels = channels_last(x.array, data_format).shape[-1]
    gamma, beta, mean = (normal(of_statistics, channels) for _ in range(3))
    variance = tensor(of_statistics, np.abs(random.normal(size=channels)))
    epsilon = f32(0.01)
    options = dict(epsilon=epsilon, data_format=data_format)

    single = [y.array.astype(np.float32) for y in (gamma, beta, mean, variance)]
    factor = single[0] / np.sqrt(single[3] + np.float32(epsilon))
    result = (channels_last(x.array.astype(np.float32), data_format) - single[2]) * factor + single[1]
    result = channels_back(result, data_format)
    block("BatchNormInference", shows, [x, gamma, beta, mean, variance], [tensor(data_type, result)], **options)

    y = torch.tensor(channels_last(x.f64, data_format).reshape(-1, channels).copy(), requires_grad=True)
    factors = [torch.tensor(z.f64, requires_grad=True) for z in (gamma, beta)]
    normalised = torch.nn.functional.batch_norm(y, None, None, *(factors if affine else ()), training=True, eps=epsilon)
    normalised.backward(torch.tensor(channels_last(d.f64, data_format).reshape(-1, channels).copy()))

    def back(z):
        return channels_back(z.detach().numpy().reshape(channels_last(x.f64, data_format).shape), data_format)

    of_batch = [y.mean(0).detach().numpy(), y.var(0, correction=0).detach().numpy()]
    batch = [tensor(of_statistics, z) for z in of_batch]
    for momentum in [0.5, f32(0.1)]:
        left = float(np.float32(1) - np.float32(momentum))
        running = [tensor(of_statistics, momentum * old.f64 + left * new.f64) for old, new in zip((mean, variance), batch)]
        given = {} if momentum == 0.5 else {"momentum": momentum}
        inputs = [x, mean, variance] + ([gamma, beta] if affine else [])
        block("BatchNormForwardTraining", f"{shows}, momentum {momentum:.1f}", inputs, [tensor(data_type, back(normalised)), *running, *batch], **given, **options)
    if of_statistics == "f32":
        # Statistics in f32 are not those by which torch divides.
        exact = channels_last(x.f64, data_format)
        of_batch = [z.f64 for z in batch]
        deviation = np.sqrt(of_batch[1] + epsilon)
        normal_x, gradient = (exact - of_batch[0]) / deviation, channels_last(d.f64, data_format)
        over = tuple(range(exact.ndim - 1))
        sums = [(gradient * normal_x).sum(over), gradient.sum(over)]
        count = gradient.size / channels
        of_source = (gradient - sums[1] / count - normal_x * sums[0] / count) / deviation * (gamma.f64 if affine else 1)
        assert np.allclose(of_source, channels_last(back(y.grad), data_format), atol=1e-5)
        assert not affine or np.allclose(sums, [z.grad.numpy() for z in factors], atol=1e-5)
        outputs = [tensor(data_type, channels_back(of_source, data_format)), *(tensor(of_statistics, z) for z in sums)]
        block("BatchNormTrainingBackward", shows, [x, d, *batch, *([gamma] if affine else [])], outputs, **options)

# Interpolation.

INTERPOLATIONS = [
    ("nearest", "half_pixel", (2, 3, 5), (7,)), ("nearest", "half_pixel", (1, 2, 6, 4), (3, 9)), ("nearest", "half_pixel", (2, 1, 2, 3, 4), (4, 2, 4)),
    ("linear", "half_pixel", (2, 3, 5), (8,)), ("bilinear", "half_pixel", (2, 3, 7, 4), (5, 9)), ("trilinear", "half_pixel", (1, 2, 3, 2, 4), (2, 5, 7)),
    ("linear", "align_corners", (2, 3, 5), (9,)), ("bilinear", "align_corners", (2, 3, 7, 4), (5, 9)), ("trilinear", "align_corners", (1, 2, 3, 2, 4), (1, 3, 8)),
    ("linear", "half_pixel", (1, 2, 1, 6), (3, 1)),
]
TORCH_MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}
for data_type, (mode, places, shape, sizes), data_format in itertools.product(FLOATS, INTERPOLATIONS, ("NCX", "NXC")):
    shows = f"{data_type} {mode} {places} {shape} to {sizes} {data_format}"
    # Of one sign, so that no sum loses digits, and of few digits, so that none is a tie.
    x, d = (tensor(data_type, np.abs(normal("bf16", *dims).f64)) for dims in (shape, (*shape[:2], *sizes)))
    y = torch.tensor(x.f64, requires_grad=True)
    of_torch = "nearest-exact" if mode == "nearest" else TORCH_MODES[len(shape)]
    corners = None if mode == "nearest" else places == "align_corners"
    result = torch.nn.functional.interpolate(y, sizes, mode=of_torch, align_corners=corners)
    result.backward(torch.tensor(d.f64))
    placed = (lambda z: np.moveaxis(z, 1, -1)) if data_format == "NXC" else (lambda z: z)
    options = dict(mode=mode, coordinate_transformation_mode=places, data_format=data_format, sizes=list(sizes))
    x.array, d.array = placed(x.array), placed(d.array)
    block("Interpolate", shows, [x], [tensor(data_type, placed(result.detach().numpy()))], **options)
    block("InterpolateBackward", shows, [x, d], [tensor(data_type, placed(y.grad.numpy()))], **options)

# Pools.

POOLS = [
    # Dims, kernel, strides, pads, dilations, rounding up.
    ((2, 3, 9), (3,), (2,), (1,), (1,), False), ((2, 3, 7, 8), (3, 2), (2, 1), (1, 0), (1, 2), False),
    ((1, 2, 8, 7), (2, 2), (2, 2), (0, 0), (1, 1), True), ((1, 2, 4, 5, 6), (2, 3, 2), (1, 2, 2), (1, 1, 0), (1, 1, 1), True),
    ((3, 2, 4, 3), (4, 3), (1, 1), (0, 0), (1, 1), False), ((2, 2, 6, 6), (3, 3), (1, 1), (1, 1), (1, 1), False),
]
for data_type, (shape, kernel, strides, pads, dilations, ceil), data_format in itertools.product(FLOATS, POOLS, ("NCX", "NXC")):
    placed = (lambda z: np.moveaxis(z, 1, -1)) if data_format == "NXC" else (lambda z: z)
    rank = len(kernel)
    pooled = {1: (torch.nn.functional.max_pool1d, torch.nn.functional.avg_pool1d), 2: (torch.nn.functional.max_pool2d, torch.nn.functional.avg_pool2d), 3: (torch.nn.functional.max_pool3d, torch.nn.functional.avg_pool3d)}[rank]
    x = normal(data_type, *shape)
    # Neighbours that are equal, and zeros of both signs.
    flat = x.array.ravel()
    flat[::5] = np.roll(flat, -1)[::5]
    flat[:2] = [0.0, -0.0]
    options = dict(kernel=list(kernel), strides=list(strides), pads_begin=list(pads), pads_end=list(pads), data_format=data_format)
    for kind in ["MaxPool", "AvgPool", "AvgPool without padding"]:
        is_max = kind == "MaxPool"
        if not is_max and max(dilations) > 1:
            continue
        y = torch.tensor(x.f64, requires_grad=True)
        further = {"dilation": dilations} if is_max else {"count_include_pad": kind == "AvgPool" and not ceil}
        result = pooled[not is_max](y, kernel, strides, pads, ceil_mode=ceil, **further)
        d = normal(data_type, *result.shape)
        result.backward(torch.tensor(d.f64))
        given = {"dilations": list(dilations)} if is_max else {"exclude_pad": kind != "AvgPool"}
        rounding = {"rounding_type": "ceil"} if ceil else {}
        shows = f"{data_type} {shape} {kernel} {strides} {pads} {data_format}"
        source = Tensor(data_type, placed(x.array))
        block(kind.split()[0], shows, [source], [tensor(data_type, placed(result.detach().numpy()))], **options, **given, **rounding)
        if not ceil:
            gradient, of_source = Tensor(data_type, placed(d.array)), tensor(data_type, placed(y.grad.numpy()))
            inputs = [source, gradient] if is_max else [gradient]
            size = {} if is_max else {"src_shape": list(source.array.shape)}
            block(kind.split()[0] + "Backward", shows, inputs, [of_source], **options, **given, **size)

pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines))
