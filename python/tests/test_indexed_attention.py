"""indexed_attention against the chain of calls whose results it has, and selection_difference against a count in Python."""

import collections
import random

import pytest
import smelt_kernels as smelt
import torch
from conftest import check_grad, check_out
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

TOPK = 6


class Layer:
    """Random inputs of a packed batch of two documents."""

    def __init__(self, device, tokens=9, sink=False, weight=False, seed=0):
        made = torch.Generator().manual_seed(seed)

        def normal(*shape, kind=torch.bfloat16):
            return torch.randn(*shape, generator=made).to(device, kind).requires_grad_()

        self.q, self.kv = normal(tokens, 2, 64), normal(tokens, 64)
        self.index_q, self.index_k = normal(tokens, 2, 64), normal(tokens, 64)
        self.weights = normal(tokens, 2, kind=torch.float32)
        self.sink = normal(2, kind=torch.float32) if sink else None
        self.weight = torch.rand(tokens, generator=made).to(device) if weight else None
        bounds = torch.tensor([0, 2, tokens], dtype=torch.int32, device=device)
        self.windows = smelt.indexer_windows(bounds, tokens, tokens)
        self.grad = torch.randn(tokens, 2, 64, generator=made).to(device, torch.bfloat16)

    def leaves(self):
        every = (self.q, self.kv, self.index_q, self.index_k, self.weights, self.sink)
        return [each for each in every if each is not None]

    def given(self):
        return self.q, self.kv, self.index_q, self.index_k, self.weights, *self.windows, TOPK, 0.125

    def call(self, **options):
        return smelt.indexed_attention(*self.given(), sink=self.sink, weight=self.weight, **options)

    def chain(self, deterministic=None, buckets=None, query_weight=1.0, backend=None):
        named = {"sink": self.sink, "backend": backend}
        scored = self.index_q, self.index_k, self.weights, *self.windows
        indices, logits, lengths = smelt.indexer_topk(*scored, TOPK, backend=backend)
        lists = self.q, self.kv, indices
        more = {"deterministic": deterministic, "buckets": buckets}
        out, lse = smelt.sparse_attention(*lists, 0.125, topk_length=lengths, return_lse=True, **more, **named)
        target = smelt.sparse_scores(*lists, lse, 0.125, topk_length=lengths, **named)
        more = {"topk_length": lengths, "weight": self.weight, "query_weight": query_weight, "backend": backend}
        return out, smelt.indexer_loss(logits, target, indices, **more), indices

    def gradients(self, made):
        out, loss, _ = made
        return torch.autograd.grad((out, loss), self.leaves(), (self.grad, torch.full_like(loss, 0.5)))


@pytest.mark.parametrize(
    "inputs,options",
    [
        ({}, {}),
        ({"sink": True, "weight": True}, {"query_weight": 0.25}),
        ({"sink": True}, {"buckets": (3,)}),
    ],
    ids=["plain", "all", "buckets"],
)
def test_it_is_the_chain(device, inputs, options):
    """Bit for bit."""
    layer = Layer(device, **inputs)
    want, got = layer.chain(deterministic=True, **options), layer.call(deterministic=True, **options)
    assert all(torch.equal(one, two) for one, two in zip(got, want, strict=True))
    assert got[2].min() == -1 and got[0].grad_fn is got[1].grad_fn and not got[2].requires_grad
    torch.use_deterministic_algorithms(True)  # which indexer_topk's gradients follow
    try:
        true = layer.gradients(want)
    finally:
        torch.use_deterministic_algorithms(False)
    for one, two in zip(layer.gradients(got), true, strict=True):
        assert one.dtype is two.dtype and torch.equal(one, two)
    scaled = torch.autograd.grad(layer.call(deterministic=True, **options)[1] * 0.3, layer.leaves()[2:5])
    for one, two in zip(scaled, true[2:5]):
        check_grad(one / 0.6, two)


def test_it_is_the_eager_reference(device):
    """Attention in double precision."""
    layer = Layer(device, sink=True)
    got = layer.call(dkv_dtype=torch.float32)
    gradients = layer.gradients(got)
    layer.q, layer.kv = (each.detach().double().requires_grad_() for each in (layer.q, layer.kv))
    want = layer.call(backend="torch")
    assert torch.equal(got[2], want[2]) and want[0].dtype is torch.float64
    check_out(got[0], want[0])
    torch.testing.assert_close(got[1], want[1], rtol=1e-3, atol=1e-4)
    for one, two in zip(gradients, layer.gradients(want), strict=True):
        check_grad(one, two)


