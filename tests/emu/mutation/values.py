"""The compile-time values of a text's enumerators and of expressions made of them."""

import re

from tokens import TextError

INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*$")
OPERATIONS = {
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b), "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b), ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "+": lambda a, b: a + b,
    "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if a >= 0 and b > 0 else None,
    "%": lambda a, b: a % b if a >= 0 and b > 0 else None,
}


def number(text):
    match = INTEGER.match(text)
    return int(match.group(1), 0) if match else {"true": 1, "false": 0}.get(text)


def value_of(node, names):
    """An integer, or None if it is known only at run time. One operand may suffice: 0 && x."""
    if node.kind == "number":
        return number(node.text)
    if node.kind == "name":
        return names.get(node.text, number(node.text))
    if node.kind == "paren":
        return value_of(node.children[0], names)
    if node.kind == "cast" and node.text == "int":
        return value_of(node.children[0], names)
    if node.kind == "unary" and node.text in ("-", "!"):
        value = value_of(node.children[0], names)
        return value if value is None else -value if node.text == "-" else int(not value)
    if node.kind == "ternary":
        condition = value_of(node.children[0], names)
        return None if condition is None else value_of(node.children[1 if condition else 2], names)
    if node.kind == "binary":
        left, right = (value_of(child, names) for child in node.children)
        if node.text in ("&&", "||"):
            return decided(left, right, decides=int(node.text == "||"))
        if left is not None and right is not None and node.text in OPERATIONS:
            return OPERATIONS[node.text](left, right)
    return None


def decided(left, right, decides):
    sides = [None if side is None else int(bool(side)) for side in (left, right)]
    if decides in sides:
        return decides
    return None if None in sides else 1 - decides


def enumerators(syntax):
    """{name: value} of the enumerators whose definitions all have the same value."""
    found, several = {}, set()
    for definitions in syntax.enums:
        following = 0
        for name, expression in definitions:
            value = following if expression is None else value_of(expression, found)
            following = None if value is None else value + 1
            if name in found and found[name] != value:
                several.add(name)
            found[name] = value
    return {name: value for name, value in found.items()
            if value is not None and name not in several}


def value_of_text(text, names, parser):
    """The value of an expression given as text; None if it is not an expression."""
    try:
        return value_of(parser(text), names)
    except (TextError, IndexError, ValueError, OverflowError):
        return None
