#!/usr/bin/env bash
# check.sh BUILD: trainings over several processes of MPI on this machine: the bits of one process, checkpoints that any number of processes
# goes on with, and what ends them: other options, a process that dies or hangs. With TESSERA_TEST_FULL=1 every form at 4
# processes, twelve at 2, 3 and 8, and 300 mixtures. Needs Open MPI; BUILD has cli/tessera, capi/libtessera_mpi.so, tests/test_conformance.
set -euo pipefail
build=$(cd "$1" && pwd)
if [ ! -e "$build/capi/libtessera_mpi.so" ]; then
  grep -h 'mpi transport: not built' "$build.configure.log" || echo "the MPI plugin is not built here"
  echo "skipped | the processes of MPI | it wants Open MPI"
  exit 0
fi
tessera=$build/cli/tessera
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TESSERA_PROFILE=none TESSERA_PLUGIN_PATH=$build/capi OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
checks=0
pass() { checks=$((checks + 1)); }
fail() { echo "FAILED: $*" >&2; exit 1; }
processes() { mpirun --oversubscribe "$@"; }

# ---- forms
forms() { # forms PROCESSES
  processes -n "$1" "$build/tests/test_conformance" -ts="on request" -tc="forms over launched*" >"$work/forms.txt" 2>&1 ||
    { cat "$work/forms.txt"; fail "forms in $1 processes"; }
  grep -h '^processes | ' "$work/forms.txt" || { cat "$work/forms.txt"; fail "no form was compared in $1 processes"; }
  pass
}
forms 4
if [ "${TESSERA_TEST_FULL:-0}" = 1 ]; then
  for n in 2 3 8; do TESSERA_MIXTURES=12:$n forms $n; done
  for n in 2 3 4; do TESSERA_MIXTURES=100:10$n forms $n; done
else
  TESSERA_MIXTURES=4:7 forms 3
fi

# ---- the command
"$tessera" new "gpt2:L=2,C=64,H=4,V=512,T=64" --tokenizer bytes -o "$work/model.tsr" >"$work/new.log"
for i in $(seq 300); do echo "line $i of a text: the fox jumps over dog number $((i * 7 % 50)), and goes on"; done >"$work/text.txt"
common=(train "$work/model.tsr" --data "$work/text.txt" --seq 32 --batch 4 --seed 3 --eval-fraction 0.2)
losses() { python3 -c 'import json, sys; print(json.loads(sys.stdin.read().splitlines()[-1])["losses"])'; }
same() { cmp "$1" "$2" || fail "$1 is not $2"; pass; }

for words in dp=2 tp=2 pp=2 dp=2,zero=3; do
  rm -rf "$work"/one* "$work"/two*
  "$tessera" "${common[@]}" --steps 6 --devices cpu:2 --parallel $words --out "$work/one.tsr" --json >"$work/one.json" 2>"$work/one.log" ||
    { cat "$work/one.log"; fail "a training with $words"; }
  processes -n 2 "$tessera" "${common[@]}" --steps 6 --devices cpu:1 --parallel $words --out "$work/two.tsr" --json >"$work/two.json" 2>"$work/two.log" ||
    { cat "$work/two.log"; fail "a training with $words in two processes"; }
  [ "$(losses <"$work/one.json")" = "$(losses <"$work/two.json")" ] || fail "$words: other losses in two processes"
  [ "$(grep -c '"losses"' "$work/two.json")" = 1 ] || fail "$words: not one result was printed"
  same "$work/one.tsr" "$work/two.tsr"
done
# An adapter; the plan is the planner's own.
"$tessera" "${common[@]}" --steps 4 --devices cpu:2 --lora 4 --out "$work/adapter1" >/dev/null 2>"$work/one.log"
processes -n 2 "$tessera" "${common[@]}" --steps 4 --lora 4 --out "$work/adapter2" >/dev/null 2>"$work/two.log" || { cat "$work/two.log"; fail "an adapter in two processes"; }
[ -s "$work/adapter2/adapter_model.safetensors" ] || fail "no adapter was written"
pass

# auto goes on where there is a checkpoint, in all processes.
for steps in 4 6; do
  processes -n 2 "$tessera" "${common[@]}" --steps $steps --parallel dp=2 --resume auto --out "$work/auto.tsr" >/dev/null 2>"$work/auto.log" || { cat "$work/auto.log"; fail "resume auto"; }
done
grep -q 'resumed at step 4' "$work/auto.log" || { cat "$work/auto.log"; fail "resume auto began again"; }
pass

