"""The bar on a terminal while kernels compile: of `warm`, and of the first calls that need kernels."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading

CELLS = 24
DELAY, EVERY = 0.5, 0.1  # seconds: kernels from the cache are there before the bar


def wanted() -> bool:
    """Whether standard error is a terminal of the first process on this machine, and messages do not tell the same."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or os.environ.get("LOCAL_RANK", "0") != "0":
        return False
    return sys.stderr is not None and sys.stderr.isatty() and not logging.getLogger("smelt").isEnabledFor(logging.INFO)


def draw(done: int, total: int, label: str) -> None:
    filled = "#" * (done * CELLS // max(1, total))
    room = max(0, shutil.get_terminal_size().columns - CELLS - 18)  # so that the line never wraps
    sys.stderr.write(f"\r[{filled:.<{CELLS}}] {done:3d}/{total} {label[:room]}\033[K")
    sys.stderr.flush()


def clear() -> None:
    sys.stderr.write("\r\033[K")
    sys.stderr.flush()


_lock = threading.Lock()
_running: list[str] = []  # the operators that threads are making
_ready = 0  # kernels that were there before the first of them
_total = 0


@contextlib.contextmanager
def of_operator(context, spec: str, kernels: int):
    """While the operator `spec` with so many kernels is made: a bar, if this takes longer than DELAY."""
    global _ready, _total
    if not wanted():
        yield
        return
    with _lock:
        if not _running:
            _ready, _total = _there(context), 0
        _total += kernels
        _running.append(spec)
        first = len(_running) == 1
    over = threading.Event()
    if first:
        thread = threading.Thread(target=_watch, args=(context, over), daemon=True)
        thread.start()
    try:
        yield
    finally:
        with _lock:
            _running.remove(spec)
        over.set()
        if first:
            thread.join()


def _there(context) -> int:
    counted = context.counters()
    return counted["cache_hits"] + counted["compiled"]


def _watch(context, over: threading.Event) -> None:
    drawn = False
    waiting = DELAY
    while not over.wait(waiting):
        with _lock:
            done, total, label = _there(context) - _ready, _total, _running[0] if _running else ""
        draw(min(done, total), total, f"compiling {label}")
        drawn, waiting = True, EVERY
    if drawn:
        clear()
