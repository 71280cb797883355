"""A pass of an operator as the library describes it. The checks of arguments and the shapes and types of results follow
from it, in traced programs and in the eager reference. The native module checks a direct call by the same description."""

from __future__ import annotations

from typing import NamedTuple

import torch

from . import _native
from ._checks import integer
from ._runtime import SETUP

OPTIONAL, OUTPUT, WRITTEN, BATCHED, FLATTENED, ONE_AT_END = (1 << bit for bit in range(6))  # as in native.h


class Row(NamedTuple):
    """A tensor."""

    name: str
    kind: torch.dtype
    flags: int
    letters: tuple  # of each dimension (its extent's letter, what is added to it): Python's, without a 1 at the end

    def is_optional(self):
        return bool(self.flags & OPTIONAL)

    def is_output(self):
        return bool(self.flags & OUTPUT)

    def ends_with(self, letter):
        return bool(self.letters) and self.letters[-1] == (letter, 0)


class Scalar(NamedTuple):
    name: str
    is_float: bool
    letter: str  # of the extent that it is; "": none
    least: int
    most: int  # both 0: any


def _row(name, element, flags, shape):
    if flags & ONE_AT_END and (len(shape) > 1 or flags & OUTPUT):
        shape = shape[:-1]
    parts = [letter.partition("+") for letter in shape]
    return Row(name, SETUP[1][element], flags, tuple((letter, int(plus or 0)) for letter, _, plus in parts))


class Extents(NamedTuple):
    """What the arguments' shapes say."""

    sizes: dict  # by letter
    packed: bool  # there is no batch
    lead: tuple  # the dimensions for which the flattened one stands


class Pass:
    """rows: the tensors; scalars: the numbers. `operator`: its name; which: 0 for the forward, 1 for the backward pass."""

    def __init__(self, operator: str, which: int):
        self.operator = operator
        tensors, scalars, self.has_partition = _native.describe(operator)[which]
        self.rows = tuple(_row(*each) for each in tensors)
        self.scalars = tuple(Scalar(*each) for each in scalars)

    def arguments(self, tensors) -> tuple:
        """The numbers that a call names: not those that the shapes of these tensors give."""
        given = {letter for row in tensors if not row.is_optional() for letter, _ in row.letters}
        needed = {letter for row in self.rows if row.is_output() for letter, _ in row.letters} - given
        return tuple(each for each in self.scalars if each.name != "reserved" and (not each.letter or each.letter in needed))


def bind(rows, named: dict, kinds: dict, sizes: dict | None = None) -> Extents:
    """Checks the tensors among a call's arguments, by name, as the native module does. kinds: the legal types of each;
    (): any floating type. sizes: the extents that numbers give, by letter."""
    sizes = {"1": 1, **(sizes or {})}
    packed = lead = None
    for row in rows:
        value = named[row.name]
        if value is None:
            if not row.flags & OPTIONAL:
                raise TypeError(f"smelt: {row.name} must be a torch.Tensor, not None")
            continue
        _check_kind(row.name, value.dtype, kinds[row.name])
        letters, shape, count = row.letters, tuple(value.shape), 0
        if row.flags & FLATTENED:
            count = len(shape) - len(letters) + 1
            if count < 0:
                raise _wrong_dims(row, (letters,), shape)
            if lead is None:
                lead = shape[:count]
            if shape[:count] != lead:
                raise ValueError(f"smelt: {row.name} must have as many rows as {rows[0].name}, by dimension")
            letters, shape = letters[1:], shape[count:]
        elif row.flags & BATCHED:
            if packed is None and len(letters) - 1 <= len(shape) <= len(letters):
                packed = len(shape) < len(letters)
            if packed is None:
                raise _wrong_dims(row, (letters[1:], letters), shape)
            letters = letters[1:] if packed else letters
        if len(shape) != len(letters) and (shape or row.flags & FLATTENED or letters != (("1", 0),)):
            raise _wrong_dims(row, (letters,), shape)
        for dimension, (size, (letter, plus)) in enumerate(zip(shape, letters), count):
            wanted = sizes.setdefault(letter, size - plus)
            if size != wanted + plus or (plus and wanted < 0):
                said = letter if not plus else f"{letter}+{plus}"
                least = f"at least {plus}" if wanted < 0 else wanted + plus
                raise ValueError(f"smelt: dimension {dimension} of {row.name} ({said}) is {size}, but must be {least}")
    return Extents(sizes, bool(packed), lead or ())


def _check_kind(name, kind, legal):
    if kind in legal or (not legal and kind.is_floating_point):
        return
    raise TypeError(f"smelt: {name} must be {' or '.join(map(str, legal)) or 'of a floating type'}, not {kind}")


def _wrong_dims(row, legal, shape):
    texts = ["[" + ", ".join(f"{name}+{plus}" if plus else name for name, plus in each) + "]" for each in legal]
    return ValueError(f"smelt: {row.name} must be {' or '.join(texts)}, not of {len(shape)} dimensions")


def check_scalars(scalars, named: dict) -> None:
    """Whole numbers and their ranges."""
    for each in scalars:
        value = named[each.name]
        if each.is_float or isinstance(value, torch.SymInt):
            continue
        value = integer(value, each.name, 64)
        if (each.least or each.most) and not each.least <= value <= each.most:
            raise ValueError(f"smelt: {each.name} is out of range: {value}; legal: {each.least}..{each.most}")


def shape_of(row: Row, extents: Extents) -> tuple:
    """An output's."""
    letters = row.letters[1:] if row.flags & FLATTENED or (row.flags & BATCHED and extents.packed) else row.letters
    sizes = tuple(extents.sizes[letter] + plus for letter, plus in letters)
    return (*extents.lead, *sizes) if row.flags & FLATTENED else sizes
