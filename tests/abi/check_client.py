#!/usr/bin/env python3
"""check_client.py LIBRARY HEADER_FOLDER [--write]: programs compiled with other versions of the header than the library's.

client-<SONAME's version>.<machine> in this folder is client.c, compiled when the ABI was new: it runs with LIBRARY, and
prints client.txt. So does client.c compiled here with a header whose structs have grown, which this library does not know
of. --write recompiles the stored program, which is right when the SONAME changes. LIBRARY may itself be one whose structs
have grown (the target tessera_grown)."""
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

from grow import grow

HERE = pathlib.Path(__file__).resolve().parent


def compiled(headers, library, out):
    subprocess.run(["cc", "-std=c11", "-Os", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-s", f"-I{headers}",
                    str(HERE / "client.c"), library, "-o", out], check=True)


def run(program, library):
    found = subprocess.run([program], capture_output=True, text=True, env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(library)))
    if found.returncode != 0 or found.stdout != (HERE / "client.txt").read_text():
        raise SystemExit(f"{program}: status {found.returncode}\n{found.stdout}{found.stderr}wanted\n{(HERE / 'client.txt').read_text()}")


def main():
    library, headers = os.path.abspath(sys.argv[1]), sys.argv[2]
    soname = re.search(r"SONAME\s+libtessera\.so\.(\S+)", subprocess.run(["objdump", "-p", library], check=True, capture_output=True,
                                                                          text=True).stdout)[1]
    stored = HERE / f"client-{soname}.{platform.machine()}"
    if "--write" in sys.argv:
        compiled(headers, library, stored)
        return print(f"{stored}: written")
    if stored.exists():
        run(stored, library)
    elif platform.machine() == "x86_64":
        raise SystemExit(f"{stored} is missing: where the SONAME is new, run this with --write")
    else:
        print(f"no program is stored for {platform.machine()}")
    with tempfile.TemporaryDirectory() as scratch:
        grow(headers, scratch)
        newer = os.path.join(scratch, "client")
        compiled(scratch, library, newer)
        run(newer, library)
    print(f"programs of the older and of a newer header work with libtessera.so.{soname}")


main()
