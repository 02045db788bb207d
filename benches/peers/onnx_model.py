"""The model in ONNX of a case, which ONNX Runtime and OpenVINO read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from cases import DTYPES, Case, Dims


def save_model(case: Case, path: Path) -> None:
    def info(name: str, dtype: str, dims: Dims) -> onnx.ValueInfoProto:
        shown = [f"{name}_{axis}" for axis in range(len(dims))] if case.graph.open_dims else dims
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(DTYPES[dtype]), shown)

    lines = [line.strip() for line in case.graph.nodes.splitlines()]
    graph = helper.make_graph(
        [parser.parse_node(line) for line in lines if line],
        "peers",
        [info(name, operand.dtype, operand.dims) for name, operand in case.inputs.items()],
        [info("dst", case.dtype, case.dims)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in case.graph.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
