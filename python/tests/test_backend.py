"""The back end of a call: the switch, the types of inputs, and the package's messages."""

import io
import logging
import re
import sys
import time
import types
import warnings

import pytest
import smelt_kernels as smelt
import torch
from conftest import Problem, program
from smelt_kernels import _progress, _runtime


@pytest.fixture
def problem(device):
    return Problem(device)


@pytest.fixture
def switch():
    before = smelt.get_backend()
    yield smelt.set_backend
    smelt.set_backend(before)


def run(problem, kind=None, **more):
    q, kv = (each.detach() if kind is None else each.detach().to(kind) for each in (problem.q, problem.kv))
    q, kv = q.requires_grad_(), kv.requires_grad_()
    out = smelt.sparse_attention(q, kv, problem.indices, problem.scale, dv=problem.dv, **more)
    return out, torch.autograd.grad(out, (q, kv), problem.grad_out.to(out.dtype))


def test_the_switch(problem, switch):
    assert switch("torch") == "smelt"  # set by conftest.py
    assert smelt.get_backend() == "torch"
    eager, _ = run(problem, torch.float64)
    assert eager.dtype is torch.float64
    assert switch("smelt") == "torch"
    with pytest.raises(TypeError, match="must be torch.bfloat16, not torch.float64"):
        run(problem, torch.float64)
    switch("auto")
    with pytest.warns(smelt.SmeltWarning, match="float64"):
        assert torch.equal(run(problem, torch.float64)[0], eager)
    with pytest.raises(TypeError, match="must be torch.bfloat16"):
        run(problem, torch.float64, backend="smelt")  # a call's own backend takes precedence
    with pytest.raises(ValueError, match="'auto', 'smelt', 'torch', not 'cuda'"):
        smelt.set_backend("cuda")


def test_the_environment(monkeypatch):
    """Environment variables set the back end and the log; a program's own logging configuration takes precedence. Modules of
    smelt.compat are imported at their first use."""
    text = "import smelt_kernels as s, sys; s.warm('topk_select:topk=64', arch='sm_80'); s.compat.miles.v4_lighting_indexer\n"
    text += "print(s.get_backend(), 'smelt_kernels.compat.nemo' in sys.modules)"
    done = program(text, SMELT_BACKEND="torch", SMELT_LOG="debug")
    assert done.stdout == "torch False\n" and "smelt: " in done.stderr, done.stderr
    monkeypatch.setenv("SMELT_BACKEND", "fast")
    with pytest.raises(ValueError, match="SMELT_BACKEND must be one of 'auto', 'smelt', 'torch', not 'fast'"):
        _runtime._backend_of_environment()
    root, own = logging.getLogger(), logging.getLogger("smelt")
    assert own.level == logging.NOTSET
    monkeypatch.setenv("SMELT_LOG", "debug")
    for of_program in ([], [logging.NullHandler()]):
        monkeypatch.setattr(root, "handlers", of_program)
        monkeypatch.setattr(own, "handlers", [])
        _runtime._set_up_logging()
        assert own.level == logging.DEBUG and [each.formatter._fmt for each in own.handlers] == ["smelt: %(message)s"] * (not of_program)
        own.setLevel(logging.NOTSET)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("given", [torch.float16, torch.float32])
