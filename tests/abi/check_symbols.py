#!/usr/bin/env python3
"""The exported symbols of libtessera are exactly those of symbols.txt, and exactly the functions of tessera.h.

usage: check_symbols.py LIBRARY SYMBOLS HEADER [--self-test]

A change of symbols.txt is a change of the ABI: additions are new functions, removals break programs."""
import subprocess
import sys

from public_header import functions


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    # The version node itself is listed as an absolute symbol.
    return sorted({row[-1].split("@")[0] for row in rows if row[-2] != "A"})


def declared(header):
    return sorted({name for _, name, _ in functions(open(header).read())})


def differences(found, wanted, what):
    missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    return [f"{what}: missing {name}" for name in missing] + [f"{what}: not listed {name}" for name in extra]


def main():
    library, symbols, header = sys.argv[1:4]
    listed = [line.strip() for line in open(symbols) if line.strip() and not line.startswith("#")]
    found = exported(library)
    bad = differences(found, listed, "exported symbols against symbols.txt")
    bad += differences(declared(header), listed, "functions of tessera.h against symbols.txt")
    # A check that cannot fail is none: one symbol more and one less must be seen.
    if not differences(found[1:], found, "x") or not differences(found + ["tsr_planted"], found, "x"):
        bad.append("self-test: a planted difference was not seen")
    print("\n".join(bad) if bad else f"{len(found)} exported symbols, as listed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
