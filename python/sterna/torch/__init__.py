"""Sterna in torch: a backend of ``torch.compile``, which finds it by the name ``"sterna"``, and attention of code
that is not compiled.

>>> import torch, sterna.torch
>>> function = torch.compile(lambda x: torch.relu(x) + 1, backend=sterna.torch.backend)
>>> function(torch.tensor([-1.0, 2.0]))
tensor([1., 3.])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._backend import backend
    from ._eager import sdpa
    from ._explain import Explanation, explain
    from ._transformers import register

#: The module of each public name: one is read when a name of it is wanted.
_HOMES = {
    "Explanation": "_explain",
    "backend": "_backend",
    "explain": "_explain",
    "register": "_transformers",
    "sdpa": "_eager",
}

__all__ = ["Explanation", "backend", "explain", "register", "sdpa"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
