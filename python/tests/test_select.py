"""`select` chooses the elements that NumPy's `where` chooses, bit for bit, and leaves no argument as it should not."""

import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

import sterna

TYPES = [
    np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn,
]  # fmt: skip


def bits(array):
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_keeps_every_bit(dtype):
    random = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    x, y = (random.integers(0, 256, (5, 7, size), np.uint8).view(dtype)[..., 0] for _ in range(2))
    if dtype is np.bool_:
        x, y = x.view(np.uint8).astype(bool), y.view(np.uint8) % 2 == 0
    cond = random.integers(0, 2, (5, 7)).astype(bool)
    result = sterna.select(cond, x, y)
    assert result.dtype == np.dtype(dtype)
    whole = np.dtype(f"u{size}")
    assert bits(result) == bits(np.where(cond, x.view(whole), y.view(whole)))


SHAPES = of_numpy.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=4)


@settings(deadline=None, max_examples=300)
@given(SHAPES, st.integers(0, 5), st.randoms(use_true_random=False))
def test_shapes_broadcast_as_in_numpy(shapes, layout, random):
    def laid_out(array):
        match layout:
            case 0:
                return array
            case 1:
                return np.asfortranarray(array)
            case 2:
                return array[::-1] if array.ndim else array
            case 3:
                return array.T.copy().T
            case 4:
                return np.repeat(array[..., None], 2, axis=-1)[..., 0]
            case _:
                return np.broadcast_to(array, array.shape)

    cond, x, y = (np.random.default_rng(random.randrange(9)).integers(0, 2, shape) for shape in shapes.input_shapes)
    cond, x, y = laid_out(cond.astype(bool)), laid_out(x * 3.5), laid_out(y - 7.25)
    np.testing.assert_array_equal(sterna.select(cond, x, y), np.where(cond, x, y))


def test_numbers_take_the_type_of_the_other_operand():
    cond, x = np.array([True, False]), np.array([1, 2], np.int16)
    assert sterna.select(cond, x, 0).dtype == np.int16
    assert sterna.select(cond, 0, x).tolist() == [0, 2]
    assert sterna.select(cond, x.astype(np.float32), 1).tolist() == [1.0, 1.0]
    assert sterna.select(cond, x.astype(ml_dtypes.bfloat16), 0.5).astype(float).tolist() == [1.0, 0.5]
    assert sterna.select(cond, x.astype(ml_dtypes.float8_e5m2), 0.5).astype(float).tolist() == [1.0, 0.5]
    assert sterna.select([True, False], 1, 2).tolist() == [1, 2]
    assert sterna.select([True, False], 1, 0.5).tolist() == [1.0, 0.5]
    assert sterna.select(True, [1, 2], [3, 4]).tolist() == [1, 2]
    with pytest.raises(OverflowError):
        sterna.select(cond, x, 1 << 15)
    with pytest.raises(sterna.ArrayError, match="0.5 is no number of type s16"):
        sterna.select(cond, x, 0.5)


def test_modes_of_broadcasting():
    cond, x = np.array([[True], [False]]), np.zeros(3, np.float32)
    assert sterna.select(cond, x, x).shape == (2, 3)
    with pytest.raises(sterna.ShapeError):
        sterna.select(cond, x, x, auto_broadcast="numpy")
    with pytest.raises(ValueError, match="numby"):
        sterna.select(cond, x, x, auto_broadcast="numby")
    whole = np.zeros((2, 3, 4), np.float32)
    assert sterna.select(np.zeros(2, bool), whole, whole + 1, auto_broadcast="pdpd", axis=0).shape == (2, 3, 4)


def test_out_is_written_and_given_back():
    cond, x, y = np.array([True, False, True]), np.arange(3.0), np.zeros(3)
    out = np.full(3, 9.0)
    assert sterna.select(cond, x, y, out=out) is out
    assert out.tolist() == [0.0, 0.0, 2.0]
    wide = np.full((3, 2), 9.0)
    sterna.select(cond, x, y, out=wide[:, 1])
    assert wide.tolist() == [[9.0, 0.0], [9.0, 0.0], [9.0, 2.0]]
    sterna.select(cond, x, -1.0, out=x)
    assert x.tolist() == [0.0, -1.0, 2.0]
    memory = bytearray(24)
    sterna.select(cond, y + 1, y, out=memoryview(memory).cast("d"))
    assert np.frombuffer(memory).tolist() == [1.0, 0.0, 1.0]


def test_out_that_does_not_do():
    cond, x = np.array([True, False, True]), np.arange(3.0)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(sterna.ArrayError, match="read-only"):
        sterna.select(cond, x, x, out=frozen)
    assert frozen.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(sterna.ArrayError, match="read-only"):
        sterna.select(np.array([True] * 3), np.zeros(3, np.uint8), 1, out=memoryview(b"abc"))
    with pytest.raises(sterna.ArrayError, match="list"):
        sterna.select(cond, x, x, out=[0.0, 0.0, 0.0])
    with pytest.raises(sterna.ArrayError, match="negative"):
        sterna.select(cond, x, x, out=np.zeros(3)[::-1])
    with pytest.raises(sterna.ShapeError):
        sterna.select(cond, x, x, out=np.zeros(4))
    with pytest.raises(sterna.OpError):
        sterna.select(cond, x, x, out=np.zeros(3, np.float32))
    memory = np.zeros(4)
    with pytest.raises(sterna.ExecuteError) as caught:
        sterna.select(cond, memory[:3], 1.0, out=memory[1:])
    assert caught.value.fault == "Overlap"


def test_the_result_has_memory_of_its_own():
    result = sterna.select(np.array([True]), np.zeros(1), 1.0)
    assert result.flags.owndata and result.flags.writeable and result.flags.c_contiguous


def test_empty_and_rank_0():
    assert sterna.select(np.zeros((0, 3), bool), np.zeros(3), 1.0).shape == (0, 3)
    assert sterna.select(np.bool_(True), np.float32(2), np.float32(3)) == np.float32(2)
    with pytest.raises(sterna.TensorError) as caught:
        sterna.select(np.zeros((1,) * 13, bool), 1.0, 0.0)
    assert (caught.value.fault, caught.value.rank, caught.value.operand) == ("Rank", 13, "cond")


@pytest.mark.parametrize("dtype", TYPES)
def test_scalars_of_numpy_keep_their_type(dtype):
    one = np.dtype(dtype).type(1)
    result = sterna.select([True, False], one, np.zeros(2, dtype))
    assert (result.dtype, result.astype(float).tolist()) == (np.dtype(dtype), [1.0, 0.0])
    with pytest.raises(sterna.ArrayError):
        sterna.select([True], np.float32(1), 0.0, out=np.float32(1))
    with pytest.raises(sterna.ArrayError, match="str"):
        sterna.select([True], np.str_("a"), 0.0)


def test_arguments_are_let_go():
    x = np.zeros(4)
    before = sys.getrefcount(x)
    for _ in range(10):
        sterna.select(np.ones(4, bool), x, x, out=x)
    assert sys.getrefcount(x) == before