def test_each_result_alone(device):
    """Of out there are attention's gradients, of the loss the indexer's."""
    layer = Layer(device, sink=True)
    want = layer.gradients(layer.call(deterministic=True))
    out, loss, _ = layer.call(deterministic=True)
    of_loss = torch.autograd.grad(loss * 0.5, layer.leaves(), retain_graph=True, allow_unused=True)
    of_out = torch.autograd.grad(out, layer.leaves(), layer.grad, allow_unused=True)
    for place, (one, two) in enumerate(zip(of_out, of_loss, strict=True)):
        kept, none = (two, one) if place in (2, 3, 4) else (one, two)
        assert none is None and torch.equal(kept, want[place])
    for each in (layer.index_q, layer.index_k, layer.weights):
        each.requires_grad_(False)
    out, loss, _ = layer.call()
    assert len(torch.autograd.grad(out.float().sum() + loss, (layer.q, layer.kv))) == 2
    with torch.no_grad():
        assert not any(each.requires_grad for each in layer.call())


def test_what_is_kept(device):
    """One node's tensors, of which the largest are the inputs and lists: nothing of queries times keys."""
    layer, packed = Layer(device, tokens=40), []
    with saved_tensors_hooks(lambda each: packed.append(each) or each, lambda each: each):
        layer.call()
    assert len(packed) == 10 and all(each.numel() <= max(40 * 2 * 64, 40 * TOPK) for each in packed)
    assert all(each.shape != (40, 40) for each in packed)


def test_pools(device):
    """Two documents' pools of 4 rows, one after another in the indexer's keys: the chain, with each pool's target summed."""
    layer, tokens = Layer(device), 9
    bounds = torch.tensor([0, 3, tokens], dtype=torch.int32, device=device)
    of_pools = torch.tensor([0, 0, 1], dtype=torch.int32, device=device)
    document = torch.tensor([0] * 3 + [1] * 6, device=device)
    begin, end = smelt.indexer_windows(bounds, tokens, 1, ratio=4, cu_seqlens_keys=of_pools)
    offset = (bounds - 4 * of_pools)[document]
    limit = torch.arange(1, tokens + 1, dtype=torch.int32, device=device) - offset
    index_k = layer.index_k.detach()[:1].requires_grad_()
    options = {"expand": 4, "limit": limit, "tail": True, "offset": offset}
    scored = layer.index_q, index_k, layer.weights, begin, end
    leaves = layer.q, layer.kv, layer.index_q, index_k, layer.weights

    def chain():
        indices, logits, lengths = smelt.indexer_topk(*scored, 1, **options)
        out, lse = smelt.sparse_attention(layer.q, layer.kv, indices, 0.125, topk_length=lengths, return_lse=True)
        target = smelt.sparse_scores(layer.q, layer.kv, indices, lse, 0.125, topk_length=lengths)[:, :4].sum(1, keepdim=True)
        pools = torch.where(end > begin, begin, -1)[:, None]  # there is one at most
        return out, smelt.indexer_loss(logits, target, pools), indices

    def step(*given):
        return smelt.indexed_attention(*given[:2], *given[2:], begin, end, 1, 0.125, deterministic=True, **options)

    want, got = chain(), step(*leaves)
    assert got[2][:, :4].tolist() == [[0, -1, -1, -1], [0, 1, -1, -1], [0, 1, 2, -1], *[[3, *rows] for rows in (
        [-1, -1, -1], [4, -1, -1], [4, 5, -1], [4, 5, 6], [4, 5, 6], [4, 5, 6])]]  # fmt: skip
    assert all(torch.equal(one, two) for one, two in zip(got, want, strict=True))
    grads = [torch.autograd.grad(made[:2], leaves, (layer.grad, torch.ones_like(made[1]))) for made in (got, want)]
    for one, two in zip(*grads, strict=True):
        check_grad(one, two)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")(*leaves)
    assert all(torch.equal(one, two) for one, two in zip(compiled, got, strict=True))


def test_windows_beyond_the_pools(device):
    """Windows are clipped to the pools: rows of the tail are no pool's."""
    layer, tokens = Layer(device), 9
    begin = torch.zeros(tokens, dtype=torch.int32, device=device)
    limit = torch.arange(tokens, dtype=torch.int32, device=device).clamp(max=7)  # a pool of 4 and a tail of at most 3 rows
    index_k = layer.index_k.detach()[:1]
    results = []
    for end in (limit // 4, torch.where(limit < 4, 0, 99).int()):
        given = layer.q, layer.kv, layer.index_q, index_k, layer.weights, begin, end, 2, 0.125
        results.append(smelt.indexed_attention(*given, expand=4, limit=limit, tail=True))
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True)) and results[0][1].isfinite()


