"""What arguments may be, for checkers of types."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt


class SupportsDLPack(Protocol):
    """Anything that hands over its memory by DLPack, such as a tensor of torch."""

    def __dlpack__(self) -> Any: ...


class SupportsArrayInterface(Protocol):
    """Anything with an array interface."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


#: Anything that is read as an array.
ArrayLike: TypeAlias = npt.ArrayLike | SupportsDLPack | SupportsArrayInterface

#: The name of a type, such as "f32", "bf16" or "int64", or a dtype of NumPy or torch.
DTypeLike: TypeAlias = str | np.dtype[Any] | type[Any] | object
