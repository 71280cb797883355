"""Calls that were made before, which the module launches by itself: that it does, with the same results, and
that it leaves to Python what is not its own."""

import contextlib
import threading
import weakref

import pytest
import smelt
import torch
from conftest import Problem, check_grad
from smelt import _indexer, _indexer_gradients, _indexer_training, _native, _sparse_attention
from test_hostile import DIFFERENTIABLE, REFUSALS, arguments_of_all, call, floats_of, fresh
from test_hostile import tensors_of, with_leaves
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

# The functions that have a table, and what all calls go through that are not in it.
ELSEWHERE = {
    "sparse_attention": (_sparse_attention, "_prepared"),
    "sparse_attention_backward": (_sparse_attention, "_prepared"),
    "indexer_windows": (_indexer, "tensors"),
    "quantize": (_indexer, "tensors"),
    "indexer_logits": (_indexer, "tensors"),
    "clean_logits_": (_indexer, "tensors"),
    "topk_select": (_indexer, "tensors"),
    "indexer_topk": (_indexer, "tensors"),
    "sparse_scores": (_indexer_training, "tensors"),
    "indexer_scores": (_indexer_gradients, "tensors"),
    "indexer_backward": (_indexer_gradients, "tensors"),
    "indexer_loss": (_indexer_training, "tensors"),
}


@pytest.fixture(scope="module")
def calls(device):
    return arguments_of_all(device)


class WasElsewhere(Exception):
    pass


@contextlib.contextmanager
def only_by_the_module(name):
    def fail(*_, **__):
        raise WasElsewhere(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*ELSEWHERE[name], fail)
        yield


def is_known(name, given):
    try:
        with only_by_the_module(name):
            call(name, given)
    except WasElsewhere:
        return False
    return True


def forget():
    for calls in smelt._runtime.tables:
        calls.forget()


def gradients(name, given, result):
    loss = floats_of(result).float().nan_to_num(neginf=0).sum()
    return torch.autograd.grad(loss, [given[each] for each in DIFFERENTIABLE[name]])


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_second_call_is_the_modules(calls, name):
    given = fresh(calls[name])
    forget()
    first = tensors_of(call(name, given))
    with only_by_the_module(name):
        second = tensors_of(call(name, given))
    assert len(first) == len(second)
    for one, two in zip(first, second):
        assert one.dtype is two.dtype and not two.requires_grad
        if "backward" in name:
            torch.testing.assert_close(one, two, rtol=0.02, atol=1e-2)
        else:
            assert torch.equal(one.float(), two.float())  # PyTorch 2.4 compares no e4m3


@pytest.mark.parametrize("name", sorted(set(ELSEWHERE) & set(DIFFERENTIABLE)))
def test_with_gradients(calls, name):
    given = with_leaves(name, calls[name])
    forget()
    first = call(name, given)
    want = gradients(name, given, first)
    with only_by_the_module(name):
        second = call(name, given)
    assert torch.equal(floats_of(first), floats_of(second))
    for one, two in zip(tensors_of(first), tensors_of(second)):
        assert one.requires_grad == two.requires_grad
    for got, true in zip(gradients(name, given, second), want):
        assert got.dtype is true.dtype
        torch.testing.assert_close(got, true, rtol=0.02, atol=1e-2)
    with pytest.raises(RuntimeError, match="second time"):
        second = call(name, given)
        gradients(name, given, second)
        gradients(name, given, second)
    with torch.no_grad():
        assert not any(each.requires_grad for each in tensors_of(call(name, given)))


@pytest.fixture
def known(device):
    """A problem whose calls the module knows."""
    problem = Problem(device, sink=True, lengths=True)
    problem.run()
    assert knows(problem)
    return problem


def knows(problem, **options):
    try:
        with only_by_the_module("sparse_attention"):
            problem.run(**options)
    except WasElsewhere:
        return False
    return True


