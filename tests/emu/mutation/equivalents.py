"""The files of mutants that no test can catch, each with its proof: proofs/STEM.txt for
templates/STEM.cu, proofs/FOLDER.txt for what lies in a folder of templates.

A stanza, ended by a blank line:

    FILE FUNCTION
    > the text of the line
    - operator: change
    - another change of that line, proved by the same words
    The proof, over as many lines as it takes.

Lines that begin with `#` are comments. A mutant is named by text alone, so that a stanza survives
edits elsewhere; when its line changes, it matches nothing and has to be thought over.
"""

import pathlib
from dataclasses import dataclass

FOLDER = pathlib.Path(__file__).resolve().parent / "proofs"


@dataclass
class Equivalent:
    name: tuple  # as Mutant.name
    proof: str
    line: int  # of the file
    file: str = ""


class EquivalentsError(Exception):
    pass


def read_stanza(lines, first):
    """The equivalents of one stanza; lines: (number, text)."""
    head = lines[0][1].split()
    if len(head) != 2 or len(lines) < 4 or not lines[1][1].startswith("> "):
        raise EquivalentsError(f"{first}: a stanza is `FILE FUNCTION`, `> line`, `- change`, proof")
    text = lines[1][1][2:].strip()
    changes = [(n, l[2:].strip()) for n, l in lines[2:] if l.startswith("- ")]
    proof = " ".join(l.strip() for _, l in lines[2 + len(changes):])
    if not changes or not proof or proof.startswith("- "):
        raise EquivalentsError(f"{first}: `- operator: change` lines, then the proof, are needed")
    return [Equivalent((head[0], head[1], text, change), proof, n) for n, change in changes]


def read(text):
    """All of a file's equivalents by name."""
    found, stanza = {}, []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            stanza.append((number, line))
            continue
        if stanza:
            for equivalent in read_stanza(stanza, stanza[0][0]):
                if equivalent.name in found:
                    raise EquivalentsError(f"{equivalent.line}: given twice: {equivalent.name[3]}")
                found[equivalent.name] = equivalent
        stanza = []
    return found


def proofs_of(template):
    """The name of the file for a template's proofs."""
    parts = pathlib.PurePosixPath(template).parts
    return (parts[1] if len(parts) > 2 else pathlib.PurePosixPath(template).stem) + ".txt"


def read_all(folder=FOLDER):
    """Those of every file, by name."""
    found = {}
    for path in sorted(folder.glob("*.txt")):
        for name, equivalent in read(path.read_text(encoding="utf-8")).items():
            equivalent.file = path.name
            if path.name != proofs_of(name[0]):
                raise EquivalentsError(f"{path.name}:{equivalent.line}: a proof for {name[0]} "
                                       f"belongs into {proofs_of(name[0])}")
            found[name] = equivalent
    return found


def write_stanza(mutant, proof="TODO"):
    """What to put into proofs_of(its file) for a mutant."""
    file, function, line, change = mutant.name
    return f"{file} {function}\n> {line}\n- {change}\n{proof}\n"
