"""What the ports of DeepSeek-V3.2's sparse MLA have in common: kv and indices with a dimension of KV heads, lse in
base 2."""

from __future__ import annotations

from torch import Tensor

from .._sparse_attention import sparse_attention, sparse_attention_backward
from ._conventions import from_base2, one_group, to_base2, to_flash_mla


def scale_of(q: Tensor, sm_scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if sm_scale is None else sm_scale


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
        q, rows, lists[..., :count], scale, dv=dv, topk_length=topk_length, return_lse=True, backend="smelt"
    )
    return to_flash_mla(first)


def attend(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None, d_v: int | None, *legal: int, buckets=None
) -> tuple[Tensor, Tensor]:
    """out, differentiable, and lse; `legal`: how many dimensions q may have."""
    rows, lists = one_group(q, kv, indices, *legal)
    out, lse = sparse_attention(
        q, rows, lists, scale_of(q, sm_scale), dv=d_v, buckets=buckets, return_lse=True, backend="smelt"
    )
    return out, to_base2(lse)


def output_of(delta: Tensor, do: Tensor) -> Tensor:
    """An output whose products with do sum to delta [.., T, H]; gradients depend on the output only through delta.
    Where do is 0, so is delta. The computation scales do by its largest element, so that no square underflows."""
    largest = do.float().abs().amax(-1, keepdim=True)
    unit = (do.float() / largest).nan_to_num(0.0)
    share = delta.float().unsqueeze(-1) / largest / unit.square().sum(-1, keepdim=True)
    return (unit * share.masked_fill(largest == 0, 0.0)).to(do.dtype)


def gradients(
    q: Tensor,
    kv: Tensor,
    o: Tensor | None,
    do: Tensor,
    indices: Tensor,
    lse: Tensor,
    sm_scale: float | None,
    *legal: int,
    delta: Tensor | None = None,
    buckets=None,
) -> tuple[Tensor, Tensor]:
    """dq and dkv, of the shapes of q and kv. delta [.., T, H] stands for the sums of o * do where it is given."""
    rows, lists = one_group(q, kv, indices, *legal)
    if do.shape[:-1] != q.shape[:-1] or lse.shape != q.shape[:-1]:
        raise ValueError(
            f"smelt: do {list(do.shape)} and lse {list(lse.shape)} must have q's queries and heads, "
            f"{list(q.shape[:-1])}"
        )
    if delta is not None:
        if delta.shape != lse.shape or not delta.is_floating_point():
            raise ValueError(
                f"smelt: delta must be of a floating type and {list(lse.shape)}, as lse is, not "
                f"{delta.dtype} {list(delta.shape)}"
            )
        o = output_of(delta, do)
    dq, dkv, _ = sparse_attention_backward(
        do, q, rows, lists, o, from_base2(lse), scale_of(q, sm_scale), buckets=buckets
    )
    return dq, dkv.unsqueeze(-2)
