"""Engines, capacities, and calls from several threads at once."""

import threading
import time

import numpy as np
import pytest

import sterna


def test_engines_nest():
    one, two = sterna.Engine(threads=1), sterna.Engine(threads=2, max_level="portable")
    assert (one.threads, two.level) == (1, "portable")
    x = np.arange(4.0)
    with one, two, one:
        assert sterna.select([True, False, True, False], x, 0.0).tolist() == [0, 0, 2, 0]
    with pytest.raises(ValueError, match="sse9"):
        sterna.Engine(max_level="sse9")
    assert repr(two) == f'Engine(threads={two.threads}, level="portable")'


def test_an_engine_of_a_block_is_that_of_its_thread_alone():
    seen = []
    with sterna.Engine(threads=1, cache_capacity=0):
        thread = threading.Thread(target=lambda: seen.append(sterna.select([True], np.zeros(1), 1.0)))
        thread.start()
        thread.join()
    assert seen[0].tolist() == [0.0]


def test_an_engine_with_a_cache_of_its_own():
    before = sterna.cache_stats()["misses"]
    with sterna.Engine(cache_capacity=4):
        sterna.select(np.ones((2, 3, 5, 7, 1), bool), np.zeros((2, 3, 5, 7, 1), np.int16), 1)
    assert sterna.cache_stats()["misses"] == before


def test_capacities_come_back_after_an_error():
    before = sterna.cache_stats()["capacity"]
    with pytest.raises(ZeroDivisionError), sterna.capacities(plans=3, constant_bytes=1 << 20):
        assert sterna.cache_stats()["capacity"] == 3
        raise ZeroDivisionError
    assert sterna.cache_stats()["capacity"] == before


def test_the_interpreter_is_released():
    """Another thread runs while one executes: it counts on, which it could not if the call kept the interpreter."""
    q = np.random.default_rng(0).standard_normal((8, 1024, 64)).astype(np.float32)
    sterna.attention(q[:, :64], q[:, :64], q[:, :64])
    done, counts = threading.Event(), []

    def call():
        with sterna.Engine(threads=1):
            sterna.attention(q, q, q)
        done.set()

    thread = threading.Thread(target=call)
    thread.start()
    while not done.is_set():
        counts.append(time.perf_counter())
        time.sleep(0.0005)
    thread.join()
    assert len(counts) > 2


def test_many_threads():
    random = np.random.default_rng(0)
    faults = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(100):
            shape = tuple(random.integers(1, 9, 2))
            cond, x, y = random.integers(0, 2, shape).astype(bool), random.random(shape), random.random(shape[1:])
            if not np.array_equal(sterna.select(cond, x, y), np.where(cond, x, y)):
                faults.append(shape)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in random.integers(0, 99, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
