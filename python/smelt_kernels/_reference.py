"""The eager reference: what the operators mean, in plain PyTorch, differentiable by autograd.

It runs anywhere and in any floating type, computes in fp32 (fp64 of fp64), and is slow: every query's
rows are gathered.
"""

from __future__ import annotations

import functools

import torch
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = 1 << 28  # of gathered rows


def in_its_own_types(function):
    """Autocast is the caller's: here products are in the types that are named. The first argument is a tensor."""

    @functools.wraps(function)
    def run(*given, **named):
        first = given[0] if given else next(iter(named.values()))
        with torch.autocast(first.device.type, enabled=False):
            return function(*given, **named)

    return run


def valid_slots(indices, rows, topk_length=None, topk=None):
    """The slots that name a row, of which the first `topk` count: bool, of the shape of `indices`."""
    valid = (indices >= 0) & (indices < rows)
    if topk_length is not None:
        slots = torch.arange(indices.shape[-1], device=indices.device)
        valid = valid & (slots < topk_length.unsqueeze(-1))
    if topk is not None and topk < indices.shape[-1]:
        valid = valid & (valid.cumsum(-1) <= topk)
    return valid


def _gathered(rows, indices, valid):
    """The rows that [B, t] queries' slots name, and which these are; a masked one names the last row, of zeros."""
    batch = torch.arange(rows.shape[0], device=rows.device)[:, None, None]
    slots = torch.where(valid, indices.long(), rows.shape[1] - 1)
    return rows[batch, slots], slots + batch * rows.shape[1]


def _probabilities(q, gathered, valid, sink, scale):
    """Those of the slots and of the sink (0 without one), the log-sum-exp of the first and their largest score."""
    scores = torch.einsum("bthd,btwd->bthw", q, gathered) * scale
    scores = scores.masked_fill(~valid.unsqueeze(2), float("-inf"))
    highest = (
        scores.detach().amax(-1, keepdim=True)
        if scores.shape[-1]
        else scores.new_full((*scores.shape[:-1], 1), float("-inf"))
    )
    shift = torch.where(highest == float("-inf"), torch.zeros_like(highest), highest)
    weights = torch.exp(scores - shift)
    total = weights.sum(-1, keepdim=True)
    lse = shift + torch.log(total.detach())
    beside = torch.zeros_like(total) if sink is None else torch.exp(sink[:, None] - shift)
    whole = total + beside
    whole = torch.where(whole == 0, torch.ones_like(whole), whole)
    return weights / whole, beside / whole, lse.squeeze(-1), highest.squeeze(-1)


def _chunk(q, rows, indices, valid, sink, scale, dv):
    """Of [B, t] queries."""
    gathered, _ = _gathered(rows, indices, valid)
    probabilities, _, lse, highest = _probabilities(q, gathered, valid, sink, scale)
    return torch.einsum("bthw,btwd->bthd", probabilities, gathered[..., :dv]), lse, highest


