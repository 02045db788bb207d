"""python_peers.py onnxruntime|openvino FOLDER THREADS CALLERS SECONDS: what the program in Rust does, for peers that have an
interface to Python; it prints the same line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# Lengths of inputs that grow.
STEPS = 32

Arrays = dict[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]


def read_case(folder: Path) -> tuple[Arrays, Arrays, dict[str, int]]:
    """Inputs and outputs by name, and the dims of inputs that are one longer in the next run."""
    inputs, outputs, growing = {}, {}, {}
    for line in (folder / "case.txt").read_text().splitlines():
        role, name, dtype, dims, grows, file = line.split(" ")
        array = np.fromfile(folder / file, dtype).reshape([int(dim) for dim in dims.split(",")])
        (inputs if role == "input" else outputs)[name] = array
        if grows != "-":
            growing[name] = int(grows)
    return inputs, outputs, growing


class OnnxRuntime:
    def __init__(self) -> None:
        import onnxruntime

        self.module, self.version = onnxruntime, onnxruntime.__version__

    def load(self, path: Path, threads: int, callers: int, *, stops_spinning: bool = False) -> None:
        options = self.module.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if stops_spinning:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = self.module.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def caller(self, inputs: Arrays) -> Run:
        return lambda: self.session.run(None, inputs)


def runtime_by_turns(path: Path, threads: int) -> OnnxRuntime:
    """ONNX Runtime with a model, beside others in one process."""
    peer = OnnxRuntime()
    # Threads that wait by spinning would take the processor from the turns of others.
    peer.load(path, threads, 1, stops_spinning=True)
    return peer


def first_of_runtime(path: Path, threads: int) -> Callable[[Arrays], np.ndarray]:
    """What gives the first output of a model in ONNX Runtime, beside others in one process."""
    peer = runtime_by_turns(path, threads)
    return lambda feeds: peer.caller(feeds)()[0]


class OpenVino:
    def __init__(self) -> None:
        import openvino

        self.core, self.version = openvino.Core(), openvino.__version__.split("-")[0]

    def load(self, path: Path, threads: int, callers: int) -> None:
        # Streams are what takes several callers at once; they share the threads. Half precision is no part of this.
        streams = min(callers, 2)
        options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads * streams, "NUM_STREAMS": streams}
        self.model = self.core.compile_model(path, "CPU", options)

    def caller(self, inputs: Arrays) -> Run:
        request = self.model.create_infer_request()

        def run() -> list[np.ndarray]:
            # The outputs belong to the request, as the caller is done with them before the next run.
            return list(request.infer(inputs, share_inputs=True, share_outputs=True).values())

        return run


PEERS = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}


def megabytes(key: str) -> float:
    """A line of /proc/self/status."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[key].split()[0]) * 1024 / 1e6


def processor_seconds() -> float:
    """Seconds that all threads of the process had a processor."""
    return sum(int(task.read_text().split()[0]) for task in Path("/proc/self/task").glob("*/schedstat")) / 1e9


def alone(run: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of each run of one caller, as many as fit into the time."""
    start, runs = time.perf_counter(), []
    while time.perf_counter() - start < seconds or len(runs) < 3:
        before = time.perf_counter()
        run()
        runs.append(time.perf_counter() - before)
    return runs


def turn(run: Callable[[Arrays], object], feeds: Arrays, seconds: float) -> list[float]:
    """Seconds of runs on some inputs, of which the first is left out."""
    run(feeds)
    return alone(lambda: run(feeds), seconds)


def grown(run_of: Callable[[Arrays], Run], inputs: Arrays, growing: dict[str, int]) -> float | None:
    """The median of the seconds of runs of which each has inputs longer by one than those before, if they grow."""
    runs = []
    for by in range(STEPS if growing else 0, 0, -1):
        shorter = {
            name: np.ascontiguousarray(array.take(range(array.shape[dim] - by), dim)) if (dim := growing.get(name)) else array
            for name, array in inputs.items()
        }
        run = run_of(shorter)
        before = time.perf_counter()
        run()
        runs.append(time.perf_counter() - before)
    return statistics.median(runs) if runs else None


def at_once(callers: list[Run], seconds: float) -> tuple[float, float]:
    """Runs a second of several callers at once, and seconds that each run had a processor."""
    counts, ended = [0] * len(callers), False
    # All have ended their last run, and none has gone, when their time on processors is read.
    all_ended, is_read = (threading.Barrier(len(callers) + 1) for _ in range(2))

    def call(place: int) -> None:
        while not ended:
            callers[place]()
            counts[place] += 1
        all_ended.wait()
        is_read.wait()

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(callers))]
    before, start = processor_seconds(), time.perf_counter()
    for thread in threads:
        thread.start()
    while time.perf_counter() - start < seconds or sum(counts) < len(callers):
        time.sleep(0.001)
    ended = True
    all_ended.wait()
    rate = sum(counts) / (time.perf_counter() - start)
    processor = (processor_seconds() - before) / sum(counts)
    is_read.wait()
    for thread in threads:
        thread.join()
    return rate, processor


def distance(outputs: list[np.ndarray], expected: Arrays) -> float:
    """The largest difference from what torch computes, as a share of the largest element of the output."""
    return max(
        float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max())
        for a, b in zip(outputs, expected.values(), strict=True)
    )


def measured(peer, folder: Path, threads: int, callers: int, seconds: float) -> dict:
    inputs, expected, growing = read_case(folder)
    before = megabytes("VmHWM")
    start = time.perf_counter()
    peer.load(folder / "model.onnx", threads, callers)
    load = time.perf_counter() - start
    run = peer.caller(inputs)
    start = time.perf_counter()
    outputs = [np.array(output) for output in run()]
    first = time.perf_counter() - start
    start = processor_seconds()
    runs = alone(run, seconds)
    processor = (processor_seconds() - start) / len(runs)
    together = at_once([peer.caller(inputs) for _ in range(callers)], seconds) if callers > 1 else (None, None)
    return {
        "version": peer.version,
        "before": before,
        "load": load,
        "first": first,
        "runs": len(runs),
        "least": min(runs),
        "p50": statistics.median(runs),
        "processor": processor,
        "rate": together[0],
        "processor_together": together[1],
        "peak": megabytes("VmHWM"),
        "after": megabytes("VmRSS"),
        "grown": grown(peer.caller, inputs, growing),
        "distance": distance(outputs, expected),
    }


def main() -> None:
    name, folder, threads, callers, seconds = sys.argv[1:]
    peer = PEERS[name]()
    try:
        answer = measured(peer, Path(folder), int(threads), int(callers), float(seconds))
    except Exception as error:  # what a library says of a model that it does not take
        answer = {"refused": " ".join(str(error).split()) or type(error).__name__}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
