"""The lightning indexer: windows, quantised rows, logits, exact top-k."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from . import _native
from ._checks import choose, integer, optional_tensors, scored, shapes, tensors, whole
from ._eager import (
    detached,
    is_plain,
    launched,
    once,
    operator_of,
    refuse_tangents,
    table,
    wants_gradients,
)
from ._indexer_gradients import gradients, gradients_operator
from ._library import define, library

CHUNK_BYTES = 128 << 20  # of logits, that indexer_topk holds at a time
SCORED = (  # what scores a query's keys, in the schemas
    "Tensor q, Tensor k, Tensor weights, Tensor? k_scale, Tensor window_begin, Tensor window_end"
)
_DTYPES = {torch.bfloat16: "bf16", torch.float8_e4m3fn: "fp8"}


# ---- windows ----------------------------------------------------------------------------------------


_windows_calls = table((1, 1, 1, 1, 0))


def _windows(*arguments):
    *given, tokens, rows, ratio, backend = arguments
    cu_seqlens, _, _, causal_offset, _ = given
    documents = cu_seqlens.shape[0] - 1
    if causal_offset is not None and causal_offset.shape != (documents,):
        raise ValueError(
            f"smelt: causal_offset must be [{documents}], not {tuple(causal_offset.shape)}"
        )
    found = operator_of(cu_seqlens, ("indexer_windows",), backend)
    if found is None:
        named = ("cu_seqlens", "cu_seqlens_padded", "cu_seqlens_keys")
        shapes(**{name: (each, "E", True) for name, each in zip(named, given)})
        shapes(causal_offset=(causal_offset, "F", True), query_indices=(given[4], "T", True))
        tokens, rows, ratio = integer(tokens, "tokens"), integer(rows, "rows"), integer(ratio, "ratio")
        if given[4] is not None and given[4].shape[0] != tokens:
            raise ValueError(f"smelt: query_indices must be [{tokens}], not [{given[4].shape[0]}]")
        if tokens < 0 or rows < 0 or ratio < 1:
            raise ValueError(
                f"smelt: tokens and rows must be 0 or more, ratio 1 or more, not {tokens}, {rows} and {ratio}"
            )
        return _reference.windows(*given, tokens, rows, ratio)
    scalars = (tokens, rows, documents, ratio)
    known = _native.Known([found], 0, (True, True), scalars)
    _windows_calls.remember(*given, (tokens, rows, ratio, backend), known)
    return launched(found.forward, given, (True, True), scalars)[:2]


def _empty_windows(*arguments):
    cu_seqlens, tokens = arguments[0], arguments[5]
    begin, end = (cu_seqlens.new_empty((tokens,), dtype=torch.int32) for _ in range(2))
    return begin, end


_call_windows = define(
    "indexer_windows(Tensor cu_seqlens, Tensor? cu_seqlens_padded, Tensor? cu_seqlens_keys, "
    "Tensor? causal_offset, Tensor? query_indices, SymInt tokens, SymInt rows, SymInt ratio, str backend) -> "
    "(Tensor begin, Tensor end)",
    _windows,
    _empty_windows,
)


def indexer_windows(
    cu_seqlens: Tensor,
    tokens: int,
    rows: int,
    *,
    cu_seqlens_padded: Tensor | None = None,
    cu_seqlens_keys: Tensor | None = None,
    causal_offset: Tensor | None = None,
    query_indices: Tensor | None = None,
    ratio: int = 1,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Each query's range of keys, built on the device: (begin, end), int32 [tokens].

    cu_seqlens [documents + 1] int32: a query sees its document from the start to itself. With
    cu_seqlens_padded, documents lie there and the rest of each place is padding, whose queries see
    nothing. query_indices [tokens] int32: the global row of each local query, in any order.
    causal_offset [documents]: tokens ahead of a document's first query. ratio: tokens that share a key;
    cu_seqlens_keys: where the documents' keys lie, where that is not where the queries do. `rows`: how many
    keys there are. include/smelt/indexer_windows.h says it exactly.
    """
    given = (cu_seqlens, cu_seqlens_padded, cu_seqlens_keys, causal_offset, query_indices)
    said = (tokens, rows, ratio, backend)
    if not torch.compiler.is_compiling():
        found = _windows_calls.run(*given, said)
        if found is not None:
            return found[:2]
    tensors(cu_seqlens=cu_seqlens)
    optional_tensors(
        cu_seqlens_padded=cu_seqlens_padded,
        cu_seqlens_keys=cu_seqlens_keys,
        causal_offset=causal_offset,
        query_indices=query_indices,
    )
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(
            f"smelt: cu_seqlens must be [documents + 1], not {tuple(cu_seqlens.shape)}"
        )
    run = _windows if is_plain(*given) else _call_windows
    return run(*given, *said)


