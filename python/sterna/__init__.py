"""Masked attention, select, graphs and models on CPU, on NumPy and DLPack arrays.

Each function takes anything with DLPack, the buffer protocol or an array interface, such as arrays of NumPy,
tensors of torch and arrays of JAX on CPU, without a copy, and gives NumPy arrays or writes into ``out``.

>>> import numpy as np, sterna
>>> mask = np.tril(np.ones((3, 3), bool))
>>> sterna.select(mask, np.zeros((3, 3), np.float32), -np.inf)
array([[  0., -inf, -inf],
       [  0.,   0., -inf],
       [  0.,   0.,   0.]], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._builder import GraphBuilder
from ._errors import (
    ArrayError,
    AttentionError,
    CompileError,
    Error,
    ExecuteError,
    GraphError,
    InternalError,
    JsonError,
    MissingOp,
    ModelError,
    OpError,
    OpRef,
    OutOfMemoryError,
    PortError,
    PortRef,
    SessionError,
    ShapeError,
    ShownValue,
    TensorError,
    ThreadPoolError,
    UnimplementedError,
)
from ._sterna import (
    Capacities,
    CompiledPartition,
    Engine,
    Graph,
    Partition,
    Session,
    State,
    Value,
    __version__,
    attention,
    cache_stats,
    capacities,
    load,
    mask_tiles,
    schema,
    select,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows such as those of a profile as columns by name, which ``pandas.DataFrame``, ``polars.DataFrame`` and
    ``pyarrow.table`` take.

    A row that lacks a name has None there.

    >>> import sterna
    >>> sterna.columns([{"kind": "execute", "seconds": 0.5}, {"kind": "copy", "seconds": 0.25}])
    {'kind': ['execute', 'copy'], 'seconds': [0.5, 0.25]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


#: The names of the numbers that ``mask_tiles`` gives.
TILE_CLASSES: Final[tuple[str, ...]] = ("partial", "full", "constant", "masked")

__all__ = [
    "ArrayError",
    "attention",
    "AttentionError",
    "cache_stats",
    "Capacities",
    "capacities",
    "columns",
    "CompiledPartition",
    "CompileError",
    "Engine",
    "Error",
    "ExecuteError",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "InternalError",
    "JsonError",
    "load",
    "mask_tiles",
    "MissingOp",
    "ModelError",
    "OpError",
    "OpRef",
    "OutOfMemoryError",
    "Partition",
    "PortError",
    "PortRef",
    "schema",
    "select",
    "Session",
    "SessionError",
    "ShapeError",
    "ShownValue",
    "State",
    "TensorError",
    "ThreadPoolError",
    "TILE_CLASSES",
    "UnimplementedError",
    "Value",
]
