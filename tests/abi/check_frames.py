#!/usr/bin/env python3
"""No function of libtessera takes more than 32 KiB of stack: callers run threads with little.

usage: check_frames.py LIBRARY [MOST_BYTES]

Reads the code itself, after inlining, for every instruction set that kernels are compiled for."""
import platform
import re
import subprocess
import sys

FRAME = re.compile(r"(?:sub|add) +\$(-?0x[0-9a-f]+),%rsp|lea +(-0x[0-9a-f]+)\(%rsp\),%r")


def frames(library):
    """(bytes, mangled name) of every frame that is subtracted at once, or probed page by page."""
    code = subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", library], stdout=subprocess.PIPE, text=True)
    name = ""
    for line in code.stdout:
        if line.endswith(">:\n"):
            name = line[line.index("<") + 1:-3]
        elif "rsp" in line and (found := FRAME.search(line)):
            value = int(found[1] or found[2], 16)
            taken = -value if "add " in line or found[2] else value
            if 0 < taken < 1 << 40:
                yield taken, name
    if code.wait() != 0:
        sys.exit(f"objdump cannot read {library}")


def main():
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 32 << 10
    if platform.machine() not in ("x86_64", "amd64"):
        print(f"skipped | frames of the library | they are read from x86-64 code, this is {platform.machine()}")
        return
    found = sorted(set(frames(sys.argv[1])), reverse=True)
    if not found:
        sys.exit("no frame was found: the code is not what this reads")
    for taken, name in found:
        if taken > most:
            plain = subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()
            print(f"{taken} bytes of stack, wanted at most {most}: {plain[:300]}")
    print(f"the largest of {len(found)} frames has {found[0][0]} bytes")
    sys.exit(1 if found[0][0] > most else 0)


main()
