"""Any use of the package's functions gives a result or an error with a message, never a crash of the interpreter, which
would end these tests."""

import contextlib
import copy
import importlib
import inspect
import os
import pickle
import random
import re
import signal
import threading
import traceback
import warnings

import pytest
import smelt_kernels as smelt
import torch
from conftest import Problem
from everything import (
    DIFFERENTIABLE, NOT_CALLS, REFUSALS, WITHOUT_BACKEND, arguments_of_all, bases, call, floats_of, fresh, fullest,
    tensors_of, with_leaves,
)  # fmt: skip
from smelt_kernels import _native, _runtime
from torch.utils._pytree import tree_map_only

DROP_INS = "cudnn deep_gemm flash_mla flash_msa megatron miles nemo prime_rl slime tilelang".split()
SHAPES = ((2, 3, 128), (4, 128), (4, 1, 128), (1, 2, 3, 128), (1, 4, 128), (1, 4, 1, 128), (2, 1, 3, 64), (4, 1, 64))
LISTS = ((2, 3), (2, 1, 3), (1, 2, 3), (1, 2, 1, 3), (2,), (3,))


@pytest.fixture(scope="module")
def calls(device):
    return arguments_of_all(device)


def call_without_kernels(name, arguments, monkeypatch):
    """The eager reference's warning is an error."""
    _runtime._warned.clear()
    with monkeypatch.context() as patched, warnings.catch_warnings():
        patched.setattr(_runtime, "operator", lambda _, spec: _runtime.Refused(f"{spec}: no kernel"))
        patched.setattr(_runtime, "_found", {})
        warnings.simplefilter("error", smelt.SmeltWarning)
        call(name, {**arguments, "backend": "auto"})


# ---- arguments --------------------------------------------------------------------------------------


def changed(random_, tensor):
    """The tensor with another type, device, shape or layout."""
    kind = random_.choice((torch.float16, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16))
    shape = tensor.shape or (1,)
    dimension = random_.randrange(max(1, tensor.dim()))
    changes = (
        lambda: tensor.to(kind),
        lambda: tensor.to("meta"),
        lambda: tensor.to_sparse(),
        lambda: tensor.cpu() if tensor.is_cuda else tensor.to("meta"),
        lambda: tensor.transpose(0, -1),
        lambda: tensor.transpose(0, -1).contiguous(),
        lambda: tensor.unsqueeze(dimension),
        lambda: tensor.narrow(dimension, 0, 0),
        lambda: tensor.narrow(dimension, 0, max(0, shape[dimension] - 1)),
        lambda: tensor.flatten()[0],
        lambda: tensor.new_empty(()),
        lambda: tensor.new_empty((0,) * tensor.dim()),
        lambda: tensor.flatten()[1:],
        lambda: torch.cat([tensor, tensor], -1)[..., ::2],  # a strided last dimension
        lambda: torch.cat([tensor, tensor], -1)[..., 1 : 1 + shape[-1]],  # rows begin anywhere
        lambda: tensor[:1].expand(1 << 45, *shape[1:]),  # more than any memory
        lambda: tensor[..., :1].expand(*shape[:-1], 1 << 45),
        lambda: tensor.as_strided(shape, (0,) * len(shape)),
        lambda: tensor.as_strided(shape, (1,) * len(shape)),  # overlapping elements
        lambda: tensor.view(torch.uint8),
        lambda: tensor.reshape(1, 1, 1, *shape),
        lambda: tensor.clone().requires_grad_(),
        lambda: torch.nn.Parameter(tensor.clone(), requires_grad=tensor.is_floating_point()),
        lambda: torch.nested.nested_tensor([tensor, tensor]),
        lambda: torch._neg_view(tensor),
        lambda: inference_copy(tensor),
        lambda: torch.full_like(tensor, float("nan")),
        lambda: torch.full_like(tensor, -(1 << 31)),
        lambda: torch.full_like(tensor, (1 << 31) - 1),
    )
    try:
        return random_.choice(changes)()
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None  # this change is not possible for the tensor


def inference_copy(tensor):
    with torch.inference_mode():
        return tensor.clone()


ODD = (
    None, True, False, 0, -1, 3, 1 << 31, 1 << 70, 0.5, float("nan"), float("inf"), "x", "auto", b"y", "\0", [], (), {},
    (1, 2, 3), [1 << 40], (True, None), object(), torch.Tensor, torch.bfloat16, NotImplemented, ...,
)  # fmt: skip


