"""cuDNN Frontend's functions for training, `cudnn.DSA.sparse_attention`: differentiable attention, and the indexer's
training target.

Their contract: q [T, H, D], kv [S, D], indices [T, K] int32; slots with a negative index or one from S on, and slots
from topk_length on, are masked; lse natural and without the sink, +inf for an empty row. In addition: any number of
heads and any strides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._indexer_training import sparse_scores
from .._reference import valid_slots
from .._sparse_attention import sparse_attention as attend
from ._conventions import TupleDict, need_dimensions, lse_of_valid_heads, to_flash_mla
from ._cudnn_common import normalised
from ._mla import scale_of


def sparse_attention(
    q: Tensor, kv: Tensor, indices: Tensor, attn_sink: Tensor | None = None, softmax_scale: float | None = None,
    topk_length: Tensor | None = None, trusted_compact_metadata: bool = False,
) -> TupleDict:  # fmt: skip
    """{"out", "max_logits", "lse"}; out is differentiable in q, kv and attn_sink. Lists need no compaction, so
    trusted_compact_metadata has no effect."""
    if not isinstance(trusted_compact_metadata, bool):
        raise TypeError(
            f"smelt: trusted_compact_metadata must be a bool, not {type(trusted_compact_metadata).__name__}"
        )
    need_dimensions(q=(q, 3), kv=(kv, 2), indices=(indices, 2))
    out, lse, max_logits = attend(
        q, kv, indices, scale_of(q, softmax_scale), sink=attn_sink, topk_length=topk_length, return_lse=True,
        return_max_logits=True, backend="smelt",
    )  # fmt: skip
    return TupleDict(out=out, max_logits=max_logits, lse=to_flash_mla(lse))


@torch.no_grad()
def sparse_attention_score_recompute(
    q: Tensor,
    kv: Tensor,
    lse: Tensor,
    indices: Tensor,
    softmax_scale: float | None = None,
    topk_length: Tensor | None = None,
) -> TupleDict:
    """{"target", "indices"}: attention's probabilities at the slots, summed over heads and divided by their sum, fp32 [T, K],
    0 where masked; and indices with -1 there."""
    need_dimensions(q=(q, 3), kv=(kv, 2), lse=(lse, 2), indices=(indices, 2))
    scale, sums = scale_of(q, softmax_scale), lse_of_valid_heads(lse)
    given = {"topk_length": topk_length, "backend": "smelt"}
    target = normalised(sparse_scores(q, kv, indices, sums, scale, **given))
    valid = valid_slots(indices, kv.shape[0], topk_length)
    return TupleDict(target=target, indices=indices.masked_fill(~valid, -1))
