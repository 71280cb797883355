"""cuDNN Frontend's `cudnn.DSA`: the wrappers of sparse attention, of the indexer and its training, and of top-k.

Their contract for attention: q [T, H, D], kv [S, D], topk_idxs [T, topk], lse [T, H] natural and without the sink
(FlashMLA's +inf for empty rows is accepted), attn_sink [H] fp32, -inf for none. For the indexer and its training: all
tensors have a batch dimension and are bf16 (for indexer_forward_wrapper also e4m3); indices count rows of the query's
batch, or with topk_indices_global of all batches (b * S_k + row). Results are dicts that unpack as tuples. In addition:
any number of heads, masked slots anywhere, empty rows; for top-k, rows shorter than top_k, which end with -1; indices
ascend. The dense wrappers take and return T x S matrices, as the originals do, and need at most 16 MB for each temporary one.
Arguments are those of version 1.32, in its order (in older versions grad_loss follows loss_coeff: pass it by name).
Arguments that only tune the original kernels have no effect.
"""

from __future__ import annotations

import types

import torch
from torch import Tensor

from .._checks import choose, integer, not_negative, shapes, whole
from .._indexer import CHUNK_BYTES, indexer_logits, indexer_windows
from .._indexer_gradients import indexer_backward
from .._indexer_training import indexer_scores, sparse_scores
from .._selection import indexer_topk, topk_select
from .._sparse_attention import sparse_attention as attend
from .._sparse_attention import sparse_attention_backward
from ._conventions import (
    NEVER, TupleDict, bounds, check_outputs, check_head_count, fp32_for, from_flash_mla, indexer_weights, into,
    need_dimensions, lse_of_valid_heads, gradient_type, slots, to_flash_mla, without_heads,
)  # fmt: skip
from ._cudnn_common import (
    CLIPPED_PROBABILITY, batch_starts, causal_offsets, ends, need_bf16, normalised, divergence_gradient, on_stream,
    packed, packed_lists, are_packed, scaled, share, shifted,
)  # fmt: skip
from ._cudnn_dense import (
    dense_attn_score_recompute_wrapper, dense_indexer_backward_wrapper, dense_indexer_score_recompute_wrapper,
    indexer_forward_wrapper,
)  # fmt: skip
from ._cudnn_hca import aligned_hca_backward_wrapper
from ._cudnn_training import sparse_attention, sparse_attention_score_recompute
from ._mla import first_slots, scale_of

__all__ = [
    "aligned_hca_backward_wrapper", "compactify_wrapper", "compress_topk_cand_buffer_size",
    "compress_topk_cand_buffer_size_thd", "dense_attn_score_recompute_wrapper", "dense_indexer_backward_wrapper",
    "dense_indexer_score_recompute_wrapper", "indexer_backward_wrapper", "indexer_forward_top_k_wrapper",
    "indexer_forward_wrapper", "indexer_top_k_wrapper", "local_to_global_wrapper", "sparse_attention",
    "sparse_attention_backward_wrapper", "sparse_attention_forward_wrapper", "sparse_attention_score_recompute",
    "sparse_attn_score_recompute_wrapper", "sparse_indexer_score_recompute_wrapper",
]  # fmt: skip


@torch.no_grad()
def sparse_attention_forward_wrapper(
    q: Tensor, kv: Tensor, topk_idxs: Tensor, attn_sink: Tensor | None = None, topk_length: Tensor | None = None,
    softmax_scale: float | None = None, indexer_topk: int = 0, stream=None,
) -> TupleDict:  # fmt: skip
    """{"out", "max_logits", "lse", "lse_indexer"}, the last one over each query's first indexer_topk slots, or None for
    0: see flash_mla_sparse_fwd."""
    need_dimensions(q=(q, 3), kv=(kv, 2), topk_idxs=(topk_idxs, 2))
    if not 0 <= integer(indexer_topk, "indexer_topk") <= topk_idxs.shape[-1]:
        raise ValueError(f"smelt: indexer_topk must be 0 to {topk_idxs.shape[-1]}, not {indexer_topk}")
    with on_stream(stream):
        lists, scale = slots("topk_idxs", topk_idxs), scale_of(q, softmax_scale)
        out, lse, max_logits = attend(
            q, kv, lists, scale, sink=attn_sink, topk_length=topk_length, return_lse=True, return_max_logits=True,
            backend="smelt",
        )  # fmt: skip
        lse, first = to_flash_mla(lse), None
        if indexer_topk:
            first = first_slots(q, kv, lists, scale, None, topk_length, indexer_topk, lse)
    return TupleDict(out=out, max_logits=max_logits, lse=lse, lse_indexer=first)


