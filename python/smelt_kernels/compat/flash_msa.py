"""flash-msa's functions that train MiniMax Sparse Attention (MSA): sparse attention, and its warm-up with dense attention.

Their contract: q_proxy [B, Hp, S, D], k_proxy [B, Hpk, S, D], q [B, H, S, D], k and v [B, Hkv, S, D], bf16, causal. Proxy head
p chooses for the heads p * H / Hp to (p + 1) * H / Hp - 1 the top_k / 128 blocks of 128 keys with the largest product, its
query's own block always. The results are out [B, S, H * D] and a loss: the mean over batches, proxy heads and queries of
the divergence of the softmax of scale * products over the keys of the chosen blocks (over all keys in the warm-up) from the
mean of the heads' attention there. It trains q_proxy and k_proxy alone, and the target has no gradient.

In addition: the loss has its value (the original returns 0 with the same gradient), any S, fewer proxy heads than KV heads,
and what the repository has added since 0.1.1: documents (`document_list`, `cu_seqlens`; the host reads them, as in the
original), and `kl_metric`, a scalar in fp32 that receives the loss's value. If a document does not begin at a multiple of
128 keys, the lists name smaller blocks, in the worst case single keys.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._checks import floating, legal_scale, number, shapes
from .._dense import indexer_dense_loss
from .._grouped_attention import GRANULARITIES, sparse_gqa
from .._indexer_training import indexer_loss, indexer_scores, sparse_scores
from .._operation import Scaling, autocast_type, refuse_transforms
from .._selection import indexer_topk
from ._conventions import check_outputs, need_dimensions
from ._cudnn_common import on_host

BLOCK = 128  # keys of a block


class _Documents:
    """Batches and documents as one row of keys: the window of each query, and the documents' first keys."""

    def __init__(self, q: Tensor, document_list: Tensor | None, cu_seqlens: Tensor | None):
        batches, _, tokens, _ = q.shape
        if document_list is not None and cu_seqlens is not None:
            raise ValueError("smelt: document_list and cu_seqlens must not be given together")
        last = torch.arange(batches * tokens, dtype=torch.int32, device=q.device)
        begin = last // max(tokens, 1) * tokens
        self.firsts = list(range(0, batches * tokens, max(tokens, 1)))
        if document_list is not None:
            shapes(q=(q, "BHTD"), document_list=(document_list, "BT"))
            if document_list.is_floating_point() or document_list.is_complex():
                raise TypeError(f"smelt: document_list must be of an integer type, not {document_list.dtype}")
            first = torch.ones_like(document_list, dtype=torch.bool)
            first[:, 1:] = document_list[:, 1:] != document_list[:, :-1]
            self.firsts = first.flatten().nonzero().flatten().tolist()
            if len(self.firsts) > sum(len(each.unique()) for each in document_list):
                raise ValueError(
                    "smelt: document_list must have each document's queries one after another: give the separate parts "
                    "of a document different numbers"
                )
        elif cu_seqlens is not None:
            need_dimensions(cu_seqlens=(cu_seqlens, 1))
            firsts = on_host("cu_seqlens", cu_seqlens, batches * tokens)
            if not {*self.firsts, batches * tokens} <= {*firsts} or firsts[0] != 0:
                raise ValueError(
                    f"smelt: cu_seqlens must have every batch's first query and end with {batches * tokens}: {firsts}"
                )
            self.firsts = sorted({*firsts} - {batches * tokens})
        if len(self.firsts) > batches:
            starts = torch.zeros_like(last)
            starts[self.firsts] = last[self.firsts]
            begin = starts.cummax(0).values
        self.begin, self.end, self.batches, self.tokens = begin, last + 1, batches, tokens

    def granularity(self) -> int:
        """The largest one of which every document begins at a multiple within its batch."""
        step = math.gcd(BLOCK, *(first % self.tokens for first in self.firsts))
        return max(each for each in GRANULARITIES if step % each == 0)


