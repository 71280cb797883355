"""Arguments that are no tensors."""

from __future__ import annotations

import operator

from torch import SymFloat, SymInt, Tensor

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


def integer(value, name: str) -> int:
    """An int that C has."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"smelt: {name} must be an int, not {type(value).__name__}") from None
    if not -(1 << 31) <= found < 1 << 31:
        raise ValueError(f"smelt: {name} is out of range: {found}")
    return found


def number(value, name: str):
    """A float; an int or a symbolic number as it is."""
    if isinstance(value, (float, int, SymFloat, SymInt)):
        return value
    try:
        if hasattr(type(value), "__float__"):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # of a tensor of several
        pass
    raise TypeError(f"smelt: {name} must be a number, not {type(value).__name__}")


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


def one_masked(indices: Tensor) -> Tensor:
    """Lists of one slot, which is masked, in the place of lists without a slot, which no kernel takes."""
    return indices.new_full((*indices.shape[:-1], 1), -1)
