"""Megatron-LM's hooks for fused sparse attention (`dsa_kernels`), which its DSAttention calls in place of PyTorch.

Tensors as there: queries [sq, b, ...], keys [skv, b, ...], lists [b, sq, topk]. Query t sees the keys varlen_starts[t] to
varlen_ends[t] - 1. Context parallel: queries and windows are the rank's own, keys are gathered already. Tensor parallel:
attention's heads are the rank's own, the indexer's are not divided, and the indexer's target is summed over the ranks.

The hooks compute for every dsa_kernel_backend, unless attention_backend is unfused. A hook that returns None leaves the
call to Megatron's PyTorch, with one warning; under set_backend("smelt") it raises.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from .. import _runtime
from .._checks import shapes
from .._dense import indexer_dense_loss
from .._indexer_training import indexer_loss, sparse_scores
from .._project import project_values
from .._selection import indexer_topk
from .._sparse_attention import sparse_attention
from ._conventions import bounds, slots

WIDE = "the indexer's inputs are torch.float32; the kernels read bf16"


def _decline(reason: str) -> None:
    """The answer of a hook that has no kernel."""
    text = f"smelt: Megatron's PyTorch computes this sparse attention: {reason}"
    if _runtime.get_backend() == "smelt":
        raise RuntimeError(text)
    _runtime.warn_once(text)


def _is_wide(q: Tensor) -> bool:
    return q.dtype is torch.float32 and not torch.is_autocast_enabled(q.device.type)


def _packed(x: Tensor) -> Tensor:
    """[b * s, ...] of [s, b, ...]; a view if b is 1."""
    return x.transpose(0, 1).flatten(0, 1)


class _Indexer:
    """The indexer's inputs with batches one after another, and the windows of their keys."""

    def __init__(self, q, k, weights, starts, ends, use_relu: bool) -> None:
        named = {"q_indexer": (q, "TBHD"), "k_indexer": (k, "SBD"), "indexer_weights": (weights, "TBH")}
        shapes(**named, varlen_starts=(starts, "T"), varlen_ends=(ends, "T"))
        (self.queries, self.batches), self.keys = q.shape[:2], k.shape[0]
        self.activation = "relu" if use_relu else "none"
        self.q, self.k, self.weights = _packed(q), _packed(k), _packed(weights).float()
        self.before = None  # the keys of the batches before
        self.begin, self.end = bounds("varlen_starts", starts), bounds("varlen_ends", ends)
        if self.batches > 1:
            first = torch.arange(self.batches, dtype=torch.int32, device=k.device) * self.keys
            self.before = first.repeat_interleave(self.queries)
            self.begin, self.end = (  # clamped: a window has none of the next batch's keys
                each.clamp(0, self.keys).repeat(self.batches) + self.before for each in (self.begin, self.end)
            )

    def choose(self, topk: int) -> tuple[Tensor, Tensor, Tensor]:
        """Lists [b, sq, topk] of the batch's own keys, their logits [b * sq, topk], lengths [b, sq]."""
        topk, offset = min(topk, max(1, self.keys)), None if self.before is None else -self.before
        inputs, rows = (self.q, self.k, self.weights, self.begin, self.end), (self.batches, self.queries)
        indices, logits, lengths = indexer_topk(*inputs, topk, offset=offset, activation=self.activation)
        return indices.view(*rows, -1), logits, lengths.view(rows)


def _of_rows(indexer: _Indexer, coefficient: float, valid_rows: Tensor | None, per_token: bool) -> dict:
    """What multiplies each query's divergence: the loss is its mean over the (valid) queries, or with per_token its sum."""
    rows = indexer.batches, indexer.queries
    if valid_rows is None:
        return {"query_weight": coefficient if per_token else coefficient / max(1, rows[0] * rows[1])}
    valid = valid_rows.to(indexer.q.device, torch.float32).expand(rows)
    weight = coefficient if per_token else coefficient / valid.sum().clamp(min=1.0)
    return {"weight": valid.flatten(), "query_weight": weight}


def _sparse_loss(indexer: _Indexer, chosen, query, kv, lse, scale, group, rows: dict) -> Tensor:
    indices, logits, lengths = chosen
    target = sparse_scores(query.detach(), kv.detach(), indices, lse, scale, topk_length=lengths)
    if group is not None and group.size() > 1:
        distributed.all_reduce(target, group=group)
    return indexer_loss(logits, target.flatten(0, 1), indices.flatten(0, 1), topk_length=lengths.flatten(), **rows)


def _dense_loss(indexer: _Indexer, query, key, scale, group, rows: dict) -> Tensor:
    """Of attention over whole windows; for it every rank has all heads."""
    query = _packed(query.detach()).contiguous()
    if group is not None and group.size() > 1:
        parts = [torch.empty_like(query) for _ in range(group.size())]
        distributed.all_gather(parts, query, group=group)
        query = torch.cat(parts, dim=1)
    inputs = indexer.q, indexer.k, indexer.weights, indexer.begin, indexer.end
    return indexer_dense_loss(
        query, _packed(key.detach()), None, *inputs, scale, activation=indexer.activation, **rows
    )


# ---- the hooks --------------------------------------------------------------------------------------


def use_fused_dsa_kernels(config) -> bool:
    backend = config.attention_backend
    return getattr(backend, "name", backend) != "unfused"


