#!/usr/bin/env bash
# service.sh BUILD: tessera-serve and its man page, in BUILD/service, over the Go module and the library that bindings.sh made of a
# finished build. Needs go, golang-github-mattn-go-sqlite3-dev and golang-google-protobuf-dev.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
out=$build/service
mkdir -p "$out"
PKG_CONFIG_PATH=$(dirname "$(find "$build/stage" -name tessera.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$build/stage" -name 'libtessera.so')")
export PKG_CONFIG_PATH LD_LIBRARY_PATH GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local
sed "s#=> \.\./build/go/tessera#=> $build/bindings/go/tessera#" "$here/service/go.mod" >"$out/go.mod"
# The library is found from bin/ of a tar, and by the linker where the system has it: packages of the system remove the path.
(cd "$here/service" && go build -modfile "$out/go.mod" -trimpath -buildmode pie \
  -ldflags "-s -w -extldflags '-Wl,-rpath,\$ORIGIN/../lib'" -o "$out/tessera-serve" .)
{
  printf '.TH TESSERA\\-SERVE 1 "" "Tessera %s" "User Commands"\n.SH NAME\n' "$(pkg-config --modversion tessera)"
  printf 'tessera\\-serve \\- serve and fine\\-tune models over HTTP\n.SH DESCRIPTION\n.nf\n'
  "$out/tessera-serve" --help | sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^[.']/\\\\\&&/"
  printf '.fi\n'
} | gzip -9n >"$out/tessera-serve.1.gz"
