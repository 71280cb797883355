"""The lightning indexer: windows, quantised rows, logits, exact top-k."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from . import _native, _runtime
from ._checks import ORDERS, SCALES, choose, whole
from ._indexer_gradients import backward, scored_as_kernels_read
from ._operation import Operation, as_kernels_read, may_cast

CHUNK_BYTES = 128 << 20  # of logits, that indexer_topk holds at a time
_DTYPES = {torch.bfloat16: "bf16", torch.float8_e4m3fn: "fp8"}


# ---- windows ----------------------------------------------------------------------------------------


_WINDOWS = "indexer_windows".format


def _indexer_windows(
    key,
    cu_seqlens: Tensor,
    cu_seqlens_padded: Tensor | None,
    cu_seqlens_keys: Tensor | None,
    causal_offset: Tensor | None,
    query_indices: Tensor | None,
    tokens: int,
    rows: int,
    ratio: int,
    backend: str | None,
):
    inputs = (cu_seqlens, cu_seqlens_padded, cu_seqlens_keys, causal_offset, query_indices)
    numbers = {"tokens": tokens, "rows": rows, "ratio": ratio}
    found = _runtime.find(key, backend, _WINDOWS)
    if found is not None:
        return found.forward(*inputs, True, True, **numbers)
    _native.check("indexer_windows", 0, *inputs, **numbers)
    if rows < 0 or ratio < 1:
        raise ValueError(f"smelt: rows must be 0 or more, ratio 1 or more, not {rows} and {ratio}")
    with torch.no_grad():
        return _reference.windows(*inputs, tokens, rows, ratio)


def _fake_windows(cu_seqlens, *others):
    return tuple(cu_seqlens.new_empty((others[4],), dtype=torch.int32) for _ in range(2))


_windows = Operation(_indexer_windows, _fake_windows, "Tensor begin, Tensor end", {"cu_seqlens": 0})


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
    backend: str | None = None,
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
    return _windows.call(*given, tokens, rows, ratio, backend)[:2]


# ---- quantised rows ---------------------------------------------------------------------------------


_QUANTIZE = "indexer_quantize:dim={1},scale={2}".format


def _indexer_quantize(key, x: Tensor, factor: Tensor | None, scale: str, backend: str | None):
    found = _runtime.find(key, backend, _QUANTIZE, scale)
    if found is not None:
        return found.forward(x, True, True, factor)
    _quantize_rules(x)
    _native.check("indexer_quantize", 0, x, factor=factor)
    if not x.shape[-1]:
        raise ValueError(f"smelt: x has rows without an element: {tuple(x.shape)}")
    with torch.no_grad():
        y, scales = _reference.quantize(x, scale)
        return y, scales if factor is None else scales * factor


def _quantize_rules(x, *_):
    if not x.dim() or x.dtype is not torch.bfloat16:
        raise TypeError(f"smelt: x must be rows of torch.bfloat16, not {x.dtype}")


def _fake_quantize(x, *_):
    scales = x.new_empty(x.shape[:-1], dtype=torch.float32)
    return x.new_empty(x.shape, dtype=torch.float8_e4m3fn), scales


_quantize = Operation(_indexer_quantize, _fake_quantize, "Tensor y, Tensor scales", {"x": 1}, rules=_quantize_rules)


def quantize(
    x: Tensor, *, factor: Tensor | None = None, scale: str = "plain", backend: str | None = None
) -> tuple[Tensor, Tensor]:
    """Rows of bf16 as e4m3 and an fp32 scale each: x [.., D] gives y [.., D] and scales [..].

    scale: "plain" (the row's largest magnitude over 448) or "power_of_two" (the next one up). factor [..]
    fp32: the scales come multiplied by it, as the indexer's weights want those of its queries. D is 64 or 128.
    """
    choose(scale, "scale", SCALES)
    if may_cast(x):
        _, x = as_kernels_read(backend, x)
    return _quantize.call(x, factor, scale, backend)[:2]


# ---- logits -----------------------------------------------------------------------------------------


def _scored_rules(q, k, weights, k_scale, *_):
    if q.dim() != 3 or k.dim() != 2:
        raise ValueError(f"smelt: q must be [T, H, D] and k [S, D], not {tuple(q.shape)} and {tuple(k.shape)}")
    if q.dtype not in _DTYPES or k.dtype is not q.dtype:
        raise TypeError(
            f"smelt: q and k must both be torch.bfloat16 or torch.float8_e4m3fn, not {q.dtype} and {k.dtype}"
        )
    if (k_scale is None) == (q.dtype is torch.float8_e4m3fn):
        raise ValueError("smelt: k_scale goes with torch.float8_e4m3fn, and with nothing else")


def _logits_spec(kind, heads, dim):
    return f"indexer_logits:heads={heads},dim={dim},dtype={_DTYPES[kind]}"


def _topk_spec(kind, heads, dim, topk, order):
    return f"indexer_topk:heads={heads},dim={dim},dtype={_DTYPES[kind]},topk={topk},order={order}"


def _indexer_logits(
    key,
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    k_scale: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    free_multiprocessors: int,
    backend: str | None,
):
    inputs = (q, k, weights, k_scale, window_begin, window_end)
    found = _runtime.find(key, backend, _logits_spec)
    if found is not None:
        return found.forward(*inputs, True, free_multiprocessors=free_multiprocessors)
    _scored_rules(*inputs)
    _native.check("indexer_logits", 0, *inputs)
    with torch.no_grad():
        return (_reference.logits(*inputs),)


def _fake_logits(q, k, *_):
    return (q.new_empty((q.shape[0], k.shape[0]), dtype=torch.float32),)


_logits = Operation(_indexer_logits, _fake_logits, "Tensor logits", {"q": 2}, rules=_scored_rules)


def indexer_logits(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    window_begin: Tensor,
    window_end: Tensor,
    *,
    k_scale: Tensor | None = None,
    free_multiprocessors: int = 0,
    backend: str | None = None,
) -> Tensor:
    """logits [T, S] fp32: sum over heads of weights * max(0, q . k) in each query's window, -inf outside.

    q [T, H, D] and k [S, D] bf16 or e4m3 (then k_scale [S] fp32 multiplies column s), weights [T, H] fp32,
    windows int32 [T]. Softmax scales, and q's scales in fp8, are the caller's to fold into weights.
    """
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    given = (q, k, weights, k_scale, window_begin, window_end)
    return _logits.call(*given, free_multiprocessors, backend)[0]


_CLEAN = "indexer_clean".format


def _indexer_clean(key, logits: Tensor, window_begin: Tensor, window_end: Tensor, backend: str | None):
    inputs = (window_begin, window_end, logits)
    found = _runtime.find(key, backend, _CLEAN)
    if found is not None:
        return found.forward(*inputs)
    _native.check("indexer_clean", 0, *inputs)
    with torch.no_grad():
        _reference.clean_(logits, window_begin, window_end)
    return ()


_clean = Operation(_indexer_clean, lambda *_: (), "", {"logits": 0}, written="logits")


def clean_logits_(logits: Tensor, window_begin: Tensor, window_end: Tensor, *, backend: str | None = None) -> Tensor:
    """Fills what of logits [T, S] fp32 lies outside the windows with -inf, in place."""
    _clean.call(logits, window_begin, window_end, backend)
    return logits


# ---- top-k ------------------------------------------------------------------------------------------


_SELECT = "topk_select:topk={1},order={2}".format


def _topk_select(
    key,
    logits: Tensor,
    window_begin: Tensor | None,
    window_end: Tensor | None,
    offset: Tensor | None,
    topk: int,
    index_offset: int,
    order: str,
    backend: str | None,
):
    inputs = (logits, window_begin, window_end, offset)
    found = _runtime.find(key, backend, _SELECT, topk, order)
    if found is not None:
        return found.forward(*inputs, True, True, True, index_offset=index_offset)
    _select_rules(logits)
    _native.check("topk_select", 0, *inputs, index_offset=index_offset)
    with torch.no_grad():
        return _reference.select(logits, topk, window_begin, window_end, offset, index_offset, order)


def _select_rules(logits, *_):
    if logits.dim() != 2 or logits.dtype is not torch.float32:
        raise TypeError(f"smelt: logits must be [T, S] torch.float32, not {tuple(logits.shape)} {logits.dtype}")


def _fake_choice(like, topk):
    """indices, values and lengths of the rows of `like`, which is in fp32."""
    shape = (like.shape[0], topk)
    return (
        like.new_empty(shape, dtype=torch.int32),
        like.new_empty(shape),
        like.new_empty(shape[:1], dtype=torch.int32),
    )


_CHOICE = "Tensor indices, Tensor values, Tensor lengths"
_select = Operation(
    _topk_select, lambda *given: _fake_choice(given[0], given[4]), _CHOICE, {"logits": 0}, rules=_select_rules
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
    backend: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(indices int32 [T, topk], values fp32 [T, topk], lengths int32 [T]) of the largest in each row's window.

    Exact, and the same bits every time: of equal ones the lowest index wins, -0 counts as 0, NaN as -inf.
    order: "index" (ascending, which attention likes) or "score" (descending). Places that a short window
    cannot fill hold -1 and -inf. offset [T] int32 and index_offset are added to a row's indices.
    """
    choose(order, "order", ORDERS)
    topk = whole(topk, "topk")
    given = (logits, window_begin, window_end, offset)
    return _select.call(*given, topk, index_offset, order, backend)[:3]


def _two_steps(q, k, weights, k_scale, begin, end, offset, topk, index_offset, order):
    """The eager reference by chunks of queries, so that no more than CHUNK_BYTES of logits are held."""
    rows = max(1, CHUNK_BYTES // max(4, 4 * k.shape[0]))
    parts = []
    for first in range(0, max(1, q.shape[0]), rows):
        part = slice(first, first + rows)
        window = begin[part], end[part]
        logits = _reference.logits(q[part], k, weights[part], k_scale, *window)
        added = None if offset is None else offset[part]
        parts.append(_reference.select(logits, topk, *window, added, index_offset, order))
    return parts[0] if len(parts) == 1 else tuple(torch.cat(each) for each in zip(*parts))


def _indexer_topk(
    key,
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    k_scale: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    offset: Tensor | None,
    topk: int,
    index_offset: int,
    order: str,
    free_multiprocessors: int,
    workspace_limit: int,
    causal_limit: int,
    backend: str | None,
):
    inputs = (q, k, weights, k_scale, window_begin, window_end, offset)
    found = _runtime.find(key, backend, _topk_spec, topk, order)
    if found is not None:
        return found.forward(
            *inputs,
            True,
            True,
            True,
            index_offset=index_offset,
            free_multiprocessors=free_multiprocessors,
            workspace_limit=workspace_limit,
            causal_limit=causal_limit,
        )
    _scored_rules(*inputs)
    _native.check("indexer_topk", 0, *inputs, index_offset=index_offset)
    with torch.no_grad():
        return _two_steps(*inputs, topk, index_offset, order)


def _saved_choice(arguments, made):
    q, k, weights, _, _, _, offset, _, index_offset, _, free, _, _, backend = arguments
    return (q, k, weights, made[0], made[2], offset), (index_offset, free, backend)


def _choice_gradients(grad, options, q, k, weights, indices, lengths, offset):
    """Of the values, which are the logits of what was chosen."""
    index_offset, free, backend = options
    if index_offset:
        indices = indices - index_offset
    if offset is not None:
        indices = indices - offset.unsqueeze(1)
    given = (q, k, weights, indices, lengths)
    return backward.in_backward(grad, *given, None, None, free, backend)


_topk = Operation(
    _indexer_topk, lambda *given: _fake_choice(given[2], given[7]), _CHOICE, {"q": 2}, rules=_scored_rules
)
_topk.differentiable(("q", "k", "weights"), 1, _saved_choice, _choice_gradients)


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
    backend: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """indexer_logits and topk_select of them in one: (indices, values, lengths), the same bits.

    The matrix of logits is never there as a whole: the workspace is at most 128 MB (workspace_limit in bytes,
    where that is not 0), whatever T and S are. causal_limit: a promise, where it is not 0, that
    window_end[t] <= t + causal_limit for each query t (1 where query t stands at key t and sees nothing behind
    itself): a long call takes a twentieth less time then. In bf16 the values are differentiable in q, k and weights, by
    smelt.indexer_backward of what was chosen.
    """
    choose(order, "order", ORDERS)
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    if isinstance(q, Tensor) and q.dtype is torch.float8_e4m3fn:  # which has no gradients
        weights = weights.detach() if isinstance(weights, Tensor) else weights
    return _topk.call(
        q,
        k,
        weights,
        k_scale,
        window_begin,
        window_end,
        offset,
        whole(topk, "topk"),
        index_offset,
        order,
        free_multiprocessors,
        workspace_limit,
        causal_limit,
        backend,
    )[:3]
