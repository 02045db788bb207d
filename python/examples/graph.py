"""A graph from values: built, looked at, and run on any number of rows.

    python python/examples/graph.py
"""

import numpy as np

import sterna


def build() -> sterna.Graph:
    """One layer: a product, a norm, and a gate that keeps what is above 1."""
    random = np.random.default_rng(0)
    g = sterna.GraphBuilder()
    x = g.input("x", "f32", [None, 64])
    weights = g.constant("weights", random.standard_normal((64, 64), np.float32) / 8)
    hidden = g.rms_norm(g.matmul(x, weights), g.constant("gamma", np.ones(64, np.float32)))
    gate = g.greater(hidden, 1.0)
    g.output("y", g.select(gate, hidden, hidden * 0.5 - 0.25))
    return g.build()


def main() -> None:
    graph = build()
    print(graph)
    for partition in graph.partitions():
        print(partition, partition.accuracy)
    for line in graph.explain():
        if line["verdict"] == "rejected":
            print(f"{line['fusion']} at {line['op']}: {line['reason']}")

    session = graph.session()
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 64), np.float32)
        y = session(x=x)["y"]
        print(y.shape, float(y.mean()))

    # An error names the values of the line that makes it.
    g = sterna.GraphBuilder()
    try:
        g.add(g.input("a", "f32", [2, 3]), g.input("b", "f32", [4]))
    except sterna.ShapeError as error:
        print(error)
        assert error.call == "Add" and error.values[1].name == "b"


if __name__ == "__main__":
    main()
