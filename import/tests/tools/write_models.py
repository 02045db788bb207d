#!/usr/bin/env python3
"""Writes models with the package openvino, and what its CPU plugin and its reference evaluator make of them.

write_models.py FOLDER writes FOLDER/N.xml and N.bin for each model, FOLDER/data.bin with all tensors one behind the other,
and FOLDER/cases.json, which says what is where. The numbers are the same each time.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as op
from openvino.utils.node_factory import NodeFactory

BITS = {
    "f32": np.uint32, "f16": np.uint16, "bf16": np.uint16, "f64": np.uint64, "i8": np.uint8, "i16": np.uint16,
    "i32": np.uint32, "i64": np.uint64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "boolean": np.uint8, "f8e4m3": np.uint8, "f8e5m2": np.uint8,
}
NUMPY = {
    "f32": np.float32, "f16": np.float16, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "boolean": np.bool_,
}


class Writer:
    """The cases written so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases: list[dict] = []
        self.data = bytearray()
        self.core = ov.Core()

    def put(self, tensor: ov.Tensor) -> dict:
        """Appends the elements of a tensor, and says where they are."""
        kind = tensor.element_type.get_type_name()
        raw = np.array(tensor.data, copy=True).tobytes()
        place = {"type": kind, "dims": list(tensor.shape), "offset": len(self.data), "size": len(raw)}
        self.data += raw
        return place

    def case(self, name: str, build, feeds: dict[str, ov.Tensor]) -> None:
        """Writes one model, of which `build` gives the parameters and results, and what it gives for the feeds."""
        try:
            parameters, results = build()
            model = ov.Model([op.result(result) for result in results], parameters, name)
        except RuntimeError as error:
            self.cases.append({"name": name, "refused": str(error)[:200]})
            return
        path = self.folder / f"{len(self.cases)}.xml"
        ov.save_model(model, path, compress_to_fp16=False)
        case = {
            "name": name,
            "xml": path.name,
            "inputs": [
                {"name": parameter.get_friendly_name(), **self.put(feeds[parameter.get_friendly_name()])}
                for parameter in parameters
            ],
        }
        given = [feeds[parameter.get_friendly_name()] for parameter in parameters]
        for who, run in (("cpu", self.by_plugin), ("reference", self.by_evaluator)):
            try:
                case[who] = [self.put(tensor) for tensor in run(model, given)]
            except RuntimeError as error:
                case[f"{who}_failed"] = str(error)[:200]
        self.cases.append(case)

    def by_plugin(self, model: ov.Model, given: list[ov.Tensor]) -> list[ov.Tensor]:
        compiled = self.core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
        request = compiled.create_infer_request()
        for index, tensor in enumerate(given):
            request.set_input_tensor(index, tensor)
        request.infer()
        return [request.get_output_tensor(index) for index in range(len(model.outputs))]

    def by_evaluator(self, model: ov.Model, given: list[ov.Tensor]) -> list[ov.Tensor]:
        shapes = [output.get_partial_shape() for output in model.outputs]
        outputs = [
            ov.Tensor(output.get_element_type(), shape.to_shape() if shape.is_static else ov.Shape([0]))
            for output, shape in zip(model.outputs, shapes)
        ]
        if not model.evaluate(outputs, given):
            raise RuntimeError("it has no evaluator")
        return outputs

    def finish(self) -> None:
        (self.folder / "data.bin").write_bytes(self.data)
        (self.folder / "cases.json").write_text(json.dumps(self.cases))


def of_bits(kind: str, dims: list[int], bits: np.ndarray) -> ov.Tensor:
    """A tensor of elements with these bits."""
    tensor = ov.Tensor(getattr(ov.Type, kind), ov.Shape(dims))
    # Its elements are of a type of numpy that has as many bytes, if not the same meaning.
    tensor.data[...] = bits.astype(BITS[kind]).view(tensor.data.dtype).reshape(dims)
    return tensor


