#!/usr/bin/env bash
# build.sh OUT: writes the Python package `tessera` to OUT/tessera, for $PYTHON (default python3) and the library of
# `pkg-config tessera`, which the dynamic linker has to find. Needs swig 4.1 or later, cc and Python's headers.
# PYTHONPATH=OUT then suffices. wheel.sh makes a wheel that has the library inside, for any Python from 3.11 on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
python=${PYTHON:-python3}
swig=${SWIG:-swig}
include=$(pkg-config --variable=includedir tessera)
read -r headers suffix < <("$python" -c 'import sysconfig as s; print(s.get_path("include"), s.get_config_var("EXT_SUFFIX"))')
# LIMITED: Py_LIMITED_API, for a module that every later Python loads as well; needs swig 4.2.
flags=()
[ -z "${LIMITED:-}" ] || { flags=("-DPy_LIMITED_API=$LIMITED"); suffix=.abi3.so; }
rm -rf "$out/tessera"
mkdir -p "$out/tessera"
cp "$here"/tessera/*.py "$here"/tessera/*.pyi "$here"/tessera/py.typed "$out/tessera/"
wrap=$(mktemp -d)
trap 'rm -rf "$wrap"' EXIT
# SWIGWORDSIZE64: int64_t is `long`, as it is on every 64-bit Linux. -noproxy: the layer above is written by hand.
"$swig" -DSWIGWORDSIZE64 -python -noproxy -threads -module _raw -I"$here/.." -I"$include" -outdir "$wrap" \
  -o "$wrap/raw.c" "$here/../tessera.i"
# shellcheck disable=SC2046,SC2086
cc -std=c11 -O1 -shared -fPIC -Wall -Wno-unused-function "${flags[@]}" ${CFLAGS:-} -I"$headers" "$wrap/raw.c" \
  $(pkg-config --cflags --libs tessera) ${LDFLAGS:-} -o "$out/tessera/_raw$suffix"
