"""The extension module, for type checkers: its functions are in python/native/."""

from typing import Any

def __getattr__(name: str) -> Any: ...
