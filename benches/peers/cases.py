"""The rows of the comparison: graphs with shapes and types, and inputs that are the same on every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from graphs import GRAPHS, SELECT, Graph

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]
Fill = Callable[[np.random.Generator, np.dtype[Any], Dims], Array]

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "u8": np.dtype(np.uint8),
    "s64": np.dtype(np.int64),
    "boolean": np.dtype(np.bool_),
}


def data(rng: np.random.Generator, dtype: np.dtype[Any], dims: Dims) -> Array:
    """Integers of all sizes, so that cut ones show; floats that are neither NaN nor denormal."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, dims, dtype=dtype, endpoint=True)
    return (rng.random(dims, dtype=np.float32) + np.float32(0.5)).astype(dtype)


def random(rng: np.random.Generator, _: np.dtype[Any], dims: Dims) -> Array:
    return rng.integers(0, 2, dims, dtype=np.uint8).view(bool)


def true(_: np.random.Generator, __: np.dtype[Any], dims: Dims) -> Array:
    return np.ones(dims, bool)


def causal(_: np.random.Generator, __: np.dtype[Any], dims: Dims) -> Array:
    return np.broadcast_to(np.tri(*dims[-2:], dtype=bool), dims)


def padding(rng: np.random.Generator, _: np.dtype[Any], dims: Dims) -> Array:
    """Along the dim that varies, a run of those to keep."""
    rows = dims if dims[-1] > 1 else dims[:-1]
    lengths = rng.integers(1, rows[-1] + 1, (*rows[:-1], 1))
    return (np.arange(rows[-1]) < lengths).reshape(dims)


def normal(rng: np.random.Generator, dtype: np.dtype[Any], dims: Dims) -> Array:
    return rng.standard_normal(dims, dtype=np.float32).astype(dtype)


def holes(rng: np.random.Generator, dtype: np.dtype[Any], dims: Dims) -> Array:
    """One number in sixteen is a NaN or an infinity."""
    numbers = normal(rng, dtype, dims)
    odd = np.array([np.nan, np.inf, -np.inf, np.nan], dtype)
    dice = rng.integers(0, 64, dims, dtype=np.uint8)
    return np.where(dice < len(odd), odd[dice % len(odd)], numbers)


def empty_rows(rng: np.random.Generator, dtype: np.dtype[Any], dims: Dims) -> Array:
    """One row in sixteen is all NaN, as a softmax over nothing leaves it."""
    numbers = normal(rng, dtype, dims)
    numbers[rng.integers(0, 16, dims[:-1]) == 0] = np.nan
    return numbers


def regions(rng: np.random.Generator, dtype: np.dtype[Any], dims: Dims) -> Array:
    return rng.integers(0, 3, dims).astype(dtype)


def _value(value: float) -> Fill:
    return lambda _, dtype, dims: np.full(dims, value, dtype)


@dataclass(frozen=True)
class Operand:
    """An input: what it is, and what is in it."""

    dtype: str
    dims: Dims
    fill: Fill = normal
    # Nothing but its shape counts.
    lends_shape: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.dims)) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Case:
    """A graph and its inputs, by name. They broadcast to one another."""

    name: str
    graph: Graph
    inputs: dict[str, Operand]
    # The type of the result.
    dtype: str
    # The time of one call is told, not its multiple of the limit.
    absolute: bool = False

    @property
    def dims(self) -> Dims:
        return tuple(np.broadcast_shapes(*(operand.dims for operand in self.inputs.values())))

    @property
    def is_select(self) -> bool:
        return self.graph is SELECT

    @property
    def label(self) -> str:
        return f"{self.name}, {self.dtype}" if self.is_select else f"{self.name} {list(self.dims)}"

    @property
    def bytes_read(self) -> int:
        return sum(operand.size for operand in self.inputs.values() if not operand.lends_shape)

    def make_inputs(self, seed: int) -> list[Array]:
        rng = np.random.default_rng(seed)

        def make(operand: Operand) -> Array:
            array = operand.fill(rng, DTYPES[operand.dtype], operand.dims)
            return np.ascontiguousarray(array).reshape(operand.dims)

        return [make(operand) for operand in self.inputs.values()]


def _select(
    name: str, dtype: str, cond: Dims, then: Dims, else_: Dims, fill: Fill = random, absolute: bool = False
) -> Case:
    inputs = {
        "cond": Operand("boolean", cond, fill),
        "then": Operand(dtype, then, data),
        "else_": Operand(dtype, else_, data),
    }
    return Case(name, SELECT, inputs, dtype, absolute)


