"""Runs a converted graph: partitions by address, all else as calls of torch, in one function made for the sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule, Node

import sterna

from ._convert import DTYPES, TYPES, Call, Converted, Ref, Row, convert, is_view, laid_out
from ._sizes import Meta, Sizes, meta_of

#: Functions of torch that cost little.
guards: Any = getattr(torch._C, "_dynamo").guards  # noqa: B009

#: Kinds that move no element of a tensor that torch can view otherwise.
MOVES = frozenset({"StaticReshape", "StaticTranspose", "Slice", "Identity"})

#: Elements from which torch copies by threads of its own. They spin for milliseconds after that, and a worker of Sterna
#: waits for the core (decision: torch-spins).
BY_THREADS = 1 << 15

#: Kinds that keep packed copies of parameters, with the ranks of these.
PACKED = {"MatMul": (2,), "Convolution": (3, 4, 5), "ConvTranspose": (3, 4, 5)}

#: Fewest elements of a row, and rows, of an operand that is worth copying.
ROW = 16

#: An engine for each number of threads of torch. Its workers sleep between calls, so that they never spin
#: against those of torch.
_engines: dict[int, sterna.Engine] = {}
#: How often the process was forked: threads of an engine stay with the parent.
_generation = 0


def _forked() -> None:
    global _generation
    _generation += 1
    _engines.clear()


os.register_at_fork(after_in_child=_forked)


def generation() -> int:
    """A number that differs in a child of the process."""
    return _generation


def engine_of(threads: int) -> sterna.Engine:
    """The engine with so many threads."""
    if threads not in _engines:
        _engines[threads] = sterna.Engine(threads=threads, stay_awake=False)
    return _engines[threads]


class Retry(Exception):
    """Says that nodes were given back to torch."""


@dataclass
class Step:
    """A part of a program: a compiled partition, a call of torch, or views."""

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    partition: sterna.Partition | None = None
    compiled: sterna.CompiledPartition | None = None
    call: Call | None = None
    moves: tuple[dict[str, Any], ...] = ()
    #: Inputs of which the partition keeps packed copies, and how it is compiled anew, without them.
    frozen: tuple[int, ...] = ()
    again: Callable[[], sterna.CompiledPartition] | None = None


@dataclass
class Program:
    """What runs for known sizes and strides."""

    converted: Converted
    steps: list[Step]
    run: Callable[[list[Any]], list[Any]]
    fits: Callable[[list[Any]], bool]
    reasons: dict[Node, str] = field(default_factory=dict[Node, str])


def is_dense(meta: Meta) -> bool:
    """If the elements lie without holes, each once."""
    expected = 1
    pairs = sorted((stride, dim) for stride, dim in zip(meta.strides, meta.shape, strict=True) if dim != 1)
    for stride, dim in pairs:
        if stride != expected:
            return False
        expected *= dim
    return 0 not in meta.shape


class Assembly:
    """Turns a converted graph into steps."""

    def __init__(
        self,
        made: Converted,
        args: Sequence[Any],
        engine: sterna.Engine,
        kept: dict[Node, str],
        packable: frozenset[int],
    ) -> None:
        self.made, self.engine, self.kept = made, engine, kept
        #: Parameters, of which products keep packed copies as long as nobody writes to them.
        self.frozen: set[int] = set()
        self.layouts: dict[int, Meta] = {}
        for number, position in made.inputs.items():
            if isinstance(args[position], torch.Tensor):
                self.layouts[number] = meta_of(args[position])
                if position in packable:
                    self.frozen.add(number)
        for number, tensor in made.constants.items():
            self.layouts[number] = meta_of(tensor)
        self.steps: list[Step] = []
        #: Copies of operands whose elements lie apart, by what they are copies of.
        self.copies: dict[int, int] = {}

    def number(self, port: dict[str, Any]) -> int:
        return self.made.numbers[port["id"]]

    def assemble(self) -> list[Step]:
        for partition in self.made.graph.partitions():
            inputs = tuple(self.number(port) for port in partition.inputs)
            ops = partition.ops
            if len(ops) == 1 and ops[0]["kind"] == "Wildcard":
                if ops[0]["outputs"][0]["id"] not in self.made.numbers:
                    continue
                nodes = self.nodes_of(ops)
                call = self.made.calls[self.number(ops[0]["outputs"][0])]
                for number in call.results:
                    if number in self.made.metas:
                        self.layouts[number] = self.made.metas[number]
                self.steps.append(Step(nodes, inputs, call.results, call=call))
                continue
            nodes = self.nodes_of(ops)
            outputs = tuple(self.number(port) for port in partition.outputs)
            if all(op["kind"] in MOVES for op in ops) and not self.copies_much(ops, outputs):
                self.steps.append(Step(nodes, inputs, outputs, moves=tuple(ops)))
            else:
                self.compile(partition, nodes, inputs, outputs)
        return self.steps

    def nodes_of(self, ops: list[dict[str, Any]]) -> tuple[Node, ...]:
        found = (self.made.makers.get(self.number(port)) for op in ops for port in op["outputs"])
        return tuple(dict.fromkeys(node for node in found if node is not None))

    def copies_much(self, ops: list[dict[str, Any]], outputs: tuple[int, ...]) -> bool:
        """Follows strides through views, as torch makes them. Says if each result is a copy that torch makes by threads
        of its own, where Sterna has some."""
        tensors: dict[int, torch.Tensor] = {}
        given: set[int] = set()
        for op in ops:
            source, result = self.number(op["inputs"][0]), self.number(op["outputs"][0])
            if source not in tensors:
                meta = self.layouts[source]
                tensors[source] = torch.empty_strided(meta.shape, meta.strides, dtype=meta.dtype, device="meta")
                given.add(tensors[source].untyped_storage()._cdata)
            tensors[result] = moved(tensors[source], op)
            self.layouts[result] = meta_of(tensors[result])
        results = [tensors[number] for number in outputs]
        are_copies = all(one.untyped_storage()._cdata not in given for one in results)
        return self.engine.threads > 1 and are_copies and min(one.numel() for one in results) >= BY_THREADS

    def compile(
        self, partition: sterna.Partition, nodes: tuple[Node, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> None:
        given: dict[str | int, Any] = {}
        frozen: list[int] = []
        packs = ((port, PACKED.get(op["kind"], ())) for op in partition.ops for port in op["inputs"])
        factors = {port["id"] for port, ranks in packs if len(port["shape"] or ()) in ranks}
        wanted: dict[str | int, Any] = {}
        inputs = self.with_rows_in_place(partition, inputs)
        for port, number in zip(partition.inputs, inputs, strict=True):
            meta = self.layouts[number]
            is_frozen = number in self.frozen and port["id"] in factors
            given[port["id"]] = (port["dtype"], meta.shape, meta.strides, is_frozen)
            if is_frozen:
                frozen.append(number)
        for port, number in zip(partition.outputs, outputs, strict=True):
            traced = self.made.metas.get(number)
            if traced is not None and traced.shape == port["shape"] and is_dense(traced):
                wanted[port["id"]] = (port["dtype"], traced.shape, traced.strides)

        def again() -> sterna.CompiledPartition:
            return partition.compile(given, outputs=wanted, engine=self.engine)

        try:
            if not partition.is_supported:
                raise sterna.CompileError(str(partition.unsupported_reason))
            compiled = again()
        except sterna.Error as error:
            self.give_back(nodes, str(error))
        for port in compiled.outputs:
            number = self.number(port)
            self.layouts[number] = Meta(DTYPES[port["dtype"]], tuple(port["shape"]), tuple(port["strides"]))
        place = {port["id"]: number for port, number in zip(partition.inputs, inputs, strict=True)}
        ins = tuple(place[port["id"]] for port in compiled.inputs)
        outs = tuple(self.number(port) for port in compiled.outputs)
        step = Step(nodes, ins, outs, partition=partition, compiled=compiled, frozen=tuple(frozen), again=again)
        self.steps.append(step)

    def with_rows_in_place(self, partition: sterna.Partition, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """The operands of a partition, of an attention with copies of those that are added to its scores and whose rows
        lie apart, as those that are looked up for each head: copying them once is far less than to gather each tile."""
        kinds = {op["kind"] for op in partition.ops}
        if "MatMul" not in kinds or not any(kind.startswith("SoftMax") for kind in kinds):
            return inputs
        factors = {port["id"] for op in partition.ops if op["kind"] == "MatMul" for port in op["inputs"]}
        found = list(inputs)
        for place, port in enumerate(partition.inputs):
            if port["id"] not in factors and lies_apart(self.layouts[inputs[place]]):
                found[place] = self.copy_of(inputs[place])
        return tuple(found)

    def copy_of(self, number: int) -> int:
        """The number of a row-major copy, made where it is wanted first."""
        if number not in self.copies:
            meta = self.layouts[number]
            made = self.made
            taken = {*self.layouts, *made.numbers.values(), *made.metas, *made.inputs, *made.constants}
            new = self.copies[number] = max(taken) + 1
            self.layouts[new] = Meta(meta.dtype, meta.shape, row_major(meta.shape))
            g, dtype = sterna.GraphBuilder(), TYPES[meta.dtype]
            g.output("copy", g.op("Reorder", [g.input("source", dtype, meta.shape)])[0])
            (partition,) = g.build().partitions()
            given: dict[str | int, Any] = {"source": (dtype, meta.shape, meta.strides)}
            wanted: dict[str | int, Any] = {"copy": (dtype, meta.shape, self.layouts[new].strides)}
            compiled = partition.compile(given, outputs=wanted, engine=self.engine)
            self.steps.append(Step((), (number,), (new,), partition=partition, compiled=compiled))
        return self.copies[number]

    def give_back(self, nodes: tuple[Node, ...], reason: str) -> NoReturn:
        before = len(self.kept)
        for node in nodes:
            self.kept.setdefault(node, reason)
        if len(self.kept) == before:
            raise sterna.CompileError(reason)
        raise Retry


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for dim in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(dim, 1))
    return tuple(strides)


def lies_apart(meta: Meta) -> bool:
    """If neighbours in a row lie apart, and no element is repeated."""
    if len(meta.shape) < 2 or min(meta.shape[-2:]) < ROW or meta.strides[-1] <= 1:
        return False
    return all(dim == 1 or stride != 0 for dim, stride in zip(meta.shape, meta.strides, strict=True))


def is_packable(tensor: Any) -> bool:
    """If an argument is a parameter whose writes can be noticed."""
    is_known = isinstance(tensor, torch.nn.Parameter) and not tensor.is_inference()
    return is_known and tensor.dim() > 1 and tensor.numel() >= 1 << 12


def moved(tensor: torch.Tensor, op: dict[str, Any]) -> torch.Tensor:
    """What an op that moves elements makes of a tensor, as a view if there is one."""
    attributes = op["attributes"]
    if op["kind"] == "StaticReshape":
        return tensor.reshape(attributes["shape"])
    if op["kind"] == "StaticTranspose":
        return tensor.permute(attributes["order"])
    if op["kind"] == "Slice":
        steps = attributes.get("steps") or [1] * len(attributes["starts"])
        axes = attributes.get("axes") or range(len(attributes["starts"]))
        for axis, start, end, step in zip(axes, attributes["starts"], attributes["ends"], steps, strict=True):
            tensor = torch.ops.aten.slice.Tensor(tensor, axis, start, end, step)
    return tensor


class Writer:
    """Writes the function of a program."""

    def __init__(self, made: Converted, steps: list[Step], layouts: dict[int, Meta]) -> None:
        self.made, self.steps, self.layouts = made, steps, layouts
        self.names: dict[str, Any] = {"empty": empty_function(), "moved": moved, "settled": settled}
        self.lines: list[str] = []
        self.kept: set[int] = set(made.constants)
        #: By what name the function calls a step.
        self.runs: dict[int, str] = {}

    def constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def argument(self, given: Any) -> str:
        if isinstance(given, Ref):
            return f"v{given.number}"
        if isinstance(given, list):
            return "[" + ", ".join(map(self.argument, given)) + "]"
        if isinstance(given, tuple):
            return "(" + "".join(self.argument(one) + ", " for one in given) + ")"
        if isinstance(given, slice):
            parts = (given.start, given.stop, given.step)
            return "slice(" + ", ".join(map(self.argument, parts)) + ")"
        if given is None or isinstance(given, (bool, int, str)):
            return repr(given)
        return self.constant(given)

    def write(self) -> Callable[[list[Any]], list[Any]]:
        for number, position in self.made.inputs.items():
            self.lines.append(f"v{number} = args[{position}]")
        self.lines.append("args.clear()")
        self.watch()
        for number, tensor in self.made.constants.items():
            self.names[f"v{number}"] = tensor
        last = self.last_uses()
        for index, step in enumerate(self.steps):
            self.step(step)
            gone = [f"v{number}" for number in last.get(index, ())]
            if gone:
                self.lines.append("del " + ", ".join(gone))
        results = [f"v{one}" if kind == "value" else self.argument(one) for kind, one in self.made.outputs]
        self.lines.append("return [" + ", ".join(results) + "]")
        source = "def run(args):\n" + "".join(f"    {line}\n" for line in self.lines)
        exec(compile(source, "<sterna>", "exec"), self.names)  # noqa: S102
        return self.names["run"]  # type: ignore[no-any-return]

    def watch(self) -> None:
        """Sees to it that no packed copy of a parameter outlives what it was made of: a write is noticed by
        the version of the tensor, and one that goes around it by words from places all over."""
        frozen = sorted({number for step in self.steps for number in step.frozen})
        if not frozen:
            return
        steps = [step for step in self.steps if step.frozen]
        seen: list[Any] = [None]

        def renew(now: Any) -> None:
            if seen[0] is not None:
                for step in steps:
                    assert step.again is not None
                    step.compiled = step.again()
                    self.names[self.runs[id(step)]] = step.compiled._execute_at
            seen[0] = now

        versions = "".join(f"v{number}._version, " for number in frozen)
        spans = "".join(f"(v{number}.data_ptr(), {self.bytes_of(number)}), " for number in frozen)
        self.names.update(seen=seen, renew=renew, sampled=sterna.CompiledPartition._sampled)
        self.lines.append(f"now = ({versions}sampled(({spans})))")
        self.lines.append("if now != seen[0]: renew(now)")

    def bytes_of(self, number: int) -> int:
        meta = self.layouts[number]
        last = sum((dim - 1) * stride for dim, stride in zip(meta.shape, meta.strides, strict=True))
        return (last + 1) * meta.dtype.itemsize

    def last_uses(self) -> dict[int, list[int]]:
        """By the place of a step the values that nobody reads after it."""
        places: dict[int, int] = {}
        for index, step in enumerate(self.steps):
            for number in (*step.inputs, *step.outputs):
                places[number] = index
        found: dict[int, list[int]] = {}
        stays = {one for kind, one in self.made.outputs if kind == "value"} | self.kept
        for number, index in places.items():
            if number not in stays and (number in self.layouts or number in self.made.inputs):
                found.setdefault(index, []).append(number)
        return found

    def step(self, step: Step) -> None:
        if step.compiled is not None:
            for number in step.outputs:
                meta = self.layouts[number]
                dtype = self.constant(meta.dtype)
                self.lines.append(f"v{number} = empty({meta.shape!r}, {meta.strides!r}, {dtype})")
            run = self.runs[id(step)] = self.constant(step.compiled._execute_at)
            given = "".join(f"v{number}.data_ptr(), " for number in step.inputs)
            results = "".join(f"v{number}.data_ptr(), " for number in step.outputs)
            self.lines.append(f"{run}(({given}), ({results}))")
        elif step.call is not None:
            call = step.call
            shown = [self.argument(one) for one in call.args]
            shown += [f"{name}={self.argument(value)}" for name, value in call.kwargs.items()]
            made = f"{self.constant(call.function)}({', '.join(shown)})"
            if call.is_tuple:
                made = "".join(f"v{number}, " for number in call.results) + "= " + made
            else:
                made = f"v{call.results[0]} = " + made
            self.lines.append(made)
            if not is_view(call.node):
                self.settle(call)
        else:
            for op in step.moves:
                source, result = (self.made.numbers[op[side][0]["id"]] for side in ("inputs", "outputs"))
                self.lines.append(f"v{result} = moved(v{source}, {self.constant(op)})")

    def settle(self, call: Call) -> None:
        """Sees to the strides that were traced where others rely on them: kernels of torch may give others."""
        for number in call.results:
            meta = self.made.metas.get(number)
            if meta is None or number not in self.layouts or 0 in meta.shape:
                continue
            # A sparse tensor has none.
            if len(meta.strides) == len(meta.shape):
                self.lines.append(f"v{number} = settled(v{number}, {meta.strides!r})")


def settled(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor with the strides that it was traced with."""
    found = tensor.stride()
    if found == strides or all(a == b or dim == 1 for a, b, dim in zip(found, strides, tensor.shape, strict=True)):
        return tensor
    return laid_out(tensor, tuple(tensor.shape), strides)


