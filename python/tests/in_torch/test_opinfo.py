"""torch's own samples of its ops through the lowering, and some through dynamo, against eager torch.

A sample of those that have rows, by a fixed seed; all that torch has with STERNA_OPINFO=1, which takes minutes.
"""

import os
import random
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's samples need it")

import torch_harness
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import sterna.torch
from sterna.torch import _aten

pytestmark = pytest.mark.filterwarnings("ignore")

TYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
IS_WHOLE = os.environ.get("STERNA_OPINFO") == "1"
#: Pairs of an op and a type in the sample, and calls of each.
CASES, SAMPLES = 150, 12 if IS_WHOLE else 2
#: Ops of whose results torch may take any where elements are equal, and those that leave memory as it was.
OF_EQUALS = ("topk", "sort", "msort", "argsort", "argmax", "argmin", "mode", "median", "nanmedian", "kthvalue")
UNWRITTEN = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


def cases():
    found = [
        (op, dtype) for op in op_db for dtype in TYPES if dtype in op.dtypes and op.name not in UNWRITTEN
    ]
    if IS_WHOLE:
        return found
    of_rows = {str(target).split(".")[1] for target in _aten.ROWS if str(target).startswith("aten.")}
    return random.Random(0).sample([(op, dtype) for op, dtype in found if op.aten_name in of_rows], CASES)


def name_of(case):
    op, dtype = case
    return f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}"


def samples_of(op, dtype, most):
    """Calls of an op: a function of its tensors, and these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    if len(samples) > most:
        samples = random.Random(0).sample(samples, most)
    for sample in samples:
        flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [index for index, one in enumerate(flat) if isinstance(one, torch.Tensor)]
        if not places:
            continue

        def call(*tensors, flat=flat, spec=spec, places=places):
            given = list(flat)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            first, args, kwargs = pytree.tree_unflatten(given, spec)
            found = pytree.tree_leaves(op.op(first, *args, **kwargs))
            return tuple(one for one in found if isinstance(one, torch.Tensor))

        yield call, [flat[place] for place in places]


def widened(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


def assert_near(results, expected, call, tensors):
    """Results are those of torch within its own tolerances, or hardly farther from those of f64 than they are."""
    assert len(results) == len(expected)
    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        try:
            torch.testing.assert_close(result, wanted, equal_nan=True, check_stride=False)
        except AssertionError:
            is_rounded = result.shape == wanted.shape and result.dtype == wanted.dtype and result.is_floating_point()
            if not is_rounded or not torch.equal(result.isfinite(), wanted.isfinite()):
                raise
            exact = call(*map(widened, tensors))[index].double()
            of_ours, of_torch = ((one.double() - exact).abs().nan_to_num(0, 0, 0).max() for one in (result, wanted))
            if of_ours > 2 * of_torch + torch.finfo(result.dtype).eps * exact.abs().nan_to_num(0, 0, 0).max():
                raise


def is_repeatable(call, tensors):
    """If a call gives the same twice, and not an error."""
    try:
        first, second = (call(*[one.clone() for one in tensors]) for _ in range(2))
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    except Exception:
        return False
    return True


def of_floats(call, tensors):
    """A call without its results of integers, if equal elements leave these open."""
    kept = [index for index, one in enumerate(call(*tensors)) if one.is_floating_point()]
    return lambda *given: tuple(call(*given)[index] for index in kept)


def by_lowering(call, tensors):
    """Compares the graph of a call in Sterna with the call, and with itself in torch if the parts that torch took the
    call apart into give something else there, too."""
    try:
        module = torch_harness.traced(call, *tensors)
    except Exception:
        # The sizes of results follow from elements.
        return
    targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
    draws = any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in targets)
    if draws or not any(target in _aten.ROWS for target in targets):
        return
    own = lambda: [one.clone() for one in tensors]
    results, _ = torch_harness.run_graph(module, *own())
    try:
        assert_near(results, call(*own()), call, tensors)
    except AssertionError:
        plain = module(*own())
        try:
            assert_near(plain, call(*own()), call, tensors)
        except AssertionError:
            assert_near(results, plain, call, tensors)
        else:
            raise


def by_dynamo(call, tensors):
    torch._dynamo.reset()
    assert_near(torch.compile(call, backend=sterna.torch.backend)(*tensors), call(*tensors), call, tensors)


def wrong_ones(case, check):
    op, dtype = case
    wrong = []
    for call, tensors in samples_of(op, dtype, SAMPLES):
        if not is_repeatable(call, tensors):
            continue
        try:
            check(of_floats(call, tensors) if op.name in OF_EQUALS else call, tensors)
        except Exception as error:
            wrong.append(f"{[tuple(one.shape) for one in tensors]}: {type(error).__name__}: {error}")
    return wrong


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_lowering(case):
    wrong = wrong_ones(case, by_lowering)
    assert not wrong, "\n".join(wrong)


def of_images():
    return [(op, dtype) for op in op_db for dtype in TYPES[:2] if dtype in op.dtypes and "conv" in op.name]


@pytest.mark.parametrize("case", of_images(), ids=name_of)
def test_convolutions(case, taken):
    """Those that torch is faster at as well, which most samples are."""
    wrong = wrong_ones(case, by_lowering)
    assert not wrong, "\n".join(wrong)


#: Ops whose graphs have views, several results, writes, and numbers as arguments.
DYNAMO = ("addmm", "cat", "chunk", "index_select", "nn.functional.layer_norm", "nn.functional.gelu", "softmax", "std", "tril", "where")


@pytest.mark.parametrize("name", DYNAMO)
def test_dynamo(name):
    op = next(op for op in op_db if op.name == name)
    wrong = wrong_ones((op, torch.float32), by_dynamo)
    assert not wrong, "\n".join(wrong)
