"""The value up-projection of absorbed multi-head latent attention, by cuBLAS."""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import floating, tensor


def project_values(out: Tensor, weight: Tensor) -> Tensor:
    """Projects each head's latent output by the head's own matrix: one batched product, differentiable.

    Args:
        out: [..., H, dv], sparse_attention's output.
        weight: [H, width, dv], the up-projection of each head; cast to out's type.

    Returns:
        [..., H, width], of out's type.

    Raises:
        TypeError: an argument is not a tensor of a floating type.
        ValueError: the shapes do not match.

    Example:
        >>> out = smelt.sparse_attention(q, kv, indices, scale)  # [T, H, 512]
        >>> weight = torch.randn(out.shape[1], 128, 512, dtype=torch.bfloat16, device=out.device)
        >>> smelt.project_values(out, weight).shape == (*out.shape[:2], 128)
        True
    """
    tensor(out, "out")
    tensor(weight, "weight")
    floating(out=out, weight=weight)
    if weight.dim() != 3 or out.dim() < 2 or out.shape[-2] != weight.shape[0] or out.shape[-1] != weight.shape[2]:
        raise ValueError(
            f"smelt: out [.., H, dv] and weight [H, width, dv] are needed, not {tuple(out.shape)} and "
            f"{tuple(weight.shape)}"
        )
    heads, width, dv = weight.shape
    flat = out.reshape(-1, heads, dv).transpose(0, 1)
    projected = torch.bmm(flat, weight.transpose(1, 2).to(out.dtype))
    return projected.transpose(0, 1).reshape(*out.shape[:-1], width)
