"""The graph of a case in lines, for the server of oneDNN: `KIND ATTRIBUTES INPUTS OUTPUT:TYPE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cases import Case


def _line(op: dict[str, Any]) -> str:
    attributes = [f"{name}={attr['type']}:{attr['value']}" for name, attr in op["attrs"].items() if attr["value"] != []]
    inputs = [str(tensor["id"]) for tensor in op["inputs"]]
    (output,) = op["outputs"]
    words = (",".join(attributes) or "-", ",".join(inputs) or "-", f"{output['id']}:{output['dtype']}")
    return " ".join((op["kind"], *words))


def save_lines(case: Case, json_path: Path, path: Path) -> None:
    if case.is_select:
        lines = [f"Select auto_broadcast=string:numpy 0,1,2 3:{case.dtype}"]
    else:
        lines = [_line(op) for op in json.loads(json_path.read_text())["graph"]]
    path.write_text("".join(line + "\n" for line in lines))
