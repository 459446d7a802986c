#!/usr/bin/env bash
# check.sh BUILD: go vet and every test of service/ over the library of a finished build, and `tessera serve` from its first request to
# its end, and against a few hundred malformed requests. Trainings are those of a new small model. Tests that want chromium say that they are
# skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$build/service
mkdir -p "$work"
for component in library dev; do cmake --install "$build" --prefix "$work/prefix" --component $component >"$work/install.log"; done
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name tessera.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name 'libtessera.so')")
export PKG_CONFIG_PATH LD_LIBRARY_PATH GOPROXY=off GOTOOLCHAIN=local CGO_CFLAGS=-O0
bash "$here/bindings/go/build.sh" "$work/new"
# The same sources keep their place and time, so that Go's cache knows them.
if ! diff -rq "$work/new" "$work/tessera" >/dev/null 2>&1; then rm -rf "$work/tessera" && mv "$work/new" "$work/tessera"; fi
sed "s#=> \.\./build/go/tessera#=> $work/tessera#" "$here/service/go.mod" >"$work/go.mod"
export GOFLAGS="-mod=mod -modfile=$work/go.mod"
cd "$here/service"
[ -z "$(gofmt -l .)" ] || { echo "gofmt -l: $(gofmt -l .)"; exit 1; }
go vet ./...
TESSERA_TEST_MODEL=$work/small.tsr
export TESSERA_TEST_MODEL
rm -f "$TESSERA_TEST_MODEL"
"$build/cli/tessera" new "llama:L=2,C=32,H=2,KV=1,F=48,V=256,T=256" --tokenizer bytes -o "$TESSERA_TEST_MODEL" >"$work/model.log"
status=0
go test -vet=off -v ./... >"$work/tests.txt" 2>&1 || status=$?
sed -n 's/^--- PASS: Test\([^ ]*\).*/ok: \1/p' "$work/tests.txt"
awk '/^ +[a-z_]+\.go:[0-9]+: /{ said = $0; sub(/^ *[^ ]* (skipped: )?/, "", said) } /^--- SKIP: /{ print "skipped | " $3 " | " said }' "$work/tests.txt"
[ $status -eq 0 ] || { grep -B 30 -E '^\s*--- FAIL|^FAIL|^panic' "$work/tests.txt"; exit 1; }
go build -ldflags "-extldflags '-Wl,-rpath,$build/capi'" -o "$build/cli/tessera-serve" .
python3 -B "$here/tests/service/smoke.py" "$build/cli/tessera" "$TESSERA_TEST_MODEL" "$work/smoke"
cd "$here/tests/service/traffic"
export GOFLAGS=
[ -z "$(gofmt -l .)" ] || { echo "gofmt -l: $(gofmt -l .)"; exit 1; }
go vet ./...
go test ./... >"$work/traffic.txt" || { cat "$work/traffic.txt"; exit 1; }
"$here/tests/service/hostile.sh" "$build" --count 1000 --slow 0 --unread 0 --seconds 0.2 >"$work/hostile.txt" || { cat "$work/hostile.txt"; exit 1; }
echo "ok: malformed requests do no harm"