@torch.no_grad()
def sparse_attention_backward_wrapper(
    q: Tensor, kv: Tensor, out: Tensor, dout: Tensor, lse: Tensor, attn_sink: Tensor, topk_idxs: Tensor,
    softmax_scale: float | None = None, topk_length: Tensor | None = None, dq: Tensor | None = None,
    dkv: Tensor | None = None, block_tile: int = 64, deterministic: bool = False, stream=None,
    workspace: Tensor | None = None, q_cluster_mode: str = "off",
) -> TupleDict:  # fmt: skip
    """{"dq", "dkv", "d_sink"}; dq and dkv are written to the given tensors. No workspace is needed."""
    choose(q_cluster_mode, "q_cluster_mode", ("off", "adaptive_pair"))
    need_dimensions(q=(q, 3), kv=(kv, 2), topk_idxs=(topk_idxs, 2), lse=(lse, 2))
    check_outputs(q.device, dq=(dq, q.shape, q.dtype), dkv=(dkv, kv.shape, kv.dtype, torch.float32))
    with on_stream(stream):
        grads = sparse_attention_backward(
            dout, q, kv, slots("topk_idxs", topk_idxs), out, from_flash_mla(lse), scale_of(q, softmax_scale),
            topk_length=topk_length, sink=attn_sink, deterministic=deterministic or None, dkv_dtype=fp32_for(dkv),
        )  # fmt: skip
        return TupleDict(dq=into(dq, grads[0]), dkv=into(dkv, grads[1]), d_sink=grads[2])


@torch.no_grad()
def compactify_wrapper(indices: Tensor, stream=None) -> TupleDict:
    """{"indices", "topk_length"} of indices [N, topk] or [B, S_q, topk]: [B * S_q, topk], each row's valid slots in
    their order, then -1; and [B * S_q], their number. smelt needs neither."""
    need_dimensions(indices=(indices, 2, 3))
    with on_stream(stream):
        rows = slots("indices", indices).flatten(0, -2)
        valid = rows >= 0
        place = torch.where(valid, valid.cumsum(-1) - 1, rows.shape[1])  # the last: of what is masked
        compact = rows.new_full((rows.shape[0], rows.shape[1] + 1), -1).scatter_(1, place, rows)
        return TupleDict(indices=compact[:, :-1].contiguous(), topk_length=valid.sum(-1, dtype=torch.int32))


@torch.no_grad()
def local_to_global_wrapper(
    local_indices: Tensor,
    seqlen_k: int,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    stream=None,
) -> TupleDict:
    """{"indices"}: converts rows of a batch [B, S_q, topk], or of a packed document [T, topk], to rows of all. Negative
    rows and rows from seqlen_k (for packed documents, the document's number of keys) on become -1."""
    with on_stream(stream):
        is_packed = are_packed(cu_seqlens_q, cu_seqlens_k)
        need_dimensions(local_indices=(local_indices, 2 if is_packed else 3))
        local = slots("local_indices", local_indices)
        if not is_packed:
            rows = not_negative(seqlen_k, "seqlen_k")
            return TupleDict(indices=shifted(local, batch_starts(local, rows), rows))
        query = torch.arange(local.shape[0], device=local.device, dtype=torch.int32)
        document = torch.bucketize(query, bounds("cu_seqlens_q", cu_seqlens_q)[1:], right=True)
        document = document.clamp(max=cu_seqlens_k.shape[0] - 2)
        first = bounds("cu_seqlens_k", cu_seqlens_k).long()
        rows = first.diff()[document][:, None]
        return TupleDict(indices=shifted(local, first[document][:, None], rows))


