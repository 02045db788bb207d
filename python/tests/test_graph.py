"""Graphs are built from values, described, cut, compiled and run."""

import importlib.util
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from builder_methods import TARGET, tables, text

import sterna

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GRAPHS = sorted((ROOT / "examples/graphs").glob("*.json"))


def test_the_builder_is_that_of_rust():
    assert TARGET.read_text() == text(sterna.schema()), "`python tests/builder_methods.py --write` writes it"


def test_every_kind_has_a_method():
    kinds = {row[1] for row in tables()} | {"Concat"}
    assert {row["kind"] for row in sterna.schema()} - kinds == {"End", "Wildcard"}


def test_operators():
    g = sterna.GraphBuilder()
    x, y = g.input("x", "f32", [2]), g.input("y", np.float32, [2])
    for name, value in {
        "a": x + y, "b": x + 1, "c": 1 + x, "d": x - y, "e": 3.0 - x, "f": x * y, "g": 2 * x, "h": x / y, "i": 6 / x,
        "j": -x, "k": x @ y,
    }.items():  # fmt: skip
        g.output(name, value)
    given = {"x": np.array([2, 3], np.float32), "y": np.array([4, 5], np.float32)}
    got = {name: array.tolist() for name, array in g.build().session().run(given).items()}
    assert got == {
        "a": [6, 8], "b": [3, 4], "c": [3, 4], "d": [-2, -2], "e": [1, 0], "f": [8, 15], "g": [4, 6],
        "h": [0.5, np.float32(0.6)], "i": [3, 2], "j": [-2, -3], "k": 23,
    }  # fmt: skip
    with pytest.raises(TypeError):
        x + "text"


def test_numbers_take_the_type_of_the_values_beside_them():
    g = sterna.GraphBuilder()
    cond, x = g.input("cond", "boolean", [2]), g.input("x", "f32", [2])
    assert g.select(cond, x, -np.inf).dtype == g.select(cond, 1, x).dtype == "f32"
    assert g.select(cond, cond, True).dtype == "boolean"
    g.output("y", g.select(cond, x, -1))
    assert g.build().session()(cond=[True, False], x=[2.0, 3.0])["y"].tolist() == [2, -1]


def test_values_and_their_builder():
    g, other = sterna.GraphBuilder(), sterna.GraphBuilder()
    x = g.input("x", "f32", [None, 4])
    assert (x.name, x.dtype, x.shape, x.id) == ("x", "f32", (None, 4), 0)
    assert repr(x) == 'Value("x", f32 [None, 4])'
    with pytest.raises(sterna.SessionError, match="another builder"):
        other.relu(x)
    with pytest.raises(sterna.SessionError, match="two inputs are called `x`"):
        g.input("x", "f32", [])
    with pytest.raises(TypeError, match="list"):
        g.relu([1.0])
    with pytest.raises(ValueError, match="NoSuchKind"):
        g.op("NoSuchKind", [x])
    with pytest.raises(ValueError, match="slope"):
        g.op("ReLU", [x], {"slope": 1})
    g.output("y", g.relu(x))
    graph = g.build()
    assert repr(graph) == "Graph(x -> y, 1 ops)"
    with pytest.raises(sterna.GraphError, match="built"):
        g.relu(x)
    with pytest.raises(sterna.GraphError, match="built"):
        g.build()


def test_options_of_ops():
    g = sterna.GraphBuilder()
    x, w = g.input("x", "bf16", [4, 8]), g.input("w", "bf16", [4, 8])
    y = g.matmul(x, w, transpose_b=True, dtype="f32", name="scores")
    assert (y.name, y.dtype, y.shape) == ("scores", "f32", (4, 4))
    dst, mean, variance = g.layer_norm(g.input("z", "f32", [3, 8]), keep_stats=True)
    assert (dst.shape, mean.shape, variance.shape) == ((3, 8), (3,), (3,))
    values, places = g.topk(dst, k=2)
    assert (values.dtype, places.dtype, places.shape) == ("f32", "s64", (3, 2))
    assert g.cast(y, dtype="f16").dtype == "f16"
    assert g.fill(dtype="s32", shape=[2], value=7).shape == (2,)
    assert g.reshape(y, shape=[2, 8]).shape == (2, 8)
    assert g.concat([y, y], axis=0).shape == (8, 4)
    with pytest.raises(sterna.OpError):
        g.softmax(y, axis=-1, mode="loud")