def of_numbers(kind: str, numbers: np.ndarray) -> ov.Tensor:
    """A tensor of numbers, each of which the type holds."""
    if kind == "bf16":
        bits = (np.array(numbers, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return of_bits(kind, list(numbers.shape), bits)
    return ov.Tensor(np.array(numbers, dtype=NUMPY[kind], order="C"))


def like(numbers, node):
    """A constant of the type of a node."""
    return op.constant(np.array(numbers, np.float32), node.get_element_type())


def parameter(name: str, kind: str, dims: list[int]):
    node = op.parameter(ov.PartialShape(dims), getattr(ov.Type, kind), name=name)
    node.set_friendly_name(name)
    return node


AXIS = "auto_broadcast.auto_broadcast_axis"
# cond, then, else and the attributes of the mode.
MODES = [
    ("none", [2, 3, 4], [2, 3, 4], [2, 3, 4], {"auto_broadcast": "none"}),
    ("numpy", [3, 1], [2, 3, 4], [4], {"auto_broadcast": "numpy"}),
    ("numpy scalar", [], [2, 1, 4], [3, 1], {"auto_broadcast": "numpy"}),
    ("numpy enlarging", [2, 3, 4], [3, 4], [4], {"auto_broadcast": "numpy"}),
    ("pdpd", [2, 3, 4], [2, 3, 4], [2, 3, 4], {"auto_broadcast": "pdpd", AXIS: -1}),
    ("pdpd at 0", [2], [2, 3, 4], [2], {"auto_broadcast": "pdpd", AXIS: 0}),
    ("pdpd at 1", [3], [2, 3, 4], [3, 1], {"auto_broadcast": "pdpd", AXIS: 1}),
    ("pdpd at 1 of two", [3, 4], [2, 3, 4], [3, 4], {"auto_broadcast": "pdpd", AXIS: 1}),
    ("pdpd at the end", [4], [2, 3, 4], [3, 4], {"auto_broadcast": "pdpd", AXIS: -1}),
    ("pdpd of ones", [1], [2, 3, 4], [1, 1], {"auto_broadcast": "pdpd", AXIS: 0}),
]


def select(cond, then, other, attributes: dict):
    """A select with an axis, for which the API of Python has no argument."""
    inputs = [node.output(0) for node in (cond, then, other)]
    return NodeFactory("opset13").create("Select", inputs, attributes)


def selects(writer: Writer) -> None:
    """Every type in every mode, on elements of any bits."""
    rng = np.random.default_rng(1)
    for kind, bits in BITS.items():
        for mode, cond, then, other, attributes in MODES:
            def any_bits(dims: list[int]) -> ov.Tensor:
                high = 2 if kind == "boolean" else np.iinfo(bits).max + 1 if bits != np.uint64 else None
                count = int(np.prod(dims, dtype=np.int64))
                drawn = rng.integers(0, high, count, dtype=bits) if high else rng.integers(0, 2**63, count, dtype=bits) * 2 + 1
                return of_bits(kind, dims, drawn)

            feeds = {
                "cond": ov.Tensor(rng.integers(0, 2, cond).astype(np.bool_)),
                "then": any_bits(then),
                "else": any_bits(other),
            }

            def build():
                parameters = [parameter("cond", "boolean", cond), parameter("then", kind, then), parameter("else", kind, other)]
                return parameters, [select(*parameters, attributes)]

            writer.case(f"select {kind} {mode}", build, feeds)


GRID = np.array([-8.0, -3.5, -3.0, -2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0])
ABOVE_0 = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 9.0, 10.0, 16.0, 33.0, 64.0, 100.0])

