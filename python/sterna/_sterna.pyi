# What the native module holds. The documentation of each item is that of the item itself.

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, final, overload

import numpy as np
import numpy.typing as npt

from sterna._types import ArrayLike, DTypeLike

_Out = TypeVar("_Out")
_Array = npt.NDArray[Any]
_Broadcast = Literal["none", "numpy", "pdpd", "multidirectional"]
_Level = Literal["portable", "avx2", "avx512", "neon"]
_FpMath = Literal["strict", "bf16", "f16", "any", "tf32"]
_Causal = bool | Literal["top_left", "bottom_right"] | int | ArrayLike
_States = bool | Sequence[tuple[str, str] | Mapping[str, Any]]

@overload
def select(
    cond: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    auto_broadcast: _Broadcast = "multidirectional",
    axis: int | None = None,
    out: None = None,
) -> _Array: ...
@overload
def select(
    cond: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    auto_broadcast: _Broadcast = "multidirectional",
    axis: int | None = None,
    out: _Out,
) -> _Out: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    mask_true: Literal["keep", "drop"] = "keep",
    bias: ArrayLike | None = None,
    causal: _Causal | None = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    groups: int | None = None,
    k_transposed: bool = False,
    nan_without_keys: bool = False,
    score_type: DTypeLike = "f32",
    stats: Literal[False] = False,
    out: None = None,
) -> _Array: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    mask_true: Literal["keep", "drop"] = "keep",
    bias: ArrayLike | None = None,
    causal: _Causal | None = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    groups: int | None = None,
    k_transposed: bool = False,
    nan_without_keys: bool = False,
    score_type: DTypeLike = "f32",
    stats: Literal[True],
    out: None = None,
) -> tuple[_Array, _Array]: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    mask_true: Literal["keep", "drop"] = "keep",
    bias: ArrayLike | None = None,
    causal: _Causal | None = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    groups: int | None = None,
    k_transposed: bool = False,
    nan_without_keys: bool = False,
    score_type: DTypeLike = "f32",
    stats: Literal[False] = False,
    out: _Out,
) -> _Out: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    mask_true: Literal["keep", "drop"] = "keep",
    bias: ArrayLike | None = None,
    causal: _Causal | None = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    groups: int | None = None,
    k_transposed: bool = False,
    nan_without_keys: bool = False,
    score_type: DTypeLike = "f32",
    stats: Literal[True],
    out: _Out,
) -> tuple[_Out, _Array]: ...
def mask_tiles(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    mask_true: Literal["keep", "drop"] = "keep",
    bias: ArrayLike | None = None,
    causal: _Causal | None = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    groups: int | None = None,
    k_transposed: bool = False,
    nan_without_keys: bool = False,
    score_type: DTypeLike = "f32",
) -> npt.NDArray[np.uint8]: ...
def load(
    source: str | os.PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    types: Mapping[str, DTypeLike] | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    partial: bool = False,
    own_constants: bool = False,
    ops: Mapping[str, Callable[..., Any]] | None = None,
    states: _States | None = None,
    fpmath: _FpMath | tuple[_FpMath, bool] | None = None,
    fallback: bool = False,
    engine: Engine | None = None,
    kept_shapes: int | None = None,
    arenas: int = 4,
) -> Session: ...
__version__: str

def cache_stats() -> dict[str, int]: ...
def capacities(*, plans: int | None = None, constant_bytes: int | None = None) -> Capacities: ...
def schema() -> list[dict[str, Any]]: ...
@final
class Capacities:
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: BaseException | type[BaseException] | TracebackType | None) -> None: ...

@final
class Engine:
    def __new__(
        cls,
        *,
        threads: int | None = None,
        max_level: _Level | None = None,
        stay_awake: bool = True,
        cache_capacity: int | None = None,
        constant_cache_capacity: int | None = None,
    ) -> Self: ...
    @property
    def threads(self) -> int: ...
    @property
    def level(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: BaseException | type[BaseException] | TracebackType | None) -> None: ...

