"""The indexer's warm-up against dense attention, compared with autograd in double precision."""

import pytest
import smelt_kernels as smelt
import torch

SCALE = 0.11


def made(device, tokens=5, rows=70, heads=4, dqk=64, kv_heads=None, index_heads=3, index_dim=64, seed=0):
    """Attention's q and k, the indexer's, and windows, one of them empty."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(device, torch.bfloat16)

    q, k = normal(tokens, heads, dqk), normal(rows, *([] if kv_heads is None else [kv_heads]), dqk)
    index_q, index_k = normal(tokens, index_heads, index_dim), normal(rows, index_dim)
    weights = torch.randn(tokens, index_heads, generator=generator).to(device) * 0.1
    begin = torch.randint(0, 20, (tokens,), generator=generator).to(device, torch.int32)
    end = torch.randint(25, rows + 9, (tokens,), generator=generator).to(device, torch.int32)
    end[tokens // 2] = -3
    return q, k, index_q, index_k, weights, begin, end


def true_scores(q, k, begin, end):
    q, k = q.double(), k.double() if k.dim() == 3 else k.double().unsqueeze(1)
    scores = torch.einsum("thd,shd->ths", q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)) * SCALE
    column = torch.arange(k.shape[0], device=q.device)
    within = (column >= begin[:, None]) & (column < end[:, None])
    return scores.masked_fill(~within.unsqueeze(1), float("-inf")), within


def true_losses(q, k, index_q, index_k, weights, begin, end):
    scores, within = true_scores(q, k, begin, end)
    losses = []
    for t in range(q.shape[0]):
        if not within[t].any():
            losses.append(weights.new_zeros(()).double())
            continue
        p = scores[t].softmax(-1).mean(0)[within[t]]
        logits = (torch.einsum("hd,sd->hs", index_q[t], index_k[within[t]]).relu() * weights[t][:, None]).sum(0)
        losses.append((torch.xlogy(p, p) - p * logits.log_softmax(0)).sum())
    return torch.stack(losses)


def close(got, wanted, tolerance):
    assert (got.double() - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize("kv_heads", [None, 2], ids=["latent", "grouped"])
def test_dense_lse(device, backend, kv_heads):
    q, k, *_, begin, end = made(device, kv_heads=kv_heads)
    got = smelt.dense_lse(q, k, begin, end, SCALE, backend=backend)
    wanted = true_scores(q, k, begin, end)[0].logsumexp(-1)
    assert got.shape == (5, 4) and got.dtype is torch.float32
    assert (got[2] == float("-inf")).all()
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize("kv_heads", [None, 2], ids=["latent", "grouped"])
def test_indexer_dense_loss(device, backend, kv_heads):
    q, k, *indexer, begin, end = made(device, kv_heads=kv_heads)
    indexer[2] = indexer[2].bfloat16() if kv_heads else indexer[2]
    weight = torch.rand(5, device=device)
    lse = smelt.dense_lse(q, k, begin, end, SCALE, backend=backend)
    leaves = [each.clone().requires_grad_() for each in indexer]
    loss, losses = smelt.indexer_dense_loss(
        q, k, lse, *leaves, begin, end, SCALE, weight=weight, query_weight=0.25, return_losses=True, backend=backend
    )
    exact = [each.double().requires_grad_() for each in indexer]
    wanted = true_losses(q, k, *exact, begin, end) * weight * 0.25
    torch.testing.assert_close(losses.double(), wanted.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.double(), wanted.sum().detach(), rtol=1e-4, atol=1e-5)
    (loss * 3).backward()
    (wanted.sum() * 3).backward()
    for leaf, true in zip(leaves, exact):
        assert leaf.grad.dtype is leaf.dtype
        close(leaf.grad, true.grad, 8e-3)
    assert (leaves[0].grad[2] == 0).all() and losses[2] == 0


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_groups(device, backend):
    """MSA's: a target and an indexer head for each KV head, without ReLU and weights."""
    q, k, index_q, index_k, _, begin, end = made(device, kv_heads=2, index_heads=2)
    leaves = [each.clone().requires_grad_() for each in (index_q, index_k)]
    options = {"activation": "none", "groups": 2, "return_losses": True, "backend": backend}
    loss, losses = smelt.indexer_dense_loss(q, k, None, *leaves, None, begin, end, SCALE, **options)
    loss.backward()
    exact = [each.double().requires_grad_() for each in (index_q, index_k)]
    wanted = []
    for g in range(2):
        scores, within = true_scores(q[:, 2 * g : 2 * g + 2], k[:, g], begin, end)
        for t in range(q.shape[0]):
            p = scores[t].softmax(-1).mean(0)[within[t]]
            logits = exact[1][within[t]] @ exact[0][t, g]
            wanted.append((torch.xlogy(p, p) - p * logits.log_softmax(0)).sum() if within[t].any() else logits.sum())
    wanted = torch.stack(wanted).view(2, -1).T
    torch.testing.assert_close(losses.double(), wanted.detach(), rtol=1e-4, atol=1e-5)
    wanted.sum().backward()
    for leaf, true in zip(leaves, exact):
        close(leaf.grad, true.grad, 8e-3)
    with pytest.raises(ValueError, match="groups=3"):
        smelt.indexer_dense_loss(q, k, None, *leaves, None, begin, end, SCALE, groups=3, backend=backend)
    with pytest.raises(ValueError, match="granularity"):
        smelt.indexer_dense_loss(q, k, None, *leaves, None, begin, end, SCALE, granularity=2, block_max=2, backend=backend)