def _all(name: str, dtype: str, *dims: int, fill: Fill = random, absolute: bool = False) -> Case:
    return _select(name, dtype, dims, dims, dims, fill, absolute)


def _heads(dtype: str) -> Case:
    name = "cond [8,1,512,512], then [8,12,512,512], else scalar"
    return _select(name, dtype, (8, 1, 512, 512), (8, 12, 512, 512), ())


CASES: list[Case] = [
    _all("all [4096,4096]", "f32", 4096, 4096),
    _all("all [4096,4096]", "u8", 4096, 4096),
    _all("all [2048,2048]", "s64", 2048, 2048),
    _all("all [4096,4096], every cond true", "f32", 4096, 4096, fill=true),
    _all("all [256,256]", "f32", 256, 256),
    _heads("f32"),
    _heads("f16"),
    _select(
        "causal cond [1,1,1024,1024], then [1,32,1024,1024], else [1]",
        "f32", (1, 1, 1024, 1024), (1, 32, 1024, 1024), (1,), causal,
    ),
    _select(
        "padding cond [64,1,1,512], then [64,12,64,512], else [1]",
        "f32", (64, 1, 1, 512), (64, 12, 64, 512), (1,), padding,
    ),
    _select("cond [4096,1], then and else [4096,1024]", "f32", (4096, 1), (4096, 1024), (4096, 1024)),
    _select(
        "cond [1,256,1,256], then [64,1,32,256], else [1,256,32,1]",
        "f32", (1, 256, 1, 256), (64, 1, 32, 256), (1, 256, 32, 1),
    ),
    _select("cond [2,1,512,512], then [1], else [1]", "f32", (2, 1, 512, 512), (1,), (1,)),
    _all("one call on [16]", "f32", 16, absolute=True),
]


def _graph(name: str, dtype: str = "f32", **inputs: Operand) -> Case:
    return Case(name, GRAPHS[name], inputs, dtype)


f32 = partial(Operand, "f32")
bf16 = partial(Operand, "bf16")
boolean = partial(Operand, "boolean", fill=padding)


def _graphs(
    scores: Dims, tokens: Dims, wide: Dims, positions: Dims, windows: Dims
) -> list[Case]:
    """The graphs with scores [B,H,S,S], hidden values [B,S,C], positions [S,S] and windows [N,H,P,P]."""
    batch, _, _, length = scores
    count, _, places, _ = windows
    return [
        _graph("causal_scale_select", scores=f32(scores), scale=f32((), _value(0.125))),
        _graph(
            "padding_bias_select",
            scores=f32(scores), bias=f32((1, *scores[1:])), keep=boolean((batch, 1, 1, length)),
        ),
        _graph("safe_softmax_guard", x=f32(scores, empty_rows)),
        _graph("gelu_gated_select", "bf16", x=bf16(wide), gate=bf16(wide), keep=boolean((*wide[:-1], 1))),
        _graph("nan_to_num", x=f32(tokens, holes)),
        _graph(
            "swin_selects",
            rows=f32((count, 1, places, 1), regions), columns=f32((count, 1, 1, places), regions),
            scores=f32(windows),
        ),
        _graph("clamp_backward", x=f32(tokens), slope=f32(tokens)),
        _graph("t5_bucket", "s64", x=f32(positions, lends_shape=True)),
        _graph(
            "chain_of_12",
            x=f32(tokens), scale=f32(tokens[-1:]), shift=f32(tokens[-1:]), divisor=f32((), _value(30.0)),
            floor=f32((), _value(0.01)), residual=f32(tokens), keep=boolean((*tokens[:-1], 1)),
        ),
    ]


# Inputs and outputs beyond the caches.
GRAPH_CASES = _graphs((4, 8, 512, 512), (8, 1024, 768), (4, 1024, 4096), (2048, 4096), (256, 12, 49, 49))

# Small, with odd lengths: for the answer, not for the time.
SHORT_GRAPH_CASES = _graphs((2, 3, 17, 33), (3, 5, 77), (2, 7, 131), (67, 131), (5, 3, 7, 7))
SHORT_CASES: list[Case] = [
    _all("all [67,131]", "f32", 67, 131),
    _select("cond [2,1,17,33], then [2,3,17,33], else scalar", "s64", (2, 1, 17, 33), (2, 3, 17, 33), ()),
    _select("cond [2,1,15,77], then [1], else [1]", "u8", (2, 1, 15, 77), (1,), (1,)),
    SHORT_GRAPH_CASES[0],
    SHORT_GRAPH_CASES[-1],
]
