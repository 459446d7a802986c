#!/usr/bin/env python3
"""Fails where a document names a file or folder of the project that is not there.

    references.py ROOT

Looks at what stands between backticks in every .md file and begins with a folder of the project: a path, a path without
its ending (`graph/transform/scoring`), or a pattern (`tests/ops/cases/*.txt`, `sampler.{h,cc}`). A name such as <op> or
NAME in a path stands for any. A planted page is to fail first."""
import pathlib
import re
import sys
import tempfile

FOLDERS = ["graph", "parallel", "text", "serialize", "runtime", "engine", "capi", "cli", "samples", "bindings", "packaging",
           "pkgconfig", "tests", "docs"]
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"^(?:{'|'.join(FOLDERS)})(?:/[\w.*<>{{}},+-]+)+/?$")


def spelled_out(path):
    """`a.{h,cc}` as two paths."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    return [it for part in braces.group(1).split(",")
            for it in spelled_out(path[:braces.start()] + part + path[braces.end():])]


def is_there(root, path):
    pattern = re.sub(r"<[^<>]*>|\b[A-Z]{2,}\b", "*", path.rstrip("/.,:;"))
    return any(root.glob(pattern)) or any(root.glob(pattern + ".*"))


def missing(root):
    found = []
    for page in sorted(root.rglob("*.md")):
        if any(part.startswith(".") or part.startswith("build") for part in page.relative_to(root).parts):
            continue
        for number, line in enumerate(page.read_text().split("\n"), 1):
            for quoted in QUOTED.findall(line):
                for path in spelled_out(quoted) if PATH.match(quoted) else []:
                    if not is_there(root, path):
                        found.append(f"{page.relative_to(root)}:{number}: {path} is not there")
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "page.md").write_text("`graph/ops/gone.cc` and `graph/{a,b}.h`, not `tessera.h`\n")
        if len(missing(pathlib.Path(scratch))) != 3:
            sys.exit("references self-test: planted names of files that are not there were not found")
    lost = missing(pathlib.Path(sys.argv[1]))
    print("\n".join(lost) if lost else "references: every file that a document names is there")
    sys.exit(1 if lost else 0)
