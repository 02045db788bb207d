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
            # The widest number takes the condition, which must not enlarge it.
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
    masks(writer)
    random_models(writer, 300)
    writer.finish()


if __name__ == "__main__":
    main()
