"""Writes functions.txt beside it: what the functions of pointwise ops give, worked out by mpmath.

    python3 tests/data/functions.py

Each block names a kind of op and its attributes; each row holds the bits of the f32 inputs and of the result,
rounded once from a thousand bits. Every formula is evaluated as it is written in the documentation. Results that are
exactly 0, or become it, are left out: mpmath knows no sign of zero.
"""

import pathlib
import random
import struct

from mpmath import mp, mpf

mp.prec = 1000


def f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits_of(number):
    """The bits of the f32 nearest to a number of any precision, ties to even."""
    sign = 1 << 31 if number < 0 else 0
    size = abs(number)
    exponent = max(int(mp.floor(mp.log(size, 2))), -126)
    while size >= mpf(2) ** (exponent + 1):
        exponent += 1
    while exponent > -126 and size < mpf(2) ** exponent:
        exponent -= 1
    scaled = size / mpf(2) ** (exponent - 23)
    whole = int(mp.floor(scaled))
    rest = scaled - whole
    if rest > 0.5 or (rest == 0.5 and whole % 2):
        whole += 1
    if whole >= 1 << 24:
        whole, exponent = whole >> 1, exponent + 1
    if exponent > 127:
        return sign | 0x7F800000
    if whole < 1 << 23:
        return sign | whole
    return sign | (exponent + 127) << 23 | (whole - (1 << 23))


def cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def density(x):
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


CUBIC = mpf("0.044715")


def inner(x):
    return mp.sqrt(2 / mp.pi) * (x + CUBIC * x**3)


def gelu_tanh_slope(x):
    t = mp.tanh(inner(x))
    return (1 + t) / 2 * (1 + mp.sqrt(2 / mp.pi) * (x + 3 * CUBIC * x**3) * (1 - t))


def mish_slope(x):
    e = mp.exp(x)
    omega = e**3 + 4 * e**2 + e * (4 * x + 6) + 4 * (x + 1)
    return e * omega / (e**2 + 2 * e + 2) ** 2


def clamp(x, low, high):
    return min(max(x, low), high)


def logistic(x):
    return 1 / (1 + mp.exp(-x))


def round_even(x):
    down = mp.floor(x)
    rest = x - down
    return down + (1 if rest > 0.5 or (rest == 0.5 and int(down) % 2) else 0)


def power(x, p):
    if x < 0 and p != int(p):
        return mpf("nan")
    return mp.power(x, p)


# 0.7 as an attribute holds it. A product with few digits would often be a tie, which f64 cannot tell from its
# neighbours.
SEVEN_TENTHS = mpf(struct.unpack("<f", struct.pack("<f", 0.7))[0])

# Kind, attributes, function of the inputs.
UNARY = [
    ("Clamp", {"min": -1.0, "max": 2.5}, lambda x: clamp(x, mpf(-1), mpf(2.5))),
    ("Elu", {"alpha": 1.0}, lambda x: x if x > 0 else mp.exp(x) - 1),
    ("Elu", {"alpha": 0.75}, lambda x: x if x > 0 else mpf(0.75) * (mp.exp(x) - 1)),
    ("Exp", {}, mp.exp),
    ("GELU", {"mode": "gelu_erf"}, lambda x: x * cdf(x)),
    ("GELU", {"mode": "gelu_tanh"}, lambda x: x / 2 * (1 + mp.tanh(inner(x)))),
    ("HardSigmoid", {"alpha": 0.1875, "beta": 0.5}, lambda x: clamp(mpf(0.1875) * x + mpf(0.5), mpf(0), mpf(1))),
    ("HardSwish", {}, lambda x: x * clamp(x + 3, mpf(0), mpf(6)) / 6),
    ("LeakyReLU", {"alpha": 0.125}, lambda x: x if x >= 0 else x / 8),
    ("Log", {}, lambda x: mp.log(x) if x > 0 else mpf("nan")),
    ("Mish", {}, lambda x: x * mp.tanh(mp.log(1 + mp.exp(x)))),
    ("Pow", {"beta": 2.0}, lambda x: power(x, 2)),
    ("Pow", {"beta": 3.0}, lambda x: power(x, 3)),
    ("Pow", {"beta": 0.5}, lambda x: power(x, mpf(0.5))),
    ("Pow", {"beta": -1.5}, lambda x: power(x, mpf(-1.5))),
    ("Pow", {"beta": 0.1875}, lambda x: power(x, mpf(0.1875))),
    ("Reciprocal", {}, lambda x: 1 / x),
    ("ReLU", {}, lambda x: max(x, mpf(0))),
    ("Round", {}, round_even),
    ("Sigmoid", {}, logistic),
    ("SoftPlus", {"beta": 1.0}, lambda x: mp.log(1 + mp.exp(x))),
    ("SoftPlus", {"beta": 2.5}, lambda x: mp.log(1 + mp.exp(mpf(2.5) * x)) / mpf(2.5)),
    ("SoftPlus", {"beta": -0.5}, lambda x: mp.log(1 + mp.exp(x / -2)) * -2),
    ("Sqrt", {}, lambda x: mp.sqrt(x) if x >= 0 else mpf("nan")),
    ("Square", {}, lambda x: x * x),
    ("Tanh", {}, mp.tanh),
    ("Floor", {}, mp.floor),
    ("Ceil", {}, mp.ceil),
    ("Sin", {}, mp.sin),
    ("Cos", {}, mp.cos),
]

