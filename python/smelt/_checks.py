"""Arguments that are no tensors."""

from __future__ import annotations

import operator

from torch import SymFloat, SymInt, Tensor, int32

BACKENDS = ("auto", "smelt", "torch")
MOST_SCALE = 2e38


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


def integer(value, name: str, bits: int = 32) -> int:
    """An int that C has."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"smelt: {name} must be an int, not {type(value).__name__}") from None
    if not -(1 << bits - 1) <= found < 1 << bits - 1:
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


def legal_scale(scale) -> None:
    """What the kernels say of a softmax scale."""
    if isinstance(scale, (float, int)) and not 0 < scale <= MOST_SCALE:
        raise ValueError(
            f"smelt: scale = {scale} is not legal; it must be positive and at most {MOST_SCALE:g}"
        )


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


def floating(**named) -> None:
    """Tensors or None. Integer tensors are refused, since casts to and from integers would lose digits."""
    for name, value in named.items():
        if value is not None and not value.is_floating_point():
            raise TypeError(f"smelt: {name} must be of a floating type, not {value.dtype}")


def one_masked(indices: Tensor) -> Tensor:
    """Lists of one slot, which is masked, in the place of lists without a slot, which no kernel takes."""
    return indices.new_full((*indices.shape[:-1], 1), -1)


def shapes(**named: tuple) -> None:
    """What the kernels' own checks would say, of what the eager reference computes in their place: a tensor or None,
    a letter for each of its dimensions (the same in all tensors of a call; "1" is 1), and whether it is int32."""
    extents: dict = {}
    for name, (tensor, letters, *whole_numbers) in named.items():
        if tensor is None:
            continue
        if whole_numbers and tensor.dtype is not int32:
            raise TypeError(f"smelt: {name} must be torch.int32, not {tensor.dtype}")
        if tensor.dim() != len(letters):
            raise ValueError(
                f"smelt: {name} must be [{', '.join(letters)}], not of {tensor.dim()} dimensions"
            )
        for dimension, (letter, size) in enumerate(zip(letters, tensor.shape)):
            wanted = 1 if letter == "1" else extents.setdefault(letter, size)
            if size != wanted:
                raise ValueError(
                    f"smelt: dimension {dimension} of {name} ({letter}) is {size}, but must be {wanted}"
                )


def scored(q, k, weights, k_scale, window_begin, window_end) -> None:
    """Of what scores a query's keys."""
    shapes(
        q=(q, "THD"),
        k=(k, "SD"),
        weights=(weights, "TH"),
        k_scale=(k_scale, "S"),
        window_begin=(window_begin, "T", True),
        window_end=(window_end, "T", True),
    )


def selected(q, k, weights, indices, topk_length, grad=None) -> None:
    """Of what scores the keys of lists."""
    shapes(
        q=(q, "THD"),
        k=(k, "SD"),
        weights=(weights, "TH"),
        indices=(indices, "TW", True),
        topk_length=(topk_length, "T", True),
        grad=(grad, "TW"),
    )


def attended(q, kv, indices, topk_length, sink, queries, query_count, lse=None) -> None:
    """Of attention's inputs."""
    batch = "B" if q.dim() == 4 else ""
    shapes(
        q=(q, batch + "THQ"),
        kv=(kv, batch + "SQ"),
        indices=(indices, batch + "TW", True),
        topk_length=(topk_length, batch + "T", True),
        sink=(sink, "H"),
        queries=(queries, "N", True),
        query_count=(query_count, "1", True),
        lse=(lse, batch + "TH"),
    )
