"""One Sterna graph from a graph of aten ops, for known sizes.

What a row of the table takes becomes ops of Sterna; every other node becomes an op of its own name that torch
runs. A node has up to two values: one that ops of Sterna read, which may still lack what `expand` repeats, and
one that torch reads, in which views are views.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

import sterna
from sterna import Value

from ._record import Recorder
from ._sizes import Meta, Sizes, meta_of

aten = torch.ops.aten

#: The types that both have, by their names here.
TYPES: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float64: "f64",
    torch.int64: "s64",
    torch.int32: "s32",
    torch.int16: "s16",
    torch.int8: "s8",
    torch.uint8: "u8",
    torch.bool: "boolean",
}

DTYPES = {name: dtype for dtype, name in TYPES.items()}

#: Ops whose result is a view of their first argument.
VIEWS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.permute.default,
        aten.transpose.int,
        aten.t.default,
        aten.expand.default,
        aten.unsqueeze.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.slice.Tensor,
        aten.select.int,
        aten.alias.default,
        aten.detach.default,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.unbind.int,
        aten.diagonal.default,
    }
)

#: Elements of a constant that is computed ahead.
FOLDED = 1 << 14


class NotTaken(Exception):
    """Says why torch keeps a node."""


@dataclass(frozen=True)
class Row:
    """How an aten op becomes ops of Sterna.

    ``make`` takes the lowering and the arguments of the node, values in place of tensors. Those of a row that
    broadcasts may lack what `expand` repeats, and so may its result.
    """

    make: Callable[..., Any]
    broadcasts: bool = False
    #: If it takes nodes in place of values, to look at how these were made.
    takes_nodes: bool = False
    #: What torch runs in place of the op where it keeps that, if not the op itself.
    in_torch: Callable[..., Any] | None = None


@dataclass
class Converted:
    """A graph of Sterna with what is known of its values by number."""

    graph: sterna.Graph
    #: The number that a value of the graph has in what follows.
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    #: The placeholders that are read.
    inputs: dict[int, int] = field(default_factory=dict[int, int])
    constants: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    #: What torch computes: by the number of its first value the call and all its values.
    calls: dict[int, Call] = field(default_factory=dict[int, "Call"])
    #: The node whose op has a value as a result, and how the value was traced.
    makers: dict[int, Node] = field(default_factory=dict[int, Node])
    metas: dict[int, Meta] = field(default_factory=dict[int, Meta])
    #: For each result of the graph the number of its value, or an object that it always is.
    outputs: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    #: Why torch keeps a node.
    reasons: dict[Node, str] = field(default_factory=dict[Node, str])


@dataclass(frozen=True)
class Call:
    """A call of torch: a function, its arguments, in which `Ref` stands for a value, and its results."""

    node: Node
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int, ...]
    #: True if the results are the items of a tuple.
    is_tuple: bool


@dataclass(frozen=True)
class Ref:
    """A value in the arguments of a call."""

    number: int


def is_view(node: Node) -> bool:
    """If the result of a node shares the memory of an argument."""
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, Node) and source.target in VIEWS
    return node.target in VIEWS


class Lowering:
    """Builds the graph node by node."""

    def __init__(
        self,
        rows: dict[Any, Row],
        module: GraphModule,
        sizes: Sizes,
        kept: dict[Node, str],
        packable: frozenset[int] = frozenset(),
    ) -> None:
        self.rows, self.module, self.sizes, self.kept = rows, module, sizes, kept
        places = (node for node in module.graph.nodes if node.op == "placeholder")
        #: Inputs of which partitions keep packed copies.
        self.packable = {node for position, node in enumerate(places) if position in packable}
        self.g = Recorder()
        self.g.asker = None
        self.made = Converted(graph=None)  # type: ignore[arg-type]
        self.values: dict[Node, Any] = {}
        self.of_torch: dict[Node, Any] = {}
        self.folded: dict[Node, torch.Tensor] = {}
        self.node: Node = next(iter(module.graph.nodes))
        self.owner: Node | None = None
        self.token: Value | None = None
        #: What a value was reshaped from.
        self.reshaped: dict[int, Value] = {}

    # What rows call.

    def builder(self) -> Recorder:
        """The builder, to make ops that the node asks for."""
        self.g.asker = self.node if self.owner is None else self.owner
        return self.g

    @contextmanager
    def as_owner(self) -> Generator[None]:
        """Lets the node ask for the ops of a block in which rows see nodes of another graph."""
        self.owner = self.node
        try:
            yield
        finally:
            self.owner = None

    def op(self, kind: str, *operands: Value | float, dtype: str | None = None, **attributes: Any) -> Value:
        """The only result of an op."""
        return self.ops(kind, *operands, outputs=1, dtype=dtype, **attributes)[0]

    def ops(
        self, kind: str, *operands: Value | float, outputs: int, dtype: str | None = None, **attributes: Any
    ) -> tuple[Value, ...]:
        """All results of an op."""
        return self.builder().op(kind, operands, attributes or None, outputs=outputs, dtype=dtype)

    def fill(self, number: float, dtype: str, shape: Sequence[int] = ()) -> Value:
        """The same number everywhere."""
        is_wide = dtype in ("s64", "s32") and abs(number) >= 1 << 24
        if is_wide or dtype == "f64" and not is_f32(number):
            return self.constant(torch.full(tuple(shape), number, dtype=DTYPES[dtype]))
        return self.op("Fill", dtype=dtype, shape=list(shape), value=float(number))

    def constant(self, tensor: torch.Tensor) -> Value:
        """A tensor that is known, as an input of the graph."""
        number = len(self.made.constants)
        self.g.asker = None
        value = self.g.input(f"constant {number}", TYPES[tensor.dtype], list(tensor.shape))
        self.made.constants[value.id] = tensor
        self.made.metas[value.id] = meta_of(tensor)
        return value

    def cast(self, value: Value, dtype: str) -> Value:
        """The same numbers in another type."""
        if value.dtype == dtype:
            return value
        if dtype == "boolean":
            return self.op("NotEqual", value, self.fill(0, value.dtype))
        return self.op("Cast", value, dtype=dtype)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """The same elements in another shape."""
        if value.shape == tuple(shape):
            return value
        source = self.reshaped.get(value.id, value)
        if source.shape == tuple(shape):
            return source
        made = self.op("StaticReshape", source, shape=list(shape), special_zero=False)
        self.reshaped[made.id] = source
        return made

    def full(self, value: Value, shape: Sequence[int]) -> Value:
        """A value repeated to a shape that it broadcasts to."""
        if value.shape == tuple(shape):
            return value
        true = self.fill(1, "boolean", shape)
        return self.op("Select", true, value, value, auto_broadcast="multidirectional")

    def meta(self, node: Any = None) -> Meta:
        """How the only result of a node was traced."""
        found = self.metas_of(self.node if node is None else node)
        if isinstance(found, Meta):
            return found
        raise NotTaken("it has several results")

    def used(self, index: int) -> bool:
        """If anybody takes a result of the node."""
        return any(user.args[1] == index for user in self.node.users if user.target is operator.getitem)

    def known(self, node: Any) -> torch.Tensor | None:
        """The elements of a node if they are known ahead."""
        return self.folded.get(node)

    def keeps_packed(self, node: Any) -> bool:
        """If a node is a parameter whose packed copy outlives a call."""
        return node in self.packable

    # The walk.

    def metas_of(self, node: Node) -> Any:
        value = node.meta.get("val")
        if node in self.sizes.tokens:
            return None
        if isinstance(value, torch.Tensor):
            return self.sizes.meta(value)
        if isinstance(value, (tuple, list)):
            return tuple(self.sizes.meta(one) if isinstance(one, torch.Tensor) else None for one in value)
        return None

    def run(self) -> Converted:
        """The whole graph."""
        position = 0
        for node in self.module.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                self.placeholder(node, position)
                position += 1
            elif node.op == "output":
                self.output(node)
            elif node.op == "get_attr":
                self.attribute(node)
            elif self.sizes.is_known(node) or self.fold(node):
                continue
            elif is_view(node):
                # Only what ops of Sterna read becomes an op.
                continue
            else:
                self.call(node)
        return self.finished()

    def finished(self) -> Converted:
        """The graph without the ops that nobody needs."""
        outputs = {one for kind, one in self.made.outputs if kind == "value"}
        if self.token is not None:
            outputs.add(self.token.id)
        g, values = self.g.replayed(outputs)
        self.made.numbers = {new.id: old for old, new in values.items()}
        self.made.makers = {old: self.g.askers[old] for old in values if self.g.askers[old] is not None}
        bare = self.made.inputs.keys() | self.made.constants.keys()
        # An op that takes all results, since a partition hands out what others read.
        results = [values[one] for one in sorted(outputs - bare)]
        g.output("results", g.custom("torch::results", results, [("u8", [])])[0])
        self.made.graph = g.build()
        return self.made

    def placeholder(self, node: Node, position: int) -> None:
        if not node.users or self.sizes.is_known(node):
            return
        meta = self.metas_of(node)
        self.g.asker = None
        if isinstance(meta, Meta):
            value = self.g.input(f"input {position}", TYPES.get(meta.dtype, "u8"), list(meta.shape))
            self.made.metas[value.id] = meta
        else:
            value = self.g.input(f"input {position}", "u8", [])
        self.made.inputs[value.id] = position
        self.values[node] = self.of_torch[node] = value

    def attribute(self, node: Node) -> None:
        found: Any = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor) and found.dtype in TYPES and found.device.type == "cpu":
            self.folded[node] = found.detach()

    def fold(self, node: Node) -> bool:
        """Computes a node that depends on nothing, if it is small."""
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
            return False
        if torch.Tag.nondeterministic_seeded in target.tags:
            return False
        meta = self.metas_of(node)
        if not isinstance(meta, Meta) or meta.elements() > FOLDED or meta.dtype not in TYPES:
            return False
        if not all(argument in self.folded or self.sizes.is_known(argument) for argument in node.all_input_nodes):
            return False
        args, kwargs = self.arguments(node, lambda argument: self.folded[argument])
        with torch.no_grad():
            self.folded[node] = target(*args, **kwargs)
        return True

    def arguments(self, node: Node, of: Callable[[Node], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with known sizes as numbers."""

        def one(argument: Node) -> Any:
            return self.sizes.number(argument) if self.sizes.is_known(argument) else of(argument)

        args: Any = map_arg(node.args, one)
        kwargs: Any = map_arg(node.kwargs, one)
        return args, kwargs

    def call(self, node: Node) -> None:
        """Gives a node its values."""
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, Node)
            if source not in self.values:
                self.call(source)
            if not isinstance(self.values[source], tuple):
                # An item of an object of torch, such as a result that is several tensors itself.
                self.values[node] = self.by_torch(node)
                return
            self.values[node] = self.values[source][index]
            if source in self.of_torch:
                self.of_torch[node] = self.of_torch[source][index]
            return
        row, reason = self.row_of(node), self.kept.get(node)
        if row is None and reason is None:
            reason = f"no row for {node.target}"
        if row is not None and reason is None:
            before, self.node = self.node, node
            try:
                self.values[node] = self.by_row(node, row)
                return
            except (NotTaken, sterna.Error, ValueError, OverflowError) as error:
                reason = self.kept[node] = str(error) or type(error).__name__
            finally:
                self.node = before
        assert reason is not None
        self.made.reasons[node] = reason
        self.values[node] = self.torch_value(node) if is_view(node) else self.by_torch(node)

    def row_of(self, node: Node) -> Row | None:
        """The row of an op, by its name if it belongs to a package that may come later."""
        return self.rows.get(node.target) or self.rows.get(str(node.target))

    def by_row(self, node: Node, row: Row) -> Any:
        metas: Any = self.metas_of(node)
        for meta in metas if isinstance(metas, tuple) else (metas,):
            if meta is not None and meta.dtype not in TYPES:
                raise NotTaken(f"results of type {meta.dtype}")
        of: Callable[[Node], Any] = lambda argument: self.operand(argument, row.broadcasts)
        args, kwargs = self.arguments(node, (lambda argument: argument) if row.takes_nodes else of)
        made = row.make(self, *args, **kwargs)
        if isinstance(made, tuple):
            pairs: list[tuple[Any, Any]] = list(zip(made, metas, strict=False))
        else:
            pairs = [(made, metas)]
        for value, meta in pairs:
            if value is not None:
                self.check(value, meta, row.broadcasts)
        return made

    def check(self, value: Value, meta: Meta, may_broadcast: bool) -> None:
        """Refuses a result that is not what torch has."""
        shape = value.shape
        if value.dtype != TYPES[meta.dtype]:
            raise NotTaken(f"the result would be {value.dtype}, not {TYPES[meta.dtype]}")
        fits = shape is not None and len(shape) == len(meta.shape)
        if fits and shape != meta.shape:
            assert shape is not None
            fits = may_broadcast and all(a in (1, b) for a, b in zip(shape, meta.shape, strict=True))
        if not fits:
            raise NotTaken(f"the result would have the shape {shape}, not {meta.shape}")
        self.made.metas.setdefault(value.id, meta)

    def operand(self, node: Node, may_broadcast: bool) -> Any:
        """The value of a node for ops of Sterna."""
        meta = self.metas_of(node)
        if not isinstance(meta, Meta):
            raise NotTaken("an argument is no tensor")
        if meta.dtype not in TYPES:
            raise NotTaken(f"an argument of type {meta.dtype}")
        if node in self.folded and node not in self.values:
            self.values[node] = self.of_folded(self.folded[node])
        if node not in self.values:
            self.call(node)
        value = self.values[node]
        return value if may_broadcast else self.full(value, meta.shape)

    def repeated(self, node: Node) -> Any:
        """The value of a node in its shape. What a view of torch repeats lies in memory once."""
        lacks = self.operand(node, True).shape != self.metas_of(node).shape
        return self.torch_value(node) if lacks and is_view(node) else self.operand(node, False)

    def of_folded(self, tensor: torch.Tensor) -> Value:
        if tensor.numel() == 1:
            number = tensor.item()
            if is_f32(number):
                return self.fill(float(number), TYPES[tensor.dtype], tuple(tensor.shape))
        return self.constant(tensor)

    def torch_value(self, node: Node) -> Any:
        """The value of a node for torch: views of what there is are views."""
        if node in self.of_torch:
            return self.of_torch[node]
        if node in self.folded:
            value: Any = self.constant(self.folded[node])
        elif node.target is operator.getitem:
            source = node.args[0]
            assert isinstance(source, Node)
            value = self.torch_value(source)[node.args[1]]
        elif is_view(node):
            return self.by_torch(node)
        else:
            value, meta = self.values[node], self.metas_of(node)
            if isinstance(meta, Meta) and not self.lies_as(value, meta):
                args = (Ref(value.id), meta.shape, meta.strides)
                value = self.torch_call(node, laid_out, args, {}, [value], (meta,), False)[0]
        self.of_torch[node] = value
        return value

    def lies_as(self, value: Value, meta: Meta) -> bool:
        """If a value has the shape and the strides of a traced tensor; a copy that Sterna left out may have others."""
        known = self.made.metas.get(value.id, meta)
        strides = zip(meta.shape, known.strides, meta.strides, strict=False)
        return value.shape == meta.shape and all(one == other for size, one, other in strides if size > 1)

    def by_torch(self, node: Node) -> Any:
        """A node as a call of torch."""
        operands: list[Value] = []

        def one(argument: Node) -> Any:
            if argument.op == "get_attr" and argument not in self.folded:
                return getattr(self.module, str(argument.target))
            value = self.torch_value(argument)
            values = value if isinstance(value, tuple) else (value,)
            operands.extend(values)
            refs = tuple(Ref(one.id) for one in values)
            return refs if isinstance(value, tuple) else refs[0]

        args, kwargs = self.arguments(node, one)
        metas = self.metas_of(node)
        function: Any = node.target
        if function in (aten.view.default, aten._unsafe_view.default):
            function = aten.reshape.default
        elif (row := self.row_of(node)) is not None:
            function = row.in_torch or function
        is_tuple = isinstance(metas, tuple)
        made = self.torch_call(node, function, args, kwargs, operands, metas if is_tuple else (metas,), is_tuple)
        result = made if is_tuple else made[0]
        self.of_torch[node] = result
        return result

    def torch_call(
        self,
        node: Node,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        operands: list[Value],
        metas: tuple[Any, ...],
        is_tuple: bool,
    ) -> tuple[Value, ...]:
        described: list[Any] = [
            (TYPES.get(meta.dtype, "u8"), list(meta.shape)) if isinstance(meta, Meta) else ("u8", []) for meta in metas
        ]
        is_ordered = has_effects(node)
        if is_ordered:
            # What has effects runs in the order in which it was traced.
            described.append(("u8", []))
            if self.token is not None:
                operands = [*operands, self.token]
        self.g.asker = node
        results = self.g.custom("torch::call", operands, described)
        if is_ordered:
            self.token = results[-1]
        for value, meta in zip(results, metas, strict=False):
            if isinstance(meta, Meta):
                self.made.metas[value.id] = meta
        numbers = tuple(value.id for value in results[: len(metas)])
        self.made.calls[results[0].id] = Call(node, function, args, kwargs, numbers, is_tuple)
        return results[: len(metas)]

    def output(self, node: Node) -> None:
        found = node.args[0]
        for one in found if isinstance(found, (tuple, list)) else (found,):
            if not isinstance(one, Node):
                self.made.outputs.append(("is", one))
            elif self.sizes.is_known(one):
                self.made.outputs.append(("is", self.sizes.number(one)))
            else:
                value = self.torch_value(one)
                maker = self.g.askers.get(value.id)
                source = one.args[0] if one.target is operator.getitem else one
                if one in self.folded or (one.op == "call_function" and not is_view(one) and maker is not source):
                    # Another node has the memory, in which nobody may see what is done to this result.
                    value = self.copied(one, value)
                self.made.outputs.append(("value", value.id))

    def copied(self, node: Node, value: Value) -> Value:
        meta = self.metas_of(node)
        return self.torch_call(node, aten.clone.default, (Ref(value.id),), {}, [value], (meta,), False)[0]


def laid_out(tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """The elements of a tensor with other strides, and repeated to a shape."""
    return torch.empty_strided(shape, strides, dtype=tensor.dtype).copy_(tensor)


def is_f32(number: float) -> bool:
    """If an f32 holds a number."""
    return number != number or float(torch.tensor(number, dtype=torch.float32)) == number


def has_effects(node: Node) -> bool:
    """If a node must keep its place among others: it writes to an argument or draws numbers."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is not operator.getitem
    return target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags


def convert(
    rows: dict[Any, Row], module: GraphModule, sizes: Sizes, kept: dict[Node, str], packable: frozenset[int] = frozenset()
) -> Converted:
    """The graph of a module. Nodes that cannot be taken are added to those that torch keeps."""
    while True:
        before = len(kept)
        made = Lowering(rows, module, sizes, kept, packable).run()
        if len(kept) == before:
            return made
