"""Shared by the ports of DeepSeek-V3.2's sparse MLA: kv and indices with a dimension of KV heads, lse in base 2."""

from __future__ import annotations

from torch import Tensor

from .._checks import optional_tensor, tensor
from .._sparse_attention import sparse_attention, sparse_attention_backward
from ._conventions import from_base2, without_kv_heads, to_base2, to_flash_mla


def scale_of(q: Tensor, sm_scale: float | None) -> float:
    return max(1, q.shape[-1]) ** -0.5 if sm_scale is None else sm_scale


def first_slots(
    q: Tensor, rows: Tensor, lists: Tensor, scale: float, dv: int | None, topk_length: Tensor | None, count: int,
    lse: Tensor,
) -> Tensor:  # fmt: skip
    """FlashMLA's lse over each query's first `count` slots; `lse` is the one over all slots.

    Computed by a forward pass over these slots: subtracting the other slots from `lse` would lose precision.
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
    rows, lists = without_kv_heads(q, kv, indices, *legal)
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
    q: Tensor, kv: Tensor, o: Tensor | None, do: Tensor, indices: Tensor, lse: Tensor, sm_scale: float | None,
    *legal: int, delta: Tensor | None = None, buckets=None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dq and dkv, of the shapes of q and kv. With delta [.., T, H], the sums of o * do, o is not read."""
    rows, lists = without_kv_heads(q, kv, indices, *legal)
    if tensor(do, "do").shape[:-1] != q.shape[:-1] or tensor(lse, "lse").shape != q.shape[:-1]:
        raise ValueError(
            f"smelt: do {list(do.shape)} and lse {list(lse.shape)} must have q's queries and heads, "
            f"{list(q.shape[:-1])}"
        )
    if optional_tensor(delta, "delta") is not None:
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
