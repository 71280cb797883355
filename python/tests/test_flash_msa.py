"""smelt.compat.flash_msa beside an eager model in double precision, written from the package's documentation."""

import pytest
import smelt_kernels as smelt
import torch
from smelt_kernels.compat import flash_msa
from test_compat_install import is_ours


def error(got, true):
    got, true = got.detach().double(), true.detach().double()
    return float((got - true).norm() / true.norm())

BLOCK, TOKENS, WIDTH, TOP_K = 16, 48, 64, 32
NAMES = ("q_proxy", "k_proxy", "q", "k", "v")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(flash_msa, "BLOCK", BLOCK)


def inputs(device, proxies, proxy_keys, heads, kv_heads, batches=2):
    made = torch.Generator().manual_seed(11)
    counts = (proxies, proxy_keys, heads, kv_heads, kv_heads)
    tensors = (torch.randn(batches, count, TOKENS, WIDTH, generator=made) for count in counts)
    return [each.to(device, torch.bfloat16).requires_grad_() for each in tensors]


def eager(q_proxy, k_proxy, q, k, v, scale, documents, chosen_blocks):
    """out, loss; documents [B, S] are numbers of documents. chosen_blocks None: dense attention."""
    batches, proxies, tokens, _ = q_proxy.shape
    position = torch.arange(tokens)
    hidden = (position > position[:, None]) | (documents.unsqueeze(1) != documents.unsqueeze(2))  # [B, S, S]
    k_proxy = k_proxy.repeat_interleave(proxies // k_proxy.shape[1], dim=1)
    logits = (scale * q_proxy @ k_proxy.transpose(2, 3)).masked_fill(hidden.unsqueeze(1), float("-inf"))
    hidden = hidden.unsqueeze(1).expand_as(logits)
    if chosen_blocks is not None:
        best = logits.detach().unflatten(3, (-1, BLOCK)).amax(-1)
        best.scatter_(3, (position // BLOCK).view(1, 1, -1, 1).expand(batches, proxies, -1, 1), float("inf"))
        taken = torch.zeros_like(best, dtype=torch.bool).scatter_(3, best.topk(chosen_blocks).indices, True)
        hidden = hidden | ~taken.repeat_interleave(BLOCK, dim=3)
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in (k, v))
    scores = scale * q @ k.transpose(2, 3)
    shares = scores.masked_fill(hidden.repeat_interleave(q.shape[1] // proxies, dim=1), float("-inf")).softmax(-1)
    target = shares.detach().unflatten(1, (proxies, -1)).mean(2)
    predict = logits.masked_fill(hidden, float("-inf")).log_softmax(-1)
    terms = (target * (target.log() - predict)).masked_fill(hidden | (target == 0), 0.0)
    return (shares @ v).transpose(1, 2).flatten(2), terms.sum(-1).mean()


def compare(call, given, documents, chosen_blocks, **named):
    """Outputs, and the gradients of a sum of out with random factors and of the loss times 3."""
    scale, metric = 0.1, torch.full((), -1.0, device=given[0].device)
    out, loss = call(*given, TOP_K, scale, kl_metric=metric, **named)
    assert metric == loss
    factors = torch.randn(out.shape, generator=torch.Generator().manual_seed(5))
    grads = torch.autograd.grad((out * factors.to(out)).sum() + 3 * loss, given)
    true = [each.detach().cpu().double().requires_grad_() for each in given]
    want, want_loss = eager(*true, scale, documents, chosen_blocks)
    want_grads = torch.autograd.grad((want * factors).sum() + 3 * want_loss, true)
    assert out.shape == want.shape and error(out.cpu(), want) < 5e-3
    assert abs(loss.item() / want_loss.item() - 1) < 5e-3
    for name, got, exact in zip(NAMES, grads, want_grads, strict=True):
        assert got.dtype is torch.bfloat16 and error(got.cpu(), exact) < 1e-2, (name, error(got.cpu(), exact))


# proxy heads, their key heads, heads, KV heads, and where documents begin in the batches' rows one after another
CASES = [((4, 2, 4, 2), (20, 56)), ((1, 1, 4, 2), ())]


@pytest.mark.parametrize(("heads", "starts"), CASES)
def test_sparse(heads, starts, device):
    given, firsts = inputs(device, *heads), [0, *starts, TOKENS, 2 * TOKENS]
    documents = sum(torch.arange(2 * TOKENS) >= first for first in firsts).view(2, -1)
    offsets = torch.tensor(sorted(firsts), dtype=torch.int32, device=device)
    named = {"cu_seqlens": offsets} if starts else {}
    compare(flash_msa.flash_msa_func, given, documents, TOP_K // BLOCK, **named)
    if starts:  # the same documents said in the other way
        one, two = flash_msa._Documents(given[2], documents.to(device), None), flash_msa._Documents(given[2], None, offsets)
        assert one.firsts == two.firsts and torch.equal(one.begin, two.begin)


@pytest.mark.parametrize(("heads", "starts"), [((2, 1, 4, 2), (20, 56))])
def test_warm_up(heads, starts, device):
    given, firsts = inputs(device, *heads), [0, *starts, TOKENS, 2 * TOKENS]
    documents = sum(torch.arange(2 * TOKENS) >= first for first in firsts).view(2, -1)
    compare(flash_msa.flash_msa_warmup_func, given, documents, None, document_list=documents.to(device))


def test_refusals(device):
    q_proxy, k_proxy, q, k, v = inputs(device, 2, 1, 4, 2)
    call = flash_msa.flash_msa_func
    with pytest.raises(ValueError, match="top_k must be a positive multiple of 16, not 24"):
        call(q_proxy, k_proxy, q, k, v, 24, 0.1)
    with pytest.raises(ValueError, match="q's heads must be a multiple of q_proxy's: 3 and 2"):
        call(q_proxy, k_proxy, q[:, :3], k[:, :1], v[:, :1], 16, 0.1)
    with pytest.raises(ValueError, match="dimension 1 of v"):
        call(q_proxy, k_proxy, q, k, v[:, :1], 16, 0.1)
    offsets = torch.tensor([0, 20, 2 * TOKENS], dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="every batch's first query"):
        call(q_proxy, k_proxy, q, k, v, 16, 0.1, cu_seqlens=offsets)
    with pytest.raises(ValueError, match="must not be given together"):
        call(q_proxy, k_proxy, q, k, v, 16, 0.1, torch.zeros(2, TOKENS, device=device), cu_seqlens=offsets)


interrupted = torch.arange(TOKENS).expand(2, -1) % 40 // 8
WRONG = (
    *[(name, TypeError, change) for name in NAMES for change in (torch.Tensor.float, torch.Tensor.int, torch.Tensor.tolist)],
    *[(name, ValueError, lambda each: each.to("meta")) for name in NAMES],
    *[("top_k", TypeError, value) for value in (None, "16", [16], torch.tensor([16, 16]))],
    *[("scale", TypeError, value) for value in (None, "x", [0.1], 1j)],
    *[("scale", ValueError, value) for value in (0, -0.1, float("nan"), 1e39)],
    *[("cu_seqlens", TypeError, value) for value in ([0, 96], torch.tensor([0.0, 96.0]))],
    *[("cu_seqlens", ValueError, torch.tensor(value)) for value in (96, [[0, 48, 96]], [0, 96, 48])],
    *[("kl_metric", ValueError, value) for value in (torch.zeros(1), torch.zeros((), dtype=torch.bfloat16))],
    ("kl_metric", TypeError, 0.0),
    ("document_list", TypeError, torch.zeros(2, TOKENS)),
    ("document_list", ValueError, interrupted),
)


@pytest.mark.parametrize("call", [flash_msa.flash_msa_func, flash_msa.flash_msa_warmup_func])
def test_wrong_arguments(call, device):
    """Each error names the argument and is smelt's own, not PyTorch's; no argument is converted silently."""
    given = {**dict(zip(NAMES, inputs(device, 2, 1, 4, 2))), "top_k": TOP_K, "scale": 0.1}
    for name, kind, value in WRONG:
        if name == "top_k" and call is flash_msa.flash_msa_warmup_func:
            continue  # top_k has no effect there
        value = value(given[name]) if callable(value) else value
        if isinstance(value, torch.Tensor) and not value.is_meta:
            value = value.to(device)
        with pytest.raises(kind, match=rf"^smelt: .*\b({name}|must be on)\b"):
            call(**{**given, name: value})
    for name, parts in (("q", {"q": given["q"][:, :0]}), ("q_proxy", {"q_proxy": given["q_proxy"][:, :0]})):
        with pytest.raises(ValueError, match=f"{name}'s heads"):
            call(**{**given, **parts})


@pytest.mark.parametrize("call", [flash_msa.flash_msa_func, flash_msa.flash_msa_warmup_func])
def test_second_derivatives_and_empty_inputs(call, device):
    """Second derivatives are refused, also with a gradient of the loss that depends on the inputs. Without batches or
    queries out is empty, in the right shape, and the loss is 0."""
    few = [each.detach()[:, :, :3].requires_grad_() for each in inputs(device, 2, 1, 4, 2)]
    _, loss = call(*few, TOP_K, 0.1)
    (gradient,) = torch.autograd.grad(loss.square(), few[0], create_graph=True)
    with pytest.raises(RuntimeError, match="flash_msa has no second derivatives"):
        gradient.sum().backward()
    for none in ([each[:0] for each in few], [each[:, :, :0] for each in few]):
        out, loss = call(*none, TOP_K, 0.1)
        assert out.shape == (len(none[2]), none[2].shape[2], 4 * WIDTH) and out.requires_grad and loss == 0


@pytest.mark.parametrize("call", [flash_msa.flash_msa_func, flash_msa.flash_msa_warmup_func])
def test_transforms(call, device):
    given = [each.detach() for each in inputs(device, 2, 1, 4, 2)]

    def function(q):
        return call(*given[:2], q, *given[3:], TOP_K, 0.1)[0].sum()

    for transformed in (torch.func.grad(function), torch.func.vmap(function)):
        with pytest.raises(RuntimeError, match="flash_msa cannot be transformed .* use torch.autograd.grad"):
            transformed(given[2])


def test_names():
    """Of the package's public module."""
    theirs = {"flash_msa_func", "flash_msa_func_warmup", "flash_msa_warmup_func", "sparse_attention_warmup"}
    assert theirs <= {*vars(flash_msa)}
    report = smelt.compat.install("flash_msa")
    try:
        assert "flash_msa" in report.waiting
        from flash_msa import flash_msa_func, flash_msa_warmup_func
        from flash_msa.warmup.flash_msa_warmup import sparse_attention_warmup

        assert is_ours(flash_msa_func, "flash_msa.flash_msa_func")
        assert is_ours(flash_msa_warmup_func, "flash_msa.flash_msa_warmup_func")
        assert is_ours(sparse_attention_warmup, "flash_msa.sparse_attention_warmup")
    finally:
        smelt.compat.uninstall("flash_msa")
