"""sparse_attention: the call, its autograd, and the operators `torch.ops.smelt.sparse_attn*`.

Two ways lead to the same kernels. An eager call on plain tensors goes to them directly, or through one
autograd.Function: that costs a few microseconds. Whatever looks into a program (torch.compile, export,
FakeTensor, functorch, dispatch modes, tensor subclasses, the profiler) meets the custom operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _reference, _runtime
from ._checks import choose, whole
from ._eager import autocast_type, is_watched, plain_types, realigned
from ._library import define, library
from ._runtime import LayoutError, Refused

LOG2E = math.log2(math.e)
NEVER = float("-inf")
TOPK_STEP = 128  # a row's width is rounded up to it for topk, so that few kernels serve many widths
VALUE_WIDTHS = (64, 128, 256, 512)
FORWARD, BACKWARD = 1, 2
_PASSES = {FORWARD: "forward", BACKWARD: "backward"}


def _spec(heads, dqk, dv, topk, sink, buckets, deterministic, passes):
    text = f"sparse_attn:heads={heads},dqk={dqk},dv={dv},topk={topk}"
    if sink:
        text += ",sink=1"
    if buckets:
        text += f",buckets={'auto' if buckets == (-1,) else '/'.join(map(str, buckets))}"
    if passes != FORWARD:
        text += f",passes={_PASSES[passes]}"
    return text + (",deterministic=1" if deterministic else "")


def value_width(dqk: int) -> int:
    """dv where it is not said: dqk, or dqk less the 64 columns of a rotary position."""
    return dqk if dqk in VALUE_WIDTHS else dqk - 64


def _buckets(buckets) -> tuple:
    if buckets is None:
        return ()
    if isinstance(buckets, str):
        if buckets != "auto":
            raise ValueError(f"smelt: buckets must be None, 'auto' or bounds, not {buckets!r}")
        return (-1,)
    return tuple(whole(bound, "a bucket's bound") for bound in buckets)


def topk_for(width: int) -> int:
    """topk where it is not said: few kernels serve many widths."""
    return -(-width // TOPK_STEP) * TOPK_STEP if width else TOPK_STEP


def _configuration(q, dv, topk, sink, buckets):
    """What an operator is made for, but for its passes and determinism."""
    return q.shape[-2], q.shape[-1], dv, topk, sink is not None, tuple(buckets)


def _operator(q, kv, configuration, passes, deterministic, backend):
    """The operator, or None where the eager reference computes."""
    if backend == "torch":
        return None
    if q.dtype is not torch.bfloat16 or kv.dtype is not torch.bfloat16:
        reason = f"q and kv must be torch.bfloat16, not {q.dtype} and {kv.dtype}"
        if backend == "smelt":
            raise TypeError(f"smelt: {reason}")
        _runtime.warn_once(reason)
        return None
    found = _runtime.operator(q.get_device(), (*configuration, deterministic, passes), _spec)
    if type(found) is Refused:
        if backend == "smelt":
            raise RuntimeError(f"smelt: {found.reason}")
        _runtime.warn_once(found.reason)
        return None
    return found


# ---- the two passes, on plain tensors ---------------------------------------------------------------


def _forward(
    found, q, kv, indices, topk_length, sink, queries, query_count, scale, dv, want_max, free
):
    """out, lse, max_logits (or None) and the partition (or None)."""
    shape = q.shape
    if queries is None:
        out = q.new_empty((*shape[:-1], dv))
        lse = q.new_empty(shape[:-1], dtype=torch.float32)
    else:
        out = q.new_zeros((*shape[:-1], dv))
        lse = q.new_full(shape[:-1], NEVER, dtype=torch.float32)
    max_logits = torch.full_like(lse, NEVER) if want_max else None
    try:
        partition = found.forward(
            q,
            kv,
            indices,
            topk_length,
            sink,
            queries,
            query_count,
            out,
            lse,
            max_logits,
            scale,
            free,
        )
    except LayoutError:
        q, kv, indices, topk_length, sink, queries = realigned(
            q, kv, indices, topk_length, sink, queries
        )
        partition = found.forward(
            q,
            kv,
            indices,
            topk_length,
            sink,
            queries,
            query_count,
            out,
            lse,
            max_logits,
            scale,
            free,
        )
    return out, lse, max_logits, partition


def _backward(
    found,
    grad_out,
    q,
    kv,
    indices,
    topk_length,
    sink,
    queries,
    query_count,
    out,
    lse,
    scale,
    dkv_dtype,
    free,
    partition,
    workspace_limit,
    dkv_sum=None,
):
    """dq, dkv and dsink (None without a sink)."""
    dq = q.new_empty(q.shape) if queries is None else q.new_zeros(q.shape)
    if dkv_sum is not None:
        kinds = (None, None, dkv_sum)
    elif dkv_dtype is torch.float32:
        kinds = (None, kv.new_empty(kv.shape, dtype=torch.float32), None)
    else:
        kinds = (kv.new_empty(kv.shape), None, None)
    dsink = None if sink is None else sink.new_empty(sink.shape)
    if grad_out.dtype is not torch.bfloat16:
        grad_out = grad_out.to(torch.bfloat16)
    try:
        found.backward(
            q,
            kv,
            indices,
            topk_length,
            sink,
            queries,
            query_count,
            out,
            lse,
            grad_out,
            dq,
            *kinds,
            partition,
            dsink,
            scale,
            free,
            workspace_limit,
        )
    except LayoutError:
        if dkv_sum is not None and realigned(dkv_sum)[0] is not dkv_sum:
            raise
        q, kv, indices, topk_length, sink, queries, out, lse, grad_out = realigned(
            q, kv, indices, topk_length, sink, queries, out, lse, grad_out
        )
        found.backward(
            q,
            kv,
            indices,
            topk_length,
            sink,
            queries,
            query_count,
            out,
            lse,
            grad_out,
            dq,
            *kinds,
            partition,
            dsink,
            scale,
            free,
            workspace_limit,
        )
    return dq, next(kind for kind in kinds if kind is not None), dsink


def _is_deterministic(asked) -> bool:
    return torch.are_deterministic_algorithms_enabled() if asked is None else bool(asked)


class _Call:
    """What a call with gradients brings beside q, kv and sink, and takes home beside out: neither passes
    through autograd, whose work grows with every argument and result."""

    __slots__ = (
        "indices",
        "topk_length",
        "queries",
        "query_count",
        "found",
        "scale",
        "configuration",
        "deterministic",
        "dkv_dtype",
        "free",
        "limit",
        "want_max",
        "lse",
        "max_logits",
    )


class _SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, kv, sink, call):
        out, lse, max_logits, partition = _forward(
            call.found,
            q,
            kv,
            call.indices,
            call.topk_length,
            sink,
            call.queries,
            call.query_count,
            call.scale,
            call.configuration[2],
            call.want_max,
            call.free,
        )
        ctx.save_for_backward(
            q,
            kv,
            sink,
            out,
            lse,
            call.indices,
            call.topk_length,
            call.queries,
            call.query_count,
            partition,
        )
        ctx.smelt = (
            call.scale,
            call.configuration,
            call.deterministic,
            call.dkv_dtype,
            call.free,
            call.limit,
        )
        ctx.set_materialize_grads(False)
        call.lse, call.max_logits = lse, max_logits
        return out

    @staticmethod
    def backward(ctx, grad_out):
        if torch.is_grad_enabled():  # create_graph: the gradients have none themselves
            return _gradients_once(ctx, grad_out)
        return _gradients(ctx, grad_out)


def _gradients(ctx, grad_out):
    if grad_out is None:
        return None, None, None, None
    scale, configuration, deterministic, dkv_dtype, free, limit = ctx.smelt
    q, kv, sink, out, lse, indices, topk_length, queries, query_count, partition = ctx.saved_tensors
    found = _operator(q, kv, configuration, BACKWARD, _is_deterministic(deterministic), "smelt")
    dq, dkv, dsink = _backward(
        found,
        grad_out,
        q,
        kv,
        indices,
        topk_length,
        sink,
        queries,
        query_count,
        out,
        lse,
        scale,
        dkv_dtype,
        free,
        partition,
        limit,
    )
    return dq, dkv, dsink, None


_gradients_once = once_differentiable(_gradients)


# ---- the custom operators ---------------------------------------------------------------------------


def _listed(queries, query_count, tokens):
    """Which queries a query list names, of so many: bool."""
    count = queries.shape[0] if query_count is None else query_count.clamp(0, queries.shape[0])
    good = (
        (queries >= 0)
        & (queries < tokens)
        & (torch.arange(queries.shape[0], device=queries.device) < count)
    )
    listed = torch.zeros(tokens + 1, dtype=torch.bool, device=queries.device)
    listed[torch.where(good, queries.long(), tokens)] = True
    return listed[:tokens]


def _reference_forward(q, kv, indices, topk_length, sink, queries, query_count, scale, dv, topk):
    out, lse, max_logits = _reference.sparse_attention(
        q, kv, indices, scale, dv, topk_length=topk_length, sink=sink, topk=topk
    )
    if queries is not None:
        listed = (
            _listed(queries, query_count, lse[..., 0].numel()).view(lse.shape[:-1]).unsqueeze(-1)
        )
        out = torch.where(listed.unsqueeze(-1), out, torch.zeros_like(out))
        lse = lse.masked_fill(~listed, NEVER)
        max_logits = max_logits.masked_fill(~listed, NEVER)
    return out, lse, max_logits


def _op_forward(
    q,
    kv,
    indices,
    topk_length,
    sink,
    queries,
    query_count,
    scale,
    dv,
    topk,
    buckets,
    deterministic,
    dkv_dtype,
    free_multiprocessors,
    workspace_limit,
    backend,
):
    topk = topk or topk_for(indices.shape[-1])
    configuration = _configuration(q, dv, topk, sink, buckets)
    found = _operator(q, kv, configuration, FORWARD, False, backend)
    if found is None:
        with torch.no_grad():
            return _reference_forward(
                q, kv, indices, topk_length, sink, queries, query_count, scale, dv, topk
            )
    return _forward(
        found,
        q,
        kv,
        indices,
        topk_length,
        sink,
        queries,
        query_count,
        scale,
        configuration[2],
        True,
        free_multiprocessors,
    )[:3]


def _op_backward(
    grad_out,
    q,
    kv,
    indices,
    topk_length,
    sink,
    queries,
    query_count,
    out,
    lse,
    scale,
    dv,
    topk,
    buckets,
    deterministic,
    dkv_dtype,
    free_multiprocessors,
    workspace_limit,
    backend,
):
    topk = topk or topk_for(indices.shape[-1])
    configuration = _configuration(q, dv, topk, sink, buckets)
    found = _operator(q, kv, configuration, BACKWARD, _is_deterministic(deterministic), backend)
    if found is not None:
        dq, dkv, dsink = _backward(
            found,
            grad_out,
            q,
            kv,
            indices,
            topk_length,
            sink,
            queries,
            query_count,
            out,
            lse,
            scale,
            dkv_dtype,
            free_multiprocessors,
            None,
            workspace_limit,
        )
    else:
        if queries is not None:
            listed = _listed(queries, query_count, lse[..., 0].numel())
            grad_out = grad_out * listed.view(lse.shape[:-1])[..., None, None]
        dq, dkv, dsink = _reference.sparse_attention_backward(
            grad_out, q, kv, indices, scale, dv, topk_length=topk_length, sink=sink, topk=topk
        )
        dkv = dkv.to(dkv_dtype or kv.dtype)
    return dq, dkv, q.new_empty((0,), dtype=torch.float32) if dsink is None else dsink


def _fake_forward(
    q,
    kv,
    indices,
    topk_length,
    sink,
    queries,
    query_count,
    scale,
    dv,
    topk,
    buckets,
    deterministic,
    dkv_dtype,
    free_multiprocessors,
    workspace_limit,
    backend,
):
    rows = q.shape[:-1]
    return (
        q.new_empty((*rows, dv)),
        q.new_empty(rows, dtype=torch.float32),
        q.new_empty(rows, dtype=torch.float32),
    )


def _fake_backward(
    grad_out,
    q,
    kv,
    indices,
    topk_length,
    sink,
    queries,
    query_count,
    out,
    lse,
    scale,
    dv,
    topk,
    buckets,
    deterministic,
    dkv_dtype,
    free_multiprocessors,
    workspace_limit,
    backend,
):
    return (
        q.new_empty(q.shape),
        kv.new_empty(kv.shape, dtype=dkv_dtype or kv.dtype),
        q.new_empty((0,) if sink is None else sink.shape, dtype=torch.float32),
    )


def _keep(ctx, inputs, output):
    q, kv, indices, topk_length, sink, queries, query_count, *ctx.smelt = inputs
    out, lse, max_logits = output
    ctx.mark_non_differentiable(lse, max_logits)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, kv, indices, topk_length, sink, queries, query_count, out, lse)


def _op_gradients(ctx, grad_out, _lse, _max_logits):
    if grad_out is None:
        return (None,) * 16
    dq, dkv, dsink = _call_backward(grad_out, *ctx.saved_tensors, *ctx.smelt)
    q, kv, indices, topk_length, sink, *_ = ctx.saved_tensors
    return (dq, dkv.to(kv.dtype), None, None, None if sink is None else dsink) + (None,) * 11


_call = define(
    "sparse_attn(Tensor q, Tensor kv, Tensor indices, Tensor? topk_length, Tensor? sink, "
    "Tensor? queries, Tensor? query_count, float scale, int dv, int topk, int[] buckets, "
    "bool? deterministic, ScalarType? dkv_dtype, int free_multiprocessors, int workspace_limit, "
    "str backend) -> (Tensor out, Tensor lse, Tensor max_logits)",
    _op_forward,
    _fake_forward,
)
_call_backward = define(
    "sparse_attn_backward(Tensor grad_out, Tensor q, Tensor kv, Tensor indices, Tensor? topk_length, "
    "Tensor? sink, Tensor? queries, Tensor? query_count, Tensor out, Tensor lse, float scale, int dv, "
    "int topk, int[] buckets, bool? deterministic, ScalarType? dkv_dtype, int free_multiprocessors, "
    "int workspace_limit, str backend) -> (Tensor dq, Tensor dkv, Tensor dsink)",
    _op_backward,
    _fake_backward,
)
torch.library.register_autograd(
    "smelt::sparse_attn", _op_gradients, setup_context=_keep, lib=library
)


# ---- the call ---------------------------------------------------------------------------------------


def _check_types(q, kv, indices, topk_length, sink, queries, query_count):
    for name, value in (("q", q), ("kv", kv), ("indices", indices)):
        if not isinstance(value, Tensor):
            raise TypeError(f"smelt: {name} must be a torch.Tensor, not {type(value).__name__}")
    for name, value in (
        ("topk_length", topk_length),
        ("sink", sink),
        ("queries", queries),
        ("query_count", query_count),
    ):
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"smelt: {name} must be a torch.Tensor or None, not {type(value).__name__}"
            )


def _check_shapes(q, kv, indices, topk_length, sink, dv):
    """What the kernels' own checks do not see, because others compute."""
    if q.dim() not in (3, 4) or indices.dim() != q.dim() - 1 or kv.dim() != q.dim() - 1:
        raise ValueError(
            f"smelt: q must be [T, H, dqk] or [B, T, H, dqk], kv and indices of one dimension less, "
            f"not of {q.dim()}, {kv.dim()} and {indices.dim()}"
        )
    if indices.dtype is not torch.int32:
        raise TypeError(f"smelt: indices must be torch.int32, not {indices.dtype}")
    if kv.shape[-1] != q.shape[-1]:
        raise ValueError(f"smelt: kv has rows of {kv.shape[-1]}, q of {q.shape[-1]}")
    if q.shape[:-2] != indices.shape[:-1] or q.shape[:-3] != kv.shape[:-2]:
        raise ValueError(
            f"smelt: shapes do not fit: q {tuple(q.shape)}, kv {tuple(kv.shape)}, indices "
            f"{tuple(indices.shape)}"
        )
    if topk_length is not None and topk_length.shape != indices.shape[:-1]:
        raise ValueError(
            f"smelt: topk_length must be {tuple(indices.shape[:-1])}, not "
            f"{tuple(topk_length.shape)}"
        )
    if sink is not None and sink.shape != q.shape[-2:-1]:
        raise ValueError(f"smelt: sink must be [{q.shape[-2]}], not {tuple(sink.shape)}")
    if not 0 < dv <= q.shape[-1]:
        raise ValueError(f"smelt: dv must be 1 to {q.shape[-1]}, not {dv}")


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
    buckets: str | Sequence[int] | None = None,
    deterministic: bool | None = None,
    return_lse: bool = False,
    return_max_logits: bool = False,
    lse: str = "natural",
    dkv_dtype: torch.dtype | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
    backend: str = "auto",
):
    """Attention of each query to its own list of KV rows: `out`, or a tuple of it and what was asked for.

    ::

        q        [T, H, dqk] or [B, T, H, dqk]   bf16
        kv       [S, dqk]    or [B, S, dqk]      bf16, a row is key and, in its first dv columns, value
        indices  [T, width]  or [B, T, width]    int32; slots outside 0..S-1 (-1, say) are masked
        out      [.., T, H, dv]                  bf16
        lse      [.., T, H]                      fp32, ln sum exp(scale * q.k), without the sink;
                                                 -inf for a query without a valid slot, whose out is 0

    A packed batch of documents is the form without B: indices are row numbers of the whole batch.
    Strides are passed on; a tensor is copied only where its last dimension is not contiguous or its
    rows do not begin at multiples of 16 bytes.

    dv: width of a value (default: dqk if that is 64, 128, 256 or 512, else dqk - 64).
    topk: the most valid slots of a query (default: the width rounded up to a multiple of 128). With
        buckets rows may be wider: of more valid slots the first `topk` count.
    topk_length: [.., T] int32, slots of a query that count. sink: [H], a logit in the denominator.
    buckets: None, "auto" or bounds; see docs/operators.md.
    deterministic: dkv's sums in a fixed order; None: as torch.use_deterministic_algorithms says. All
        else has the same bits in every run anyway.
    return_lse, return_max_logits: also return these; `lse` "natural" or "base2" (log2 sum 2^..). They
        take no gradient.
    dkv_dtype: in what the backward pass hands out kv's gradient: torch.bfloat16 or torch.float32 (worth
        its memory where kv came from fp32 through a cast or autocast).
    queries, query_count: compute only these queries (b * T + t); the others' out is 0, lse -inf.
    free_multiprocessors, workspace_limit: see smelt/sparse_attn.h.
    backend: "smelt" raises where no kernel can be had, "torch" is the eager reference, "auto" takes it
        where there is no kernel, with one warning that says why.

    Under torch.autocast fp32 and fp16 inputs are cast. Raises TypeError, ValueError, RuntimeError.
    """
    if not (
        isinstance(q, Tensor)
        and isinstance(kv, Tensor)
        and isinstance(indices, Tensor)
        and topk_length is None
        and sink is None
        and queries is None
        and query_count is None
    ):
        _check_types(q, kv, indices, topk_length, sink, queries, query_count)
        if sink is not None and sink.dtype is not torch.float32:
            sink = sink.float()
    kind = autocast_type(q.device.type)
    if kind is not None:
        q, kv = q.to(kind), kv.to(kind)
    shape, width = q.shape, indices.shape[-1] if indices.dim() else 0
    if len(shape) not in (3, 4):
        raise ValueError(
            f"smelt: q must be [T, H, dqk] or [B, T, H, dqk], not of {len(shape)} dimensions"
        )
    if width == 0:  # a list without a slot is one with a masked slot
        indices = indices.new_full((*indices.shape[:-1], 1), -1)
    if backend != "auto":
        choose(backend, "backend", ("auto", "smelt", "torch"))
    if dkv_dtype is not None:
        choose(dkv_dtype, "dkv_dtype", (torch.bfloat16, torch.float32))
    dv = value_width(shape[-1]) if dv is None else whole(dv, "dv")
    asked = 0 if topk is None else whole(topk, "topk")  # 0: by the width, which may be symbolic
    topk = asked or topk_for(width)
    configuration = (
        shape[-2],
        shape[-1],
        dv,
        topk,
        sink is not None,
        () if buckets is None else _buckets(buckets),
    )
    if type(q) in plain_types and type(kv) in plain_types and not is_watched():
        found = _operator(q, kv, configuration, FORWARD, False, backend)
        if found is None:
            _check_shapes(q, kv, indices, topk_length, sink, dv)
            out, sums, highest = _reference_forward(
                q, kv, indices, topk_length, sink, queries, query_count, scale, dv, topk
            )
        elif torch.is_grad_enabled() and (
            q.requires_grad or kv.requires_grad or (sink is not None and sink.requires_grad)
        ):
            call = _Call()
            call.indices, call.topk_length, call.queries, call.query_count = (
                indices,
                topk_length,
                queries,
                query_count,
            )
            call.found, call.scale, call.configuration = found, scale, configuration
            call.deterministic, call.dkv_dtype, call.want_max = (
                deterministic,
                dkv_dtype,
                return_max_logits,
            )
            call.free, call.limit = free_multiprocessors, workspace_limit
            out = _SparseAttention.apply(q, kv, sink, call)
            sums, highest = call.lse, call.max_logits
        else:
            out, sums, highest, _ = _forward(
                found,
                q,
                kv,
                indices,
                topk_length,
                sink,
                queries,
                query_count,
                scale,
                dv,
                return_max_logits,
                free_multiprocessors,
            )
    else:
        _check_shapes(q, kv, indices, topk_length, sink, dv)
        out, sums, highest = _call(
            q,
            kv,
            indices,
            topk_length,
            sink,
            queries,
            query_count,
            scale,
            dv,
            asked,
            configuration[5],
            deterministic,
            dkv_dtype,
            free_multiprocessors,
            workspace_limit,
            backend,
        )
    if not return_lse and not return_max_logits:
        return out
    results = [out]
    if return_lse:
        choose(lse, "lse", ("natural", "base2"))
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
    buckets: str | Sequence[int] | None = None,
    deterministic: bool | None = None,
    dkv_dtype: torch.dtype | None = None,
    dkv_sum: Tensor | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
):
    """The gradients dq, dkv and dsink (None without a sink), for programs that do without autograd.

    `out` and `lse` (natural, without the sink) are the forward's. `dkv_sum`: fp32 [.., S, dqk] that is
    added to, and returned as dkv. Runs where sparse_attention's backend is "smelt".
    """
    _check_types(q, kv, indices, topk_length, sink, queries, query_count)
    if sink is not None and sink.dtype is not torch.float32:
        sink = sink.float()
    if indices.shape[-1] == 0:
        indices = indices.new_full((*indices.shape[:-1], 1), -1)
    topk = topk_for(indices.shape[-1]) if topk is None else whole(topk, "topk")
    configuration = _configuration(q, out.shape[-1], topk, sink, _buckets(buckets))
    found = _operator(q, kv, configuration, BACKWARD, _is_deterministic(deterministic), "smelt")
    with torch.no_grad():
        return _backward(
            found,
            grad_out,
            q,
            kv,
            indices,
            topk_length,
            sink,
            queries,
            query_count,
            out,
            lse,
            scale,
            dkv_dtype,
            free_multiprocessors,
            None,
            workspace_limit,
            dkv_sum,
        )
