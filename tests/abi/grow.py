#!/usr/bin/env python3
"""grow.py HEADER_FOLDER OUT_FOLDER: tessera.h of a later version, whose structs that begin with struct_size have one
member more at their end."""
import pathlib
import re
import sys

STRUCT = re.compile(r"(typedef struct (tsr_\w+) \{\s*size_t struct_size;.*?)(\n\} \2;)", re.S)


def grow(folder, out):
    text, count = STRUCT.subn(r"\1\n  int64_t grown;\3", pathlib.Path(folder, "tessera/tessera.h").read_text())
    assert count >= 4, f"{count} structs with a struct_size were found: the expression no longer fits the header"
    target = pathlib.Path(out, "tessera/tessera.h")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


if __name__ == "__main__":
    grow(*sys.argv[1:])
