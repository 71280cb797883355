"""FlashMLA's sparse prefill, `flash_mla.flash_mla_sparse_fwd`.

Its contract: q [T, H, dqk], kv [S, 1, dqk], indices [T, 1, topk] (-1 and what is not below S are masked);
returns (out, max_logits, lse), lse natural, without the sink, +inf for an empty row. Without autograd.
Beyond it: any number of heads, any topk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._sparse_attention import sparse_attention
from ._conventions import one_group, to_flash_mla


@torch.no_grad()
def flash_mla_sparse_fwd(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: Tensor | None = None,
    topk_length: Tensor | None = None,
    indexer_topk: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """(out [T, H, d_v] bf16, max_logits [T, H] fp32, lse [T, H] fp32)"""
    if indexer_topk:
        raise NotImplementedError("smelt: flash_mla_sparse_fwd with indexer_topk is not there")
    rows, lists = one_group(kv, indices)
    out, lse, max_logits = sparse_attention(
        q,
        rows,
        lists,
        sm_scale,
        dv=d_v,
        sink=attn_sink,
        topk_length=topk_length,
        return_lse=True,
        return_max_logits=True,
        backend="smelt",
    )
    return out, max_logits, to_flash_mla(lse)
