#!/usr/bin/env python3
"""Packs of 16-bit elements are loaded and stored 16 bytes at a time. A compiler that takes a pack apart costs several
times the memory requests, and shows nowhere but in a profile.

usage: check_packs.py NVCC SOURCE ROOT"""
import re
import subprocess
import sys


def pieces(ptx):
    """Accesses of global memory in pieces of 16 bits."""
    return re.findall(r"\b(?:ld|st)\.global(?:\.nc)?(?:\.v[248])?\.[bsuf]16\b", ptx)


def whole(ptx):
    return re.findall(r"\bst\.global\.v(?:4\.[bsuf]32|2\.[bsuf]64)\b", ptx)


def main():
    nvcc, source, root = sys.argv[1:4]
    ptx = subprocess.run([nvcc, "-std=c++20", "-O3", "--extended-lambda", "--expt-relaxed-constexpr", "-arch=compute_90",
                          "-ptx", "-I", root, "-o", "-", source], check=True, capture_output=True, text=True).stdout
    found, stores = pieces(ptx), whole(ptx)
    bad = [f"{source}: {found.count(kind)} x {kind}, wanted pieces of 16 bytes (store_pack, kernels/element.cuh)"
           for kind in sorted(set(found))]
    if len(stores) < 4:
        bad.append(f"{source}: {len(stores)} stores of 16 bytes, at least one for each of 2 results of 2 kernels expected")
    # A check that cannot fail is none.
    if not pieces("st.global.v2.u16 [%rd1], {%rs1, %rs2};") or not pieces("st.global.u16 [%rd1], %rs1;"):
        bad.append("self-test: a planted piece was not seen")
    print("\n".join(bad) if bad else f"{len(stores)} stores of 16 bytes, none of 2")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
