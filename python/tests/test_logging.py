"""What the library does comes as records of `logging`, when they are wanted."""

import logging
import sys
import threading

import numpy as np
import pytest

import sterna


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def kept():
    logger, handler = logging.getLogger("sterna"), Kept()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def graph(size):
    g = sterna.GraphBuilder()
    x = g.input("x", "f32", [size])
    g.output("y", g.relu(x) * 2.0)
    return g.build()


def told(records, name):
    return [record for record in records if record.span == name]


def test_the_steps_are_told(kept):
    logging.getLogger("sterna").setLevel(logging.DEBUG)
    partition = graph(7003).partitions()[0]
    for _ in range(2):
        compiled = partition.compile()
    compiled.execute({"x": np.ones(7003, np.float32)})
    assert [record.span for record in kept.records] == ["partition", "compile", "compile", "execute"]
    assert [record.fields.get("cache") for record in told(kept.records, "compile")] == ["miss", "hit"]
    assert kept.records[0].fields == {"ops": 3, "policy": "fusion"}
    for record in kept.records:
        assert (record.name, record.levelno) == ("sterna", logging.DEBUG)
        assert record.seconds > 0
        # The line that called, as of any other logger.
        assert record.filename == "test_logging.py"
    text = kept.records[1].getMessage()
    assert text.startswith("compile: partition 0, ops 3, cache miss, ") and text.endswith(" ms")


def test_sessions_and_calls_are_told(kept):
    logging.getLogger("sterna").setLevel(logging.DEBUG)
    session = graph(None).session()
    for size in (3, 3, 4):
        session(x=np.ones(size, np.float32))
    assert (len(told(kept.records, "plan")), len(told(kept.records, "run"))) == (2, 3)
    kept.records.clear()
    sterna.select([True, False, True] * 5, np.zeros(15, np.float32), 1.0)
    assert told(kept.records, "execute")


def test_nothing_is_told_unless_asked(kept):
    for level in (logging.WARNING, logging.INFO):
        logging.getLogger("sterna").setLevel(level)
        graph(11).session()(x=np.ones(11, np.float32))
        assert kept.records == []
    # The level of the root holds where the logger has none.
    logging.getLogger("sterna").setLevel(logging.NOTSET)
    root = logging.getLogger()
    before = root.level
    try:
        root.setLevel(logging.DEBUG)
        sterna.select([True], np.zeros(1), 1.0)
        assert kept.records
        kept.records.clear()
        root.setLevel(logging.WARNING)
        sterna.select([True], np.zeros(1), 1.0)
        assert kept.records == []
    finally:
        root.setLevel(before)


def test_slower_ways_are_told_at_info(kept):
    logging.getLogger("sterna").setLevel(logging.INFO)
    # A fast form that a plan did not take.
    g = sterna.GraphBuilder()
    q, k, v = (g.input(name, "f32", [1, 2, 64, 16]) for name in "qkv")
    g.output("y", g.matmul(g.softmax(g.matmul(q, k, transpose_b=True), axis=-2), v))
    session = g.build().session()
    for _ in range(2):
        session(**{name: np.ones((1, 2, 64, 16), np.float32) for name in "qkv"})
    (record,) = kept.records
    assert record.levelno == logging.INFO and record.span == "slower" and record.seconds is None
    assert record.getMessage().startswith("slower: partition 0: no attention at SoftMax")


def test_handlers_may_do_anything(kept, monkeypatch):
    logger = logging.getLogger("sterna")
    logger.setLevel(logging.DEBUG)

    class Calls(logging.Handler):
        calls = 0

        def emit(self, record):
            Calls.calls += 1
            sterna.select([True, False], np.zeros(2, np.float32), 1.0)

    class Fails(logging.Filter):
        def filter(self, record):
            raise RuntimeError("no record")

    calls, fails = Calls(), Fails()
    logger.addHandler(calls)
    try:
        sterna.select([True, False], np.zeros(2, np.float32), 1.0)
    finally:
        logger.removeHandler(calls)
    assert 0 < Calls.calls < 10
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    logger.addFilter(fails)
    try:
        assert sterna.select([True], np.zeros(1), 1.0).tolist() == [0.0]
    finally:
        logger.removeFilter(fails)
    assert told and {type(each.exc_value) for each in told} == {RuntimeError}


def test_threads_tell_each_of_its_own(kept):
    logging.getLogger("sterna").setLevel(logging.DEBUG)

    def run():
        for _ in range(50):
            sterna.select([True] * 32, np.zeros(32, np.float32), 1.0)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told(kept.records, "execute")) == 200


def test_columns():
    pandas = pytest.importorskip("pandas")
    session = graph(None).session()
    outputs, profile = session.run_profiled({"x": np.ones(5, np.float32)})
    assert outputs["y"].tolist() == [2.0] * 5
    for frame in (pandas.DataFrame(profile), pandas.DataFrame(sterna.columns(profile))):
        assert list(frame.columns) == ["kind", "partition", "ops", "bytes", "began", "seconds"]
        assert frame["seconds"].sum() > 0 and "execute" in set(frame["kind"])
    assert sterna.columns([]) == {}
    assert sterna.columns([{"a": 1}, {"b": 2}]) == {"a": [1, None], "b": [None, 2]}
