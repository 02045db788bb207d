"""Arrays of every protocol arrive without a copy, and objects that lie about themselves give an error."""

import array
import ctypes
import mmap

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna

COND = np.array([True, False, True, False])


def chosen(x, y=0):
    return sterna.select(COND, x, y)


def test_buffers():
    assert chosen(memoryview(array.array("f", [1, 2, 3, 4]))).tolist() == [1, 0, 3, 0]
    assert chosen(array.array("q", [1, 2, 3, 4])).dtype == np.int64
    assert chosen(bytearray(b"\x01\x02\x03\x04")).tolist() == [1, 0, 3, 0]
    assert chosen((ctypes.c_int32 * 4)(1, 2, 3, 4)).tolist() == [1, 0, 3, 0]
    with mmap.mmap(-1, 16) as memory:
        view = np.frombuffer(memory, np.float32)
        sterna.select(COND, np.ones(4, np.float32), 0.0, out=view)
        assert view.tolist() == [1, 0, 1, 0]
        del view


class Interface:
    def __init__(self, array, **changed):
        self.array = array
        self.__array_interface__ = array.__array_interface__ | changed


def test_array_interface():
    x = np.arange(4, dtype=np.int32)
    assert chosen(Interface(x)).tolist() == [0, 0, 2, 0]
    sterna.select(COND, 7, np.zeros(4, np.int32), out=Interface(x))
    assert x.tolist() == [7, 0, 7, 0]
    frozen = Interface(x, data=(x.__array_interface__["data"][0], True))
    with pytest.raises(sterna.ArrayError, match="read-only"):
        sterna.select(COND, 7, np.zeros(4, np.int32), out=frozen)


class Capsule:
    """Hands an array over by DLPack, as a class that is none of NumPy's."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldCapsule(Capsule):
    """As before `max_version` existed."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [Capsule, OldCapsule])
def test_dlpack(kind):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert sterna.select(COND, kind(x), 0.0).tolist() == np.where(COND, x, 0).tolist()
    assert sterna.select(COND, kind(x.T.copy().T), 0.0).tolist() == np.where(COND, x, 0).tolist()
    assert sterna.select(COND, kind(x[:, ::-1]), 0.0).tolist() == np.where(COND, x[:, ::-1], 0).tolist()
    out = np.zeros((2, 4), np.float32)
    assert isinstance(sterna.select(COND, x, 0.0, out=kind(out)), kind)
    assert out.tolist() == np.where(COND, x, 0).tolist()


def test_dlpack_read_only():
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    assert sterna.select(COND, Capsule(frozen), 1.0).tolist() == [0, 1, 0, 1]
    with pytest.raises(sterna.ArrayError, match="read-only"):
        sterna.select(COND, 1.0, Capsule(frozen), out=Capsule(frozen))
    assert frozen.tolist() == [0, 0, 0, 0]


def test_strides_that_no_tensor_has_are_copied():
    rows = np.zeros(4, np.dtype([("a", "u1"), ("x", "<f4")]))
    rows["x"] = [1, 2, 3, 4]
    assert chosen(rows["x"]).tolist() == [1, 0, 3, 0]
    assert chosen(np.arange(4, dtype=">f4")).tolist() == [0, 0, 2, 0]
    assert chosen(np.arange(4.0)[::-1]).tolist() == [3, 0, 1, 0]
    with pytest.raises(sterna.ArrayError):
        sterna.select(COND, 1.0, np.zeros(4, np.float32), out=rows["x"])