def test_what_is_told_apart(known):
    """Of shapes, types and arguments that change the operator."""
    other = Problem(known.q.device, sink=True, lengths=True, width=12)
    wider = Problem(known.q.device, sink=True, lengths=True, rows=99, tokens=2)
    assert not knows(other, deterministic=True) and not knows(known, deterministic=True)
    assert not knows(known, free_multiprocessors=1) and not knows(known, return_max_logits=True)
    assert knows(wider)  # the same kernels
    for _ in range(2):
        out, highest = known.run(return_max_logits=True)
        assert torch.equal(highest, known.run(return_max_logits=True, return_lse=True)[2])
    assert knows(known, return_max_logits=True)
    known.sink = known.sink.detach().to(torch.bfloat16)
    assert not knows(known)
    known.run()
    assert not knows(known)  # it is cast first


def test_a_list_of_queries(known):
    """What it leaves out is filled, in every call and in the gradients."""
    listed = torch.tensor([3, 1], dtype=torch.int32, device=known.q.device)
    wanted = {"return_lse": True, "return_max_logits": True}
    plain = known.run(**wanted)
    rest = [0, 2, 4]
    assert not knows(known, queries=listed)
    for only in (contextlib.nullcontext(), only_by_the_module("sparse_attention")):
        known.run(queries=listed, **wanted)
        with only:
            out, lse, highest = known.run(queries=listed, **wanted)
            dq, dkv, dsink = torch.autograd.grad(out, known.leaves(), known.grad_out)
        for one, two in zip((out, lse, highest), plain):
            assert torch.equal(one[[1, 3]], two[[1, 3]])
        assert not out[rest].any() and not dq[rest].any()
        for one in (lse, highest):
            assert (one[rest] == float("-inf")).all()
        of_listed = torch.zeros_like(known.grad_out)
        of_listed[[1, 3]] = known.grad_out[[1, 3]]
        want = torch.autograd.grad(known.run(), known.leaves(), of_listed)
        for got, true in zip((dq, dkv, dsink), want):
            check_grad(got, true)
    target = smelt.sparse_scores(known.q, known.kv, known.indices, lse, known.scale, queries=listed)
    again = smelt.sparse_scores(known.q, known.kv, known.indices, lse, known.scale, queries=listed)
    assert torch.equal(target, again) and not again[rest].any() and again[[1, 3]].any()


@pytest.mark.parametrize("shape", [(64,), (5, 64), (3, 2, 64), (2, 1, 3, 64), (0, 64)])
def test_rows_of_any_dimensions(device, shape):
    """quantize folds all but the last, of strided rows too, and gives them back."""
    x = torch.randn(*shape[:-1], 128, device=device).to(torch.bfloat16)[..., :64]
    factor = torch.rand(shape[:-1], device=device)
    y, scales = smelt.quantize(x, factor=factor, backend="torch")
    forget()
    for _ in range(2):
        got, of = smelt.quantize(x, factor=factor, backend="smelt")
        assert got.shape == y.shape and of.shape == scales.shape
        assert torch.equal(got.view(torch.uint8), y.view(torch.uint8))
        torch.testing.assert_close(of, scales)
    if len(shape) > 2:
        turned = x.transpose(0, 1)  # its rows are no one dimension: copied first
        for _ in range(2):
            got, _ = smelt.quantize(turned, backend="smelt")
            assert torch.equal(got.view(torch.uint8), y.transpose(0, 1).view(torch.uint8))
        with pytest.raises(ValueError, match="factor"):
            smelt.quantize(x, factor=factor.flatten(), backend="smelt")


def test_lists_have_no_hash(known):
    for _ in range(2):
        assert torch.equal(known.run(buckets=[64, 128]), known.run(buckets=(64, 128)))
    assert knows(known, buckets=(64, 128)) and knows(known, buckets=[64, 128])


def test_who_watches(known):
    """Modes, transforms and the profiler see the custom operators."""

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen = []
    with Names():
        out = known.run()
    assert any("sparse_attn" in each for each in seen)
    assert torch.equal(out, known.run())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        known.run()
    assert any("sparse_attn" in event.key for event in profile.key_averages())
    leaves = [each.detach() for each in known.leaves()]

    def loss(q):
        return smelt.sparse_attention(
            q, leaves[1], known.indices, known.scale, sink=leaves[2], topk_length=known.topk_length
        ).float().sum()

    loss(leaves[0])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(leaves[0], leaves[0])
        with pytest.raises(RuntimeError, match="forward mode"):
            loss(dual)


