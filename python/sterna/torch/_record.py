"""A builder that keeps what it was told, so that what nobody needs can be left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna import GraphBuilder, Value

Again = Callable[[GraphBuilder, list[Any]], tuple[Value, ...]]


class Recorder(GraphBuilder):
    """Builds a graph and remembers how."""

    def __init__(self) -> None:
        self.records: list[tuple[list[Any], tuple[Value, ...], Again]] = []
        #: What is told of each value by its number: who asked for it.
        self.asker: Any = None
        self.askers: dict[int, Any] = {}

    def record(self, operands: Sequence[Any], results: tuple[Value, ...], again: Again) -> None:
        self.records.append((list(operands), results, again))
        for value in results:
            self.askers[value.id] = self.asker

    def input(self, name: str, dtype: Any, shape: Sequence[int | None]) -> Value:
        value = super().input(name, dtype, shape)
        self.record((), (value,), lambda g, given: (g.input(name, dtype, shape),))
        return value

    def op(
        self,
        kind: str,
        operands: Sequence[Value | float],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        name: str | None = None,
        dtype: Any = None,
    ) -> tuple[Value, ...]:
        settings: dict[str, Any] = {"outputs": outputs, "name": name, "dtype": dtype}
        results = super().op(kind, operands, attributes, **settings)
        self.record(operands, results, lambda g, given: g.op(kind, given, attributes, **settings))
        return results

    def custom(
        self, op: str, operands: Sequence[Value], outputs: Sequence[Any], **attributes: Any
    ) -> tuple[Value, ...]:
        results = super().custom(op, operands, outputs, **attributes)
        self.record(operands, results, lambda g, given: g.custom(op, given, outputs, **attributes))
        return results

    def attention(self, q: Value, k: Value, v: Value, mask: Value | None = None, **options: Any) -> Value:
        names = [name for name, value in options.items() if isinstance(value, Value)]
        operands = [q, k, v, mask, *(options[name] for name in names)]
        value = super().attention(q, k, v, mask, **options)

        def again(g: GraphBuilder, given: list[Any]) -> tuple[Value, ...]:
            more = dict(zip(names, given[4:], strict=True))
            return (g.attention(*given[:4], **{**options, **more}),)

        self.record(operands, (value,), again)
        return value

    def replayed(self, needed: set[int]) -> tuple[GraphBuilder, dict[int, Value]]:
        """A builder with the ops that some values need, and the values there by their numbers here."""
        needed = set(needed)
        kept: list[Any] = []
        for record in reversed(self.records):
            if any(result.id in needed for result in record[1]):
                needed.update(operand.id for operand in record[0] if isinstance(operand, Value))
                kept.append(record)
        g, values = GraphBuilder(), dict[int, Value]()
        for operands, results, again in reversed(kept):
            given = [values[one.id] if isinstance(one, Value) else one for one in operands]
            for old, new in zip(results, again(g, given), strict=True):
                values[old.id] = new
        return g, values
