#!/usr/bin/env bash
# build.sh OUT: writes the Go module tessera.dev/tessera to OUT: these sources and what SWIG makes of tessera.h. Needs swig;
# using the module needs go and `pkg-config tessera`. In the go.mod of a program:
#   require tessera.dev/tessera v0.3.0
#   replace tessera.dev/tessera => OUT
# module.sh makes what a GOPROXY serves instead.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
include=$(pkg-config --variable=includedir tessera)
rm -rf "$out"
mkdir -p "$out/raw"
cp "$here"/*.go "$here/go.mod" "$here/README.md" "$here/../../LICENSE" "$out/"
cp "$here"/raw/*.go "$here"/raw/*.c "$out/raw/"
# SWIGWORDSIZE64: int64_t is `long`, as it is on every 64-bit Linux.
swig -DSWIGWORDSIZE64 -go -cgo -intgosize 64 -I"$here/.." -I"$include" -outdir "$out/raw" -o "$out/raw/tessera_wrap.c" \
  "$here/../tessera.i"
# A copy of what C made, in Go's own words: without a bound on its size, and so that go vet has nothing to say.
sed -i 's/string((\*\[0x7fffffff\]byte)(unsafe.Pointer(p.p))\[:p.n\])/string([]byte(s))/' "$out/raw/raw.go"