UNARY = {
    "abs": op.abs, "ceiling": op.ceiling, "clamp": lambda x: op.clamp(x, -1.5, 2.25), "elu": lambda x: op.elu(x, 0.5),
    "exp": op.exp, "floor": op.floor, "gelu erf": lambda x: op.gelu(x, "erf"), "gelu tanh": lambda x: op.gelu(x, "tanh"),
    "hard_sigmoid": lambda x: op.hard_sigmoid(x, like(0.25, x), like(0.5, x)),
    "hsigmoid": op.hsigmoid, "hswish": op.hswish, "is_finite": op.is_finite, "is_inf": op.is_inf,
    "is_inf of minus": lambda x: op.is_inf(x, {"detect_positive": False}), "is_nan": op.is_nan, "mish": op.mish,
    "negative": op.negative, "power 2": lambda x: op.power(x, like(2.0, x)),
    "prelu": lambda x: op.prelu(x, like([0.5, -2.0, 4.0, 1.0], x)),
    "relu": op.relu, "round": lambda x: op.round(x, "half_to_even"), "sigmoid": op.sigmoid, "softplus": op.softplus,
    "swish": lambda x: op.swish(x, like(1.0, x)), "swish by 2": lambda x: op.swish(x, like(2.0, x)), "tanh": op.tanh,
}
OF_POSITIVE = {"log": op.log, "sqrt": op.sqrt}
BINARY = {
    "add": op.add, "divide": op.divide, "maximum": op.maximum, "minimum": op.minimum, "multiply": op.multiply,
    "squared_difference": op.squared_difference, "subtract": op.subtract, "equal": op.equal, "not_equal": op.not_equal,
    "less": op.less, "less_equal": op.less_equal, "greater": op.greater, "greater_equal": op.greater_equal,
}
ON_INTEGERS = {name: BINARY[name] for name in BINARY if name != "squared_difference"} | {"floor_mod": op.floor_mod}
LOGIC = {"and": op.logical_and, "or": op.logical_or, "xor": op.logical_xor, "equal": op.equal, "not_equal": op.not_equal}


def singles(writer: Writer) -> None:
    """Every op alone, on every type that it takes here."""
    def one(name, kind, make, *numbers):
        def build():
            parameters = [parameter(f"x{i}", kind, list(x.shape)) for i, x in enumerate(numbers)]
            return parameters, [make(*parameters)]

        writer.case(f"{name} on {kind}", build, {f"x{i}": of_numbers(kind, x) for i, x in enumerate(numbers)})

    grid, above = GRID.reshape(4, 4), ABOVE_0.reshape(4, 4)
    for kind in ("f32", "f16", "bf16"):
        for name, make in UNARY.items():
            one(name, kind, make, grid)
        for name, make in OF_POSITIVE.items():
            one(name, kind, make, above)
        for name, make in BINARY.items():
            one(name, kind, make, grid, above[0])
    for kind in ("i32", "i64"):
        for name, make in ON_INTEGERS.items():
            one(name, kind, make, np.round(grid), np.array([[1], [2], [-3], [4]]))
        for name in ("abs", "relu", "negative", "clamp"):
            one(name, kind, UNARY[name], np.round(grid))
    for kind in ("i8", "u8", "i16", "u16", "u32", "u64", "f64"):
        for name in ("equal", "less", "greater_equal"):
            one(name, kind, BINARY[name], np.abs(np.round(grid)), np.array([3.0]))
    for name, make in LOGIC.items():
        one(name, "boolean", make, np.array([[0], [1]]), np.array([0, 1]))
    one("logical_not", "boolean", op.logical_not, np.array([0, 1]))
    for kind in ("f32", "f16", "i32", "i64", "u8", "i8", "boolean", "f64"):
        for to in ("f32", "f16", "bf16", "i32", "i64", "u8", "i8", "boolean", "f64"):
            if kind != to:
                numbers = np.array([0, 1, 1]) if kind == "boolean" else np.array([0.0, 1.0, 2.0, 3.0, 100.0])
                one(f"convert to {to}", kind, lambda x, to=to: op.convert(x, to), numbers)
    big = np.array([2**40 + 5, -(2**40) - 7, 2**31, 3], dtype=np.int64)
    for name in ("add", "multiply", "maximum"):
        one(f"{name} of large numbers", "i64", BINARY[name], big, np.array([1], dtype=np.int64))
    fine = np.array([1.0 + 2.0**-40, 1.0, -(2.0**-30)])
    one("less of fine numbers", "f64", op.less, fine, np.array([1.0]))
    one("equal of fine numbers", "f64", op.equal, fine, np.array([1.0]))
    under = {"auto_broadcast": "pdpd", AXIS: -1}
    add = lambda a, b: NodeFactory("opset13").create("Add", [a.output(0), b.output(0)], under)
    one("add under pdpd", "f32", add, grid, GRID[:4])


