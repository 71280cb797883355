"""cuDNN Frontend's `cudnn.DSA`: the wrappers of sparse attention, of the indexer, of what trains it, of top-k.

Their contract of attention: q [T, H, D], kv [S, D], topk_idxs [T, topk], lse [T, H] natural and of the keys
alone (FlashMLA's +inf of empty rows is taken, too), attn_sink [H] fp32, -inf for none. Of the indexer and its
training: everything with a batch in front, bf16; indices are rows of their own batch, or with
topk_indices_global of all (b * S_k + row). Results come in a dict that unpacks as a tuple. Beyond it: any number
of heads, masked slots anywhere, empty rows. Of top-k: rows shorter than top_k, which end with -1; indices
come ascending. The dense wrappers take and give matrices of T x S, as theirs do, and make one more, of int32.
Arguments are those of 1.32, in its order (older ones have grad_loss behind loss_coeff: give it by name); what
only tunes their kernels has no effect.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from .._checks import integer
from .._indexer import CHUNK_BYTES, indexer_logits, indexer_topk, indexer_windows, topk_select
from .._indexer_gradients import indexer_backward
from .._indexer_training import indexer_scores, sparse_scores
from .._sparse_attention import sparse_attention as attend
from .._sparse_attention import sparse_attention_backward
from ._conventions import (
    NEVER,
    TupleDict,
    from_flash_mla,
    int32,
    need_dimensions,
    of_heads_that_count,
    to_flash_mla,
)
from ._cudnn_training import sparse_attention, sparse_attention_score_recompute
from ._mla import first_slots, scale_of, values_of


def _on(stream):
    """Work on a stream of the driver's, None: PyTorch's current one."""
    if stream is None:
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(int(stream)))


def _into(given: Tensor | None, made: Tensor) -> Tensor:
    if given is None:
        return made
    if given.shape != made.shape:  # which copy_ would stretch the result over
        raise ValueError(
            f"smelt: a tensor to write into must be {tuple(made.shape)}, not {tuple(given.shape)}"
        )
    return given.copy_(made)


def _of(given: Tensor | None) -> torch.dtype | None:
    """fp32 where a gradient is wanted so: it is not rounded on the way."""
    return torch.float32 if given is not None and given.dtype is torch.float32 else None


__all__ = [
    "compactify_wrapper",
    "compress_topk_cand_buffer_size",
    "compress_topk_cand_buffer_size_thd",
    "dense_attn_score_recompute_wrapper",
    "dense_indexer_backward_wrapper",
    "dense_indexer_score_recompute_wrapper",
    "indexer_backward_wrapper",
    "indexer_forward_top_k_wrapper",
    "indexer_forward_wrapper",
    "indexer_top_k_wrapper",
    "local_to_global_wrapper",
    "sparse_attention",
    "sparse_attention_backward_wrapper",
    "sparse_attention_forward_wrapper",
    "sparse_attention_score_recompute",
    "sparse_attn_score_recompute_wrapper",
    "sparse_indexer_score_recompute_wrapper",
]


@torch.no_grad()
def sparse_attention_forward_wrapper(
    q: Tensor,
    kv: Tensor,
    topk_idxs: Tensor,
    attn_sink: Tensor | None = None,
    topk_length: Tensor | None = None,
    softmax_scale: float | None = None,
    indexer_topk: int = 0,
    stream=None,
) -> TupleDict:
    """{"out", "max_logits", "lse", "lse_indexer"}, the last of each query's first indexer_topk slots alone, and
    None without them: see flash_mla_sparse_fwd."""
    need_dimensions(q=(q, 3), topk_idxs=(topk_idxs, 2))
    if not 0 <= integer(indexer_topk, "indexer_topk") <= topk_idxs.shape[-1]:
        raise ValueError(
            f"smelt: indexer_topk must be 0 to {topk_idxs.shape[-1]}, not {indexer_topk}"
        )
    with _on(stream):
        lists, scale = int32(topk_idxs), scale_of(q, softmax_scale)
        dv = values_of(q)
        out, lse, max_logits = attend(
            q,
            kv,
            lists,
            scale,
            dv=dv,
            sink=attn_sink,
            topk_length=topk_length,
            return_lse=True,
            return_max_logits=True,
            backend="smelt",
        )
        lse, first = to_flash_mla(lse), None
        if indexer_topk:
            first = first_slots(q, kv, lists, scale, dv, topk_length, indexer_topk, lse)
    return TupleDict(out=out, max_logits=max_logits, lse=lse, lse_indexer=first)


@torch.no_grad()
def sparse_attention_backward_wrapper(
    q: Tensor,
    kv: Tensor,
    out: Tensor,
    dout: Tensor,
    lse: Tensor,
    attn_sink: Tensor,
    topk_idxs: Tensor,
    softmax_scale: float | None = None,
    topk_length: Tensor | None = None,
    dq: Tensor | None = None,
    dkv: Tensor | None = None,
    block_tile: int = 64,
    deterministic: bool = False,
    stream=None,
    workspace: Tensor | None = None,
    q_cluster_mode: str = "off",
) -> TupleDict:
    """{"dq", "dkv", "d_sink"}; dq and dkv are written into the tensors that are given. No workspace is needed."""
    with _on(stream):
        grads = sparse_attention_backward(
            dout,
            q,
            kv,
            int32(topk_idxs),
            out,
            from_flash_mla(lse),
            scale_of(q, softmax_scale),
            topk_length=topk_length,
            sink=attn_sink,
            deterministic=deterministic or None,
            dkv_dtype=_of(dkv),
        )
        return TupleDict(dq=_into(dq, grads[0]), dkv=_into(dkv, grads[1]), d_sink=grads[2])


@torch.no_grad()
def compactify_wrapper(indices: Tensor, stream=None) -> TupleDict:
    """{"indices", "topk_length"} of indices [N, topk] or [B, S_q, topk]: [B * S_q, topk], each row's valid slots first,
    in their order, then -1, and [B * S_q], how many they are. smelt needs neither."""
    need_dimensions(indices=(indices, 2))
    with _on(stream):
        rows = int32(indices).flatten(0, -2)
        valid = rows >= 0
        place = torch.where(
            valid, valid.cumsum(-1) - 1, rows.shape[1]
        )  # the last: of what is masked
        compact = rows.new_full((rows.shape[0], rows.shape[1] + 1), -1).scatter_(1, place, rows)
        return TupleDict(indices=compact[:, :-1].contiguous(), topk_length=int32(valid.sum(-1)))


@torch.no_grad()
def local_to_global_wrapper(
    local_indices: Tensor,
    seqlen_k: int,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    stream=None,
) -> TupleDict:
    """{"indices"}: rows of all batches [B, S_q, topk], or of all packed documents [T, topk], for rows of each's own;
    below 0 stays -1."""
    with _on(stream):
        local = int32(local_indices)
        if cu_seqlens_q is None:
            batch = torch.arange(local.shape[0], device=local.device, dtype=torch.int32)
            first = (batch * seqlen_k)[:, None, None]
        else:
            query = torch.arange(local.shape[0], device=local.device, dtype=cu_seqlens_q.dtype)
            document = torch.bucketize(query, cu_seqlens_q[1:], right=True)
            document = document.clamp(max=cu_seqlens_k.shape[0] - 2)
            first = int32(cu_seqlens_k)[document][:, None]
        return TupleDict(indices=torch.where(local >= 0, local + first, -1))


@torch.no_grad()
def indexer_top_k_wrapper(
    input_values: Tensor,
    seq_lens: Tensor,
    top_k: int,
    next_n: int = 1,
    return_val: bool = True,
    num_copy_bits: int = 256,
    stream=None,
    tie_break: int = 0,
    deterministic: bool = False,
) -> TupleDict:
    """{"indices", "values"} of the rows of input_values [N, S], of which groups of next_n share an entry of
    seq_lens: the last row of a group has that length, those before it one less each. Of equal values the lowest
    index wins, in every run."""
    if tie_break == 2:
        raise NotImplementedError("smelt: indexer_top_k_wrapper with tie_break=2 is not there")
    if input_values.shape[0] != seq_lens.numel() * next_n:
        raise ValueError(
            f"smelt: {input_values.shape[0]} rows are not {seq_lens.numel()} sequences of {next_n}"
        )
    with _on(stream):
        behind = torch.arange(1 - next_n, 1, device=seq_lens.device, dtype=torch.int32)
        end = (int32(seq_lens).reshape(-1, 1) + behind).flatten()
        indices, values, _ = topk_select(
            input_values.float(),
            top_k,
            window_begin=torch.zeros_like(end),
            window_end=end,
            backend="smelt",
        )
    return TupleDict(indices=indices, values=values.to(input_values.dtype) if return_val else None)


# ---- the indexer, and what trains it ------------------------------------------------------------


def _packed(*tensors: Tensor | None) -> list[Tensor | None]:
    """Batches and tokens as one dimension."""
    return [None if tensor is None else tensor.flatten(0, 1) for tensor in tensors]


def _rows(keys: Tensor) -> Tensor:
    """[B * S, D] of [B, S, D] or [B, S, 1, D]."""
    return (keys.squeeze(2) if keys.dim() == 4 else keys).flatten(0, 1)


def _lists(topk_indices: Tensor, rows: int, are_global: bool) -> Tensor:
    """[B * T, topk] int32 that name rows of all batches; masked slots stay below 0."""
    need_dimensions(topk_indices=(topk_indices, 3))
    lists = int32(topk_indices)
    if not are_global:
        first = torch.arange(lists.shape[0], device=lists.device, dtype=torch.int32) * rows
        mine = (lists >= 0) & (lists < rows)
        lists = torch.where(mine, lists + first[:, None, None], -1)
    return lists.flatten(0, 1)


def _ends(tokens: int, rows: int, offset, ratio: int, device) -> Tensor:
    """Of each of a document's queries, the number of keys that it sees."""
    if ratio < 1:
        raise ValueError(f"smelt: ratio must be positive, not {ratio}")
    end = torch.arange(1, tokens + 1, device=device, dtype=torch.int32)
    return ((end + offset) // ratio).clamp(0, rows)


def _documents(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets) -> tuple:
    """How wide a matrix of queries by keys is, and of each document (or batch) its queries, its keys and the offset
    of its first query. The host waits for cu_seqlens."""
    need_dimensions(
        q=(q, 4 if cu_seqlens_q is None else 3), k=(k, 3 if cu_seqlens_q is None else 2)
    )
    if cu_seqlens_q is None:
        width, parts = k.shape[1], [(batch, batch) for batch in range(q.shape[0])]
    else:
        queries, keys = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
        width = max_seqlen_k or max(b - a for a, b in zip(keys, keys[1:]))
        parts = [
            (slice(*queries[i : i + 2]), slice(*keys[i : i + 2])) for i in range(len(queries) - 1)
        ]
    offsets = [0] * len(parts) if q_causal_offsets is None else int32(q_causal_offsets)
    return width, [(*part, offset) for part, offset in zip(parts, offsets)]


def _keys(k: Tensor) -> Tensor:
    """A document's keys [S, D] of [S, 1, D] or [S, D]."""
    return k.squeeze(1) if k.dim() == 3 else k


def _need_bf16(name: str, precision: str, *scales: Tensor | None) -> None:
    if precision != "bf16" or any(scale is not None for scale in scales):
        raise NotImplementedError(f"smelt: {name} takes bf16 alone, without scales")


@torch.no_grad()
def indexer_forward_wrapper(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    ratio: int = 4,
    qhead_per_kv_head: int | None = None,
    m_block_size: int = 128,
    n_block_size: int = 128,
    q_stage: int = 2,
    kv_stage: int = 4,
    sm_scale: float = 1.0,
    out: Tensor | None = None,
    stream=None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_causal_offsets: Tensor | None = None,
    precision: str = "bf16",
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    cu_seqlens_q_scale_padded: Tensor | None = None,
    cu_seqlens_k_scale_padded: Tensor | None = None,
    sf_vec_size: int = 32,
    return_lse: bool = False,
    lse_out: Tensor | None = None,
) -> TupleDict:
    """{"scores"}: [B, S_q, S_k] fp32, -inf from key (offset + query + 1) // ratio on; or of packed documents
    [T, max_seqlen_k], columns counted from each document's first key (the host waits for cu_seqlens). With
    return_lse also "lse", the log-sum-exp of each query's."""
    _need_bf16("indexer_forward_wrapper", precision, q_scale, k_scale)
    with _on(stream):
        weights = w.float() * sm_scale
        width, parts = _documents(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets)
        shape = (*q.shape[:-2], width)
        scores = q.new_empty(shape, dtype=torch.float32) if out is None else out
        if cu_seqlens_q is not None:
            scores.fill_(float("-inf"))
        for mine, theirs, offset in parts:
            keys = _keys(k[theirs])
            end = _ends(q[mine].shape[0], keys.shape[0], offset, ratio, q.device)
            scores[mine][..., : keys.shape[0]] = indexer_logits(
                q[mine], keys, weights[mine], torch.zeros_like(end), end, backend="smelt"
            )
        if return_lse or lse_out is not None:
            return TupleDict(scores=scores, lse=_into(lse_out, scores.logsumexp(-1)))
    return TupleDict(scores=scores)


# ---- the indexer's choice without the matrix of its logits ------------------------------------------


def _batches(q, k, weights, q_causal_offsets, ratio, everywhere):
    """Of each batch (of none: once, of nothing) its queries, keys, weights, windows and what is added to rows of its
    own."""
    need_dimensions(q=(q, 4), k=(k, 3), w=(weights, 3))
    rows = k.shape[1]
    for batch in range(max(1, q.shape[0])):
        mine = slice(batch, batch + 1)
        some, keys, given = q[mine].flatten(0, 1), _rows(k[mine]), weights[mine].flatten(0, 1)
        offset = 0 if q_causal_offsets is None else int32(q_causal_offsets)[mine]
        end = _ends(some.shape[0], rows, offset, ratio, q.device)
        added = {"index_offset": batch * rows if everywhere else 0}
        yield some, keys, given, (torch.zeros_like(end), end), added


def _packed_documents(
    q, k, weights, cu_seqlens_q, cu_seqlens_k, q_causal_offsets, ratio, everywhere
):
    """The same of all documents at once: the host waits for nothing."""
    need_dimensions(q=(q, 3), k=(k, 2), w=(weights, 2))
    window = indexer_windows(
        int32(cu_seqlens_q),
        q.shape[0],
        k.shape[0],
        cu_seqlens_keys=int32(cu_seqlens_k),
        causal_offset=None if q_causal_offsets is None else int32(q_causal_offsets),
        ratio=ratio,
        backend="smelt",
    )
    # A window begins with its document.
    yield q, _keys(k), weights, window, {} if everywhere else {"offset": -window[0]}


def _choice(q, keys, weights, window, added, top_k, want_lse):
    """Indices, their logits and, where wanted, the log-sum-exp of all that a query sees: then some queries' logits are
    held at a time."""
    if not want_lse:
        return indexer_topk(q, keys, weights, *window, top_k, **added, backend="smelt")[:2]
    rows = max(1, CHUNK_BYTES // max(4, 4 * keys.shape[0]))
    made = []
    for first in range(0, max(1, q.shape[0]), rows):
        some = slice(first, first + rows)
        begin, end = (each[some] for each in window)
        logits = indexer_logits(q[some], keys, weights[some], begin, end, backend="smelt")
        ahead = {name: x[some] if isinstance(x, Tensor) else x for name, x in added.items()}
        options = {"window_begin": begin, "window_end": end, **ahead}
        indices, values, _ = topk_select(logits, top_k, **options, backend="smelt")
        made.append((indices, values, logits.logsumexp(-1)))
    return [torch.cat(parts) for parts in zip(*made)]


def _written(name: str, given: Tensor | None, made: Tensor) -> Tensor:
    if given is not None and given.dtype is not made.dtype:
        raise ValueError(f"smelt: {name} must be {made.dtype}, not {given.dtype}")
    return _into(given, made)


@torch.no_grad()
def indexer_forward_top_k_wrapper(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    top_k: int,
    ratio: int = 4,
    qhead_per_kv_head: int | None = None,
    m_block_size: int = 128,
    n_block_size: int = 128,
    q_stage: int = 2,
    kv_stage: int = 4,
    sm_scale: float = 1.0,
    stream=None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_causal_offsets: Tensor | None = None,
    precision: str = "bf16",
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    cu_seqlens_q_scale_padded: Tensor | None = None,
    cu_seqlens_k_scale_padded: Tensor | None = None,
    sf_vec_size: int = 32,
    return_lse: bool = False,
    lse_out: Tensor | None = None,
    return_softmax: bool | None = None,
    softmax_out: Tensor | None = None,
    microbatch_rows: int = -1,
    topk_indices_global: bool = True,
    cand_buffer: Tensor | None = None,
    out_indices: Tensor | None = None,
    out_logits: Tensor | None = None,
    cand_batch_offsets: Tensor | None = None,
    deterministic: bool = False,
) -> TupleDict:
    """{"indices", "logits", "softmax"} of the top_k keys that indexer_forward_wrapper scores highest, [B, S_q, top_k]
    or, of packed documents, [T, top_k]: int32 rows of all batches or documents, or without topk_indices_global of
    each's own, -1 in the slots that a query cannot fill; fp32, -inf there; the softmax of these, 0 there, left out with
    return_softmax=False. With return_lse also "lse" [B, S_q] or [T], the log-sum-exp of all that a query sees, -inf
    where that is nothing.

    Indices ascend; of equal logits the lowest index wins, in every run. The matrix of logits is never there as a whole,
    the caller's scratch is not needed, and the host does not wait for cu_seqlens."""
    _need_bf16("indexer_forward_top_k_wrapper", precision, q_scale, k_scale)
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise ValueError("smelt: cu_seqlens_q and cu_seqlens_k go together")
    want_lse = return_lse or lse_out is not None
    with _on(stream):
        given, seen = (q, k, w.float() * sm_scale), (q_causal_offsets, ratio, topk_indices_global)
        if cu_seqlens_q is None:
            parts = _batches(*given, *seen)
        else:
            parts = _packed_documents(*given, cu_seqlens_q, cu_seqlens_k, *seen)
        made = zip(*(_choice(*part, top_k, want_lse) for part in parts))
        lead = q.shape[:-2]
        made = [
            (each[0] if len(each) == 1 else torch.cat(each)).unflatten(0, lead) for each in made
        ]
        result = TupleDict(
            indices=_written("out_indices", out_indices, made[0]),
            logits=_written("out_logits", out_logits, made[1]),
        )
        if return_softmax is not False or softmax_out is not None:
            chosen = made[1]
            softmax = chosen.softmax(-1).masked_fill_(chosen == NEVER, 0.0)
            result["softmax"] = _written("softmax_out", softmax_out, softmax)
        if want_lse:
            result["lse"] = _written("lse_out", lse_out, made[2])
    return result


def compress_topk_cand_buffer_size(
    bs: int,
    seqlen_q: int,
    seqlen_k: int,
    ratio: int,
    microbatch_rows: int = -1,
    return_lse: bool = False,
    q_causal_offsets: Tensor | None = None,
    precision: str = "bf16",
) -> int:
    """How many elements cand_buffer must have: none."""
    _need_bf16("compress_topk_cand_buffer_size", precision)
    return 0


def compress_topk_cand_buffer_size_thd(
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    ratio: int,
    q_causal_offsets: Tensor | None = None,
) -> tuple[Tensor, int]:
    """cand_batch_offsets, int64 [documents + 1], all 0, and how many elements cand_buffer must have: none."""
    return torch.zeros_like(cu_seqlens_q, dtype=torch.int64), 0


@torch.no_grad()
def sparse_indexer_score_recompute_wrapper(
    q_indexer: Tensor,
    k_indexer: Tensor,
    weights: Tensor,
    topk_indices: Tensor,
    qhead_per_kv_head: int | None = None,
    topk_length: Tensor | None = None,
    topk_indices_global: bool = False,
    out: Tensor | None = None,
    stream=None,
) -> TupleDict:
    """{"predict"}: the softmax of the indexer's logits over each query's slots, [B, S_q, topk] fp32."""
    need_dimensions(q_indexer=(q_indexer, 4), k_indexer=(k_indexer, 3), weights=(weights, 3))
    with _on(stream):
        q, given, length = _packed(q_indexer, weights.float(), topk_length)
        lists = _lists(topk_indices, k_indexer.shape[1], topk_indices_global)
        length = None if length is None else int32(length)
        keys = _rows(k_indexer)
        logits = indexer_scores(q, keys, given, lists, topk_length=length, backend="smelt")
        predict = logits.softmax(-1).nan_to_num(0.0)  # of a row without a slot
        return TupleDict(predict=_into(out, predict.view(topk_indices.shape)))


@torch.no_grad()
def sparse_attn_score_recompute_wrapper(
    q_attn: Tensor,
    k_attn: Tensor,
    lse: Tensor,
    topk_indices: Tensor,
    softmax_scale: float,
    qhead_per_kv_head: int | None = None,
    topk_length: Tensor | None = None,
    topk_indices_global: bool = False,
    out: Tensor | None = None,
    stream=None,
) -> TupleDict:
    """{"target"}: attention's probabilities at each query's slots, summed over heads and divided by their sum,
    [B, S_q, topk] fp32."""
    need_dimensions(q_attn=(q_attn, 4), k_attn=(k_attn, 3), lse=(lse, 3))
    with _on(stream):
        q, sums, length = _packed(q_attn, of_heads_that_count(lse), topk_length)
        target = sparse_scores(
            q,
            _rows(k_attn),
            _lists(topk_indices, k_attn.shape[1], topk_indices_global),
            sums,
            softmax_scale,
            topk_length=None if length is None else int32(length),
            backend="smelt",
        )
        target = target / target.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        return TupleDict(target=_into(out, target.view(topk_indices.shape)))


def _share(grad_loss: Tensor | float, factor: float, queries: int) -> Tensor | float:
    """What a query's divergence is multiplied by. grad_loss stays on the device, for graphs."""
    if isinstance(grad_loss, Tensor):
        grad_loss = grad_loss.float().reshape(())
    return grad_loss * (factor / max(1, queries))


@torch.no_grad()
def indexer_backward_wrapper(
    index_q: Tensor,
    weights: Tensor,
    index_k: Tensor,
    attn_score: Tensor,
    index_score: Tensor,
    topk_indices: Tensor,
    grad_loss: Tensor | float = 1.0,
    sm_scale: float = 1.0,
    loss_coeff: float = 1.0,
    block_I: int = 128,
    topk_indices_global: bool = False,
    d_index_q: Tensor | None = None,
    d_weights: Tensor | None = None,
    d_index_k: Tensor | None = None,
    stream=None,
    *,
    backend: str = "default",
    workspace: Tensor | None = None,
    deterministic: bool = False,
    deterministic_dk_planes: int | None = None,
) -> TupleDict:
    """{"d_index_q", "d_weights", "d_index_k"} of loss_coeff times the mean over queries of the divergence of
    index_score, the softmax of sm_scale times the logits, from attn_score. attn_score is left as it is."""
    need_dimensions(index_q=(index_q, 4), index_k=(index_k, 3), weights=(weights, 3))
    need_dimensions(attn_score=(attn_score, 3), index_score=(index_score, 3))
    with _on(stream):
        whole = attn_score.sum(-1, keepdim=True)
        share = _share(grad_loss, loss_coeff * sm_scale, index_score[..., 0].numel())
        grad = (index_score * whole - attn_score) * share
        q, given, grad = _packed(index_q, weights.float(), grad)
        lists = _lists(topk_indices, index_k.shape[1], topk_indices_global)
        dq, dk, dw = indexer_backward(
            grad,
            q,
            _rows(index_k),
            given,
            lists,
            deterministic=deterministic or None,
            dk_dtype=_of(d_index_k),
            backend="smelt",
        )
        dw = dw.view(weights.shape)
        return TupleDict(
            d_index_q=_into(d_index_q, dq.view(index_q.shape)),
            d_weights=dw.to(weights.dtype) if d_weights is None else d_weights.copy_(dw),
            d_index_k=_into(d_index_k, dk.view(index_k.shape)),
        )


# ---- every key instead of lists: what warms the indexer up ------------------------------------------


def _seen(tokens: int, keys: Tensor, offset, ratio: int) -> Tensor:
    """Every key that a query of a document sees as its list, [T, S] int32."""
    key = torch.arange(keys.shape[0], device=keys.device, dtype=torch.int32)
    end = _ends(tokens, keys.shape[0], offset, ratio, keys.device)
    return key.expand(tokens, -1).masked_fill(key >= end[:, None], -1)


@torch.no_grad()
def dense_attn_score_recompute_wrapper(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    softmax_scale: float,
    qhead_per_kv_head: int | None = None,
    out: Tensor | None = None,
    denom_out: Tensor | None = None,
    ratio: int = 1,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_causal_offsets: Tensor | None = None,
    precision: str = "bf16",
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    cu_seqlens_q_scale_padded: Tensor | None = None,
    cu_seqlens_k_scale_padded: Tensor | None = None,
    sf_vec_size: int = 32,
    stream=None,
) -> TupleDict:
    """{"out", "denom"}: attention's probabilities summed over heads, [B, S_q, S_k] fp32, 0 where a query does not see
    a key, and each query's sum of them; of packed documents [T, max_seqlen_k] and [T]."""
    _need_bf16("dense_attn_score_recompute_wrapper", precision, q_scale, k_scale)
    with _on(stream):
        sums = of_heads_that_count(lse)
        width, parts = _documents(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets)
        shape = (*q.shape[:-2], width)
        out = q.new_empty(shape, dtype=torch.float32) if out is None else out
        out.zero_()
        for mine, theirs, offset in parts:
            keys = _keys(k[theirs])
            lists = _seen(q[mine].shape[0], keys, offset, ratio)
            out[mine][..., : keys.shape[0]] = sparse_scores(
                q[mine], keys, lists, sums[mine], softmax_scale, backend="smelt"
            )
        return TupleDict(out=out, denom=_into(denom_out, out.sum(-1)))


@torch.no_grad()
def dense_indexer_score_recompute_wrapper(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    qhead_per_kv_head: int | None = None,
    out: Tensor | None = None,
    denom_out: Tensor | None = None,
    sm_scale: float = 1.0,
    ratio: int = 1,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_causal_offsets: Tensor | None = None,
    precision: str = "bf16",
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    cu_seqlens_q_scale_padded: Tensor | None = None,
    cu_seqlens_k_scale_padded: Tensor | None = None,
    sf_vec_size: int = 32,
    stream=None,
) -> TupleDict:
    """{"out", "denom"}: indexer_forward_wrapper's scores and the log-sum-exp of each query's."""
    _need_bf16("dense_indexer_score_recompute_wrapper", precision, q_scale, k_scale)
    scores, lse = indexer_forward_wrapper(
        q,
        k,
        weights,
        ratio,
        sm_scale=sm_scale,
        out=out,
        stream=stream,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_k=max_seqlen_k,
        q_causal_offsets=q_causal_offsets,
        return_lse=True,
        lse_out=denom_out,
    )
    return TupleDict(out=scores, denom=lse)


@torch.no_grad()
def dense_indexer_backward_wrapper(
    index_q: Tensor,
    weights: Tensor,
    index_k: Tensor,
    attn_score: Tensor,
    attn_l1norm: Tensor,
    index_score: Tensor,
    index_lse: Tensor,
    grad_loss: Tensor | float = 1.0,
    sm_scale: float = 1.0,
    loss_coeff: float = 1.0,
    block_I: int = 128,
    ratio: int = 1,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_causal_offsets: Tensor | None = None,
    d_index_q: Tensor | None = None,
    d_weights: Tensor | None = None,
    d_index_k: Tensor | None = None,
    stream=None,
    workspace: Tensor | None = None,
    *,
    deterministic: bool = False,
) -> TupleDict:
    """{"d_index_q", "d_weights", "d_index_k"} of loss_coeff times the mean over queries of the divergence of
    exp(index_score - index_lse) from attn_score / attn_l1norm, over every key that a query sees. attn_score and
    index_score are left as they are."""
    with _on(stream):
        share = _share(grad_loss, loss_coeff * sm_scale, index_lse.numel())
        made = [
            _into(given, torch.zeros_like(like))
            for given, like in ((d_index_q, index_q), (d_weights, weights), (d_index_k, index_k))
        ]
        _, parts = _documents(
            index_q, index_k, cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets
        )
        for mine, theirs, offset in parts:
            keys = _keys(index_k[theirs])
            lists = _seen(index_q[mine].shape[0], keys, offset, ratio)
            norm = attn_l1norm[mine].unsqueeze(-1)
            grad = (index_score[mine] - index_lse[mine].unsqueeze(-1)).exp_()
            grad = torch.where(norm > 0, grad - attn_score[mine] / norm, 0.0).mul_(share)
            dq, dk, dw = indexer_backward(
                grad[:, : keys.shape[0]].masked_fill_(lists < 0, 0.0),
                index_q[mine],
                keys,
                weights[mine].float(),
                lists,
                deterministic=deterministic or None,
                dk_dtype=_of(d_index_k),
                backend="smelt",
            )
            made[0][mine], made[1][mine] = dq, dw
            made[2][theirs] = dk.view(index_k[theirs].shape)
        return TupleDict(d_index_q=made[0], d_weights=made[1], d_index_k=made[2])