def modes(random_):
    return random_.choice(
        (
            contextlib.nullcontext, contextlib.nullcontext, torch.no_grad, torch.enable_grad, torch.inference_mode,
            lambda: torch.autograd.set_multithreading_enabled(False),
            lambda: torch.autocast("cpu" if _runtime.EMULATED else "cuda", dtype=torch.bfloat16),
        )
    )()  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # about nested and sparse tensors, which are prototypes
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", sorted(set(smelt.__all__) - NOT_CALLS))
def test_arguments_of_every_kind(calls, name, seed):
    random_ = random.Random(f"{name} {seed}")
    refused = 0
    for attempt in range(60):
        given = fresh(calls[name])
        for each in random_.sample(list(given), min(len(given), random_.choice((1, 1, 2, 3)))):
            if isinstance(given[each], torch.Tensor) and random_.random() < 0.8:
                given[each] = changed(random_, given[each])
            else:
                given[each] = random_.choice((*ODD, *calls[name].values()))
        try:
            with modes(random_):
                result = call(name, given)
                wanted = [each for each in tensors_of(result) if each.requires_grad]
                if wanted and torch.is_grad_enabled():
                    wanted[0].float().sum().backward()
        except REFUSALS as error:
            assert str(error), (seed, attempt)
            refused += 1
    assert refused > 15


def misfits(tensor):
    """The tensor with other shapes, and as integers of another size."""
    yield tensor.new_empty(())
    yield tensor.unsqueeze(0)
    if tensor.dim():
        yield tensor[0]
    for dimension, size in enumerate(tensor.shape):
        yield tensor.narrow(dimension, 0, size - 1)
        yield torch.cat([tensor, tensor], dimension)
    if tensor.dtype is torch.int32:
        yield tensor.long()
        yield tensor.float()


@pytest.mark.parametrize("name", sorted(set(smelt.__all__) - NOT_CALLS - WITHOUT_BACKEND))
def test_the_reference_refuses_what_kernels_refuse(device, name, monkeypatch):
    """Tensors are not broadcast. Where there is no kernel, they are refused before the warning that says so."""
    refused = 0
    whole = fullest(bases(device), name)[1]
    for each in [key for key, value in whole.items() if isinstance(value, torch.Tensor)]:
        for wrong in misfits(whole[each]):
            errors = {}
            for backend in ("smelt", "torch"):
                try:
                    call(name, {**fresh(whole), each: wrong, "backend": backend})
                except (TypeError, ValueError) as error:
                    errors[backend] = str(error)
                except RuntimeError:  # there is no kernel for such widths
                    assert backend == "smelt"
            if "torch" in errors:
                with pytest.raises((TypeError, ValueError), match=re.escape(errors["torch"])):
                    call_without_kernels(name, {**fresh(whole), each: wrong}, monkeypatch)
            if "smelt" in errors:
                assert "smelt: " in errors.get("torch", "nothing"), (each, wrong.shape, errors)
                refused += 1
    assert refused
    with pytest.raises(smelt.SmeltWarning):
        call_without_kernels(name, fresh(whole), monkeypatch)


@pytest.mark.parametrize("seed", range(2))
def test_native_methods(calls, device, seed):
    """The internal methods, called with arguments that the public functions never use."""
    random_ = random.Random(seed)
    for name in ("sparse_attention", "indexer_logits", "indexer_topk", "quantize", "topk_select"):
        call(name, fresh(calls[name]))
    operators = [each for each in _runtime._operators.values() if type(each) is _native.Operator]
    pool = {name: value for given in calls.values() for name, value in given.items()}
    pool.update(out=True, values=True, logits=True, y=1.0, free_multiprocessors=0, no_such=0)
    kinds = (*ODD, *pool.values())
    for _ in range(400):
        names = random_.sample(list(pool), random_.choice((0, 1, 8, 12)))
        given = {each: random_.choice(kinds) if random_.random() < 0.3 else pool[each] for each in names}
        operator = random_.choice(operators)
        for method in (operator.forward, operator.backward):
            with contextlib.suppress(*REFUSALS):
                method(**given)
        values = random_.choices(kinds, k=3)
        for make in (_native.Context, _native.Operator, _native.expand, _native.preset, _native.canonical):
            with contextlib.suppress(*REFUSALS):
                make(*values[: random_.randrange(4)])
    for make in (
        lambda: _native.Operator(),
        lambda: _native.Operator(None, "sparse_attn"),
        lambda: object.__new__(_native.Operator),
        lambda: object.__new__(_native.Context),
        lambda: copy.copy(operators[0]),
        lambda: copy.deepcopy(operators[0]),
        lambda: pickle.dumps(operators[0]),
        lambda: _native.setup(),
        lambda: _native.setup(torch.Tensor, (), None, (), None, None),
        lambda: operators[0].forward(1),
        lambda: _native.watch(),
        lambda: _native.look(),
        lambda: _native.look(b"\2", (), None),
        lambda: _native.look(b"\2", (1,), ()),
        lambda: _native.look(b"\2", (1,), ("q",)),
        lambda: _native.describe("no_such"),
        lambda: _native.describe(1),
    ):
        with pytest.raises(REFUSALS):
            make()


