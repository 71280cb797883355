#!/usr/bin/env python3
"""man.py SOURCE SMELT [OUTPUT]: makes the man page of the command; without OUTPUT, prints the same page as Markdown.

SOURCE (smelt.1.md) has what only the page says. Lines like {options} in it stand for what the command itself knows
(`SMELT help --json`): see expand. Of Markdown it may use headings, paragraphs, fenced blocks, definition lists,
`code`, which is printed bold, and *emphasis*.
"""
import json
import re
import subprocess
import sys
import textwrap

COMMON = ("json", "verbose", "help")  # of every verb


def sentence(text):
    return text + ("" if text.endswith(".") else ".")


def names(items):
    return ", ".join(f"`{item}`" for item in items)


def item(term, text):
    return f"{term}\n: {sentence(text)}\n"


def verb(each):
    """A verb's section: definition lists of its terms, and its paragraphs."""
    words = re.sub(r"\b[A-Z]+\b", r"*\g<0>*", re.sub(r"\b[a-z]+\b", r"`\g<0>`", each["arguments"]))
    yield f"## `{each['name']}` {words}\n"
    for paragraph in each["details"]:
        term, tab, text = paragraph.partition("\t")
        yield item(f"`{term}`", text) if tab else f"{paragraph}\n"
    own = [f"--{row['name']}" for row in each["options"] if not row["problem"] and row["name"] not in COMMON]
    problems = any(row["problem"] for row in each["options"])
    if own:
        yield f"Options: {names(own)}{', and those of problems' if problems else ''}.\n"


def option(each, verbs):
    """An option; `verbs`: those to name."""
    letter = f"`-{each['letter']}`, " if each["letter"] else ""
    value = f" *{each['value']}*" if each["value"] else ""
    first, stop, rest = each["help"].partition(". ")
    owners = names(verbs + each["operators"])
    if not all(f"`{choice}`" in rest for choice in each["choices"]):
        first += f" ({names(each['choices'])})"
    text = f"{owners}: {first}" if owners else first[0].upper() + first[1:]
    return item(f"{letter}`--{each['name']}`{value}", text + stop + rest)


def expand(source, known):
    """The page as Markdown."""
    rows, verbs = {}, {}
    for each in known["verbs"]:
        for row in each["options"]:
            rows[row["name"]] = row
            verbs.setdefault(row["name"], []).append(each["name"])
    problem_verbs = next(verbs[name] for name, row in rows.items() if row["problem"])
    parts = {
        "verbs": [line for each in known["verbs"] for line in verb(each)],
        "options of every verb": [option(rows[name], []) for name in COMMON],
        "options": [option(row, verbs[name]) for name, row in rows.items()
                    if not row["problem"] and name not in COMMON],
        "problem options": [option(row, [] if verbs[name] == problem_verbs else verbs[name])
                            for name, row in rows.items() if row["problem"]],
        "environment": [item(f"`{each['name']}`", each["help"][0].upper() + each["help"][1:])
                        for each in known["environment"]],
    }
    return re.sub(r"^\{([a-z ]+)\}\n", lambda match: "\n".join(parts[match[1]]), source, flags=re.M)


def inline(text):
    """Markdown within a paragraph, as roff: a line for each sentence, and none longer than a screen's."""
    text = text.replace("\\", "\\e")
    text = re.sub(r"`([^`]*)`", lambda match: rf"\fB{match[1].replace('-', chr(92) + '-')}\fR", text)
    text = re.sub(r"\*([\w ./$~]+)\*", r"\\fI\1\\fR", text).replace("--", r"\-\-")
    lines = [line for each in re.split(r"(?<=\.) (?=[A-Z\\])", text)
             for line in textwrap.wrap(each, 80, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(rf"\&{line}" if line[0] in ".'" else line for line in lines)


def roff(page, version):
    """The page for man(1)."""
    yield f'.TH SMELT 1 "" "smelt {version}" "User Commands"'
    before = ".SH"  # what the last block began with
    for block in re.split(r"\n\n+(?=[^ ])", page.strip()):
        paragraph = [] if before in (".SH", ".SS") else [".PP"]
        if block.startswith("#"):
            marks, _, title = block.partition(" ")
            begin, text = (".SH", title.upper()) if marks == "#" else (".SS", inline(title))
            yield f"{begin} {text}"
        elif block.startswith("```"):
            begin = ".RS"
            text = block.replace("\\", "\\e").replace("-", r"\-").split("\n")[1:-1]
            yield "\n".join([*paragraph, ".RS", ".nf", *text, ".fi", ".RE"])
        elif "\n: " in block:
            begin = ".TP"
            term, _, text = block.partition("\n: ")
            yield f".TP\n{inline(term)}\n{inline(' '.join(text.split()))}"
        else:
            begin = ".PP"
            yield "\n".join([*paragraph, inline(" ".join(block.split()))])
        before = begin


def main(source, smelt, output=None):
    known = json.loads(subprocess.run([smelt, "help", "--json"], check=True, capture_output=True, text=True).stdout)
    with open(source, encoding="utf-8") as file:
        page = expand(file.read(), known)
    if not output:
        print(page)
        return
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(roff(page, known["version"].partition("+")[0])) + "\n")


main(*sys.argv[1:])
