"""The custom operators `torch.ops.smelt`: each with its kernel for plain tensors and its fake one."""

from __future__ import annotations

from collections.abc import Callable

import torch

library = torch.library.Library("smelt", "FRAGMENT")


def define(schema: str, kernel: Callable, fake: Callable, **options):
    """Defines `torch.ops.smelt.NAME` for CPU (the emulator's, or the eager reference) and CUDA tensors."""
    name = schema.split("(")[0]
    library.define(schema, **options)
    for key in ("CPU", "CUDA"):
        library.impl(name, kernel, key)
    torch.library.register_fake(f"smelt::{name}", fake, lib=library)
    return getattr(torch.ops.smelt, name).default


def refuse_derivatives(name: str, what: str) -> None:
    """Of an operator that computes gradients: a derivative of those is an error, and not silently none."""

    def flow(ctx, *grads):
        raise RuntimeError(f"smelt: {what} has no second derivatives")

    torch.library.register_autograd(f"smelt::{name}", flow, lib=library)
