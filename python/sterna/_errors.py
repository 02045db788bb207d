"""The exceptions of the package: a class for each kind of error, with the fields of the error as attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OpRef:
    """An op: its kind and its number in the graph."""

    kind: str
    id: int


@dataclass(frozen=True)
class PortRef:
    """A port of an op."""

    direction: str
    index: int
    name: str
    tensor: int


@dataclass(frozen=True)
class ShownValue:
    """A value of a builder, as messages show it."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class MissingOp:
    """An op that nothing runs."""

    op: str
    node: str
    place: int
    inputs: list[str]
    reason: str


class Error(Exception):
    """An error of Sterna. Its text is one sentence that names the op, the port and the values that clash.

    ``fault`` is the name of the fault, ``status`` the number that the C interface has for it; the other fields
    of the error are attributes by their names, such as ``op``, ``port``, ``given`` and ``expected``.

    >>> import numpy as np, sterna
    >>> try:
    ...     sterna.select(np.array([True, False]), np.zeros(3), np.zeros(3))
    ... except sterna.Error as error:
    ...     error.fault, error.op.kind
    ('Broadcast', 'Select')
    """

    fault: str
    status: int

    # For what checks types: which fields there are depends on the fault.
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a {type(self).__name__} of this fault has no {name!r}")


class ArrayError(Error, TypeError):
    """An object is no array, or not one of the needed form."""


class TensorError(Error, ValueError):
    """The memory or the description of a tensor is not what it must be."""


class OpError(Error, ValueError):
    """An op does not fit the schema of its kind: operands, types or attributes."""


class GraphError(Error, ValueError):
    """Ops do not make a graph, or the graph is not in the state that a call needs."""


class AttentionError(Error, ValueError):
    """An option of attention does not do."""


class ShapeError(Error, ValueError):
    """Shapes do not fit together."""


class CompileError(Error, ValueError):
    """A partition cannot be compiled for the given tensors."""


class ExecuteError(Error, ValueError):
    """A compiled partition cannot be executed on the given tensors."""


class PortError(Error, LookupError):
    """A name or number is that of no port."""


class SessionError(Error, ValueError):
    """A model cannot become a session, or a session cannot run on what it is given."""


class JsonError(Error, ValueError):
    """A graph in JSON is not well formed; ``line`` and ``column`` say where."""


class ModelError(Error, ValueError):
    """A file of a model cannot be read."""


class OutOfMemoryError(Error, MemoryError):
    """Memory ran out."""


class ThreadPoolError(Error, RuntimeError):
    """Worker threads could not be started."""


class UnimplementedError(Error, NotImplementedError):
    """Something known that is not implemented."""


class InternalError(Error, RuntimeError):
    """A defect of the library; please report it with what led to it."""


# Their public name is that of the package.
for _class in (
    Error,
    ArrayError,
    TensorError,
    OpError,
    GraphError,
    AttentionError,
    ShapeError,
    CompileError,
    ExecuteError,
    PortError,
    SessionError,
    JsonError,
    ModelError,
    OutOfMemoryError,
    ThreadPoolError,
    UnimplementedError,
    InternalError,
    MissingOp,
    OpRef,
    PortRef,
    ShownValue,
):
    _class.__module__ = "sterna"
