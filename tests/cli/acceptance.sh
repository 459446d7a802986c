#!/usr/bin/env bash
# The command line end to end, on a real model where the shared data is at hand: exact transcript under tensor
# parallelism, token ids, training parity over layouts, predicted = measured memory, communicated bytes, kill and resume.
# Argument: the build folder.
set -euo pipefail
export TESSERA_PROFILE=none
here=$(cd "$(dirname "$0")" && pwd)
tessera=$1/cli/tessera
data=${TESSERA_TEST_DATA:-$here/../../../shared/data}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

text=/usr/share/games/fortunes/computers
[ -f "$text" ] || fail "text $text is missing: install the package fortunes"

model=$data/models/stories260K.gguf
if [ -f "$model" ]; then
  "$tessera" import "$model" -o "$work/s.tsr"
  for n in 1 2 3 4; do
    parallel=(); [ $n -eq 1 ] || parallel=(--parallel "tp=$n")
    "$tessera" generate "$work/s.tsr" --prompt "" -n 200 --temp 0 --devices cpu:$n "${parallel[@]}" >"$work/out$n.txt"
    cmp "$work/out$n.txt" "$data/models/stories260K.greedy200.txt" || fail "greedy transcript differs on cpu:$n"
    echo "ok: greedy transcript, cpu:$n: exact"
  done
  for vocabulary in gpt-2 llama-spm; do
    python3 "$here/tokens.py" "$tessera" "$data/tokenizers/ggml-vocab-$vocabulary.gguf"
  done
else
  echo "skipped | the published transcript and token ids | no shared data (TESSERA_TEST_DATA names the folder that has it)"
  "$tessera" new llama:L=5,C=64,H=8,KV=4,F=172,V=512,T=256,tied=1 --seed 1 -o "$work/s.tsr" --tokenizer bytes
fi
python3 "$here/parity.py" "$tessera" "$work/s.tsr" "$text"
python3 "$here/resume.py" "$tessera" "$work/s.tsr" "$text" "$work"
python3 "$here/../limits/kills.py" "$1" 3 --keep
python3 "$here/../limits/file_kills.py" "$1" 6
python3 "$here/runs.py" "$tessera" "$text" "$work"
python3 "$here/run_files.py" "$tessera" "$work/s.tsr" "$text" "$work"
python3 "$here/odd_files.py" "$tessera" "$work"
python3 "$here/full_disk.py" "$tessera" "$work"
python3 "$here/bench.py" "$tessera"
python3 "$here/score.py" "$tessera" "$work/s.tsr" "$text" "$work"
python3 "$here/vectors.py" "$tessera" "$work/s.tsr" "$work"
"$here/errors.sh" "$tessera" "$work/s.tsr" "$text" "$work"
"$here/habits.sh" "$tessera" "$work/s.tsr" "$text" "$work"
"$here/chat.sh" "$tessera" "$work"
python3 "$here/prompts.py" "$tessera" "$work"
python3 "$here/line_adapters.py" "$tessera" "$work"
python3 "$here/data.py" "$tessera" "$work"
python3 "$here/defaults.py" "$tessera" "$here/../../capi/include/tessera/tessera.h" "$work/s.tsr" "$text"
