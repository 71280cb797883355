#!/usr/bin/env python3
"""installed.py ROOT FOLDER PAGE...: writes the pages into FOLDER with the links that they have when installed.

Each PAGE is a path relative to ROOT, the source. All pages are installed in one folder. A link to a file that is not an
installed page becomes plain text: the link's text and the file's path in the source.
"""
import os
import re
import sys

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FOOTER = "\nPaths that are not links refer to smelt's source.\n"


def installed(page, text, pages):
    def replace(link):
        words, target, anchor = link.groups()
        path = os.path.normpath(os.path.join(os.path.dirname(page), target))
        if "://" in target:
            return link[0]
        if path in pages:
            name = os.path.basename(path)
            return f"[{name if words == path else words}]({name}{anchor or ''})"
        return path if words in (path, os.path.basename(path)) else f"{words}: {path}"

    made = LINK.sub(replace, text)
    return made + FOOTER if made.count("](") < text.count("](") else made


def main(root, folder, *pages):
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as source:
            text = source.read()
        with open(os.path.join(folder, os.path.basename(page)), "w", encoding="utf-8") as output:
            output.write(installed(page, text, pages))


if __name__ == "__main__":
    main(*sys.argv[1:])
