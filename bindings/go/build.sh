#!/usr/bin/env bash
# build.sh OUT: writes the Go module `tessera` to OUT: these sources and what SWIG makes of tessera.h. Needs swig; using
# the module needs go and `pkg-config tessera`. In the go.mod of a program:
#   require tessera v0.0.0
#   replace tessera => OUT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
include=$(pkg-config --variable=includedir tessera)
rm -rf "$out"
mkdir -p "$out/raw"
cp "$here"/*.go "$here/go.mod" "$out/"
cp "$here"/raw/*.go "$out/raw/"
# SWIGWORDSIZE64: int64_t is `long`, as it is on every 64-bit Linux.
swig -DSWIGWORDSIZE64 -go -cgo -intgosize 64 -I"$here/.." -I"$include" -outdir "$out/raw" -o "$out/raw/tessera_wrap.c" \
  "$here/../tessera.i"
