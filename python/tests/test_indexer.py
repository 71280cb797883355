"""The indexer's operators compared with their eager reference and, independently, with their definitions."""

import pytest
import smelt_kernels as smelt
import torch
from smelt_kernels import _indexer_reference as reference


def made(device, tokens=7, rows=37, heads=3, dim=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(tokens, heads, dim, generator=generator).to(device, torch.bfloat16)
    k = torch.randn(rows, dim, generator=generator).to(device, torch.bfloat16)
    weights = torch.randn(tokens, heads, generator=generator).to(device)
    begin = torch.randint(-3, rows, (tokens,), generator=generator).int()
    end = begin + torch.randint(-2, rows, (tokens,), generator=generator).int()
    return q, k, weights, begin.to(device), end.to(device)


def same(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    assert bool(((got == float("-inf")) == (want == float("-inf"))).all())
    finite = want != float("-inf")
    assert torch.allclose(got[finite], want[finite].float(), rtol=tolerance, atol=tolerance * 30)


def test_logits(device):
    q, k, weights, begin, end = made(device)
    got = smelt.indexer_logits(q, k, weights, begin, end, backend="smelt")
    want = (torch.einsum("thd,sd->ths", q.double(), k.double()).clamp(min=0) * weights.double()[..., None]).sum(1)
    column = torch.arange(37, device=device)
    outside = (column < begin[:, None]) | (column >= end[:, None])
    same(got, want.masked_fill(outside, float("-inf")))
    same(smelt.indexer_logits(q, k, weights, begin, end, backend="torch"), got)


def test_logits_in_fp8(device):
    q, k, weights, begin, end = made(device)
    (q8, scaled), (k8, k_scale) = (smelt.quantize(q, factor=weights), smelt.quantize(k, scale="power_of_two"))
    got = smelt.indexer_logits(q8, k8, scaled, begin, end, k_scale=k_scale, backend="smelt")
    same(got, smelt.indexer_logits(q8, k8, scaled, begin, end, k_scale=k_scale, backend="torch"), 1e-4)
    exact = smelt.indexer_logits(q, k, weights, begin, end, backend="torch")
    inside = exact > float("-inf")
    assert float((got - exact)[inside].norm()) < 0.1 * float(exact[inside].norm())


@pytest.mark.parametrize("scale", ["plain", "power_of_two"])
def test_quantize(device, scale):
    x = torch.randn(2, 5, 128, device=device).bfloat16()
    x[0, 1] = 0
    x[1, 2] *= 1e-30
    y, scales = smelt.quantize(x, scale=scale, backend="smelt")
    want_y, _, want_scales = reference.quantize(x, scale)
    assert torch.equal(scales, want_scales.squeeze(-1))
    assert torch.equal(y.view(torch.uint8), want_y.view(torch.uint8))
    error = (y.float() * scales.unsqueeze(-1) - x.float()).abs()
    assert bool((error <= torch.maximum(x.float().abs() * 2**-4, scales.unsqueeze(-1) * 2**-10)).all())
    factor = torch.randn(2, 5, device=device)
    assert torch.equal(smelt.quantize(x, factor=factor, scale=scale, backend="smelt")[1], scales * factor)
    with pytest.raises(ValueError, match="factor must"):
        smelt.quantize(x, factor=factor[0])
    if scale == "power_of_two":
        assert bool((torch.frexp(scales).mantissa == 0.5).all())


@pytest.mark.parametrize("columns, group_size", [(576, None), (512, 64), (448, 64), (1024, 128), (16, 16)])
def test_fake_quantize(device, columns, group_size):
    """The rounded rows are the quantized ones times their scales, and the gradient goes straight through."""
    x = torch.randn(3, 7, columns, device=device) * torch.logspace(-8, 8, 7, device=device).unsqueeze(-1)
    x = x.bfloat16()
    x[0, 0, 0], x[1, 1] = float("nan"), 0
    leaf = x.clone().requires_grad_()
    made = smelt.fake_quantize(leaf, group_size=group_size, scale="power_of_two", backend="smelt")
    y, scales = smelt.quantize(x, group_size=group_size, scale="power_of_two", backend="smelt")
    groups = columns // (group_size or columns)
    assert scales.shape == ((3, 7) if group_size is None else (3, 7, groups))
    want = y.float().unflatten(-1, (groups, -1)) * scales.reshape(3, 7, groups, 1)
    assert torch.equal(made.nan_to_num(9), want.flatten(-2).bfloat16().nan_to_num(9))
    want_y, _, want_scales = reference.quantize(x, "power_of_two", groups)
    assert torch.equal(y.view(torch.uint8), want_y.view(torch.uint8)) and torch.equal(scales, want_scales.reshape(scales.shape))
    grad = torch.randn(3, 7, columns, device=device).bfloat16()
    made.backward(grad)
    assert torch.equal(leaf.grad, grad)
    compiled = torch.compile(lambda x: smelt.fake_quantize(2 * x, group_size=group_size), fullgraph=True, backend="aot_eager")
    again = x.clone().requires_grad_()
    compiled(again).backward(grad)
    assert torch.equal(again.grad, 2 * grad)
    first = torch.autograd.grad(smelt.fake_quantize(leaf, group_size=group_size).pow(2), leaf, grad, create_graph=True)
    (second,) = torch.autograd.grad(first[0], leaf, torch.ones_like(grad))
    assert torch.equal(second, 2 * grad)  # the result's derivative counts as 1


@pytest.mark.filterwarnings("ignore")  # of fp16
def test_fake_quantize_types(device):
    x = torch.randn(4, 64, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert smelt.fake_quantize(x).dtype is torch.bfloat16
    assert smelt.fake_quantize(x.half()).dtype is torch.float16
    for wrong in (48, 0, -16, 128):
        with pytest.raises(ValueError, match="group_size must divide the 64 columns"):
            smelt.fake_quantize(x.bfloat16(), group_size=wrong)
    with pytest.raises(TypeError, match="x must"):
        smelt.fake_quantize(x)


def test_windows(device):
    def tensor(*values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    begin, end = smelt.indexer_windows(tensor(0, 3, 3, 8), 10, 9, backend="smelt")
    assert begin.tolist() == [0, 0, 0, 3, 3, 3, 3, 3, 0, 0]
    assert end.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0, 0]
    # Padded documents and a shard of their rows; a padding query (row 3) sees nothing.
    begin, end = smelt.indexer_windows(
        tensor(0, 3, 5), 4, 8, cu_seqlens_padded=tensor(0, 4, 8), query_indices=tensor(5, 0, 3, 2), backend="smelt"
    )
    assert begin.tolist() == [4, 0, 0, 0] and end.tolist() == [6, 1, 0, 3]
    cases = [
        {"ratio": 2, "cu_seqlens_keys": tensor(0, 1, 3, 4)},
        {"causal_offset": tensor(2, -5, 1), "cu_seqlens_keys": tensor(0, 9, 11, 20)},
        {"cu_seqlens_padded": tensor(0, 4, 3, 12), "query_indices": tensor(3, 11, -1, 4, 99, 0)},
    ]
    for case in cases:
        tokens = case["query_indices"].shape[0] if "query_indices" in case else 9
        both = [
            smelt.indexer_windows(tensor(0, 3, 5, 9), tokens, 17, backend=name, **case) for name in ("smelt", "torch")
        ]
        assert all(torch.equal(one, two) for one, two in zip(*both)), case


@pytest.mark.parametrize("order", ["index", "score"])
@pytest.mark.parametrize("topk", [1, 6, 64])
def test_select(device, topk, order):
    """Ties, zeros of both signs, NaN, infinities, windows of all kinds."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randint(-2, 3, (9, 50), generator=generator).float().to(device)
    logits[0, :7] = torch.tensor([float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 1, 1])
    begin = torch.tensor([0, 0, 5, 10, 20, 30, -5, 49, 7], dtype=torch.int32, device=device)
    end = torch.tensor([50, 50, 6, 10, 14, 90, 3, 50, 40], dtype=torch.int32, device=device)
    offset = torch.arange(9, dtype=torch.int32, device=device) * 100
    options = {"window_begin": begin, "window_end": end, "offset": offset, "index_offset": -7, "order": order}
    got = smelt.topk_select(logits, topk, backend="smelt", **options)
    want = smelt.topk_select(logits, topk, backend="torch", **options)
    assert all(torch.equal(one, two) for one, two in zip(got, want))
    indices, values, lengths = got
    for row in range(9):  # by the definition, one row at a time
        low, high = max(int(begin[row]), 0), min(int(end[row]), 50)
        scores = [(-float("inf") if value != value else value) + 0.0 for value in logits[row].tolist()]
        best = sorted(range(low, max(low, high)), key=lambda column: (-scores[column], column))[:topk]
        best = sorted(best) if order == "index" else best
        assert int(lengths[row]) == len(best)
        assert indices[row].tolist() == [c + 100 * row - 7 for c in best] + [-1] * (topk - len(best))
        assert values[row].tolist() == [scores[c] for c in best] + [-float("inf")] * (topk - len(best))


def test_whole_rows_and_rows_apart(device):
    wide = torch.randn(4, 80, device=device)
    got = smelt.topk_select(wide[:, 3:60], 5, order="score", backend="smelt")
    values, indices = torch.topk(wide[:, 3:60], 5)
    assert torch.equal(got[0], indices.int()) and torch.equal(got[1], values)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize("order", ["index", "score"])
def test_fused(device, monkeypatch, backend, order):
    """The same bits as the two steps, with any chunks."""
    q, k, weights, begin, end = made(device, tokens=9)
    offset = torch.arange(9, dtype=torch.int32, device=device)
    logits = smelt.indexer_logits(q, k, weights, begin, end, backend=backend)
    options = {"offset": offset, "index_offset": 5, "order": order, "backend": backend}
    want = smelt.topk_select(logits, 8, window_begin=begin, window_end=end, **options)
    monkeypatch.setattr(smelt._selection, "CHUNK_BYTES", 4 * 37 * 2)
    got = smelt.indexer_topk(q, k, weights, begin, end, 8, **options)
    assert torch.equal(got[0], want[0]) and torch.equal(got[2], want[2])
    if backend == "smelt":
        assert torch.equal(got[1], want[1])
    else:  # a product by PyTorch depends on the number of rows
        same(got[1], want[1])


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_fused_causal(device, backend):
    """With causal_limit the bits are the same."""
    q, k, weights, begin, _ = made(device, tokens=37)
    end = torch.arange(1, 38, dtype=torch.int32, device=device)
    runs = [
        smelt.indexer_topk(q, k, weights, begin * 0, end, 8, causal_limit=limit, workspace_limit=1536, backend=backend)
        for limit in (0, 1)
    ]
    assert all(torch.equal(one, two) for one, two in zip(*runs))


def test_clean(device):
    *_, begin, end = made(device)
    logits = torch.randn(7, 37, device=device)
    want = logits.clone()
    reference.clean_(want, begin, end)
    assert smelt.clean_logits_(logits, begin, end, backend="smelt") is logits
    assert torch.equal(logits, want)
