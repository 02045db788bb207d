"""What sterna.torch has: its names, their examples, and what they cost before they are used."""

import doctest

import pytest

pytest.importorskip("torch")

import sterna.torch


def test_names():
    assert dir(sterna.torch) == sorted(sterna.torch.__all__)
    assert all(getattr(sterna.torch, name).__doc__ for name in sterna.torch.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        sterna.torch.nothing


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["sterna.torch", *sterna.torch.__all__])
def test_examples(name):
    item = sterna.torch if name == "sterna.torch" else getattr(sterna.torch, name)
    assert ">>>" in item.__doc__
    example = doctest.DocTestParser().get_doctest(item.__doc__, {}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    failures = []
    runner.run(example, out=failures.append)
    assert runner.failures == 0, "".join(failures)