def rows(writer: Writer) -> None:
    """Layers that move elements or combine many of them, on every type of floating point."""
    rng = np.random.default_rng(3)
    ints = lambda *numbers: op.constant(np.array(numbers, np.int64))
    moves = {
        "transpose": lambda x: op.transpose(x, ints(2, 0, 1)),
        "transpose backwards": lambda x: op.transpose(x, op.constant(np.zeros(0, np.int64))),
        "concat": lambda x: op.concat([x, op.abs(x), x], -2),
        "squeeze": lambda x: op.squeeze(op.unsqueeze(x, ints(1, 3)), ints(1)),
        "reshape": lambda x: op.reshape(x, ints(0, -1), True),
        "broadcast": lambda x: op.broadcast(x, ints(2, 2, 3, 4)),
        "slice": lambda x: op.slice(x, ints(3, 0), ints(-5, 3), ints(-2, 2), ints(2, 1)),
        "strided_slice": lambda x: op.strided_slice(x, ints(0, 2, 1), ints(0, 0, 9), ints(1, -1, 2), [1, 0, 0], [1, 1, 0]),
        "strided_slice of entries": lambda x: op.strided_slice(
            x, ints(0, 0, -2), ints(0, 0, 0), ints(1, 1, 1), [0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]),
        "gather": lambda x: op.gather(x, op.constant(np.array([[2, 0], [-1, 1]])), ints(1)),
        "gather_elements": lambda x: op.gather_elements(x, op.constant(np.array([[[3, 0, 1, -1]]] * 2).repeat(3, 1)), 2),
        "tile": lambda x: op.tile(x, ints(2, 1, 3)),
        "reverse": lambda x: NodeFactory("opset1").create("Reverse", [x.output(0), ints(0, 2).output(0)], {"mode": "index"}),
        "pad": lambda x: op.pad(x, ints(1, 0, 2), ints(0, 1, 1), "constant", like(1.5, x)),
        "pad edge": lambda x: op.pad(x, ints(1, 0, 2), ints(0, 1, 1), "edge"),
        "pad reflect": lambda x: op.pad(x, ints(1, 0, 2), ints(0, 1, 1), "reflect"),
        "pad symmetric": lambda x: op.pad(x, ints(1, 0, 2), ints(0, 1, 1), "symmetric"),
    }
    reductions = {
        name: getattr(op, name)
        for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_l1", "reduce_l2")
    }
    combine = {
        "matmul": lambda x: op.matmul(x, op.transpose(x, ints(0, 2, 1)), False, False),
        "matmul transposed": lambda x: op.matmul(x, x, True, False),
        "matmul of a vector": lambda x: op.matmul(x, like([0.5, -1.0, 2.0, 0.25], x), False, False),
        "softmax": lambda x: op.softmax(x, -1),
        "softmax of version 1": lambda x: NodeFactory("opset1").create("Softmax", [x.output(0)], {"axis": 1}),
        "log_softmax": lambda x: op.log_softmax(x, 1),
        "mvn": lambda x: op.mvn(x, ints(1, 2), True, 1e-5, "INSIDE_SQRT"),
        "mvn outside": lambda x: op.mvn(x, ints(0, 1), True, 1e-5, "OUTSIDE_SQRT"),
        "mvn of the middle": lambda x: op.mvn(x, ints(1), True, 1e-2, "INSIDE_SQRT"),
        "mvn without variance": lambda x: op.mvn(x, ints(2), False, 1e-5, "INSIDE_SQRT"),
        "batch_norm": lambda x: op.batch_norm_inference(
            x, *(like(f, x) for f in ([1, 2, 0.5], [0, 1, -1], [0.5, 0, 1], [1, 2, 4])), 1e-5),
        "group_norm": lambda x: op.group_normalization(
            op.reshape(x, ints(2, 6, 2), False), *(like(f, x) for f in ([1, 2, 1, 2, 0.5, 1], [0, 1, 0, -1, 0, 2])), 3, 1e-5),
        "erf": op.erf, "tan": op.tan, "sinh": op.sinh, "cosh": op.cosh, "sign": op.sign, "soft_sign": op.softsign,
        "selu": lambda x: op.selu(x, like(1.5, x), like(1.25, x)),
        "fake_quantize": lambda x: op.fake_quantize(x, *(like(n, x) for n in (-1.5, 2.0, -3.0, 4.0)), 8),
        "fake_quantize of channels": lambda x: op.fake_quantize(
            x, like([[-1.0], [-2.0], [0.0]], x), like([[1.0], [2.0], [3.0]], x), like(0.0, x), like(1.0, x), 5),
        "fake_quantize of 8 bits": lambda x: op.fake_quantize(x, *(like(n, x) for n in (-2.0, 127 / 64, -2.0, 127 / 64)), 256),
        "top_k": lambda x: op.topk(x, op.constant(np.int64(1)), 1, "min", "value"),
        "attention": lambda x: op.scaled_dot_product_attention(x, x, x),
        "attention causal": lambda x: op.scaled_dot_product_attention(x, x, x, causal=True),
        "attention by truth": lambda x: op.scaled_dot_product_attention(
            x, x, x, op.constant(np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], bool))),
        "attention by numbers": lambda x: op.scaled_dot_product_attention(
            x, x, x, like([[0.0, -1.0, 2.0]] * 3, x), like(0.25, x)),
    }

    def one(name, kind, make, dims):
        numbers = rng.integers(-12, 13, dims) / 8
        def build():
            x = parameter("x", kind, dims)
            made = make(x)
            return [x], made if isinstance(made, list) else [made.output(0)]
        writer.case(f"{name} on {kind}", build, {"x": of_numbers(kind, numbers)})

    for kind in ("f32", "f16", "bf16"):
        for name, make in (moves | combine).items():
            one(f"rows: {name}", kind, make, [2, 3, 4])
        for name, make in reductions.items():
            one(f"rows: {name}", kind, lambda x, make=make: make(x, ints(-1, 0), False), [2, 3, 4])
            one(f"rows: {name} kept", kind, lambda x, make=make: make(x, ints(1), True), [2, 3, 4])
        one("rows: split", kind, lambda x: op.split(x, op.constant(np.int64(2)), 2).outputs(), [2, 3, 4])
        one("rows: variadic_split", kind, lambda x: op.variadic_split(x, op.constant(np.int64(1)), ints(1, -1)).outputs(), [2, 3, 4])
        for mode in ("blocks_first", "depth_first"):
            one(f"rows: depth_to_space {mode}", kind, lambda x: op.depth_to_space(x, mode, 2), [1, 8, 2, 3])
            one(f"rows: space_to_depth {mode}", kind, lambda x: op.space_to_depth(x, mode, 2), [1, 2, 4, 6])
    for kind in ("i32", "i64", "boolean", "u8"):
        for name, make in moves.items():
            if "pad" not in name:
                numbers = rng.integers(0, 2, [2, 3, 4])
                if name != "concat":
                    def build(make=make):
                        x = parameter("x", kind, [2, 3, 4])
                        return [x], [make(x)]
                    writer.case(f"rows: {name} on {kind}", build, {"x": of_numbers(kind, numbers)})

    def reduced_logic():
        x = parameter("x", "boolean", [2, 3])
        return [x], [op.reduce_logical_and(x, ints(1), True), op.reduce_logical_or(x, ints(0), False)]

    writer.case("rows: reduce_logical on boolean", reduced_logic, {"x": ov.Tensor(np.array([[1, 1, 1], [0, 1, 0]], bool))})

    def computed():
        x, i = parameter("x", "f32", [3, 4]), parameter("i", "i64", [2, 2])
        hot = op.one_hot(i, op.constant(np.int64(3)), op.constant(np.float32(2)), op.constant(np.float32(-1)), 1)
        return [x, i], [op.gather(x, i, ints(0)), hot]

    feeds = {"x": of_numbers("f32", rng.integers(-9, 9, [3, 4])), "i": ov.Tensor(np.array([[2, 0], [1, 2]], np.int64))}
    writer.case("rows: computed places on f32", computed, feeds)


