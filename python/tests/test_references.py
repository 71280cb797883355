"""Reference counts and memory: after a call, successful or not, all counts are as before."""

import array
import contextlib
import gc
import itertools
import sys

import pytest
import torch
from everything import REFUSALS, bases, call, differentiable, floats_of, functions, gradient_of, parameters
from conftest import DRIVER
from smelt_kernels import _native, _runtime
from torch.autograd.graph import saved_tensors_hooks
from two_gpus import FAILED, SKIPPED

pytestmark = pytest.mark.skipif(_runtime.EMULATED, reason="test_devices.py runs it, without kernels")
COUNT = 8  # calls; a leak grows with their number
# Common objects: other code changes their counts, too, by less than one reference per call.
SHARED = (
    None, True, False, (), torch.bfloat16, torch.float32, torch.int32, torch.uint8, torch.Tensor, torch.nn.Parameter,
)  # fmt: skip


class Stop(BaseException):
    """An exception that neither the package nor PyTorch catches."""


@pytest.fixture(scope="module")
def everything(device):
    made = bases(device)
    gc.collect()
    gc.freeze()  # existing objects are excluded from collections
    yield made
    gc.unfreeze()


def own(arguments):
    """Copies of tensors and numbers without other references."""
    kinds = {
        torch.Tensor: torch.clone,
        float: lambda value: float(repr(value)),
        tuple: lambda value: (*value, None)[:-1],
    }
    return {name: kinds.get(type(value), lambda value: value)(value) for name, value in arguments.items()}


def operators():
    return [each for each in _runtime._operators.values() if type(each) is _native.Operator]


def check_nothing_is_kept(arguments, action):
    """The growth of reference counts when an action is repeated."""
    held = [value for value in arguments.values() if isinstance(value, (torch.Tensor, float, tuple))] + operators()
    action()
    gc.collect()
    gc.disable()
    try:
        for _ in range(60):  # creates everything that is made only once, and fills caches; then growth ends
            problem = kept_by(held, action)
            if not problem:
                break
    finally:
        gc.enable()
        gc.freeze()
    assert not problem, problem


def kept_by(held, action):
    counts, shared = [sys.getrefcount(each) for each in held], [sys.getrefcount(each) for each in SHARED]
    blocks = array.array("q", [0] * (COUNT + 1))
    cycles = 0
    for i in range(COUNT + 1):
        cycles += gc.collect()  # also frees Python's free lists
        blocks[i] = sys.getallocatedblocks()
        action()
    after, shared_after = [sys.getrefcount(each) for each in held], [sys.getrefcount(each) for each in SHARED]
    changed = [(type(each), two - one) for each, one, two in zip(held, counts, after) if one != two]
    changed += [(each, two - one) for each, one, two in zip(SHARED, shared, shared_after) if abs(two - one) >= COUNT]
    if changed:
        return f"references: {changed}"
    grown = [two > one for one, two in zip(blocks, blocks[1:])]
    return f"blocks of memory: {blocks}, objects in cycles: {cycles}" if all(grown) or cycles >= COUNT else None


def of_each(function):
    """A test of a function's arguments, for each set of them."""

    @pytest.mark.parametrize("name", functions())
    def test(everything, name):
        for label, (of, arguments) in everything.items():
            if of == name:
                function(name, own(arguments))

    test.__doc__ = function.__doc__
    return test


@of_each
def test_calls(name, given):
    check_nothing_is_kept(given, lambda: call(name, given))


def stop(*_):
    raise Stop


@of_each
def test_gradients(name, given):
    """Successful calls, and calls that fail midway."""
    leaves = differentiable(name, given)
    if not leaves:
        return
    for each in leaves:
        given[each].requires_grad_()

    def action():
        gradient_of(given, call(name, given))

    def stopped_forward():
        with contextlib.suppress(Stop), saved_tensors_hooks(stop, stop):
            call(name, given)

    def stopped_backward():
        with contextlib.suppress(Stop):
            torch.autograd.grad(out, given[leaves[0]], grad, retain_graph=True)

    check_nothing_is_kept(given, action)
    check_nothing_is_kept(given, stopped_forward)
    with saved_tensors_hooks(lambda each: each, stop):
        out = floats_of(call(name, given))
    grad = torch.ones_like(out)
    check_nothing_is_kept(given, stopped_backward)


@of_each
def test_arguments_that_are_refused(name, given):
    """One wrong argument at a time, so that all earlier ones were processed."""
    call(name, given)
    refused = []
    for each, is_tensor in parameters(name).items():
        wrong = [object()]
        if is_tensor and given.get(each) is not None:
            wrong += [given[each].to(torch.complex64), given[each].unsqueeze(0).unsqueeze(0), given[each][:0]]
        refused += [{**given, each: value} for value in wrong]

    def action():
        for each in refused:
            with contextlib.suppress(*REFUSALS):
                call(name, each)

    check_nothing_is_kept(given, action)


@of_each
def test_no_memory(name, given):
    """Each allocation of a call fails in turn."""
    left = 0
    kind, dtypes, make, _, *streams = _runtime.SETUP

    def limited(*what):
        nonlocal left
        left -= 1
        if left < 0:
            raise Stop
        return make(*what)

    def is_stopped(most):
        nonlocal left
        left = most
        try:
            call(name, given)
        except Stop:
            return True
        return False

    call(name, given)
    _native.setup(kind, dtypes, limited, (None, None, None), *streams)
    try:
        most = 0
        while is_stopped(most):
            check_nothing_is_kept(given, lambda: is_stopped(most))
            most += 1
    finally:
        _native.setup(*_runtime.SETUP)
    assert most or name in ("clean_logits_", "project_values", "selection_difference")


@pytest.mark.skipif(not DRIVER, reason="a GPU cannot make a launch fail on request")
@of_each
def test_launches_that_fail(name, given):
    """Each launch of a call, in turn, forward and backward."""
    leaves = differentiable(name, given)
    for each in leaves:
        given[each].requires_grad_()

    left = 0

    def observe(*_):
        nonlocal left
        left -= 1
        return SKIPPED if left >= 0 else FAILED

    def is_stopped(most):
        nonlocal left
        left = most
        try:
            result = call(name, given)
            if leaves:
                gradient_of(given, result)
        except RuntimeError:
            return True
        return False

    most = 0
    DRIVER.observe(observe)
    try:
        while is_stopped(most):
            check_nothing_is_kept(given, lambda: is_stopped(most))
            most += 1
    finally:
        DRIVER.observe(lambda *_: SKIPPED)
    assert most or name in ("project_values", "selection_difference")


def test_sizes_that_never_come_back(everything):
    """The cache of results' sizes is bounded and can be freed completely."""
    _, given = everything["quantize"]
    row, rows = given["x"][:1], itertools.count(1)

    def action():
        for _ in range(50):
            call("quantize", {"x": row.expand(next(rows), -1)})

    check_nothing_is_kept({}, action)
