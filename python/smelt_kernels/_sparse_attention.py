"""sparse_attention, its gradients, and their custom operators."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, overload

import torch
from torch import Tensor

from . import _native, _reference, _runtime
from ._checks import LSE_BASES, Backend, LseBase, choose, floating, integer, legal_scale, number, one_masked, whole
from ._operation import Operation, as_kernels_read, may_cast

if TYPE_CHECKING:
    from typing_extensions import Unpack

LOG2E = math.log2(math.e)
NEVER = float("-inf")
TOPK_STEP = 128  # a row's width is rounded up to it for topk, so that few kernels serve many widths
VALUE_WIDTHS = (64, 128, 256, 512)
WIDE_TYPES = (torch.bfloat16, torch.float32)


Buckets = Literal["auto"] | Sequence[int] | None


def value_width(dqk: int) -> int:
    """dv where it is not given: dqk, or dqk less the 64 columns of a rotary position."""
    return dqk if dqk in VALUE_WIDTHS else dqk - 64


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


def is_deterministic(asked) -> bool:
    return torch.are_deterministic_algorithms_enabled() if asked is None else bool(asked)


def attention_rules(q, kv, indices, *_):
    """Of q and indices, whose shapes give the spec."""
    if q.dim() not in (3, 4) or not indices.dim():
        raise ValueError(
            f"smelt: q must be [T, H, dqk] or [B, T, H, dqk], not of {q.dim()} dimensions, indices [T, width] "
            f"or [B, T, width], not of {indices.dim()}"
        )
    for name, tensor, last in (("kv", kv, "S, dqk"), ("indices", indices, "T, width")):
        if tensor.dim() != q.dim() - 1:
            shape = last if q.dim() == 3 else "B, " + last
            raise ValueError(f"smelt: {name} must be [{shape}], not of {tensor.dim()} dimensions")


ATTENTION_KEY = {"q": 2, "kv": 0, "indices": 1}


def attention_spec(family, heads, dqk, width, dv, topk, sink) -> str:
    """The keys that the specs of attention's operators have in common. dv, topk: 0 where not given."""
    text = f"heads={heads},dqk={dqk},dv={dv or value_width(dqk)},topk={topk or topk_for(width)}"
    return f"{family}:{text}{',sink=1' if sink else ''}"


def _spec(kind, heads, dqk, kv_kind, _, width, dv, topk, sink, buckets, deterministic):
    """deterministic: None for the forward pass."""
    if kind is not torch.bfloat16 or kv_kind is not torch.bfloat16:
        reason = f"q and kv must be torch.bfloat16, not {kind} and {kv_kind}"
        return _runtime.Refused(reason, TypeError)
    text = attention_spec("sparse_attn", heads, dqk, width, dv, topk, sink)
    if buckets:
        text += f",buckets={'auto' if buckets[0] < 0 else '/'.join(map(str, buckets))}"
    if deterministic is not None:
        text += f",passes=backward,deterministic={deterministic:d}"
    return text


def listed(queries, query_count, tokens):
    """Which queries a query list names, of so many: bool."""
    count = queries.shape[0] if query_count is None else query_count.clamp(0, queries.shape[0])
    good = (queries >= 0) & (queries < tokens) & (torch.arange(queries.shape[0], device=queries.device) < count)
    named = torch.zeros(tokens + 1, dtype=torch.bool, device=queries.device)
    named[torch.where(good, queries.long(), tokens)] = True
    return named[:tokens]


def _as_read(q, kv, dkv_dtype, key):
    """kv in q's type, and the key with it: kv is given in fp32 where its gradient is to be in fp32."""
    if dkv_dtype is torch.float32 and kv.dtype is torch.float32:
        kv = kv.to(q.dtype)
    return kv, (*key[:4], kv.dtype, *key[5:])


# ---- forward ----------------------------------------------------------------------------------------


def _sparse_attn(
    key,
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    sink: Tensor | None,
    queries: Tensor | None,
    query_count: Tensor | None,
    scale: float,
    dv: int,
    topk: int,
    buckets: tuple[int, ...],
    deterministic: bool | None,
    dkv_dtype: torch.dtype | None,
    free_multiprocessors: int,
    workspace_limit: int,
    with_max: bool,
    backend: str | None,
):
    """out, lse, max_logits and the partition into buckets, which the backward pass reuses."""
    if not key[-1]:
        indices = one_masked(indices)
    if dkv_dtype is not None:
        kv, key = _as_read(q, kv, dkv_dtype, key)
    buckets = tuple(buckets)
    found = _runtime.find(key, backend, _spec, dv, topk, sink is not None, buckets, None)
    if found is None:
        given = (q, kv, indices, topk_length, sink, queries, query_count)
        return _by_reference(*given, scale, dv or value_width(key[3]), topk or topk_for(key[-1]))
    # Queries that a list leaves out keep these numbers.
    results, sums = (True, True) if queries is None else (0.0, NEVER)
    out, lse, *more, partition = found.forward(
        q,
        kv,
        indices,
        topk_length,
        sink,
        queries,
        query_count,
        results,
        sums,
        sums if with_max else None,
        scale=scale,
        free_multiprocessors=free_multiprocessors,
    )
    return out, lse, more[0] if more else None, partition


