"""sparse_attention, its gradients, and their custom operators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, overload

import torch
from torch import Tensor

from . import _reference, _runtime
from ._checks import LSE_BASES, Backend, LseBase, choose, floating, integer, legal_scale, number, whole
from ._library import LibraryOperation, spec_text
from ._operation import as_kernels_read, may_cast
from ._reference import value_width

if TYPE_CHECKING:
    from typing_extensions import Unpack

LOG2E = math.log2(math.e)
NEVER = float("-inf")
TOPK_STEP = 128  # a row's width is rounded up to it for topk, so that few kernels serve many widths
WIDE_TYPES = (torch.bfloat16, torch.float32)


Buckets = Literal["auto"] | Sequence[int] | None


def topk_for(width: int) -> int:
    """topk where it is not given: few kernels serve many widths."""
    return -(-width // TOPK_STEP) * TOPK_STEP if width else TOPK_STEP


def _buckets(buckets) -> tuple:
    if buckets is None:
        return ()
    if isinstance(buckets, str):
        if buckets != "auto":
            raise ValueError(f"smelt: buckets must be None, 'auto' or bounds, not {buckets!r}")
        return (-1,)
    if not isinstance(buckets, Iterable):
        raise TypeError(f"smelt: buckets must be None, 'auto' or bounds, not {buckets!r}")
    return tuple(whole(bound, "a bound of buckets") for bound in buckets)


ATTENTION_KEY = {"q": 2, "kv": 0, "indices": 1}


def attention_spec(family, heads, dqk, width, dv, topk, sink) -> str:
    """The keys that the specs of attention's operators have in common. dv, topk: 0 where not given."""
    widths = {"dqk": dqk, "dv": dv or value_width(dqk), "topk": topk or topk_for(width)}
    return spec_text(family, {"heads": heads, **widths, "sink": sink})


def _spec(kind, heads, dqk, kv_kind, _, width, dv: int, topk: int, sink, buckets: tuple[int, ...]):
    if kind is not torch.bfloat16 or kv_kind is not torch.bfloat16:
        reason = f"q and kv must be torch.bfloat16, not {kind} and {kv_kind}"
        return _runtime.Refused(reason, TypeError)
    text = attention_spec("sparse_attn", heads, dqk, width, dv, topk, sink)
    return f"{text},buckets={'auto' if buckets[0] < 0 else '/'.join(map(str, buckets))}" if buckets else text


def _backward_spec(
    kind, heads, dqk, kv_kind, _, width, dv, topk: int, sink, buckets: tuple[int, ...], deterministic: bool | None
):
    text = _spec(kind, heads, dqk, kv_kind, _, width, dv, topk, sink, buckets)
    return text if type(text) is _runtime.Refused else f"{text},passes=backward,deterministic={deterministic:d}"


def attention_rules(named) -> None:
    """Without buckets, lists are no wider than topk, where it is given."""
    legal_scale(named["scale"])
    width, topk = named["indices"].shape[-1], named["topk"]
    if topk and width > topk and not named.get("buckets"):
        raise ValueError(f"smelt: width = {width} is out of range; legal: 1..{topk}")


_as_attention = {"key": ATTENTION_KEY, "floats": True, "rules": attention_rules}
_backward, _backward_sum = (
    LibraryOperation(
        "sparse_attn",
        which=1,
        name=name,
        spec=_backward_spec,
        reference=_reference.sparse_attention_backward,
        written=written,
        **_as_attention,
    )
    for name, written in (("sparse_attn_backward", ()), ("sparse_attn_backward_sum", ("dkv_sum",)))
)
_backward.refuse_derivatives("sparse_attention")
_attention = LibraryOperation(
    "sparse_attn", spec=_spec, reference=_reference.sparse_attention, gradient=_backward, asked=("max_logits",),
    fills={"lse": NEVER, "max_logits": NEVER},
    sizes=lambda named: {"dv": named["dv"] or value_width(named["q"].shape[-1])}, **_as_attention,
)  # fmt: skip


# ---- the calls --------------------------------------------------------------------------------------


def attended_as_kernels_read(backend, q, kv, dkv_dtype) -> tuple:
    """q and kv in the types that kernels read, but kv in fp32 if dkv is wanted in fp32: PyTorch rounds a gradient to the type
    of its tensor."""
    if dkv_dtype is torch.float32 and getattr(kv, "dtype", None) is torch.float32:
        return *as_kernels_read(backend, q), kv
    return as_kernels_read(backend, q, kv)


def fp32(sink):
    """A sink as kernels read it."""
    if not isinstance(sink, Tensor) or sink.dtype is torch.float32:
        return sink
    floating(sink=sink)
    return sink.float()