def _prepared(q, kv, indices, topk_length, topk, sink):
    """In a type of 32 bits or more: kv with a row of zeros behind its last one, and the sink. Then the slots that
    count, and slices of as many queries as fit into CHUNK_BYTES."""
    kind = torch.promote_types(q.dtype, torch.float32)
    valid = valid_slots(indices, kv.shape[1], topk_length, topk)
    rows = torch.cat([kv, kv.new_zeros((kv.shape[0], 1, kv.shape[2]))], 1).to(kind)
    a_query = max(1, q.shape[0] * indices.shape[-1] * kv.shape[-1] * rows.element_size())
    step = max(1, CHUNK_BYTES // a_query)
    parts = [slice(begin, begin + step) for begin in range(0, max(1, q.shape[1]), step)]
    return kind, rows, None if sink is None else sink.to(kind), valid, parts


@in_its_own_types
def sparse_attention(q, kv, indices, scale, dv, *, topk_length=None, sink=None, topk=None):
    """out, lse and max_logits of q [.., T, H, D], kv [.., S, D], indices [.., T, W]."""
    packed = q.dim() == 3
    if packed:
        q, kv, indices = q.unsqueeze(0), kv.unsqueeze(0), indices.unsqueeze(0)
        topk_length = None if topk_length is None else topk_length.unsqueeze(0)
    kind, rows, wide, valid, slices = _prepared(q, kv, indices, topk_length, topk, sink)
    parts = []
    for part in slices:
        inputs = (q[:, part].to(kind), rows, indices[:, part], valid[:, part], wide, scale, dv)
        again = torch.is_grad_enabled() and len(slices) > 1
        parts.append(checkpoint(_chunk, *inputs, use_reentrant=False) if again else _chunk(*inputs))
    out, lse, max_logits = (torch.cat(each, 1) for each in zip(*parts))
    if packed:
        out, lse, max_logits = out.squeeze(0), lse.squeeze(0), max_logits.squeeze(0)
    return out.to(q.dtype), lse.float().detach(), max_logits.float().detach()


@in_its_own_types
def sparse_scores(q, kv, indices, lse, scale, *, topk_length=None, sink=None):
    """Probabilities at the slots, summed over heads; shapes as sparse_attention's."""
    if q.dim() == 3:
        lead = [t.unsqueeze(0) for t in (q, kv, indices, lse)]
        length = None if topk_length is None else topk_length.unsqueeze(0)
        return sparse_scores(*lead, scale, topk_length=length, sink=sink).squeeze(0)
    kind = torch.promote_types(q.dtype, torch.float32)
    valid = valid_slots(indices, kv.shape[1], topk_length)
    rows = torch.cat([kv, kv.new_zeros((kv.shape[0], 1, kv.shape[2]))], 1).to(kind)
    total = lse.to(kind) if sink is None else torch.logaddexp(lse.to(kind), sink.to(kind))
    batch = torch.arange(q.shape[0], device=q.device)[:, None]
    target = torch.zeros(indices.shape, dtype=kind, device=q.device)
    for query in range(q.shape[1]):
        slots = torch.where(valid[:, query], indices[:, query].long(), kv.shape[1])
        scores = torch.einsum("bhd,bwd->bhw", q[:, query].to(kind), rows[batch, slots]) * scale
        shares = torch.exp(scores - total[:, query].unsqueeze(-1)).sum(1)
        target[:, query] = shares.masked_fill(~valid[:, query], 0.0)
    return target if kind is torch.float64 else target.float()


@in_its_own_types
def sparse_attention_backward(grad_out, q, kv, indices, scale, dv, *, topk_length=None, sink=None, topk=None):
    """dq, dkv (as it was summed, in fp32 or fp64) and dsink (None without a sink). Not by autograd, which is out of reach
    in an operator's kernel."""
    if q.dim() == 3:
        lead = [t.unsqueeze(0) for t in (grad_out, q, kv, indices)]
        length = None if topk_length is None else topk_length.unsqueeze(0)
        options = {"topk_length": length, "sink": sink, "topk": topk}
        dq, dkv, dsink = sparse_attention_backward(*lead, scale, dv, **options)
        return dq.squeeze(0), dkv.squeeze(0), dsink
    kind, rows, wide, valid, slices = _prepared(q, kv, indices, topk_length, topk, sink)
    dkv, dqs, dsink = torch.zeros_like(rows), [], rows.new_zeros(q.shape[2])
    for part in slices:
        queries, grad = q[:, part].to(kind), grad_out[:, part].to(kind)
        gathered, slots = _gathered(rows, indices[:, part], valid[:, part])
        p, beside, _, _ = _probabilities(queries, gathered, valid[:, part], wide, scale)
        dp = torch.einsum("bthd,btwd->bthw", grad, gathered[..., :dv])
        delta = (p * dp).sum(-1, keepdim=True)
        ds = p * (dp - delta) * scale
        dqs.append(torch.einsum("bthw,btwd->bthd", ds, gathered))
        by_slot = torch.einsum("bthw,bthd->btwd", ds, queries)
        by_slot[..., :dv] += torch.einsum("bthw,bthd->btwd", p, grad)
        dkv.flatten(0, 1).index_add_(0, slots.flatten(), by_slot.flatten(0, 2))
        dsink -= (beside * delta).sum((0, 1, 3))
    dq = torch.cat(dqs, 1).to(q.dtype)
    return dq, dkv[:, :-1].contiguous(), None if sink is None else dsink.to(sink.dtype)


def block_rows(indices, granularity, rows, topk_length=None, limit=None):
    """The rows that entries of granularity rows name, [..., G, width * granularity], and which of them count."""
    entries = valid_slots(indices, -(-rows // granularity), topk_length)
    within = torch.arange(granularity, device=indices.device)
    named = (indices.long().unsqueeze(-1) * granularity + within).flatten(-2)
    end = rows if limit is None else limit.clamp(0, rows).long()[..., None, None]
    return named, entries.repeat_interleave(granularity, -1) & (named < end)


def _gqa_chunk(q, k, v, named, valid, sink, scale):
    """Of [B, t] queries; k and v end in a row of zeros."""
    kv_heads = k.shape[2]
    batch = torch.arange(k.shape[0], device=k.device)[:, None, None]
    outs, sums = [], []
    for head in range(kv_heads):
        of = min(head, named.shape[2] - 1)
        rows = torch.where(valid[:, :, of], named[:, :, of], k.shape[1] - 1)
        group = slice(head * q.shape[2] // kv_heads, (head + 1) * q.shape[2] // kv_heads)
        own = None if sink is None else sink[group]
        p, _, lse, _ = _probabilities(q[:, :, group], k[batch, rows, head], valid[:, :, of], own, scale)
        outs.append(torch.einsum("bthw,btwd->bthd", p, v[batch, rows, head]))
        sums.append(lse)
    return torch.cat(outs, 2), torch.cat(sums, 2)


@in_its_own_types
def sparse_gqa_scores(q, k, lse, indices, scale, granularity, topk_length=None, limit=None, sink=None):
    """Probabilities at the entries, summed over a list's heads and an entry's rows; shapes as sparse_gqa's."""
    if q.dim() == 3:
        options = (each if each is None else each.unsqueeze(0) for each in (topk_length, limit))
        lead = (each.unsqueeze(0) for each in (q, k, lse, indices))
        return sparse_gqa_scores(*lead, scale, granularity, *options, sink).squeeze(0)
    kind, lists = torch.promote_types(q.dtype, torch.float32), indices.shape[2]
    named, valid = block_rows(indices, granularity, k.shape[1], topk_length, limit)
    keys = torch.cat([k, k.new_zeros((k.shape[0], 1, *k.shape[2:]))], 1).to(kind)
    total = lse.to(kind) if sink is None else torch.logaddexp(lse.to(kind), sink.to(kind))
    batch = torch.arange(q.shape[0], device=q.device)[:, None]
    target = torch.zeros(indices.shape, dtype=kind, device=q.device)
    for query in range(q.shape[1]):
        for head in range(q.shape[2]):
            kv_head = head * k.shape[2] // q.shape[2]
            of = kv_head if lists > 1 else 0
            rows = torch.where(valid[:, query, of], named[:, query, of], k.shape[1])
            scores = torch.einsum("bd,bwd->bw", q[:, query, head].to(kind), keys[batch, rows, kv_head]) * scale
            shares = torch.exp(scores - total[:, query, head, None]).masked_fill(~valid[:, query, of], 0.0)
            target[:, query, of] += shares.unflatten(-1, (-1, granularity)).sum(-1)
    return target if kind is torch.float64 else target.float()


@in_its_own_types
def sparse_gqa(q, k, v, indices, scale, granularity, topk_length=None, limit=None, sink=None):
    """out and lse of q [.., T, Hq, D], k [.., S, Hkv, D], v [.., S, Hkv, Dv], indices [.., T, G, W]."""
    packed = q.dim() == 3
    if packed:
        q, k, v, indices = (each.unsqueeze(0) for each in (q, k, v, indices))
        topk_length, limit = (each if each is None else each.unsqueeze(0) for each in (topk_length, limit))
    kind = torch.promote_types(q.dtype, torch.float32)
    named, valid = block_rows(indices, granularity, k.shape[1], topk_length, limit)
    zeros = [torch.cat([each, each.new_zeros((each.shape[0], 1, *each.shape[2:]))], 1).to(kind) for each in (k, v)]
    a_query = max(1, q.shape[0] * named.shape[-1] * (k.shape[-1] + v.shape[-1]) * zeros[0].element_size())
    step, parts = max(1, CHUNK_BYTES // a_query), []
    for begin in range(0, max(1, q.shape[1]), step):
        part = slice(begin, begin + step)
        inputs = (q[:, part].to(kind), *zeros, named[:, part], valid[:, part], None if sink is None else sink.to(kind), scale)
        again = torch.is_grad_enabled() and q.shape[1] > step
        parts.append(checkpoint(_gqa_chunk, *inputs, use_reentrant=False) if again else _gqa_chunk(*inputs))
    out, lse = (torch.cat(each, 1) for each in zip(*parts))
    if packed:
        out, lse = out.squeeze(0), lse.squeeze(0)
    return out.to(q.dtype), lse.float().detach()
