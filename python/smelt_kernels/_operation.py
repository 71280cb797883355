"""The two ways of a call.

An eager call on plain tensors goes to the native module directly. A call that something looks into (torch.compile,
export, fake tensors, functorch, dispatch modes, tensor subclasses, forward-mode AD, the profiler) goes through the
custom operator `torch.ops.smelt.NAME`, which costs tens of microseconds. Both ways run the same kernel function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

from . import _native, _runtime
from ._checks import BACKENDS, CHOICES, choose, integer, number, optional_tensor, tensor

library = torch.library.Library("smelt", "FRAGMENT")
_NOT_IN_KEY = 127

_is_grad_enabled = torch.is_grad_enabled
any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)

is_batched = getattr(getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda tensor: False)

# PyTorch does not promise these names. Without one, every call goes through its custom operator.
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_functorch = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
if (
    None not in (_dispatch_modes, _functorch)
    and hasattr(torch.autograd.profiler, "_is_profiler_enabled")
    and hasattr(forward_ad, "_current_level")
):
    _native.watch(Tensor, Parameter, _dispatch_modes, _functorch, torch.autograd.profiler, forward_ad)


def is_traced() -> bool:
    """Whether a compiler, a dispatch mode or a transform looks into the program, or it cannot be told."""
    if is_compiling() or None in (_dispatch_modes, _functorch):
        return True
    return _dispatch_modes() > 0 or _functorch() is not None


def autocast_type(tensor: Tensor):
    """The type that autocast casts to on a tensor's device, None where it is off."""
    device = tensor.device.type
    if device == "meta":  # PyTorch has no autocast for it
        return None
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def may_cast(value) -> bool:
    """Whether a call with this tensor first has as_kernels_read; quick, and sometimes True in vain."""
    return any_autocast() or getattr(value, "dtype", None) is torch.float16


def as_kernels_read(backend: str | None, first: Tensor, *others: Tensor) -> tuple:
    """(the type that results are to have or None, the tensors): in bf16, which kernels read.

    Autocast, whatever its type, casts floating tensors to bf16. Without it tensors in fp16 are cast, with a warning,
    unless the eager reference was asked for, which computes in their type. Results have the type that PyTorch's own
    operators would give.
    """
    given = (first, *others)
    if not all(isinstance(each, Tensor) for each in given):
        return None, *given  # an error follows
    wanted = autocast_type(first)
    in_fp16 = wanted is None and all(each.dtype is torch.float16 for each in given)
    if in_fp16 and (backend or _runtime.get_backend()) != "torch":
        wanted = torch.float16
        _runtime.warn_once("smelt: inputs in torch.float16 are rounded to torch.bfloat16, which the kernels read")
    cast = [each.is_floating_point() and each.element_size() > 1 for each in given]  # integers and fp8 stay
    if wanted is None or all(each.dtype is torch.bfloat16 for each, wide in zip(given, cast) if wide):
        return None, *given
    return wanted, *(each.to(torch.bfloat16) if wide else each for each, wide in zip(given, cast))


def wants_gradients(*tensors: Tensor | None) -> bool:
    if torch.is_grad_enabled():
        for each in tensors:
            if each is not None and each.requires_grad:
                return True
    return False


def _not_by_func(name: str, what: str) -> RuntimeError:
    return RuntimeError(
        f"smelt: {name} cannot be {what}: use torch.autograd.grad or backward(), with is_grads_batched=True for several "
        "gradients at once"
    )


def refuse_transforms(name: str) -> None:
    """An error under torch.func's transforms, for functions that call autograd themselves."""
    if not is_compiling() and _functorch is not None and _functorch() is not None:
        raise _not_by_func(name, "transformed by torch.func or vmap (its tensors already have a batch dimension)")


def _text(value, name: str):
    choose(value, name, CHOICES[name])
    return value


def _long(value, name: str):
    return value if isinstance(value, torch.SymInt) else integer(value, name, 64)


# Annotations of kernel functions: the type in the custom operator's schema, and what checks an argument of it.
_TYPES = {
    "Tensor": ("Tensor", tensor), "Tensor | None": ("Tensor?", optional_tensor), "int": ("SymInt", _long),
    "float": ("float", number), "bool": ("bool", lambda value, name: bool(value)),
    "bool | None": ("bool?", lambda value, name: value if value is None else bool(value)), "str": ("str", _text),
    "str | None": ("str?", lambda value, name: value if value is None else _text(value, name)),
    "tuple[int, ...]": ("int[]", lambda value, name: value),
    "torch.dtype | None": ("ScalarType?", lambda value, name: value),
}  # fmt: skip


