#!/usr/bin/env bash
# What people do with the command: sizes told on import, runs that are resumed, progress, statistics, Ctrl-C.
# Arguments: tessera, model, text, folder.
set -euo pipefail
tessera=$1 model=$2 text=$4/habits.txt work=$4
head -c 20000 "$3" >"$text"
fail() { echo "FAILED: $*"; exit 1; }
says() { grep -qE -- "$2" "$1" || { cat "$1"; fail "no '$2' in $1"; }; }  # says FILE PATTERN
lacks() { ! grep -qE -- "$2" "$1" || { cat "$1"; fail "'$2' in $1"; }; }
train() { "$tessera" train "$model" --data "$text" --batch 2 --seq 16 "$@"; }

"$tessera" import "$model" -o "$work/again.tsr" >"$work/import.txt"
says "$work/import.txt" '^size       [0-9.]+ .iB( of [a-z0-9_ ,]+)? -> [0-9.]+ .iB of f32'

# A run that is done says so, and what it says of speed is nothing.
train --steps 2 --lora 2 --lora-alpha 4 --out "$work/lora.tsr" >"$work/out.txt" 2>"$work/err.txt"
says "$work/out.txt" '^speed .* tokens/s'
train --steps 2 --resume "$work/lora.tsr" --out "$work/lora2.tsr" >"$work/out.txt" 2>"$work/err.txt"
says "$work/err.txt" 'adapters of rank 2, as the checkpoint has them'
says "$work/err.txt" "nothing is left to do: the checkpoint is at step 2 of option 'steps' 2; .* 'steps' more than 2"
lacks "$work/out.txt" '^speed'
# auto: from the run's own checkpoint, adapters too; from the beginning where there is none.
train --steps 2 --lora 2 --lora-alpha 4 --resume auto --out "$work/auto" >"$work/out.txt" 2>"$work/err.txt"
lacks "$work/err.txt" 'resumed at step'
train --steps 3 --resume auto --out "$work/auto" >"$work/out.txt" 2>"$work/err.txt"
says "$work/err.txt" 'adapters of rank 2, as the checkpoint has them'
says "$work/err.txt" 'resumed at step 2'
! train --steps 3 --resume auto 2>"$work/err.txt" >"$work/out.txt" || fail "resumed without a place"
says "$work/err.txt" "'resume' is auto, .* option 'out' or 'checkpoint' is missing"
# A launcher whose processes do not join is told.
PMI_SIZE=2 "$tessera" generate "$model" --prompt "Once" -n 2 --temp 0 >"$work/out.txt" 2>"$work/err.txt"
says "$work/err.txt" 'PMI_SIZE is 2.*runs alone'
# The error of adapters of another rank names both ranks.
! train --steps 3 --lora 3 --resume "$work/lora.tsr" 2>"$work/err.txt" >"$work/out.txt" || fail "rank 3 resumed rank 2"
says "$work/err.txt" 'rank 2 and alpha 4, this model.s rank 3 and alpha 3'
# As PEFT's folder, and back over the base: the same model.
"$tessera" inspect "$work/lora.tsr" >"$work/out.txt"
says "$work/out.txt" '^adapters      [0-9]+ \([0-9.]+ .iB\): rank 2; alpha 4.0; factor 2.0; on block'
"$tessera" export "$work/lora.tsr" --format peft -o "$work/adapter" >"$work/out.txt"
"$tessera" adapt "$model" --adapter "$work/adapter" -o "$work/adapted.tsr" >"$work/out.txt"
"$tessera" generate "$work/lora.tsr" --prompt "Once" -n 12 --temp 0 >"$work/one.txt"
"$tessera" generate "$work/adapted.tsr" --prompt "Once" -n 12 --temp 0 >"$work/two.txt"
"$tessera" generate "$model" --adapter "$work/adapter" --prompt "Once" -n 12 --temp 0 >"$work/three.txt"
cmp "$work/one.txt" "$work/two.txt" && cmp "$work/one.txt" "$work/three.txt" || fail "an adapter changed on its way"
! "$tessera" adapt "$model" -o "$work/adapted.tsr" 2>"$work/err.txt" || fail "adapted without adapters"
says "$work/err.txt" 'one of --adapter PATH and --lora RANK'
# With magnitudes, generated and merged.
train --steps 2 --lora 2 --dora --out "$work/dora.tsr" >"$work/out.txt" 2>"$work/err.txt"
train --steps 3 --resume "$work/dora.tsr" --out "$work/dora.tsr" >"$work/out.txt" 2>"$work/err.txt"
"$tessera" merge "$work/dora.tsr" -o "$work/merged.tsr" >"$work/out.txt"
"$tessera" generate "$work/dora.tsr" --prompt "Once" -n 12 --temp 0 --devices cpu:2 --parallel tp=2 >"$work/one.txt"
"$tessera" generate "$work/merged.tsr" --prompt "Once" -n 12 --temp 0 >"$work/two.txt"
cmp "$work/one.txt" "$work/two.txt" || fail "magnitudes were merged to another model"
# Accumulated batches are one of their size: the same losses, tokens a step and count of steps.
"$tessera" train "$model" --data "$text" --batch 4 --seq 16 --steps 3 --checkpoint-every 0 --json --quiet >"$work/one.txt"
train --accumulate 2 --steps 3 --json --quiet --out "$work/parts.tsr" --metrics "$work/parts.jsonl" >"$work/two.txt"
python3 - "$work/one.txt" "$work/two.txt" <<'END' || fail "--accumulate 2 is not a batch twice as large"
import json, sys
one, two = (json.loads(open(path).read().splitlines()[-1]) for path in sys.argv[1:])
worst = max(abs(a - b) for a, b in zip(one["losses"], two["losses"], strict=True))
sys.exit(worst > 1e-5)  # sums in another order, in f32
END
says "$work/parts.jsonl" '"kind":"header".*"tokens_per_step":64'
# A checkpoint of another training is refused by what it has, what is here, and the way out.
! train --steps 4 --resume "$work/parts.tsr" 2>"$work/err.txt" >"$work/out.txt" || fail "another --accumulate was resumed"
says "$work/err.txt" "accumulate '2', this trainer has '1': wanted the same, option accumulate '2' \(--accumulate 2\), or .*--init"
! train --steps 4 --accumulate 2 --optimizer lion --resume "$work/parts.tsr" 2>"$work/err.txt" >"$work/out.txt" || fail "another optimizer was resumed"
says "$work/err.txt" "optimizer 'adamw', this trainer has 'lion'.*--optimizer adamw"
# --quiet: stderr has nothing.
train --steps 2 --quiet --out "$work/quiet.tsr" >"$work/out.txt" 2>"$work/err.txt"
[ ! -s "$work/err.txt" ] || { cat "$work/err.txt"; fail "--quiet is not quiet"; }

