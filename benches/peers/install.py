"""What the comparison needs: a virtual environment with the peers, and the servers built from source.

All of it lies in one cache directory, outside the source tree. This module needs Python's own library only, for it
runs before there is an environment.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"

# The packages from PyPI that each peer is; those of DRIVER are always there.
DRIVER = ["numpy", "ml_dtypes", "matplotlib"]
PACKAGES: dict[str, list[str]] = {
    "candle": [],
    "onednn": ["onednn", "onednn-devel"],
    "openvino": ["onnx", "openvino"],
    "onnxruntime": ["onnx", "onnxruntime"],
    "numpy": [],
    "jax": ["jax", "jaxlib"],
    "torch": ["torch"],
    "torch.compile": ["torch"],
}


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sterna-peers"


@dataclass(frozen=True)
class Places:
    """Where things lie in the cache directory."""

    cache: Path
    # A folder with `include` and `lib` of oneDNN; the environment where it is not given.
    onednn: Path | None = None

    @property
    def venv(self) -> Path:
        return self.cache / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def target(self) -> Path:
        return self.cache / "target"

    @property
    def rust_server(self) -> Path:
        return self.target / "release" / "sterna-peers"

    def native(self, name: str) -> Path:
        return self.cache / "native" / name

    @property
    def openvino(self) -> Path:
        return next(self.venv.glob("lib/python*/site-packages/openvino"))

    @property
    def onednn_prefix(self) -> Path:
        return self.onednn or self.venv


def run(*command: str | Path, cwd: Path | None = None) -> None:
    print("$", *command, file=sys.stderr, flush=True)
    subprocess.run([str(word) for word in command], check=True, cwd=cwd, stdout=sys.stderr)


def install(places: Places, peers: list[str]) -> None:
    """Makes the environment, or adds what it lacks. A stamp remembers what was installed from which pins."""
    packages = sorted({*DRIVER, *(package for peer in peers for package in PACKAGES[peer])})
    pins = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = places.venv / "sterna-peers.stamp"
    have = set(stamp.read_text().split()) if stamp.exists() else set()
    if {pins, *packages} <= have:
        return
    if not places.python.exists():
        run(sys.executable, "-m", "venv", places.venv)
    run(places.python, "-m", "pip", "install", "--quiet", "--constraint", REQUIREMENTS, *packages)
    kept = have if pins in have else set()
    stamp.write_text("\n".join(sorted({pins, *packages} | kept)) + "\n")


def build_native(places: Places, peers: list[str]) -> None:
    """Builds the servers in C++: oneDNN and OpenVINO."""
    places.native("").mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CXX", "g++")
    link = {
        "onednn": against(places.onednn_prefix / "include", places.onednn_prefix / "lib", "libdnnl.so"),
    }
    if "openvino" in peers:
        link["openvino"] = against(places.openvino / "include", places.openvino / "libs", "libopenvino.so.*")
    for name in (peer for peer in peers if peer in ("onednn", "openvino")):
        source = HERE / "native" / f"{name}.cpp"
        run(compiler, "-std=c++17", "-O3", "-march=native", source, "-o", places.native(name), *link[name])


def against(include: Path, lib: Path, pattern: str) -> list[str]:
    """Flags for a library that brings its own dependencies along."""
    library = next(lib.glob(pattern), lib / pattern)
    return [f"-I{include}", str(library), f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]


def build_rust(places: Places) -> None:
    """Builds the servers of Sterna, candle and the limit."""
    run("cargo", "build", "--release", "--target-dir", places.target, cwd=HERE)
