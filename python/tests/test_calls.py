"""Direct calls and calls through the custom operator: for any arguments, results, gradients and kinds of errors are the
same."""

import contextlib
import inspect
import itertools
import os
import random
import weakref

import pytest
import smelt_kernels as smelt
import torch
from conftest import Operators, Problem, check_grad
from everything import (
    DIFFERENTIABLE, OTHER_VALUES, REFUSALS, arguments_of_all, bases, call, differentiable, fresh, fullest, functions,
    gradient_of, has_fp8, other_value, parameters, tensors_of, with_leaves,
)  # fmt: skip
from smelt_kernels._operation import Operation
from test_hostile import Wrapper
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_map_only

KERNELS = sorted(set(functions()) - {"project_values", "selection_difference"})  # which is a product by PyTorch


@pytest.fixture(scope="module")
def everything(device):
    return bases(device)


def outcome(name, given, wanted=()):
    """The tensors that a call returns, and the gradients of `wanted`; or the kind of its error."""
    given = fresh(given)
    for each in wanted:
        given[each].requires_grad_()
    try:
        result = call(name, given)
    except REFUSALS as error:
        return type(error)
    made = gradient_of(given, result) if wanted else ()
    return [each.held if isinstance(each, Wrapper) else each for each in (*tensors_of(result), *made)]


def by_operator(name, given, wanted=()):
    with Operators() as mode:
        made = outcome(name, given, wanted)
    assert isinstance(made, type) or any("smelt." in each for each in mode.seen), name
    return made


def check_same(got, want, what):
    if isinstance(want, type) or isinstance(got, type):
        assert got is want, what
        return
    for one, two in zip(got, want, strict=True):
        kind = (one.shape, one.dtype, one.device, one.requires_grad, one.stride())
        assert kind == (two.shape, two.dtype, two.device, two.requires_grad, two.stride()), what
        if not one.is_meta:
            one, two = one.detach().float(), two.detach().float()
            torch.testing.assert_close(one, two, rtol=0.02, atol=1e-2, msg=str(what))


# ---- layouts ----------------------------------------------------------------------------------------


def wide_rows(tensor):
    """The same tensor with larger gaps between rows."""
    if not tensor.dim():
        return tensor
    return torch.cat([tensor, tensor[..., :1].expand(*tensor.shape[:-1], 16)], -1)[..., : tensor.shape[-1]]