# Progress where stderr is a file, and Ctrl-C: status 130, a checkpoint, and how to go on. (Background jobs of scripts
# ignore SIGINT; SIGTERM is the same to the command.)
"$tessera" train "$model" --data "$text" --batch 2 --seq 16 --steps 10000000 --checkpoint-every 1000000 --out "$work/long.tsr" \
  >"$work/out.txt" 2>"$work/err.txt" &
job=$!
for _ in $(seq 300); do grep -q '^step ' "$work/err.txt" && break; sleep 0.1; done
kill -TERM $job
status=0; wait $job || status=$?
[ $status -eq 130 ] || fail "exit $status after SIGTERM, wanted 130"
says "$work/err.txt" '^step [0-9]+/10000000  loss .* tokens/s'
says "$work/err.txt" 'stopped at step [0-9]+; go on with --resume'
[ -d "$work/long.tsr.checkpoint" ] && [ ! -e "$work/long.tsr" ] || fail "SIGTERM: no checkpoint, or a model was written"

# An import that is ended leaves nothing, and the file that was there; one that goes on is checked.
"$tessera" new llama:L=1,C=1024,H=8,F=8,V=12000,T=16,tied=1 -o "$work/wide.tsr" >/dev/null
echo old >"$work/narrow.tsr"
"$tessera" import "$work/wide.tsr" --compress -o "$work/narrow.tsr" >"$work/out.txt" 2>"$work/err.txt" &
job=$!
for _ in $(seq 3000); do compgen -G "$work/narrow.tsr.tmp-*" >/dev/null && [ -s "$(compgen -G "$work/narrow.tsr.tmp-*" | head -1)" ] && break; sleep 0.002; done
kill -TERM $job
status=0; wait $job || status=$?
[ $status -eq 130 ] || fail "import: exit $status after SIGTERM, wanted 130"
says "$work/err.txt" 'interrupted; nothing was written'
[ "$(cat "$work/narrow.tsr")" = old ] || fail "an import that was ended replaced its file"
! compgen -G "$work/narrow.tsr.tmp-*" || fail "an import that was ended left a file"
"$tessera" import "$work/wide.tsr" -o "$work/narrow.tsr" --json --quiet | grep -q '"out_types":\["f32"\]' || fail "import --json"
cmp "$work/wide.tsr" "$work/narrow.tsr"