def masks(writer: Writer) -> None:
    """The masks of transformers, as exporters write them."""
    rng = np.random.default_rng(2)
    scores = rng.integers(-16, 17, (2, 2, 4, 4)).astype(np.float32) / 4
    lengths = np.array([3, 4], np.int64)

    def causal():
        x = parameter("scores", "f32", [2, 2, 4, 4])
        positions = op.range(op.constant(0), op.constant(4), op.constant(1), "i64")
        rows = op.unsqueeze(positions, op.constant(np.array([1])))
        mask = op.less_equal(op.unsqueeze(positions, op.constant(np.array([0]))), rows)
        return [x], [op.select(mask, x, op.constant(np.float32(-np.inf)))]

    def padding():
        x, n = parameter("scores", "f32", [2, 2, 4, 4]), parameter("lengths", "i64", [2])
        positions = op.range(op.constant(0), op.constant(4), op.constant(1), "i64")
        # A reshape by constants on both sides would be folded; the lengths are no constant.
        mask = op.less(positions, op.constant(np.array([[[[3]]], [[[4]]]])))
        return [x, n], [op.select(mask, x, op.constant(np.float32(-65504.0))), op.add(n, op.constant(np.array([1, 1])))]

    def additive():
        x, m = parameter("scores", "f32", [2, 2, 4, 4]), parameter("mask", "i64", [2, 1, 1, 4])
        keep = op.convert(m, "f32")
        drop = op.subtract(op.constant(np.float32(1)), keep)
        return [x, m], [op.add(x, op.multiply(drop, op.constant(np.float32(-10000.0))))]

    def boolean():
        x, m = parameter("scores", "f32", [2, 2, 4, 4]), parameter("mask", "i64", [2, 1, 1, 4])
        return [x, m], [op.select(op.convert(m, "boolean"), x, op.convert_like(op.constant(np.int64(-9)), x))]

    def broadcast():
        x, m = parameter("scores", "f32", [2, 2, 4, 4]), parameter("mask", "boolean", [2, 1, 1, 4])
        wide = op.broadcast(m, op.shape_of(x))
        return [x, m], [op.select(wide, x, op.constant(np.zeros((2, 2, 4, 4), np.float32)), "none")]

    def nan_to_num():
        x = parameter("scores", "f32", [2, 2, 4, 4])
        y = op.select(op.is_nan(x), op.constant(np.float32(0)), x)
        y = op.select(op.is_inf(x, {"detect_negative": False}), op.constant(np.float32(9)), y)
        return [x], [op.select(op.is_inf(x, {"detect_positive": False}), op.constant(np.float32(-9)), y)]

    odd = scores.copy()
    odd[0, 0] = [[np.nan, np.inf, -np.inf, 0.0]] * 4
    kept = rng.integers(0, 2, (2, 1, 1, 4))
    feeds = {"scores": ov.Tensor(scores), "lengths": ov.Tensor(lengths), "mask": ov.Tensor(kept.astype(np.int64))}
    for build in (causal, padding, additive, boolean):
        writer.case(f"mask {build.__name__}", build, feeds)
    writer.case("mask broadcast", broadcast, {**feeds, "mask": ov.Tensor(kept.astype(np.bool_))})
    writer.case("mask nan_to_num", nan_to_num, {"scores": ov.Tensor(odd)})