def behind(tensor, bytes):
    """The same tensor, so many bytes from the beginning of its storage."""
    head = tensor.new_empty(bytes // tensor.element_size())
    return torch.cat([head, tensor.flatten()])[len(head) :].view(tensor.shape)


def odd_steps(tensor):
    """The same tensor, with arbitrary strides of dimensions of extent 1."""
    steps = [step if size > 1 else 12345 for size, step in zip(tensor.shape, tensor.stride())]
    return tensor.as_strided(tensor.shape, steps)


LAYOUTS = {
    "wide rows": wide_rows, "apart": lambda tensor: torch.stack([tensor, tensor], -1)[..., 0],
    "transposed": lambda tensor: tensor.transpose(0, -1).contiguous().transpose(0, -1),
    "16 bytes behind": lambda tensor: behind(tensor, 16), "4 bytes behind": lambda tensor: behind(tensor, 4),
    "odd steps": odd_steps, "parameter": lambda tensor: torch.nn.Parameter(tensor.clone(), requires_grad=False),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_layouts(everything, name):
    """Layouts of a tensor, which do not affect results. Each tensor gets some of them, in turn."""
    label, base = fullest(everything, name)
    for given in (base, dict(of_all_tensors(name, base)).get("a query less")):  # a single query, with extents of 1
        if given:
            check_layouts(name, label, given)


def check_layouts(name, label, base):
    want = outcome(name, base)
    layouts = itertools.cycle(LAYOUTS.items())
    for each in [key for key, value in base.items() if isinstance(value, torch.Tensor)]:
        for layout, change in itertools.islice(layouts, 3):
            if (name, each) not in (("clean_logits_", "logits"), ("sparse_attention_backward", "dkv_sum")):  # are written
                got = call(name, {**fresh(base), each: change(base[each].clone())})
                check_same(tensors_of(got), want, (label, each, layout))


# ---- other arguments --------------------------------------------------------------------------------


def other_tensors(tensor):
    """(the change, the tensor): some are refused."""
    yield "a dimension more", tensor.unsqueeze(0)
    if tensor.dim():
        yield "a dimension less", tensor[0]
    for dimension, size in enumerate(tensor.shape):
        yield f"size {dimension}", tensor.narrow(dimension, 0, size - 1)
    for kind in (torch.bfloat16, torch.float32, torch.int32, torch.float8_e4m3fn, torch.float16, torch.int64):
        if kind is not tensor.dtype:
            yield str(kind), tensor.to(kind)
    yield "meta", tensor.to("meta")


def other_calls(name, base):
    """(the change, the arguments)."""
    for each, is_tensor in parameters(name).items():
        value = base.get(each)
        if not is_tensor:
            yield each, {**base, each: other_value(name, each)}
            continue
        if each not in base:
            continue
        if inspect.signature(getattr(smelt, name)).parameters[each].default is None:
            yield f"no {each}", {key: other for key, other in base.items() if key != each}
        for what, other in other_tensors(value):
            yield f"{each}: {what}", {**base, each: other}
    yield from of_all_tensors(name, base)


def of_all_tensors(name, base):
    """Changes of all tensors: subclass, one query less, batches."""
    tokens = base["q"].shape[0] if "q" in base else None
    queries = [key for key, value in base.items() if isinstance(value, torch.Tensor) and value.shape[:1] == (tokens,)]
    tensors = {key: value for key, value in base.items() if isinstance(value, torch.Tensor)}
    yield "wrapped", {**base, **{key: Wrapper(value) for key, value in tensors.items()}}
    if tokens:
        yield "a query less", {**base, **{key: base[key][: tokens - 1] for key in queries}}
    if name.startswith("sparse"):
        rows = [each for each in ("kv", "dkv_sum") if each in base]
        batched = {key: base[key].unsqueeze(0) for key in (*queries, *rows)}
        yield "a batch", {**base, **batched}
        yield "two batches", {**base, **{key: torch.cat([each, each]) for key, each in batched.items()}}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KERNELS)
def test_other_calls(everything, name):
    label, base = fullest(everything, name)
    true = outcome(name, base)
    others = dict(other_calls(name, base))
    got = {what: outcome(name, given) for what, given in others.items()}  # detects state kept by a call
    for what, given in others.items():
        smelt._runtime._found.clear()
        check_same(got[what], by_operator(name, given), (label, what))
    check_same(outcome(name, base), true, label)


class Changing:
    """A number whose value a program changes in place."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __index__(self):
        if isinstance(self.value, float):
            raise TypeError("no integer")
        return self.value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KERNELS)
def test_numbers_that_change(everything, name):
    """Each call uses the current value of a number that is changed in place."""
    _, base = fullest(everything, name)
    for index, (each, is_tensor) in enumerate(parameters(name).items()):
        other = None if is_tensor or each in ("backend", "buckets") else other_value(name, each)
        if type(other) not in (int, float, bool):
            continue
        first = base.get(each, inspect.signature(getattr(smelt, name)).parameters[each].default)
        if type(first) is not type(other):  # None, say: begin with another one
            first = not other if type(other) is bool else other + other
        number = (torch.tensor, Changing)[index % 2](first)
        outcome(name, {**base, each: number})
        if isinstance(number, Changing):
            number.value = other
        else:
            number.fill_(other)
        got = outcome(name, {**base, each: number})
        if got not in REFUSALS:
            check_same(got, outcome(name, {**base, each: other}), each)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KERNELS)
def test_modes(everything, name, device):
    modes = {
        "inference": torch.inference_mode, "deterministic": deterministic,
        "autocast": lambda: torch.autocast(device.type, dtype=torch.bfloat16),
        "autocast to fp16": lambda: torch.autocast(device.type, dtype=torch.float16),
    }  # fmt: skip
    base = everything[name][1]
    for mode, enter in modes.items():
        with enter():
            got, want = outcome(name, base), by_operator(name, base)
        check_same(got, want, mode)
        if not isinstance(got, type):
            assert [each.is_inference() for each in got] == [mode == "inference"] * len(got)


@pytest.mark.parametrize("shape", [(64,), (5, 64), (3, 2, 64), (2, 1, 3, 64), (0, 64)])
def test_rows_of_any_dimensions(device, shape):
    """quantize flattens all dimensions except the last, also of strided rows, and restores them."""
    x = torch.randn(*shape[:-1], 128, device=device).to(torch.bfloat16)[..., :64]
    factor = torch.rand(shape[:-1], device=device)
    y, scales = smelt.quantize(x, factor=factor, backend="torch")
    got, of = smelt.quantize(x, factor=factor, backend="smelt")
    assert got.shape == y.shape and of.shape == scales.shape
    assert torch.equal(got.view(torch.uint8), y.view(torch.uint8))
    torch.testing.assert_close(of, scales)
    if len(shape) > 2:
        got, _ = smelt.quantize(x.transpose(0, 1), backend="smelt")  # its rows are no one dimension
        assert torch.equal(got.view(torch.uint8), y.transpose(0, 1).view(torch.uint8))
        with pytest.raises(ValueError, match="factor"):
            smelt.quantize(x, factor=factor.flatten(), backend="smelt")


# ---- PyTorch's tools --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_opcheck(everything, name, monkeypatch):
    """The custom operators of a call with all arguments, as it calls them: schemas, fakes, autograd's registration."""
    seen, without_fp8 = [], {label: each for label, each in everything.items() if not has_fp8(each[1])}  # opcheck has none
    run, base = Operation._by_operator, fullest(without_fp8, name)[1]

    def keep(operation, given):
        """As it was before the call; with gradients of its first result alone."""
        wanted = operation.leaves and operation.result in (0, (0, 1))
        copies = tree_map_only(torch.Tensor, lambda each: each.detach().clone(), tuple(given))
        for each, copy in zip(given, copies):
            if wanted and isinstance(each, torch.Tensor):
                copy.requires_grad_(each.requires_grad)
        seen.append((operation.operator, copies))
        return run(operation, given)

    monkeypatch.setattr(Operation, "_by_operator", keep)
    by_operator(name, base, differentiable(name, base))
    assert seen
    for operator, given in seen:
        torch.library.opcheck(operator, given)


def test_one_graph(everything):
    """Every function with all of its arguments, and the gradients, in one graph without a break."""
    given = {name: fresh(fullest(everything, name)[1]) for name in KERNELS}
    leaves = [given[name][each].requires_grad_() for name in KERNELS for each in differentiable(name, given[name])]

    def program():
        return {name: tensors_of(call(name, each)) for name, each in given.items()}

    want, got = program(), torch.compile(program, fullgraph=True, backend="aot_eager")()
    for name in KERNELS:
        check_same(got[name], want[name], name)
    grads = []
    for made in (got, want):
        results = [each.float().nan_to_num(neginf=0).sum() for made_ in made.values() for each in made_ if each.requires_grad]
        grads.append(torch.autograd.grad(sum(results), leaves))
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one, two, rtol=0.02, atol=1e-2)


