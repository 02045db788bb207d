"""Graphs of masked attention in the forms that frameworks hand to oneDNN Graph, in JSON, for `onednn_graphs.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tensor = dict[str, Any]
Dims = list[int]


def dense(dims: Dims) -> Dims:
    strides = [1] * len(dims)
    for axis in reversed(range(len(dims) - 1)):
        strides[axis] = strides[axis + 1] * dims[axis + 1]
    return strides


class Builder:
    """Ops one after the other, with new ids."""

    def __init__(self) -> None:
        self.ops: list[dict[str, Any]] = []
        self.next = 0

    def tensor(self, type: str, dims: Dims, strides: Dims | None = None, property: str = "undef") -> Tensor:
        self.next += 1
        about = {"layout_type": "strided", "property_type": property}
        return {"id": self.next, "dtype": type, "shape": dims, "stride": strides or dense(dims)} | about

    def op(self, kind: str, inputs: list[Tensor], type: str, dims: Dims, **attributes: Any) -> Tensor:
        output = self.tensor(type, dims)
        self.add(kind, inputs, [output], **attributes)
        return output

    def add(self, kind: str, inputs: list[Tensor], outputs: list[Tensor], **attributes: Any) -> None:
        types = {str: "string", bool: "bool", int: "s64", float: "f32"}

        def attribute(value: Any) -> dict[str, Any]:
            one = value[0] if isinstance(value, list) else value
            return {"type": types[type(one)] + "[]" * isinstance(value, list), "value": value}

        attrs = {name: attribute(value) for name, value in attributes.items()}
        self.ops.append({"id": len(self.ops), "kind": kind, "attrs": attrs, "inputs": inputs, "outputs": outputs})

    def scalar(self, type: str) -> Tensor:
        return self.tensor(type, [1])

    def binary(self, kind: str, a: Tensor, b: Tensor, type: str | None = None) -> Tensor:
        dims = max(a["shape"], b["shape"], key=len)
        return self.op(kind, [a, b], type or a["dtype"], dims, auto_broadcast="numpy")

    def select(self, condition: Tensor, scores: Tensor, fill: Tensor, is_inverted: bool = False) -> Tensor:
        branches = [fill, scores] if is_inverted else [scores, fill]
        return self.op("Select", [condition, *branches], scores["dtype"], scores["shape"], auto_broadcast="numpy")

    def causal(self, scores: Tensor, sizes: bool = False) -> Tensor:
        """Columns up to the row; with sizes, aligned at the bottom right."""
        rows = self.op("GenIndex", [scores], "s32", scores["shape"], axis=-2)
        columns = self.op("GenIndex", [scores], "s32", scores["shape"], axis=-1)
        if sizes:
            size = lambda: self.tensor("s32", [], [], "host_scalar")
            rows = self.binary("Subtract", self.binary("Add", rows, size()), size())
        condition = self.op("GreaterEqual", [rows, columns], "boolean", scores["shape"], auto_broadcast="numpy")
        return self.select(condition, scores, self.scalar(scores["dtype"]))

    def softmax(self, scores: Tensor, type: str, mode: str = "inf_as_zero", stats: bool = False) -> Tensor:
        outputs = [self.tensor(type, scores["shape"])]
        if stats:
            outputs.append(self.tensor("f32", [*scores["shape"][:-1], 1]))
        options = {} if mode == "none" else {"mode": mode}
        self.add("SoftMax", [scores], outputs, axis=-1, **options)
        return outputs[0]

    def dequantized(self, from_: Tensor, scale: float, zero: int) -> Tensor:
        options = {"qtype": "per_tensor", "axis": 1, "scales": [scale], "zps": [zero]}
        number = self.op("Dequantize", [from_], "f32", from_["shape"], **options)
        return self.op("TypeCast", [number], "bf16", from_["shape"])

    def quantized(self, from_: Tensor, scale: float, zero: int) -> Tensor:
        number = self.op("TypeCast", [from_], "f32", from_["shape"])
        options = {"qtype": "per_tensor", "axis": 1, "scales": [scale], "zps": [zero]}
        return self.op("Quantize", [number], "u8", from_["shape"], **options)

    def to_tokens(self, heads: Tensor) -> Tensor:
        """The result token by token, dense."""
        batch, count, rows, depth = heads["shape"]
        dims = [batch, rows, count, depth]
        strides = dense(heads["shape"])
        turned = self.tensor(heads["dtype"], dims, [strides[axis] for axis in (0, 2, 1, 3)])
        self.add("StaticTranspose", [heads], [turned], order=[0, 2, 1, 3])
        return self.op("Reorder", [turned], heads["dtype"], dims)

    def graph(self) -> dict[str, Any]:
        return {"fpmath_mode": "strict", "graph": self.ops}


def product(b: Builder, left: Tensor, right: Tensor, type: str, transposed: bool = False) -> Tensor:
    dims = [*left["shape"][:-1], right["shape"][-2 if transposed else -1]]
    return b.op("MatMul", [left, right], type, dims, transpose_a=False, transpose_b=transposed)


def encoder(tokens: int, keys: int, heads: int, depth: int, is_gpt: bool, is_u8: bool) -> dict[str, Any]:
    """Views of token-major memory, K transposed; the masked scores of GPT are scaled and biased behind the Select."""
    b = Builder()
    t, given = ("bf16", "u8") if is_u8 else ("f32", "f32")
    width = heads * depth
    tokens_of = lambda rows: b.tensor(given, [1, heads, rows, depth], [rows * width, depth, width, 1])
    q, v = tokens_of(tokens), tokens_of(keys)
    k = b.tensor(given, [1, heads, depth, keys], [keys * width, depth, 1, width])
    if is_u8:
        q, k, v = (b.dequantized(of, 0.01, 128) for of in (q, k, v))
    scores = product(b, q, k, t)
    if is_gpt:
        scores = b.select(b.tensor("boolean", [1, 1, tokens, keys]), scores, b.scalar(t))
        scores = b.binary("Divide", scores, b.scalar(t))
        scores = b.binary("Add", scores, b.tensor(t, [1, 1, 1, keys]))
    else:
        scores = b.binary("Divide", scores, b.scalar(t))
        scores = b.select(b.tensor("boolean", [1, 1, 1, keys]), scores, b.scalar(t), is_inverted=True)
    weights = b.softmax(scores, t)
    if is_u8:
        weights = b.dequantized(b.quantized(weights, 1 / 255, 0), 1 / 255, 0)
    result = b.to_tokens(product(b, weights, v, t))
    if is_u8:
        b.quantized(result, 0.01, 128)
    return b.graph()


def grouped(t: str, batch: Dims, group: Dims, queries: int, keys: int, depth: int, **options: Any) -> dict[str, Any]:
    """Heads as they are; K and V once a group."""
    b = Builder()
    packed = options.get("packed")
    strides = lambda rows: None if packed is None else [rows * packed, depth, packed, 1]
    q = b.tensor(t, [*batch, *group, queries, depth], strides(queries))
    shared = [1] * len(group)
    k, v = (b.tensor(t, [*batch, *shared, keys, depth], strides(keys)) for _ in range(2))
    scores = product(b, q, k, "f32", transposed=True)
    kind = options.get("scale", "Multiply")
    scores = b.binary(kind, scores, b.scalar(t), "f32")
    if options.get("softcap"):
        scores = b.op("Tanh", [scores], "f32", scores["shape"])
        scores = b.binary("Multiply", scores, b.scalar(t), "f32")
    if mask := options.get("mask"):
        scores = b.select(b.tensor("boolean", mask), scores, b.scalar("f32"))
    else:
        scores = b.causal(scores, sizes=options.get("sizes", False))
    weights = b.softmax(scores, t, options.get("mode", "inf_as_zero"), options.get("stats", False))
    product(b, weights, v, t)
    return b.graph()


# Number in the order of oneDNN's samples with a Select, and what it is.
GRAPHS: dict[str, Callable[[], dict[str, Any]]] = {
    "1 GPT f32": lambda: encoder(32, 33, 16, 256, True, False),
    "2 GPT u8": lambda: encoder(32, 33, 16, 256, True, True),
    "3 encoder f32": lambda: encoder(128, 128, 12, 64, False, False),
    "4 encoder u8": lambda: encoder(128, 128, 12, 64, False, True),
    "5 mask a head bf16": lambda: grouped(
        "bf16", [1, 16], [], 256, 256, 256, mask=[1, 16, 256, 256], mode="none"
    ),
    "6 one query softcap bf16": lambda: grouped(
        "bf16", [1, 4], [2], 1, 256, 256, softcap=True, mask=[1, 1, 1, 1, 256], mode="none"
    ),
    "7 groups bottom-right f16": lambda: grouped("f16", [1, 2], [8], 384, 384, 64, sizes=True),
    "8 groups causal f32": lambda: grouped("f32", [1, 2], [8], 384, 384, 64, scale="Divide"),
    "10 training groups bf16": lambda: grouped("bf16", [1, 8], [2], 1000, 1000, 128, stats=True),
    "12 bottom-right f16": lambda: grouped("f16", [1, 16], [], 384, 384, 64, sizes=True),
    "13 causal f32": lambda: grouped("f32", [1, 16], [], 384, 384, 64, scale="Divide"),
    "15 training bf16": lambda: grouped("bf16", [1, 12], [], 64, 64, 64, packed=2304, stats=True),
}