def _check(q_proxy: Tensor, k_proxy: Tensor, q: Tensor, k: Tensor, v: Tensor, scale, kl_metric: Tensor | None) -> float:
    """Checks the arguments that both functions have. Returns the scale as a float."""
    refuse_transforms("flash_msa")
    proxies = {"q_proxy": (q_proxy, "BPSD"), "k_proxy": (k_proxy, "BJSD")}
    shapes(**proxies, q=(q, "BHSD"), k=(k, "BKSD"), v=(v, "BKSD"))
    _need_types(q_proxy=q_proxy, k_proxy=k_proxy)
    _need_types(q=q, k=k, v=v)
    check_outputs(q.device, kl_metric=(kl_metric, (), torch.float32))
    scale = float(number(scale, "scale"))
    legal_scale(scale)
    for many, few, what in (
        (q_proxy, k_proxy, "q_proxy's heads must be a multiple of k_proxy's"),
        (q, k, "q's heads must be a multiple of k's"),
        (q, q_proxy, "q's heads must be a multiple of q_proxy's"),
    ):
        if not many.shape[1] or not few.shape[1] or many.shape[1] % few.shape[1]:
            raise ValueError(f"smelt: {what}: {many.shape[1]} and {few.shape[1]}")
    proxy_heads, kv_heads = q_proxy.shape[1], k.shape[1]
    if proxy_heads % kv_heads and kv_heads % proxy_heads:
        raise ValueError(f"smelt: one of the {proxy_heads} proxy heads and {kv_heads} KV heads must divide the other")
    return scale


def _need_types(**given: Tensor) -> None:
    """Checks tensors that a kernel reads together: on one device, and all bf16, all fp16 or, under autocast, of any
    floating types."""
    first = next(iter(given.values()))
    kind = torch.float16 if first.dtype is torch.float16 else torch.bfloat16
    for name, each in given.items():
        if each.device != first.device:
            raise ValueError(f"smelt: {name} must be on {first.device} as the others are, not on {each.device}")
        if autocast_type(first) is not None:
            floating(**{name: each})
        elif each.dtype is not kind:
            raise TypeError(f"smelt: {name} must be {kind}, not {each.dtype}")


def _packed(heads: Tensor) -> Tensor:
    """[B, heads, S, D] as [B * S, heads, D]."""
    return heads.transpose(1, 2).flatten(0, 1)


