"""Writes `sterna/_builder.py`: a method for each kind of op, from the builder in Rust and the schema.

    python tests/builder_methods.py [--write]

Names, operands, required attributes and documentation are those of the tables in `src/graph/builder/kinds.rs`;
the other attributes, with types and defaults, are those of the schema that the package gives. Without --write it
prints the text.
"""

from __future__ import annotations

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KINDS = ROOT / "src/graph/builder/kinds.rs"
TARGET = ROOT / "python/sterna/_builder.py"
WIDTH = 110

TABLE = re.compile(r"^(plain|with_options|with_operands|several)! \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"((?:///[^\n]*\s*)*)(\w+)(?: / \w+)?:\s*(\w+)\s*\(([^)]*)\)\s*\[([^\]]*(?:\[\w+\][^\]]*)*)\](?:\s*->\s*(\d+))?;")

#: Types of the schema in Python.
TYPES = {
    "bool": "bool",
    "s64": "int",
    "f32": "float",
    "string": "str",
    "s64[]": "Sequence[int]",
    "f32[]": "Sequence[float]",
}
#: Outputs beside the first one that a kind has if an attribute says so.
OUTPUTS = {
    "LayerNorm": ("keep_stats", 3),
    "BatchNormForwardTraining": (None, 5),
    "PReLUBackward": (None, 2),
    "TopK": (None, 2),
}
#: Attributes whose default follows from the call.
FOLLOWING = {
    "keep_stats": "False unless given; with True the statistics are results too",
    "use_affine": "follows from the operands unless given",
}
#: Attributes that the kind requires and that have a usual value.
USUAL = {("StaticReshape", "special_zero"): False}

HEAD = '''"""The builder of graphs, with a method for each kind of op.

`tests/builder_methods.py` writes this file from the builder in Rust and the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ._sterna import GraphBuilder as NativeBuilder
from ._sterna import Value
from ._types import DTypeLike

#: A value of the builder, or a number, which takes the type of the first value that is not boolean.
Operand = Value | float


class GraphBuilder(NativeBuilder):
    """Builds a graph from values. Each op is checked when it is added, so that an error names the values of its line.

    There is a method for each kind of op. It takes operands, values or numbers, and attributes; those that
    are not given have the default of the schema. ``name`` names the op and its result; ``dtype`` is the
    type of a result whose type does not follow from the operands. Each raises ``OpError`` for operands and
    attributes that the kind does not allow and ``ShapeError`` for shapes that contradict its rule.

    >>> import numpy as np, sterna
    >>> g = sterna.GraphBuilder()
    >>> x = g.input("x", "f32", [None, 2])
    >>> w = g.constant("w", np.array([[1, 0], [0, 2]], np.float32))
    >>> g.output("y", g.softmax(g.matmul(x, w) + 1.0, axis=-1))
    >>> session = g.build().session()
    >>> session(x=np.zeros((1, 2), np.float32))["y"]
    array([[0.5, 0.5]], dtype=float32)
    """
'''


def tables():
    """The rows of the tables in Rust: name, kind, operands, parameters, number of outputs, documentation."""
    source = KINDS.read_text()
    rows = []
    for table, body in TABLE.findall(source):
        body = re.sub(r"^    ", "", body, flags=re.MULTILINE)
        for doc, name, kind, inputs, params, count in ROW.findall(body):
            lines = [line.strip().removeprefix("///").strip() for line in doc.strip().splitlines()]
            operands = [operand.strip() for operand in inputs.split(",") if operand.strip()]
            parameters = [part.split(":")[0].strip() for part in params.split(",") if ":" in part]
            rows.append((name, kind, operands, parameters, int(count or 1), " ".join(lines)))
    return rows


def literal(words):
    return "Literal[" + ", ".join(f'"{word}"' for word in words) + "]"


def type_of(attribute):
    if attribute["allowed"]:
        return literal(attribute["allowed"])
    return TYPES[attribute["type"]]


def method(name, kind, operands, parameters, count, doc, row):
    """The text of a method."""
    required = {attribute["name"]: attribute for attribute in row["attributes"]}
    takes_more = max(row["input_count"]) > len(operands) and operands
    data_type = "data_type" in parameters
    positional = [f"{operand}: Operand" for operand in operands]
    if takes_more:
        positional.append("*more: Operand")
    keywords, passed = [], []
    for parameter in parameters:
        if parameter != "data_type":
            keywords.append(f"{parameter}: {type_of(required[parameter])}")
            passed.append(parameter)
    if data_type:
        keywords.insert(0, "dtype: DTypeLike")
    optional = []
    for attribute in row["attributes"]:
        if attribute["name"] in parameters:
            continue
        usual = USUAL.get((kind, attribute["name"]))
        default = usual if usual is not None else None
        suffix = "" if default is not None else " | None"
        optional.append(f"{attribute['name']}: {type_of(attribute)}{suffix} = {default}")
        passed.append(attribute["name"])
    optional.append("name: str | None = None")
    if not data_type:
        optional.append("dtype: DTypeLike | None = None")
    flag, several = OUTPUTS.get(kind, (None, 1))
    always = count > 1
    answer = "Value" if several == 1 else "tuple[Value, ...]" if always else "Value | tuple[Value, ...]"
    # Attributes are given by name, but for those of a kind without operands.
    star = [] if takes_more else ["*"]
    signature = ["self", *positional, *star, *keywords, *optional]
    text = f"    def {name}(\n" + "".join(f"        {part},\n" for part in signature) + f"    ) -> {answer}:\n"
    text += documentation(doc, row, passed, answer)
    given = ", ".join(operands) + (", " if operands and takes_more else "") + ("*more" if takes_more else "")
    attributes = "{" + ", ".join(f'"{each}": {each}' for each in passed) + "}"
    attributes = attributes if passed else "None"
    if flag:
        text += f"        outputs = {several} if {flag} else 1\n"
    number = "outputs" if flag else str(count)
    call = f'self.op("{kind}", [{given}], {attributes}, outputs={number}, name=name, dtype=dtype)'
    if len(call) > WIDTH - 24:
        call = (
            "self.op(\n"
            f'            "{kind}",\n'
            f"            [{given}],\n"
            f"            {wrapped_dict(attributes)},\n"
            f"            outputs={number},\n"
            "            name=name,\n"
            "            dtype=dtype,\n"
            "        )"
        )
    if several == 1:
        return text + f"        return {call}[0]\n"
    if always:
        return text + f"        return {call}\n"
    return text + f"        made = {call}\n        return made if {flag} else made[0]\n"


def wrapped_dict(attributes):
    if len(attributes) < WIDTH - 14:
        return attributes
    parts = attributes.strip("{}").split(", ")
    return "{\n" + "".join(f"                {part},\n" for part in parts) + "            }"


def documentation(doc, row, passed, answer):
    """The documentation: the meaning, operands and attributes with their defaults, results."""
    first = doc.replace("\\", "\\\\")
    lines = textwrap.wrap(first, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    text = '        """' + "\n        ".join(lines) + "\n"
    shown = []
    for attribute in row["attributes"]:
        if attribute["name"] not in passed:
            continue
        default = attribute["default"]
        if attribute["name"] in FOLLOWING:
            shown.append(f"``{attribute['name']}`` {FOLLOWING[attribute['name']]}")
            continue
        default = float(f"{default:.6g}") if isinstance(default, float) else default
        says = " required" if attribute["required"] else "" if default is None else f" {default!r} unless given"
        shown.append(f"``{attribute['name']}``{says}")
    counts = row["input_count"]
    ports = ", ".join(row["inputs"])
    if ports:
        takes = f"Operands, {counts[0]} to {counts[-1]}: {ports}." if len(counts) > 1 else f"Operands: {ports}."
        text += "\n" + textwrap.indent(textwrap.fill(takes, WIDTH - 8), " " * 8) + "\n"
    if shown:
        listed = "Attributes: " + "; ".join(shown) + "."
        text += "\n" + textwrap.indent(textwrap.fill(listed, WIDTH - 8, break_on_hyphens=False), " " * 8) + "\n"
    if answer != "Value":
        gives = "Results: " + ", ".join(row["outputs"]) + "."
        text += "\n" + textwrap.indent(textwrap.fill(gives, WIDTH - 8), " " * 8) + "\n"
    return text + '        """\n'


CONCAT = '''    def concat(self, srcs: Sequence[Operand], *, axis: int, name: str | None = None) -> Value:
        """The operands one behind the other along ``axis``.

        Operands: any number.

        Attributes: ``axis`` required.
        """
        return self.op("Concat", list(srcs), {"axis": axis}, outputs=1, name=name)[0]
'''


def text(schema):
    """The file."""
    by_kind = {row["kind"]: row for row in schema}
    methods = [(row[0], method(*row, by_kind[row[1]])) for row in tables()]
    methods.append(("concat", CONCAT))
    body = "\n".join(each for _, each in sorted(methods))
    # What no method uses is not imported.
    head = HEAD if "Literal[" in body else HEAD.replace(", Literal", "")
    return head.replace("from typing import Any, Literal", "from typing import Literal") + "\n" + body


if __name__ == "__main__":
    from sterna import _sterna

    made = text(_sterna.schema())
    if "--write" in sys.argv:
        TARGET.write_text(made)
    else:
        print(made, end="")