class Operation:
    """A function's kernel function; `call` runs it directly or as the custom operator of its name.

    kernel: computes on plain tensors, of the call's key (see `key`) and the arguments. It returns a tuple: the operator's
        outputs, None for those that were not asked for, and more that `saved` may keep.
    fake: as the kernel, but of the arguments alone, and only shapes and types of the outputs.
    parameters: {argument: its type, as _TYPES has it}, tensors first: the custom operator's signature.
    outputs: how many there are. written: the arguments that the kernel writes.
    key: {tensor: how many of its last sizes}: the call's key is the device, then type and these sizes of each.
    """

    def __init__(
        self,
        name: str,
        kernel: Callable,
        fake: Callable,
        parameters: dict,
        outputs: int,
        key: dict,
        written: tuple = (),
    ):
        self.name, self.kernel, self.outputs = name, kernel, outputs
        self.names = tuple(parameters)
        self.checks = tuple(_TYPES[each][1] for each in parameters.values())
        self.tensors = sum(each.startswith("Tensor") for each in parameters.values())
        self.key = bytes(key.get(name, _NOT_IN_KEY) for name in self.names[: self.tensors])
        self.leaves: tuple = ()
        types = [_TYPES[each][0] + ("(a!)" if name in written else "") for name, each in parameters.items()]
        arguments = ", ".join(map(" ".join, zip(types, parameters)))
        library.define(f"{self.name}({arguments}) -> ({', '.join(['Tensor'] * outputs)})")
        for device in ("CPU", "CUDA"):
            library.impl(self.name, self._as_operator(self._with_key), device)
        torch.library.register_fake(f"smelt::{self.name}", self._as_operator(fake), lib=library)
        self.operator = getattr(torch.ops.smelt, self.name).default
        self.call = self._make_call()
        if written:
            self.call = self._without_gradients_of(written)

    def _as_operator(self, function):
        """An operator's outputs are all tensors: those that were not asked for are empty."""

        def run(*arguments):
            made = function(*arguments)[: self.outputs]
            made = tuple(arguments[0].new_empty((0,), dtype=torch.float32) if each is None else each for each in made)
            return made if self.outputs > 1 else made[0] if made else None

        return run

    def _with_key(self, *arguments):
        return self.kernel(_native.look(self.key, arguments, self.names), *arguments)

    def _make_call(self):
        """A closure, since a call of an object takes longer."""
        kernel, look, counts = self.kernel, _native.look, self.key

        def call(*arguments) -> tuple:
            key = None if is_compiling() else look(counts, arguments, None)
            if key is None:
                return self._watched(arguments)
            try:
                if _is_grad_enabled():
                    for place in self.leaves:
                        if arguments[place] is not None and arguments[place].requires_grad:
                            return self._with_gradients(key, arguments)
                return kernel(key, *arguments)
            except Exception:
                problem = self._problem(arguments)
                if problem is None:
                    raise
                try:
                    raise problem from None
                finally:
                    del problem  # a frame that holds its exception would live until the next collection

        return call

    def _without_gradients_of(self, written: tuple):
        """The call, which refuses to write to a tensor whose gradient would then be wrong."""
        call, indices = self.call, [(self.names.index(name), name) for name in written]

        def checked(*arguments) -> tuple:
            for index, name in indices:
                if _is_grad_enabled() and getattr(arguments[index], "requires_grad", False):
                    raise ValueError(
                        f"smelt: {name} is written in place, which autograd does not record, but requires a gradient: "
                        "detach it, or call under torch.no_grad()"
                    )
            return call(*arguments)

        return checked

    def _with_gradients(self, key, arguments) -> tuple:
        made = []
        out = _apply(self, key, arguments, made, *[arguments[place] for place in self.leaves])
        if not self.several:
            made[self.result] = out
        else:
            for place, each in zip(self.result, out):
                made[place] = each
        return tuple(made)

    def _problem(self, arguments):
        """After a failure: this message is the better one where the kernel relied on what is checked here."""
        try:
            self._check(arguments)
        except (TypeError, ValueError) as problem:
            return problem

    def _check(self, arguments):
        metas = [each.is_meta for each in arguments[: self.tensors] if isinstance(each, Tensor)]
        if any(metas) and not all(metas):
            raise ValueError("smelt: tensors must be on one device, and some are on meta, which has no data")
        if self.names[-1] == "backend" and arguments[-1] is not None:
            choose(arguments[-1], "backend", BACKENDS)
        self.check_arguments(arguments)

    def check_arguments(self, arguments) -> None:
        """Of what kernel and fake rely on. In a direct call the native module has the first word."""

    def _checked(self, arguments) -> list:
        """The arguments, checked and in the form that the custom operator takes."""
        arguments = [check(value, name) for check, value, name in zip(self.checks, arguments, self.names)]
        self._check(arguments)
        return arguments

    def _watched(self, arguments) -> tuple:
        arguments = self._checked(arguments)
        if not is_compiling():
            self._refuse_dtensors(arguments)
        if self.leaves:
            _refuse_tangents(arguments[: self.tensors])
        else:
            for place, each in enumerate(arguments[: self.tensors]):
                if each is not None and each.requires_grad:
                    arguments[place] = each.detach()
        return self._by_operator(arguments)

    def _refuse_dtensors(self, arguments) -> None:
        """Instead of PyTorch's own error, which advises making the other tensors DTensors, too."""
        kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())
        for name, each in zip(self.names, arguments[: self.tensors]):
            if isinstance(each, kind):
                raise TypeError(f"smelt: {name} must be a local tensor, not a DTensor: pass {name}.to_local()")

    def _by_operator(self, arguments) -> tuple:
        try:
            made = self.operator(*arguments)
        except RuntimeError as error:
            if "setup_context" not in str(error):  # words of PyTorch's error about torch.func's gradients
                raise
            raise _not_by_func(self.name, "differentiated by torch.func's grad, vjp, jacrev or hessian") from None
        return made if self.outputs > 1 else (made,)

    # ---- gradients ----------------------------------------------------------------------------------

    def differentiable(self, leaves: tuple, result: int | tuple, saved: Callable, gradients: Callable) -> None:
        """leaves: names of the tensors that have gradients. result: the number of the output that has one, or a tuple.
        saved(arguments, outputs): the tensors that the backward pass keeps, and anything else that it needs.
        gradients(grad, rest, *tensors): of the leaves. With a tuple `grad` is one, too, with None where no gradient
        comes."""
        self.leaves = tuple(self.names.index(name) for name in leaves)
        self.several = isinstance(result, tuple)
        results = result if isinstance(result, tuple) else (result,)
        self.result, self.saved, self.gradients = result, saved, gradients

        def keep(ctx, inputs, output):
            made = output if isinstance(output, tuple) else (output,)
            ctx.mark_non_differentiable(*[each for place, each in enumerate(made) if place not in results])
            ctx.set_materialize_grads(False)
            tensors, ctx.rest = saved(inputs, made)
            ctx.save_for_backward(*tensors)

        def flow(ctx, *grads):
            every = [None] * len(self.names)
            given = tuple(grads[place] for place in results)
            if any(each is not None for each in given):
                made = gradients(given if self.several else given[0], ctx.rest, *ctx.saved_tensors)
                for place, each in zip(self.leaves, made):
                    every[place] = each
            return tuple(every)

        torch.library.register_autograd(f"smelt::{self.name}", flow, setup_context=keep, lib=library)

    def refuse_derivatives(self, of: str) -> None:
        """This operator computes gradients: a derivative of those is an error."""

        def flow(ctx, *grads):
            raise RuntimeError(f"smelt: {of} has no second derivatives")

        torch.library.register_autograd(f"smelt::{self.name}", flow, lib=library)

    def in_backward(self, *arguments) -> tuple:
        """From a backward function. Where derivatives of the gradients may be asked for (create_graph), the operator
        refuses them. It also takes many gradients at once (is_grads_batched)."""
        watched = _is_grad_enabled() or is_compiling() or is_batched(arguments[0])
        key = None if watched else _native.look(self.key, arguments, None)
        return self._by_operator(arguments) if key is None else self.kernel(key, *arguments)


