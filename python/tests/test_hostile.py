"""What users of such packages fell over, and what hostile objects may do."""

import collections
import gc
import os
import subprocess
import sys
import threading
import types
import weakref

import ml_dtypes
import numpy as np
import pytest

import sterna

COND = np.array([True, False, True, False])


def doubled(size=None):
    g = sterna.GraphBuilder()
    g.output("y", g.input("x", "f32", [size]) * 2.0)
    return g.build()


class Mutates:
    """An array that changes a dict while it is read."""

    def __init__(self, owner, change):
        self.owner, self.change = owner, change

    def __array__(self, dtype=None, copy=None):
        self.change(self.owner)
        return np.ones(3, np.float32)

    def __index__(self):
        self.change(self.owner)
        return 3


@pytest.mark.parametrize(
    "change",
    [lambda owner: owner.update({f"k{len(owner)}": 1}), lambda owner: owner.clear(), lambda owner: owner.pop("x", None)],
    ids=["grows", "clears", "shrinks"],
)
def test_a_dict_that_changes_while_it_is_read(change):
    graph = doubled()
    session, compiled = graph.session(), graph.partitions()[0].compile({"x": ("f32", [3])})
    for run in (session.run, compiled.execute, graph.partitions()[0].compile):
        given = {}
        given["x"] = Mutates(given, change)
        try:
            run(given)
        except sterna.Error:
            continue
    shapes = {}
    shapes["x"] = [Mutates(shapes, change)]
    assert session.output_shapes(shapes) == {"y": (3,)}
    states = {"past": "a", "present": "b"}
    states["axis"] = Mutates(states, change)
    with pytest.raises(sterna.Error):
        graph.session(states=[states])


def test_mappings_are_taken():
    x = np.ones(3, np.float32)
    for kind in (types.MappingProxyType, collections.OrderedDict, lambda given: collections.ChainMap({}, given), collections.UserDict):
        assert doubled().session(ops=kind({})).run(kind({"x": x}))["y"].tolist() == [2, 2, 2]
        out = np.zeros(3, np.float32)
        assert doubled().session().run({"x": x}, out=kind({"y": out}))["y"] is out
        assert doubled().session().output_shapes(kind({"x": (3,)})) == {"y": (3,)}
    for bad in ([("x", x)], 1, "x"):
        with pytest.raises(TypeError):
            doubled().session().run(bad)


def test_memory_is_kept_as_long_as_views():
    y = doubled().session()(x=np.ones(1 << 16, np.float32))["y"]
    view = memoryview(y[::3])
    del y
    gc.collect()
    again = [doubled().session()(x=np.zeros(1 << 16, np.float32))["y"] for _ in range(4)]
    assert all(value == 2.0 for value in view[:64]) and again[0][0] == 0

    class Owner(np.ndarray):
        pass

    x = np.ones(4, np.float32).view(Owner)
    gone = weakref.ref(x)
    sterna.select(COND, x, 0.0)
    del x
    gc.collect()
    assert gone() is None


def test_what_has_no_elements_or_no_dims():
    for shape in [(0,), (3, 0), (1, 8, 0, 4), (0, 0)]:
        x = np.zeros(shape, np.float32)
        assert sterna.select(True, x, 1.0).shape == shape
        assert sterna.select(True, x.T, 1.0).shape == x.T.shape
        assert sterna.select(np.zeros(shape, bool), x[..., ::-1], 1.0).shape == shape
        assert sterna.select(True, x, x, out=x) is x
    zero = sterna.select(np.bool_(True), np.float32(3), np.array(4, np.float32))
    assert (zero.shape, zero.dtype, zero.item()) == ((), np.float32, 3.0)
    empty = np.zeros((2, 0, 8), np.float32)
    assert sterna.attention(np.ones((2, 3, 8), np.float32), empty, empty).tolist() == np.zeros((2, 3, 8)).tolist()


