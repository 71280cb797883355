"""The lightning indexer: windows, logits, exact top-k."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from ._checks import ORDERS, Backend, Order, choose, whole
from ._indexer_gradients import backward, scored_as_kernels_read
from ._library import LibraryOperation
from ._operation import may_cast

CHUNK_BYTES = 128 << 20  # of logits, that indexer_topk holds at a time
_DTYPES = {torch.bfloat16: "bf16", torch.float8_e4m3fn: "fp8"}


# ---- windows ----------------------------------------------------------------------------------------


def _windows_spec(_) -> str:
    return "indexer_windows"


_windows = LibraryOperation(
    "indexer_windows", spec=_windows_spec, key={"cu_seqlens": 0}, reference=_reference.windows
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
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    """Builds, on the device, the window of keys [begin, end) that each query of packed documents may choose from.

    A query at position p of document d sees the document's tokens 0 to p + causal_offset[d], and thus the document's
    first (p + causal_offset[d] + 1) // ratio keys. Windows are clipped to 0..rows; a query that sees no key, or is
    padding, has the window [0, 0).

    Args:
        cu_seqlens: [D + 1], int32: document d has the rows cu_seqlens[d] to cu_seqlens[d + 1] - 1.
        tokens: T, the number of queries.
        rows: S, the number of keys.
        cu_seqlens_padded: [D + 1], int32: document d starts at row cu_seqlens_padded[d] instead; the rows between its
            end and the next document are padding.
        cu_seqlens_keys: [D + 1], int32: where the documents' keys lie, if not where cu_seqlens says.
        causal_offset: [D], int32: tokens ahead of a document's first query, such as a prefix.
        query_indices: [T], int32: the row of each query, in any order, for a shard of a context-parallel batch; None
            means that query t is row t.
        ratio: Tokens that share a key.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        begin and end, each [T] int32.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> cu_seqlens = torch.tensor([0, 3, 5], dtype=torch.int32, device=q.device)  # documents of 3 and 2 tokens
        >>> begin, end = smelt.indexer_windows(cu_seqlens, 5, 5)
        >>> begin.tolist(), end.tolist()
        ([0, 0, 0, 3, 3], [1, 2, 3, 4, 5])
    """
    given = (cu_seqlens, cu_seqlens_padded, cu_seqlens_keys, causal_offset, query_indices)
    return _windows.call(*given, tokens, rows, ratio, backend)


# ---- logits -----------------------------------------------------------------------------------------


_SCORED = {"q": tuple(_DTYPES), "k": tuple(_DTYPES)}  # legal types


def _scored_rules(named) -> None:
    q, k, k_scale = named["q"], named["k"], named["k_scale"]
    if k.dtype is not q.dtype:
        raise TypeError(f"smelt: k must be {q.dtype} as q is, not {k.dtype}")
    if (k_scale is None) == (q.dtype is torch.float8_e4m3fn):
        raise ValueError("smelt: k_scale goes with torch.float8_e4m3fn, and with nothing else")


def _logits_spec(kind, heads, dim) -> str:
    return f"indexer_logits:heads={heads},dim={dim},dtype={_DTYPES[kind]}"


def _topk_spec(kind, heads, dim, topk: int, order: str) -> str:
    return f"indexer_topk:heads={heads},dim={dim},dtype={_DTYPES[kind]},topk={topk},order={order}"


_logits = LibraryOperation(
    "indexer_logits",
    spec=_logits_spec,
    key={"q": 2},
    reference=_reference.logits,
    kinds=_SCORED,
    rules=_scored_rules,
)


def indexer_logits(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    window_begin: Tensor,
    window_end: Tensor,
    *,
    k_scale: Tensor | None = None,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor:
    """Computes the indexer's logits: for query t and key s in its window, the sum over heads of weights * max(0, q . k).

    Args:
        q: [T, H, D], bf16 or torch.float8_e4m3fn.
        k: [S, D], of q's type.
        weights: [T, H], fp32. A softmax scale, and with fp8 the scales of q, are folded into them by the caller.
        window_begin: [T], int32: each query's first key.
        window_end: [T], int32: one past each query's last key.
        k_scale: [S], fp32, with fp8 only: multiplies the logits of each key.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        [T, S] fp32, -inf outside the windows.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = smelt.indexer_logits(iq, ik, weights, begin, end)  # bf16 [T, 64, 128] and [S, 128], fp32 [T, 64]
        >>> indices, values, lengths = smelt.topk_select(logits, 64, window_begin=begin, window_end=end)
    """
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    given = (q, k, weights, k_scale, window_begin, window_end)
    return _logits.call(*given, free_multiprocessors, backend)[0]


def _clean_spec(_) -> str:
    return "indexer_clean"


_clean = LibraryOperation(
    "indexer_clean", spec=_clean_spec, key={"logits": 0}, reference=_reference.clean_, written=("logits",)
)


def clean_logits_(
    logits: Tensor, window_begin: Tensor, window_end: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """Writes -inf to the elements of a matrix outside the windows, in place.

    Args:
        logits: [T, S], fp32; written.
        window_begin: [T], int32: each query's first key.
        window_end: [T], int32: one past each query's last key.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        `logits`.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = torch.randn(begin.shape[0], 9, device=begin.device)
        >>> smelt.clean_logits_(logits, begin, end) is logits
        True
    """
    _clean.call(window_begin, window_end, logits, 0, backend)
    return logits


# ---- top-k ------------------------------------------------------------------------------------------


def _select_spec(_, topk: int, order: str) -> str:
    return f"topk_select:topk={topk},order={order}"


_select = LibraryOperation(
    "topk_select",
    spec=_select_spec,
    key={"logits": 0},
    reference=_reference.select,
    also=("values", "lengths"),
)


def topk_select(
    logits: Tensor,
    topk: int,
    *,
    window_begin: Tensor | None = None,
    window_end: Tensor | None = None,
    offset: Tensor | None = None,
    index_offset: int = 0,
    order: Order = "index",
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Selects the topk largest logits in each row's window: exactly, and with the same bits in every run.

    Of equal logits those with the lowest index are selected; -0 counts as 0, NaN as -inf.

    Args:
        logits: [T, S], fp32.
        topk: How many to select.
        window_begin: [T], int32: each row's first column; None means 0.
        window_end: [T], int32: one past each row's last column; None means S.
        offset: [T], int32: added to a row's indices.
        index_offset: Added to all indices.
        order: "index" (ascending, fastest for attention) or "score" (descending logits).
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        indices [T, topk] int32, values [T, topk] fp32 and lengths [T] int32. Slots beyond a row's length, where the
        window is shorter than topk, have index -1 and value -inf.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = torch.tensor([[1.0, 5.0, 3.0, 4.0]], device=q.device)
        >>> indices, values, lengths = smelt.topk_select(logits, 2)
        >>> indices.tolist(), values.tolist()
        ([[1, 3]], [[5.0, 4.0]])
    """
    choose(order, "order", ORDERS)
    topk = whole(topk, "topk")
    given = (logits, window_begin, window_end, offset)
    return _select.call(*given, index_offset, topk, order, backend)


