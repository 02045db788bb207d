"""Writes the node cases of the package onnx into a folder: import/tests/onnx_cases.rs reads them.

    write_onnx_cases.py FOLDER

Each case is a folder of its own with `model.onnx`, and with inputs and expected outputs as `input_0.pb` and so on in the
order of the model. `cases.json` lists the cases: name, op, tolerances, and how many inputs and outputs there are. A case
whose inputs or outputs are no tensors says so, and has none of them.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

# Overflows in the numbers that cases are made of.
warnings.filterwarnings("ignore")


def is_tensor(of: onnx.TypeProto) -> bool:
    return of.HasField("tensor_type")


def write(folder: Path, kind: str, infos, values) -> bool:
    """Whether all values are tensors; then they are written."""
    if not all(is_tensor(info.type) for info in infos) or len(infos) != len(values):
        return False
    for index, (info, value) in enumerate(zip(infos, values)):
        if isinstance(value, onnx.TensorProto):
            tensor = value
        else:
            tensor = numpy_helper.from_array(np.asarray(value), info.name)
        (folder / f"{kind}_{index}.pb").write_bytes(tensor.SerializeToString())
    return True


def op_of(name: str, model: onnx.ModelProto, ops: dict[str, str]) -> str:
    """The op that a case is of: its node, or, if a function is written out, the op that the function is."""
    node = model.graph.node[0]
    if len(model.graph.node) == 1 and "expanded" not in name:
        return node.op_type
    return ops.get(name.split("_expanded")[0], node.op_type)


def main() -> None:
    folder = Path(sys.argv[1])
    cases = []
    collected = sorted(collect_testcases(None), key=lambda case: case.name)
    ops = {case.name: case.model.graph.node[0].op_type for case in collected if len(case.model.graph.node) == 1}
    for case in collected:
        own = folder / case.name
        own.mkdir(parents=True, exist_ok=True)
        (own / "model.onnx").write_bytes(case.model.SerializeToString())
        (inputs, outputs), = case.data_sets
        graph = case.model.graph
        tensors = write(own, "input", graph.input, inputs) and write(own, "output", graph.output, outputs)
        cases.append({
            "name": case.name,
            "op": op_of(case.name, case.model, ops),
            "expanded": "_expanded" in case.name,
            "tensors": tensors,
            "inputs": [info.name for info in graph.input],
            "outputs": [info.name for info in graph.output],
            "rtol": case.rtol,
            "atol": case.atol,
        })
    (folder / "cases.json").write_text(json.dumps(cases, indent=0))


if __name__ == "__main__":
    main()
