#!/usr/bin/env bash
# hostile.sh BUILD [OPTIONS]: malformed requests, slow clients and clients that never read, against `tessera serve` of a small model
# (tests/service/traffic/hostile; 100,000, 1,000 and 200 of them, some ten minutes). --count, --slow, --unread: fewer; --seed: others;
# --rate 200: the sound clients keep 95 % of their speed beside the malformed requests too, on a machine at rest. A finding is repeated by
# the options that it names. BUILD has cli/tessera and what check.sh made.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
shift
work=$build/service
mkdir -p "$work"
model=$work/hostile.tsr
[ -f "$model" ] || "$build/cli/tessera" new "llama:L=2,C=32,H=2,KV=1,F=48,V=512,T=2048" --tokenizer bytes -o "$model" >"$work/model.log"
(cd "$here/tests/service/traffic" && GOFLAGS= GOPROXY=off GOTOOLCHAIN=local go build -o "$work/hostile" ./hostile)
exec "$work/hostile" --serve "$build/cli/tessera-serve" --model "$model" --corpus "$here/service/dialect" "$@"
