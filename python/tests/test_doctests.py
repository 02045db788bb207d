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
            for method in vars(item):
                if not method.startswith("_"):
                    found[f"{name}.{method}"] = getattr(getattr(item, method, None), "__doc__", None)
    return found


def test_every_public_item_is_documented():
    missing = [name for name, text in documented().items() if not text]
    # Fields of plain data have their meaning in their names.
    plain = [name for name in missing if name.split(".")[0] in ("MissingOp", "OpRef", "PortRef", "ShownValue")]
    assert missing == plain


def test_functions_and_classes_have_examples():
    items = {name: getattr(sterna, name) for name in sterna.__all__}
    # Errors, and the plain data that they hold, are shown by `Error`.
    is_of_errors = {name for name in items if name.endswith("Error") or name in ("MissingOp", "OpRef", "PortRef", "ShownValue")}
    own = {name: item for name, item in items.items() if callable(item) and name not in is_of_errors - {"Error"}}
    named = {name: item.__doc__ for name, item in own.items()}
    for name, item in own.items():
        # Methods of kinds are made of the schema; the class shows how they are called.
        if inspect.isclass(item) and name != "GraphBuilder":
            methods = {method: getattr(item, method) for method in vars(item) if not method.startswith("_")}
            named |= {f"{name}.{method}": value.__doc__ for method, value in methods.items() if callable(value)}
    assert [name for name, text in named.items() if ">>>" not in text] == []


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
