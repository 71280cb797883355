#!/usr/bin/env python3
"""header_filter.py HEADER: the header with its comments marked for Doxygen (the Doxyfile's INPUT_FILTER).

The headers' comments are plain C. Here a comment before a declaration becomes a documentation comment, one behind a
field or an enumerator that field's, and the comment at the file's head the file's. Indented lines keep their layout.
"""
import re
import sys


def markup(text):
    """Doxygen's text of a comment: plain paragraphs, and indented lines as they are."""
    lines = [re.sub(r"^ ?\* ?", "", line.strip(" ") if number else line).rstrip()
             for number, line in enumerate(text.strip().split("\n"))]
    out, verbatim = [], False
    for line in lines:
        indented = line.startswith("  ")
        if indented and not verbatim:
            out.append("@verbatim")
        elif verbatim and line and not indented:
            out.append("@endverbatim")
        verbatim = indented or (verbatim and not line)
        if not verbatim:
            line = re.sub(r"([<>#@%&\\])", r"\\\1", line)
            line = re.sub(r"`([^`]+)`", r"<tt>\1</tt>", line)
        out.append(line)
    if verbatim:
        out.append("@endverbatim")
    return "\n".join(out)


def main(path):
    with open(path, encoding="utf-8") as file:
        source = file.read()
    first = True

    def mark(match):
        nonlocal first
        lead, text = match.group(1), match.group(2)
        if text.lstrip().startswith("----") or "clang-format" in text:
            return lead + "/*" + text + "*/"
        begins = "/**"
        if first:
            begins, first = "/** @file\n", False
        elif lead.strip():
            begins = "/**<"
        return f"{lead}{begins} {markup(text)} */"

    source = re.sub(r"^([^\n/]*)/\*(.*?)\*/", mark, source, flags=re.DOTALL | re.MULTILINE)
    # What smelt/struct.h says of all structs, and a typedef that only repeats a name.
    source = re.sub(r"^( +size_t size;)$", r"\1 /**< sizeof this struct, set by its _INIT macro */", source, flags=re.M)
    source = re.sub(r"^(#define SMELT_\w+_INIT )", r"/** Sets `size`, and all else to its default. */\n\1", source, flags=re.M)
    source = re.sub(r"^typedef ((?:struct|enum) (\w+) \{.*?^\}) \2;", r"\1;", source, flags=re.M | re.S)
    # Two fields of one declaration, and functions that follow each other without an empty line, share a comment.
    source = re.sub(r"^( +[\w ]+ )(\w+), (\w+);( +/\*\*<.*?\*/)", r"\1\2;\4\n\1\3;\4", source, flags=re.M | re.S)
    source = re.sub(r"^( +/\*\*[^<\n]*\*/\n)( +[\w ]+ )(\w+), (\w+);$", r"\1\2\3;\n\1\2\4;", source, flags=re.M)
    blocks = source.split("\n\n")
    for number, block in enumerate(blocks):
        if (match := re.match(r"(/\*\*[^<].*?\*/\n)(SMELT_(?:API|CALL) .*)", block, flags=re.S)):
            blocks[number] = "\n".join(match[1] + each for each in re.findall(r"SMELT_(?:API|CALL) .*?;", match[2], flags=re.S))
    sys.stdout.write("\n\n".join(blocks))


main(sys.argv[1])
