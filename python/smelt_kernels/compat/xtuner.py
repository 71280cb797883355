"""XTuner's check of TileLang. Its kernels are those of slime; the backward pass of `cudnn_dsa` is cuDNN's."""

from __future__ import annotations


def ensure_tilelang_runtime_available() -> None:
    """Nothing to check: with smelt's kernels no TileLang is needed. Theirs imports it in a child process."""