class Scaling(Operation):
    """The backward pass of a loss whose gradients the forward pass has computed: their products with the loss's gradient."""

    def __init__(self, of: str, gradients: tuple):
        parameters = dict.fromkeys(("grad_loss", *gradients), "Tensor")
        super().__init__(f"{of}_backward", self._products, self._made, parameters, len(gradients), {"grad_loss": 0})
        self.refuse_derivatives(of)

    @staticmethod
    def _products(_, grad_loss, *gradients):
        return tuple([(each * grad_loss).to(each.dtype) for each in gradients])

    @staticmethod
    def _made(_, *gradients):
        return tuple(each.new_empty(each.shape) for each in gradients)

    def flow(self, grad_loss, _, first, *others) -> tuple:
        """The function `gradients` of the loss's operation."""
        if torch.is_grad_enabled() and not is_traced():
            first = first.detach().requires_grad_()  # second derivatives are refused: the inputs are not kept
        return self.in_backward(grad_loss, first, *others)


class _Direct(torch.autograd.Function):
    """A direct call with gradients. The leaves and the results that have gradients pass through autograd, whose work
    grows with every argument and result; `made` takes the others home."""

    @staticmethod
    def forward(ctx, operation, key, arguments, made, *leaves):
        made += operation.kernel(key, *arguments)
        tensors, rest = operation.saved(arguments, made)
        ctx.save_for_backward(*tensors)
        ctx.call = operation.gradients, rest, operation.several
        if not operation.several:
            return made[operation.result]
        ctx.set_materialize_grads(False)
        return tuple([made[place] for place in operation.result])

    @staticmethod
    def backward(ctx, *grads):
        gradients, rest, several = ctx.call
        return None, None, None, None, *gradients(grads if several else grads[0], rest, *ctx.saved_tensors)


# Function.apply without its look for functorch, which has already been looked for.
_apply = super(torch.autograd.Function, _Direct).apply


def _refuse_tangents(tensors) -> None:
    """There are no derivatives in forward mode: without this error they would be lost."""
    if is_compiling() or getattr(forward_ad, "_current_level", 0) < 0:
        return
    for each in tensors:
        if each is not None and forward_ad.unpack_dual(each).tangent is not None:
            raise RuntimeError("smelt: there are no derivatives in forward mode (jvp)")
