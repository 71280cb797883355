"""TileLang's DeepSeek-V3.2 examples: `sparse_mla_fwd_interface` and `sparse_mla_bwd`.

Their contract: q [B, T, H, 576], kv [B, S, 1, 576], indices [B, T, 1, topk] int32; a slot counts when its
index is at most the query's own number (causal, queries and keys counted from the same start); lse in
base 2. Here a slot below 0 is masked as well, and an empty row gives zeros, not NaN. delta of the
backward pass stands for the sums of o * do, which o is read for otherwise. What only tunes their kernels (block_I,
num_stages, threads) has no effect.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._conventions import need_dimensions, slots
from ._mla import attend, gradients


def _causal(indices: Tensor) -> Tensor:
    """Slots beyond the query's own number masked; indices [B, T, 1, topk]."""
    need_dimensions(indices=(indices, 4))
    indices = slots("indices", indices)
    query = torch.arange(indices.shape[1], device=indices.device, dtype=torch.int32)
    return indices.masked_fill(indices > query[:, None, None], -1)


@torch.no_grad()
def sparse_mla_fwd_interface(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float | None = None,
    return_p_sum: bool = False,
    d_v: int = 512,
    block_I: int = 64,
    num_stages: int = 2,
    threads: int = 256,
) -> tuple[Tensor, Tensor]:
    """(out [B, T, H, d_v] bf16, lse [B, T, H] fp32 in base 2)"""
    if return_p_sum:
        raise NotImplementedError("smelt: sparse_mla_fwd_interface with return_p_sum is not there")
    return attend(q, kv, _causal(indices), sm_scale, d_v, 4)


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
) -> tuple[Tensor, Tensor]:
    """(dq, dkv), of the shapes of q and kv."""
    if not is_casual or return_kernel:
        raise NotImplementedError("smelt: sparse_mla_bwd is causal, and has no kernel to return")
    return gradients(q, kv, o, do, _causal(indices), lse, sm_scale, 4, delta=delta)