# A quantisation prints a line for each tensor and their sum; one that is ended leaves what was there.
"$tessera" quantize "$work/wide.tsr" "$work/narrow.tsr" --type q4_k_m >"$work/out.txt"
says "$work/out.txt" '^block.0.down +f32 +f16 +[0-9.]+ KiB .* in place of q[46]_k: rows of 8 are no multiple of its block'
says "$work/out.txt" '^token_embedding +f32 +q6_k +46.88 MiB +9.61 MiB +0\.0[0-9]+$'
says "$work/out.txt" '^total +q4_k_m .* 0\.0[0-9]+$'
"$tessera" quantize "$work/wide.tsr" "$work/narrow.tsr" --type q8_0 --json --quiet | grep -q '"type":"q8_0".*"to":"q8_0"' || fail "quantize --json"
echo old >"$work/narrow.tsr"
"$tessera" quantize "$work/wide.tsr" "$work/narrow.tsr" --type q3_k_m --threads 1 >"$work/out.txt" 2>"$work/err.txt" &
job=$!
for _ in $(seq 3000); do compgen -G "$work/narrow.tsr.tmp-*" >/dev/null && [ -s "$(compgen -G "$work/narrow.tsr.tmp-*" | head -1)" ] && break; sleep 0.002; done
kill -TERM $job
status=0; wait $job || status=$?
[ $status -eq 130 ] || fail "quantize: exit $status after SIGTERM, wanted 130"
[ "$(cat "$work/narrow.tsr")" = old ] || fail "a quantisation that was ended replaced its file"
! compgen -G "$work/narrow.tsr.tmp-*" || fail "a quantisation that was ended left a file"
rm "$work/wide.tsr" "$work/narrow.tsr"
"$tessera" imatrix "$model" --file "$text" --seq 64 -o "$work/imatrix.gguf" >"$work/out.txt"
says "$work/out.txt" 'imatrix.gguf: [0-9]+ weights, of [0-9]+ windows of 64 tokens'
"$tessera" quantize "$model" "$work/narrow.tsr" --type q4_0 --imatrix "$work/imatrix.gguf" >"$work/out.txt"
says "$work/out.txt" '^total +q4_0'
lacks "$work/out.txt" 'not in the importance matrix'
rm "$work/narrow.tsr" "$work/imatrix.gguf"

"$tessera" score "$model" --file "$text" --seq 64 --stride 1 >"$work/out.txt" 2>"$work/err.txt" &
job=$!
for _ in $(seq 300); do grep -q '^scored ' "$work/err.txt" && break; sleep 0.1; done
kill -TERM $job
status=0; wait $job || status=$?
[ $status -eq 130 ] || fail "exit $status of score after SIGTERM, wanted 130"
says "$work/err.txt" '^scored [0-9]+ % of [0-9]+ tokens, .* left'
says "$work/err.txt" 'interrupted; nothing was written'

"$tessera" generate "$model" --prompt Hi -n 4 --temp 0 --stats >"$work/out.txt" 2>"$work/err.txt"
says "$work/err.txt" '^generated  4 tokens in '
lacks "$work/err.txt" '[{}"]'
"$tessera" bench "$model" --steps 2 --batch 2 --seq 16 >"$work/out.txt"
"$tessera" bench "$model" --mode decode --steps 1 --seq 8 --tokens 4 >>"$work/out.txt"
says "$work/out.txt" '^step       [0-9.]+ [mu]?s, the median of 2'
lacks "$work/out.txt" '[0-9]\.[0-9]{5}|["{}]'
for weights in bf16 q8_0; do
  "$tessera" eval "$model" --data "$text" --seq 32 --weights $weights | grep -q '^loss [0-9.]* nats' || fail "eval --weights $weights"
done
# What is exported to a GGUF file says the same; a folder is replaced by a later export, and by nothing else's.
"$tessera" export "$model" --format gguf -o "$work/model.gguf" --quiet >"$work/export.txt"
says "$work/export.txt" 'model.gguf: llama, [0-9]+ parameters, [0-9.]+ .iB of f32'
for file in "$model" "$work/model.gguf"; do
  "$tessera" generate "$file" --prompt 'One day' -n 20 --temp 0 >"$work/$(basename "$file").txt"
done
cmp "$work/$(basename "$model").txt" "$work/model.gguf.txt" || fail "a model says other things after its export"
"$tessera" export "$model" -o "$work/hf" --type bf16 --quiet >/dev/null
"$tessera" export "$model" -o "$work/hf" --json --quiet | grep -q '"format":"hf"' || fail "export --json"
[ -f "$work/hf/config.json" ] && [ -f "$work/hf/model.safetensors" ] || fail "export left no folder"
echo notes >"$work/hf/notes.txt"
! "$tessera" export "$model" -o "$work/hf" --quiet 2>"$work/err.txt" || fail "export replaced notes"
says "$work/err.txt" "has 'notes.txt', which no export writes"
# No home, no terminal, nothing to write to: what needs none of them works.
env -i PATH="$PATH" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" "$tessera" eval "$model" --data "$text" --seq 32 >/dev/null
for command in devices import export quantize imatrix inspect new tokenize plan train eval score generate bench calibrate merge; do
  "$tessera" $command --help >"$work/help.txt"
  says "$work/help.txt" '^Example:'
done
echo "ok: sizes, resumed runs, progress, statistics and Ctrl-C are as people are told"
