"""Rows of ops that compute each element from one element of each argument."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from sterna import Value

from ._convert import DTYPES, TYPES, Lowering, NotTaken

#: Types in which Sterna computes.
FLOATS = ("f32", "bf16", "f16", "f64")
COMPUTED = (*FLOATS, "s32", "s64")
Make = Callable[..., Any]


def out_type(c: Lowering) -> str:
    """The type of the result."""
    return TYPES[c.meta().dtype]


def inner_type(dtype: str) -> str:
    """The type in which an expression of several ops is computed, so that it is rounded once."""
    return "f32" if dtype in ("bf16", "f16") else dtype


def operand(c: Lowering, given: Any, dtype: str) -> Value:
    """A value or a number in a type. Numbers stay f32 beside 16 bits, and so does f32."""
    if isinstance(given, Value):
        if dtype in ("bf16", "f16") and given.dtype in (dtype, "f32"):
            return given
        return c.cast(given, dtype)
    if isinstance(given, complex) or not isinstance(given, (bool, int, float)):
        raise NotTaken(f"an argument {given!r}")
    return c.fill(given, inner_type(dtype), (1,) * len(c.meta().shape))


def unary(kind: str, **attributes: Any) -> Make:
    def make(c: Lowering, x: Value, **_: Any) -> Value:
        dtype = out_type(c)
        if dtype not in FLOATS and x.dtype != dtype:
            raise NotTaken(f"{kind} of {x.dtype}")
        return c.op(kind, c.cast(x, dtype), **attributes)

    return make


def wide(*kinds: str) -> Make:
    """Several ops in a row, rounded once."""

    def make(c: Lowering, x: Value) -> Value:
        dtype = out_type(c)
        x = c.cast(x, inner_type(dtype))
        for kind in kinds:
            x = c.op(kind, x)
        return c.cast(x, dtype)

    return make


def binary(kind: str) -> Make:
    def make(c: Lowering, a: Any, b: Any, alpha: Any = 1) -> Value:
        dtype = out_type(c)
        if dtype == "boolean":
            raise NotTaken(f"{kind} of booleans")
        inner = dtype if dtype in COMPUTED else "s32"
        x, y = operand(c, a, inner), operand(c, b, inner)
        if alpha != 1:
            y = c.op("Multiply", y, operand(c, alpha, inner), dtype=inner_type(inner))
        if kind in ("Maximum", "Minimum"):
            x, y = c.cast(x, inner), c.cast(y, inner)
            return c.cast(c.op(kind, x, y), dtype)
        return c.cast(c.op(kind, x, y, dtype=inner), dtype)

    return make


def known_number(c: Lowering, given: Any) -> Any:
    """A divisor as a number, if it is one for all elements and known ahead."""
    tensor = c.known(given) if isinstance(given, torch.fx.Node) else None
    if tensor is not None and tensor.numel() == 1:
        return tensor.item()
    return None if isinstance(given, (torch.fx.Node, complex)) else given


def check_divisor(c: Lowering, dtype: str) -> None:
    """Refuses what torch would have to refuse: an integer divided by 0."""
    if dtype not in COMPUTED:
        raise NotTaken(f"quotients of {dtype}")
    if dtype not in FLOATS and not known_number(c, c.node.args[1]):
        raise NotTaken("an integer divisor that may be 0")


def rounded_number(number: Any, dtype: str) -> Any:
    """A number as torch has it beside elements of the type."""
    return float(torch.tensor(number, dtype=DTYPES[dtype])) if dtype in ("bf16", "f16") else number


def rounded(c: Lowering, given: Any, dtype: str) -> Value:
    """A value or a number as the type has it, to be computed with in a wider one."""
    inner = inner_type(dtype)
    if isinstance(given, Value):
        return c.cast(c.cast(given, dtype), inner)
    return operand(c, rounded_number(given, dtype), inner)


def remainder(c: Lowering, a: Any, b: Any) -> Value:
    dtype = out_type(c)
    check_divisor(c, dtype)
    return c.cast(c.op("Modulo", rounded(c, a, dtype), rounded(c, b, dtype)), dtype)


def rounded_quotient(c: Lowering, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    dtype = out_type(c)
    if rounding_mode is None:
        made: Value = binary("Divide")(c, a, b)
        return made
    if rounding_mode != "floor" or dtype in FLOATS:
        raise NotTaken(f"quotients of {dtype} that are rounded by {rounding_mode}")
    check_divisor(c, dtype)
    return c.op("Divide", operand(c, a, dtype), operand(c, b, dtype))


def floored_quotient(c: Lowering, a: Any, b: Any) -> Value:
    return rounded_quotient(c, a, b, "floor")


def copied_over(c: Lowering, x: Value, source: Value, *_: Any) -> Value:
    shape: Any = source.shape
    return c.cast(c.reshape(source, (1,) * (len(c.meta().shape) - len(shape)) + shape), out_type(c))


def reverse_subtract(c: Lowering, a: Any, b: Any, alpha: Any = 1) -> Value:
    if alpha != 1:
        raise NotTaken("a factor")
    made: Value = binary("Subtract")(c, b, a)
    return made


def add_product(c: Lowering, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    return add_term(c, "Multiply", x, a, b, value)


def add_quotient(c: Lowering, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    return add_term(c, "Divide", x, a, b, value)


def add_term(c: Lowering, kind: str, x: Value, a: Value, b: Value, value: Any) -> Value:
    dtype = out_type(c)
    if dtype not in FLOATS:
        raise NotTaken(f"results of type {dtype}")
    inner = inner_type(dtype)
    if value != 1:
        a = c.op("Multiply", c.cast(a, inner), operand(c, value, inner))
    term = c.op(kind, c.cast(a, inner), c.cast(b, inner))
    return c.cast(c.op("Add", c.cast(x, inner), term), dtype)


def common_type(c: Lowering, a: Any, b: Any) -> str:
    """The type in which two arguments of the node are compared."""
    def traced(given: Any) -> Any:
        return given.meta["val"] if isinstance(given, torch.fx.Node) else given

    dtype = TYPES.get(torch.result_type(traced(c.node.args[0]), traced(c.node.args[1])))
    if dtype is None:
        raise NotTaken("a type that is not known")
    return dtype


def compare(kind: str) -> Make:
    def make(c: Lowering, a: Any, b: Any) -> Value:
        dtype = common_type(c, a, b)
        if dtype == "boolean":
            dtype = "s32"
        rank = len(c.meta().shape)

        def side(given: Any) -> Value:
            if isinstance(given, Value):
                return c.cast(given, dtype)
            return c.fill(rounded_number(given, dtype), dtype, (1,) * rank)

        return c.op(kind, side(a), side(b))

    return make


def test(kind: str) -> Make:
    def make(c: Lowering, x: Value) -> Value:
        if x.dtype not in FLOATS:
            raise NotTaken(f"{kind} of {x.dtype}")
        return c.op(kind, x)

    return make


def logical(kind: str) -> Make:
    def make(c: Lowering, *given: Value) -> Value:
        return c.op(kind, *(c.cast(one, "boolean") for one in given))

    return make


def bitwise(kind: str) -> Make:
    def make(c: Lowering, *given: Any) -> Value:
        if not all(isinstance(one, Value) and one.dtype == "boolean" for one in given):
            raise NotTaken("bits of integers")
        return c.op(kind, *given)

    return make


def where(c: Lowering, condition: Value, a: Any, b: Any) -> Value:
    dtype = out_type(c)

    def side(given: Any) -> Value:
        if isinstance(given, Value):
            return c.cast(given, dtype)
        return c.fill(given, dtype, (1,) * len(c.meta().shape))

    return c.op("Select", c.cast(condition, "boolean"), side(a), side(b), auto_broadcast="multidirectional")


def masked_fill(c: Lowering, x: Value, mask: Value, value: Any) -> Value:
    return where(c, mask, value, x)


def full(c: Lowering, *_: Any, **__: Any) -> Value:
    number = c.node.args[1] if len(c.node.args) > 1 else c.node.kwargs["fill_value"]
    if not isinstance(number, (bool, int, float)):
        raise NotTaken("a number that is not known")
    return c.fill(number, out_type(c), (1,) * len(c.meta().shape))


def scalar_tensor(c: Lowering, number: Any, **_: Any) -> Value:
    if not isinstance(number, (bool, int, float)):
        raise NotTaken("a number that is not known")
    return c.fill(number, out_type(c))


def same(c: Lowering, x: Value, **_: Any) -> Value:
    return x


def to_copy(c: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    return c.cast(x, out_type(c))


def gelu(c: Lowering, x: Value, approximate: str = "none") -> Value:
    return c.op("GELU", x, mode="gelu_tanh" if approximate == "tanh" else "gelu_erf")


def gelu_backward(c: Lowering, grad: Value, x: Value, approximate: str = "none") -> Value:
    source: Any = c.node.args[0]
    if source.target is operator.getitem and source.args[0].target is torch.ops.aten.convolution_backward.default:
        # On the tiles of a convolution it takes as long as half of that (decision: torch-gelu).
        raise NotTaken("gradients of GELU behind those of a convolution")
    return c.op("GELUBackward", x, grad, mode="gelu_tanh" if approximate == "tanh" else "gelu_erf")


def silu(c: Lowering, x: Value) -> Value:
    dtype = out_type(c)
    inner = c.cast(x, inner_type(dtype))
    return c.op("Multiply", inner, c.op("Sigmoid", inner), dtype=dtype)


def silu_backward(c: Lowering, grad: Value, x: Value) -> Value:
    dtype = out_type(c)
    grad, x = c.cast(grad, inner_type(dtype)), c.cast(x, inner_type(dtype))
    share = c.op("Sigmoid", x)
    one = c.fill(1, inner_type(dtype), (1,) * len(c.meta().shape))
    rest = c.op("Add", one, c.op("Multiply", x, c.op("Subtract", one, share)))
    return c.op("Multiply", c.op("Multiply", grad, share), rest, dtype=dtype)


def elu(c: Lowering, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if scale != 1 or input_scale != 1:
        raise NotTaken("factors")
    return c.op("Elu", x, alpha=float(alpha))


def leaky_relu(c: Lowering, x: Value, slope: float = 0.01) -> Value:
    return c.op("LeakyReLU", x, alpha=float(slope))


def softplus(c: Lowering, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    # From the threshold on torch gives the argument, which for the usual one is the same number.
    if threshold < 20:
        raise NotTaken("a threshold below 20")
    return c.op("SoftPlus", x, beta=float(beta))


def hardtanh(c: Lowering, x: Value, low: float = -1, high: float = 1) -> Value:
    return clamp(c, x, low, high)


def power(c: Lowering, x: Value, exponent: Any) -> Value:
    dtype = out_type(c)
    if dtype not in FLOATS:
        if dtype == x.dtype and dtype in ("s32", "s64") and exponent in (1, 2):
            return x if exponent == 1 else c.op("Multiply", x, x)
        raise NotTaken(f"powers of {dtype}")
    value = c.cast(x, inner_type(dtype))
    if exponent == 2:
        return c.op("Multiply", value, value, dtype=dtype)
    if exponent == 3:
        return c.op("Multiply", c.op("Multiply", value, value), value, dtype=dtype)
    if exponent == 1:
        return c.cast(x, dtype)
    if exponent in (0.5, -0.5, -1):
        if exponent != -1:
            value = c.op("Sqrt", value)
        if exponent < 0:
            value = c.op("Reciprocal", value)
        return c.cast(value, dtype)
    if dtype == "f64":
        raise NotTaken("powers of f64")
    return c.cast(c.op("Pow", value, beta=float(exponent)), dtype)


def clamp(c: Lowering, x: Value, low: Any = None, high: Any = None) -> Value:
    dtype = out_type(c)
    if dtype not in COMPUTED:
        raise NotTaken(f"bounds of {dtype}")
    value = c.cast(x, dtype)
    for kind, bound in (("Maximum", low), ("Minimum", high)):
        if bound is None:
            continue
        if isinstance(bound, float) and (math.isnan(bound) or dtype in ("s32", "s64")):
            raise NotTaken(f"a bound of {bound}")
        value = c.op(kind, value, c.cast(operand(c, bound, dtype), dtype))
    return value


def clamp_max(c: Lowering, x: Value, high: Any) -> Value:
    return clamp(c, x, None, high)


def tanh_backward(c: Lowering, grad: Value, out: Value) -> Value:
    return c.op("TanhBackward", out, grad, use_dst=True)


def sigmoid_backward(c: Lowering, grad: Value, out: Value) -> Value:
    return c.op("SigmoidBackward", out, grad, use_dst=True)


def threshold_backward(c: Lowering, grad: Value, x: Value, threshold: Any) -> Value:
    if threshold != 0:
        raise NotTaken("a threshold that is not 0")
    zero = c.fill(0, x.dtype, (1,) * len(c.meta().shape))
    # A NaN lets the gradient through.
    held = c.op("LessEqual", x, zero)
    nothing = c.fill(0, grad.dtype, (1,) * len(c.meta().shape))
    return c.op("Select", held, nothing, grad, auto_broadcast="multidirectional")