def test_published_and_candidates(device):
    layer = Layer(device)
    blocks = {"publish": 2, "publish_block": 2, "publish_pinned": 1}
    *made, published = layer.call(**blocks)
    want = smelt.indexer_topk(*layer.given()[2:7], TOPK, **blocks)
    assert torch.equal(made[2], want[0]) and torch.equal(published, want[3])
    listed = {"candidates": published, "candidate_block": 2}
    got = layer.call(**listed)
    indices, logits, lengths = smelt.indexer_topk(*layer.given()[2:7], TOPK, **listed)
    assert torch.equal(got[2], indices) and bool((lengths <= 4).all())
    target = smelt.sparse_attention(layer.q, layer.kv, indices, 0.125, topk_length=lengths)
    assert torch.equal(got[0], target)
    with pytest.raises(ValueError, match="pinned does not go with candidate_block"):
        layer.call(**listed, pinned=1)
    with pytest.raises(ValueError, match="width = 3 is too small"):
        layer.call(expand=2, width=3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(device, reentrant):
    layer = Layer(device)
    want = layer.gradients(layer.call(deterministic=True))

    def step(*given):
        return smelt.indexed_attention(*given, deterministic=True)

    got = checkpoint(step, *layer.given(), use_reentrant=reentrant)
    out, loss, _ = got
    leaves = layer.leaves()
    torch.autograd.backward((out, loss), (layer.grad, torch.full_like(loss, 0.5)))
    assert all(torch.equal(leaf.grad, two) for leaf, two in zip(leaves, want, strict=True))


def test_parts_of_the_queries(device):
    """Context parallel: each rank's queries against all keys. Lists and out are the batch's, the losses add up."""
    layer = Layer(device)
    out, loss, indices = layer.call()
    total = 0
    bounds = torch.tensor([0, 2, 9], dtype=torch.int32, device=device)
    for rows in ([0, 3, 8], [1, 2, 4, 5, 6, 7]):
        rows = torch.tensor(rows, dtype=torch.int32, device=device)
        windows = smelt.indexer_windows(bounds, len(rows), 9, query_indices=rows)
        scored = layer.index_q[rows], layer.index_k, layer.weights[rows]
        part = smelt.indexed_attention(layer.q[rows], layer.kv, *scored, *windows, TOPK, 0.125)
        assert torch.equal(part[0], out[rows]) and torch.equal(part[2], indices[rows])
        total = total + part[1]
    torch.testing.assert_close(total, loss)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_nothing(device, backend):
    """Without queries, and without a key that any query sees."""
    layer = Layer(device, sink=True)
    none = torch.zeros_like(layer.windows[0])
    out, loss, indices = smelt.indexed_attention(*layer.given()[:5], none, none, TOPK, 0.125, sink=layer.sink, backend=backend)
    assert out.abs().sum() == 0 and loss == 0 and bool((indices == -1).all())
    assert all(each.abs().sum() == 0 for each in layer.gradients((out, loss, indices)))
    part = [each.detach()[:0] for each in (layer.q, layer.index_q, layer.weights, *layer.windows)]
    given = part[0], layer.kv.detach(), part[1], layer.index_k.detach(), *part[2:], TOPK, 0.125
    out, loss, indices = smelt.indexed_attention(*given, backend=backend)
    assert out.shape == (0, 2, 64) and loss == 0 and indices.shape == (0, TOPK)


# ---- selection_difference ---------------------------------------------------------------------------


def difference(one, two):
    one, two = (collections.Counter(entry for entry in entries if entry >= 0) for entries in (one, two))
    return max(one.total(), two.total()) - (one & two).total()


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_difference(device, kind):
    """Repeated entries, negative ones anywhere, lists without an entry, of other widths."""
    random_ = random.Random(11)
    for widths in ((1, 1), (5, 3), (8, 8), (0, 4), (3, 0)):
        lists = [[[random_.randrange(-2, 6) for _ in range(width)] for _ in range(50)] for width in widths]
        a, b = (torch.tensor(each, dtype=kind, device=device).view(2, 25, -1) for each in lists)
        each, total = smelt.selection_difference(a, b)
        want = torch.tensor([difference(*pair) for pair in zip(*lists)]).view(2, 25)
        assert torch.equal(each.cpu(), want.int()) and total.item() == want.sum() and total.dtype is torch.int64
        assert torch.equal(smelt.selection_difference(b, a)[0], each)
    most = torch.iinfo(kind).max  # the largest row number is an entry, not a masked slot
    a, b = (torch.tensor(each, dtype=kind, device=device) for each in ([1, most, most, -1], [1, most, -1, -1]))
    for ascending in (False, True):
        assert smelt.selection_difference(a, b, ascending=ascending)[1] == 1


def test_difference_of_ascending_lists(device):
    layer = Layer(device)
    chosen = [smelt.indexer_topk(*layer.given()[2:7], topk)[0] for topk in (3, TOPK)]
    want = smelt.selection_difference(*chosen)
    got = smelt.selection_difference(*chosen, ascending=True)
    assert all(torch.equal(one, two) for one, two in zip(got, want)) and want[1] > 0
    compiled = torch.compile(smelt.selection_difference, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(one, two) for one, two in zip(compiled(*chosen), want))


def test_difference_refuses(device):
    lists = torch.zeros(2, 3, dtype=torch.int32, device=device)
    for others, kind, message in (
        ((3, lists), TypeError, "a must be a torch.Tensor"),
        ((lists, lists.float()), TypeError, "b must be torch.int32 or torch.int64"),
        ((lists, lists.long()), TypeError, "b must be torch.int32 as a is"),
        ((lists, lists[:1]), ValueError, "b must be of a's queries"),
        ((lists[0, 0], lists), ValueError, r"a must be \[..., width\]"),
    ):
        with pytest.raises(kind, match=message):
            smelt.selection_difference(*others)
