"""A call that differs in one property from calls that were made before is what it is when it is the first one."""

import contextlib
import inspect
import itertools

import pytest
import smelt
import torch
from everything import OTHER_VALUES, bases, differentiable, fullest, functions, gradient_of, other_value, parameters
from smelt import _runtime
from test_hostile import REFUSALS, Wrapper, call, fresh, tensors_of


@pytest.fixture(scope="module")
def everything(device):
    return bases(device)


KERNELS = sorted(set(functions()) - {"project_values"})  # which is a product of PyTorch's


def forget():
    """As in a new process, but for the contexts."""
    for calls in _runtime.tables:
        calls.forget()
    _runtime._operators.clear()
    _runtime.ready.clear()


def outcome(name, given):
    """What a call returns, or the kind of its error."""
    try:
        result = call(name, fresh(given))
    except REFUSALS as error:
        return type(error)
    return [each.held if isinstance(each, Wrapper) else each for each in tensors_of(result)]


def check_same(got, want, what):
    if isinstance(want, type) or isinstance(got, type):
        assert got is want, what
        return
    for one, two in zip(got, want, strict=True):
        kind = (one.shape, one.dtype, one.device, one.requires_grad, one.stride())
        assert kind == (two.shape, two.dtype, two.device, two.requires_grad, two.stride()), what
        if not one.is_meta:
            torch.testing.assert_close(one.detach().float(), two.detach().float(), rtol=1e-5, atol=1e-6, msg=str(what))


def wide_rows(tensor):
    """The same, with more between its rows."""
    if not tensor.dim():
        return tensor
    return torch.cat([tensor, tensor[..., :1].expand(*tensor.shape[:-1], 16)], -1)[..., : tensor.shape[-1]]


def apart(tensor):
    return torch.stack([tensor, tensor], -1)[..., 0]