@torch.no_grad()
def indexer_top_k_wrapper(
    input_values: Tensor, seq_lens: Tensor, top_k: int, next_n: int = 1, return_val: bool = True,
    num_copy_bits: int = 256, stream=None, tie_break: int = 0, deterministic: bool = False,
) -> TupleDict:  # fmt: skip
    """{"indices", "values"} of the rows of input_values [N, S], of which groups of next_n share an entry of
    seq_lens: the last row of a group has that length, those before it one less each. Ties go to the lowest index, in
    every run."""
    need_dimensions(input_values=(input_values, 2), seq_lens=(seq_lens, 1))
    choose(input_values.dtype, "input_values' type", (torch.float32, torch.bfloat16, torch.float16))
    choose(tie_break, "tie_break", (0, 1, 2))
    whole(next_n, "next_n")
    if tie_break == 2:
        raise NotImplementedError("smelt: indexer_top_k_wrapper with tie_break=2 is not supported")
    if input_values.shape[0] != seq_lens.numel() * next_n:
        raise ValueError(f"smelt: {input_values.shape[0]} rows are not {seq_lens.numel()} sequences of {next_n}")
    with on_stream(stream):
        behind = torch.arange(1 - next_n, 1, device=seq_lens.device)
        lengths = bounds("seq_lens", seq_lens).unsqueeze(-1)
        end = bounds("seq_lens", (lengths + behind).flatten())
        indices, values, _ = topk_select(
            input_values.float(), top_k, window_begin=torch.zeros_like(end), window_end=end, backend="smelt"
        )
    return TupleDict(indices=indices, values=values.to(input_values.dtype) if return_val else None)


# ---- the indexer's top-k without a matrix of its logits --------------------------------------------


def _batches(q, k, weights, offsets, ratio, everywhere):
    """Yields each batch's queries, keys, weights and windows, and the offset of its rows (once, empty, for 0
    batches)."""
    rows = k.shape[1]
    for batch in range(max(1, q.shape[0])):
        mine = slice(batch, batch + 1)
        some, keys, given = (each[mine].flatten(0, 1) for each in (q, k, weights))
        end = ends(some.shape[0], rows, 0 if offsets is None else offsets[mine], ratio, q.device)
        added = {"index_offset": batch * rows if everywhere else 0}
        yield some, keys, given, (torch.zeros_like(end), end), added


def _packed_documents(q, k, weights, cu_seqlens_q, cu_seqlens_k, offsets, ratio, everywhere):
    """The same for all documents at once, without waiting for the device."""
    window = indexer_windows(
        bounds("cu_seqlens_q", cu_seqlens_q), q.shape[0], k.shape[0],
        cu_seqlens_keys=bounds("cu_seqlens_k", cu_seqlens_k), causal_offset=offsets, ratio=ratio, backend="smelt",
    )  # fmt: skip
    # A window begins at its document's first row.
    yield q, k, weights, window, {} if everywhere else {"offset": -window[0]}


def _select_chunked(q, keys, weights, window, added, top_k, want_lse):
    """Indices, their logits and, with want_lse, the log-sum-exp of all logits in a query's window; in that case logits
    are computed for a chunk of queries at a time."""
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