@final
class Session:
    def __call__(self, **inputs: ArrayLike) -> dict[str, _Array]: ...
    def run(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        out: Mapping[str, Any] | None = None,
        state: State | None = None,
    ) -> dict[str, _Array]: ...
    def run_profiled(
        self, inputs: Mapping[str, ArrayLike], *, state: State | None = None
    ) -> tuple[dict[str, _Array], list[dict[str, Any]]]: ...
    def plan_profile(self) -> list[dict[str, Any]]: ...
    def arena_plan(self) -> dict[str, Any] | None: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def inputs(self) -> list[dict[str, Any]]: ...
    @property
    def outputs(self) -> list[dict[str, Any]]: ...
    @property
    def run_memory(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def run_steps(self) -> tuple[int, int]: ...
    def output_shapes(
        self, shapes: Mapping[str, Sequence[int]], *, state: State | None = None
    ) -> dict[str, tuple[int, ...]]: ...
    def new_state(self, dims: Mapping[str, Sequence[int]] | None = None) -> State: ...

@final
class State:
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    @property
    def capacity(self) -> int: ...
    @property
    def memory(self) -> int: ...
    def reset(self) -> None: ...
    def trim(self, length: int) -> None: ...
    def fork(self) -> State: ...
    def get(self, name: str) -> _Array: ...
    def set(self, name: str, value: ArrayLike) -> None: ...

@final
class Graph:
    @staticmethod
    def from_json(text: str) -> Graph: ...
    @staticmethod
    def read(
        source: str | os.PathLike[str] | bytes,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        dims: Mapping[str, int] | None = None,
        types: Mapping[str, DTypeLike] | None = None,
        values: Mapping[str, npt.ArrayLike] | None = None,
        partial: bool = False,
        own_constants: bool = False,
    ) -> Graph: ...
    def to_json(self) -> str: ...
    @property
    def ops(self) -> list[dict[str, Any]]: ...
    @property
    def inputs(self) -> list[dict[str, Any]]: ...
    @property
    def outputs(self) -> list[dict[str, Any]]: ...
    def partitions(self, policy: Literal["fusion", "debug"] = "fusion") -> list[Partition]: ...
    def explain(self) -> list[dict[str, Any]]: ...
    def find_states(self) -> list[dict[str, str]]: ...
    def session(
        self,
        *,
        ops: Mapping[str, Callable[..., Any]] | None = None,
        states: _States | None = None,
        fpmath: _FpMath | tuple[_FpMath, bool] | None = None,
        fallback: bool = False,
        engine: Engine | None = None,
        kept_shapes: int | None = None,
        arenas: int = 4,
    ) -> Session: ...
    def picture(self, form: Literal["svg", "html", "arena", "dot"] = "svg") -> str: ...
    def _repr_html_(self) -> str: ...

@final
class Partition:
    @property
    def id(self) -> int: ...
    @property
    def ops(self) -> list[dict[str, Any]]: ...
    @property
    def inputs(self) -> list[dict[str, Any]]: ...
    @property
    def outputs(self) -> list[dict[str, Any]]: ...
    @property
    def is_supported(self) -> bool: ...
    @property
    def unsupported_reason(self) -> str | None: ...
    @property
    def accuracy(self) -> Literal["exact", "ordered", "bounded"] | None: ...
    def compile(
        self,
        inputs: Mapping[str | int, Any] | None = None,
        *,
        outputs: Mapping[str | int, Any] | None = None,
        engine: Engine | None = None,
    ) -> CompiledPartition: ...
    def _repr_html_(self) -> str: ...

@final
class CompiledPartition:
    @property
    def inputs(self) -> list[dict[str, Any]]: ...
    @property
    def outputs(self) -> list[dict[str, Any]]: ...
    @property
    def in_place_pairs(self) -> list[tuple[int, int]]: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def plan(self) -> str: ...
    def execute(
        self, inputs: Mapping[Any, ArrayLike], *, out: Mapping[Any, Any] | None = None
    ) -> dict[Any, _Array]: ...
    @staticmethod
    def _sampled(spans: Sequence[tuple[int, int]]) -> int: ...
    def _execute_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None: ...
    def _repr_html_(self) -> str: ...

@final
class Value:
    @property
    def id(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int | None, ...] | None: ...
    @property
    def name(self) -> str: ...
    def __add__(self, other: Value | float, /) -> Value: ...
    def __radd__(self, other: Value | float, /) -> Value: ...
    def __sub__(self, other: Value | float, /) -> Value: ...
    def __rsub__(self, other: Value | float, /) -> Value: ...
    def __mul__(self, other: Value | float, /) -> Value: ...
    def __rmul__(self, other: Value | float, /) -> Value: ...
    def __truediv__(self, other: Value | float, /) -> Value: ...
    def __rtruediv__(self, other: Value | float, /) -> Value: ...
    def __matmul__(self, other: Value | float, /) -> Value: ...
    def __neg__(self) -> Value: ...

class GraphBuilder:
    def __new__(cls) -> Self: ...
    def input(self, name: str, dtype: DTypeLike, shape: Sequence[int | None]) -> Value: ...
    def constant(self, name: str, array: ArrayLike, dtype: DTypeLike | None = None) -> Value: ...
    def output(self, name: str, value: Value) -> None: ...
    def op(
        self,
        kind: str,
        operands: Sequence[Value | float],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> tuple[Value, ...]: ...
    def custom(
        self,
        op: str,
        operands: Sequence[Value],
        outputs: Sequence[DTypeLike | tuple[DTypeLike, Sequence[int | None]]],
        **attributes: Any,
    ) -> tuple[Value, ...]: ...
    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        mask: Value | None = None,
        *,
        mask_true: Literal["keep", "drop"] = "keep",
        bias: Value | None = None,
        causal: bool | Literal["top_left", "bottom_right"] | Value | None = None,
        window: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: Value | None = None,
        groups: int | None = None,
        k_transposed: bool = False,
        nan_without_keys: bool = False,
        score_type: DTypeLike | None = None,
    ) -> Value: ...
    def build(self) -> Graph: ...
