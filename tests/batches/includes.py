#!/usr/bin/env python3
"""Fails where a source file uses a name of a project header that it does not include, itself or through its headers.

Where files are compiled together (TSR_BATCHES) the compiler does not see that: a file may live on its neighbour's
includes. With --self-test, includes are taken away, and most of them are to be missed."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from batches import DIRECTIVE, NOISE, header_names, names

FOLDERS = ["graph", "parallel", "text", "serialize", "runtime", "engine", "capi", "cli", "samples", "tests"]
SOURCES = {".cc", ".cu"}
HEADERS = {".h", ".cuh"}


def headers_of(root):
    """name -> headers that define it"""
    defined = {}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in HEADERS:
                for name in names(file.read_text())[1]:
                    defined.setdefault(name, set()).add(file.relative_to(root).as_posix())
    return defined


def used(text):
    """Types, constants and macros that are named; functions that are called, not as members."""
    text = re.sub(r"\b(?:[A-Z]\w*|std|hn)::(?:\w+::)*\w+", "", DIRECTIVE.sub("", NOISE.sub(" ", text)))
    found = set(re.findall(r"(?<![\w.>])(TSR_\w+|k[A-Z]\w+|[A-Z]\w*[a-z]\w*)\b", text))
    return found | set(re.findall(r"(?<![\w.>&*])([a-z]\w*_\w+)\s*\(", text)) - {"uint8_t", "uint16_t", "uint32_t", "uint64_t"}


def types_in(text):
    """Nested ones, too: a member function names them plainly."""
    return set(re.findall(r"\b(?:struct|class|enum|using|typename)\s+(?:\w+::)*(\w+)", text))


def members_in(text):
    """Variables and members."""
    return set(re.findall(r"\b(?:auto|const|void|\w+)[&*>]*\s+(\w+)\s*[({=;,)]", text))


def missing(text, path, root, defined, known):
    """Names of project headers that the file uses, and neither defines itself nor includes."""
    own = names(text)[1] | types_in(text) | members_in(text)
    for header in re.findall(r'^#include "([^"]+)"', text, re.M):  # a class that several files define
        if path.stem.startswith(pathlib.Path(header).stem) and (root / header).exists():
            own |= members_in((root / header).read_text())
    reached = header_names(path, root, known, text, types_in)
    return sorted(name for name in used(text) if name in defined and name not in own and name not in reached)


def self_test(root, defined, known):
    """Files of one layer lose one include of the project after the other: of most, a name is missed."""
    caught = tried = 0
    for file in sorted((root / "parallel").rglob("*.cc")):
        text = file.read_text()
        for line in re.findall(r'^#include "[^"]+"\n', text, re.M)[1:]:
            tried += 1
            caught += bool(missing(text.replace(line, ""), file, root, defined, known))
    print(f"{caught} of {tried} includes taken away were missed")
    return caught * 2 > tried > 0


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    defined, known, failed = headers_of(root), {}, 0
    if "--self-test" in sys.argv:
        return not self_test(root, defined, known)
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            for name in missing(file.read_text(), file, root, defined, known):
                print(f"{file.relative_to(root)}: uses {name} of {' or '.join(sorted(defined[name])[:3])}")
                failed += 1
    print(f"{failed} names without their headers")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
