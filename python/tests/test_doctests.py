"""The examples in the documentation of every public item."""

import doctest
import inspect

import pytest

import sterna


def documented():
    """Each public item and each method with its documentation."""
    found = {"sterna": sterna.__doc__}
    for name in sterna.__all__:
        item = getattr(sterna, name)
        found[name] = getattr(item, "__doc__", None) if not isinstance(item, tuple) else "-"
        if inspect.isclass(item):
            for method, value in vars(item).items():
                if not method.startswith("_"):
                    found[f"{name}.{method}"] = getattr(value, "__doc__", None)
    return found


def test_every_public_item_is_documented():
    missing = [name for name, text in documented().items() if not text]
    # Fields of plain data have their meaning in their names.
    plain = [name for name in missing if name.split(".")[0] in ("MissingOp", "OpRef", "PortRef", "ShownValue")]
    assert missing == plain


@pytest.mark.parametrize("name", [name for name, text in documented().items() if text and ">>>" in text])
def test_examples(name):
    parser = doctest.DocTestParser()
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    example = parser.get_doctest(documented()[name], {}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=flags)
    failures = []
    runner.run(example, out=failures.append)
    assert runner.failures == 0, "".join(failures)


def test_all_names_are_there():
    assert sorted(set(sterna.__all__)) == sorted(sterna.__all__)
    assert all(hasattr(sterna, name) for name in sterna.__all__)
