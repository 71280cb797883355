"""sparse_gqa compared with dense attention in double precision, masked to the rows that the lists name."""

import pytest
import smelt_kernels as smelt
import torch

SCALE = 0.13


def made(device, granularity, lists, tokens=6, rows=70, heads=4, kv_heads=2, dqk=64, dv=64, seed=0, lead=()):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*lead, *shape, generator=generator).to(device, torch.bfloat16).requires_grad_()

    q, k, v = normal(tokens, heads, dqk), normal(rows, kv_heads, dqk), normal(rows, kv_heads, dv)
    entries = -(-rows // granularity)
    indices = torch.randint(-1, entries + 1, (*lead, tokens, lists, 5), generator=generator).to(device, torch.int32)
    indices[..., 2, :, :] = -1
    limit = torch.randint(1, rows + 9, (*lead, tokens), generator=generator).to(device, torch.int32)
    sink = torch.randn(heads, generator=generator).to(device).requires_grad_()
    return q, k, v, indices, limit, sink


def counts(indices, granularity, rows, limit, kv_heads, topk_length=None):
    """How often each KV head's list names each row: [..., T, Hkv, rows]."""
    found = torch.zeros(*indices.shape[:-1], rows + granularity, dtype=torch.float64, device=indices.device)
    for slot in range(indices.shape[-1]):
        entry = indices[..., slot].long()
        good = (entry >= 0) & (entry * granularity < rows)
        if topk_length is not None:
            good &= slot < topk_length
        for offset in range(granularity):
            row = torch.where(good, entry * granularity + offset, torch.full_like(entry, rows))
            found.scatter_add_(-1, row.clamp(max=rows).unsqueeze(-1), torch.ones_like(found[..., :1]))
    found = found[..., :rows]
    if limit is not None:
        found = found * (torch.arange(rows, device=indices.device) < limit[..., None, None])
    return found.expand(*found.shape[:-2], kv_heads, rows)


def true_attention(q, k, v, times, sink):
    group = q.shape[-2] // k.shape[-2]
    k, v, times = (each.repeat_interleave(group, -2) for each in (k, v, times))
    scores = torch.einsum("...thd,...shd->...ths", q, k) * SCALE + times.log()
    total = scores if sink is None else torch.cat([scores, sink[:, None].expand(*scores.shape[:-1], 1)], -1)
    empty = times.sum(-1, keepdim=True) == 0
    p = total.masked_fill(empty, 0).softmax(-1)[..., : scores.shape[-1]].masked_fill(empty, 0)
    return torch.einsum("...ths,...shd->...thd", p, v), scores.logsumexp(-1)


def close(got, wanted, tolerance):
    assert (got.double() - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize("lists", [1, 2], ids=["shared", "kv"])
@pytest.mark.parametrize("granularity", [1, 4, 16])
def test_against_dense(device, backend, lists, granularity):
    q, k, v, indices, limit, sink = inputs = made(device, granularity, lists)
    out, lse = smelt.sparse_gqa(
        q, k, v, indices, SCALE, granularity=granularity, limit=limit, sink=sink, return_lse=True, backend=backend
    )
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(device, torch.bfloat16)
    out.backward(grad)
    times = counts(indices, granularity, k.shape[0], limit, 2)
    leaves = [each.detach().double().requires_grad_() for each in (q, k, v, sink)]
    wanted, sums = true_attention(*leaves[:3], times, leaves[3])
    wanted.backward(grad.double())
    close(out, wanted, 5e-3)
    assert (out[2] == 0).all() and (lse[2] == float("-inf")).all()
    torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=1e-4)
    for each, true in zip((q, k, v, sink), leaves):
        close(each.grad, true.grad, 1e-2)
    assert all(each.grad.dtype is each.dtype for each in (*inputs[:3], sink))


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_batches_and_lengths(device, backend):
    q, k, v, indices, limit, _ = made(device, 4, 2, lead=(2,))
    lengths = torch.tensor([[[0, 3], [5, 5], [1, -2], [9, 2], [3, 3], [4, 1]]] * 2, dtype=torch.int32, device=device)
    named = {"granularity": 4, "limit": limit, "topk_length": lengths, "backend": backend}
    out = smelt.sparse_gqa(q, k, v, indices, SCALE, unite=True, **named)
    times = counts(indices, 4, k.shape[1], limit, 2, lengths)
    close(out, true_attention(q.double(), k.double(), v.double(), times, None)[0], 5e-3)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_query_list(device, backend):
    q, k, v, indices, _, _ = made(device, 4, 1)
    queries = torch.tensor([4, 0, -1], dtype=torch.int32, device=device)
    whole = smelt.sparse_gqa(q, k, v, indices, SCALE, granularity=4, backend=backend)
    part = smelt.sparse_gqa(q, k, v, indices, SCALE, granularity=4, queries=queries, backend=backend)
    named = torch.tensor([0, 4], device=device)
    assert torch.equal(part[named], whole[named]) and not part[1].any()


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize("lists", [1, 2], ids=["shared", "kv"])
def test_scores(device, backend, lists):
    """The sum over heads and an entry's rows of the softmax of the rows that the lists name."""
    granularity, lead = 16, (2,)
    q, k, _, indices, limit, sink = made(device, granularity, lists, lead=lead)
    named = {"granularity": granularity, "limit": limit, "sink": sink, "backend": backend}
    _, lse = smelt.sparse_gqa(q, k, k, indices, SCALE, return_lse=True, **named)
    got = smelt.sparse_gqa_scores(q, k, indices, lse, SCALE, **named)
    total = torch.logaddexp(lse.double(), sink.double())
    keys = k.double().repeat_interleave(2, -2)
    p = (torch.einsum("bthd,bshd->bths", q.double(), keys) * SCALE - total.unsqueeze(-1)).exp()
    p = p * (torch.arange(k.shape[1], device=device) < limit[..., None, None])
    p = torch.nn.functional.pad(p.unflatten(2, (lists, -1)).sum(3), (0, -k.shape[1] % granularity))
    blocks = p.unflatten(-1, (-1, granularity)).sum(-1)  # [B, T, lists, entries]
    valid = (indices >= 0) & (indices < blocks.shape[-1])
    wanted = blocks.gather(-1, indices.long().clamp(0, blocks.shape[-1] - 1)).nan_to_num() * valid
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    assert got.dtype is torch.float32 and not got[:, 2].any()


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_loss_of_lists(device, backend):
    """A loss of [T, G, width] is that of T * G queries."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, 2, 5, generator=generator).to(device).requires_grad_()
    target = torch.rand(3, 2, 5, generator=generator).to(device)
    indices = torch.randint(-1, 9, (3, 2, 5), generator=generator).to(device, torch.int32)
    weight = torch.rand(3, 2, generator=generator).to(device)
    lengths = torch.tensor([[1, 5], [0, 4], [9, 2]], dtype=torch.int32, device=device)
    named = {"rows": 8, "return_losses": True, "backend": backend}
    loss, losses = smelt.indexer_loss(logits, target, indices, topk_length=lengths, weight=weight, **named)
    loss.backward()
    flat = logits.detach().flatten(0, 1).requires_grad_()
    given = [each.flatten(0, 1) for each in (target, indices)]
    options = {"topk_length": lengths.flatten(), "weight": weight.flatten()}
    wanted, each = smelt.indexer_loss(flat, *given, **options, **named)
    wanted.backward()
    assert torch.equal(losses, each.view(3, 2)) and torch.equal(loss, wanted)
    assert torch.equal(logits.grad, flat.grad.view_as(logits))


def test_wide_gradients(device):
    q, k, v, indices, _, _ = made(device, 4, 1)
    k, v = (each.detach().float().requires_grad_() for each in (k, v))
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        smelt.sparse_gqa(q, k, v, indices, SCALE, granularity=4, deterministic=True).sum().backward()
    assert k.grad.dtype is v.grad.dtype is torch.float32
