"""Models are read and run as a whole, with states and functions of Python."""

import pathlib
import threading

import models
import numpy as np
import pytest

import sterna

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = models.model(
    [models.node("Add", ["x", "w"], ["sum"]), models.node("Relu", ["sum"], ["y"])],
    [models.value_info("x", ["batch", 3]), models.value_info("w", [3])],
    [models.value_info("y", ["batch", 3])],
)
GIVEN = {"x": np.array([[-5, 0, 5]], np.float32), "w": np.array([1, 2, 3], np.float32)}


def test_onnx(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(MODEL)
    for source in (path, str(path), MODEL):
        session = sterna.load(source)
        assert session(**GIVEN)["y"].tolist() == [[0, 2, 8]]
        assert repr(session) == "Session(x, w -> y)"
    assert session.inputs[0] == {
        "name": "x", "names": ("x",), "dtype": "f32", "shape": (None, 3), "dim_names": ("batch", None),
    }  # fmt: skip
    assert [port["name"] for port in session.outputs] == ["y"]
    assert session.output_shapes({"x": [7, 3], "w": [3]}) == {"y": (7, 3)}
    assert session.run({"x": [[1, 1, 1]] * 2, "w": 1.0 * GIVEN["w"]})["y"].shape == (2, 3)
    assert session.run_memory >= 0 and session.bytes_moved > 0 and session.run_steps == (1, 0)


def test_openvino_and_json():
    session = sterna.load(ROOT / "import/tests/data/masked_scores.xml")
    assert "scores" in [port["name"] for port in session.inputs]
    path = ROOT / "examples/graphs/gpt_additive_mask.json"
    for source in (path, path.read_bytes()):
        session = sterna.load(source)
        shapes = {port["name"]: port["shape"] for port in session.inputs}
        types = {"boolean": np.bool_, "f32": np.float32, "bf16": None, "s32": np.int32, "s64": np.int64}
        given = {port["name"]: np.zeros(shapes[port["name"]], types[port["dtype"]]) for port in session.inputs}
        assert session.run(given)
    graph = sterna.Graph.read(MODEL, shapes={"x": [2, 3]})
    assert [op["kind"] for op in graph.ops] == ["Add", "ReLU"]


def test_files_that_do_not_do(tmp_path):
    for text in (b"", b"no model", MODEL[:-1], b"<net></net>"):
        with pytest.raises(sterna.ModelError):
            sterna.load(text)
    with pytest.raises(sterna.ModelError):
        sterna.load(tmp_path / "none.onnx")
    with pytest.raises(sterna.ModelError):
        sterna.load(tmp_path)
    with pytest.raises(sterna.JsonError):
        sterna.load(b" {]")
    with pytest.raises(TypeError):
        sterna.load(7)


def test_results_outlive_the_session():
    y = sterna.load(MODEL)(**GIVEN)["y"]
    assert y.flags.writeable and not y.flags.owndata
    rows = y[:, 1:]
    del y
    assert rows.tolist() == [[2, 8]]


def test_inputs_that_do_not_do():
    session = sterna.load(MODEL)
    for given, error, word in [
        ({"x": GIVEN["x"]}, sterna.SessionError, "`w` is missing"),
        (GIVEN | {"z": 1.0}, sterna.SessionError, "`z`"),
        (GIVEN | {"x": GIVEN["x"].astype(np.float64)}, sterna.SessionError, "f64"),
        (GIVEN | {"x": np.zeros((2, 4), np.float32)}, sterna.ShapeError, "x"),
        (GIVEN | {"x": object()}, sterna.ArrayError, "`x`"),
    ]:
        with pytest.raises(error, match=word):
            session.run(given)
    with pytest.raises(sterna.SessionError) as caught:
        session.run(GIVEN | {"xx": GIVEN["x"]})
    assert (caught.value.fault, caught.value.name) == ("UnknownName", "xx")


def test_out():
    session = sterna.load(MODEL)
    out = np.zeros((1, 3), np.float32)
    assert session.run(GIVEN, out={"y": out})["y"] is out
    assert out.tolist() == [[0, 2, 8]]
    wide = np.zeros((1, 6), np.float32)
    assert session.run(GIVEN, out={"y": wide[:, ::2]})["y"].tolist() == [[0, 2, 8]]
    assert wide.tolist() == [[0, 0, 2, 0, 8, 0]]
    for given, error in [
        ({"z": out}, sterna.SessionError),
        ({"y": np.zeros((1, 4), np.float32)}, sterna.ShapeError),
        ({"y": np.zeros((1, 3))}, sterna.SessionError),
        ({"y": wide[:, :3].astype(np.float64)[:, ::-1]}, sterna.ArrayError),
        ({"y": [[0.0]]}, sterna.ArrayError),
    ]:
        with pytest.raises(error):
            session.run(GIVEN, out=given)


def test_profile():
    session = sterna.load(MODEL)
    outputs, spans = session.run_profiled(GIVEN)
    assert outputs["y"].tolist() == [[0, 2, 8]]
    assert spans[-1]["kind"] == "execute" and spans[-1]["ops"] == "Add ReLU" and spans[-1]["seconds"] > 0
    assert {span["kind"] for span in session.plan_profile()} >= {"partition", "compile"}


def test_values_that_decide_shapes_and_branches_are_constants():
    reshape = models.model(
        [models.node("Reshape", ["x", "dims"], ["y"])],
        [models.value_info("x", [2, 3]), models.value_info("dims", [2], 7)],
        [models.value_info("y", ["a", "b"])],
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.raises(sterna.SessionError, match="is no constant"):
        sterna.load(reshape)
    for dims in ([3, 2], np.array([1, -1])):
        session = sterna.load(reshape, values={"dims": dims})
        np.testing.assert_array_equal(session.run({"x": x})["y"], x.reshape(dims))
    with pytest.raises(sterna.ArrayError, match="`dims`: "):
        sterna.load(reshape, values={"dims": object()})
    assert len(sterna.Graph.read(reshape, values={"dims": [6, 1]}).ops) == 1


def scaled(values=(models.value_info("t", ["m"]),), **attributes):
    return models.model(
        [models.node("Scale", ["x"], ["t"], "my", **attributes), models.node("Relu", ["t"], ["y"])],
        [models.value_info("x", ["n"])],
        [models.value_info("y", ["n"])],
        ("my",),
        values,
    )


X = np.array([-1, 2], np.float32)


def test_functions_as_ops():
    calls = []

    def scale(x, *, factor):
        calls.append(x)
        return x * np.float32(factor)

    session = sterna.load(scaled(factor=2.5), ops={"my::Scale": scale})
    assert session(x=X)["y"].tolist() == [0, 5]
    assert session(x=X * 2)["y"].tolist() == [0, 10]
    # Once for the shapes, and once for each run; what the function keeps stays as it was.
    assert [call.tolist() for call in calls] == [[0, 0], [-1, 2], [-2, 4]]
    assert session.run_steps == (1, 1)
    known = (models.value_info("t", ["n"]),)
    with pytest.raises(sterna.SessionError, match="my::Scale") as caught:
        sterna.load(scaled(known, factor=2.5), partial=True)(x=X)
    assert caught.value.fault == "MissingOps" and caught.value.ops[0].op == "my::Scale"


@pytest.mark.parametrize(
    "function",
    [
        lambda x, **_: 1 / 0,
        lambda x, **_: x.astype(np.float64),
        lambda x, **_: (x, x),
        lambda x, **_: None,
        lambda x, **_: object(),
        lambda: None,
    ],
)
def test_functions_that_fail(function):
    session = sterna.load(scaled(factor=2.5), ops={"my::Scale": function})
    with pytest.raises(sterna.SessionError) as caught:
        session(x=X)
    assert caught.value.fault == "Custom" and caught.value.op == "my::Scale"
    assert caught.value.__cause__ is not None


def test_an_interrupt_in_a_function():
    def interrupted(_, **__):
        raise KeyboardInterrupt

    session = sterna.load(scaled(factor=2.5), ops={"my::Scale": interrupted})
    with pytest.raises(KeyboardInterrupt):
        session(x=X)


def test_a_function_whose_type_the_model_does_not_say():
    session = sterna.load(scaled(values=()), ops={"my::Scale": lambda x: x})
    with pytest.raises(sterna.SessionError, match="no type"):
        session(x=X)


def test_a_function_whose_result_changes():
    shapes = iter([(2,), (3,)])
    session = sterna.load(scaled(), ops={"my::Scale": lambda x: np.zeros(next(shapes), np.float32)})
    with pytest.raises(sterna.SessionError):
        session(x=X)
    with pytest.raises(TypeError, match="int"):
        sterna.load(scaled(), ops={"my::Scale": 7})


def test_a_custom_op_of_the_builder():
    g = sterna.GraphBuilder()
    x = g.input("x", "f32", [None])
    low, high = g.custom("my::Split", [x], ["f32", ("f32", [1])], at=1.5)
    g.output("low", low)
    g.output("high", high + 1.0)
    session = g.build().session(ops={"my::Split": lambda x, at: (x[x < at], x[x >= at][:1])})
    # The shapes of results follow from shapes alone, so that this function has to contradict itself.
    with pytest.raises(sterna.Error):
        session(x=np.array([1, 2, 3], np.float32))


def cached():
    g = sterna.GraphBuilder()
    past, x = g.input("past", "f32", [None, 2]), g.input("x", "f32", [None, 2])
    rows = g.concat([past, x], axis=0)
    g.output("present", rows)
    g.output("sum", g.reduce_sum(rows, axes=[0]))
    return g.build()


def test_states():
    session = cached().session(states=[("past", "present")])
    state = session.new_state()
    assert len(state) == 0 and state
    session.run({"x": [[1, 2], [3, 4]]}, state=state)
    other = state.fork()
    assert session.run({"x": [[5, 6]]}, state=state)["sum"].tolist() == [9, 12]
    assert (len(state), len(other)) == (3, 2) and state.capacity >= 3 and state.memory > 0
    assert state.get("past").tolist() == [[1, 2], [3, 4], [5, 6]]
    other.trim(1)
    out = np.zeros(2, np.float32)
    assert session.run({"x": [[0, 1]]}, state=other, out={"sum": out})["sum"] is out
    assert out.tolist() == [1, 3]
    other.set("past", np.ones((4, 2), np.float32))
    assert len(other) == 4 and repr(other).startswith("State(len=4")
    other.reset()
    assert len(other) == 0
    with pytest.raises(sterna.SessionError):
        state.get("none")
    with pytest.raises(sterna.Error):
        state.set("past", np.ones((4, 3), np.float32))
    with pytest.raises(sterna.SessionError):
        cached().session(states=[("past", "present")]).run({"x": [[1, 2]]}, state=state)
    with pytest.raises(sterna.SessionError):
        cached().session().new_state()
    window = cached().session(states=[{"past": "past", "present": "present", "window": 2}])
    state = window.new_state()
    for row in range(4):
        outputs = window.run({"x": [[row, row]]}, state=state)
    assert len(state) == 2 and outputs["sum"].tolist() == [6, 6]
    assert cached().session(states=True)
    # A state that is fixed starts with the dims that it is given.
    fixed = cached().session(states=[{"past": "past", "present": "present", "fixed": True}])
    with pytest.raises(sterna.SessionError):
        fixed.run({"x": [[1, 2]]}, state=fixed.new_state())
    with pytest.raises(TypeError):
        cached().session(states=[{"passed": "past"}])


def test_a_state_serves_one_run_at_a_time():
    seen = []

    def look(x):
        if x.any():
            try:
                len(state)
            except sterna.SessionError as error:
                seen.append(str(error))
        return x

    g = sterna.GraphBuilder()
    total = g.input("total", "f32", [1])
    (x,) = g.custom("my::Look", [g.input("x", "f32", [1])], [("f32", [1])])
    g.output("next", total + x)
    session = g.build().session(states=[("total", "next")], ops={"my::Look": look})
    state = session.new_state()
    session.run({"x": [1]}, state=state)
    assert seen == ["session: the state is in use by a run"]


def test_settings():
    engine = sterna.Engine(threads=1)
    session = sterna.load(MODEL, engine=engine, fpmath="bf16", kept_shapes=2, arenas=1, fallback=True)
    for rows in range(1, 6):
        assert session.run(GIVEN | {"x": np.zeros((rows, 3), np.float32)})["y"].shape == (rows, 3)
    with pytest.raises(ValueError, match="bf17"):
        sterna.load(MODEL, fpmath="bf17")


def test_many_threads():
    session = sterna.load(scaled(factor=2.0), ops={"my::Scale": lambda x, factor: x * np.float32(factor)})
    faults = []

    def work(seed):
        for length in range(1, 40):
            x = np.arange(length, dtype=np.float32) * seed
            if session(x=x)["y"].tolist() != (2 * x).tolist():
                faults.append(length)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_state_with_memory_of_the_caller():
    session = cached().session(states=[("past", "present")])
    state, out = session.new_state(), np.zeros(2, np.float32)
    assert session.output_shapes({"x": (3, 2)}, state=state) == {"sum": (2,)}
    for row in ([1.0, 2.0], [3.0, 4.0]):
        written = session.run({"x": [row]}, out={"sum": out}, state=state)
        assert list(written) == ["sum"] and written["sum"] is out
    assert out.tolist() == [4.0, 6.0] and len(state) == 2
    # With other strides it is copied.
    strided = np.zeros(4, np.float32)[::2]
    assert session.run({"x": [[0.0, 1.0]]}, out={"sum": strided}, state=state)["sum"].tolist() == [4.0, 7.0]
    with pytest.raises(sterna.SessionError):
        session.run({"x": [[0.0, 1.0]]}, out={"present": np.zeros((4, 2), np.float32)}, state=state)


def test_profiles_with_a_state():
    session = cached().session(states=[{"past": "past", "present": "present", "capacity": 8}])
    state = session.new_state()
    outputs, rows = session.run_profiled({"x": [[1.0, 2.0]]}, state=state)
    assert list(outputs) == ["sum"] and len(state) == 1
    assert {"execute", "copy"} >= {row["kind"] for row in rows if row["kind"] in ("execute", "copy")} != set()
    assert {row["kind"] for row in session.plan_profile()} >= {"infer"}


def test_the_engine_and_the_arena():
    g = sterna.GraphBuilder()
    x, w = g.input("x", "f32", [64, 64]), g.input("w", "f32", [64, 64])
    g.output("y", g.matmul(g.matmul(x, w), w))
    session = g.build().session(engine=sterna.Engine(threads=1))
    assert session.engine.threads == 1
    plan = session.arena_plan()
    assert [step["kind"] for step in plan["steps"]] == ["execute", "execute"]
    (buffer,) = plan["buffers"]
    assert (buffer["first_step"], buffer["last_step"]) == (0, 1) and plan["bytes"] >= buffer["bytes"] == 64 * 64 * 4
    assert cached().session().arena_plan() is None


def test_relaxed_arithmetic():
    graph = cached()
    for mode in ("strict", "bf16", ("any", True), ("tf32", False)):
        graph.session(fpmath=mode)
    for bad in ("none", ("bf16", "yes"), 1):
        with pytest.raises((ValueError, TypeError)):
            graph.session(fpmath=bad)