def _by_reference(q, kv, indices, topk_length, sink, queries, query_count, scale, dv, topk):
    legal_scale(scale)
    _native.check("sparse_attn", 0, q, kv, indices, topk_length, sink, queries, query_count)
    with torch.no_grad():
        named = {"topk_length": topk_length, "sink": sink, "topk": topk}
        out, lse, max_logits = _reference.sparse_attention(q, kv, indices, scale, dv, **named)
        if queries is not None:
            named = listed(queries, query_count, lse[..., 0].numel()).view(lse.shape[:-1])
            named = named.unsqueeze(-1)
            out = torch.where(named.unsqueeze(-1), out, torch.zeros_like(out))
            lse, max_logits = (each.masked_fill(~named, NEVER) for each in (lse, max_logits))
    return out, lse, max_logits, None


def _fake(q, *others):
    dv, with_max = others[7], others[14]
    rows = q.shape[:-1]
    sums = torch.float32
    return (
        q.new_empty((*rows, dv or value_width(q.shape[-1]))),
        q.new_empty(rows, dtype=sums),
        q.new_empty(rows, dtype=sums) if with_max else None,
    )


_attention = Operation(
    _sparse_attn, _fake, "Tensor out, Tensor lse, Tensor max_logits", ATTENTION_KEY, rules=attention_rules
)


# ---- backward ---------------------------------------------------------------------------------------


def _gradients(
    key,
    dkv_sum: Tensor,
    grad_out: Tensor,
    out: Tensor,
    lse: Tensor,
    partition: Tensor | None,
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    sink: Tensor | None,
    queries: Tensor | None,
    query_count: Tensor | None,
    scale: float,
    topk: int,
    buckets: tuple[int, ...],
    deterministic: bool | None,
    dkv_dtype: torch.dtype | None,
    free_multiprocessors: int,
    workspace_limit: int,
    backend: str | None,
):
    """dq, dkv (None with dkv_sum, to which it is added) and dsink (None without a sink)."""
    if not key[-1]:
        indices = one_masked(indices)
    if dkv_dtype is not None:
        kv, key = _as_read(q, kv, dkv_dtype, key)
    if grad_out.dtype is not torch.bfloat16:
        floating(grad_out=grad_out)
    has_sink = sink is not None
    options = out.shape[-1], topk, has_sink, tuple(buckets), is_deterministic(deterministic)
    found = _runtime.find(key, backend, _spec, *options)
    if found is None:
        inputs = (q, kv, indices, topk_length, sink, queries, query_count)
        return _backward_by_reference(grad_out, dkv_sum, lse, dkv_dtype, *inputs, scale, topk)
    dkv = True if dkv_sum is None else None
    wide = dkv_dtype is torch.float32
    dq, *made, _ = found.backward(
        q,
        kv,
        indices,
        topk_length,
        sink,
        queries,
        query_count,
        out,
        lse,
        grad_out if grad_out.dtype is torch.bfloat16 else grad_out.to(torch.bfloat16),
        True if queries is None else 0.0,  # of queries that a list leaves out
        None if wide else dkv,
        dkv if wide else None,
        dkv_sum,
        True if has_sink else None,
        partition=partition,
        scale=scale,
        free_multiprocessors=free_multiprocessors,
        workspace_limit=workspace_limit,
    )
    return dq, made[0] if dkv else None, made[-1] if has_sink else None


def _backward_by_reference(grad_out, dkv_sum, lse, dkv_dtype, q, kv, indices, *others):
    topk_length, sink, queries, query_count, scale, topk = others
    if queries is not None:
        named = listed(queries, query_count, lse[..., 0].numel())
        grad_out = grad_out * named.view(lse.shape[:-1])[..., None, None]
    named = {"topk_length": topk_length, "sink": sink, "topk": topk or topk_for(indices.shape[-1])}
    dq, dkv, dsink = _reference.sparse_attention_backward(grad_out, q, kv, indices, scale, grad_out.shape[-1], **named)
    if dkv_sum is not None:
        dkv_sum += dkv
        return dq, None, dsink
    return dq, dkv.to(dkv_dtype or kv.dtype), dsink


