"""Settings of the tests with torch."""

import pytest


@pytest.fixture
def fresh():
    """Nothing that an earlier test compiled, and the same random numbers."""
    import torch

    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def taken(monkeypatch):
    """Takes convolutions that torch is faster at as well."""
    from sterna.torch import _convolutions

    for name in ("check_columns", "check_scattered", "check_weights"):
        monkeypatch.setattr(_convolutions.Layer, name, lambda *_: None)