def random_models(writer: Writer, count: int) -> None:
    """Small models of exact ops, with a select in each; some with inexact ones at the end."""
    for seed in range(count):
        draw = random.Random(seed)
        rng = np.random.default_rng(1000 + seed)
        kind = draw.choice(["f32", "f32", "i32", "i64", "f16"])
        full = [draw.randint(1, 4) for _ in range(draw.randint(1, 4))]

        def shape():
            dims = [1 if draw.random() < 0.3 else dim for dim in full]
            return dims[draw.randint(0, len(dims)):] if draw.random() < 0.3 else dims

        shapes = [full, *[shape() for _ in range(draw.randint(1, 3))]]
        masks_of = [shape() for _ in range(draw.randint(1, 2))]
        steps = [draw.random() for _ in range(draw.randint(2, 8))]

        def build():
            choose = random.Random(seed + 77)
            parameters = [parameter(f"x{i}", kind, dims) for i, dims in enumerate(shapes)]
            truths = [parameter(f"m{i}", "boolean", dims) for i, dims in enumerate(masks_of)]
            all_parameters = [*parameters, *truths]
            numbers, masks = list(parameters), list(truths)
            floats = kind in ("f32", "f16")
            for at in steps:
                pick = lambda: choose.choice(numbers)
                if at < 0.35:
                    numbers.append(choose.choice([op.add, op.subtract, op.maximum, op.minimum])(pick(), pick()))
                elif at < 0.5:
                    masks.append(choose.choice([op.less, op.equal, op.greater_equal, op.not_equal])(pick(), pick()))
                elif at < 0.6:
                    masks.append(choose.choice([op.logical_and, op.logical_or, op.logical_xor])(choose.choice(masks), choose.choice(masks)))
                elif at < 0.7:
                    masks.append(op.logical_not(choose.choice(masks)))
                elif at < 0.8:
                    numbers.append(op.clamp(pick(), -3.0, 5.0))
                elif at < 0.9 and floats:
                    numbers.append(choose.choice([op.relu, op.abs, op.floor, op.negative])(pick()))
                else:
                    numbers.append(op.maximum(pick(), op.constant(np.array(choose.randint(-3, 3), NUMPY[kind]))))
            # The condition does not enlarge the widest number.
            base = numbers[0]
            chosen = op.select(choose.choice(masks), op.add(base, numbers[-1]), choose.choice(numbers))
            results = [chosen]
            if floats and choose.random() < 0.5:
                results.append(choose.choice([op.sigmoid, op.tanh, op.exp, UNARY["gelu erf"]])(chosen))
            return all_parameters, results

        feeds = {f"x{i}": of_numbers(kind, rng.integers(-8, 9, dims) / (4 if kind[0] == "f" else 1)) for i, dims in enumerate(shapes)}
        feeds |= {f"m{i}": ov.Tensor(rng.integers(0, 2, dims).astype(np.bool_)) for i, dims in enumerate(masks_of)}
        writer.case(f"random {seed} {kind}", build, feeds)


def main() -> None:
    writer = Writer(Path(sys.argv[1]))
    selects(writer)
    singles(writer)
    rows(writer)
    masks(writer)
    random_models(writer, 300)
    writer.finish()


if __name__ == "__main__":
    main()
