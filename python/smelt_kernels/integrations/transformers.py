"""Hugging Face Transformers' sparse-attention models on smelt's kernels: attention and indexer, with gradients.

::

    import smelt_kernels as smelt
    smelt.integrations.transformers.install()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="smelt", dtype=torch.bfloat16)

The models' own code runs except in the places that `install` hooks, and there only where a model's attention
implementation is "smelt":

* The attention function and the mask function that Transformers' registries name "smelt". A mask is a window of keys
  for each query (`Windows`) instead of a matrix queries x keys.
* GLM-5, DeepSeek-V3.2 and A.X-K2 expand the latent KV rows to a key and a value for each head (`expand_kv`). Here the
  rows stay latent, and the weights that expand them are applied to the queries and to the output.
* The indexers score and choose in `smelt.indexer_topk`, which holds no matrix queries x keys.
* DeepSeek-V4's compressors report their entries as lists instead of a bias for each query and entry.
* GLM-5.3-Flash (`glm5_next`) and Qwen3.8-Flash-Next (`qwen4_exp`) choose pools of keys, MiniMax-M3 (`minimax_m3_vl`) blocks
  for each KV head. Their lists go to the attention as they are (`Lists`), without a mask queries x keys.

Nothing falls back to the models' own attention: what smelt does not have raises.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import threading

import torch
from torch import Tensor, nn

from .._grouped_attention import GRANULARITIES, sparse_gqa
from .._operation import autocast_type
from .._selection import indexer_topk
from .._sparse_attention import sparse_attention

NAME = "smelt"
ROPE_COLUMNS = 64  # that a kernel's KV row has after the columns that are a value, too
MASK_BYTES = 16 << 20  # of a mask's matrix that are held at a time while its windows are read from it

# Of each model with latent KV rows: how its classes begin, and the rotation of its indexer.
_LATENT_MODELS = {
    "axk2": ("AXK2", "apply_rotary_pos_emb"),
    "deepseek_v32": ("DeepseekV32", "apply_rotary_pos_emb"),
    "glm_moe_dsa": ("GlmMoeDsa", "apply_rotary_pos_emb_interleave"),
}
_MODELS = (*_LATENT_MODELS, "deepseek_v4", "glm5_next", "minimax_m3_vl", "qwen4_exp")
_TEXT, _VISION = "_text", "_vision"  # ends of the names of a composite model's parts

_attentions: dict = {}  # of the classes of attention that are hooked: the function that attends
_hooked: list = []  # (class, method's name, the method before)
_compressed = threading.local()  # `entries`: the lists and the number of entries, from a V4 compressor to its layer's attention


@dataclasses.dataclass(frozen=True)
class Windows:
    """A mask: query t of batch b sees the keys begin[b, t] .. end[b, t] - 1 (int32 [B, T])."""

    begin: Tensor
    end: Tensor
    from_first: bool = False  # whether every window begins at key 0
    keys: int = 0  # the number of the mask's columns

    dtype = torch.bool  # as of a mask that a model joins with another by "and"

    def __getitem__(self, _) -> Windows:
        """Models cut the dimension of heads out of a mask."""
        return self

    def __and__(self, lists: Lists) -> Lists:
        """What an indexer chose lies inside the windows."""
        return lists

    def to(self, *args, **named) -> Windows:
        """For models that lie on several devices."""
        return dataclasses.replace(self, begin=self.begin.to(*args, **named), end=self.end.to(*args, **named))


@dataclasses.dataclass(frozen=True)
class Lists:
    """A mask: query t of batch b sees the rows of its entries, of `granularity` rows each and int32 [B, T, lists, width],
    that lie before limit[b, t]."""

    entries: Tensor
    granularity: int
    limit: Tensor | None = None


def _bf16(name: str, value: Tensor) -> Tensor:
    kind = autocast_type(value) or value.dtype
    if kind is not torch.bfloat16:
        raise TypeError(
            f"smelt: {name} is in {kind}, but smelt's kernels compute in torch.bfloat16: load the model with "
            "dtype=torch.bfloat16, or run it under torch.autocast in torch.bfloat16"
        )
    return value.to(kind)


# ---- masks ------------------------------------------------------------------------------------------


def _read_windows(mask: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Of a matrix bool [B, T, S], whose queries begin at `first`."""
    keys = torch.arange(mask.shape[-1], dtype=torch.int32, device=mask.device)
    count = mask.sum(-1, dtype=torch.int32)
    end = torch.where(mask, keys + 1, 0).amax(-1)
    begin = end - count
    odd = (mask != (keys >= begin.unsqueeze(-1)) & (keys < end.unsqueeze(-1))).any(-1).nonzero()
    if len(odd):
        batch, query = odd[0].tolist()
        raise ValueError(
            f"smelt: query {first + query} of batch {batch} sees keys that are not one contiguous range; "
            f"attn_implementation='{NAME}' has causal masks, sliding windows, packed sequences, and padding before or "
            "after a sequence"
        )
    return begin, end


