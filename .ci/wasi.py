#!/usr/bin/env python3
"""Runs a program for WASI, with the arguments behind it, by the package `wasmtime` of the Python that runs this.

wasi.py PROGRAM.wasm [ARGUMENT...]
"""

import sys

import wasmtime


def main():
    engine = wasmtime.Engine()
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    config = wasmtime.WasiConfig()
    config.argv = sys.argv[1:]
    config.inherit_env()
    config.inherit_stdout()
    config.inherit_stderr()
    store = wasmtime.Store(engine)
    store.set_wasi(config)
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1]))
    try:
        instance.exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        return end.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