@torch.no_grad()
def indexer_forward_top_k_wrapper(
    q: Tensor, k: Tensor, w: Tensor, top_k: int, ratio: int = 4, qhead_per_kv_head: int | None = None,
    m_block_size: int = 128, n_block_size: int = 128, q_stage: int = 2, kv_stage: int = 4, sm_scale: float = 1.0,
    stream=None, cu_seqlens_q: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, q_causal_offsets: Tensor | None = None,
    precision: str = "bf16", q_scale: Tensor | None = None, k_scale: Tensor | None = None,
    cu_seqlens_q_scale_padded: Tensor | None = None, cu_seqlens_k_scale_padded: Tensor | None = None,
    sf_vec_size: int = 32, return_lse: bool = False, lse_out: Tensor | None = None, return_softmax: bool | None = None,
    softmax_out: Tensor | None = None, microbatch_rows: int = -1, topk_indices_global: bool = True,
    cand_buffer: Tensor | None = None, out_indices: Tensor | None = None, out_logits: Tensor | None = None,
    cand_batch_offsets: Tensor | None = None, deterministic: bool = False,
) -> TupleDict:  # fmt: skip
    """{"indices", "logits", "softmax"} of the top_k keys that indexer_forward_wrapper scores highest, [B, S_q, top_k]
    or, of packed documents, [T, top_k]: int32 rows of all batches or documents (without topk_indices_global: of the
    query's own), -1 in slots that a query cannot fill; fp32 logits, -inf there; their softmax, 0 there, omitted with
    return_softmax=False. With return_lse also "lse" [B, S_q] or [T], the log-sum-exp of all keys that a query sees,
    -inf if there are none.

    Indices ascend; ties go to the lowest index, in every run. The whole matrix of logits is never in memory, no scratch
    of the caller's is needed, and the host does not wait for cu_seqlens."""
    scales = q_scale, k_scale, cu_seqlens_q_scale_padded, cu_seqlens_k_scale_padded
    need_bf16("indexer_forward_top_k_wrapper", precision, sf_vec_size, *scales)
    whole(ratio, "ratio")
    is_packed = are_packed(cu_seqlens_q, cu_seqlens_k)
    dimensions = 3 if is_packed else 4
    batch = "" if is_packed else "B"
    keys = without_heads("k", k, dimensions - 1)
    shapes(q=(q, batch + "THD"), k=(keys, batch + "SD"), w=(w, batch + "TH"))
    check_head_count(qhead_per_kv_head, q)
    lead, wide = q.shape[:-2], torch.float32
    shape = (*lead, whole(top_k, "top_k"))
    check_outputs(
        q.device,
        out_indices=(out_indices, shape, torch.int32),
        out_logits=(out_logits, shape, wide),
        softmax_out=(softmax_out, shape, wide),
        lse_out=(lse_out, lead, wide),
    )
    want_lse = return_lse or lse_out is not None
    with on_stream(stream):
        given = (q, keys, scaled(w, sm_scale))
        if is_packed:
            offsets = causal_offsets(q_causal_offsets, cu_seqlens_q.shape[0] - 1)
            seen = (offsets, ratio, topk_indices_global)
            parts = _packed_documents(*given, cu_seqlens_q, cu_seqlens_k, *seen)
        else:
            offsets = causal_offsets(q_causal_offsets, q.shape[0])
            parts = _batches(*given, offsets, ratio, topk_indices_global)
        made = zip(*(_select_chunked(*part, top_k, want_lse) for part in parts))
        made = [(each[0] if len(each) == 1 else torch.cat(each)).unflatten(0, lead) for each in made]
        softmax = None
        if return_softmax is not False or softmax_out is not None:
            softmax = made[1].softmax(-1).masked_fill_(made[1] == NEVER, 0.0)
        result = TupleDict(indices=into(out_indices, made[0]), logits=into(out_logits, made[1]))
        if softmax is not None:
            result["softmax"] = into(softmax_out, softmax)
        if want_lse:
            result["lse"] = into(lse_out, made[2])
    return result


def compress_topk_cand_buffer_size(
    bs: int, seqlen_q: int, seqlen_k: int, ratio: int, microbatch_rows: int = -1, return_lse: bool = False,
    q_causal_offsets: Tensor | None = None, precision: str = "bf16",
) -> int:  # fmt: skip
    """The number of elements that cand_buffer must have: 0."""
    need_bf16("compress_topk_cand_buffer_size", precision)
    return 0


def compress_topk_cand_buffer_size_thd(
    cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, ratio: int, q_causal_offsets: Tensor | None = None
) -> tuple[Tensor, int]:
    """cand_batch_offsets, int64 [documents + 1], all 0, and the number of elements that cand_buffer must have: 0."""
    are_packed(cu_seqlens_q, cu_seqlens_k)
    return torch.zeros_like(cu_seqlens_q, dtype=torch.int64), 0


@torch.no_grad()
def sparse_indexer_score_recompute_wrapper(
    q_indexer: Tensor, k_indexer: Tensor, weights: Tensor, topk_indices: Tensor, qhead_per_kv_head: int | None = None,
    topk_length: Tensor | None = None, topk_indices_global: bool = False, out: Tensor | None = None, stream=None,
) -> TupleDict:  # fmt: skip
    """{"predict"}: the softmax of the indexer's logits over each query's slots, [B, S_q, topk] fp32."""


    def predict(q, k, weights, lists, **length):
        logits = indexer_scores(q, k, indexer_weights(weights), lists, **length)
        return logits.softmax(-1).nan_to_num(0.0)  # rows without a valid slot

    given = {"q_indexer": q_indexer, "k_indexer": k_indexer, "weights": weights}
    lists = topk_indices, topk_length, topk_indices_global
    return TupleDict(predict=_at_slots(predict, given, *lists, qhead_per_kv_head, out, stream))