# ---- gradients --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name,each", [("sparse_attention_backward", "grad_out"), ("indexer_backward", "grad")])
def test_gradients_of_other_types(everything, name, each):
    """Such tensors are legal."""
    _, base = everything[name]
    given = {**base, each: base[each].bfloat16().float()}
    want = outcome(name, given)
    for kind in (torch.bfloat16, torch.float64):
        check_same(outcome(name, {**given, each: given[each].to(kind)}), want, kind)


@pytest.mark.parametrize("name", sorted(set(KERNELS) & set(DIFFERENTIABLE)))
def test_what_wants_gradients(everything, name):
    """For each argument and for all: the same gradients on both paths, also of the eager reference; none if none is
    required."""
    for label, (of, base) in everything.items():
        if of != name:
            continue
        leaves = differentiable(name, base)
        for wanted in [(each,) for each in leaves] + [leaves] if leaves else []:
            got = outcome(name, base, wanted)
            check_same(got, by_operator(name, base, wanted), (label, wanted))
            assert sum(each.requires_grad for each in got) == 1, (label, wanted)
        if leaves:
            eager = {**base, "backend": "torch"}
            check_same(outcome(name, eager, leaves), by_operator(name, eager, leaves), (label, "eager"))
        assert not any(each.requires_grad for each in outcome(name, base))
        with torch.no_grad():
            given = with_leaves(name, base) if leaves else fresh(base)
            assert not any(each.requires_grad for each in tensors_of(call(name, given)))


@pytest.fixture
def problem(device):
    return Problem(device, sink=True, lengths=True)


def test_what_autograd_asks_of_a_node(problem):
    """Saved tensors go through pack and unpack hooks and are checked for in-place changes; nodes have hooks and names,
    are freed by a backward pass and work with anomaly detection."""
    packed = []
    with saved_tensors_hooks(lambda each: packed.append(each) or len(packed) - 1, lambda at: packed[at]):
        out = problem.run()
    assert len(packed) >= 7  # q, kv, indices, lengths, sink, out, lse
    true = problem.truth()[3]
    for got, want in zip(torch.autograd.grad(out, problem.leaves(), problem.grad_out), true):
        check_grad(got, want)

    out, seen = problem.run(), []
    out.grad_fn.register_hook(lambda given, _: seen.append(len(given)))
    out.register_hook(lambda grad: grad * 2)
    torch.autograd.grad(out, problem.leaves(), problem.grad_out)
    assert len(seen) == 1 and "Backward" in out.grad_fn.name()
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out, problem.leaves(), problem.grad_out)
    with torch.autograd.set_detect_anomaly(True):
        check_grad(torch.autograd.grad(problem.run(), problem.q, problem.grad_out)[0], true[0])

    problem.kv = keys = problem.kv.detach().clone().requires_grad_()
    out = problem.run()
    with torch.no_grad():
        keys.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        torch.autograd.grad(out, problem.q, problem.grad_out)


