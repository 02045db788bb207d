"""A file of a model, and an op of one's own as a function: what Sterna does not run, Python does.

    python python/examples/model.py [MODEL.onnx | MODEL.xml | GRAPH.json]
"""

import pathlib
import sys

import numpy as np

import sterna

GRAPH = pathlib.Path(__file__).resolve().parents[2] / "examples/graphs/gpt_additive_mask.json"
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "boolean": np.bool_, "s32": np.int32, "s64": np.int64}


def filled(port: dict[str, object], length: int) -> np.ndarray:
    """Numbers for an input, with a length for dims that are open."""
    shape = [length if dim is None else dim for dim in port["shape"]]
    return np.random.default_rng(0).standard_normal(shape).astype(TYPES[port["dtype"]])


def run(path: pathlib.Path) -> None:
    session = sterna.load(path)
    print(session)
    inputs = {port["name"]: filled(port, 8) for port in session.inputs}
    outputs, spans = session.run_profiled(inputs)
    for name, array in outputs.items():
        print(f"{name}: {array.dtype} {array.shape}")
    # `pandas.DataFrame(spans)` is a table.
    for span in spans:
        print(f"  {span['kind']:10} {1e6 * span['seconds']:8.1f} µs  {span['ops']}")


def with_a_function() -> None:
    g = sterna.GraphBuilder()
    x = g.input("x", "f32", [None])
    (sorted_x,) = g.custom("example::Sort", [x], ["f32"], descending=True)
    g.output("y", sorted_x * 2.0)

    def sort(array: np.ndarray, *, descending: bool) -> np.ndarray:
        return np.sort(array)[::-1] if descending else np.sort(array)

    session = g.build().session(ops={"example::Sort": sort})
    y = session(x=np.array([1, 3, 2], np.float32))["y"]
    print(y)
    assert y.tolist() == [6, 4, 2]


if __name__ == "__main__":
    run(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else GRAPH)
    with_a_function()
