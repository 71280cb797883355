"""Arguments that are no tensors."""

from __future__ import annotations

import math
import operator
from typing import Literal, get_args

from torch import SymFloat, SymInt, Tensor, int32

Backend = Literal["auto", "smelt", "torch"]
Order = Literal["index", "score"]
ScaleKind = Literal["plain", "power_of_two"]
LseBase = Literal["natural", "base2"]
Passes = Literal["forward", "backward", "both"]
Activation = Literal["relu", "none"]
BACKENDS, ORDERS, SCALES, LSE_BASES, ACTIVATIONS = map(get_args, (Backend, Order, ScaleKind, LseBase, Activation))
CHOICES = {"backend": BACKENDS, "order": ORDERS, "scale": SCALES, "activation": ACTIVATIONS}  # of arguments that are texts
CHOICES |= {"logits": ("fp32", "bf16")}
BLOCKS = tuple(1 << bit for bit in range(8))
MOST_SCALE = 2e38


def tensor(value, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"smelt: {name} must be a torch.Tensor, not {type(value).__name__}")
    return value


def optional_tensor(value, name: str) -> Tensor | None:
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(f"smelt: {name} must be a torch.Tensor or None, not {type(value).__name__}")
    return value


def whole(value, name: str) -> int:
    """A positive number."""
    number = int(integer(value, name, 64))
    if not 0 < number < 1 << 31:
        raise ValueError(f"smelt: {name} must be positive{'' if number < 1 else ' and below 2^31'}, not {number}")
    return number


def not_negative(value, name: str) -> int:
    number = int(integer(value, name))
    if number < 0:
        raise ValueError(f"smelt: {name} must not be negative, and is {number}")
    return number


def integer(value, name: str, bits: int = 32) -> int:
    """An int that C has."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"smelt: {name} must be an int, not {type(value).__name__}") from None
    if not -(1 << bits - 1) <= found < 1 << bits - 1:
        raise ValueError(f"smelt: {name} is out of range: {found}")
    return found


def are_ints(one, two) -> bool:
    """Whether both are ints. Only ints are compared with a default, since an array's comparison has no truth value."""
    return type(one) is type(two) is int


def power(value, name: str) -> int:
    """A number of keys or rows that blocks have."""
    found = int(integer(value, name, 64))
    if found not in BLOCKS:
        raise ValueError(f"smelt: {name} must be a power of two from 1 to 128, not {found}")
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


def finite(value, name: str):
    """A finite number, which may be 0 or negative."""
    found = number(value, name)
    if isinstance(found, (float, int)) and not math.isfinite(found):
        raise ValueError(f"smelt: {name} = {found} is not legal; legal: finite numbers")
    return found


def legal_scale(scale) -> None:
    """Refuses a softmax scale that the kernels refuse."""
    if isinstance(scale, (float, int)) and not 0 < scale <= MOST_SCALE:
        raise ValueError(f"smelt: scale = {scale} is not legal; it must be positive and at most {MOST_SCALE:g}")


def choose(value, name: str, legal: tuple) -> None:
    """Refuses a value that is not legal."""
    try:
        is_legal = value in legal
    except (RuntimeError, ValueError):  # an array, whose comparison has no truth value
        is_legal = False
    if not is_legal:
        raise ValueError(f"smelt: {name} must be one of {', '.join(map(repr, legal))}, not {value!r}")


def floating(**named) -> None:
    """Tensors or None. Integer tensors are refused, since casts to and from integers would lose digits."""
    for name, value in named.items():
        if isinstance(value, Tensor) and not value.is_floating_point():
            raise TypeError(f"smelt: {name} must be of a floating type, not {value.dtype}")


def one_masked(indices: Tensor) -> Tensor:
    """Lists of one slot, which is masked, in the place of lists without a slot, which no kernel takes."""
    return indices if indices.shape[-1] else indices.new_full((*indices.shape[:-1], 1), -1)


def shapes(**named: tuple) -> None:
    """Checks the dimensions of tensors, for functions that reshape them before they call an operator. Of each name:
    the tensor; a letter for each dimension, then "?" if the tensor may be None; True if it must be int32. A letter
    stands for the same extent in all tensors of a call, "1" for the extent 1."""
    extents: dict = {}
    for name, (tensor, letters, *whole_numbers) in named.items():
        if tensor is None and letters.endswith("?"):
            continue
        letters = letters.rstrip("?")
        if not isinstance(tensor, Tensor):
            raise TypeError(f"smelt: {name} must be a torch.Tensor, not {type(tensor).__name__}")
        if whole_numbers and tensor.dtype is not int32:
            raise TypeError(f"smelt: {name} must be torch.int32, not {tensor.dtype}")
        if tensor.dim() != len(letters):
            raise ValueError(f"smelt: {name} must be [{', '.join(letters)}], not of {tensor.dim()} dimensions")
        for dimension, (letter, size) in enumerate(zip(letters, tensor.shape)):
            wanted = 1 if letter == "1" else extents.setdefault(letter, size)
            if size != wanted:
                raise ValueError(f"smelt: dimension {dimension} of {name} ({letter}) is {size}, but must be {wanted}")
