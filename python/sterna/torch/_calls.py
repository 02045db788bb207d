"""Graphs that are built for the types, shapes and strides of tensors, and run on their memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

import sterna
from sterna import GraphBuilder, Value

from ._convert import DTYPES, TYPES
from ._runtime import empty_function, engine_of
from ._sizes import Meta

#: What may be compiled at once: the first that came is the first to go.
CAPACITY = 512

empty = empty_function()

Made = TypeVar("Made")


class Desc(Meta):
    """The type of a tensor, its shape and its strides in elements, to be laid out in other dims."""

    @staticmethod
    def of(tensor: torch.Tensor) -> Desc:
        return Desc(tensor.dtype, tuple(tensor.shape), tensor.stride())

    def single(self) -> Desc:
        """The same elements where each is there once: dims that `expand` made are dims of 1."""
        pairs = zip(self.shape, self.strides, strict=True)
        return Desc(self.dtype, tuple(1 if stride == 0 else dim for dim, stride in pairs), self.strides)

    def at_front(self, rank: int) -> Desc:
        """The same with dims of 1 in front."""
        more = rank - len(self.shape)
        return Desc(self.dtype, (1,) * more + self.shape, (0,) * more + self.strides)

    def split(self, axis: int, inner: int) -> Desc:
        """The same memory where a dim is two, the inner one of this size; a dim of 1 becomes two of 1."""
        dim, stride = self.shape[axis], self.strides[axis]
        dims, steps = ((1, 1), (0, 0)) if dim == 1 else ((dim // inner, inner), (stride * inner, stride))
        shape = (*self.shape[:axis], *dims, *self.shape[axis + 1 :])
        return Desc(self.dtype, shape, (*self.strides[:axis], *steps, *self.strides[axis + 1 :]))

    def given(self) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """The description as the compiler takes it: a dim of 1 has the stride of a row-major tensor."""
        dims = zip(self.shape, self.strides, strict=True)
        return TYPES[self.dtype], self.shape, tuple(max(stride, 1) if dim == 1 else stride for dim, stride in dims)


def dense(dtype: torch.dtype, shape: Sequence[int]) -> Desc:
    """A row-major tensor."""
    strides: list[int] = []
    step = 1
    for dim in reversed(shape):
        strides.insert(0, step)
        step *= max(dim, 1)
    return Desc(dtype, tuple(shape), tuple(strides))


@dataclass(frozen=True)
class _Step:
    """A partition with the places of its tensors among those of a run."""

    run: Callable[[Sequence[int], Sequence[int]], None]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Call:
    """A graph that is compiled for tensors of known descriptions.

    ``make`` gets a builder and the inputs as values, and gives the values that are results. The memory of a result
    is that of its description in ``outputs``.
    """

    def __init__(
        self,
        make: Callable[[GraphBuilder, list[Value]], Sequence[Value]],
        inputs: Sequence[Desc],
        outputs: Sequence[Desc],
        threads: int,
    ) -> None:
        g = GraphBuilder()
        values = [g.input(f"input {place}", TYPES[desc.dtype], desc.shape) for place, desc in enumerate(inputs)]
        results = list(make(g, values))
        # An op that takes all results, since a partition hands out what others read.
        g.output("results", g.custom("torch::results", results, [("u8", [])])[0])
        #: Places of tensors by the numbers of their values: inputs, results, and what is between partitions.
        places = {value.id: place for place, value in enumerate([*values, *results])}
        descs = dict(zip(places, [*inputs, *outputs], strict=True))
        self.between: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]] = []
        self.steps: list[_Step] = []
        for partition in g.build().partitions():
            if partition.ops[0]["kind"] == "Wildcard":
                continue
            if not partition.is_supported:
                raise sterna.CompileError(str(partition.unsupported_reason))
            self.steps.append(self._step(partition, places, descs, threads))
        #: The one partition that takes and gives tensors in the order of the call.
        self.direct: Callable[[Sequence[int], Sequence[int]], None] | None = None
        if len(self.steps) == 1:
            (step,) = self.steps
            if (*step.inputs, *step.outputs) == tuple(range(len(values) + len(results))):
                self.direct = step.run

    def _step(self, partition: sterna.Partition, places: dict[int, int], descs: dict[int, Desc], threads: int) -> _Step:
        given = {port["id"]: descs[port["id"]].given() for port in partition.inputs}
        wanted = {port["id"]: descs[port["id"]].given() for port in partition.outputs if port["id"] in descs}
        compiled = partition.compile(given, outputs=wanted, engine=engine_of(threads))
        for port in compiled.outputs:
            if port["id"] not in places:
                dtype = DTYPES[port["dtype"]]
                places[port["id"]] = len(places)
                descs[port["id"]] = Desc(dtype, tuple(port["shape"]), tuple(port["strides"]))
                self.between.append((descs[port["id"]].shape, descs[port["id"]].strides, dtype))
        inputs = tuple(places[port["id"]] for port in compiled.inputs)
        outputs = tuple(places[port["id"]] for port in compiled.outputs)
        return _Step(compiled._execute_at, inputs, outputs)

    def run(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Writes the results for tensors of the descriptions."""
        if self.direct is not None:
            self.direct([tensor.data_ptr() for tensor in inputs], [tensor.data_ptr() for tensor in outputs])
            return
        tensors = [*inputs, *outputs]
        tensors += [empty(*made) for made in self.between]
        at = [tensor.data_ptr() for tensor in tensors]
        for step in self.steps:
            step.run([at[place] for place in step.inputs], [at[place] for place in step.outputs])


class Kept(Generic[Made]):
    """What was compiled, by keys."""

    def __init__(self) -> None:
        self.made: dict[Hashable, Made] = {}
        # Threads of an engine stay with the parent.
        os.register_at_fork(after_in_child=self.made.clear)

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        found = self.made.get(key)
        if found is None:
            found = make()
            while len(self.made) >= CAPACITY:
                self.made.pop(next(iter(self.made)), None)
            self.made[key] = found
        return found