def test_the_partition_is_kept(problem):
    """The partition of buckets is a saved tensor, which the backward pass reuses."""
    packed = []
    with saved_tensors_hooks(lambda each: packed.append(each) or each, lambda each: each):
        out = problem.run(buckets=(4,), deterministic=True)
    assert sum(each.dtype is torch.uint8 for each in packed) == 1
    for got, want in zip(torch.autograd.grad(out, problem.leaves(), problem.grad_out), problem.truth()[3]):
        check_grad(got, want)


def test_unused_results(device):
    """Only indexer_topk's values have gradients; none if they are not used."""
    given = with_leaves("indexer_topk", arguments_of_all(device)["indexer_topk"])
    indices, values, lengths = call("indexer_topk", given)
    assert values.requires_grad and not indices.requires_grad and not lengths.requires_grad
    loss = given["q"].float().sum() + 0 * values.detach().nan_to_num(neginf=0).sum()
    loss.backward()
    assert torch.equal(given["q"].grad, torch.ones_like(given["q"]))


def test_fp8_has_no_gradients(device):
    given = arguments_of_all(device)["indexer_topk"]
    given["q"], given["k"] = (given[each].to(torch.float8_e4m3fn) for each in ("q", "k"))
    given["k_scale"] = torch.ones(4, device=device)
    given["weights"].requires_grad_()
    assert not call("indexer_topk", given)[1].requires_grad


def test_nothing_is_held(problem):
    """A call's tensors are freed with their last reference, with a graph or without."""
    for grads in (True, False):
        with torch.set_grad_enabled(grads):
            out, lse = problem.run(return_lse=True)
            if grads:
                torch.autograd.grad(out, problem.q, problem.grad_out, retain_graph=True)
            gone = [weakref.ref(each) for each in (out, lse)]
            del out, lse
        assert all(each() is None for each in gone)


def test_every_argument_is_here(everything):
    """See everything.py."""
    assert {of for of, _ in everything.values()} == set(functions())
    for name in functions():
        given = set().union(*(base for of, base in everything.values() if of == name))
        for each, is_tensor in parameters(name).items():
            assert each in (given if is_tensor else OTHER_VALUES), (name, each)


BY_THE_KERNEL = {"backend", "workspace_limit"}  # how much a kernel needs is its own affair
# Values of an argument that is no tensor; its legal ones are among them.
ANYTHING = (None, True, 0, 1, 2, 3, 64, 128, -1, 1 << 31, 0.5, 0.0, -0.25, 1e39, float("nan"), "index", "score", "auto")
ANYTHING += ("plain", "power_of_two", "natural", "base2", "x", (2,), (3, 1), (), torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"sparse_attention_backward"}))
def test_both_take_or_refuse_options(everything, name):
    """Random options: what kernels refuse the eager reference refuses, and what they take it takes. A RuntimeError says
    that there is no kernel, of which the reference has no need."""
    seed = int(os.environ.get("SMELT_TEST_SEED") or 30)
    random_ = random.Random(f"{seed} {name}")
    options = [each for each, is_tensor in parameters(name).items() if not is_tensor and each not in BY_THE_KERNEL]
    taken = 0
    for attempt in range(40 if options else 0):
        base = random_.choice([given for of, given in everything.values() if of == name])
        chosen = random_.sample(options, min(len(options), random_.choice((1, 1, 2))))
        changes = {each: random_.choice(ANYTHING) for each in chosen}
        given = {**base, **changes}
        smelt_says, torch_says = (outcome(name, {**given, "backend": backend}) for backend in ("smelt", "torch"))
        what = f"SMELT_TEST_SEED={seed}, attempt {attempt}: {changes}"
        if smelt_says is RuntimeError:
            continue
        if isinstance(smelt_says, type) or isinstance(torch_says, type):
            said = [each if isinstance(each, type) else "taken" for each in (smelt_says, torch_says)]
            assert said[0] is said[1], (what, said)
        else:
            taken += 1
            shapes = [[(each.shape, each.dtype) for each in made] for made in (smelt_says, torch_says)]
            assert shapes[0] == shapes[1], what
    assert taken or not options