def _windows(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset=0,
    config=None,
    allow_is_causal_skip: bool = False,
    allow_is_bidirectional_skip: bool = False,
    **named,
) -> Windows:
    """The mask function: Transformers' own matrix, by chunks of queries, read as windows."""
    from transformers.masking_utils import sdpa_mask

    if config.model_type.endswith(_VISION):
        return sdpa_mask(batch_size, q_length, kv_length, q_offset=q_offset, **named)
    if config.model_type.removesuffix(_TEXT) not in _MODELS:
        raise ValueError(f"smelt: attn_implementation='{NAME}' serves {', '.join(_MODELS)}, not {config.model_type}")
    rows = max(1, MASK_BYTES // max(1, batch_size * kv_length))
    parts = []
    for first in range(0, q_length, rows):
        mask = sdpa_mask(
            batch_size, min(rows, q_length - first), kv_length, q_offset=q_offset + first, allow_is_causal_skip=False,
            **named,
        )  # fmt: skip
        parts.append(_read_windows(mask[:, 0], first))
    begin, end = (torch.cat(each, dim=1) for each in zip(*parts))
    return Windows(begin, end, not begin.any(), kv_length)


def _checked(mask, query: Tensor, keys: int) -> Windows:
    """The windows of `query` [B, H, T, D] among `keys` keys."""
    if not isinstance(mask, Windows):
        raise TypeError(
            f"smelt: attn_implementation='{NAME}' takes attention_mask [batch, keys] or None, and no matrix "
            f"queries x keys; it is {type(mask).__name__}"
        )
    if mask.end.shape != (query.shape[0], query.shape[2]):
        raise ValueError(
            f"smelt: the mask is of {tuple(mask.end.shape)} queries, the query of {(query.shape[0], query.shape[2])}"
        )
    if mask.keys != keys:
        raise ValueError(
            f"smelt: attention_mask has {mask.keys} columns, but must have one for each of the {keys} keys, including those "
            "in the cache"
        )
    return mask.to(query.device)


# ---- attention --------------------------------------------------------------------------------------


def _attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **named):
    """The attention function: [B, T, H, Dv], and no probabilities."""
    attend = _attentions.get(type(module))
    if attend is None:
        kind = type(module).__name__
        raise ValueError(f"smelt: attn_implementation='{NAME}' serves {', '.join(_MODELS)}, not {kind}")
    if dropout:
        raise ValueError(f"smelt: attention has no dropout; set attention_dropout = 0, not {dropout}")
    if named.get("output_attentions") or module.config.output_attentions:
        raise ValueError("smelt: output_attentions: no probabilities are stored; use attn_implementation='eager'")
    return attend(module, query, key, value, attention_mask, scaling, **named), None


def _join(latent: Tensor, rope: Tensor) -> Tensor:
    """Rows of the width that the kernels have: none or ROPE_COLUMNS after the latent ones, of which zeros change no
    product."""
    if 0 < rope.shape[-1] < ROPE_COLUMNS:
        rope = nn.functional.pad(rope, (0, ROPE_COLUMNS - rope.shape[-1]))
    return torch.cat((latent, rope), dim=-1)


def _attend_latent(module, query, latent, rope, mask, scaling, indices, **_):
    _checked(mask, query, latent.shape[2])
    return _through_latent(module, query, latent, rope, scaling, indices)


def _attend_listed(module, query, latent, rope, lists, scaling, **_):
    """lists: int32 [B, T, width], as `_keep_lists` left them."""
    return _through_latent(module, query, latent, rope, scaling, lists)


