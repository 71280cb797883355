"""slime's GLM-5 kernels, which NeMo AutoModel, Megatron and others vendor: packed layout.

Their contract: q [T, H, 576], kv [S, 1, 576], indices [T, 1, topk], -1 is masked; lse [T, H] in base 2.
Causality is in the lists.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._sparse_attention import sparse_attention, sparse_attention_backward
from ._conventions import from_base2, one_group, to_base2
from .tilelang import _scale


def _attend(q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None, d_v: int):
    rows, lists = one_group(kv, indices)
    out, lse = sparse_attention(q, rows, lists, _scale(q, sm_scale), dv=d_v, return_lse=True,
                                backend="smelt")
    return out, to_base2(lse)


@torch.no_grad()
def sparse_mla_fwd_interface(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float | None = None,
    return_p_sum: bool = False,
    d_v: int = 512,
    **tuning,
) -> tuple[Tensor, Tensor]:
    """(out [T, H, d_v] bf16, lse [T, H] fp32 in base 2)"""
    if return_p_sum:
        raise NotImplementedError("smelt: sparse_mla_fwd_interface with return_p_sum is not there")
    return _attend(q, kv, indices, sm_scale, d_v)


@torch.no_grad()
def sparse_mla_bwd(
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    do: Tensor,
    indices: Tensor,
    lse: Tensor,
    sm_scale: float | None = None,
    is_casual: bool = True,
    return_kernel: bool = False,
    delta: Tensor | None = None,
    **tuning,
) -> tuple[Tensor, Tensor]:
    """(dq, dkv), of the shapes of q and kv."""
    rows, lists = one_group(kv, indices)
    dq, dkv, _ = sparse_attention_backward(do, q, rows, lists, o, from_base2(lse), _scale(q, sm_scale))
    return dq, dkv.unsqueeze(-2)


class SparseMLA:
    """In the place of their autograd.Function: `SparseMLA.apply(q, kv, indices, scaling)`."""

    @staticmethod
    def apply(q: Tensor, kv: Tensor, indices: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
        """(out, lse in base 2), out differentiable."""
        return _attend(q, kv, indices, scaling, 512 if q.shape[-1] in (512, 576) else None)