def test_unaligned_and_odd_bytes():
    x = np.arange(17, dtype=np.uint8)[1:].view(np.float32)
    assert not x.flags.aligned
    assert sterna.select(COND, x, 0.0).tobytes() == np.where(COND, x, np.float32(0)).tobytes()
    out = np.zeros(17, np.uint8)[1:].view(np.float32)
    sterna.select(COND, np.ones(4, np.float32), 0.0, out=out)
    assert out.tolist() == [1, 0, 1, 0]
    # A boolean is true if its byte is not 0, as in NumPy.
    odd = np.array([7, 0, 255, 2], np.uint8).view(bool)
    assert sterna.select(odd, np.ones(4), 0.0).tolist() == [1, 0, 1, 1]


def test_overlaps():
    memory = np.arange(8, dtype=np.float32)
    x, out = memory[:4], memory[1:5]
    with pytest.raises(sterna.ExecuteError, match="overlap"):
        sterna.select(COND, x, 0.0, out=out)
    assert memory.tolist() == list(range(8))
    # A result whose elements lie one upon the other.
    with pytest.raises(sterna.Error):
        sterna.select(COND, np.ones((2, 4), np.float32), 0.0, out=np.lib.stride_tricks.as_strided(memory, (2, 4), (0, 4)))
    q = np.ones((1, 4, 8), np.float32)
    with pytest.raises(sterna.ExecuteError, match="overlap"):
        sterna.attention(q, q, q, out=q)
    session = doubled(4).session()
    with pytest.raises(sterna.ExecuteError, match="overlap"):
        session.run({"x": memory[:4]}, out={"y": memory[1:5]})


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array(np.ones(4, np.float32), mask=COND)
    for arguments in [(masked.astype(bool), 1.0, 0.0), (COND, masked, 0.0)]:
        with pytest.raises(sterna.ArrayError, match="masked array"):
            sterna.select(*arguments)
    assert sterna.select(COND, masked.data, 0.0).tolist() == [1, 0, 1, 0]
    assert sterna.select(COND, np.ones(4).view(np.recarray), 0.0).tolist() == [1, 0, 1, 0]


class Copies:
    """Hands over a copy of its array, and says so if the version allows it."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, max_version=None, copy=None, **options):
        return self.array.__dlpack__(max_version=max_version, copy=True, **options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Version(Copies):
    """Asks which version it is asked for."""

    asked = None

    def __dlpack__(self, *, max_version=None, **options):
        Version.asked = max_version
        return self.array.__dlpack__(max_version=max_version)


def test_versions_of_dlpack():
    x = np.arange(4, dtype=np.float32)
    assert sterna.select(COND, Version(x), 0.0).tolist() == [0, 0, 2, 0]
    assert Version.asked[0] >= 1
    assert sterna.select(COND, Copies(x), 0.0).tolist() == [0, 0, 2, 0]
    # A result in a copy would be lost.
    with pytest.raises(sterna.ArrayError, match="copy"):
        sterna.select(COND, x, 0.0, out=Copies(x))


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(4, dtype=jax.numpy.float32)
    assert sterna.select(jax.numpy.asarray(COND), x, 0.0).tolist() == [0, 0, 2, 0]
    assert sterna.select(COND, jax.numpy.ones(4, jax.numpy.bfloat16), 0.0).dtype == ml_dtypes.bfloat16
    assert sterna.select(COND, jax.numpy.ones((), jax.numpy.float32), jax.numpy.zeros(4)).tolist() == [1, 0, 1, 0]
    # An array of JAX never changes.
    with pytest.raises(sterna.ArrayError, match="read-only"):
        sterna.select(COND, 1.0, jax.numpy.zeros(4), out=x)
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["int4", "uint4", "float4_e2m1fn", "float8_e4m3b11fnuz", "float8_e8m0fnu", "int2"])
def test_other_types_of_ml_dtypes_are_refused(name):
    if not hasattr(ml_dtypes, name):
        pytest.skip("this version has no such type")
    with pytest.raises(sterna.ArrayError, match="no tensor has elements"):
        sterna.select(COND, np.zeros(4, getattr(ml_dtypes, name)), 0)


WITHOUT_ML_DTYPES = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, sterna
assert sterna.select([True, False], np.ones(2, np.float32), 0.0).tolist() == [1.0, 0.0]
g = sterna.GraphBuilder()
g.output("y", g.relu(g.input("x", "bf16", [2])))
session = g.build().session()
try:
    session.run({"x": [1.0, -1.0]})
except sterna.ArrayError as error:
    assert "ml_dtypes" in str(error), error
else:
    raise SystemExit("it made an array of a type that is not there")
"""


