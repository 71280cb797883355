"""The selections of today's models (groups, blocks, pools, candidates) compared with a full score in plain PyTorch from which
each query chooses in Python, and kernels with the eager reference. Inputs are small integers: logits are exact, and tie."""

import pytest
import smelt_kernels as smelt
import torch

T, S, D = 5, 43, 64
NEVER = float("-inf")


def made(device, heads, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def whole(*shape):
        return torch.randint(-2, 3, shape, generator=generator)

    q, k = whole(T, heads, D).to(device, torch.bfloat16), whole(S, D).to(device, torch.bfloat16)
    k[7:13] = k[7]
    begin = torch.tensor([0, 0, 5, 9, 30], dtype=torch.int32, device=device)
    end = torch.tensor([43, 23, 38, 9, 90], dtype=torch.int32, device=device)
    return q, k, whole(T, heads).float().to(device), begin, end


def full_score(q, k, weights, scale, activation, groups):
    """[T, G, S], without windows."""
    products = torch.einsum("thd,sd->ths", q.double(), k.double())
    products = products.relu() if activation == "relu" else products
    factor = torch.full(q.shape[:2], scale or 1.0, device=q.device) if weights is None else weights
    return (products * factor.double().unsqueeze(-1)).unflatten(1, (groups, -1)).sum(2).float()


def choose(scores, begin, end, topk, block=1, pinned=0, listed=None):
    """Of a row of scores: the entries of `block` keys each, ascending, and their scores."""
    begin, end = max(begin, 0), min(end, len(scores))
    inside = {s: scores[s] for s in range(begin, end) if listed is None or s in listed}
    best = {}
    for key, score in inside.items():
        best[key // block] = max(score, best.get(key // block, NEVER))
    last = sorted(best)[len(best) - pinned :] if pinned else []
    others = sorted((e for e in best if e not in last), key=lambda e: (-best[e], e))
    chosen = sorted(last + others[: topk - len(last)])
    return chosen, [best[e] for e in chosen]


def padded(values, width, fill):
    return values + [fill] * (width - len(values))


def check(got, rows, topk, width):
    """rows: of each query and group, the list and the scores."""
    indices, values, lengths = (each.flatten(0, each.dim() - 2) if each.dim() > 1 else each for each in got)
    assert indices.tolist() == [padded(listed, width, -1) for listed, _ in rows]
    assert values.tolist() == [padded(scores, topk, NEVER) for _, scores in rows]
    assert got[2].flatten().tolist() == [len(listed) for listed, _ in rows]


BACKENDS = pytest.mark.parametrize("backend", ["smelt", "torch"])


@BACKENDS
@pytest.mark.parametrize("tail", [True, False])
def test_pools(device, backend, tail):
    """GLM-5.3-Flash and QSA: lists of rows of pools of 4, and the rows of a pool that is not complete."""
    q, k, weights, begin, end = made(device, 2)
    weights, scale = (weights, None) if tail else (None, 0.5)
    limit = torch.tensor([43 * 4 + 2 if tail else 42, 23 * 4, 150, 3, 500], dtype=torch.int32, device=device)
    offset = torch.arange(T, dtype=torch.int32, device=device) * 1000
    options = {"expand": 4, "limit": limit, "tail": tail, "offset": offset, "index_offset": -7, "backend": backend}
    width = 6 * 4 + 3 if tail else 40
    options["width"] = None if tail else width
    got = smelt.indexer_topk(q, k, weights, begin, end, 6, scale=scale, **options)
    rows = []
    for t, scores in enumerate(full_score(q, k, weights, scale, "relu", 1)[:, 0].tolist()):
        entries, values = choose(scores, int(begin[t]), int(end[t]), 6)
        most = min(int(limit[t]), S * 4 + 3)
        listed = [row for e in entries for row in range(4 * e, 4 * e + 4) if row < most]
        if tail:
            listed += range(max(min(int(end[t]), S) * 4, most // 4 * 4), most)
        rows.append(([row + 1000 * t - 7 for row in listed], values))
    assert len(rows[0][0]) < 24 or len(rows[0][0]) % 4
    check(got, rows, 6, width)
    logits = smelt.indexer_logits(q, k, weights, begin, end, scale=scale, backend=backend)
    two = smelt.topk_select(logits, 6, window_begin=begin, window_end=end, **options)
    assert all(torch.equal(one, other) for one, other in zip(got, two))


@BACKENDS
def test_blocks_of_groups(device, backend):
    """MiniMax-M3: a group's blocks by their largest score, the last one of a window always."""
    q, k, _, begin, end = made(device, 4)
    scoring = {"activation": "none", "scale": -0.5, "groups": 2, "backend": backend}
    got = smelt.indexer_topk(q, k, None, begin, end, 3, block_max=4, pinned=1, **scoring)
    assert got[0].shape == (T, 2, 3) and got[2].shape == (T, 2)
    full = full_score(q, k, None, -0.5, "none", 2).tolist()
    rows = [choose(full[t][g], int(begin[t]), int(end[t]), 3, 4, 1) for t in range(T) for g in range(2)]
    check(got, rows, 3, 3)
    logits = smelt.indexer_logits(q, k, None, begin, end, block_max=4, **scoring)
    assert logits.shape == (T, 2, 11)
    for t in range(T):
        for g in range(2):
            entries, values = choose(full[t][g], int(begin[t]), int(end[t]), 99, 4)
            best = dict(zip(entries, values))
            assert logits[t, g].tolist() == [best.get(e, NEVER) for e in range(11)]


@BACKENDS
@pytest.mark.parametrize("heads,options", [(2, {}), (4, {"groups": 2, "block_max": 2}), (2, {"candidate_block": 4})])
def test_rounded_logits(device, backend, heads, options):
    """bf16 logits above 256: many become equal, and the lowest of those are selected."""
    q, k, weights, begin, end = made(device, heads)
    weights *= 37
    groups, block = options.get("groups", 1), options.get("block_max", 1)
    if "candidate_block" in options:
        options = {**options, "candidates": torch.tensor([[0, 2, 3, 5, 9]] * T, dtype=torch.int32, device=device)}
    listed = [4 * block + i for block in (0, 2, 3, 5, 9) for i in range(4)] if "candidates" in options else None
    full = full_score(q, k, weights, None, "relu", groups)
    assert not torch.equal(full, full.bfloat16().float())
    full = full.bfloat16().float().tolist()
    got = smelt.indexer_topk(q, k, weights, begin, end, 6, logits_dtype=torch.bfloat16, backend=backend, **options)
    windows = [(t, int(begin[t]), int(end[t])) for t in range(T)]
    check(got, [choose(full[t][g], b, e, 6, block, listed=listed) for t, b, e in windows for g in range(groups)], 6, 6)


@BACKENDS
def test_published_blocks_and_candidates(device, backend):
    """DeepSeek-V4.1: a layer publishes blocks beside its own choice, and others choose within them."""
    q, k, weights, begin, end = made(device, 2)
    options = {"publish": 4, "publish_block": 4, "publish_pinned": 1, "backend": backend}
    *got, published = smelt.indexer_topk(q, k, weights, begin, end, 5, **options)
    full = full_score(q, k, weights, None, "relu", 1)[:, 0].tolist()
    check(got, [choose(full[t], int(begin[t]), int(end[t]), 5) for t in range(T)], 5, 5)
    blocks = [choose(full[t], int(begin[t]), int(end[t]), 4, 4, 1)[0] for t in range(T)]
    assert published.dtype is torch.int32 and published.tolist() == [padded(each, 4, -1) for each in blocks]
    q, _, weights, begin, end = made(device, 2, seed=1)  # another layer's
    k = k.flip(0)
    listed = torch.cat([published, torch.full_like(published[:, :1], 77)], 1)  # no block
    within = {"candidates": listed, "candidate_block": 4, "backend": backend}
    got = smelt.indexer_topk(q, k, weights, begin, end, 5, **within)
    full = full_score(q, k, weights, None, "relu", 1)[:, 0].tolist()
    keys = [[4 * block + i for block in each for i in range(4)] for each in blocks]
    check(got, [choose(full[t], int(begin[t]), int(end[t]), 5, listed=keys[t]) for t in range(T)], 5, 5)
    logits = smelt.indexer_logits(q, k, weights, begin, end, **within)
    for t in range(T):
        want = [full[t][s] if int(begin[t]) <= s < min(int(end[t]), S) else NEVER for s in keys[t]]
        assert logits[t].tolist() == padded(want, 20, NEVER)
    pairs = smelt.indexer_logits(q, k, weights, begin, end, block_max=2, **within)  # blocks of the blocks
    assert torch.equal(pairs, logits.unflatten(1, (-1, 2)).amax(2))
    got = smelt.indexer_topk(q, k, weights, begin, end, 3, block_max=2, **within)
    check(got, [choose(full[t], int(begin[t]), int(end[t]), 3, 2, listed=keys[t]) for t in range(T)], 3, 3)


@BACKENDS
def test_bf16_logits(device, backend):
    """Groups, NaN and ties; more entries than a list of a plain kernel has."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randint(-3, 4, (3, 2, 40), generator=generator).to(device, torch.bfloat16)
    logits[0, 1, :9] = float("nan")
    end = torch.tensor([40, 17, 0], dtype=torch.int32, device=device)
    options = {"window_begin": end // 5, "window_end": end, "groups": 2, "pinned": 2, "backend": backend}
    scores = logits.float().nan_to_num(nan=NEVER).tolist()
    rows = [choose(scores[t][g], int(end[t]) // 5, int(end[t]), 7, pinned=2) for t in range(3) for g in range(2)]
    check(smelt.topk_select(logits, 7, **options), rows, 7, 7)


# ---- gradients --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"expand": 4, "tail": True, "index_offset": 3, "topk": 6},
        {"scale": 0.5, "activation": "none", "expand": 4, "topk": 6},
        {"candidates": [[0, 2, 5, -1]] * T, "candidate_block": 4, "topk": 5},
        {"publish": 4, "publish_block": 4, "publish_pinned": 1, "topk": 5},
    ],
    ids=lambda options: next(iter(options)),
)
def test_gradients(device, options):
    """Of the values: those of the full score at what was chosen."""
    q, k, weights, begin, end = made(device, 2)
    q, k = q + 0.25, k + 0.125  # products but 0
    leaves = [q, k] if "scale" in options else [q, k, weights]
    options = dict(options)
    if "tail" in options:
        options["limit"] = torch.tensor([43 * 4 + 2, 23 * 4 + 1, 38 * 4 + 3, 3, 500], dtype=torch.int32, device=device)
    if "candidates" in options:
        options["candidates"] = torch.tensor(options["candidates"], dtype=torch.int32, device=device)
    for each in leaves:
        each.requires_grad_()
    given = q, k, None if "scale" in options else weights, begin, end
    indices, values, *_ = smelt.indexer_topk(*given, **options)
    expand, entries = options.get("expand", 1), indices - options.get("index_offset", 0)
    entries = entries[:, : options["topk"] * expand : expand] // expand
    valid = values > NEVER
    grad = torch.randn(values.shape, generator=torch.Generator().manual_seed(1)).to(device)
    got = torch.autograd.grad(values, leaves, grad)
    full = full_score(*given[:3], options.get("scale"), options.get("activation", "relu"), 1)[:, 0]
    chosen = full.gather(1, torch.where(valid, entries, 0).long())
    want = torch.autograd.grad(chosen, leaves, grad.masked_fill(~valid, 0))
    for one, two in zip(got, want, strict=True):
        assert float((one.double() - two.double()).norm()) < 0.01 * float(two.double().norm())


def test_gradients_that_do_not_exist(device):
    q, k, weights, begin, end = made(device, 2)
    q.requires_grad_()
    for options in ({"groups": 2}, {"block_max": 4}):
        name = next(iter(options))
        values = smelt.indexer_topk(q, k, weights, begin, end, 3, **options, backend="torch")[1]
        with pytest.raises(RuntimeError, match=f"no gradients with {name}="):
            values.sum().backward()


# ---- programs and errors ----------------------------------------------------------------------------


BAD = {
    "power": ({"block_max": 3}, "block_max must be a power of two from 1 to 128, not 3"),
    "large power": ({"expand": 256}, "expand must be a power of two from 1 to 128, not 256"),
    "groups": ({"groups": 3}, "groups = 3 does not divide the 4 heads of q|groups=3 does not divide heads=4"),
    "pinned": ({"pinned": 7}, "pinned=7 exceeds topk=6"), "negative": ({"pinned": -1}, "pinned must not be negative"),
    "width": ({"expand": 4, "width": 23}, "width = 23 is too small: lists of topk = 6, expand = 4, tail = False need 24"),
    "limit": ({"limit": True}, "limit goes with expand above 1"),
    "tail": ({"expand": 4, "tail": True}, "tail needs limit"),
    "tail alone": ({"tail": True}, "tail=1 needs expand above 1"),
    "order": ({"order": "score", "expand": 2}, "order=score does not go with expand"),
    "candidates": ({"candidates": True}, "candidates and candidate_block"),
    "no candidates": ({"candidate_block": 4}, "candidates and candidate_block"),
    "two kinds of blocks": ({"candidates": True, "candidate_block": 4, "block_max": 8}, "block_max=8 exceeds candidate_block=4"),
    "published candidates": ({"candidates": True, "candidate_block": 4, "publish": 2}, "publish does not go with candidate"),
    "publish": ({"publish": 0}, "publish must be positive"),
    "published blocks": ({"publish": 2, "publish_block": 2, "block_max": 4}, "publish_block=2 is below block_max=4"),
    "nothing published": ({"publish_block": 4}, "publish_block needs publish"),
    "scale": ({"scale": 0.5}, "scale goes with weights=None"),
    "no scale": ({"scale": 0.0, "weights": None}, "scale = 0.0 is not legal"),
    "logits": ({"logits_dtype": torch.float16}, "logits_dtype must be"),
    "activation": ({"activation": "gelu"}, "activation must be one of 'relu', 'none'"),
}  # fmt: skip


@BACKENDS
@pytest.mark.parametrize("changes,message", BAD.values(), ids=BAD.keys())
def test_bad_arguments(device, backend, changes, message):
    q, k, weights, begin, end = made(device, 4)
    lists = {"limit": end, "candidates": begin[:, None]}
    changes = {name: lists[name] if each is True and name in lists else each for name, each in changes.items()}
    given = {"q": q, "k": k, "weights": weights, "window_begin": begin, "window_end": end, "topk": 6, "backend": backend}
    with pytest.raises(ValueError, match=message):
        smelt.indexer_topk(**{**given, **changes})


@pytest.mark.emulated
def test_candidates_that_do_not_ascend(device):
    q, k, weights, begin, end = made(device, 2)
    for wrong in ([3, 2], [2, 2], [5, -1, 5]):
        candidates = torch.tensor([[0] * (len(wrong) - 1) + [1]] * T, dtype=torch.int32).cummax(1).values
        candidates[:, :-1] = -1
        candidates[3] = torch.tensor(wrong)
        with pytest.raises(ValueError, match="candidates of query 3 do not ascend"):
            smelt.indexer_topk(q, k, weights, begin, end, 3, candidates=candidates, candidate_block=4)
