"""Rows as fp8 (e4m3) with scales, and what these rows stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from ._checks import SCALES, Backend, ScaleKind, choose, integer
from ._library import LibraryOperation, of_groups, spec_text
from ._operation import as_kernels_read, may_cast


def _spec(_, dim, scale: str, groups: int) -> str:
    return spec_text("quantize", {"dim": dim, "scale": scale, "groups": groups})


def _rules(named) -> None:
    if not named["x"].shape[-1]:
        raise ValueError(f"smelt: x has rows without an element: {tuple(named['x'].shape)}")


def _quantized(x, factor, scale, groups):
    y, _, scales = _reference.quantize(x, scale, groups)
    return y, scales if factor is None else scales * factor.unsqueeze(-1)


def _dequantized(x, scale, groups):
    return _reference.quantize(x, scale, groups)[1]


_common = {"spec": _spec, "key": {"x": 1}, "sizes": of_groups, "rules": _rules}
_quantization = LibraryOperation("quantize", reference=_quantized, also=("y", "scale"), **_common)
_rounding = LibraryOperation("quantize", name="fake_quantize", reference=_dequantized, also=("dequantized",), **_common)
_rounding.differentiable(("x",), 0, lambda arguments, made: ((), ()), lambda grad, rest: (grad,))


def _groups(x: Tensor, group_size: int | None) -> int:
    """How many groups of columns a row has."""
    if group_size is None or not isinstance(x, Tensor) or not x.dim():
        return 1
    size, columns = integer(group_size, "group_size"), x.shape[-1]
    if size <= 0 or columns % size:
        raise ValueError(f"smelt: group_size must divide the {columns} columns of x, and {size} does not")
    return columns // size


def quantize(
    x: Tensor,
    *,
    factor: Tensor | None = None,
    scale: ScaleKind = "plain",
    group_size: int | None = None,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    """Quantizes rows of bf16 to fp8 (e4m3), with an fp32 scale for each row or each group of its columns.

    Args:
        x: [..., D], bf16, D a multiple of 16 up to 1024.
        factor: [...], fp32: the scales are multiplied by it, as for the indexer's weights, which take its queries'
            scales.
        scale: "plain" is the group's largest magnitude divided by 448, "power_of_two" the next power of two.
        group_size: columns that share a scale, a multiple of 16 that divides D; None means the whole row.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        y [..., D] torch.float8_e4m3fn, and scales fp32, [...] or, with a group_size, [..., D / group_size]. Without a
        factor x is approximately y times the scale of its group.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> y, scales = smelt.quantize(ik)  # bf16 [S, 128]
        >>> y.dtype, scales.shape == ik.shape[:1]
        (torch.float8_e4m3fn, True)
    """
    choose(scale, "scale", SCALES)
    if may_cast(x):
        _, x = as_kernels_read(backend, x)
    y, scales = _quantization.call(x, factor, 0, scale, _groups(x, group_size), backend)
    return y, scales.squeeze(-1) if group_size is None else scales


def fake_quantize(
    x: Tensor, *, scale: ScaleKind = "plain", group_size: int | None = None, backend: Backend | None = None
) -> Tensor:
    """Rounds rows of bf16 to what a cache in fp8 (e4m3) holds of them, with a straight-through gradient.

    For training with a quantized KV cache: attention reads the rows as inference will. The result is that of quantize,
    dequantized to bf16: y times the scale of its group, rounded. No element saturates, since a scale follows from its
    group's largest magnitude, so the gradient of x is the result's gradient.

    Args:
        x: [..., D], bf16, D a multiple of 16 up to 1024. To round only some of a row's columns, pass a slice of them.
        scale: "plain" is the group's largest magnitude divided by 448, "power_of_two" the next power of two.
        group_size: columns that share a scale, a multiple of 16 that divides D; None means the whole row.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        [..., D], in the type of x. A group with an infinity is NaN.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> rounded = smelt.fake_quantize(ik, group_size=64, scale="power_of_two")  # bf16 [S, 128]
        >>> bool(((rounded.float() - ik.float()).abs() <= ik.float().abs() / 16 + 1e-3).all())
        True
    """
    choose(scale, "scale", SCALES)
    wanted = None
    if may_cast(x):
        wanted, x = as_kernels_read(backend, x)
    (rounded,) = _rounding.call(x, 0, scale, _groups(x, group_size), backend)
    return rounded if wanted is None else rounded.to(wanted)