def test_autocast_of_any_type_runs_the_kernels(problem, kind, given):
    true, grads = run(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast(problem.q.device.type, kind):
            out, got = run(problem, given)
            assert out.dtype is kind
            torch.testing.assert_close(out.to(true.dtype), true)
    for grad, want in zip(got, grads):
        assert grad.dtype is given
        torch.testing.assert_close(grad.to(torch.bfloat16), want, atol=1e-3, rtol=1e-2)


def test_autocast_casts_no_integers(problem):
    with torch.autocast(problem.q.device.type, torch.bfloat16), pytest.raises(TypeError, match="torch.int32"):
        smelt.sparse_attention(problem.q.detach().int(), problem.kv.float(), problem.indices, problem.scale)


def test_inputs_in_fp16_are_rounded_with_one_warning(problem):
    _runtime._warned.clear()
    true, _ = run(problem)
    with pytest.warns(smelt.SmeltWarning, match="torch.float16 are rounded") as caught:
        out, _ = run(problem, torch.float16)
        run(problem, torch.float16)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert out.dtype is torch.float16
    torch.testing.assert_close(out.bfloat16(), true)
    assert run(problem, torch.float16, backend="torch")[0].dtype is torch.float16


def test_the_warning_names_the_line_of_a_call_through_pytorch(problem):
    _runtime._warned.clear()
    with pytest.warns(smelt.SmeltWarning) as caught, torch.autograd.profiler.profile():  # by the custom operator
        run(problem, torch.float64, backend="auto")
    assert [each.filename for each in caught if "eager" in str(each.message)] == [__file__]


def indexer(device, tokens=5, rows=9, heads=2):
    made = torch.Generator().manual_seed(tokens)
    q = torch.randn(tokens, heads, 64, generator=made).to(device)
    k = torch.randn(rows, 64, generator=made).to(device)
    weights = torch.rand(tokens, heads, generator=made).to(device)
    indices = torch.randint(0, rows, (tokens, 4), generator=made, dtype=torch.int32).to(device)
    return q, k, weights, indices


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_the_indexer_under_autocast(device, kind):
    q, k, weights, indices = indexer(device)
    want = smelt.indexer_scores(q.bfloat16(), k.bfloat16(), weights, indices)
    begin, end = torch.zeros(5, dtype=torch.int32, device=device), torch.full((5,), 9, dtype=torch.int32, device=device)
    chosen = smelt.indexer_topk(q.bfloat16(), k.bfloat16(), weights, begin, end, 4)
    with torch.autocast(device.type, kind):
        assert torch.equal(smelt.indexer_scores(q, k, weights, indices), want)
        for got, true in zip(smelt.indexer_topk(q.half(), k, weights, begin, end, 4), chosen):
            assert got.shape == true.shape
        assert torch.equal(smelt.indexer_topk(q, k, weights, begin, end, 4)[0], chosen[0])


def test_a_query_weight_that_changes(device):
    q, k, weights, indices = indexer(device)
    logits = smelt.indexer_scores(q.bfloat16(), k.bfloat16(), weights, indices).detach().requires_grad_()
    target = torch.rand(5, 4, device=device)
    want, each = smelt.indexer_loss(logits, target, indices, query_weight=0.25, return_losses=True)
    (gradient,) = torch.autograd.grad(want, logits)
    number = torch.tensor(0.25, device=device, requires_grad=True)
    loss, losses = smelt.indexer_loss(logits, target, indices, query_weight=number, return_losses=True)
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(losses, each)
    got, of_number = torch.autograd.grad(loss, (logits, number))
    torch.testing.assert_close(got, gradient)
    torch.testing.assert_close(of_number, want / 0.25)
    for other in (number.detach().double(), number.detach().view(1, 1)):  # the results have the same shapes and types
        made = smelt.indexer_loss(logits, target, indices, query_weight=other, return_losses=True)
        for got, each in zip(made, (loss, losses), strict=True):
            assert torch.equal(got, each) and got.dtype is each.dtype
    with pytest.raises(TypeError, match="query_weight must be real"):
        smelt.indexer_loss(logits, target, indices, query_weight=number.detach() * 1j)
    with pytest.raises(ValueError, match="query_weight must be one number"):
        smelt.indexer_loss(logits, target, indices, query_weight=torch.ones(5, device=device))


def test_one_graph_for_every_number_of_tokens(device):
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=count, fullgraph=True)
    def loss(logits, target, indices):
        return smelt.indexer_loss(logits, target, indices, query_weight=1 / logits.shape[0])

    for tokens in (3, 5, 6, 7):
        logits, target = (torch.rand(tokens, 4, device=device) for _ in range(2))
        indices = torch.arange(4, dtype=torch.int32, device=device).repeat(tokens, 1)
        torch.testing.assert_close(
            loss(logits, target, indices), smelt.indexer_loss(logits, target, indices) / tokens
        )
    assert len(graphs) <= 2, f"{len(graphs)} graphs"  # for the first number, and for any


def test_kernels_and_stats(problem):
    before = smelt.stats()
    run(problem)
    loaded = smelt.kernels()
    after = smelt.stats()
    of_attention = [each for each in loaded if each["spec"].startswith("sparse_attn_fwd:")]
    assert of_attention and all(each["state"] in ("cached", "compiled") for each in loaded)
    assert all(each["variant"] and each["knobs"] and each["cubin_bytes"] > 0 for each in of_attention)
    assert after["loaded"] >= len(of_attention) and after["operators"] >= 1
    run(problem)
    assert smelt.stats() == after and set(before) == set(after)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bar_on_a_terminal(monkeypatch):
    """Of warm and of an operator that takes long to make; not where messages, another rank or no terminal are."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    for name in ("NO_COLOR", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    smelt.warm("topk_select:topk=64", arch="sm_80")
    drawn = re.findall(r"\r\[(#*)(\.*)\] +(\d+)/(\d+) (\S+)", sys.stderr.getvalue())
    assert drawn and drawn[-1][1] == "" and drawn[-1][2] == drawn[-1][3] and drawn[-1][4].startswith("topk_select")
    assert sys.stderr.getvalue().endswith("\r\033[K")

    monkeypatch.setattr(_progress, "DELAY", 0.0)
    monkeypatch.setattr(_progress, "EVERY", 0.005)
    counted = {"cache_hits": 5, "compiled": 2}
    context = types.SimpleNamespace(counters=lambda: counted)

    def said(**environment):
        sys.stderr = Terminal()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with _progress.of_operator(context, "sparse_attn:heads=8", 3), _progress.of_operator(context, "second", 1):
            counted["compiled"] += 1
            time.sleep(0.1)
        return sys.stderr.getvalue()

    text = said()
    assert "\r[######..................]   1/4 compiling sparse_attn:heads=8\033[K" in text and text.endswith("\r\033[K")
    monkeypatch.setattr(_progress, "DELAY", 60.0)
    assert said() == ""
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Terminal, "isatty", lambda self: False)
        assert said() == ""
    assert said(LOCAL_RANK="1") == "" and said(LOCAL_RANK="0", TERM="dumb") == ""
