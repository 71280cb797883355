"""The indexer's warm-up against dense attention, compared with autograd in double precision."""

import itertools

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


def slots_of(t, begin, end, rows, granularity, block_max):
    """The key ranges of a query's pools or blocks."""
    begin, end = max(int(begin[t]), 0), min(int(end[t]), rows)
    if block_max > 1:
        firsts = range(begin // block_max * block_max, end, block_max) if begin < end else ()
        return [(max(first, begin), min(first + block_max, end)) for first in firsts]
    pools = range(-(-begin // granularity), end // granularity)
    return [(pool * granularity, (pool + 1) * granularity) for pool in pools]


def true_losses(q, k, index_q, index_k, weights, begin, end, activation="relu", groups=1, granularity=1, block_max=1):
    """The losses, [T * groups]."""
    scores, losses = true_scores(q, k, begin, end)[0].unflatten(1, (groups, -1)), []
    for t, g in itertools.product(range(q.shape[0]), range(groups)):
        ranges = slots_of(t, begin, end, k.shape[0], granularity, block_max)
        if not ranges:
            losses.append(index_q.sum() * 0)
            continue
        p = scores[t, g].softmax(-1).mean(0)
        p = torch.stack([p[a:b].sum() for a, b in ranges])
        p = p / p.sum()
        products = index_q[t].unflatten(0, (groups, -1))[g] @ index_k.T
        products = products.relu() if activation == "relu" else products
        marks = (products * weights[t].unflatten(0, (groups, -1))[g].unsqueeze(1)).sum(0)
        of_slots = [marks[a:b].max() if block_max > 1 else marks[a // granularity] for a, b in ranges]
        losses.append((torch.xlogy(p, p) - p * torch.stack(of_slots).log_softmax(0)).sum())
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


LOSSES = {  # sizes, options
    "latent": ({}, {}),
    "grouped": ({"kv_heads": 2}, {}),
    "MSA": ({"kv_heads": 2, "index_heads": 2}, {"activation": "none", "groups": 2}),
    "pools": ({"kv_heads": 2, "index_heads": 2}, {"granularity": 4}),
    "blocks": ({"kv_heads": 2, "index_heads": 2}, {"block_max": 8}),
    "blocks of groups": ({"kv_heads": 2, "index_heads": 2}, {"block_max": 16, "groups": 2}),
}


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize(("sizes", "options"), LOSSES.values(), ids=LOSSES.keys())
def test_indexer_dense_loss(device, backend, sizes, options):
    """MSA has no weights; others have weights of queries and, grouped, indexer weights of bf16."""
    q, k, *indexer, begin, end = made(device, **sizes)
    indexer[1] = indexer[1][: -(-k.shape[0] // options.get("granularity", 1))].contiguous()
    indexer[2] = indexer[2].bfloat16() if options == {} and sizes else indexer[2]
    leaves = [each.clone().requires_grad_() for each in indexer[: 2 if "activation" in options else 3]]
    more, factor, lse = {"dk_dtype": torch.float32}, torch.ones(5, device=device), None
    if options == {}:
        more = {"weight": torch.rand(5, device=device), "query_weight": 0.25}
        factor, lse = more["weight"] * 0.25, smelt.dense_lse(q, k, begin, end, SCALE, backend=backend)
    given = (*leaves, None)[:3]
    named = {**options, **more, "return_losses": True, "backend": backend}
    loss, losses = smelt.indexer_dense_loss(q, k, lse, *given, begin, end, SCALE, **named)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    ones = torch.ones_like(indexer[2], dtype=torch.float64)
    wanted = true_losses(q, k, *(*exact, ones)[:3], begin, end, **options).view(5, -1) * factor.unsqueeze(1)
    torch.testing.assert_close(losses.double().view_as(wanted), wanted.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.double(), wanted.sum().detach(), rtol=1e-4, atol=1e-5)
    (loss * 3).backward()
    (wanted.sum() * 3).backward()
    for leaf, true in zip(leaves, exact):
        assert leaf.grad.dtype is leaf.dtype
        close(leaf.grad, true.grad, 8e-3)
    assert (leaves[0].grad[2] == 0).all() and (losses[2] == 0).all()


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_slots_that_no_kernel_has(device, backend):
    q, k, *indexer, begin, end = made(device, kv_heads=2, index_heads=2)
    for options, name in ({"groups": 3}, "groups=3"), ({"granularity": 2, "block_max": 2}, "granularity"):
        with pytest.raises(ValueError, match=name):
            smelt.indexer_dense_loss(q, k, None, *indexer, begin, end, SCALE, backend=backend, **options)


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
