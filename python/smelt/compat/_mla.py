"""What the ports of DeepSeek-V3.2's sparse MLA have in common: kv and indices with a dimension of KV heads, lse in
base 2."""

from __future__ import annotations

from torch import Tensor

from .._sparse_attention import sparse_attention, sparse_attention_backward
from ._conventions import from_base2, need_dimensions, one_group, to_base2, to_flash_mla


def scale_of(q: Tensor, sm_scale: float | None) -> float:
    need_dimensions(q=(q, 3))
    return q.shape[-1] ** -0.5 if sm_scale is None else sm_scale


def values_of(q: Tensor) -> int | None:
    """How wide DeepSeek's values are; None: as sparse_attention has it."""
    need_dimensions(q=(q, 3))
    return 512 if q.shape[-1] in (512, 576) else None


def first_slots(
    q: Tensor,
    rows: Tensor,
    lists: Tensor,
    scale: float,
    dv: int | None,
    topk_length: Tensor | None,
    count: int,
    lse: Tensor,
) -> Tensor:
    """lse of each query's first `count` slots alone, as FlashMLA has it; `lse` is that of all of them.

    A forward pass of its own over these slots: what a row's other slots add cannot be taken out of `lse` again
    without the digits that they cost.
    """
    if count >= lists.shape[-1]:
        return lse.clone()
    _, first = sparse_attention(
        q,
        rows,
        lists[..., :count],
        scale,
        dv=dv,
        topk_length=topk_length,
        return_lse=True,
        backend="smelt",
    )
    return to_flash_mla(first)


def attend(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None, d_v: int | None, buckets=None
) -> tuple[Tensor, Tensor]:
    """out, differentiable, and lse."""
    rows, lists = one_group(kv, indices)
    out, lse = sparse_attention(
        q,
        rows,
        lists,
        scale_of(q, sm_scale),
        dv=d_v,
        buckets=buckets,
        return_lse=True,
        backend="smelt",
    )
    return out, to_base2(lse)


def gradients(
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    do: Tensor,
    indices: Tensor,
    lse: Tensor,
    sm_scale: float | None,
    buckets=None,
) -> tuple[Tensor, Tensor]:
    """dq and dkv, of the shapes of q and kv."""
    rows, lists = one_group(kv, indices)
    dq, dkv, _ = sparse_attention_backward(
        do, q, rows, lists, o, from_base2(lse), scale_of(q, sm_scale), buckets=buckets
    )
    return dq, dkv.unsqueeze(-2)
