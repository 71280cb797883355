"""cuDNN Frontend's wrappers with queries x keys matrices: the indexer's logits, and its warm-up training over all keys,
without lists. Contract: cudnn.py.

The matrices are the caller's: results, output tensors and the backward wrapper's inputs. Beside them at most CHUNK_BYTES of
each temporary matrix exist at a time. `smelt.indexer_dense_loss` computes the same loss and gradients from q, k and lse
without any."""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import finite
from .._indexer import indexer_logits
from .._indexer_gradients import indexer_backward
from .._indexer_training import sparse_scores
from ._conventions import (
    NEVER, TupleDict, check_outputs, check_head_count, into, lse_of_valid_heads, gradient_type, output_matrix,
)  # fmt: skip
from ._cudnn_common import (
    CLIPPED, LEAST_SUM, divergence_gradient, documents, ends, is_fp8, need_bf16, on_stream, scaled, share,
)  # fmt: skip


@torch.no_grad()
def indexer_forward_wrapper(
    q: Tensor, k: Tensor, w: Tensor, ratio: int = 4, qhead_per_kv_head: int | None = None, m_block_size: int = 128,
    n_block_size: int = 128, q_stage: int = 2, kv_stage: int = 4, sm_scale: float = 1.0, out: Tensor | None = None,
    stream=None, cu_seqlens_q: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, q_causal_offsets: Tensor | None = None,
    precision: str = "bf16", q_scale: Tensor | None = None, k_scale: Tensor | None = None,
    cu_seqlens_q_scale_padded: Tensor | None = None, cu_seqlens_k_scale_padded: Tensor | None = None,
    sf_vec_size: int = 32, return_lse: bool = False, lse_out: Tensor | None = None,
) -> TupleDict:  # fmt: skip
    """{"scores"}: [B, S_q, S_k] fp32, -inf from key (offset + query + 1) // ratio on; or of packed documents
    [T, max_seqlen_k], columns counted from each document's first key (the host waits for cu_seqlens). With return_lse
    also "lse", the log-sum-exp of each query's logits; lse_out receives it in any case.

    precision "fp8": q and k in e4m3 with fp32 descales, q_scale [B, S_q, H] or [T, H] and k_scale [B, S_k, 1] or
    [S, 1]. w in bf16 is multiplied by q_scale and sm_scale; w in fp32 already contains both, which are not read."""
    scales = q_scale, k_scale, cu_seqlens_q_scale_padded, cu_seqlens_k_scale_padded
    descales = (q_scale, k_scale) if is_fp8("indexer_forward_wrapper", precision, sf_vec_size, *scales) else None
    with on_stream(stream):
        packing = cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets
        masks = (*packing, ratio, qhead_per_kv_head)
        want = return_lse or lse_out is not None
        scores, lse = _matrix(q, k, "w", w, sm_scale, *masks, out, "lse_out", lse_out, want, descales)
    return TupleDict(scores=scores, lse=lse) if return_lse else TupleDict(scores=scores)


def _with_descale(q: Tensor, w: Tensor, q_scale: Tensor, sm_scale: float) -> Tensor:
    """The weights of e4m3 queries in fp32: a query's descale and sm_scale are factors of its heads' weights."""
    for name, each in (("w", w), ("q_scale", q_scale)):
        if each.shape != q.shape[:-1]:
            raise ValueError(f"smelt: {name} must be {list(q.shape[:-1])}, not {list(each.shape)}")
    if w.dtype is torch.float32:
        return w
    if w.dtype is not torch.bfloat16:
        legal = "torch.bfloat16, or torch.float32 with q_scale and sm_scale in it"
        raise TypeError(f"smelt: w must be {legal}, not {w.dtype}")
    return w * q_scale * finite(sm_scale, "sm_scale")


def _of_keys(k_scale: Tensor, keys: Tensor) -> Tensor:
    """k_scale [.., S], which may also come as [.., S, 1]."""
    shape = keys.shape[:-1]
    if k_scale.shape not in (shape, (*shape, 1)):
        raise ValueError(f"smelt: k_scale must be {[*shape, 1]}, not {list(k_scale.shape)}")
    return k_scale.reshape(shape)


