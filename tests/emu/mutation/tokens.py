"""Tokens of smelt's CUDA text, each with the template, the line and the column it comes from.

Works on emitted text, whose `#line N "templates/..."` markers say where every line comes from, and
on a template itself (give its name). Comments, blanks, preprocessor lines and the engine's
directives (`//@...`) make no tokens. In a template, `$i` and `${...}` are part of a name or stand
for a number, as they do once expanded, so that a line has the same tokens in both.
"""

import re
from dataclasses import dataclass

SCANNER = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*
                   |\$\{[^}\n]*\}|\$[A-Za-z_]\w*)
      | (?P<name>[A-Za-z_](?:\w|\$\{[^}\n]*\}|\$\w+)*)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<punct><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)
MARKER = re.compile(r'#\s*line\s+(\d+)(?:\s+"([^"]*)")?')


@dataclass
class Token:
    kind: str  # name, number, string, punct
    text: str
    start: int  # offsets into the text
    end: int
    file: str  # as the markers name it; "" before the first
    line: int  # in that file
    column: int  # from 1
    index: int  # which token of its line, from 0


class TextError(Exception):
    """The text is not what this tool understands; the message names file and line."""


def _read_directive(text, at):
    """The end of the preprocessor line that starts at `at`, its continuation lines included."""
    while True:
        end = text.find("\n", at)
        if end < 0:
            return len(text)
        if text[end - 1] != "\\":
            return end
        at = end + 1


def tokenize(text, file=""):
    """The list of tokens. `file`: the name of what stands before the first marker."""
    tokens = []
    line, line_start, index, at = 1, 0, 0, 0
    while at < len(text):
        if text[at] == "#" and not text[line_start:at].strip():
            end = _read_directive(text, at)
            marker = MARKER.match(text, at)
            if marker:
                file = marker.group(2) or file
                line = int(marker.group(1)) - 1  # the newline below makes it the next line's number
            else:
                line += text.count("\n", at, end)
            line_start, at = end, end  # what follows is the newline that ends the directive
            continue
        match = SCANNER.match(text, at)
        if not match:
            raise TextError(f"{file}:{line}: no token starts with {text[at]!r}")
        piece = match.group()
        if match.lastgroup == "blank":
            if "\n" in piece:
                line += piece.count("\n")
                line_start, index = at + piece.rindex("\n") + 1, 0
        else:
            column = at - line_start + 1
            tokens.append(
                Token(match.lastgroup, piece, at, match.end(), file, line, column, index))
            index += 1
        at = match.end()
    return tokens
