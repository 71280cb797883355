"""A pass of an operator as the library describes it. The checks of arguments and the shapes and types of results follow
from it, in traced programs and in the eager reference. The native module checks a direct call by the same description."""

from __future__ import annotations

from typing import NamedTuple

import torch

from . import _native
from ._checks import integer
from ._runtime import SETUP

OPTIONAL, OUTPUT, WRITTEN, BATCHED, FLATTENED, ONE_AT_END = (1 << bit for bit in range(6))  # as in native.h


class Extent(NamedTuple):
    """Of a dimension: that of a letter, times `times`, divided by `per` and rounded up, plus `plus`."""

    letter: str
    plus: int = 0
    times: int = 1
    per: int = 1

    def of(self, size):
        """Where the letter's is `size`."""
        return -(-size * self.times // self.per) + self.plus

    def __str__(self):
        ends = (f"+{self.plus}", self.plus), (f"*{self.times}", self.times > 1), (f"/{self.per}", self.per > 1)
        return self.letter + "".join(text for text, is_there in ends if is_there)


def _extent(text):
    letter = text.rstrip("0123456789").rstrip("+*/") or text
    sign, number = text[len(letter) : len(letter) + 1], text[len(letter) + 1 :]
    return Extent(letter, **{{"+": "plus", "*": "times", "/": "per"}[sign]: int(number)} if sign else {})


class Row(NamedTuple):
    """A tensor."""

    name: str
    kind: torch.dtype
    flags: int
    letters: tuple  # an Extent of each dimension: Python's, without a 1 at the end

    def is_optional(self):
        return bool(self.flags & OPTIONAL)

    def is_output(self):
        return bool(self.flags & OUTPUT)

    def ends_with(self, letter):
        return bool(self.letters) and self.letters[-1] == Extent(letter)


class Scalar(NamedTuple):
    name: str
    is_float: bool
    letter: str  # of the extent that it is; "": none
    least: int
    most: int  # both 0: any


def _row(name, element, flags, shape):
    if flags & ONE_AT_END and (len(shape) > 1 or flags & OUTPUT):
        shape = shape[:-1]
    return Row(name, SETUP[1][element], flags, tuple(map(_extent, shape)))


class Bound(NamedTuple):
    """What the arguments' shapes say."""

    sizes: dict  # by letter
    packed: bool  # there is no batch
    lead: tuple  # the dimensions for which the flattened one stands


class Pass:
    """rows: the tensors; scalars: the numbers. `spec`: or an operator's name; which: 0 for the forward, 1 for the backward
    pass."""

    def __init__(self, spec: str, which: int):
        tensors, scalars, self.has_partition = _native.describe(spec)[which]
        self.rows = tuple(_row(*each) for each in tensors)
        self.scalars = tuple(Scalar(*each) for each in scalars)

    def arguments(self, tensors, asked=()) -> tuple:
        """The numbers that a call names: not those that the shapes of these tensors give, and other extents only where
        they are `asked` for or an output has them."""
        given = {letter for row in tensors if not row.is_optional() for letter, *_ in row.letters}
        needed = {letter for row in self.rows if row.is_output() for letter, *_ in row.letters} - given
        named = [each for each in self.scalars if each.name != "reserved" and each.letter not in given]
        return tuple(each for each in named if not each.letter or each.letter in needed or each.name in asked)


def bind(rows, named: dict, kinds: dict, sizes: dict | None = None) -> Bound:
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
        if len(shape) != len(letters) and (shape or row.flags & FLATTENED or letters != (Extent("1"),)):
            raise _wrong_dims(row, (letters,), shape)
        for dimension, (size, extent) in enumerate(zip(shape, letters), count):
            if extent.letter not in sizes and size >= extent.plus:
                sizes[extent.letter] = (size - extent.plus) * extent.per // extent.times
            if extent.letter not in sizes or size != extent.of(sizes[extent.letter]):
                least = extent.of(sizes[extent.letter]) if extent.letter in sizes else f"at least {extent.plus}"
                raise ValueError(f"smelt: dimension {dimension} of {row.name} ({extent}) is {size}, but must be {least}")
    return Bound(sizes, bool(packed), lead or ())


def _check_kind(name, kind, legal):
    if kind in legal or (not legal and kind.is_floating_point):
        return
    raise TypeError(f"smelt: {name} must be {' or '.join(map(str, legal)) or 'of a floating type'}, not {kind}")


def _wrong_dims(row, legal, shape):
    texts = ["[" + ", ".join(map(str, each)) + "]" for each in legal]
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


def shape_of(row: Row, extents: Bound) -> tuple:
    """An output's."""
    letters = row.letters[1:] if row.flags & FLATTENED or (row.flags & BATCHED and extents.packed) else row.letters
    sizes = tuple(each.of(extents.sizes[each.letter]) for each in letters)
    return (*extents.lead, *sizes) if row.flags & FLATTENED else sizes