BINARY = [
    ("PReLU", {"per_channel_broadcast": False}, lambda x, y: x if x >= 0 else y * x),
    ("AbsBackward", {}, lambda x, y: mp.sign(x) * y),
    ("ClampBackward", {"min": -1.0, "max": 2.5, "use_dst": True}, lambda x, y: y if -1 < x < 2.5 else 0),
    ("ClampBackward", {"min": -1.0, "max": 2.5, "use_dst": False}, lambda x, y: y if -1 < x < 2.5 else 0),
    ("EluBackward", {"alpha": 0.7, "use_dst": False}, lambda x, y: y if x > 0 else y * SEVEN_TENTHS * mp.exp(x)),
    ("EluBackward", {"alpha": 0.7, "use_dst": True}, lambda x, y: y if x > 0 else y * (x + SEVEN_TENTHS)),
    ("GELUBackward", {"mode": "gelu_erf"}, lambda x, y: y * (cdf(x) + x * density(x))),
    ("GELUBackward", {"mode": "gelu_tanh"}, lambda x, y: y * gelu_tanh_slope(x)),
    (
        "HardSigmoidBackward",
        {"alpha": 0.1875, "beta": 0.5},
        lambda x, y: y * mpf(0.1875) if 0 < mpf(0.1875) * x + mpf(0.5) < 1 else 0,
    ),
    ("HardSwishBackward", {}, lambda x, y: y if x >= 3 else y * (2 * x + 3) / 6 if x > -3 else 0),
    ("MishBackward", {}, lambda x, y: y * mish_slope(x)),
    ("ReLUBackward", {"use_dst": True}, lambda x, y: y if x > 0 else 0),
    ("ReLUBackward", {"use_dst": False}, lambda x, y: y if x > 0 else 0),
    ("SigmoidBackward", {"use_dst": False}, lambda x, y: y * logistic(x) * (1 - logistic(x))),
    ("SigmoidBackward", {"use_dst": True}, lambda x, y: y * x * (1 - x)),
    ("SoftPlusBackward", {"beta": 2.5}, lambda x, y: y * logistic(mpf(2.5) * x)),
    ("SqrtBackward", {"use_dst": False}, lambda x, y: y / (2 * mp.sqrt(x)) if x > 0 else mpf("nan")),
    ("SqrtBackward", {"use_dst": True}, lambda x, y: y / (2 * x)),
    ("TanhBackward", {"use_dst": False}, lambda x, y: y * (1 - mp.tanh(x) ** 2)),
    ("TanhBackward", {"use_dst": True}, lambda x, y: y * (1 - x * x)),
    ("SquaredDifference", {}, lambda x, y: mpf(f32(bits_of(x - y))) ** 2),
]


def points(draw):
    """Bits of numbers of all exponents, and more of those where functions bend."""
    every = [draw.getrandbits(1) << 31 | exponent << 23 | draw.getrandbits(23) for exponent in range(0, 255, 8)]
    near = [bits_of(mpf(draw.uniform(-12, 12))) for _ in range(28)]
    wide = [bits_of(mpf(draw.uniform(-104, 90))) for _ in range(10)]
    return every + near + wide + [0x3F800000, 0xBF800000]


def attribute(name, value):
    return f" {name}={value}".lower()


def main():
    draw = random.Random(1)
    lines = []
    for table, inputs in ((UNARY, 1), (BINARY, 2)):
        for kind, attributes, function in table:
            lines.append(kind + "".join(attribute(*pair) for pair in attributes.items()))
            for x in points(draw):
                # Gradients of common sizes, some of any.
                spread = 6 if draw.random() < 0.8 else 100
                y = bits_of(mpf(draw.choice((-1, 1)) * draw.uniform(1, 2) * 2.0 ** draw.randint(-spread, spread)))
                given = (x, y)[:inputs]
                result = function(*(mpf(f32(bits)) for bits in given))
                if result == 0 or mp.isnan(result):
                    continue
                result = bits_of(mpf(result))
                if result & 0x7FFFFFFF:
                    lines.append(" ".join(f"{bits:08x}" for bits in (*given, result)))
    path = pathlib.Path(__file__).with_suffix(".txt")
    path.write_text("\n".join(lines) + "\n")


main()
