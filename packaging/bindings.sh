#!/usr/bin/env bash
# bindings.sh BUILD: what packages have of each language, made over the library of a finished build, in BUILD/bindings: the Go
# module and its proxy, jars and the JNI library, the Python package. Needs swig, a JDK, go and Python's headers.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
out=$build/bindings
stage=$build/stage
rm -rf "$out" "$stage"
mkdir -p "$out"
for component in library dev; do
  cmake --install "$build" --prefix "$stage" --component $component --strip >"$build/stage.log" || { cat "$build/stage.log"; exit 1; }
done
PKG_CONFIG_PATH=$(dirname "$(find "$stage" -name tessera.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$stage" -name 'libtessera.so')")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
bash "$here/bindings/go/build.sh" "$out/go/tessera"
bash "$here/bindings/go/module.sh" "$out/go/proxy"
bash "$here/bindings/java/build.sh" "$out/java"
strip --strip-unneeded "$out/java/jni/libtessera_java.so"
bash "$here/bindings/python/build.sh" "$out/python"
strip --strip-unneeded "$out"/python/tessera/*.so