def slots_of(t, begin, end, rows, granularity, block_max):
    """Ranges of keys of query t's pools or blocks."""
    begin, end = max(int(begin[t]), 0), min(int(end[t]), rows)
    if block_max > 1:
        firsts = range(begin // block_max * block_max, end, block_max) if begin < end else ()
        return [(max(first, begin), min(first + block_max, end)) for first in firsts]
    pools = range(-(-begin // granularity), end // granularity)
    return [(pool * granularity, (pool + 1) * granularity) for pool in pools]


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize("slots", [{"granularity": 4}, {"block_max": 8}, {"block_max": 16, "groups": 2}], ids=str)
def test_pools_and_blocks(device, backend, slots):
    q, k, index_q, index_k, weights, begin, end = made(device, index_heads=2, kv_heads=2)
    granularity, block_max, groups = (slots.get(name, 1) for name in ("granularity", "block_max", "groups"))
    index_k = index_k[: -(-k.shape[0] // granularity)].contiguous()
    leaves = [each.clone().requires_grad_() for each in (index_q, index_k, weights)]
    options = {**slots, "return_losses": True, "dk_dtype": torch.float32, "backend": backend}
    loss, losses = smelt.indexer_dense_loss(q, k, None, *leaves, begin, end, SCALE, **options)
    loss.backward()
    exact = [each.double().requires_grad_() for each in (index_q, index_k, weights)]
    wanted = [exact[0].sum() * 0] * (5 * groups)
    for t in range(5):
        ranges = slots_of(t, begin, end, k.shape[0], granularity, block_max)
        for g in range(groups if ranges else 0):
            heads = slice(g * 4 // groups, (g + 1) * 4 // groups)
            mine = slice(g * 2 // groups, (g + 1) * 2 // groups)
            p = true_scores(q, k, begin, end)[0][t, heads].softmax(-1).mean(0)
            p = torch.stack([p[a:b].sum() for a, b in ranges])
            p = p / p.sum()
            marks = (torch.einsum("hd,sd->hs", exact[0][t, mine], exact[1]).relu() * exact[2][t, mine, None]).sum(0)
            of_slots = [marks[a:b].max() if block_max > 1 else marks[a // granularity] for a, b in ranges]
            wanted[t * groups + g] = (torch.xlogy(p, p) - p * torch.stack(of_slots).log_softmax(0)).sum()
    wanted = torch.stack(wanted).view_as(losses)
    torch.testing.assert_close(losses.double(), wanted.detach(), rtol=1e-4, atol=1e-5)
    wanted.sum().backward()
    for leaf, true in zip(leaves, exact):
        close(leaf.grad, true.grad, 8e-3)


def test_without_gradients_or_lse(device):
    q, k, *indexer, begin, end = made(device)
    lse = smelt.dense_lse(q, k, begin, end, SCALE, backend="smelt")
    loss = smelt.indexer_dense_loss(q, k, lse, *indexer, begin, end, SCALE, backend="smelt")
    again = smelt.indexer_dense_loss(q, k, None, *indexer, begin, end, SCALE, backend="smelt")
    half = smelt.indexer_dense_loss(
        q, k, lse, *indexer, begin, end, SCALE, query_weight=torch.tensor(0.5, device=device), backend="smelt"
    )
    assert not loss.requires_grad and torch.equal(loss, again) and torch.equal(half, loss * 0.5)


def test_deterministic_and_chunks(device):
    q, k, *indexer, begin, end = made(device, tokens=19)
    grads = []
    for limit in (0, 60000):
        leaves = [each.clone().requires_grad_() for each in indexer]
        smelt.indexer_dense_loss(
            q, k, None, *leaves, begin, end, SCALE, deterministic=True, dk_dtype=torch.float32, workspace_limit=limit,
            backend="smelt",
        ).backward()  # fmt: skip
        grads.append([leaf.grad.double() for leaf in leaves])
    for a, b in zip(*grads):
        close(a, b, 8e-3)
