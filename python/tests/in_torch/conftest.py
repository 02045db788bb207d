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