def test_without_ml_dtypes():
    subprocess.run([sys.executable, "-c", WITHOUT_ML_DTYPES], check=True, timeout=120)


# In an interpreter of its own: others may have started threads here that do not outlive a fork.
PROCESSES = """
import multiprocessing, sys
import numpy as np
import sterna

def in_child(queue):
    x = np.ones((512, 4096), np.float32)
    with sterna.Engine(threads=4):
        y = sterna.select(np.tri(512, 4096, dtype=bool), x, 0.0)
    q = np.ones((8, 256, 64), np.float32)
    sterna.attention(q, q, q, causal=True)
    queue.put(float(y.sum()))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    # The workers of the parent are awake, or asleep, when it forks.
    in_child(queue)
    expected = queue.get(timeout=60)
    processes = [context.Process(target=in_child, args=(queue,)) for _ in range(3)]
    for process in processes:
        process.start()
    assert [queue.get(timeout=60) for _ in processes] == [expected] * 3
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes(method, tmp_path):
    script = tmp_path / "processes.py"
    script.write_text(PROCESSES)
    subprocess.run([sys.executable, script, method], check=True, timeout=200)


def test_threads_on_one_session_and_one_engine():
    session, engine, wrong = doubled().session(), sterna.Engine(threads=2), []

    def run(seed):
        random = np.random.default_rng(seed)
        with engine:
            for _ in range(60):
                x = random.standard_normal(random.integers(1, 3000), np.float32)
                cond = x > 0
                if not np.array_equal(session(x=x)["y"], x * 2) or not np.array_equal(
                    sterna.select(cond, x, 0.0), np.where(cond, x, np.float32(0))
                ):
                    wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_array_that_another_thread_replaces():
    # Strides and shape are read once, so that a call runs on what was there.
    stop, x = threading.Event(), [np.ones((64, 64), np.float32)]

    def replace():
        while not stop.is_set():
            x[0] = np.ones((64, 64), np.float32)[:, ::-1]
            x[0] = np.ones((64, 64), np.float32).T

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(300):
            assert sterna.select(True, x[0], 0.0).sum() == 64 * 64
    finally:
        stop.set()
        thread.join()


def test_many_dims_and_huge_shapes():
    with pytest.raises((sterna.Error, ValueError)):
        sterna.select(True, np.zeros((1,) * 40), 0.0)
    # More elements than there are addresses, without memory.
    huge = np.broadcast_to(np.float32(0), (1 << 30, 1 << 30))
    with pytest.raises((sterna.Error, MemoryError, ValueError)):
        sterna.select(True, huge, 0.0)
    with pytest.raises((sterna.Error, MemoryError, ValueError, OverflowError)):
        doubled().session().output_shapes({"x": [1 << 62]})
    with pytest.raises(OverflowError):
        doubled().session().output_shapes({"x": [1 << 70]})


def test_files_that_are_none(tmp_path):
    for name, content in {"a.onnx": b"", "b.xml": b"<net", "c.json": b"{", "d.bin": os.urandom(64), "e.onnx": b"\x08"}.items():
        path = tmp_path / name
        path.write_bytes(content)
        for load in (sterna.load, sterna.Graph.read):
            with pytest.raises(sterna.Error):
                load(path)
    for bad in (tmp_path, tmp_path / "missing.onnx"):
        with pytest.raises((sterna.Error, OSError)):
            sterna.load(bad)
    with pytest.raises(TypeError):
        sterna.load(3)