# ---- requests: process 0 has them, the others compute their part
"$tessera" new llama:L=4,C=96,H=12,KV=6,F=192,V=258,T=256 --tokenizer bytes --seed 1 -o "$work/serves.tsr" >"$work/new.log"
python3 - >"$work/requests.jsonl" <<'P'
import json
for i in range(200):
    print(json.dumps({"prompt": "A text that many share, and then its own: " + "ab" * (i % 7) + str(i), "seed": i, "temperature": 0.8, "max_tokens": 3 + i % 11, "n": 1 + i % 2}))
P
answers() { # answers OUT WORDS DEVICES COMMAND...: what is served, and how many tokens were read from the cache
  local out=$1 words=$2 devices=$3
  shift 3
  "$@" generate "$work/serves.tsr" --devices "$devices" --prompts "$work/requests.jsonl" --sequences 8 --parallel "$words" --out "$out" --json >"$out.json" 2>"$work/serve.log" ||
    { cat "$work/serve.log"; fail "requests with $words"; }
}
for words in tp=2 pp=2; do
  rm -f "$work"/served*
  answers "$work/served1" $words cpu:2 "$tessera"
  answers "$work/served2" $words cpu:1 mpirun --oversubscribe -n 2 "$tessera"
  same "$work/served1" "$work/served2"
  python3 - "$work"/served[12].json <<'P' || fail "$words: other counts in two processes"
import json, sys
one, two = (json.loads(open(path).read()) for path in sys.argv[1:])
sys.exit(any(one[key] != two[key] for key in ("cached_tokens", "prompt_tokens", "tokens", "failed")) or one["failed"] != 0 or one["cached_tokens"] == 0)
P
done

# ---- checkpoints: stopped at step 4, on with as many processes to the same bits, and with one or four to nearly the same
whole() { "$tessera" "${common[@]}" --steps 8 "$@" 2>"$work/whole.log"; }
whole --devices cpu:2 --parallel dp=2 --checkpoint-every 4 --keep 3 --out "$work/whole.tsr" --json >"$work/whole.json"
processes -n 2 "$tessera" "${common[@]}" --steps 8 --parallel dp=2 --checkpoint-every 4 --keep 3 --out "$work/parts.tsr" --json >"$work/parts.json" 2>"$work/parts.log" ||
  { cat "$work/parts.log"; fail "checkpoints of two processes"; }
same "$work/whole.tsr" "$work/parts.tsr"
at4=$work/parts.tsr.checkpoint.step-4
[ -d "$at4" ] || { ls "$work"; fail "no checkpoint of step 4"; }
processes -n 2 "$tessera" "${common[@]}" --steps 8 --parallel dp=2 --resume "$at4" --out "$work/again.tsr" >/dev/null 2>"$work/again.log" || { cat "$work/again.log"; fail "resumed in two"; }
same "$work/whole.tsr" "$work/again.tsr"
for n in 1 4; do
  processes -n $n "$tessera" "${common[@]}" --steps 8 --parallel dp=$n --resume "$at4" --out "$work/other$n.tsr" --json >"$work/other.json" 2>"$work/other.log" ||
    { cat "$work/other.log"; fail "resumed in $n"; }
  python3 - "$work/whole.json" "$work/other.json" <<'P' || fail "resumed in $n: other losses"
import json, sys
whole, other = (json.loads(open(path).read().splitlines()[-1])["losses"] for path in sys.argv[1:])
sys.exit(any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(whole[4:], other)) or len(other) != 4)
P
  pass
done

# Checkpoints of a pipeline, whose processes have other parameters; the best step's values go into the result.
best=(--steps 8 --eval-every 2 --lr 0.3 --patience 2 --checkpoint-every 2)
"$tessera" "${common[@]}" "${best[@]}" --devices cpu:2 --parallel pp=2 --out "$work/best1.tsr" --json >"$work/best1.json" 2>"$work/best.log" || { cat "$work/best.log"; fail "the best step"; }
processes -n 2 "$tessera" "${common[@]}" "${best[@]}" --parallel pp=2 --out "$work/best2.tsr" --json >"$work/best2.json" 2>"$work/best.log" ||
  { cat "$work/best.log"; fail "the best step in two processes"; }