@torch.no_grad()
def _choose(q_proxy: Tensor, k_proxy: Tensor, documents: _Documents, count: int) -> Tensor:
    """int32 [B * S, Hp, count]: numbers of blocks within a batch, -1 after the last."""
    tokens = documents.tokens
    blocks = -(-tokens // BLOCK)
    keys = torch.nn.functional.pad(k_proxy, (0, 0, 0, blocks * BLOCK - tokens))  # a batch begins at a block
    batch = documents.begin // max(tokens, 1)
    moved = batch * (blocks * BLOCK - tokens)
    parts = []
    for queries, some in zip(q_proxy.chunk(k_proxy.shape[1], dim=1), keys.unbind(1)):
        chosen, _, _ = indexer_topk(
            _packed(queries), some.flatten(0, 1), None, documents.begin + moved, documents.end + moved, count,
            offset=-batch * blocks, activation="none", groups=queries.shape[1], block_max=BLOCK, pinned=1,
            backend="smelt",
        )  # fmt: skip
        parts.append(chosen.view(-1, queries.shape[1], count))
    return torch.cat(parts, dim=1)


def _divided(blocks: Tensor, granularity: int, documents: _Documents) -> Tensor:
    """Lists of blocks [B * S, .., count] as lists of entries of `granularity` keys, -1 where these are not in the query's
    document or lie after the query."""
    parts = BLOCK // granularity
    entries = (blocks * parts).unsqueeze(-1) + torch.arange(parts, dtype=torch.int32, device=blocks.device)
    first = documents.begin // max(documents.tokens, 1) * documents.tokens
    begin, end = ((each - first).view(-1, 1, 1, 1) for each in (documents.begin, documents.end))
    seen = (blocks.unsqueeze(-1) >= 0) & (entries * granularity >= begin) & (entries * granularity < end)
    return entries.masked_fill(~seen, -1).flatten(-2)


_scaling = Scaling("flash_msa", ("dq", "dk"))


class _Trained(torch.autograd.Function):
    """A loss with gradients that are known already."""

    @staticmethod
    def forward(ctx, loss, dq, dk, q, k):
        ctx.save_for_backward(dq, dk)
        return loss.clone()

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, *_scaling.flow(grad, None, *ctx.saved_tensors)


def _loss(q_proxy: Tensor, k_proxy: Tensor, kl_metric: Tensor | None, step: int, of_heads) -> Tensor:
    """The sum of of_heads(proxy heads, their queries, their keys) over parts of `step` proxy heads, with its gradients. Its
    value is also written to kl_metric."""
    trained = torch.is_grad_enabled() and (q_proxy.requires_grad or k_proxy.requires_grad)
    total, (dq, dk) = 0, (torch.zeros_like(each, dtype=torch.float32) for each in (q_proxy, k_proxy))
    per_key = q_proxy.shape[1] // k_proxy.shape[1]
    for first in range(0, q_proxy.shape[1], step):
        heads, key = slice(first, first + step), first // per_key
        with torch.set_grad_enabled(trained):
            leaves = [each.detach().requires_grad_(trained) for each in (q_proxy[:, heads], k_proxy[:, key])]
            loss = of_heads(heads, _packed(leaves[0]), leaves[1].flatten(0, 1))
        if trained:
            grads = torch.autograd.grad(loss, leaves)
            dq[:, heads] += grads[0]
            dk[:, key] += grads[1]
        total = total + loss.detach()
    if kl_metric is not None:
        kl_metric.detach().copy_(total)
    return _Trained.apply(total, dq.to(q_proxy.dtype), dk.to(k_proxy.dtype), q_proxy, k_proxy) if trained else total


def flash_msa_func(
    q_proxy: Tensor, k_proxy: Tensor, q: Tensor, k: Tensor, v: Tensor, top_k: int, scale: float,
    document_list: Tensor | None = None, *, cu_seqlens: Tensor | None = None, kl_metric: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out, loss); top_k counts keys, a multiple of 128."""
    scale, top_k = _check(q_proxy, k_proxy, q, k, v, scale, kl_metric), number(top_k, "top_k")
    if top_k < BLOCK or top_k % BLOCK:
        raise ValueError(f"smelt: top_k must be a positive multiple of {BLOCK}, not {top_k}")
    documents = _Documents(q, document_list, cu_seqlens)
    batches, tokens, proxy_heads = documents.batches, documents.tokens, q_proxy.shape[1]
    blocks = _choose(q_proxy, k_proxy, documents, int(top_k) // BLOCK)
    granularity = documents.granularity()
    lists = _divided(blocks, granularity, documents)
    copies = proxy_heads // k.shape[1]
    keys, values = (each.repeat_interleave(copies, dim=1) if copies > 1 else each for each in (k, v))
    if proxy_heads < k.shape[1]:
        lists = lists.repeat_interleave(k.shape[1] // proxy_heads, dim=1)
    limit = torch.arange(1, tokens + 1, dtype=torch.int32, device=q.device).expand(batches, -1)
    attended = (each.transpose(1, 2) for each in (q, keys, values))
    named = {"granularity": granularity, "limit": limit, "unite": True, "return_lse": True, "backend": "smelt"}
    out, lse = sparse_gqa(*attended, lists.unflatten(0, (batches, tokens)), scale, **named)

    per_proxy, per_key = q.shape[1] // proxy_heads, q.shape[1] // k.shape[1]
    first = documents.begin // max(tokens, 1) * tokens
    lse = lse.flatten(0, 1)
    share = {"query_weight": 1.0 / max(1, batches * proxy_heads * tokens), "backend": "smelt"}

    def of_heads(proxies, queries, index_keys):
        rows = _divided(blocks[:, proxies], 1, documents).squeeze(1)
        rows = torch.where(rows < 0, -1, rows + first.unsqueeze(1))
        target = 0
        heads = range(proxies.start * per_proxy, proxies.stop * per_proxy)
        for kv_head in sorted({each // per_key for each in heads}):
            mine = [each for each in heads if each // per_key == kv_head]
            part = slice(mine[0], mine[-1] + 1)
            given = _packed(q.detach()[:, part]), k.detach()[:, kv_head].flatten(0, 1), rows, lse[:, part].contiguous()
            target = target + sparse_scores(*given, scale, dv=k.shape[-1], backend="smelt")
        named = {"activation": "none", "scale": scale, "dk_dtype": torch.float32, "backend": "smelt"}
        logits = indexer_scores(queries, index_keys, None, rows, **named)
        return indexer_loss(logits, target, rows, **share)

    return out.flatten(2), _loss(q_proxy, k_proxy, kl_metric, 1, of_heads)  # a head at a time: its lists name single keys


def flash_msa_warmup_func(
    q_proxy: Tensor, k_proxy: Tensor, q: Tensor, k: Tensor, v: Tensor, top_k: int, scale: float,
    document_list: Tensor | None = None, *, cu_seqlens: Tensor | None = None, kl_metric: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out, loss) of dense attention, which is PyTorch's; the loss runs on smelt. top_k has no effect."""
    scale = _check(q_proxy, k_proxy, q, k, v, scale, kl_metric)
    documents = _Documents(q, document_list, cu_seqlens)
    batches, tokens, proxy_heads = documents.batches, documents.tokens, q_proxy.shape[1]
    ends = [*documents.firsts[1:], batches * tokens]
    out = [
        torch.nn.functional.scaled_dot_product_attention(
            *(each[batch : batch + 1, :, begin : begin + length] for each in (q, k, v)),
            is_causal=True,
            scale=scale,
            enable_gqa=True,
        )
        for batch, begin, length in (
            (first // tokens, first % tokens, last - first) for first, last in zip(documents.firsts, ends)
        )
    ]
    out = torch.cat(out, dim=2).transpose(1, 2).reshape(batches, tokens, -1) if out else q.transpose(1, 2).flatten(2)

    per_proxy = q.shape[1] // proxy_heads
    per_key = q.shape[1] // k.shape[1]
    share = {"query_weight": 1.0 / max(1, batches * proxy_heads * tokens), "backend": "smelt"}

    def of_heads(proxies, queries, index_keys):
        part = slice(proxies.start * per_proxy, proxies.stop * per_proxy)
        read = slice(part.start // per_key, (part.stop - 1) // per_key + 1)
        attended = _packed(q.detach()[:, part]), _packed(k.detach()[:, read])
        scored = queries, index_keys, queries.new_full(queries.shape[:2], scale, dtype=torch.float32)
        named = {"activation": "none", "groups": queries.shape[1], "dk_dtype": torch.float32, **share}
        windows = documents.begin, documents.end
        return indexer_dense_loss(*attended, None, *scored, *windows, scale, **named)

    proxy_keys = k_proxy.shape[1]
    whole = k.shape[1] % proxy_keys == 0 or proxy_keys % k.shape[1] == 0  # a proxy key's heads read whole KV heads, or one
    return out, _loss(q_proxy, k_proxy, kl_metric, proxy_heads // proxy_keys if whole else 1, of_heads)


flash_msa_func_warmup = sparse_attention_warmup = flash_msa_warmup_func