def _at_slots(score, named, topk_indices, topk_length, are_global, heads, out, stream) -> Tensor:
    """Scores of each query's slots, [B, S_q, topk]; named: queries, keys, and a tensor [B, S_q, heads], by the names of the
    caller's arguments."""
    (q_name, q), (k_name, k), (name, per_head) = named.items()
    keys = without_heads(k_name, k, 3)
    shapes(
        **{q_name: (q, "BTHD"), k_name: (keys, "BSD"), name: (per_head, "BTH")}, topk_indices=(topk_indices, "BTW"),
        topk_length=(topk_length, "BT?"),
    )  # fmt: skip
    check_head_count(heads, q)
    check_outputs(q.device, out=(out, topk_indices.shape, torch.float32))
    with on_stream(stream):
        *given, length = packed(q, keys, per_head, bounds("topk_length", topk_length))
        lists = packed_lists(topk_indices, keys.shape[1], are_global)
        return into(out, score(*given, lists, topk_length=length, backend="smelt").view(topk_indices.shape))


@torch.no_grad()
def sparse_attn_score_recompute_wrapper(
    q_attn: Tensor, k_attn: Tensor, lse: Tensor, topk_indices: Tensor, softmax_scale: float,
    qhead_per_kv_head: int | None = None, topk_length: Tensor | None = None, topk_indices_global: bool = False,
    out: Tensor | None = None, stream=None,
) -> TupleDict:  # fmt: skip
    """{"target"}: attention's probabilities at each query's slots, summed over heads and divided by their sum,
    [B, S_q, topk] fp32."""


    def target(q, k, lse, lists, **length):
        return normalised(sparse_scores(q, k, lists, lse_of_valid_heads(lse), softmax_scale, **length))

    given, lists = {"q_attn": q_attn, "k_attn": k_attn, "lse": lse}, (topk_indices, topk_length, topk_indices_global)
    return TupleDict(target=_at_slots(target, given, *lists, qhead_per_kv_head, out, stream))


@torch.no_grad()
def indexer_backward_wrapper(
    index_q: Tensor, weights: Tensor, index_k: Tensor, attn_score: Tensor, index_score: Tensor, topk_indices: Tensor,
    grad_loss: Tensor | float = 1.0, sm_scale: float = 1.0, loss_coeff: float = 1.0, block_I: int = 128,
    topk_indices_global: bool = False, d_index_q: Tensor | None = None, d_weights: Tensor | None = None,
    d_index_k: Tensor | None = None, stream=None, *, backend: str = "default", workspace: Tensor | None = None,
    deterministic: bool = False, deterministic_dk_planes: int | None = None,
) -> TupleDict:  # fmt: skip
    """{"d_index_q", "d_weights", "d_index_k"} of loss_coeff times the mean over queries of the divergence of
    index_score, the softmax of sm_scale times the logits, from attn_score. attn_score is not changed."""
    choose(backend, "backend", ("default", "sm100_v2"))
    choose(deterministic_dk_planes, "deterministic_dk_planes", (None, 96, 128, 148))
    keys, wide = without_heads("index_k", index_k, 3), torch.float32
    shapes(
        index_q=(index_q, "BTHD"), index_k=(keys, "BSD"), weights=(weights, "BTH"), topk_indices=(topk_indices, "BTW"),
        attn_score=(attn_score, "BTW"), index_score=(index_score, "BTW"),
    )  # fmt: skip
    check_outputs(
        index_q.device,
        d_index_q=(d_index_q, index_q.shape, index_q.dtype),
        d_weights=(d_weights, weights.shape, weights.dtype, wide),
        d_index_k=(d_index_k, index_k.shape, index_k.dtype, wide),
    )
    with on_stream(stream):
        factor = share(grad_loss, loss_coeff, sm_scale, index_q.shape[:2].numel())
        counts = index_score >= CLIPPED_PROBABILITY
        grad = divergence_gradient(index_score, attn_score, counts) * factor
        q, keys, given, grad = packed(index_q, keys, weights.float(), grad)
        dq, dk, dw = indexer_backward(
            grad, q, keys, given, packed_lists(topk_indices, index_k.shape[1], topk_indices_global),
            deterministic=deterministic or None, dk_dtype=fp32_for(d_index_k), backend="smelt",
        )  # fmt: skip
        dw = dw.view(weights.shape).to(gradient_type(d_weights, weights))
        return TupleDict(
            d_index_q=into(d_index_q, dq.view(index_q.shape)),
            d_weights=into(d_weights, dw),
            d_index_k=into(d_index_k, dk.view(index_k.shape)),
        )


DSA = types.SimpleNamespace(**{name: globals()[name] for name in __all__})  # as `cudnn.DSA`
