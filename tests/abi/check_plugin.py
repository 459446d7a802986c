#!/usr/bin/env python3
"""A backend plugin exports its entry alone, and libtessera needs no library of the plugin's.

usage: check_plugin.py PLUGIN LIBTESSERA"""
import subprocess
import sys


def tool(*arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def exported(library):
    rows = [line.split() for line in tool("nm", "-D", "--defined-only", library).splitlines()]
    return sorted({row[-1].split("@")[0] for row in rows if row[-2] != "A"})


def needed(library):
    return [line.split("[")[1].rstrip("]") for line in tool("readelf", "-d", library).splitlines() if "(NEEDED)" in line]


def problems(plugin_symbols, library_needs):
    bad = [f"exported besides tsr_backend_v1: {name}" for name in plugin_symbols if name != "tsr_backend_v1"]
    if "tsr_backend_v1" not in plugin_symbols:
        bad.append("tsr_backend_v1 is not exported")
    return bad + [f"libtessera needs {name}" for name in library_needs
                  if any(part in name for part in ("cuda", "cublas", "nccl", "cudnn", "nvrtc"))]


def main():
    plugin, library = sys.argv[1:3]
    symbols = exported(plugin)
    bad = problems(symbols, needed(library))
    # A check that cannot fail is none.
    if not problems(symbols + ["planted"], []) or not problems([], []) or not problems(symbols, ["libcudart.so.13"]):
        bad.append("self-test: a planted problem was not seen")
    print("\n".join(bad) if bad else f"{plugin.rsplit('/', 1)[-1]} exports tsr_backend_v1 alone; "
          f"needs {', '.join(needed(plugin))}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
