"""XTuner's check for TileLang. Its kernels are slime's; its `cudnn_dsa` backward pass is cuDNN's."""

from __future__ import annotations


def ensure_tilelang_runtime_available() -> None:
    """Does nothing, because smelt needs no TileLang. The original imports it in a child process."""