def _fake_gradients(dkv_sum, grad_out, out, lse, partition, q, kv, indices, length, sink, *others):
    dkv_dtype = others[6]
    return (
        q.new_empty(q.shape),
        None if dkv_sum is not None else kv.new_empty(kv.shape, dtype=dkv_dtype or kv.dtype),
        None if sink is None else q.new_empty(sink.shape, dtype=torch.float32),
    )


def _gradient_rules(dkv_sum, grad_out, out, lse, partition, q, kv, indices, *_):
    attention_rules(q, kv, indices)
    floating(grad_out=grad_out)
    if out.dim() != q.dim():
        raise ValueError(f"smelt: out must be of {q.dim()} dimensions as q is, not {out.dim()}")


def _gradients_alone(key, *others):
    return _gradients(key, None, *others)


_signature = inspect.signature(_gradients)
_gradients_alone.__signature__ = _signature.replace(
    parameters=[each for name, each in _signature.parameters.items() if name != "dkv_sum"]
)
_GRADIENTS = "Tensor dq, Tensor dkv, Tensor dsink"
_backward = Operation(
    _gradients_alone,
    lambda *given: _fake_gradients(None, *given),
    _GRADIENTS,
    ATTENTION_KEY,
    name="sparse_attn_backward",
    rules=lambda *given: _gradient_rules(None, *given),
)
_backward_sum = Operation(
    _gradients,
    _fake_gradients,
    _GRADIENTS,
    ATTENTION_KEY,
    name="sparse_attn_backward_sum",
    rules=_gradient_rules,
    written="dkv_sum",
)
_backward.refuse_derivatives("sparse_attention")


def _saved(arguments, made):
    inputs, (scale, _, topk, *options, _, backend) = arguments[:7], arguments[7:]
    partition = made[3] if len(made) > 3 else None
    return (made[0], made[1], partition, *inputs), (scale, topk, *options, backend)


def _flow(grad_out, options, *saved):
    dq, dkv, dsink = _backward.in_backward(grad_out, *saved, *options)
    return dq, dkv, None if saved[7] is None else dsink  # without a sink


_attention.differentiable(("q", "kv", "sink"), 0, _saved, _flow)


# ---- the calls --------------------------------------------------------------------------------------


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
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    *,
    return_lse: Literal[False] = False,
    return_max_logits: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...
@overload
def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    *,
    return_lse: Literal[True],
    return_max_logits: Literal[False] = False,
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...
@overload
def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    *,
    return_lse: Literal[False] = False,
    return_max_logits: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...
@overload
def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    *,
    return_lse: Literal[True],
    return_max_logits: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    *,
    return_lse: bool = False,
    return_max_logits: bool = False,
    **options: Unpack[_Options],
) -> Tensor | tuple[Tensor, ...]: ...
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
        dv: Width of a value; None means dqk if that is 64, 128, 256 or 512, else dqk - 64.
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
        # PyTorch rounds a gradient to the type of its tensor: one in fp32 needs kv as it is, in fp32.
        if dkv_dtype is torch.float32 and getattr(kv, "dtype", None) is torch.float32:
            wanted, q = as_kernels_read(backend, q)
        else:
            wanted, q, kv = as_kernels_read(backend, q, kv)
    if dkv_dtype is not None:
        choose(dkv_dtype, "dkv_dtype", WIDE_TYPES)
    if lse != "natural":
        choose(lse, "lse", LSE_BASES)
    if workspace_limit != 0:  # which the backward pass alone uses
        workspace_limit = integer(workspace_limit, "workspace_limit", 64)
    out, sums, highest, *_ = _attention.call(
        q,
        kv,
        indices,
        topk_length,
        sink if sink is None else fp32(sink),
        queries,
        query_count,
        scale if type(scale) is float else number(scale, "scale"),
        0 if dv is None else whole(dv, "dv"),
        0 if topk is None else whole(topk, "topk"),
        () if buckets is None else _buckets(buckets),
        deterministic,
        dkv_dtype,
        free_multiprocessors,
        workspace_limit,
        return_max_logits,
        backend,
    )
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
        dkv_sum: [..., S, dqk], fp32: kv's gradient is added to it, and it is returned as dkv.
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
    run = _backward.call if dkv_sum is None else functools.partial(_backward_sum.call, dkv_sum)
    dq, dkv, dsink = run(
        grad_out,
        out,
        lse,
        None,
        q,
        kv,
        indices,
        topk_length,
        fp32(sink),
        queries,
        query_count,
        number(scale, "scale"),
        0 if topk is None else whole(topk, "topk"),
        () if buckets is None else _buckets(buckets),
        deterministic,
        dkv_dtype,
        free_multiprocessors,
        workspace_limit,
        "smelt",
    )
    return dq, dkv if dkv_sum is None else dkv_sum, None if sink is None else dsink
