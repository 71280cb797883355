"""Known survivors: mutants that harmless.py does not recognise and that no test catches, in
survivors.txt. A line for each line of a template:

    FUNCTION :: the text of the line :: operator: change ;; another change :: why

under [SECTION], the template's variant (section_of). Only these texts identify a survivor, so edits
elsewhere and moves to another part of the variant do not matter. If its own line changes, it counts as
a new survivor, and the old entry matches nothing; `mutate.py --accept` rewrites the file. WHY is one
of REASONS.
"""

import collections
import pathlib
import re

FILE = pathlib.Path(__file__).resolve().parent / "survivors.txt"
REASONS = {
    "time": "work is done twice or in vain, a wait is longer: only time is lost",
    "unread": "nobody reads the value, or only its sign, or whether it is 0",
    "equal": "both ways give the same where they differ",
    "again": "what is written is written again before anybody reads it",
    "order": "another order, place or thread, as good as the one before",
    "range": "the values cannot be that large, or never take that value",
    "rounding": "smaller than the error that results are allowed",
    "unseen": "a mistake that the emulator cannot see: beyond its memory, or the compiler's to keep",
}
HEAD = "# Surviving mutants that are known (survivors.py). Reasons:\n" + \
    "".join(f"#   {name:9} {words}\n" for name, words in REASONS.items())


class SurvivorsError(Exception):
    pass


def section_of(file):
    """templates/a.sm90_sums.cuh: a.sm90, the variant, since parts of a kernel move from file to file;
    templates/common/x.cuh: common; a kernel's own, templates/a.sm90_few.cu: a.sm90_few."""
    path = pathlib.PurePosixPath(file).relative_to("templates")
    if path.suffix == ".cu":
        return str(path.with_suffix(""))
    if len(path.parts) > 1:
        return path.parts[0]
    return re.sub(r"_[^.]*$", "", path.stem) if "." in path.stem else path.stem


def key_of(name):
    """The key of a mutant in survivors.txt; name: as Mutant.name."""
    return (section_of(name[0]), *name[1:])


def read(text):
    """{key: why}."""
    found, section = {}, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[] ")
            continue
        parts = line.split(" :: ")
        if len(parts) != 4 or not section or parts[3] not in REASONS:
            raise SurvivorsError(f"{number}: `FUNCTION :: line :: change ;; change :: why` under "
                                 f"[SECTION], why one of {', '.join(REASONS)}")
        for change in parts[2].split(" ;; "):
            key = (section, parts[0], parts[1], change)
            if key in found:
                raise SurvivorsError(f"{number}: given twice: {change}")
            found[key] = parts[3]
    return found


def read_file(path=FILE):
    return read(path.read_text(encoding="utf-8"))


def write(found):
    """The text of {key: why}."""
    lines = collections.defaultdict(list)
    for (section, function, line, change), why in found.items():
        lines[section, function, line, why].append(change)
    text, last = [HEAD], None
    for (section, function, line, why), changes in sorted(lines.items(), key=lambda e: e[0][0]):
        if section != last:
            text.append(f"\n[{section}]\n")
        last = section
        text.append(f"{function} :: {line} :: {' ;; '.join(changes)} :: {why}\n")
    return "".join(text)


class Known:
    """Asked for mutants by their names."""

    def __init__(self, found=None):
        self.found = read_file() if found is None else found

    def __contains__(self, name):
        return key_of(name) in self.found

    def why(self, name):
        return self.found[key_of(name)]