def test_constants():
    g = sterna.GraphBuilder()
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    w = g.constant("w", matrix.T)
    assert w.shape == (3, 2)
    matrix[:] = 0
    g.output("y", g.input("x", "f32", [3, 2]) + w + g.constant("one", [[1, 1]], dtype="f32"))
    assert g.build().session()(x=np.zeros((3, 2)).astype("f4"))["y"].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_attention_in_a_graph():
    g = sterna.GraphBuilder()
    q = g.input("q", "f32", [2, None, 8])
    mask = g.input("mask", "boolean", [None])
    g.output("y", g.attention(q, q, q, mask, mask_true="drop", causal=True, scale=0.5))
    array, drop = np.random.default_rng(0).random((2, 9, 8), np.float32), np.arange(9) > 5
    y = g.build().session()(q=array, mask=drop)["y"]
    expected = sterna.attention(array, array, array, drop, mask_true="drop", causal=True, scale=0.5)
    np.testing.assert_allclose(y, expected, atol=1e-6)


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_graphs_in_json(path):
    graph = sterna.Graph.read(path)
    assert sterna.Graph.from_json(graph.to_json()).ops == graph.ops
    partitions = graph.partitions()
    assert sum(len(partition.ops) for partition in partitions) == len(graph.ops)
    assert all(partition.is_supported == (partition.unsupported_reason is None) for partition in partitions)
    assert all(line["verdict"] in ("matched", "no_match", "rejected", "slower") for line in graph.explain())
    assert graph._repr_html_().count('<g class="node of-') == len(graph.ops)


def test_partitions():
    g = sterna.GraphBuilder()
    x = g.input("x", "f32", [None, 3])
    g.output("y", g.exp(x) + 1.0)
    graph = g.build()
    assert len(graph.partitions("debug")) == 3
    (partition,) = graph.partitions()
    assert (partition.id, partition.accuracy, partition.is_supported) == (0, "exact", True)
    assert repr(partition) == "Partition(0: Exp Fill Add)"
    assert "is open; a run tells it" in partition._repr_html_()
    with pytest.raises(sterna.CompileError):
        partition.compile()
    given = np.zeros((2, 3), np.float32)
    for key in ("x", partition.inputs[0]["id"]):
        for described in (("f32", (2, 3)), given, ("f32", (2, 3), (3, 1))):
            compiled = partition.compile({key: described})
            assert compiled.execute({"x": given})["y"].tolist() == [[2.0] * 3] * 2
    assert "bytes" in compiled.plan and compiled.bytes_moved == 48
    assert (compiled.inputs[0]["strides"], compiled.outputs[0]["shape"]) == ((3, 1), (2, 3))
    out = np.zeros((2, 3), np.float32)
    assert compiled.execute({"x": given}, out={"y": out})["y"] is out
    assert compiled.execute({"x": given}, out={"y": given})["y"].tolist() == [[2.0] * 3] * 2
    assert compiled.in_place_pairs
    for inputs, error in [
        ({}, sterna.ExecuteError),
        ({"x": np.zeros((3, 2), np.float32)}, sterna.ShapeError),
        ({"x": np.zeros((2, 3))}, sterna.TensorError),
        ({"x": np.zeros((3, 2), np.float32).T}, sterna.TensorError),
        ({"z": given}, sterna.PortError),
        ({99: given}, sterna.PortError),
    ]:
        with pytest.raises(error):
            compiled.execute(inputs)


def test_pictures_hold_no_markup_of_names():
    g = sterna.GraphBuilder()
    g.output("<script>", g.relu(g.input("<i>", "f32", [3])))
    graph = g.build()
    partition = graph.partitions()[0]
    for shown in (graph, partition, partition.compile()):
        html = shown._repr_html_()
        assert "<script>" not in html and "<i>" not in html and "&lt;script&gt;" in html