def _through_latent(module, query, latent, rope, scaling, indices):
    """query [B, H, T, nope + rope]; latent [B, 1, S, rank] and rope [B, 1, S, rope] as `_keep_latent` left them."""
    projection = module.kv_b_proj
    if type(projection) is not nn.Linear or projection.bias is not None:
        raise TypeError(
            "smelt: kv_b_proj must be an nn.Linear without a bias, since its weight is applied to queries and output, "
            f"not {projection}; merge adapters into it and do not quantize it"
        )
    nope = module.qk_nope_head_dim
    key_weight, value_weight = projection.weight.unflatten(0, (-1, nope + module.v_head_dim)).split(
        (nope, module.v_head_dim), dim=1
    )
    query_latent = torch.einsum("bhtn,hnr->bthr", query[..., :nope], key_weight)
    out = sparse_attention(
        _bf16("the query", _join(query_latent, query[..., nope:].transpose(1, 2))),
        _bf16("the latent KV", _join(latent, rope).squeeze(1)), indices, scaling, dv=latent.shape[-1], backend="smelt",
    )  # fmt: skip
    return torch.einsum("bthr,hvr->bthv", out, value_weight)


def _keep_latent(self, kv_nope, k_rot):
    return kv_nope, k_rot


def _keep_lists(self, topk_indices, query_states, kv_length):
    return topk_indices


