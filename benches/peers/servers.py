"""Timing servers as processes: how each is started, and how one is asked."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cases import Case, Dims
from install import HERE, Places

# Plain loops, with the better of ordinary and streaming stores.
LIMIT = "limit"
# Seconds after which an answer no longer comes.
PATIENCE = 300.0
ANSWERS = ("ready", "refused", "times", "written", "failed")


class Refused(Exception):
    """The peer does not do this case, and says why."""


class Failed(Exception):
    """The server died, or said what is no answer."""


@dataclass(frozen=True)
class Setting:
    """What holds for all servers of one run."""

    places: Places
    # The CPUs that they may use: as many as threads.
    cpus: list[int]
    huge_pages: bool

    @property
    def threads(self) -> int:
        return len(self.cpus)


def command(peer: str, places: Places) -> list[str]:
    if peer in (LIMIT, "sterna", "candle"):
        return [str(places.rust_server), peer]
    if peer in ("onednn", "openvino"):
        return [str(places.native(peer))]
    return [str(places.python), str(HERE / "python_peers.py"), peer]


def arguments(case: Case, directory: Path, threads: int) -> list[str]:
    def operand(dtype: str, dims: Dims) -> str:
        return f"{dtype}:{','.join(map(str, dims))}"

    pairs = {
        "--graph": "select" if case.is_select else case.name,
        "--inputs": "/".join(operand(given.dtype, given.dims) for given in case.inputs.values()),
        "--output": operand(case.dtype, case.dims),
        "--read": str(case.bytes_read),
        "--threads": str(threads),
        "--dir": str(directory),
    }
    return [word for pair in pairs.items() for word in pair]


def environment(peer: str, setting: Setting) -> dict[str, str]:
    """One number of threads and one kind of pages for all; where oneDNN finds the runtime beside it."""
    threads = str(setting.threads)
    variables = {name: threads for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    # glibc, then, asks for huge pages for large blocks, as NumPy does by itself.
    variables["GLIBC_TUNABLES"] = f"glibc.malloc.hugetlb={int(setting.huge_pages)}"
    variables["NUMPY_MADVISE_HUGEPAGE"] = str(int(setting.huge_pages))
    if peer == "torch.compile":
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(setting.places.cache / "inductor")
    if peer == "onednn":
        lib = setting.places.onednn_prefix / "lib"
        variables["LD_LIBRARY_PATH"] = str(lib)
        variables["OCL_ICD_FILENAMES"] = str(lib / "libintelocl.so")
        variables["ONEDNN_VERBOSE"] = "0"
    return os.environ | variables


class Server:
    """A peer that was given a case and waits for questions."""

    def __init__(self, peer: str, case: Case, directory: Path, setting: Setting) -> None:
        self.peer = peer
        self.log = directory / f"{peer}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["taskset", "--cpu-list", ",".join(map(str, setting.cpus))]
                + command(peer, setting.places)
                + arguments(case, directory, setting.threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(peer, setting),
            )
        try:
            self.version = self.expect("ready")
        except BaseException:
            self.close()
            raise

    def ask(self, question: str, kind: str) -> str:
        try:
            print(question, file=self._pipe(self.process.stdin), flush=True)
        except BrokenPipeError:
            pass  # `expect` tells why.
        return self.expect(kind)

    def expect(self, kind: str) -> str:
        """What the next answer says, where it is of that kind. Libraries print lines of their own between."""
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        try:
            for line in self._pipe(self.process.stdout):
                word, _, rest = line.strip().partition(" ")
                if word == kind:
                    return rest
                if word == "refused" and kind == "ready":
                    raise Refused(rest)
                if word in ANSWERS:
                    raise Failed(line.strip())
        finally:
            timer.cancel()
        raise Failed(self._last_words())

    def write(self, path: Path) -> None:
        self.ask(f"write {path}", "written")

    def time(self, samples: int, batch: int) -> list[float]:
        """Nanoseconds an execution: one number a sample, each the mean of a batch."""
        return [float(time) for time in self.ask(f"run {samples} {batch}", "times").split()]

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                self._pipe(pipe).close()
            except BrokenPipeError:
                pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None, "both pipes are asked for when the process is started"
        return pipe

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        code = self.process.wait()
        return f"ended with {code}" + (f": {said[-1]}" if said else "")
