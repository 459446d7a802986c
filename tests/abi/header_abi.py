#!/usr/bin/env python3
"""header_abi.py HEADER_FOLDER OUT.so [CC]: a library without a body that has the types and functions of tessera.h.

abidiff and abidw read types from debug information, which the library is not built with. Its functions are those of the
header (check_symbols.py), and a C function cannot be declared one way and defined another, so the header's ABI is the
library's."""
import os
import subprocess
import sys
import tempfile

from public_header import functions, stable


def source(header):
    lines = ["#include <tessera/tessera.h>"]
    for result, name, arguments in functions(stable(header)):
        lines.append(f"{result} {name}({arguments}) {{ {'' if result == 'void' else 'return 0;'} }}")
    return "\n".join(lines) + "\n"


def build(folder, out, compiler="cc"):
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "header.c")
        with open(path, "w") as file:
            file.write(source(open(os.path.join(folder, "tessera", "tessera.h")).read()))
        # abidw tells types by where they are declared: from a folder that is the same everywhere.
        subprocess.run([compiler, "-g", "-fno-eliminate-unused-debug-types", "-w", "-shared", "-fPIC", f"-I{folder}",
                        f"-fdebug-prefix-map={folder}=/header", f"-fdebug-prefix-map={scratch}=/source",
                        "-Wl,-soname,libtessera.so", path, "-o", out], check=True)


if __name__ == "__main__":
    build(*sys.argv[1:])