# ---- quantised rows ---------------------------------------------------------------------------------


_quantize_calls = table((1, 0))


def _quantize(x, factor, scale, backend):
    found = operator_of(x, ("indexer_quantize", ("dim", x.shape[-1]), ("scale", scale)), backend)
    if found is None:
        if not x.shape[-1]:
            raise ValueError(f"smelt: x has rows without an element: {tuple(x.shape)}")
        y, scales = _reference.quantize(x, scale)
        return y, scales if factor is None else scales * factor
    known = _native.Known([found], 0, (True, True), (0,))
    _quantize_calls.remember(x, factor, (scale, backend), known)
    try:
        return found.forward(x, factor, True, True, 0)[:2]
    except _native.LayoutError:  # also of rows that are no one dimension
        packed = [None if each is None else _packed(each) for each in (x, factor)]
        return found.forward(*packed, True, True, 0)[:2]


def _packed(tensor):
    return tensor.clone(memory_format=torch.contiguous_format)


def _empty_rows(x, *_):
    scales = x.new_empty(x.shape[:-1], dtype=torch.float32)
    return x.new_empty(x.shape, dtype=torch.float8_e4m3fn), scales


_call_quantize = define(
    "indexer_quantize(Tensor x, Tensor? factor, str scale, str backend) -> (Tensor y, Tensor scales)",
    _quantize,
    _empty_rows,
)


