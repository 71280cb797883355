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

Nothing falls back to the models' own attention: what smelt does not have raises.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect

import torch
from torch import Tensor, nn

from .._indexer import indexer_topk
from .._operation import autocast_type
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
_V4 = "deepseek_v4"
_MODELS = (*_LATENT_MODELS, _V4)

_attentions: dict = {}  # of the classes of attention that are hooked: the function that attends
_hooked: list = []  # (class, method's name, the method before)


@dataclasses.dataclass(frozen=True)
class Windows:
    """A mask: query t of batch b sees the keys begin[b, t] .. end[b, t] - 1 (int32 [B, T])."""

    begin: Tensor
    end: Tensor

    def __getitem__(self, _) -> Windows:
        """Models cut the dimension of heads out of a mask."""
        return self

    def to(self, *args, **named) -> Windows:
        """For models that lie on several devices."""
        return Windows(self.begin.to(*args, **named), self.end.to(*args, **named))


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

    if config.model_type not in _MODELS:
        raise ValueError(f"smelt: attn_implementation='{NAME}' serves {', '.join(_MODELS)}, not {config.model_type}")
    rows = max(1, MASK_BYTES // max(1, batch_size * kv_length))
    parts = []
    for first in range(0, q_length, rows):
        mask = sdpa_mask(
            batch_size,
            min(rows, q_length - first),
            kv_length,
            q_offset=q_offset + first,
            allow_is_causal_skip=False,
            **named,
        )
        parts.append(_read_windows(mask[:, 0], first))
    return Windows(*(torch.cat(each, dim=1) for each in zip(*parts)))


def _checked(mask, query: Tensor) -> Windows:
    """The windows of `query` [B, H, T, D]."""
    if not isinstance(mask, Windows):
        raise TypeError(
            f"smelt: attn_implementation='{NAME}' takes attention_mask [batch, keys] or None, and no matrix "
            f"queries x keys; it is {type(mask).__name__}"
        )
    if mask.end.shape != (query.shape[0], query.shape[2]):
        raise ValueError(
            f"smelt: the mask is of {tuple(mask.end.shape)} queries, the query of {(query.shape[0], query.shape[2])}"
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
    return attend(module, query, key, value, _checked(attention_mask, query), scaling, **named), None


def _join(latent: Tensor, rope: Tensor) -> Tensor:
    """Rows of the width that the kernels have: ROPE_COLUMNS after the latent ones, of which zeros change no product."""
    if rope.shape[-1] < ROPE_COLUMNS:
        rope = nn.functional.pad(rope, (0, ROPE_COLUMNS - rope.shape[-1]))
    return torch.cat((latent, rope), dim=-1)


def _attend_latent(module, query, latent, rope, windows, scaling, indices, **_):
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
        _bf16("the latent KV", _join(latent, rope).squeeze(1)),
        indices,
        scaling,
        dv=latent.shape[-1],
        backend="smelt",
    )
    return torch.einsum("bthr,hvr->bthv", out, value_weight)


def _keep_latent(self, kv_nope, k_rot):
    return kv_nope, k_rot


def _attend_v4(module, query, kv, _, windows, scaling, sliding_window, s_aux, **_named):
    """kv [B, 1, S + C, D]: keys of the sliding window, then the compressor's entries."""
    lists = _sliding_lists(windows, sliding_window)
    if module.compressor is not None:
        entries, count = module.compressor.__dict__.pop("smelt_entries")
        lists = torch.cat((lists, torch.where(entries < 0, -1, entries + (kv.shape[2] - count))), dim=-1)
    return sparse_attention(
        _bf16("the query", query.transpose(1, 2)),
        _bf16("kv", kv.squeeze(1)),
        lists,
        scaling,
        dv=kv.shape[-1],
        sink=s_aux,
        backend="smelt",
    )


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
    before = (torch.arange(batches, dtype=torch.int32, device=k.device) * keys).repeat_interleave(q.shape[1])
    indices, _, _ = indexer_topk(
        _bf16("the indexer's query", q).flatten(0, 1),
        _bf16("the indexer's key", k).flatten(0, 1),
        weights.float().flatten(0, 1),
        windows.begin.flatten() + before,
        windows.end.flatten() + before,
        topk,
        offset=-before,
        backend="smelt",
    )
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
        windows = _checked(attention_mask, q.transpose(1, 2))
        return _choose(q, k, weights * (self.softmax_scale * self.n_heads**-0.5), windows, self.index_topk)

    return choose


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
        if not k.shape[1]:
            return torch.empty((*q.shape[:2], 0), dtype=torch.int32, device=q.device)
        scorer = self.scorer
        weights = scorer.weights_proj(hidden_states).float() * (scorer.weights_scaling * scorer.softmax_scale)
        end = _ready(position_ids, hidden_states, self.compress_rate, k.shape[1])
        return _choose(q, k, weights, Windows(torch.zeros_like(end), end), self.index_topk)

    def chosen_entries(self, hidden_states, q_residual, position_ids, cache, layer_idx):
        entries = _compress(rotate, self, "compressor", hidden_states, layer_of(cache, layer_idx))
        chosen = self.indexer(hidden_states, q_residual, position_ids, cache, layer_idx)
        self.smelt_entries = chosen, entries.shape[1]
        return entries.unsqueeze(1), None

    def every_entry(self, hidden_states, q_residual, position_ids, cache, layer_idx):
        entries = _compress(rotate, self, "compressor", hidden_states, layer_of(cache, layer_idx))
        count = entries.shape[1]
        end = _ready(position_ids, hidden_states, self.compress_rate, count)
        if hidden_states.shape[1] == 1:  # one token after a prefill sees every entry
            end = torch.full_like(end, count)
        self.smelt_entries = _sliding_lists(Windows(torch.zeros_like(end), end), count), count
        return entries.unsqueeze(1), None

    return {"Indexer": choose, "CSACompressor": chosen_entries, "HCACompressor": every_entry}


# ---- install ----------------------------------------------------------------------------------------


def _hook(cls, name: str, method, config_of) -> None:
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
        run = method if config_of(self)._attn_implementation == NAME else before
        return run(self, *args, **named)

    _hooked.append((cls, name, before))
    setattr(cls, name, either)


def _hook_latent(model: str, modeling) -> None:
    prefix, rotation = _LATENT_MODELS[model]
    attention = getattr(modeling, f"{prefix}Attention")
    _hook(attention, "expand_kv", _keep_latent, lambda self: self.config)
    choose = _latent_indexer(getattr(modeling, rotation))
    _hook(getattr(modeling, f"{prefix}Indexer"), "forward", choose, lambda self: self.config)
    _attentions[attention] = _attend_latent


def _hook_v4(modeling) -> None:
    for name, method in _v4_hooks(modeling.apply_rotary_pos_emb).items():
        _hook(getattr(modeling, f"DeepseekV4{name}"), "forward", method, lambda self: self.rotary_emb.config)
    _attentions[modeling.DeepseekV4Attention] = _attend_v4


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
            modeling = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
            if model == _V4:
                _hook_v4(modeling)
            else:
                _hook_latent(model, modeling)
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