def _matrix(
    q: Tensor, k: Tensor, weights_name: str, weights: Tensor, sm_scale: float, cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None, max_seqlen_k: int | None, q_causal_offsets: Tensor | None, ratio: int,
    qhead_per_kv_head: int | None, out: Tensor | None, sums_name: str, sums: Tensor | None, want_sums: bool,
    descales: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The indexer's logits and, with want_sums, the log-sum-exp of each query's logits. descales: q_scale and k_scale,
    with e4m3."""
    packing = cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets
    width, keys, parts = documents(q, k, *packing, **{weights_name: weights})
    check_head_count(qhead_per_kv_head, q)
    shape, wide = (*q.shape[:-2], width), torch.float32
    check_outputs(q.device, **{"out": (out, shape, wide), sums_name: (sums, shape[:-1], wide)})
    weights = scaled(weights, sm_scale) if descales is None else _with_descale(q, weights, descales[0], sm_scale)
    k_scale = None if descales is None else _of_keys(descales[1], keys)
    alone = out is None and len(parts) == 1 and cu_seqlens_q is None
    scores = None if alone else output_matrix(out, shape, q, k, weights, *(descales or ()))
    if cu_seqlens_q is not None:
        scores.fill_(NEVER)
    for mine, theirs, offset in parts:
        some = keys[theirs]
        end = ends(q[mine].shape[0], some.shape[0], offset, ratio, q.device)
        scale = None if k_scale is None else k_scale[theirs]
        part = indexer_logits(q[mine], some, weights[mine], torch.zeros_like(end), end, k_scale=scale, backend="smelt")
        if alone:
            scores = part.view(shape)
        else:
            scores[mine][..., : some.shape[0]] = part
    made = None
    if want_sums:  # logsumexp holds a copy of what it reads
        made = torch.cat([part.logsumexp(-1) for part in scores.flatten(0, -2).split(_chunk(width))]).view(shape[:-1])
    return into(out, scores), None if made is None else into(sums, made)


# ---- the indexer's warm-up training, over all keys -------------------------------------------------


CHUNK_BYTES = 16 << 20  # of a temporary matrix with a number for each query and key


def _chunk(keys: int) -> int:
    """How many queries' rows of `keys` numbers exist at once."""
    return max(1, CHUNK_BYTES // max(4, 4 * keys))


def _visible_keys(tokens: int, keys: Tensor, offset, ratio: int):
    """By chunks of a document's queries: which they are, and lists of all keys that each of them sees, [t, S] int32."""
    key = torch.arange(keys.shape[0], device=keys.device, dtype=torch.int32)
    end = ends(tokens, keys.shape[0], offset, ratio, keys.device)
    rows = _chunk(keys.shape[0])
    for begin in range(0, max(tokens, 1), rows):
        part = slice(begin, begin + rows)
        seen = end[part, None]
        yield part, key.expand(seen.shape[0], -1).masked_fill(key >= seen, -1)


@torch.no_grad()
def dense_attn_score_recompute_wrapper(
    q: Tensor, k: Tensor, lse: Tensor, softmax_scale: float, qhead_per_kv_head: int | None = None,
    out: Tensor | None = None, denom_out: Tensor | None = None, ratio: int = 1, cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    q_causal_offsets: Tensor | None = None, precision: str = "bf16", q_scale: Tensor | None = None,
    k_scale: Tensor | None = None, cu_seqlens_q_scale_padded: Tensor | None = None,
    cu_seqlens_k_scale_padded: Tensor | None = None, sf_vec_size: int = 32, stream=None,
) -> TupleDict:  # fmt: skip
    """{"out", "denom"}: attention's probabilities summed over heads, [B, S_q, S_k] fp32, 0 where a query does not see
    a key, and each query's sum of them; of packed documents [T, max_seqlen_k] and [T]."""
    scales = q_scale, k_scale, cu_seqlens_q_scale_padded, cu_seqlens_k_scale_padded
    need_bf16("dense_attn_score_recompute_wrapper", precision, sf_vec_size, *scales)
    with on_stream(stream):
        packing = cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets
        width, keys, parts = documents(q, k, *packing, lse=lse)
        check_head_count(qhead_per_kv_head, q)
        shape, wide = (*q.shape[:-2], width), torch.float32
        check_outputs(q.device, out=(out, shape, wide), denom_out=(denom_out, shape[:-1], wide))
        sums = lse_of_valid_heads(lse)
        scores = output_matrix(out, shape, q, k, sums).zero_()
        for mine, theirs, offset in parts:
            some = keys[theirs]
            for part, lists in _visible_keys(q[mine].shape[0], some, offset, ratio):
                scores[mine][part, : some.shape[0]] = sparse_scores(
                    q[mine][part], some, lists, sums[mine][part], softmax_scale, backend="smelt"
                )
        return TupleDict(out=into(out, scores), denom=into(denom_out, scores.sum(-1)))


@torch.no_grad()
def dense_indexer_score_recompute_wrapper(
    q: Tensor, k: Tensor, weights: Tensor, qhead_per_kv_head: int | None = None, out: Tensor | None = None,
    denom_out: Tensor | None = None, sm_scale: float = 1.0, ratio: int = 1, cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    q_causal_offsets: Tensor | None = None, precision: str = "bf16", q_scale: Tensor | None = None,
    k_scale: Tensor | None = None, cu_seqlens_q_scale_padded: Tensor | None = None,
    cu_seqlens_k_scale_padded: Tensor | None = None, sf_vec_size: int = 32, stream=None,
) -> TupleDict:  # fmt: skip
    """{"out", "denom"}: indexer_forward_wrapper's scores and the log-sum-exp of each query's."""
    scales = q_scale, k_scale, cu_seqlens_q_scale_padded, cu_seqlens_k_scale_padded
    need_bf16("dense_indexer_score_recompute_wrapper", precision, sf_vec_size, *scales)
    with on_stream(stream):
        packing = cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets
        masks = (*packing, ratio, qhead_per_kv_head)
        sums = (out, "denom_out", denom_out, True)
        scores, lse = _matrix(q, k, "weights", weights, sm_scale, *masks, *sums)
    return TupleDict(out=scores, denom=lse)


def _check_scores(shape: tuple, **given: Tensor) -> None:
    """Checks matrices of this shape (names that end in "score") and tensors with one number per row."""
    for name, each in given.items():
        wanted = shape if name.endswith("score") else shape[:-1]
        if tuple(each.shape) != wanted:
            raise ValueError(f"smelt: {name} must be {list(wanted)}, not {list(each.shape)}")


@torch.no_grad()
def dense_indexer_backward_wrapper(
    index_q: Tensor, weights: Tensor, index_k: Tensor, attn_score: Tensor, attn_l1norm: Tensor, index_score: Tensor,
    index_lse: Tensor, grad_loss: Tensor | float = 1.0, sm_scale: float = 1.0, loss_coeff: float = 1.0,
    block_I: int = 128, ratio: int = 1, cu_seqlens_q: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, q_causal_offsets: Tensor | None = None,
    d_index_q: Tensor | None = None, d_weights: Tensor | None = None, d_index_k: Tensor | None = None, stream=None,
    workspace: Tensor | None = None, *, deterministic: bool = False,
) -> TupleDict:  # fmt: skip
    """{"d_index_q", "d_weights", "d_index_k"} of loss_coeff times the mean over queries of the divergence of
    exp(index_score - index_lse) from attn_score / attn_l1norm, over every key that a query sees. attn_score and
    index_score are not changed."""
    with on_stream(stream):
        packing = cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets
        width, keys, parts = documents(index_q, index_k, *packing, weights=weights)
        _check_scores(
            (*index_q.shape[:-2], width),
            attn_score=attn_score,
            attn_l1norm=attn_l1norm,
            index_score=index_score,
            index_lse=index_lse,
        )
        outputs = {
            "d_index_q": (d_index_q, index_q, index_q.dtype),
            "d_weights": (d_weights, weights, weights.dtype, torch.float32),
            "d_index_k": (d_index_k, index_k, index_k.dtype, torch.float32),
        }
        check_outputs(
            index_q.device, **{name: (given, like.shape, *types) for name, (given, like, *types) in outputs.items()}
        )
        made = [torch.zeros_like(like, dtype=gradient_type(given, like)) for given, like, *_ in outputs.values()]
        factor = share(grad_loss, loss_coeff, sm_scale, index_lse.numel())
        for mine, theirs, offset in parts:
            some = keys[theirs]
            total = 0
            for part, lists in _visible_keys(index_q[mine].shape[0], some, offset, ratio):
                log_predict = index_score[mine][part] - index_lse[mine][part].unsqueeze(-1)
                target = attn_score[mine][part] / (attn_l1norm[mine][part].unsqueeze(-1) + LEAST_SUM)
                log_predict, target = (each[:, : some.shape[0]] for each in (log_predict, target))
                predict = log_predict.exp().masked_fill(lists < 0, 0.0)
                counts = (lists >= 0) & (log_predict >= CLIPPED)
                dq, dk, dw = indexer_backward(
                    divergence_gradient(predict, target, counts) * factor, index_q[mine][part], some,
                    weights[mine][part].float(), lists, deterministic=deterministic or None, dk_dtype=torch.float32,
                    backend="smelt",
                )  # fmt: skip
                made[0][mine][part], made[1][mine][part] = dq, dw
                total = total + dk
            made[2][theirs] = total.view(index_k[theirs].shape)
        made = [into(given, each) for (given, *_), each in zip(outputs.values(), made)]
        return TupleDict(zip(outputs, made))
