"""TileLang's DeepSeek-V3.2 examples: `sparse_mla_fwd_interface`, `sparse_mla_bwd`, and `sparse_mla_fwd_pipelined`,
which is the interface of the module of this name (and of `sparse_mla_fwd_seesaw`).

Their contract: q [B, T, H, 576], kv [B, S, 1, 576], indices [B, T, 1, topk] int32; a slot is valid if its index is at
most the query's number (causal; queries and keys have the same origin); lse in base 2. In addition a negative slot is
masked, and an empty row gives zeros instead of NaN. If the backward pass gets delta, the sums of o * do, it does not
read o. Arguments that only tune the original kernels (block_I, num_stages, threads) have no effect.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import integer
from ._conventions import need_dimensions, slots
from ._mla import attend, gradients


def _causal(indices: Tensor, first: int = 0, stride: int = 1) -> Tensor:
    """Masks slots whose key ends after the query; indices [B, T, 1, topk]. A key covers `stride` tokens; the first
    query is token `first`."""
    need_dimensions(indices=(indices, 4))
    indices = slots("indices", indices)
    query = torch.arange(first, first + indices.shape[1], device=indices.device)
    last = torch.div(query + 1, stride, rounding_mode="floor") - 1
    return indices.masked_fill(indices > last[:, None, None], -1)


@torch.no_grad()
def sparse_mla_fwd_interface(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None = None, return_p_sum: bool = False, d_v: int = 512,
    block_I: int = 64, num_stages: int = 2, threads: int = 256,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out [B, T, H, d_v] bf16, lse [B, T, H] fp32 in base 2)"""
    if return_p_sum:
        raise NotImplementedError("smelt: sparse_mla_fwd_interface with return_p_sum is not supported")
    return attend(q, kv, _causal(indices), sm_scale, d_v, 4)


@torch.no_grad()
def sparse_mla_fwd_pipelined(
    q: Tensor, kv: Tensor, indices: Tensor, q_start_index_s: int, kv_stride: int, sm_scale: float | None = None,
    is_casual: bool = True, return_kernel: bool = False, print_kernel: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out [B, T, H, 512] bf16, lse [B, T, H] fp32 in base 2) of queries that begin at token q_start_index_s (a rank of
    context parallelism). Key k covers the tokens k * kv_stride .. k * kv_stride + kv_stride - 1, and queries see it
    from the last of them on. q_start_index_s may be any number from 0 on; a query that sees no key gives zeros and lse
    -inf."""
    if not is_casual or return_kernel or print_kernel:
        raise NotImplementedError(
            "smelt: sparse_mla_fwd_pipelined supports only is_casual=True, return_kernel=False and print_kernel=False"
        )
    if integer(q_start_index_s, "q_start_index_s") < 0:
        raise ValueError(f"smelt: q_start_index_s must be 0 or more, not {q_start_index_s}")
    if integer(kv_stride, "kv_stride") < 1:
        raise ValueError(f"smelt: kv_stride must be positive, not {kv_stride}")
    return attend(q, kv, _causal(indices, q_start_index_s, kv_stride), sm_scale, None, 4)


@torch.no_grad()
def sparse_mla_bwd(
    q: Tensor, kv: Tensor, o: Tensor, do: Tensor, indices: Tensor, lse: Tensor, sm_scale: float | None = None,
    is_casual: bool = True, return_kernel: bool = False, delta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(dq, dkv), of the shapes of q and kv."""
    if not is_casual or return_kernel:
        raise NotImplementedError("smelt: sparse_mla_bwd supports only is_casual=True and return_kernel=False")
    return gradients(q, kv, o, do, _causal(indices), lse, sm_scale, 4, delta=delta)
