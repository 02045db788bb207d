"""Models of ONNX in bytes, written as protobuf has them, so that no test needs the package `onnx`."""

from __future__ import annotations

import struct


def number(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(place: int, value: int | float | str | bytes) -> bytes:
    """A field of a message."""
    match value:
        case float():
            return number(place << 3 | 5) + struct.pack("<f", value)
        case int():
            return number(place << 3) + number(value)
        case str():
            value = value.encode()
    return number(place << 3 | 2) + number(len(value)) + value


def value_info(name: str, dims: list[int | str], data_type: int = 1) -> bytes:
    """An input or output."""
    shape = b"".join(field(1, field(2 if isinstance(dim, str) else 1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, data_type) + field(2, shape)))


def attribute(name: str, value: int | float | str) -> bytes:
    match value:
        case float():
            return field(1, name) + field(2, value) + field(20, 1)
        case int():
            return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + field(4, value) + field(20, 3)


def node(op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: int | float | str) -> bytes:
    parts = [field(1, each) for each in inputs] + [field(2, each) for each in outputs]
    parts += [field(3, outputs[0]), field(4, op)]
    parts += [field(5, attribute(name, value)) for name, value in attributes.items()]
    return b"".join(parts) + (field(7, domain) if domain else b"")


def model(
    nodes: list[bytes],
    inputs: list[bytes],
    outputs: list[bytes],
    domains: tuple[str, ...] = (),
    values: tuple[bytes, ...] = (),
) -> bytes:
    graph = b"".join(field(1, each) for each in nodes) + field(2, "graph")
    graph += b"".join(field(11, each) for each in inputs) + b"".join(field(12, each) for each in outputs)
    graph += b"".join(field(13, each) for each in values)
    opsets = field(8, field(1, "") + field(2, 17)) + b"".join(field(8, field(1, each) + field(2, 1)) for each in domains)
    return field(1, 8) + opsets + field(7, graph)
