"""FlashMLA's sparse prefill, `flash_mla.flash_mla_sparse_fwd`.

Its contract: q [T, H, dqk], kv [S, 1, dqk], indices [T, 1, topk] (negative ones and those from S on are masked);
returns (out, max_logits, lse), lse natural, without the sink, +inf for an empty row. No autograd. With indexer_topk (in
its branch nv_dev) there is a fourth result, lse_indexer: the lse over each query's first indexer_topk slots, +inf if
none of them is valid; smelt computes it by a second forward pass over these slots. In addition: any number of heads,
any topk, any indexer_topk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import integer
from .._sparse_attention import sparse_attention
from ._conventions import without_kv_heads, to_flash_mla
from ._mla import first_slots


@torch.no_grad()
def flash_mla_sparse_fwd(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float, d_v: int = 512, attn_sink: Tensor | None = None,
    topk_length: Tensor | None = None, indexer_topk: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(out [T, H, d_v] bf16, max_logits [T, H] fp32, lse [T, H] fp32), with indexer_topk also lse_indexer
    [T, H] fp32"""
    if integer(indexer_topk, "indexer_topk") < 0:
        raise ValueError(f"smelt: indexer_topk must be 0 or more, not {indexer_topk}")
    rows, lists = without_kv_heads(q, kv, indices, 3)
    out, lse, max_logits = sparse_attention(
        q, rows, lists, sm_scale, dv=d_v, sink=attn_sink, topk_length=topk_length, return_lse=True,
        return_max_logits=True, backend="smelt",
    )  # fmt: skip
    lse = to_flash_mla(lse)
    if not indexer_topk:
        return out, max_logits, lse
    first = first_slots(q, rows, lists, sm_scale, d_v, topk_length, indexer_topk, lse)
    return out, max_logits, lse, first
