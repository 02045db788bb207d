"""The rows of the comparison: shapes, types and conditions, with inputs that are the same on every run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "u8": np.dtype(np.uint8),
    "s64": np.dtype(np.int64),
}


@dataclass(frozen=True)
class Case:
    """A select: what is chosen from what. The operands broadcast to one another."""

    name: str
    dtype: str
    cond: Dims
    then: Dims
    else_: Dims
    # What the condition looks like: a key of CONDITIONS.
    kind: str = "random"
    # The time of one call is told, not its multiple of the limit.
    absolute: bool = False

    @property
    def dims(self) -> Dims:
        return tuple(np.broadcast_shapes(self.cond, self.then, self.else_))

    @property
    def label(self) -> str:
        return f"{self.name}, {self.dtype}"


def _all(name: str, dtype: str, *dims: int, kind: str = "random", absolute: bool = False) -> Case:
    return Case(name, dtype, dims, dims, dims, kind, absolute)


def _heads(dtype: str) -> Case:
    name = "cond [8,1,512,512], then [8,12,512,512], else scalar"
    return Case(name, dtype, (8, 1, 512, 512), (8, 12, 512, 512), ())


CASES: list[Case] = [
    _all("all [4096,4096]", "f32", 4096, 4096),
    _all("all [4096,4096]", "u8", 4096, 4096),
    _all("all [2048,2048]", "s64", 2048, 2048),
    _all("all [4096,4096], every cond true", "f32", 4096, 4096, kind="true"),
    _all("all [256,256]", "f32", 256, 256),
    _heads("f32"),
    _heads("f16"),
    Case(
        "causal cond [1,1,1024,1024], then [1,32,1024,1024], else [1]",
        "f32", (1, 1, 1024, 1024), (1, 32, 1024, 1024), (1,), "causal",
    ),
    Case(
        "padding cond [64,1,1,512], then [64,12,64,512], else [1]",
        "f32", (64, 1, 1, 512), (64, 12, 64, 512), (1,), "padding",
    ),
    Case("cond [4096,1], then and else [4096,1024]", "f32", (4096, 1), (4096, 1024), (4096, 1024)),
    Case(
        "cond [1,256,1,256], then [64,1,32,256], else [1,256,32,1]",
        "f32", (1, 256, 1, 256), (64, 1, 32, 256), (1, 256, 32, 1),
    ),
    Case("cond [2,1,512,512], then [1], else [1]", "f32", (2, 1, 512, 512), (1,), (1,)),
    _all("one call on [16]", "f32", 16, absolute=True),
]

# Small, with odd lengths: for the answer, not for the time.
SHORT_CASES: list[Case] = [
    _all("all [67,131]", "f32", 67, 131),
    Case("cond [2,1,17,33], then [2,3,17,33], else scalar", "s64", (2, 1, 17, 33), (2, 3, 17, 33), ()),
    Case("cond [2,1,15,77], then [1], else [1]", "u8", (2, 1, 15, 77), (1,), (1,)),
]


def _random(rng: np.random.Generator, dims: Dims) -> Array:
    return rng.integers(0, 2, dims, dtype=np.uint8)


def _true(_: np.random.Generator, dims: Dims) -> Array:
    return np.ones(dims, np.uint8)


def _causal(_: np.random.Generator, dims: Dims) -> Array:
    return np.broadcast_to(np.tri(*dims[-2:], dtype=np.uint8), dims)


def _padding(rng: np.random.Generator, dims: Dims) -> Array:
    lengths = rng.integers(1, dims[-1] + 1, (*dims[:-1], 1))
    return (np.arange(dims[-1]) < lengths).astype(np.uint8)


CONDITIONS = {"random": _random, "true": _true, "causal": _causal, "padding": _padding}


def _data(rng: np.random.Generator, dtype: np.dtype[Any], dims: Dims) -> Array:
    """Integers of all sizes, so that cut ones show; floats that are neither NaN nor denormal."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, dims, dtype=dtype, endpoint=True)
    return (rng.random(dims, dtype=np.float32) + np.float32(0.5)).astype(dtype)


@dataclass(frozen=True)
class Inputs:
    """The operands of a case: the condition in bytes 0 and 1."""

    cond: Array
    then: Array
    else_: Array

    def expected(self) -> Array:
        """The answer. Elements travel as integers, so that no arithmetic can touch them."""
        integers = np.dtype(f"u{self.then.dtype.itemsize}")
        then, else_ = self.then.view(integers), self.else_.view(integers)
        return np.where(self.cond.astype(bool), then, else_)

    def save(self, directory: Path) -> None:
        for name, array in (("cond", self.cond), ("then", self.then), ("else", self.else_)):
            array.tofile(directory / f"{name}.bin")


def make_inputs(case: Case, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[case.dtype]
    cond = np.ascontiguousarray(CONDITIONS[case.kind](rng, case.cond)).reshape(case.cond)
    return Inputs(cond, np.asarray(_data(rng, dtype, case.then)), np.asarray(_data(rng, dtype, case.else_)))