# What type checkers need to know: with the two flags, the type of the result.
if TYPE_CHECKING:

    class _Options(TypedDict, total=False):
        dv: int | None
        topk: int | None
        topk_length: Tensor | None
        sink: Tensor | None
        buckets: Buckets
        deterministic: bool | None
        lse: LseBase
        dkv_dtype: torch.dtype | None
        queries: Tensor | None
        query_count: Tensor | None
        free_multiprocessors: int
        workspace_limit: int
        backend: Backend | None


@overload
def sparse_attention(
    q: Tensor, kv: Tensor, indices: Tensor, scale: float, *, return_lse: Literal[False] = False,
    return_max_logits: Literal[False] = False, **options: Unpack[_Options],
) -> Tensor: ...  # fmt: skip
@overload
def sparse_attention(
    q: Tensor, kv: Tensor, indices: Tensor, scale: float, *, return_lse: Literal[True],
    return_max_logits: Literal[False] = False, **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def sparse_attention(
    q: Tensor, kv: Tensor, indices: Tensor, scale: float, *, return_lse: Literal[False] = False,
    return_max_logits: Literal[True], **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def sparse_attention(
    q: Tensor, kv: Tensor, indices: Tensor, scale: float, *, return_lse: Literal[True],
    return_max_logits: Literal[True], **options: Unpack[_Options],
) -> tuple[Tensor, Tensor, Tensor]: ...  # fmt: skip
@overload
def sparse_attention(
    q: Tensor, kv: Tensor, indices: Tensor, scale: float, *, return_lse: bool = False, return_max_logits: bool = False,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, ...]: ...  # fmt: skip
def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    *,
    dv: int | None = None,
    topk: int | None = None,
    topk_length: Tensor | None = None,
    sink: Tensor | None = None,
    buckets: Buckets = None,
    deterministic: bool | None = None,
    return_lse: bool = False,
    return_max_logits: bool = False,
    lse: LseBase = "natural",
    dkv_dtype: torch.dtype | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
    backend: Backend | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Attends from each query to its own list of KV rows; differentiable in q, kv and sink.

    Shapes are in C order: T queries, S KV rows, H heads, a width dqk of keys and dv of values. B batches, each with its
    own queries and rows, are a first dimension of every tensor except sink. A packed batch of documents has no B, and
    its indices are row numbers of the whole batch. Tensors may be strided; one is copied only if its last dimension is
    not contiguous or its rows are not 16-byte aligned.

    Kernels read bf16. Under torch.autocast, whatever its type, q and kv of other floating types are cast to bf16;
    without autocast fp16 tensors are, with a warning. `out` then has autocast's type, or fp16.

    Args:
        q: [T, H, dqk] or [B, T, H, dqk], bf16.
        kv: [S, dqk] or [B, S, dqk], bf16; a row is a key and, in its first dv columns, a value.
        indices: [T, width] or [B, T, width], int32. Slots outside 0..S-1 (such as -1) are masked.
        scale: The softmax scale, positive.
        dv: Width of a value. dqk and dv are multiples of 16 up to 1024, dv at most dqk. None means dqk if that is 64,
            128, 256 or 512, or dqk - 64 if that is one of them.
        topk: The largest number of valid slots of a query; None means `width` rounded up to a multiple of 128. With
            buckets `width` may be larger than topk: the first topk valid slots of a query count.
        topk_length: [T] or [B, T], int32: the number of a query's slots that count.
        sink: [H], a logit of each head in the softmax's denominator only.
        buckets: "auto" or ascending bounds sort the queries on the device by their number of valid slots and run one
            kernel per bucket, which is faster where rows are padded or lengths differ. None: one kernel for all
            queries.
        deterministic: Whether kv's gradient is summed in a fixed order; None follows
            torch.use_deterministic_algorithms. All else has the same bits in every run anyway.
        return_lse: Also return lse.
        return_max_logits: Also return the largest logit of each query and head.
        lse: "natural" for lse in the natural logarithm, "base2" for log2.
        dkv_dtype: Type of kv's gradient, torch.bfloat16 or torch.float32; None means kv's. PyTorch rounds a gradient to
            the type of its tensor. torch.float32 therefore helps where kv is fp32 and autocast casts it, or where kv's
            gradient is declared fp32 (kv.grad_dtype, or ctx.set_output_grad_dtype of the Function that made kv, in the
            versions of PyTorch that have them).
        queries: [N] int32: compute only these queries (b * T + t). The others' out is 0, their lse -inf.
        query_count: [1] int32: how many entries of `queries` count.
        free_multiprocessors: Multiprocessors that the kernel leaves to other streams.
        workspace_limit: Bytes that a deterministic backward pass may use for partial sums; 0 means 1.5 GiB. A smaller
            limit takes longer.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        `out`, or a tuple of `out` and what was asked for in this order.

        - out: [..., T, H, dv], bf16; 0 for a query without a valid slot.
        - lse: [..., T, H], fp32: log(sum(exp(scale * q . k))) over the valid slots, without the sink; -inf for a query
          without a valid slot. Not differentiable.
        - max_logits: [..., T, H], fp32: the largest scale * q . k; -inf for a query without a valid slot. Not
          differentiable.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> out = smelt.sparse_attention(q, kv, indices, scale)  # bf16 [T, H, 576] and [S, 576], int32 [T, width]
        >>> out.backward(grad)
        >>> out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)
    """
    wanted = None
    if may_cast(q):
        wanted, q, kv = attended_as_kernels_read(backend, q, kv, dkv_dtype)
    if dkv_dtype is not None:
        choose(dkv_dtype, "dkv_dtype", WIDE_TYPES)
    if type(lse) is not str or lse != "natural":
        choose(lse, "lse", LSE_BASES)
    if type(workspace_limit) is not int or workspace_limit != 0:  # only the backward pass uses it
        workspace_limit = integer(workspace_limit, "workspace_limit", 64)
    out, sums, highest, *_ = _attention.call(
        q, kv, indices, topk_length, sink if sink is None else fp32(sink), queries, query_count, free_multiprocessors,
        scale if type(scale) is float else number(scale, "scale"), 0 if dv is None else whole(dv, "dv"),
        0 if topk is None else whole(topk, "topk"), () if buckets is None else _buckets(buckets),
        bool(return_max_logits), workspace_limit, deterministic, dkv_dtype, backend,
    )  # fmt: skip
    if wanted is not None:
        out = out.to(wanted)
    if not return_lse and not return_max_logits:
        return out
    results = [out]
    if return_lse:
        results.append(sums if lse == "natural" else sums * LOG2E)
    if return_max_logits:
        results.append(highest)
    return tuple(results)


def sparse_attention_backward(
    grad_out: Tensor,
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    *,
    topk: int | None = None,
    topk_length: Tensor | None = None,
    sink: Tensor | None = None,
    buckets: Buckets = None,
    deterministic: bool | None = None,
    dkv_dtype: torch.dtype | None = None,
    dkv_sum: Tensor | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Computes sparse_attention's gradients without autograd, for programs that have their own backward pass.

    Computes as sparse_attention does with backend "smelt".

    Args:
        grad_out: [..., T, H, dv], out's gradient.
        q: As in sparse_attention, bf16.
        kv: As in sparse_attention, bf16.
        indices: As in sparse_attention.
        out: [..., T, H, dv], bf16, of the forward pass.
        lse: [..., T, H], fp32, of the forward pass: natural, without the sink.
        scale: The forward pass's.
        topk: As in sparse_attention.
        topk_length: As in sparse_attention.
        sink: As in sparse_attention.
        buckets: As in sparse_attention.
        deterministic: As in sparse_attention.
        dkv_dtype: Type of dkv, torch.bfloat16 (also if None) or torch.float32.
        dkv_sum: [..., S, dqk], fp32: kv's gradient is added to it, and it is returned as dkv. Like a tensor that PyTorch
            writes in place, it must not require a gradient, unless gradients are off (torch.no_grad).
        queries: As in sparse_attention; the others' dq is 0.
        query_count: As in sparse_attention.
        free_multiprocessors: As in sparse_attention.
        workspace_limit: As in sparse_attention.

    Returns:
        dq [..., T, H, dqk] bf16, dkv [..., S, dqk] in dkv_dtype, and dsink [H] fp32, which is None without a sink.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: there is no kernel for the configuration or the device.

    Example:
        >>> out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)
        >>> dq, dkv, _ = smelt.sparse_attention_backward(grad, q, kv, indices, out, lse, scale)
    """
    if dkv_dtype is not None:
        legal = WIDE_TYPES if dkv_sum is None else (torch.float32,)
        choose(dkv_dtype, "dkv_dtype" if dkv_sum is None else "dkv_dtype with dkv_sum", legal)
    run, added = (_backward.call, ()) if dkv_sum is None else (_backward_sum.call, (dkv_sum,))
    dq, dkv, dsink = run(
        grad_out,
        q,
        kv,
        indices,
        topk_length,
        fp32(sink),
        queries,
        query_count,
        out,
        lse,
        *added,
        None,  # the partition
        free_multiprocessors,
        number(scale, "scale"),
        workspace_limit,
        0 if topk is None else whole(topk, "topk"),
        () if buckets is None else _buckets(buckets),
        deterministic,
        dkv_dtype,
        "smelt",
    )
    return dq, dkv if dkv_sum is None else dkv_sum, None if sink is None else dsink