def _attend_grouped(module, query, key, value, mask, scaling, block_indices=None, **_):
    """query [B, Hq, T, D], key and value [B, Hkv, S, D]; block_indices [B, Hkv, T, width] of MiniMax-M3's sparse layers."""
    if isinstance(mask, Lists):
        lists = mask
    else:
        windows = _checked(mask, query, key.shape[2])
        if not windows.from_first:
            raise ValueError(
                "smelt: MiniMax-M3's blocks begin at a sequence's first key: pad after a sequence, not before it, and do not "
                "pack documents"
            )
        if block_indices is None:  # a layer without an indexer
            every = torch.arange(-(-key.shape[2] // GRANULARITIES[-1]), dtype=torch.int32, device=key.device)
            lists = Lists(every.expand(*windows.end.shape, 1, -1), GRANULARITIES[-1], windows.end)
        else:
            lists = Lists(block_indices.transpose(1, 2), module.indexer.block_size, windows.end)
    return sparse_gqa(
        _bf16("the query", query.transpose(1, 2)), _bf16("the key", key.transpose(1, 2)),
        _bf16("the value", value.transpose(1, 2)), lists.entries, scaling, granularity=lists.granularity,
        limit=lists.limit, unite=True, backend="smelt",
    )  # fmt: skip


def _attend_images(module, query, key, value, mask, scaling, **named):
    """Of a vision tower, whose attention is dense: PyTorch's."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **named)[0]


def _attend_v4(module, query, kv, _, mask, scaling, sliding_window, s_aux, **_named):
    """kv [B, 1, S + C, D]: keys of the sliding window, then the compressor's entries."""
    if module.compressor is None:
        lists = _sliding_lists(_checked(mask, query, kv.shape[2]), sliding_window)
    else:
        entries, count = _compressed.entries
        _compressed.entries = None
        keys = kv.shape[2] - count
        lists = _sliding_lists(_checked(mask, query, keys), sliding_window)
        lists = torch.cat((lists, torch.where(entries < 0, -1, entries + keys)), dim=-1)
    return sparse_attention(
        _bf16("the query", query.transpose(1, 2)), _bf16("kv", kv.squeeze(1)), lists, scaling, dv=kv.shape[-1],
        sink=s_aux, backend="smelt",
    )  # fmt: skip


def _sliding_lists(windows: Windows, width: int) -> Tensor:
    """int32 [B, T, width]: the window's keys, and -1 after them."""
    slots = torch.arange(width, dtype=torch.int32, device=windows.end.device)
    keys = windows.begin.unsqueeze(-1) + slots
    return torch.where(keys < windows.end.unsqueeze(-1), keys, -1)


# ---- indexers ---------------------------------------------------------------------------------------


def _choose(q, k, weights, windows: Windows, topk: int) -> Tensor:
    """int32 [B, T, topk]: each query's best keys in its window, in ascending order, and -1 after them.

    q [B, T, H, D], k [B, S, D], weights [B, T, H]. A batch is one call: its sequences' keys lie one after another.
    """
    batches, keys = k.shape[:2]
    if not keys:
        return torch.full((*q.shape[:2], topk), -1, dtype=torch.int32, device=q.device)
    before = (torch.arange(batches, dtype=torch.int32, device=k.device) * keys).repeat_interleave(q.shape[1])
    indices, _, _ = indexer_topk(
        _bf16("the indexer's query", q).flatten(0, 1), _bf16("the indexer's key", k).flatten(0, 1),
        weights.float().flatten(0, 1), windows.begin.flatten() + before, windows.end.flatten() + before, topk,
        offset=-before, backend="smelt",
    )  # fmt: skip
    return indices.view(*q.shape[:2], topk)


def _latent_indexer(rotate):
    @torch.no_grad()
    def choose(self, hidden_states, q_resid, position_embeddings, attention_mask, position_ids, cache=None):
        q = self.wq_b(q_resid).unflatten(-1, (self.n_heads, self.head_dim))
        k = self.k_norm(self.wk(hidden_states)).unsqueeze(2)
        rope = self.qk_rope_head_dim
        turned = rotate(q[..., :rope], k[..., :rope], *position_embeddings, unsqueeze_dim=2)
        q, k = (torch.cat((new, old[..., rope:]), dim=-1) for new, old in zip(turned, (q, k)))
        k = k.squeeze(2)
        if cache is not None:
            k = cache.update_indexer(k, self.layer_idx)
        weights = self.weights_proj(hidden_states.to(self.weights_proj.weight.dtype)).float()
        windows = _checked(attention_mask, q.transpose(1, 2), k.shape[1])
        return _choose(q, k, weights * (self.softmax_scale * self.n_heads**-0.5), windows, self.index_topk)

    return choose


# ---- pools and blocks of keys -----------------------------------------------------------------------


def _rows_of_pools(pools: Tensor, rate: int, first: Tensor, seen: Tensor, tail: bool) -> Tensor:
    """int32 [B, T, rows]: the rows of chosen pools [B, T, width], and with `tail` those after a query's last complete pool.

    Pools of `rate` rows begin at row first [B] of a sequence; a query sees seen [B, T] rows from there on.
    """
    first = first[:, None, None]
    inside = torch.arange(rate, dtype=torch.int32, device=pools.device)
    rows = (first + pools * rate).unsqueeze(-1) + inside
    rows = rows.masked_fill(pools.unsqueeze(-1) < 0, -1).flatten(2)
    if not tail:
        return rows
    left = (seen // rate * rate).unsqueeze(-1) + inside[:-1]
    return torch.cat((rows, (first + left).masked_fill(left >= seen.unsqueeze(-1), -1)), dim=-1)


def _seen_keys(valid: Tensor, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """The first valid key of each sequence, [B], and how many valid keys each query sees, [B, T], of valid [B, S]. The
    last of `queries` queries is the last of `keys` keys."""
    slots = torch.arange(valid.shape[1], dtype=torch.int32, device=valid.device)
    count = valid.sum(-1, dtype=torch.int32)
    first = torch.where(valid.any(-1), valid.byte().argmax(-1), 0).int()
    if (valid != (slots >= first[:, None]) & (slots < (first + count)[:, None])).any():
        raise ValueError("smelt: a sequence's keys are not one contiguous range: pad before or after a sequence only")
    return first, (slots[keys - queries : keys] + 1 - first[:, None]).clamp(min=0).minimum(count[:, None])


def _glm5_next_hooks():
    @torch.no_grad()
    def choose(self, hidden_states, q_resid, attention_mask, cache):
        queries = keys = hidden_states.shape[1]
        gate = nn.functional.linear(hidden_states, self.index_kpool_compress_gate)
        k = self.k_norm(self.wk(hidden_states))
        states = torch.cat((k, gate, attention_mask.unsqueeze(-1).to(k.dtype)), dim=-1)
        if cache is not None:
            states = cache.update_indexer(states, self.layer_idx)
            keys = cache.layers[self.layer_idx].get_seq_length()
        first, seen = _seen_keys(states[..., -1].bool(), queries, keys)
        seen = seen.masked_fill(~attention_mask, 0)
        rate, q = self.index_kpool, self.wq_b(q_resid).unflatten(-1, (self.n_heads, self.head_dim))
        weights = self.weights_proj(hidden_states.to(self.weights_proj.weight.dtype)).float()
        weights = weights * (self.softmax_scale * self.n_heads**-0.5)
        windows = Windows(torch.zeros_like(seen), seen // rate)
        pools = _choose(q, self.get_pooled_states(states)[0], weights, windows, self.index_topk // rate)
        return _rows_of_pools(pools, rate, first, seen, self.index_kpool_always_select_tail)

    return {"Indexer.forward": choose, "Attention.expand_kv": _keep_latent} | {
        "Attention.build_attention_mask_from_topk": _keep_lists
    }


def _qwen4_exp_hooks(rotate):
    @torch.no_grad()
    def choose(self, hidden_states, position_embeddings, attention_mask, cache):
        queries, rate = hidden_states.shape[1], self.compress_ratio
        qk = self.index_qk_proj(hidden_states).unflatten(-1, (-1, self.index_head_dim))
        q, k = qk.split((self.index_n_heads, self.index_kv_heads), dim=2)
        cos, sin = (each.expand(len(q), -1, -1) for each in position_embeddings)
        q = rotate(self.q_layernorm(q), cos=cos[:, -queries:], sin=sin[:, -queries:], unsqueeze_dim=2)
        k = k.squeeze(2)
        if cache is not None:
            k = cache.update_indexer(k, self.layer_idx)
        windows = _checked(attention_mask, q.transpose(1, 2), k.shape[1])
        seen, first = windows.end - windows.begin, windows.begin.amax(-1)
        if ((windows.begin != first[:, None]) & (seen > 0)).any():
            raise ValueError("smelt: Qwen3.8-Flash-Next's pools begin at a sequence's first key: do not pack documents")
        keys = cos.shape[1]  # a static cache has more rows, which are not filled yet
        starts = first[:, None] + torch.arange(0, keys // rate * rate, rate, device=k.device)
        rows = (starts.unsqueeze(-1) + torch.arange(rate, device=k.device)).clamp(max=keys - 1)
        batch = torch.arange(len(k), device=k.device).unsqueeze(-1)
        pools = self.k_layernorm(k[batch.unsqueeze(-1), rows].float().mean(2).to(k.dtype))
        starts = rows[..., 0]
        pools = rotate(pools.unsqueeze(1), cos=cos[batch, starts], sin=sin[batch, starts]).squeeze(1)
        weights = q.new_full(q.shape[:3], self.index_head_dim**-0.5, dtype=torch.float32)
        complete = seen // rate
        pools = _choose(q, pools, weights, Windows(torch.zeros_like(seen), complete), self.block_topk)
        if not windows.from_first or rate not in GRANULARITIES:
            return Lists(_rows_of_pools(pools, rate, first, seen, tail=True).unsqueeze(2), 1)
        pools = torch.cat((pools, complete.unsqueeze(-1)), dim=-1)  # the tail, of which rows before the limit count
        return Lists(pools.unsqueeze(2), rate, seen)

    return {"QSAIndexer.forward": choose}


def _minimax_m3_hooks(rotate):
    @torch.no_grad()
    def choose(self, hidden_states, position_embeddings, cache, position_ids):
        width = self.head_dim
        q = self.q_norm(self.q_proj(hidden_states).unflatten(-1, (-1, width)))
        k = self.k_norm(self.k_proj(hidden_states).unflatten(-1, (1, width)))
        q, k = rotate(q, k, *(each[..., :width] for each in position_embeddings), unsqueeze_dim=2)
        k = k.transpose(1, 2)
        if cache is not None:
            k = cache.layers[self.layer_idx].update_index(k)
        k = k.squeeze(1)
        blocks = -(-k.shape[1] // self.block_size)
        k = nn.functional.pad(k, (0, 0, 0, blocks * self.block_size - k.shape[1]))  # every sequence has whole blocks
        before = torch.arange(len(k), dtype=torch.int32, device=k.device).unsqueeze(-1).expand(q.shape[:2]) * blocks
        begin = before * self.block_size
        indices, _, _ = indexer_topk(
            _bf16("the indexer's query", q).flatten(0, 1), _bf16("the indexer's key", k).flatten(0, 1), None,
            begin.flatten(), (begin + position_ids + 1).int().flatten(), self.topk_blocks, offset=-before.flatten(),
            activation="none", groups=self.num_heads, block_max=self.block_size, pinned=self.local_blocks,
            backend="smelt",
        )  # fmt: skip
        return indices.view(*q.shape[:2], self.num_heads, self.topk_blocks).transpose(1, 2)

    return {"Indexer.forward": choose}


# ---- DeepSeek-V4's compressors ----------------------------------------------------------------------


def _with_previous(rows: Tensor, width: int, before: Tensor | None, empty: float) -> Tensor:
    """[B, C, 2 * rate, width] of rows [B, C, rate, 2 * width]: the first series of the window before, which is `before`
    [B, rate, width] for the first window, then the second series of the window itself."""
    first, second = rows.split(width, dim=-1)
    before = torch.full_like(first[:, 0], empty) if before is None else before.to(rows.dtype)
    return torch.cat((torch.cat((before.unsqueeze(1), first[:, :-1]), dim=1), second), dim=2)


def _compress(rotate, module, name: str, hidden_states: Tensor, layer) -> Tensor:
    """[B, C, D]: the gated mean of each whole window of compress_rate tokens, after those of the cache."""
    rate, width = module.compress_rate, module.head_dim
    kv, gate, position = module.kv_proj(hidden_states), module.gate_proj(hidden_states), 0
    if layer is not None:
        kv, gate, position = layer.store_compression_weights(name, kv, gate)
    windows = kv.shape[1] // rate
    if windows:
        kv, gate = (each[:, : windows * rate].unflatten(1, (windows, rate)) for each in (kv, gate))
        gate = gate + module.position_bias
        if kv.shape[-1] > width:
            before = (None, None) if layer is None else layer.update_overlap_state(name, kv, gate, width)
            kv = _with_previous(kv, width, before[0], 0.0)
            gate = _with_previous(gate, width, before[1], float("-inf"))
        entries = module.kv_norm((kv * gate.softmax(dim=2, dtype=torch.float32).to(kv.dtype)).sum(dim=2))
        positions = torch.arange(position, position + windows * rate, rate, device=kv.device).expand(len(kv), -1)
        cos, sin = module.rotary_emb(entries, position_ids=positions, layer_type=module.rope_layer_type)
        entries = rotate(entries.unsqueeze(1), cos, sin).squeeze(1)
    else:
        entries = kv.new_zeros((len(kv), 0, width))
    return entries if layer is None else layer.update_compressor_states(name, entries)


def _ready(position_ids: Tensor, hidden_states: Tensor, rate: int, count: int) -> Tensor:
    """int32 [B, T]: how many of `count` entries a query may see."""
    return ((position_ids + 1) // rate).clamp(max=count).to(torch.int32).expand(hidden_states.shape[:2])


def _v4_hooks(rotate):
    """The methods of the indexer and of the two compressors."""

    def layer_of(cache, layer_idx):
        return None if cache is None else cache.layers[layer_idx]

    @torch.no_grad()
    def choose(self, hidden_states, q_residual, position_ids, cache, layer_idx):
        k = _compress(rotate, self, "indexer", hidden_states, layer_of(cache, layer_idx))
        q = self.q_b_proj(q_residual).unflatten(-1, (self.num_heads, self.head_dim))
        cos, sin = self.rotary_emb(hidden_states, position_ids=position_ids, layer_type=self.rope_layer_type)
        q = rotate(q, cos, sin, unsqueeze_dim=2)
        scorer = self.scorer
        weights = scorer.weights_proj(hidden_states).float() * (scorer.weights_scaling * scorer.softmax_scale)
        end = _ready(position_ids, hidden_states, self.compress_rate, k.shape[1])
        return _choose(q, k, weights, Windows(torch.zeros_like(end), end), self.index_topk)

    def chosen_entries(self, hidden_states, q_residual, position_ids, cache, layer_idx):
        entries = _compress(rotate, self, "compressor", hidden_states, layer_of(cache, layer_idx))
        chosen = self.indexer(hidden_states, q_residual, position_ids, cache, layer_idx)
        _compressed.entries = chosen, entries.shape[1]
        return entries.unsqueeze(1), None

    def every_entry(self, hidden_states, q_residual, position_ids, cache, layer_idx):
        entries = _compress(rotate, self, "compressor", hidden_states, layer_of(cache, layer_idx))
        count = entries.shape[1]
        end = _ready(position_ids, hidden_states, self.compress_rate, count)
        if hidden_states.shape[1] == 1:  # one token after a prefill sees every entry
            end = torch.full_like(end, count)
        _compressed.entries = _sliding_lists(Windows(torch.zeros_like(end), end), count), count
        return entries.unsqueeze(1), None

    return {
        "Indexer.forward": choose,
        "CSACompressor.forward": chosen_entries,
        "HCACompressor.forward": every_entry,
    }


# ---- install ----------------------------------------------------------------------------------------


def _asks_for_smelt(module, given) -> bool:
    """Whether a hooked method runs ours; Qwen3.8-Flash-Next's indexer knows no configuration, but gets the mask."""
    config = getattr(module, "config", None) or getattr(getattr(module, "rotary_emb", None), "config", None)
    return any(isinstance(each, Windows) for each in given) if config is None else config._attn_implementation == NAME


def _hook(cls, name: str, method) -> None:
    before = cls.__dict__[name]
    known, found = (tuple(inspect.signature(each).parameters) for each in (method, before))
    if known != found:
        import transformers

        raise RuntimeError(
            f"smelt: {cls.__name__}.{name} of transformers {transformers.__version__} takes {', '.join(found)}; smelt "
            f"knows that of 5.24, which takes {', '.join(known)}"
        )

    @functools.wraps(before)
    def either(self, *args, **named):
        run = method if _asks_for_smelt(self, (*args, *named.values())) else before
        return run(self, *args, **named)

    _hooked.append((cls, name, before))
    setattr(cls, name, either)


def _hooks_of(model: str, modeling) -> tuple[str, dict, object, str]:
    """How a model's classes begin, its hooked methods, the function that attends, and its vision tower's attention."""
    rotate = getattr(modeling, "apply_rotary_pos_emb", None)
    if model in _LATENT_MODELS:
        prefix, rotation = _LATENT_MODELS[model]
        choose = _latent_indexer(getattr(modeling, rotation))
        return prefix, {"Attention.expand_kv": _keep_latent, "Indexer.forward": choose}, _attend_latent, ""
    if model == "deepseek_v4":
        return "DeepseekV4", _v4_hooks(rotate), _attend_v4, ""
    if model == "glm5_next":
        return "Glm5NextText", _glm5_next_hooks(), _attend_listed, "Glm5NextVisionAttention"
    if model == "minimax_m3_vl":
        return "MiniMaxM3VL", _minimax_m3_hooks(rotate), _attend_grouped, "MiniMaxM3VLVisionAttention"
    return "Qwen4ExpText", _qwen4_exp_hooks(rotate), _attend_grouped, "Qwen4ExpVisionAttention"


def _hook_model(model: str) -> None:
    modeling = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    prefix, hooks, attend, of_images = _hooks_of(model, modeling)
    for where, method in hooks.items():
        cls, name = where.split(".")
        _hook(getattr(modeling, prefix + cls), name, method)
    _attentions[getattr(modeling, f"{prefix}Attention")] = attend
    if of_images:
        _attentions[getattr(modeling, of_images)] = _attend_images


def install() -> None:
    """Makes attn_implementation="smelt" available in this process, for models made before and after.

    Needs Transformers 5.24 or a later release whose hooked methods take the same arguments; another one raises, and
    nothing stays hooked. A second call does nothing.
    """
    if _hooked:
        return
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    try:
        for model in _MODELS:
            _hook_model(model)
    except BaseException as error:
        uninstall()
        if isinstance(error, (AttributeError, ImportError, KeyError)):
            reason = f"smelt: this release of transformers lacks what smelt hooks; smelt knows 5.24: {error}"
            raise RuntimeError(reason) from error
        raise
    AttentionMaskInterface.register(NAME, _windows)
    AttentionInterface.register(NAME, _attend)


def uninstall() -> None:
    """Undoes `install`. A model that still asks for "smelt" then raises at its next call."""
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    for interface in (AttentionMaskInterface, AttentionInterface):
        interface._global_mapping.pop(NAME, None)
    while _hooked:
        cls, name, before = _hooked.pop()
        setattr(cls, name, before)
    _attentions.clear()