def test_autocast(known):
    kind = known.q.device.type
    with torch.autocast(kind, dtype=torch.bfloat16):
        assert knows(known)
        out = smelt.sparse_attention(
            known.q.float(), known.kv.float(), known.indices, known.scale, sink=known.sink,
            topk_length=known.topk_length, dv=known.dv, backend="smelt",
        )
    assert torch.equal(out, known.run())
    with torch.autocast(kind, dtype=torch.float16):
        assert not knows(known)


def test_layouts_that_no_kernel_reads(known):
    """A copy is Python's, forward and backward."""
    want = known.run()
    wide = torch.zeros(*known.q.shape[:-1], known.q.shape[-1] + 1, dtype=torch.bfloat16, device=known.q.device)
    wide[..., 1:] = known.q.detach()
    odd = wide[..., 1:].requires_grad_()
    known.q = odd
    got = known.run()
    assert torch.equal(got, want)
    true = known.truth(grad_out=torch.ones_like(known.grad_out))[3]
    for out in (want, got):  # the gradient of sum: all its strides are 0
        leaves = known.leaves()[1:]
        for one, two in zip(torch.autograd.grad(out.sum(), leaves, retain_graph=True), true[1:]):
            check_grad(one, two)
    check_grad(torch.autograd.grad(known.run().float().sum(), odd)[0], true[0])


def test_what_autograd_asks_of_a_node(known):
    """Saved tensors are packed and unpacked by hooks, looked after, and freed; nodes have hooks and names."""
    packed = []
    with saved_tensors_hooks(lambda each: packed.append(each) or len(packed) - 1, lambda at: packed[at]):
        out = known.run()
    assert len(packed) >= 6  # q, kv, indices, lengths, sink, out, lse
    true = known.truth()[3]
    for got, want in zip(torch.autograd.grad(out, known.leaves(), known.grad_out), true):
        check_grad(got, want)

    out, seen = known.run(), []
    out.grad_fn.register_hook(lambda given, _: seen.append(len(given)))
    out.register_hook(lambda grad: grad * 2)
    torch.autograd.grad(out, known.leaves(), known.grad_out)
    assert len(seen) == 1 and "Backward" in out.grad_fn.name()

    keys = known.kv.detach().clone().requires_grad_()
    known.kv = keys
    out = known.run()
    with torch.no_grad():
        keys.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        torch.autograd.grad(out, known.q, known.grad_out)


