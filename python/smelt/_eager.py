"""What decides how a call goes on: directly, or through a custom operator."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from . import _native, _runtime
from ._checks import BACKENDS, choose

plain_types = frozenset((Tensor, Parameter))


# Names that PyTorch does not promise to keep: without one its question is answered by the safe way.
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_functorch = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
_is_batched = getattr(
    getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda tensor: False
)
_profiler = torch.autograd.profiler
_known = _dispatch_modes is not None and _functorch is not None


def _is_traced() -> bool:
    return (
        torch.compiler.is_compiling()
        or not _known
        or _dispatch_modes() > 0
        or _functorch() is not None
    )


def is_watched() -> bool:
    """Whether somebody looks into the program: then a call must show as a custom operator."""
    return _is_traced() or _profiler._is_profiler_enabled


def for_operator(grad: Tensor) -> bool:
    """Whether a backward function has to go through the operator: it is watched, or has many gradients at once, of
    torch.autograd.grad's is_grads_batched, by a vmap that is older than functorch."""
    return is_watched() or _is_batched(grad)


def _casts(tensor: Tensor) -> bool:
    return autocast_type(tensor) not in (None, torch.bfloat16)


if _known:
    _native.watch(
        Tensor,
        Parameter,
        _dispatch_modes,
        _functorch,
        _profiler,
        forward_ad,
        torch.is_grad_enabled,
        torch._C._get_deterministic_algorithms
        if hasattr(torch._C, "_get_deterministic_algorithms")
        else torch.are_deterministic_algorithms_enabled,
        getattr(torch._C, "_is_any_autocast_enabled", lambda: True),
        _casts,
    )

# What the module writes of a node, as save_for_backward and set_materialize_grads do.
_NODES = all(hasattr(torch._C._FunctionBase, name) for name in ("to_save", "materialize_grads"))


class _NoCalls:
    """Where it cannot be told whether somebody looks into the program."""

    def run(self, *_):
        return None

    remember = forget = run


def table(sizes: tuple, gradients: tuple = (), node=None, casts: bool = False):
    """The calls of a function that were made before, which the module launches by itself.

    sizes: for each of its tensors, how many of the last sizes its operator depends on. gradients: the
    places of the tensors that may have gradients, for which `node`, an autograd.Function with the module's
    forward function, is applied. casts: whether autocast changes its tensors.
    """
    if not _known:
        return _NoCalls()
    apply = None
    if node is not None and _NODES:  # without what apply does for functorch, which is_watched has seen
        apply = super(torch.autograd.Function, node).apply
    made = _native.Calls(sizes, sum(1 << place for place in gradients), casts, apply)
    _runtime.tables.append(made)
    return made


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether this is an eager call on plain tensors, which goes to the kernel directly. Others, wrappers of a
    tensor that a collective has yet to fill, say, or tensors without data (meta), go through the dispatcher, which
    knows what they hold."""
    metas = 0
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in plain_types:
            return False
        metas += tensor.is_meta
    if metas and metas < sum(tensor is not None for tensor in tensors):
        raise ValueError("smelt: tensors must be on one device, and some are on meta, which has no data")
    return not metas and not is_watched()


def in_forward_mode() -> bool:
    return getattr(forward_ad, "_current_level", 0) >= 0


def refuse_tangents(*tensors: Tensor | None) -> None:
    """There are no derivatives in forward mode: without this they would be lost, and nobody told."""
    if not in_forward_mode() or torch.compiler.is_compiling():
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError("smelt: there are no derivatives in forward mode (jvp)")


class _Last(torch.autograd.Function):
    """A gradient that has no derivative itself, and what it depends on. PyTorch's once_differentiable marks those alone
    whose incoming gradient has one, so that those of out.sum(), which depend on q as well, count as constant."""

    @staticmethod
    def forward(ctx, grad, *sources):
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError("smelt: there are no second derivatives")


def last(grads: tuple, *sources: Tensor | None) -> tuple:
    """What a backward function returns where derivatives of it may be asked for (create_graph): an error then.
    sources: what it was computed from."""
    with torch.enable_grad():
        wanted = [each for each in sources if each is not None and each.requires_grad]
        if not wanted:  # what keeps its gradient alone
            wanted = [torch.zeros((), requires_grad=True)]
        return tuple(None if grad is None else _Last.apply(grad.detach(), *wanted) for grad in grads)


def once(flow):
    """A backward function whose results have no derivatives, but not where the function is traced, which it would
    stop."""

    def run(ctx, *grads):
        if not torch.is_grad_enabled() or _is_traced():
            return flow(ctx, *grads)
        with torch.no_grad():
            made = flow(ctx, *grads)
        return last(made, *ctx.saved_tensors, *grads)

    return run


def wants_gradients(*tensors: Tensor | None) -> bool:
    """Whether autograd has to know of a call."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _spec(family, *keys):
    """ "indexer_logits:heads=8,dim=128" of ("indexer_logits", ("heads", 8), ("dim", 128))."""
    return family + (":" + ",".join(f"{name}={value}" for name, value in keys) if keys else "")


def operator_of(tensor: Tensor, key: tuple, backend: str):
    """The operator of a spec, family and keys, on a tensor's device; None where the eager reference computes."""
    if backend == "torch":
        return None
    if backend != "auto":
        choose(backend, "backend", BACKENDS)
    return _runtime.find(tensor.get_device(), key, _spec, backend)


def detached(*given: Tensor) -> list:
    return [tensor.detach() for tensor in given]


def launched(launch, inputs, outputs, scalars):
    """What `launch` of an operator's pass returns; inputs that are laid out as no kernel reads are copied."""
    try:
        return launch(*inputs, *outputs, *scalars)
    except _native.LayoutError:
        return launch(*realigned(*inputs), *outputs, *scalars)


def realigned(*tensors: Tensor | None) -> tuple:
    """Each tensor, copied where its last dimension or the beginning of its rows is not as kernels want."""
    return tuple(None if tensor is None else _realign(tensor) for tensor in tensors)


def _realign(tensor: Tensor) -> Tensor:
    size = tensor.element_size()
    strides = [step for step, extent in zip(tensor.stride(), tensor.shape) if extent > 1]
    if tensor.dim() and tensor.shape[-1] > 1:
        contiguous = strides[-1] == 1
        strides.pop()
    else:
        contiguous = True
    rows = tensor.data_ptr() % 16 == 0 and all(step * size % 16 == 0 for step in strides)
    if contiguous and (rows or size == 4) and (not strides or any(strides)):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", None)


def autocast_type(tensor: Tensor):
    """What autocast casts to on a tensor's device, None: it is off."""
    if _any_autocast is not None and not _any_autocast():
        return None
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