def test_pictures():
    g = sterna.GraphBuilder()
    x, mask = g.input("x", "f32", [128, 256]), g.constant("mask", np.tri(128, 256, dtype=bool))
    y = g.softmax(g.select(mask, x, -np.inf), axis=-1)
    g.output("y", y)
    g.output("z", g.op("Wildcard", [y], outputs=1, dtype="f32")[0])
    graph = g.build()
    parts = graph.partitions()
    shown = graph._repr_html_()
    # A picture with a box for each op, hatched if nothing runs it, and a plan for each partition.
    for text in ("<svg", "Select", "SoftMax", 'class="alone hatched"', "prefers-color-scheme:dark", "jp-theme"):
        assert text in shown, text
    assert shown.count("<details>") == len(parts) == 2
    assert "<summary>Partition 1: 1 op, not supported</summary>" in shown
    assert "<dt>kernels</dt>" in parts[0]._repr_html_() and "not supported" in parts[1]._repr_html_()
    # Each alone, with the id that it has in the graph.
    assert "Partition 1:" in parts[1]._repr_html_() and "Partition 0:" not in parts[1]._repr_html_()
    assert "Partition 2:" in graph.partitions("debug")[2]._repr_html_()
    for form, text in {"svg": "<svg", "html": "<!DOCTYPE html>", "dot": "digraph", "arena": "<svg"}.items():
        assert text in graph.picture(form), form
    with pytest.raises(ValueError, match="no form"):
        graph.picture("png")
    # Shapes that only a run tells leave no plan to show.
    g = sterna.GraphBuilder()
    g.output("y", g.relu(g.input("x", "f32", [None])))
    partition = g.build().partitions()[0]
    assert "the shape of tensor 0 `x` is open" in partition._repr_html_()
    assert "<dt>kernels</dt>" in partition.compile({"x": ("f32", [3])})._repr_html_()


def test_stubs_are_those_of_the_module(tmp_path):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy.stubtest", "sterna._sterna", "--ignore-missing-stub"]
    allowed = pathlib.Path(__file__).parent / "stubtest.txt"
    done = subprocess.run([*command, "--allowlist", allowed], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_types(tmp_path):
    pytest.importorskip("mypy")
    # What hands graphs of torch over is checked where torch is there.
    what = "-m" if importlib.util.find_spec("torch") is None else "-p"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, what, "sterna"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_results_get_the_strides_that_are_asked_for():
    g = sterna.GraphBuilder()
    x = g.input("x", "f32", [2, 3])
    g.output("y", g.exp(x))
    partition = g.build().partitions()[0]
    compiled = partition.compile({"x": ("f32", [2, 3])}, outputs={"y": ("f32", [2, 3], [1, 2])})
    assert compiled.outputs[0]["strides"] == (1, 2)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = compiled.execute({"x": x})["y"]
    assert y.strides == (4, 8)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    with pytest.raises(sterna.ShapeError):
        partition.compile({"x": ("f32", [2, 3])}, outputs={"y": ("f32", [3, 2])})
    with pytest.raises(sterna.PortError):
        partition.compile(outputs={"z": ("f32", [2, 3])})


def test_what_never_changes_is_packed_once():
    g = sterna.GraphBuilder()
    x, w = g.input("x", "f32", [64, 96]), g.input("w", "f32", [96, 80])
    g.output("y", g.matmul(x, w))
    partition = g.build().partitions()[0]
    given = {"x": np.ones((64, 96), np.float32), "w": np.ones((96, 80), np.float32)}
    fixed = partition.compile({"w": ("f32", [96, 80], [80, 1], True)})
    free = partition.compile({"w": ("f32", [96, 80], [80, 1], False)})
    assert [port["property"] for port in fixed.inputs if port["shape"] == (96, 80)] == ["constant"]
    assert [port["property"] for port in free.inputs if port["shape"] == (96, 80)] == ["undef"]
    for compiled in (fixed, free):
        np.testing.assert_array_equal(compiled.execute(given)["y"], np.full((64, 80), 96, np.float32))
