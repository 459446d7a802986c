#!/usr/bin/env bash
# training_run.sh EXPECTED OUT COMMAND...: COMMAND, a sample training_run that writes OUT, is killed once it has a checkpoint. Started
# again it goes on, and OUT and its checkpoints are those of EXPECTED, which `tessera train` wrote in one go.
set -euo pipefail
expected=$1 out=$2
shift 2
"$@" >"$out.killed.txt" &
run=$!
until [ -d "$out.checkpoint" ] || ! kill -0 "$run" 2>/dev/null; do sleep 0.01; done
kill -9 "$run" 2>/dev/null || true
{ wait "$run" || true; } 2>/dev/null
"$@" >"$out.txt"
cmp "$expected" "$out"
for folder in checkpoint checkpoint.best; do diff -r "$expected.$folder" "$out.$folder"; done
[ -s "$out.html" ] || { echo "FAILED: $out.html, the report, is missing"; exit 1; }
