"""Arguments that are no tensors."""

from __future__ import annotations

import operator

from torch import Tensor

BACKENDS = ("auto", "smelt", "torch")


def whole(value, name: str) -> int | None:
    """A positive number, or None."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"smelt: {name} must be an int, not {type(value).__name__}") from None
    if not 0 < number < 1 << 31:
        raise ValueError(f"smelt: {name} must be positive, not {number}")
    return number


def choose(value, name: str, legal: tuple) -> None:
    if value not in legal:
        raise ValueError(
            f"smelt: {name} must be one of {', '.join(map(repr, legal))}, not {value!r}"
        )


def tensors(**named) -> None:
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"smelt: {name} must be a torch.Tensor, not {type(value).__name__}")


def optional_tensors(**named) -> None:
    for name, value in named.items():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"smelt: {name} must be a torch.Tensor or None, not {type(value).__name__}"
            )
