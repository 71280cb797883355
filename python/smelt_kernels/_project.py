"""The value up-projection of absorbed multi-head latent attention, by cuBLAS."""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import floating, tensor


def project_values(out: Tensor, weight: Tensor) -> Tensor:
    """Each head's latent output times its own matrix, differentiable.

    out [.., T, H, dv] and weight [H, width, dv] give [.., T, H, width]: one batched product, whose
    batch is the heads.
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