@pytest.mark.parametrize(
    "bad",
    [
        "text", b"bytes", None, object(), {"a": 1}, [[1, 2], [3]], np.array(["a"]), np.array([1j]),
        np.array([None]), np.array(["2020-01-01"], "datetime64[D]"), np.zeros(2, "f4,f4"), lambda: 0, sterna,
        np.longdouble(1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_array(bad):
    for arguments in [(bad, 1.0, 0.0), (COND, bad, 0.0), (COND, 0.0, bad)]:
        with pytest.raises((sterna.ArrayError, sterna.OpError)):
            sterna.select(*arguments)
    if bad is not None:
        with pytest.raises(sterna.Error):
            sterna.select(COND, np.zeros(4), 1.0, out=bad)


class Raises:
    """Raises something as soon as it is asked for anything."""

    def __init__(self, name, error):
        self.name, self.error = name, error

    def __getattr__(self, name):
        if name == object.__getattribute__(self, "name"):
            raise object.__getattribute__(self, "error")
        raise AttributeError(name)


@pytest.mark.parametrize("name", ["__dlpack__", "__dlpack_device__", "__array_interface__", "__array__", "__len__"])
@pytest.mark.parametrize("error", [RuntimeError("no"), AttributeError("no"), ZeroDivisionError()])
def test_what_raises(name, error):
    with pytest.raises(Exception):  # noqa: B017, PT011
        sterna.select(COND, Raises(name, error), 0.0)


def test_an_interrupt_is_no_error_of_the_array():
    class Interrupted:
        def __dlpack_device__(self):
            raise KeyboardInterrupt

        def __dlpack__(self, **_):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sterna.select(COND, Interrupted(), 0.0)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3),
    st.tuples(st.integers(), st.integers()), st.lists(st.integers(), max_size=3), st.just(object()),
)  # fmt: skip


class Liar:
    """Answers each protocol with whatever it is told to."""

    def __init__(self, capsule, device):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def capsules():
    name = st.sampled_from([b"dltensor", b"dltensor_versioned", b"used_dltensor", b"other"])
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    memory = ctypes.create_string_buffer(256)
    # Kept by this module: an address of zeros, of which no field says anything.
    KEPT.append(memory)
    return name.map(lambda name: new(ctypes.addressof(memory), KEPT_NAMES.setdefault(name, name), None))


KEPT, KEPT_NAMES = [], {}


@settings(deadline=None, max_examples=300)
@given(st.one_of(ANYTHING, capsules()), st.one_of(ANYTHING, st.just((1, 0)), st.just((2, 0))), st.booleans())
def test_objects_that_lie_by_dlpack(capsule, device, is_out):
    liar = Liar(capsule, device)
    try:
        if is_out:
            sterna.select(COND, np.zeros(4), 1.0, out=liar)
        else:
            sterna.select(COND, liar, 1.0)
    except Exception:
        return
    raise AssertionError("a lie was taken")


VALUES = {
    "shape": st.one_of(ANYTHING, st.lists(st.integers(-3, 9), max_size=14).map(tuple)),
    "strides": st.one_of(ANYTHING, st.lists(st.integers(-64, 64), max_size=14).map(tuple)),
    "typestr": st.one_of(ANYTHING, st.sampled_from(["<f4", ">f4", "|b1", "<U3", "|O", "<f9", "|V2", "<c8", "f"])),
    "version": ANYTHING,
    "descr": ANYTHING,
    "mask": ANYTHING,
}


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(sorted(VALUES)).flatmap(lambda key: st.tuples(st.just(key), VALUES[key])), st.booleans())
def test_objects_that_lie_by_their_array_interface(change, is_out):
    # As much memory before and behind as strides and shape can lead to, so that the address is no lie.
    memory = np.zeros(1 << 17, np.uint8)
    middle = memory[1 << 16 :][:16].view(np.float32)
    key, value = change
    liar = Interface(middle)
    liar.__array_interface__ = dict(liar.__array_interface__) | {key: value}
    try:
        out = sterna.select(COND, np.zeros(4, np.float32), 1.0, out=liar) if is_out else chosen(liar)
    except Exception:
        return
    assert out is not None


class Shrinking:
    """Has another shape each time it is looked at."""

    def __init__(self):
        self.looks = 0
        self.array = np.zeros(64, np.float32)

    @property
    def __array_interface__(self):
        self.looks += 1
        return self.array[: 64 >> self.looks].__array_interface__


def test_an_object_that_changes_is_looked_at_once():
    with pytest.raises((sterna.ShapeError, sterna.ArrayError)):
        sterna.select(COND, Shrinking(), 1.0)


def test_an_array_cannot_be_resized_under_a_call():
    class Resizes(np.ndarray):
        def astype(self, *_, **__):
            return np.zeros(3)

    x = np.zeros(4, ">f8").view(Resizes)
    with pytest.raises(sterna.ShapeError):
        sterna.select(COND, x, 1.0)


def test_results_of_types_of_ml_dtypes():
    x = np.ones(4, ml_dtypes.bfloat16)
    assert sterna.select(COND, x, 0.0).dtype == ml_dtypes.bfloat16