def turned(tensor):
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def behind(tensor, bytes):
    """The same, so many bytes from the beginning of its storage."""
    head = tensor.new_empty(bytes // tensor.element_size())
    return torch.cat([head, tensor.flatten()])[len(head) :].view(tensor.shape)


def odd_steps(tensor):
    """The same, with strides of dimensions of extent 1 that no memory has."""
    steps = [step if size > 1 else 12345 for size, step in zip(tensor.shape, tensor.stride())]
    return tensor.as_strided(tensor.shape, steps)


LAYOUTS = {
    "wide rows": wide_rows,
    "apart": apart,
    "turned": turned,
    "16 bytes behind": lambda tensor: behind(tensor, 16),
    "4 bytes behind": lambda tensor: behind(tensor, 4),
    "odd steps": odd_steps,
    "parameter": lambda tensor: torch.nn.Parameter(tensor.clone(), requires_grad=False),
}


@pytest.mark.parametrize("name", KERNELS)
def test_layouts(everything, name):
    """Of a tensor, which the results do not depend on. Some of them for each tensor, in turn."""
    label, base = fullest(everything, name)
    for given in (base, dict(of_all_tensors(name, base)).get("a query less")):  # which has one query: extents of 1
        if given:
            check_layouts(name, label, given)


def check_layouts(name, label, base):
    forget()
    want = outcome(name, base)
    layouts = itertools.cycle(LAYOUTS.items())
    for each in [key for key, value in base.items() if isinstance(value, torch.Tensor)]:
        for layout, change in itertools.islice(layouts, 3):
            if each != "logits" or name != "clean_logits_":  # whose result it is
                got = call(name, {**fresh(base), each: change(base[each].clone())})
                check_same(tensors_of(got), want, (label, each, layout))


def other_tensors(tensor):
    """(what is other, the tensor): some are refused."""
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
    """(what is other, its arguments)."""
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


def other_values(tensor):
    if tensor.dtype is torch.float8_e4m3fn:
        return (tensor.float() / 2).to(tensor.dtype)
    return tensor.flip(0) if tensor.dtype is torch.int32 else tensor * 1.5


def of_all_tensors(name, base):
    """Of all at once: values, subclass, one query less, batches."""
    tokens = base["q"].shape[0] if "q" in base else None
    queries = [key for key, value in base.items() if isinstance(value, torch.Tensor) and value.shape[:1] == (tokens,)]
    tensors = {key: value for key, value in base.items() if isinstance(value, torch.Tensor)}
    yield "other values", {**base, **{key: other_values(value) for key, value in tensors.items()}}
    yield "wrapped", {**base, **{key: Wrapper(value) for key, value in tensors.items()}}
    if tokens:
        yield "a query less", {**base, **{key: base[key][: tokens - 1] for key in queries}}
    if name.startswith("sparse"):
        rows = [each for each in ("kv", "dkv_sum") if each in base]
        batched = {key: base[key].unsqueeze(0) for key in (*queries, *rows)}
        yield "a batch", {**base, **batched}
        yield "two batches", {**base, **{key: torch.cat([each, each]) for key, each in batched.items()}}


class Changing:
    """A number that a program changes, and has the same identity then."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __index__(self):
        if isinstance(self.value, float):
            raise TypeError("no integer")
        return self.value


def set_number(number, value):
    if isinstance(number, Changing):
        number.value = value
    else:
        number.fill_(value)


def check_numbers(name, base, want):
    """Numbers that a program changes in place count as they are at each call, where a function takes them."""
    for place, (each, is_tensor) in enumerate(parameters(name).items()):
        other = None if is_tensor or each in ("backend", "buckets") else other_value(name, each)
        if type(other) not in (int, float, bool):
            continue
        first = base.get(each, inspect.signature(getattr(smelt, name)).parameters[each].default)
        if type(first) is not type(other):  # None, say: begin with another one
            first = not other if type(other) is bool else other + other
        number = (torch.tensor, Changing)[place % 2](first)
        outcome(name, {**base, each: number})
        set_number(number, other)
        got = outcome(name, {**base, each: number})
        if got not in REFUSALS:
            check_same(got, want[each], each)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KERNELS)
def test_other_calls(everything, name):
    label, base = fullest(everything, name)
    others = dict(other_calls(name, base))
    want = {}
    for what, given in others.items():
        forget()
        want[what] = outcome(name, given)
    forget()
    true = outcome(name, base)
    for again in (False, True):  # the base is known, and what came before; all are
        for what, given in others.items():
            check_same(outcome(name, given), want[what], (label, what, again))
    check_same(outcome(name, base), true, label)
    check_numbers(name, base, want)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def modes(device):
    return {
        "inference": torch.inference_mode,
        "deterministic": deterministic,
        "autocast": lambda: torch.autocast(device.type, dtype=torch.bfloat16),
        "autocast to fp16": lambda: torch.autocast(device.type, dtype=torch.float16),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KERNELS)
def test_modes(everything, name, device):
    base = everything[name][1]
    want = {}
    for mode, enter in modes(device).items():
        forget()
        with enter():
            want[mode] = outcome(name, base)
    forget()
    outcome(name, base)
    for mode, enter in modes(device).items():
        with enter():
            got = outcome(name, base)
        check_same(got, want[mode], mode)
        if not isinstance(got, type):
            assert [each.is_inference() for each in got] == [mode == "inference"] * len(got)


@pytest.mark.parametrize("name,each", [("sparse_attention_backward", "grad_out"), ("indexer_backward", "grad")])
def test_gradients_of_other_types(everything, name, each):
    """Are taken, at the first call and later."""
    _, base = everything[name]
    given = {**base, each: base[each].bfloat16().float()}
    want = outcome(name, given)
    for kind in (torch.bfloat16, torch.float64, torch.float32):
        forget()
        for _ in range(2):
            check_same(outcome(name, {**given, each: given[each].to(kind)}), want, kind)


@pytest.mark.parametrize("name", KERNELS)
def test_what_wants_gradients(everything, name):
    """Any of the arguments alone, after calls that want others' and none; gradients as of a first call."""
    for label, (of, base) in everything.items():
        leaves = differentiable(name, base) if of == name else ()

        def run(wanted):
            given = fresh(base)
            for each in wanted:
                given[each].requires_grad_()
            result = call(name, given)
            made = gradient_of(given, result) if wanted else ()
            return [*tensors_of(result), *made]

        choices = [(each,) for each in leaves] + [leaves, ()] if leaves else []
        want = {}
        for wanted in choices:
            forget()
            want[wanted] = run(wanted)
        for wanted in (*choices, *reversed(choices))[len(choices) - 1 :]:  # the last one is known
            check_same(run(wanted), want[wanted], (label, wanted))


def test_every_argument_is_here(everything):
    """See everything.py."""
    assert {of for of, _ in everything.values()} == set(functions())
    for name in functions():
        given = set().union(*(base for of, base in everything.values() if of == name))
        for each, is_tensor in parameters(name).items():
            assert each in (given if is_tensor else OTHER_VALUES), (name, each)