same "$work/best1.tsr" "$work/best2.tsr"
for shard in "$work"/best1.tsr.checkpoint/*; do
  [ "$(basename "$shard")" = manifest ] || same "$shard" "$work/best2.tsr.checkpoint/$(basename "$shard")"
done
[ "$(ls "$work/best1.tsr.checkpoint")" = "$(ls "$work/best2.tsr.checkpoint")" ] || fail "other files in the checkpoint of a pipeline"
pass

# ---- what does not fit is refused everywhere
refused() { # refused TEXT MPIRUN ARGUMENTS...
  local text=$1
  shift
  if timeout 60 mpirun --oversubscribe "$@" >"$work/refused.txt" 2>&1; then cat "$work/refused.txt"; fail "not refused: $text"; fi
  grep -q "$text" "$work/refused.txt" || { cat "$work/refused.txt"; fail "wanted '$text'"; }
  pass
}
other=("${common[@]}")
other[7]=8  # --batch
refused "start all with the same" -n 1 "$tessera" "${common[@]}" --steps 4 --parallel dp=2 --out "$work/r.tsr" : -n 1 "$tessera" "${other[@]}" --steps 4 --parallel dp=2 --out "$work/r.tsr"
refused "uses 2 devices exactly" -n 2 "$tessera" "${common[@]}" --steps 4 --parallel dp=3 --out "$work/r.tsr"
refused "no_such_checkpoint" -n 1 "$tessera" "${common[@]}" --steps 8 --parallel dp=2 --resume "$at4" --out "$work/r.tsr" : \
  -n 1 "$tessera" "${common[@]}" --steps 8 --parallel dp=2 --resume "$work/no_such_checkpoint" --out "$work/r.tsr"
refused "samples of text" -n 2 "$tessera" "${common[@]}" --steps 4 --parallel dp=2 --sample "a" --out "$work/r.tsr"
[ ! -e "$work/r.tsr" ] || fail "a refused training left a result"

# ---- a program with MPI of its own
gcc -Wall -Werror -DTSR_UNSTABLE_API "$(dirname "$0")/own_mpi.c" -o "$work/own_mpi" -I "$(dirname "$0")/../../capi/include" $(pkg-config --cflags ompi-c) \
  "$build/capi/libtessera.so" -Wl,-rpath,"$build/capi" $(pkg-config --libs ompi-c)
processes -n 3 "$work/own_mpi" multiple >"$work/own.txt" 2>&1 || { cat "$work/own.txt"; fail "a program's own communicator"; }
[ "$(grep -c '"processes":2' "$work/own.txt")" = 2 ] && [ "$(grep -c '"processes":1' "$work/own.txt")" = 1 ] && [ "$(grep -c 'sum 3' "$work/own.txt")" = 3 ] ||
  { cat "$work/own.txt"; fail "worlds of a program's own communicator"; }
pass
refused "wanted MPI_THREAD_MULTIPLE" -n 1 "$work/own_mpi" single
refused "MPI is finalized in this process" -n 1 "$work/own_mpi" finalized

# ---- a process that dies, or hangs: the others end, and say which one
six=("${common[@]}")
six[7]=6
ends=("${six[@]}" --steps 100000 --parallel dp=3 --out "$work/e.tsr")
ended() { # ended SIGNAL TEXT
  rm -rf "$work"/e.tsr*
  mpirun --oversubscribe --enable-recovery -n 3 "$tessera" "${ends[@]}" --process-timeout 2 >"$work/ended.txt" 2>&1 &
  local launcher=$! victim=
  for _ in $(seq 100); do
    victim=$(pgrep -P $launcher -f 'cli/tessera' | tail -1) && [ -n "$victim" ] && break
    sleep 0.1
  done
  [ -n "$victim" ] || { cat "$work/ended.txt"; fail "no process to end"; }
  sleep 1.5
  kill "-$1" "$victim"
  for _ in $(seq 200); do
    [ "$(pgrep -P $launcher -f 'cli/tessera' | grep -cv "^$victim$" || true)" = 0 ] && break  # grep fails where it counts none
    sleep 0.1
  done
  local left
  left=$(pgrep -P $launcher -f 'cli/tessera' | grep -v "^$victim$" || true)  # empty: all have ended
  kill -KILL "$victim" 2>/dev/null || true  # one that was stopped; a killed one is gone
  [ -z "$left" ] || { kill $launcher; cat "$work/ended.txt"; fail "processes live on after -$1"; }
  wait $launcher || true  # with recovery the launcher itself ends well
  grep -q "$2" "$work/ended.txt" || { cat "$work/ended.txt"; fail "wanted '$2' after -$1"; }
  pass
}
ended KILL "has not been heard of for 2 s"
ended STOP "has not been heard of for 2 s"
python3 -c 'import json
for i in range(20000): print(json.dumps({"prompt": f"request {i}", "max_tokens": 100}))' >"$work/many.jsonl"
ends=(generate "$work/serves.tsr" --prompts "$work/many.jsonl" --parallel tp=3 --sequences 8 --out "$work/many.out")
ended KILL "has not been heard of for 2 s"
echo "ok: $checks checks of processes"
