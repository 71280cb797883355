"""smelt within other packages' models: each module here is named after the package that it serves."""

from . import transformers

__all__ = ["transformers"]
