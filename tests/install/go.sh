#!/usr/bin/env bash
# go.sh WORK: the Go module over an installed library, which PKG_CONFIG_PATH and LD_LIBRARY_PATH lead to: go vet, the examples,
# the checks, the samples with the output of those in C, and a project elsewhere that gets and vendors the module. WORK has
# small.tsr, text.txt, chat.txt, and expected/, what the samples in C printed and wrote, and the command.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$1" && pwd)
go=$work/go
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOCACHE=$go/cache
export CGO_CFLAGS=-O0  # the generated code is compiled for longer than it runs

bash "$here/bindings/go/build.sh" "$go/tessera"
(cd "$go/tessera" && go vet ./... && go test ./... >"$go/examples.txt") || { cat "$go/examples.txt"; exit 1; }
echo "ok: Go: go vet, and the examples of the documentation"

cp -r "$here/samples/go" "$go/samples"
cp -r "$here/tests/install/go" "$go/samples/checks"
cd "$go/samples"
go mod edit -replace "tessera.dev/tessera=$go/tessera"
go vet ./...
mkdir -p "$go/bin"
go build -o "$go/bin/" ./...
go test -v ./checks/api >"$go/api.txt" || { cat "$go/api.txt"; exit 1; }
sed -n 's/^--- PASS: Test_\([^ ]*\).*/ok: Go: \1/p' "$go/api.txt" | tr _ ' '

cd "$work"
"$go/bin/texts" small.tsr
echo "ok: Go: empty texts, and texts with NULs in them, cross both ways"
"$go/bin/work" small.tsr "$go/work.tsr"
echo "ok: Go: progress of long work, and contexts end it"
"$go/bin/adapters" small.tsr "$go/adapter"
echo "ok: Go: adapters go out, come back and merge"
"$go/bin/scores" small.tsr
echo "ok: Go: texts score in any batch as by themselves"
"$go/bin/embeddings" small.tsr
echo "ok: Go: vectors of texts are the same in any batch"
"$go/bin/chats" small.tsr
echo "ok: Go: conversations become tokens, and their turns are computed once"
"$go/bin/sequences" small.tsr "$go/sequence" | cmp - expected/sequences.txt
cmp expected/sequence "$go/sequence"
echo "ok: Go: sequences that are forked, rewound, saved and restored go on as in C; their file is the same"
"$go/bin/handles" small.tsr text.txt
echo "ok: Go: nil, zero and closed handles are refused; Close may meet other calls"
"$go/bin/cycles" 100 2 >"$go/cycles.txt" || { cat "$go/cycles.txt"; exit 1; }
echo "ok: Go: $(head -1 "$go/cycles.txt")"

same() {  # same SAMPLE ARGUMENTS: prints what the sample in C printed
  local sample=$1
  shift
  "$go/bin/$sample" "$@" >"$go/$sample.txt"
  cmp "expected/$sample.txt" "$go/$sample.txt" || { echo "FAILED: Go: $sample: C and Go differ"; exit 1; }
}
same finetune small.tsr text.txt "$go/tuned.tsr" cpu:2 20
cmp expected/tuned.tsr "$go/tuned.tsr"
same generate "$go/tuned.tsr" "A computer" 8
same own_model
same plan small.tsr cpu:4 8
"$go/bin/chat_server" small.tsr 8 cpu:2 0 '{{ messages[-1].content }}' <chat.txt | sort -s -k1,1 | cmp - expected/chat_server.txt
echo "ok: Go samples: $(tail -1 "$go/finetune.txt"), every loss equal to the C sample's to the bit, the same model file, texts and plans"

bash "$here/tests/install/training_run.sh" expected/run.tsr "$go/run.tsr" "$go/bin/training_run" small.tsr text.txt "$go/run.tsr" 20
echo "ok: Go: a training run that is killed goes on from its checkpoint, to the files of the command"

# A project that knows nothing but the proxy; shared, vendored, static.
bash "$here/bindings/go/module.sh" "$go/proxy"
mkdir -p "$go/elsewhere"
cp "$here/samples/go/generate/main.go" "$go/elsewhere/"
cd "$go/elsewhere"
export GOPROXY=file://$go/proxy GONOSUMDB=tessera.dev GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=$go/modules
version=v$(pkg-config --modversion tessera)
go mod init example.org/elsewhere 2>"$go/elsewhere.txt"
go get "tessera.dev/tessera@$version" 2>>"$go/elsewhere.txt" || { cat "$go/elsewhere.txt"; exit 1; }
go build -o ./shared .
go mod vendor 2>>"$go/elsewhere.txt"
GOPROXY=off GOFLAGS=-mod=vendor go build -tags tessera_static -o ./static . 2>"$go/static.txt" || { tail -n 20 "$go/static.txt"; exit 1; }
cd "$work"
"$go/elsewhere/shared" "$go/tuned.tsr" "A computer" 8 | cmp expected/generate.txt
LD_LIBRARY_PATH='' "$go/elsewhere/static" "$go/tuned.tsr" "A computer" 8 | cmp expected/generate.txt
if ldd "$go/elsewhere/static" | grep libtessera; then echo "FAILED: Go: the static program needs the shared library"; exit 1; fi
echo "ok: Go: a project elsewhere gets the module $version from a file proxy, vendors it, and links it shared and static"