WINDOWED = {"q": "THD", "k": "SD", "weights": "TH", "window_begin": "T", "window_end": "T"}
# The tensors' dimensions, one letter each.
EXTENTS = {
    "sparse_attention": {"q": "THD", "kv": "SD", "indices": "TW"},
    "sparse_scores": {"q": "THD", "kv": "SD", "indices": "TW", "lse": "TH"},
    "quantize": {"x": "AT."},
    "fake_quantize": {"x": "T."},
    "indexer_logits": WINDOWED,
    "clean_logits_": {"logits": "TS", "window_begin": "T", "window_end": "T"},
    "topk_select": {"logits": "TS"},
    "indexer_topk": WINDOWED,
    "indexer_scores": {"q": "THD", "k": "SD", "weights": "TH", "indices": "TW"},
    "indexer_backward": {"grad": "TW", "q": "THD", "k": "SD", "weights": "TH", "indices": "TW"},
    "indexer_loss": {"logits": "TW", "target": "TW", "indices": "TW"},
    "dense_lse": {"q": "THD", "k": "S..", "window_begin": "T", "window_end": "T"},
    "indexer_dense_loss": {
        **{"q": "THD", "k": "S..", "lse": "TH", "window_begin": "T", "window_end": "T"},
        **{"index_q": "TH.", "index_k": "S.", "index_weights": "TH"},
    },
    "project_values": {"out": "TH.", "weight": "H.."},
    "sparse_gqa": {"q": "TH.", "k": "S..", "v": "S..", "indices": "T.W"},
    "sparse_gqa_scores": {"q": "TH.", "k": "S..", "indices": "T.W", "lse": "TH"},
}


@pytest.mark.parametrize("name", EXTENTS)
def test_empty_tensors(calls, name):
    """Calls without queries, keys, slots or rows have results of the right shape, with gradients; the eager reference's."""
    got, want = (empty_results(name, calls[name], {"backend": backend}) for backend in ("smelt", "torch"))
    assert all(torch.equal(one, two) for one, two in zip(got, want, strict=True))


def empty_results(name, arguments, chosen):
    chosen, letters, found = {} if name == "project_values" else chosen, EXTENTS[name], []
    for empty in sorted(set("".join(letters.values())) & set("ATSW")):
        given = with_leaves(name, arguments) if name in DIFFERENTIABLE else fresh(arguments)
        given.update(chosen)
        if name == "quantize":
            given["x"] = given["x"].expand(3, 2, *given["x"].shape)[:, :, 0]
        whole = shapes_of(call(name, given))
        cut = dict(given)
        for each, extents in letters.items():
            if empty in extents:
                cut[each] = given[each].narrow(extents.index(empty), 0, 0)
        result = call(name, cut)
        found += [each.detach().float() for each in tensors_of(result)]
        for got, full in zip(shapes_of(result), whole):
            assert len(got) == len(full) and (0 in got or got == full), (empty, got, full)
        for made in tensors_of(result):
            assert not made.dtype.is_floating_point or not made.float().isnan().any(), empty
        differentiable = [each for each in tensors_of(result) if each.requires_grad]
        if not differentiable:
            assert name not in DIFFERENTIABLE
            continue
        differentiable[0].float().nan_to_num(neginf=0.0).sum().backward()
        for leaf in DIFFERENTIABLE[name]:
            assert given[leaf].grad is not None and given[leaf].grad.shape == given[leaf].shape, leaf
    return found


def shapes_of(result):
    return [tuple(each.shape) for each in tensors_of(result)]