def quantize(
    x: Tensor, *, factor: Tensor | None = None, scale: str = "plain", backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Rows of bf16 as e4m3 and an fp32 scale each: x [.., D] gives y [.., D] and scales [..].

    scale: "plain" (the row's largest magnitude over 448) or "power_of_two" (the next one up). factor [..]
    fp32: the scales come multiplied by it, as the indexer's weights want those of its queries. D is 64 or 128.
    """
    if not torch.compiler.is_compiling():
        found = _quantize_calls.run(x, factor, (scale, backend))
        if found is not None:
            return found[:2]
    tensors(x=x)
    optional_tensors(factor=factor)
    choose(scale, "scale", ("plain", "power_of_two"))
    if x.dim() < 1 or x.dtype is not torch.bfloat16:
        raise TypeError(f"smelt: x must be rows of torch.bfloat16, not {x.dtype}")
    if factor is not None and (factor.shape != x.shape[:-1] or factor.dtype is not torch.float32):
        raise ValueError(
            f"smelt: factor must be {tuple(x.shape[:-1])} torch.float32, not {tuple(factor.shape)} "
            f"{factor.dtype}"
        )
    run = _quantize if is_plain(x, factor) else _call_quantize
    return run(x.detach(), None if factor is None else factor.detach(), scale, backend)


# ---- logits -----------------------------------------------------------------------------------------


_logits_calls = table((2, 0, 0, 0, 0, 0))


def _logits(*arguments):
    *given, free, backend = arguments
    q = given[0]
    key = ("heads", q.shape[1]), ("dim", q.shape[2]), ("dtype", _DTYPES[q.dtype])
    found = operator_of(q, ("indexer_logits", *key), backend)
    if found is None:
        scored(*given)
        return _reference.logits(*given)
    _logits_calls.remember(*given, (free, backend), _native.Known([found], 0, (True,), (free,)))
    return launched(found.forward, given, (True,), (free,))[0]


def _empty_logits(q, k, *_):
    return q.new_empty((q.shape[0], k.shape[0]), dtype=torch.float32)


_call_logits = define(
    f"indexer_logits({SCORED}, int free_multiprocessors, str backend) -> Tensor",
    _logits,
    _empty_logits,
)


def _check_scores(q, k, weights, window_begin, window_end, k_scale):
    tensors(q=q, k=k, weights=weights, window_begin=window_begin, window_end=window_end)
    optional_tensors(k_scale=k_scale)
    if q.dim() != 3 or k.dim() != 2:
        raise ValueError(
            f"smelt: q must be [T, H, D] and k [S, D], not {tuple(q.shape)} and {tuple(k.shape)}"
        )
    if q.dtype not in _DTYPES or k.dtype is not q.dtype:
        raise TypeError(
            f"smelt: q and k must both be torch.bfloat16 or torch.float8_e4m3fn, not {q.dtype} and "
            f"{k.dtype}"
        )
    if (k_scale is None) == (q.dtype is torch.float8_e4m3fn):
        raise ValueError("smelt: k_scale goes with torch.float8_e4m3fn, and with nothing else")


def indexer_logits(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    window_begin: Tensor,
    window_end: Tensor,
    *,
    k_scale: Tensor | None = None,
    free_multiprocessors: int = 0,
    backend: str = "auto",
) -> Tensor:
    """logits [T, S] fp32: sum over heads of weights * max(0, q . k) in each query's window, -inf outside.

    q [T, H, D] and k [S, D] bf16 or e4m3 (then k_scale [S] fp32 multiplies column s), weights [T, H] fp32,
    windows int32 [T]. Softmax scales, and q's scales in fp8, are the caller's to fold into weights.
    """
    if not torch.compiler.is_compiling():
        said = (free_multiprocessors, backend)
        found = _logits_calls.run(q, k, weights, k_scale, window_begin, window_end, said)
        if found is not None:
            return found[0]
    _check_scores(q, k, weights, window_begin, window_end, k_scale)
    given = (*detached(q, k, weights), k_scale, window_begin, window_end)
    run = _logits if is_plain(*given) else _call_logits
    return run(*given, free_multiprocessors, backend)


_clean_calls = table((0, 0, 0))


def _clean(logits, window_begin, window_end, backend):
    found = operator_of(logits, ("indexer_clean",), backend)
    if found is None:
        windows = {"window_begin": (window_begin, "T", True), "window_end": (window_end, "T", True)}
        shapes(logits=(logits, "TS"), **windows)
        _reference.clean_(logits, window_begin, window_end)
    else:
        known = _native.Known([found], 0, (), (0,))
        _clean_calls.remember(window_begin, window_end, logits, (backend,), known)
        launched(found.forward, (window_begin, window_end), (logits,), (0,))


_call_clean = define(
    "indexer_clean(Tensor(a!) logits, Tensor window_begin, Tensor window_end, str backend) -> ()",
    _clean,
    lambda logits, window_begin, window_end, backend: None,
)


def clean_logits_(
    logits: Tensor, window_begin: Tensor, window_end: Tensor, *, backend: str = "auto"
) -> Tensor:
    """Fills what of logits [T, S] fp32 lies outside the windows with -inf, in place."""
    if not torch.compiler.is_compiling():
        found = _clean_calls.run(window_begin, window_end, logits, (backend,))
        if found is not None:
            return logits
    tensors(logits=logits, window_begin=window_begin, window_end=window_end)
    given = (logits, window_begin, window_end)
    (_clean if is_plain(*given) else _call_clean)(*given, backend)
    return logits


# ---- top-k ------------------------------------------------------------------------------------------


_select_calls = table((0, 0, 0, 0))


def _select(logits, topk, begin, end, offset, index_offset, order, backend):
    found = operator_of(logits, ("topk_select", ("topk", topk), ("order", order)), backend)
    if found is None:
        windows = {"window_begin": (begin, "T", True), "window_end": (end, "T", True)}
        shapes(logits=(logits, "TS"), **windows, offset=(offset, "T", True))
        index_offset = integer(index_offset, "index_offset")
        return _reference.select(logits, topk, begin, end, offset, index_offset, order)
    given, made, scalars = (logits, begin, end, offset), (True, True, True), (index_offset,)
    known = _native.Known([found], 0, made, scalars)
    _select_calls.remember(*given, (topk, index_offset, order, backend), known)
    return launched(found.forward, given, made, scalars)[:3]


def _empty_choice(like, topk, *_):
    """indices, values and lengths of the rows of `like`, which is in fp32."""
    shape = (like.shape[0], topk)
    return (
        like.new_empty(shape, dtype=torch.int32),
        like.new_empty(shape),
        like.new_empty(shape[:1], dtype=torch.int32),
    )


_call_select = define(
    "topk_select(Tensor logits, int topk, Tensor? window_begin, Tensor? window_end, Tensor? offset, "
    "int index_offset, str order, str backend) -> (Tensor indices, Tensor values, Tensor lengths)",
    _select,
    _empty_choice,
)


def topk_select(
    logits: Tensor,
    topk: int,
    *,
    window_begin: Tensor | None = None,
    window_end: Tensor | None = None,
    offset: Tensor | None = None,
    index_offset: int = 0,
    order: str = "index",
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """(indices int32 [T, topk], values fp32 [T, topk], lengths int32 [T]) of the largest in each row's window.

    Exact, and the same bits every time: of equal ones the lowest index wins, -0 counts as 0, NaN as -inf.
    order: "index" (ascending, which attention likes) or "score" (descending). Places that a short window
    cannot fill hold -1 and -inf. offset [T] int32 and index_offset are added to a row's indices.
    """
    if not torch.compiler.is_compiling():
        said = (topk, index_offset, order, backend)
        found = _select_calls.run(logits, window_begin, window_end, offset, said)
        if found is not None:
            return found[:3]
    tensors(logits=logits)
    optional_tensors(window_begin=window_begin, window_end=window_end, offset=offset)
    choose(order, "order", ("index", "score"))
    topk = whole(topk, "topk")
    if logits.dim() != 2 or logits.dtype is not torch.float32:
        raise TypeError(
            f"smelt: logits must be [T, S] torch.float32, not {tuple(logits.shape)} {logits.dtype}"
        )
    run = _select if is_plain(logits, window_begin, window_end, offset) else _call_select
    return run(
        logits.detach(), topk, window_begin, window_end, offset, index_offset, order, backend
    )


def _two_steps(given, topk, offset, index_offset, order, backend):
    """By chunks of queries, so that no more than CHUNK_BYTES of logits are held."""
    q, k, weights, k_scale, begin, end = given
    rows = max(1, CHUNK_BYTES // max(4, 4 * k.shape[0]))
    parts = []
    for first in range(0, max(1, q.shape[0]), rows):
        part = slice(first, first + rows)
        window = begin[part], end[part]
        logits = _logits(q[part], k, weights[part], k_scale, *window, 0, backend)
        added = None if offset is None else offset[part]
        parts.append(_select(logits, topk, *window, added, index_offset, order, backend))
    return parts[0] if len(parts) == 1 else tuple(torch.cat(each) for each in zip(*parts))


def _topk(*arguments):
    given, offset, topk, index_offset, order = arguments[:6], *arguments[6:10]
    *scalars, backend = arguments[10:]
    q = given[0]
    key = ("heads", q.shape[1]), ("dim", q.shape[2]), ("dtype", _DTYPES[q.dtype])
    found = operator_of(q, ("indexer_topk", *key, ("topk", topk), ("order", order)), backend)
    if found is None:
        scored(*given)
        shapes(q=(q, "THD"), offset=(offset, "T", True))
        index_offset = integer(index_offset, "index_offset")
        return _two_steps(given, topk, offset, index_offset, order, "torch")
    given, made, scalars = (*given, offset), (True, True, True), (index_offset, *scalars)
    _remember_topk(found, given, made, scalars, (topk, order, *scalars, backend))
    return launched(found.forward, given, made, scalars)[:3]


def _remember_topk(found, given, made, scalars, said):
    """With gradients in bf16: the values', see _TopkNode."""
    index_offset, free, *_, backend = said[2:]
    known = _native.Known(
        [found],
        0,
        made,
        scalars,
        (index_offset, free, backend),
        result=1 if given[0].dtype is torch.bfloat16 else -1,
        saved=(0, 1, 2, 7, 9, 6),  # what scores, what was chosen and how much of it, the offset
    )
    _topk_calls.remember(*given, said, known)


def _fake_topk(*arguments):
    return _empty_choice(arguments[2], arguments[7])


_call_topk = define(
    f"indexer_topk({SCORED}, Tensor? offset, int topk, int index_offset, str order, "
    "int free_multiprocessors, int workspace_limit, int causal_limit, str backend) -> "
    "(Tensor indices, Tensor values, Tensor lengths)",
    _topk,
    _fake_topk,
)


def _keep_choice(ctx, inputs, output):
    q, k, weights, _, _, _, offset, _, index_offset, _, free, _, _, backend = inputs
    ctx.options = index_offset, free, backend
    indices, _, lengths = output
    ctx.mark_non_differentiable(indices, lengths)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, weights, indices, lengths, offset)


def _choice_gradients(ctx, grad, options, call):
    """Of indexer_topk's values: they are the logits of what was chosen."""
    q, k, weights, indices, lengths, offset = ctx.saved_tensors
    index_offset, free, backend = options
    if index_offset:
        indices = indices - index_offset
    if offset is not None:
        indices = indices - offset.unsqueeze(1)
    return call(grad, q, k, weights, indices, lengths, None, None, free, backend)


def _flow_choice(ctx, _indices, grad, _lengths):
    none = (None,) * 11
    if grad is None:
        return None, None, None, *none
    return *_choice_gradients(ctx, grad, ctx.options, gradients_operator), *none


torch.library.register_autograd(
    "smelt::indexer_topk", _flow_choice, setup_context=_keep_choice, lib=library
)


class _TopkNode(torch.autograd.Function):
    """Of the values of a call that the module runs."""

    forward = staticmethod(_native.node_forward)

    @staticmethod
    @once
    def backward(ctx, grad):
        if grad is None:
            return None, None, None, None
        return *_choice_gradients(ctx, grad, ctx.known.options, gradients), None


_topk_calls = table((2, 0, 0, 0, 0, 0, 0), (0, 1, 2), _TopkNode)


def indexer_topk(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    window_begin: Tensor,
    window_end: Tensor,
    topk: int,
    *,
    k_scale: Tensor | None = None,
    offset: Tensor | None = None,
    index_offset: int = 0,
    order: str = "index",
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
    causal_limit: int = 0,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """indexer_logits and topk_select of them in one: (indices, values, lengths), the same bits.

    The matrix of logits is never there as a whole: the workspace is at most 128 MB (workspace_limit in bytes,
    where that is not 0), whatever T and S are. causal_limit: a promise, where it is not 0, that
    window_end[t] <= t + causal_limit for each query t (1 where query t stands at key t and sees nothing behind
    itself): a long call takes a twentieth less time then. In bf16 the values are differentiable in q, k and weights, by
    smelt.indexer_backward of what was chosen.
    """
    if not torch.compiler.is_compiling():
        said = (topk, order, index_offset, free_multiprocessors, workspace_limit, causal_limit)
        given = (q, k, weights, k_scale, window_begin, window_end, offset)
        found = _topk_calls.run(*given, (*said, backend))
        if found is not None:
            return found[:3]
    _check_scores(q, k, weights, window_begin, window_end, k_scale)
    choose(order, "order", ("index", "score"))
    topk = whole(topk, "topk")
    optional_tensors(offset=offset)
    if q.dtype is not torch.bfloat16:  # e4m3 has no gradients
        q, k, weights = detached(q, k, weights)
    refuse_tangents(q, k, weights)
    given = (q, k, weights, k_scale, window_begin, window_end, offset)
    direct = is_plain(*given) and not wants_gradients(q, k, weights)
    run = _topk if direct else _call_topk
    return run(
        *given,
        topk,
        index_offset,
        order,
        free_multiprocessors,
        workspace_limit,
        causal_limit,
        backend,
    )