def run_fused_qk_topk(
    config, q: Tensor, k: Tensor, weights: Tensor, index_topk: int, starts: Tensor, ends: Tensor, block_size: int,
    use_relu: bool = True, use_local_indexer_varlen: bool = False, single_packed_thd_sequence: bool = False,
    local_packed_cp_rank: int = 0, local_packed_cp_query_start: int = 0, local_packed_cp_query_len: int | None = None,
    packed_seq_params=None, cp_size: int = 1,
) -> tuple[Tensor, Tensor] | None:  # fmt: skip
    """(lists, their lengths [b, sq])"""
    if _is_wide(q):
        return _decline(WIDE)
    with torch.no_grad():
        indices, _, lengths = _Indexer(q, k, weights, starts, ends, use_relu).choose(index_topk)
    return indices, lengths


def run_fused_qk_topk_with_loss(
    config, q: Tensor, k: Tensor, weights: Tensor, index_topk: int, starts: Tensor, ends: Tensor, block_size: int,
    query: Tensor, key: Tensor, softmax_scale: float, loss_coeff: float, pg_collection,
    query_valid_rows: Tensor | None = None, calculate_per_token_loss: bool = False, use_relu: bool = True,
    use_local_indexer_varlen: bool = False, single_packed_thd_sequence: bool = False, local_packed_cp_rank: int = 0,
    local_packed_cp_query_start: int = 0, local_packed_cp_query_len: int | None = None, packed_seq_params=None,
    cp_size: int = 1,
) -> tuple[Tensor, Tensor, Tensor] | None:  # fmt: skip
    """(lists, their lengths, loss). Attention runs a second time for the target's log-sum-exp."""
    if key.shape[2] != 1:
        return _decline(f"keys have {key.shape[2]} heads, not the latent one")
    if _is_wide(q):
        return _decline(WIDE)
    indexer = _Indexer(q, k, weights, starts, ends, use_relu)
    shapes(q_indexer=(q, "TBIE"), k_indexer=(k, "SBE"), query=(query, "TBHD"), key=(key, "SB1D"))
    chosen = indexer.choose(index_topk)
    query, kv = query.detach().transpose(0, 1), key.detach().squeeze(2).transpose(0, 1)
    with torch.no_grad():
        _, lse = sparse_attention(
            query, kv, chosen[0], softmax_scale, dv=config.kv_lora_rank, topk_length=chosen[2], return_lse=True
        )
    rows = _of_rows(indexer, loss_coeff, query_valid_rows, calculate_per_token_loss)
    loss = _sparse_loss(indexer, chosen, query, kv, lse, softmax_scale, pg_collection.tp, rows)
    return chosen[0], chosen[2], loss


def run_fused_absorbed_sparse_attention(
    config, query: Tensor, key: Tensor, topk_indices: Tensor, softmax_scale: float, v_channels: int,
    topk_length: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """[sq, b, heads, v_channels]"""
    out = sparse_attention(
        query.transpose(0, 1), key.squeeze(2).transpose(0, 1), slots("topk_indices", topk_indices), softmax_scale,
        dv=v_channels, topk_length=bounds("topk_length", topk_length),
    )  # fmt: skip
    return out.transpose(0, 1)


def run_fused_dsa_attention(
    *, config, query: Tensor, key: Tensor, value: Tensor | None, up_v_weight: Tensor | None, q_indexer: Tensor,
    k_indexer: Tensor, indexer_weights: Tensor, indexer_topk: int, softmax_scale: float, loss_coeff: float,
    sparse_loss: bool, calculate_per_token_loss: bool, absorbed_mla: bool, cp_size: int, attn_mask_type,
    packed_seq_params, varlen_starts: Tensor | None, varlen_ends: Tensor | None, key_positions: Tensor | None,
    query_valid_rows: Tensor | None, varlen_is_plain_causal: bool = False, use_relu: bool,
    use_local_indexer_varlen: bool = False, single_packed_thd_sequence: bool = False, local_packed_cp_rank: int = 0,
    local_packed_cp_query_start: int = 0, local_packed_cp_query_len: int | None = None, pg_collection=None,
) -> tuple[Tensor, Tensor] | None:  # fmt: skip
    """(out [sq, b, heads * v_head_dim], the indexer's loss)"""
    if not absorbed_mla or value is not None or up_v_weight is None or key.shape[2] != 1:
        return _decline("keys and values are not the latent ones of absorbed MLA")
    if varlen_starts is None or varlen_ends is None or key_positions is not None:
        return _decline("the keys that a query sees are given by a matrix or by positions, not by a window")
    if _is_wide(q_indexer):
        return _decline(WIDE)
    indexer = _Indexer(q_indexer, k_indexer, indexer_weights, varlen_starts, varlen_ends, use_relu)
    shapes(q_indexer=(q_indexer, "TBIE"), k_indexer=(k_indexer, "SBE"), query=(query, "TBHD"), key=(key, "SB1D"))
    chosen = indexer.choose(indexer_topk)
    of_batch, kv = query.transpose(0, 1), key.squeeze(2).transpose(0, 1)
    out, lse = sparse_attention(
        of_batch, kv, chosen[0], softmax_scale, dv=config.kv_lora_rank, topk_length=chosen[2], return_lse=True,
    )  # fmt: skip
    out = project_values(out, up_v_weight).transpose(0, 1).flatten(2)
    if not loss_coeff or not torch.is_grad_enabled():
        return out, lse.new_zeros(())
    group = getattr(pg_collection, "tp", None)
    rows = _of_rows(indexer, loss_coeff, query_valid_rows, calculate_per_token_loss)
    if sparse_loss:
        return out, _sparse_loss(indexer, chosen, of_batch, kv, lse, softmax_scale, group, rows)
    return out, _dense_loss(indexer, query, key.squeeze(2), softmax_scale, group, rows)
