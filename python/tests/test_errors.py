"""Errors are classes with the fields of the error, and classes that Python has for the kind of fault."""

import pickle

import numpy as np
import pytest

import sterna


def test_classes():
    assert issubclass(sterna.ShapeError, ValueError)
    assert issubclass(sterna.ArrayError, TypeError)
    assert issubclass(sterna.PortError, LookupError)
    assert issubclass(sterna.OutOfMemoryError, MemoryError)
    assert issubclass(sterna.UnimplementedError, NotImplementedError)
    kinds = [getattr(sterna, name) for name in sterna.__all__ if name.endswith("Error") and name != "Error"]
    assert len(kinds) == 16 and all(issubclass(kind, sterna.Error) for kind in kinds)
    assert all(kind.__module__ == "sterna" and kind.__doc__ for kind in kinds)


def test_fields_of_an_op():
    with pytest.raises(sterna.OpError) as caught:
        sterna.select(np.zeros(2, np.uint8), 1.0, 0.0)
    error = caught.value
    assert str(error) == "Select (op 0): input 0 `cond` (tensor 0) is u8; it must be boolean"
    assert (error.fault, error.op, error.given, error.allowed) == ("Type", sterna.OpRef("Select", 0), "u8", ("boolean",))
    assert error.port == sterna.PortRef("input", 0, "cond", 0)
    assert error.status == 8
    with pytest.raises(AttributeError):
        _ = error.nothing


def test_fields_of_a_builder():
    g = sterna.GraphBuilder()
    x, y = g.input("x", "f32", [2, 3]), g.input("y", "f32", [None, 4])
    with pytest.raises(sterna.ShapeError) as caught:
        g.matmul(x, y, name="product") + g.add(x, g.input("z", "f32", [5]))
    error = caught.value
    assert error.call == "Add"
    assert error.values[0] == sterna.ShownValue("x", "f32", (2, 3))
    with pytest.raises(sterna.OpError) as caught:
        g.op("ReLU", [x, y])
    assert (caught.value.fault, caught.value.call) == ("Count", "ReLU")


def test_fields_of_json():
    with pytest.raises(sterna.JsonError) as caught:
        sterna.Graph.from_json('{"graph": [\n 7]}')
    assert (caught.value.line, caught.value.column) == (2, 2)


def test_an_error_can_be_pickled():
    with pytest.raises(sterna.ShapeError) as caught:
        sterna.select(np.zeros(2, bool), np.zeros(3), 0.0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is sterna.ShapeError and again.op == caught.value.op
