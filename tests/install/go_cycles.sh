#!/usr/bin/env bash
# go_cycles.sh WORK: the Go module under the race detector and the full checks of what cgo passes, and 10,000 cycles of handles,
# 100 trainings and their cancels in steady resident memory. WORK as for go.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$1" && pwd)
go=$work/go_cycles
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOCACHE=$go/cache
export CGO_CFLAGS=-O0  # the generated code is compiled for longer than it runs
bash "$here/bindings/go/build.sh" "$go/tessera"
cp -r "$here/samples/go" "$go/samples"
cp -r "$here/tests/install/go" "$go/samples/checks"
cd "$go/samples"
go mod edit -replace "tessera.dev/tessera=$go/tessera"

run() {  # run NAME COMMAND: what it prints only where it fails
  "${@:2}" >"$go/$1.txt" 2>&1 || { tail -n 60 "$go/$1.txt"; echo "FAILED: Go: $1"; exit 1; }
}
run vet go vet ./...
(cd "$go/tessera" && run vet_static go vet -tags tessera_static ./... && run examples_race go test -race ./...)
run api_race go test -race ./checks/api
mkdir -p "$go/bin"
go build -race -o "$go/bin/" ./checks/handles ./checks/cycles
run handles_race "$go/bin/handles" "$work/small.tsr" "$work/text.txt"
echo "ok: Go: go vet; no data race in examples and checks"
GODEBUG=cgocheck=2 run api_cgocheck go test -count=1 ./checks/api
echo "ok: Go: no pointer of Go is kept by C"
# One arena: malloc has one for each of many threads, which fill up one by one.
MALLOC_ARENA_MAX=1 run cycles "$go/bin/cycles" "${2:-10000}" "${3:-100}"
sed 's/^/ok: Go: /' "$go/cycles.txt"