def test_outputs_that_are_made(device):
    """True requests a new tensor as an output and is an error for inputs."""
    problem = Problem(device, grad=False)
    want, lse = problem.run(return_lse=True)
    spec = "sparse_attn:heads=3,dqk=128,dv=128,topk=128"
    forward = _runtime.operator(problem.q.get_device(), spec).forward
    given = {"q": problem.q, "kv": problem.kv, "indices": problem.indices, "scale": problem.scale}
    out, sums, highest, partition = forward(**given, out=True, lse=True, max_logits=False)
    assert torch.equal(out, want) and torch.equal(sums, lse) and highest is partition is None
    assert forward(**given, out=out, lse=sums) == (None,) * 4
    for argument in ("q", "kv", "indices", "topk_length", "queries"):
        with pytest.raises(TypeError):
            forward(**{**given, argument: True}, out=True, lse=True)
    with pytest.raises(TypeError, match="out"):
        forward(**given, out=1, lse=True)
    with pytest.raises(TypeError, match="no argument 'most'"):
        forward(**given, most=1)


def calls_of(module):
    """The public calls of a drop-in."""
    for name, value in list(vars(module).items()):
        value = getattr(value, "apply", value)
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_":
            yield name, value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DROP_INS)
def test_arguments_of_drop_ins(device, name):
    """Tensors of plausible sizes, in any order: a result, or an error with a message. For other objects, errors may be
    Python's own."""
    module = importlib.import_module(f"smelt_kernels.compat.{name}")
    random_, made = random.Random(name), torch.Generator().manual_seed(0)
    pool = [torch.randn(*shape, generator=made).to(device, torch.bfloat16) for shape in SHAPES]
    pool += [torch.randn(2, 3, generator=made).to(device), torch.ones(3, device=device)]
    pool += [torch.randint(-1, 4, shape, generator=made).to(device, torch.int32) for shape in LISTS]
    refused = 0
    for _, function in calls_of(module):
        parameters = [
            each for each in inspect.signature(function).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        for _ in range(25):
            given = []
            for each in parameters:
                value = random_.choice(pool)
                if each.default is not each.empty and random_.random() < 0.7:
                    value = each.default
                elif random_.random() < 0.3:
                    value = random_.choice((changed(random_, value), random_.choice(ODD)))
                given.append(value)
            try:
                with modes(random_):
                    function(*given)
            except (*REFUSALS, LookupError, ArithmeticError) as error:
                assert str(error)
                refused += 1
    assert refused > 15


class Wrapper(torch.Tensor):
    """A wrapper tensor without an address, like those of pending collectives."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, device=held.device, strides=held.stride()
        )

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        held = tree_map_only(Wrapper, lambda tensor: tensor.held, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Wrapper, func(*held[0], **held[1]))


@pytest.mark.parametrize("name", sorted(set(smelt.__all__) - NOT_CALLS))
def test_wrappers(calls, name):
    """For each tensor and for all; also after a successful call."""
    want = tensors_of(call(name, fresh(calls[name])))
    some = [each for each, value in calls[name].items() if isinstance(value, torch.Tensor)]
    for wrapped in (*([each] for each in some), some):
        given = fresh(calls[name])
        for each in wrapped:
            given[each] = Wrapper(given[each])
        got = tensors_of(call(name, given))
        assert len(got) == len(want)
        for one, two in zip(got, want):
            one = one.held if isinstance(one, Wrapper) else one
            assert torch.equal(one.float(), two.float()), (name, wrapped)


# ---- modes and transforms ---------------------------------------------------------------------------


@contextlib.contextmanager
def defaults(device, dtype):
    """Default device and type, which some programs set while they build models."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_results_do_not_depend_on_defaults(calls, cold):
    for name, arguments in calls.items():
        given = with_leaves(name, arguments) if name in DIFFERENTIABLE else fresh(arguments)
        want = tensors_of(call(name, fresh(arguments)))
        if cold:
            _runtime._forget()
        with defaults("meta", torch.bfloat16):
            got = tensors_of(call(name, given))
            if name in DIFFERENTIABLE:
                floats_of(tuple(got)).float().nan_to_num(neginf=0).sum().backward()
        for one, two in zip(got, want, strict=True):
            assert one.dtype is two.dtype and torch.equal(one.float(), two.float()), name
        for each in DIFFERENTIABLE.get(name, ()):
            assert given[each].grad.device == given[each].device, name


@pytest.mark.filterwarnings("error")  # including the warning about the eager reference
def test_tensors_without_data(calls):
    """On meta: shapes and types of results and gradients, before and after a real call."""
    for name, arguments in calls.items():
        for _ in range(2):
            given = {
                each: value.to("meta") if isinstance(value, torch.Tensor) else value
                for each, value in arguments.items()
            }
            for each in DIFFERENTIABLE.get(name, ()):
                given[each].requires_grad_()
            got = tensors_of(call(name, given))
            want = tensors_of(call(name, fresh(arguments)))
            for one, two in zip(got, want, strict=True):
                assert one.is_meta and (one.shape, one.dtype) == (two.shape, two.dtype), name
            if name in DIFFERENTIABLE:
                floats_of(tuple(got)).float().sum().backward()
            for each in DIFFERENTIABLE.get(name, ()):
                assert given[each].grad.is_meta and given[each].grad.dtype is given[each].dtype, name


def test_tensors_without_data_in_fp16():
    """Under autocast fp16 inputs are cast on meta, too, for which PyTorch has no autocast."""
    q, kv, indices = (torch.empty(*shape, device="meta") for shape in ((2, 3, 128), (4, 128), (2, 3)))
    with torch.autocast("cpu", torch.bfloat16):
        out = smelt.sparse_attention(q.half(), kv.half(), indices.int(), 0.1)
    assert out.is_meta and (out.shape, out.dtype) == (q.shape, torch.float16)


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if name != "fake_quantize"])  # which has them
@pytest.mark.parametrize("power", [1, 2], ids=["constant gradient", "gradient with a derivative"])
def test_second_derivatives_are_refused(calls, name, power):
    """Also with a constant incoming gradient: dq of out.sum() depends on q and must not count as constant."""
    for _ in range(2):  # built, then from the cache
        given = with_leaves(name, calls[name])
        leaves = [given[each] for each in DIFFERENTIABLE[name]]
        loss = floats_of(call(name, given))
        if loss.dim() or power > 1:  # else the function's own scalar, whose gradient is a constant
            loss = loss.float().nan_to_num(neginf=0).pow(power).sum()
        want = torch.autograd.grad(loss, leaves, retain_graph=True)
        grads = torch.autograd.grad(loss, leaves, create_graph=True)
        if name == "project_values":  # a product by PyTorch, which has a second derivative
            torch.autograd.grad(grads[0].float().sum(), leaves, allow_unused=True)
            return
        for one, two in zip(grads, want):
            assert one.requires_grad and one.dtype is two.dtype
            torch.testing.assert_close(one.detach(), two, rtol=0.02, atol=1e-3)
        for grad in grads:
            with pytest.raises(RuntimeError, match="second derivatives"):
                grad.float().sum().backward(retain_graph=True)
            if name not in ("indexer_loss", "indexer_dense_loss"):  # which do not save their gradients' inputs
                with pytest.raises(RuntimeError, match="second derivatives"):
                    weight = torch.ones_like(grad)
                    torch.autograd.grad(grad, leaves, weight, retain_graph=True, allow_unused=True)
        with torch.autograd.profiler.profile():
            grads = torch.autograd.grad(loss, leaves, create_graph=True)
        assert all(grad.requires_grad for grad in grads)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_many_gradients_at_once(calls, name):
    """is_grads_batched, as in jacobian(vectorize=True): the same as single gradients."""
    for _ in range(2):  # built, then from the cache
        given = with_leaves(name, calls[name])
        leaves = [given[each] for each in DIFFERENTIABLE[name]]
        out = floats_of(call(name, given))
        several = torch.randn(2, *out.shape, device=out.device).to(out.dtype)
        got = torch.autograd.grad(out, leaves, several, is_grads_batched=True, retain_graph=True)
        for i, one in enumerate(several):
            want = torch.autograd.grad(out, leaves, one, retain_graph=True)
            for batch, true in zip(got, want):
                torch.testing.assert_close(batch[i], true, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_what_a_graph_kept_may_not_change(calls, name):
    """In-place changes of saved tensors are an error, also on the direct path, and never give a wrong gradient."""
    kept = () if name in ("fake_quantize", "indexer_loss", "indexer_dense_loss") else DIFFERENTIABLE[name]
    for each in kept:
        for _ in range(3):  # built, then from the cache
            given = with_leaves(name, calls[name])
            given[each] = given[each].clone()
            loss = floats_of(call(name, given)).float().nan_to_num(neginf=0).sum()
            with torch.no_grad():
                given[each].mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
    if name == "sparse_attention":
        out = floats_of(call(name, with_leaves(name, calls[name])))
        loss = (out * 2).float().sum()
        with torch.no_grad():
            out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.filterwarnings("ignore")  # a warning that vmap's fallback is slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_functorch(calls, name):
    """Transforms give the same gradients or an error that says what to do; no gradient is lost silently."""
    arguments, first = calls[name], DIFFERENTIABLE[name][0]

    def function(x):
        result = call(name, {**fresh(arguments), first: x})
        return next(each for each in tensors_of(result) if each.is_floating_point()).float().sum()

    x = arguments[first].clone()
    want = torch.autograd.grad(function(x.requires_grad_()), x)[0]
    x = x.detach()
    for transformed in (
        lambda: torch.func.grad(function)(x),
        lambda: torch.func.vjp(function, x)[1](torch.ones((), device=x.device))[0],
        lambda: torch.func.vmap(torch.func.grad(function))(x[None])[0],
        lambda: torch.func.hessian(function)(x).isnan(),
    ):
        try:
            got = transformed()
        except RuntimeError as error:
            assert re.match("smelt: .* torch.func's .*: use torch.autograd.grad", str(error))
            continue
        if got.shape == want.shape:
            torch.testing.assert_close(got, want, rtol=0.02, atol=1e-2)
    if name == "project_values":
        return
    tangent = torch.ones_like(x)
    with pytest.raises(RuntimeError, match="forward mode"):
        torch.func.jvp(function, (x,), (tangent,))
    with torch.autograd.forward_ad.dual_level():
        function(x)
        with pytest.raises(RuntimeError, match="forward mode"):
            function(torch.autograd.forward_ad.make_dual(x, tangent))


# ---- objects, threads, processes --------------------------------------------------------------------


def test_copies_and_pickles(calls, device):
    for name in calls:
        function = getattr(smelt, name)
        assert pickle.loads(pickle.dumps(function)) is function and copy.deepcopy(function) is function
    given = with_leaves("sparse_attention", calls["sparse_attention"])
    out = call("sparse_attention", given)
    with pytest.raises(RuntimeError):
        copy.deepcopy(out)  # not a leaf, which PyTorch refuses
    assert torch.equal(pickle.loads(pickle.dumps(out.detach())), out.detach())

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kv = torch.nn.Parameter(given["kv"].detach())

        def forward(self, q):
            return call("sparse_attention", {**given, "q": q, "kv": self.kv})

    layer = Layer()
    again = copy.deepcopy(layer)
    assert torch.equal(layer(given["q"]), again(given["q"]))


def test_threads(calls):
    """All functions concurrently in several threads, forward and backward, from the first call on."""
    _runtime._forget()
    want, failures = {}, []

    def results(name):
        given = with_leaves(name, calls[name]) if name in DIFFERENTIABLE else fresh(calls[name])
        made = tensors_of(call(name, given))
        grads = []
        if name in DIFFERENTIABLE:
            loss = floats_of(tuple(made)).float().nan_to_num(neginf=0).sum()
            first = given[DIFFERENTIABLE[name][0]]  # its gradient has the same bits in every run
            grads = torch.autograd.grad(loss, [first], allow_unused=True)
        return [each.detach().float() for each in (*made, *grads) if each is not None]

    def work(seed):
        try:
            for name in random.Random(seed).sample(list(calls), len(calls)):
                got = results(name)
                for one, two in zip(got, want.setdefault(name, got)):
                    assert torch.equal(one, two), name
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.emulated
@pytest.mark.filterwarnings("ignore:This process")  # has threads
def test_fork(calls):
    """A forked child makes its own operators, also for a graph of its parent."""
    given = with_leaves("sparse_attention", calls["sparse_attention"])
    out = call("sparse_attention", given)
    out.float().sum().backward(retain_graph=True)
    want = given["q"].grad.clone()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for name in ("sparse_attention", "indexer_topk", "indexer_loss"):
                call(name, fresh(calls[name]))
            with torch.autograd.set_multithreading_enabled(False):
                grad = torch.autograd.grad(out.float().sum(), given["q"])[0]
            status = 0 if torch.equal(grad, want) else 2
        except BaseException as error:  # noqa: BLE001
            # PyTorch's own error: earlier tests started its engine's threads.
            status = 0 if "Autograd-and-Fork" in str(error) else 1
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.emulated
@pytest.mark.filterwarnings("ignore:This process")  # has threads
def test_fork_during_calls(calls):
    """A process forks while other threads are in calls and hold the emulator's lock: the child can compute."""
    name, done = "sparse_attention", threading.Event()
    want = call(name, fresh(calls[name]))

    def work():
        while not done.is_set():
            call(name, fresh(calls[name]))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            child = os.fork()
            if child == 0:
                signal.alarm(120)  # ends a child that waits for a lock forever
                os._exit(0 if torch.equal(call(name, fresh(calls[name])), want) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()
