"""Tokens of smelt's CUDA text, each with the template, the line and the column that it comes from.

The text is emitted text, with `#line N "templates/..."` markers that give each line's origin, or a template itself
(give its name). Comments, blanks, preprocessor lines and the engine's directives (`//@...`) make no tokens. In a
template, `$i` and `${...}` are part of a name or stand for a number, so that a line has the same tokens as when
expanded.
"""

import re
from dataclasses import dataclass

SCANNER = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*
                   |\$\{[^}\n]*\}|\$[A-Za-z_]\w*)
      | (?P<name>[A-Za-z_](?:\w|\$\{[^}\n]*\}|\$\w+)*)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<directive>\#[^\n]*(?:(?<=\\)\n[^\n]*)*)
      | (?P<punct><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)
MARKER = re.compile(r'#\s*line\s+(\d+)(?:\s+"([^"]*)")?')


@dataclass(slots=True)
class Token:
    kind: str  # name, number, string, punct
    text: str
    start: int  # offsets into the text
    end: int
    file: str  # the markers' name; "" before the first
    line: int  # in that file
    column: int  # from 1
    index: int  # the number in its line, from 0


class TextError(Exception):
    """The text cannot be parsed; the message names file and line."""


def tokenize(text, file=""):
    """The list of tokens. `file`: the name of the text before the first marker."""
    tokens = []
    line, line_start, index, at = 1, 0, 0, 0
    for match in SCANNER.finditer(text):
        begin, end = match.span()
        if begin != at:
            break
        kind, at = match.lastgroup, end
        if kind == "blank":
            piece = match.group()
            if "\n" in piece:
                line += piece.count("\n")
                line_start, index = begin + piece.rindex("\n") + 1, 0
        elif kind != "directive":
            tokens.append(Token(kind, match.group(), begin, end, file, line,
                                begin - line_start + 1, index))
            index += 1
        elif text[line_start:begin].strip():
            at = begin
            break
        else:
            marker = MARKER.match(text, begin)
            if marker:
                file = marker.group(2) or file
                line = int(marker.group(1)) - 1  # the newline below makes it the next line's number
            else:
                line += text.count("\n", begin, end)
            line_start = end  # the newline that ends the directive follows
    if at < len(text):
        raise TextError(f"{file}:{line}: no token starts with {text[at]!r}")
    return tokens