def empty_function() -> Callable[..., torch.Tensor]:
    """Makes a tensor of a shape, strides and a type: the fastest way that torch has."""
    found: Any = getattr(guards, "_empty_strided_cpu", None)
    if found is not None:
        return found  # type: ignore[no-any-return]
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)


def fitting(made: Converted, args: Sequence[Any]) -> Callable[[list[Any]], bool]:
    """A function that says if arguments have the shapes and strides of those given here."""
    check: Any = guards.assert_size_stride
    names: dict[str, Any] = {"check": check}
    lines = ["def fits(args):", "    try:"]
    for position in sorted(made.inputs.values()):
        given = args[position]
        if isinstance(given, torch.Tensor):
            lines.append(f"        check(args[{position}], {tuple(given.shape)!r}, {tuple(given.stride())!r})")
    lines += ["        return True", "    except AssertionError:", "        return False"]
    exec(compile("\n".join(lines) + "\n", "<sterna>", "exec"), names)  # noqa: S102
    return names["fits"]  # type: ignore[no-any-return]


def program_of(
    rows: dict[Any, Row],
    module: GraphModule,
    args: list[Any],
    threads: int,
    kept: dict[Node, str],
    *,
    packs: bool = False,
    join: Callable[[Converted, list[Step]], list[Step]] | None = None,
) -> Program:
    """Converts and compiles a module for arguments. Nodes that torch has to keep are added to `kept`; steps of torch
    that follow each other are joined by a function, if one is given."""
    sizes = Sizes(module, args)
    packable = frozenset(place for place, one in enumerate(args) if packs and is_packable(one))
    while True:
        made = convert(rows, module, sizes, kept, packable)
        assembly = Assembly(made, args, engine_of(threads), kept, packable)
        try:
            steps = assembly.assemble()
        except Retry:
            continue
        if join is not None:
            steps = join(made, steps)
        run = Writer(made, steps, assembly.layouts).write()
        return Program(made, steps, run, fitting(made, args), {**made.reasons, **kept})