def _two_steps(q, k, weights, k_scale, window_begin, window_end, offset, topk, index_offset, order):
    """The eager reference by chunks of queries, so that no more than CHUNK_BYTES of logits are held."""
    rows = max(1, CHUNK_BYTES // max(4, 4 * k.shape[0]))
    parts = []
    for first in range(0, max(1, q.shape[0]), rows):
        part = slice(first, first + rows)
        window = window_begin[part], window_end[part]
        logits = _reference.logits(q[part], k, weights[part], k_scale, *window)
        added = None if offset is None else offset[part]
        parts.append(_reference.select(logits, topk, *window, added, index_offset, order))
    return parts[0] if len(parts) == 1 else tuple(torch.cat(each) for each in zip(*parts))


def _saved_choice(arguments, made):
    q, k, weights, _, _, _, offset, index_offset, free, *_, backend = arguments
    return (q, k, weights, made[0], made[2], offset), (index_offset, free, backend)


def _choice_gradients(grad, options, q, k, weights, indices, lengths, offset):
    """Of the values, which are the logits of what was chosen."""
    index_offset, free, backend = options
    if index_offset:
        indices = indices - index_offset
    if offset is not None:
        indices = indices - offset.unsqueeze(1)
    given = (q, k, weights, indices, lengths)
    return backward.in_backward(grad, *given, free, "relu", None, None, backend)


_topk = LibraryOperation(
    "indexer_topk",
    spec=_topk_spec,
    key={"q": 2},
    reference=_two_steps,
    also=("values", "lengths"),
    kinds=_SCORED,
    rules=_scored_rules,
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
    order: Order = "index",
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
    causal_limit: int = 0,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes indexer_logits and selects the topk largest of each window, without storing the matrix of logits.

    The results have the same bits as those of topk_select(indexer_logits(...)). With bf16 the values are differentiable
    in q, k and weights.

    Args:
        q: [T, H, D], bf16 or torch.float8_e4m3fn.
        k: [S, D], of q's type.
        weights: [T, H], fp32. A softmax scale, and with fp8 the scales of q, are folded into them by the caller.
        window_begin: [T], int32: each query's first key.
        window_end: [T], int32: one past each query's last key.
        topk: How many keys to select.
        k_scale: [S], fp32, with fp8 only: multiplies the logits of each key.
        offset: [T], int32: added to a query's indices.
        index_offset: Added to all indices.
        order: "index" (ascending, fastest for attention) or "score" (descending logits).
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        workspace_limit: Bytes of workspace, for any T and S; 0 means 128 MB.
        causal_limit: Unless 0, a promise that window_end[t] <= t + causal_limit for each query t (1 where query t is at
            key t and sees no later key). A long call then takes a twentieth less time.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        indices [T, topk] int32, values [T, topk] fp32 and lengths [T] int32. Slots beyond a query's length, where the
        window is shorter than topk, have index -1 and value -inf.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> indices, logits, lengths = smelt.indexer_topk(iq, ik, weights, begin, end, 64)
        >>> out = smelt.sparse_attention(q, kv, indices, scale, topk_length=lengths)
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
        index_offset,
        free_multiprocessors,
        causal_limit,
        workspace_limit,
        whole(topk, "topk"),
        order,
        backend,
    )