def test_checkpoints_and_anomalies(known):
    true = known.truth()[3]
    for reentrant in (False, True):
        out = checkpoint(
            lambda q: smelt.sparse_attention(
                q, known.kv, known.indices, known.scale, sink=known.sink, topk_length=known.topk_length,
                dv=known.dv, backend="smelt",
            ),
            known.q,
            use_reentrant=reentrant,
        )
        out.backward(known.grad_out)
        check_grad(known.q.grad, true[0])
        known.q.grad = None
    with torch.autograd.set_detect_anomaly(True):
        check_grad(torch.autograd.grad(known.run(), known.q, known.grad_out)[0], true[0])
    with torch.inference_mode():
        assert known.run().is_inference()
    kept = known.run()
    weight = known.grad_out.clone().requires_grad_()
    (grad,) = torch.autograd.grad(kept, known.q, weight, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad.float().square().sum().backward()


def test_the_mode_of_the_backward_pass(known):
    """PyTorch's setting counts when the gradient is taken, also of a call that the module ran."""
    graphs = [known.run() for _ in range(3)]
    made = []
    for setting, out in zip((False, True, False), graphs):
        torch.use_deterministic_algorithms(setting)
        try:
            made.append(torch.autograd.grad(out, known.leaves(), known.grad_out))
        finally:
            torch.use_deterministic_algorithms(False)
    for each in made:
        for got, want in zip(each, known.truth()[3]):
            check_grad(got, want)
    operators = made and out.grad_fn.known.operators
    assert all(each is not None for each in operators)  # all three were made


def test_only_what_wants_them(known):
    true = known.truth()[3]
    for wanted in range(3):
        for place, leaf in enumerate(known.leaves()):
            leaf.requires_grad_(place == wanted)
        with only_by_the_module("sparse_attention"):
            out = known.run()
        check_grad(torch.autograd.grad(out, known.leaves()[wanted], known.grad_out)[0], true[wanted])
    for leaf in known.leaves():
        leaf.requires_grad_(False)
    assert not known.run().requires_grad


def test_unused_results(calls):
    """Of indexer_topk's results the values alone have gradients; where nobody uses them there are none."""
    given = with_leaves("indexer_topk", calls["indexer_topk"])
    for _ in range(2):
        indices, values, lengths = call("indexer_topk", given)
        assert values.requires_grad and not indices.requires_grad and not lengths.requires_grad
        loss = given["q"].float().sum() + 0 * values.detach().nan_to_num(neginf=0).sum()
        loss.backward()
        assert torch.equal(given["q"].grad, torch.ones_like(given["q"]))
        given["q"].grad = None


def test_fp8_has_no_gradients(calls):
    given = fresh(calls["indexer_topk"])
    given["q"], given["k"] = (given[each].to(torch.float8_e4m3fn) for each in ("q", "k"))
    given["k_scale"] = torch.ones(4, device=given["k"].device)
    given["weights"].requires_grad_()
    call("indexer_topk", given)
    with only_by_the_module("indexer_topk"):
        assert not call("indexer_topk", given)[1].requires_grad


def test_nothing_is_held(known):
    """What a call made is gone with its last name, with a graph or without."""
    for grads in (True, False):
        with torch.set_grad_enabled(grads):
            out, lse = known.run(return_lse=True)
            if grads:
                torch.autograd.grad(out, known.q, known.grad_out, retain_graph=True)
            gone = [weakref.ref(each) for each in (out, lse)]
            del out, lse
        assert all(each() is None for each in gone)


def test_threads_share_a_table(known):
    want, failures = known.run(), []

    def work():
        try:
            for _ in range(5):
                assert torch.equal(known.run(), want)
                torch.autograd.grad(known.run(), known.q, known.grad_out)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    forget()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_a_table_has_an_end(known):
    table = _native.Calls((0,))
    entry = _native.Known([None], 0, (), ())
    for number in range(5000):
        table.remember(known.indices, number, entry)
        assert table.run(known.indices, number) is None  # there is no operator
    table.remember(known.indices, [], entry)
    assert table.run(known.indices, []) is None


def test_the_modules_objects_alone(known):
    """Wrong arguments and misuse: an error."""
    table, entry = _native.Calls((1, 0)), _native.Known([None], 0, (), ())
    node = known.run().grad_fn
    made = _native.Known([object()], 7, (True,) * 30, (1,) * 30, None, saved=(20,), result=0)
    table.remember(known.q, known.kv, (), made)
    assert table.run(known.q, known.kv, ()) is None
    for misuse in (
        lambda: _native.Calls(()),
        lambda: _native.Calls((3,)),
        lambda: _native.Calls((0,) * 99),
        lambda: _native.Calls(("a",)),
        lambda: _native.Known(),
        lambda: _native.Known((), 0, (), ()),
        lambda: _native.Known([], 0, (), (), saved=("a",)),
        lambda: _native.Known([], 0, (), (), saved=tuple(range(99))),
        lambda: _native.Known([], 0, (), (), saved=(99,)),
        lambda: table.run(),
        lambda: table.run(known.q),
        lambda: table.remember(known.q, known.kv, ()),
        lambda: table.remember(known.q, known.kv, (), None),
        lambda: table.remember(known.q, known.kv, entry, ()),
        lambda: _native.watch(),
        lambda: _native.node_forward(),
        lambda: _native.node_forward(node, known.q),
        lambda: _native.node_forward(node, known.q, entry),
        lambda: _native.take_backward(None),
        lambda: node.apply(),
        lambda: node.apply(1, 2),
        lambda: node.apply(1),
        lambda: type(node).apply(None, known.grad_out),
    ):
        with pytest.raises((*REFUSALS, SystemError)):
            misuse()
    assert node.apply(None) == (None,) * 4
    node.known  # what it was made with
    with contextlib.suppress(*REFUSALS):
        node.known = None
        node.apply(known.grad_out)
