#!/usr/bin/env bash
# Bad input on the command line: a clear error, a non-zero status, nothing lost. Arguments: tessera, model, text, folder.
set -euo pipefail
tessera=$1 model=$2 text=$3 work=$4
exec </dev/null  # a piped text is a prompt
expect() {  # expect PATTERN COMMAND...: fails, and says PATTERN on stderr
  local pattern=$1 status=0
  shift
  "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
  [ $status -ne 0 ] && [ $status -lt 128 ] || { echo "FAILED: exit $status from: $*"; cat "$work/stderr"; exit 1; }
  grep -qiE -- "$pattern" "$work/stderr" || { echo "FAILED: no '$pattern' from: $*"; cat "$work/stderr"; exit 1; }
  echo "ok: $(head -c 200 "$work/stderr" | head -1)"
}
expect 'did you mean --steps' "$tessera" train "$model" --data "$text" --stepz 3
expect 'no-such-file' "$tessera" inspect "$work/no-such-file.tsr"
expect 'zero|known|nearest' "$tessera" train "$model" --data "$text" --parallel zerro=1 --devices cpu:2
expect 'smallest|would work|limit' "$tessera" train "$model" --data "$text" --memory-limit 100KiB
expect "no backend.*here: cpu" "$tessera" train "$model" --data "$text" --devices gpu:1
expect 'cuda' "$tessera" generate "$model" --devices cuda
expect 'use precision f32' "$tessera" train "$model" --data "$text" --precision f16
# Words that cannot be understood: what was found, and the nearest that is known.
expect "unknown option '--bogus' .see" "$tessera" --bogus
expect "unknown option '--stepz'; did you mean --steps" "$tessera" train "$model" --stepz 3
expect "'--steps' before a command; after its name it belongs to: train" "$tessera" --steps 3 train "$model"
expect "no command is called 'trian'; did you mean train" "$tessera" trian "$model"
expect 'a command is missing: devices, import' "$tessera"
expect "did you mean --prompt 'Once upon a time'" "$tessera" generate "$model" "Once upon a time"
# Words of other projects are answered with the word here, misspelt ones with the nearest, others with none.
for words in "server|tessera serve MODEL" "run|tessera chat" "finetune|tessera train" "perplexity|tessera score" "trian|did you mean train" "frobnicate|there are devices"; do
  expect "${words#*|}" "$tessera" "${words%%|*}" "$model"
done
for words in "--epochs|optimizer steps" "--learning-rate|did you mean --lr\?" "--learning_rate|--lr" "--batch-size|--batch" "--output_dir|--out" "--max-seq-length|--seq" \
  "--lora-r|--lora\?" "--load-in-4bit|qlora:nf4" "--gradient-accumulation-steps|--accumulate"; do
  expect "unknown option.*${words#*|}" "$tessera" train "$model" --data "$text" "${words%%|*}" 3
done
expect "'adam', wanted one of .*it is adamw here" "$tessera" train "$model" --data "$text" --optimizer adam
expect "did you mean --prompt" "$tessera" generate "$model" -p hi
expect "min_p and repetition_penalty" "$tessera" chat "$model" --message hi --repeat-penalty 1.1
for words in "-ngl|did you mean --devices cuda\?" "-hf|nothing is downloaded" "-nkvo|the plan's choice" "-nxy|unknown option '-nxy'" "-ctk|--cache-type" "-md|--draft-model"; do
  expect "unknown option '${words%%|*}'.*${words#*|}|${words#*|}" "$tessera" generate "$model" --prompt hi "${words%%|*}" 99
done
expect "unexpected word '--ids'" "$tessera" generate "$model" -- --ids
expect "option 'optimizer' is 'adam'" "$tessera" train "$work/absent.tsr" --data "$work/absent.txt" --optimizer adam
expect "option 'packing' is 'most'" "$tessera" data "$work/absent.jsonl" --model "$work/absent.tsr" --packing most
echo '{"prompt": "a", "prompt": "b"}' >"$work/twice.jsonl"
expect "line 1: the key 'prompt' stands twice" "$tessera" generate "$model" --prompts "$work/twice.jsonl"
expect "option '--zzzzzz' \(see" "$tessera" generate "$model" --zzzzzz 1
# Data by content, outputs by name.
printf 'prompt,completion\nQ?,A.\n' >"$work/table.csv"
expect "comma-separated.*JSON lines.*'kind' plain" "$tessera" train "$model" --data "$work/table.csv"
expect "holds rows of JSON" "$tessera" score "$model" --file <(echo '{"text": "a"}')
printf 'caf\351 noir' >"$work/latin.txt"
expect 'byte 3 .0xe9. is not UTF-8' "$tessera" train "$model" --data "$work/latin.txt"
for name in never.onnx never.safetensors never.pt; do
  expect 'a format that is not written' "$tessera" quantize "$model" "$work/$name" --type Q8_0
  expect 'a format that is not written' "$tessera" export "$model" -o "$work/$name"
done
expect "option 'merge' writes the model" "$tessera" train "$model" --data "$text" --lora 2 --out "$work/never.gguf"
expect "did you mean --data '$text'" "$tessera" train "$model" "$text"
expect 'several words wants quotes' "$tessera" generate "$model" --prompt Once upon a time
expect 'is where the model is read from' "$tessera" import "$model" -o "$model"
expect "steps has no value, wanted an integer" "$tessera" train "$model" --data "$text" --steps
expect "lr is '1e-3x', wanted a number" "$tessera" train "$model" --data "$text" --lr 1e-3x
expect 'steps is given more than once' "$tessera" train "$model" --data "$text" --steps 3 --steps 4
# Files that are no models.
echo "some notes" >"$work/notes.txt"
expect 'wanted a .tsr file .*, a GGUF file .* or a folder of safetensors; this looks like text' "$tessera" import "$work/notes.txt" -o "$work/notes.tsr"
[ ! -e "$work/notes.tsr" ] || { echo "FAILED: a model was written from notes"; exit 1; }
printf 'PK\003\004' >"$work/model.pt"
expect 'zip archive, as PyTorch' "$tessera" inspect "$work/model.pt"
printf '\100\000\000\000\000\000\000\000{"a":{}}' >"$work/model.safetensors"
expect 'config.json is missing: safetensors hold weights alone' "$tessera" generate "$work/model.safetensors"
expect 'given in the wrong order' "$tessera" train "$model" --data "$model"
expect "tokenizer 'byte': there is no such file; wanted .bytes., a .tsr or GGUF file" "$tessera" tokenize byte x
expect "no backend '2'.*as in 'cpu:2'" "$tessera" generate "$model" --devices 2
expect 'has no tokenizer; make the model with' "$tessera" generate llama:L=1,C=32,H=2,F=64,V=256,T=64 --prompt x
mkdir "$work/empty"
expect 'has neither model.safetensors nor' "$tessera" inspect "$work/empty"
# Numbers that are none, or beyond what is held; words that would change nothing.
expect "no command is called 'frobnicate'" "$tessera" frobnicate
expect '64 bits' "$tessera" train "$model" --data "$text" --steps 99999999999999999999
for option in weight-decay momentum dropout loss-scaling; do
  expect 'is nan, wanted' "$tessera" train "$model" --data "$text" --steps 1 --optimizer sgd --$option nan
done
for option in threads eval-batches checkpoint-every; do
  expect 'is -1, wanted' "$tessera" train "$model" --data "$text" --steps 1 --$option -1
done
absent=("$tessera" plan gpt2:L=12,C=768,H=12,V=50257,T=1024 --cluster dgx-a100-80gb:8)
expect "'seq' is 2048, the model's context holds 1024" "${absent[@]}" --seq 2048
expect 'have owners' "${absent[@]}" --optimizer muon
expect 'wanted model, bf16, f16 or a block type' "${absent[@]}" --method qlora:q9
expect 'leave out one' "${absent[@]}" --method full --lora 8
"${absent[@]}" --seq 1024 --parallel mb=1 >/dev/null  # what is so anyway may be said
expect 'no lowered plan to write' "${absent[@]}" -o "$work/absent.plan"
expect 'is for present devices' "${absent[@]}" --devices cpu:2
expect 'mode generate' "${absent[@]}" --kv-budget 1GiB
expect 'mode' "${absent[@]}" --mode sing
expect 'is nan' "${absent[@]}" --within nan
expect "'X' is not known" "$tessera" plan gpt2:L=12,C=768,H=12,V=50257,T=1024,X=3 --cluster dgx-a100-80gb:8
# Products of 8 bits on absent hardware, and where there are none.
expect "'a100-80gb' list no rate .*name bf16" "${absent[@]}" --precision fp8
expect 'tf32' "${absent[@]}" --precision tf32
expect 'generated in bf16' "${absent[@]}" --mode generate --precision bf16
"$tessera" plan gpt2:L=12,C=768,H=12,V=50257,T=1024 --cluster dgx-h100:8 --precision fp8 --parallel mb=1 >/dev/null
# Where nothing can be written is said before anything is computed, and a pipe stays a pipe.
expect "unknown type 'q4_km'; nearest: q4_k.*; all: q2_k, .*f32" "$tessera" quantize "$model" "$work/never.tsr" --type q4_km
expect "'iq2_xs' can be read and not made" "$tessera" quantize "$model" "$work/never.tsr" --type iq2_xs
expect 'imatrix.dat: .*no importance matrix' bash -c "printf 'no matrix, but words' >'$work/imatrix.dat'; '$tessera' quantize '$model' '$work/never.tsr' --type q4_0 --imatrix '$work/imatrix.dat'"
# What is written is none of the files that are read, and no two results are one file.
expect '--report is .* which is read as --data and would be lost' "$tessera" train "$model" --data "$text" --steps 1 --report "$text"
expect '--out and --metrics both are' "$tessera" train "$model" --data "$text" --steps 1 --out "$work/x.tsr" --metrics "$work/./x.tsr"
expect '--out is .* which is read as model' "$tessera" train "$model" --data "$text" --steps 1 --out "$model" --overwrite
expect '--out is .* which is read as model' "$tessera" plan "$model" --batch 2 --seq 16 -o "$model"
expect '--out is .* which is read as --file' "$tessera" imatrix "$model" --file "$text" -o "$text"
expect "'-' is not an output file: .*give a file name" "$tessera" import "$model" -o -
expect 'is where the model is read from' "$tessera" quantize "$model" "$model" --type q4_0
mkfifo "$work/pipe"
for out in "$work" "$work/no-such-folder/out.tsr" "$work/pipe"; do
  expect 'is a folder|there is no folder|device, pipe or socket' "$tessera" train "$model" --data "$text" --steps 1000000 --out "$out"
done
expect 'device, pipe or socket' "$tessera" new llama:L=1,C=32,H=2,F=64,V=256,T=64 -o "$work/pipe"
expect '256 tokens, the model V=100' "$tessera" new llama:L=1,C=32,H=2,F=64,V=100,T=64 --tokenizer bytes -o "$work/small-vocabulary.tsr"
[ -p "$work/pipe" ] || { echo "FAILED: a pipe was replaced by a file"; exit 1; }
rm "$work/pipe"
# What a save at the end would fail at is said before the first step, and a save that fails names the last good one.
mkdir "$work/foreign" && echo mine >"$work/foreign/notes.txt"
expect "'notes.txt' in it is no part of a checkpoint" "$tessera" train "$model" --data "$text" --steps 1000000 --checkpoint "$work/foreign" --out "$work/never.tsr"
expect 'File name too long' "$tessera" train "$model" --data "$text" --steps 1000000 --out "$work/$(printf 'n%.0s' {1..256})"
expect 'File name too long' "$tessera" train "$model" --data "$text" --steps 1000000 --out "$work/$(printf 'n%.0s' {1..240})"
(until [ -e "$work/spoilt/manifest" ] && echo mine >"$work/spoilt/notes.txt"; do sleep 0.01; done) &
expect "no part of a checkpoint.*the last good checkpoint is $work/spoilt \\(option 'resume'\\)" "$tessera" train "$model" --data "$text" --seq 16 --batch 2 --steps 1000000 \
  --checkpoint-every 1 --checkpoint "$work/spoilt" --out "$work/never.tsr"
wait
# Text that nests deeper than anything that is meant.
printf '[%.0s' {1..80000} >"$work/deep.json"
expect 'nests deeper than 64' "$tessera" plan gpt2:L=12,C=768,H=12,V=50257,T=1024 --cluster "$work/deep.json"
expect 'nests deeper than 64' "$tessera" plan --check "$work/deep.json"
expect 'nests deeper than 64' "$tessera" plan "$model" --profile "$work/deep.json"
expect 'nests deeper than 64' "$tessera" plan "$model" --pins "$work/deep.json"
# A text that is a pipe is read to its end.
# (Or - for standard input; names longer than the system takes, folders and inputs that are closed are told as such.)
losses() { "$tessera" train "$model" --steps 2 --seq 32 --json --data "$1" | sed 's/"eval_loss".*//'; }
[ -n "$(losses "$text")" ] && [ "$(losses "$text")" = "$(cat "$text" | losses /dev/stdin)" ] && [ "$(losses "$text")" = "$(cat "$text" | losses -)" ] || { echo "FAILED: a text from a pipe trains otherwise"; exit 1; }
expect 'standard input: cannot read: bad file' bash -c "'$tessera' eval '$model' --data - <&-"
expect 'File name too long' "$tessera" train "$model" --data "$(printf 'name%.0s' {1..2000})"
expect "dataset '.*' is a folder" "$tessera" eval "$model" --data "$work"
expect "dataset '/dev/zero' is a device" "$tessera" train "$model" --data /dev/zero
expect "dataset from standard input is a device" bash -c "'$tessera' train '$model' --data - </dev/zero"
# A pipe without an end is given up at half of the memory.
expect 'standard input has not ended after [0-9.]+ .iB, half of the memory' bash -c "ulimit -v 1000000; yes | '$tessera' eval '$model' --data -"
# So is every other text that is read whole, at its own bound: no input ends the machine's memory.
for input in "plan $model --pins" "plan --check" "tokenize bytes --file" "score $model --file"; do
  expect '/dev/zero.? is a device; give a file or a pipe' "$tessera" $input /dev/zero
done
expect 'standard input has not ended after 16.00 MiB' bash -c "yes | '$tessera' plan '$model' --pins -"
# Ctrl-C ends planning, however long it would take. Sent once: without --foreground timeout sends it to the group too,
# and a second one ends the process at once. (One that comes while the weights are still being drawn, on a slow
# machine, ends the process as it would any other.)
for seconds in 2 6 18; do
  status=0
  timeout --foreground --preserve-status -s INT $seconds "$tessera" plan llama:L=800,C=64,H=4,F=96,V=256,T=64 --devices cpu:2 >"$work/stdout" 2>"$work/stderr" || status=$?
  [ $status -eq 130 ] || break
  ! grep -q 'interrupted; nothing was written' "$work/stderr" || break
done
[ $status -eq 130 ] && grep -q 'interrupted; nothing was written' "$work/stderr" || { echo "FAILED: exit $status after Ctrl-C while planning for $seconds s"; cat "$work/stderr"; exit 1; }
truncate -s 1T "$work/sparse.json"
expect 'is binary .byte 0 is 0.' "$tessera" train "$model" --data "$work/sparse.json"
expect 'has 1.00 TiB, wanted at most 256.00 MiB' "$tessera" train "$model" --data "$text" --plan "$work/sparse.json"
expect 'has 1.00 TiB, wanted at most 16.00 MiB' "$tessera" plan "$model" --profile "$work/sparse.json"
expect 'has 1.00 TiB, wanted at most 16.00 MiB' "$tessera" plan llama:L=1,C=32,H=2,F=64,V=256,T=64 --cluster "$work/sparse.json"
for encoding in UTF-16 UTF-16LE UTF-16BE UTF-32 UTF-32LE UTF-32BE; do
  printf '\357\273\277a text' | iconv -f UTF-8 -t $encoding >"$work/wide.txt"
  expect "iconv -f ${encoding%[LB]E} -t UTF-8" "$tessera" train "$model" --data "$work/wide.txt"
done
(printf '\357\273\277' && cat "$text") >"$work/marked.txt"
[ "$(losses "$text")" = "$(losses "$work/marked.txt")" ] || { echo "FAILED: the mark of UTF-8 is trained on"; exit 1; }
echo '{"txt": "a text"}' >"$work/lines.jsonl"
expect "lines.jsonl' line 1: the row has fields 'txt': wanted 'text', 'messages'" "$tessera" train "$model" --data "$work/lines.jsonl"
expect "plan '.*' is a folder" "$tessera" train "$model" --data "$text" --plan "$work"
expect "profile '.*' is a folder" "$tessera" plan "$model" --profile "$work"
expect 'is a folder; give a file' "$tessera" tokenize bytes --file "$work"
expect 'standard output' bash -c "'$tessera' devices >/dev/full"
head -c 1000 "$model" >"$work/short.tsr"
expect 'short|truncated|bytes|size|corrupt' "$tessera" inspect "$work/short.tsr"
cp "$model" "$work/flipped.tsr"
printf '\xff\xfe\xfd' | dd of="$work/flipped.tsr" bs=1 seek=$(($(stat -c %s "$model") - 64)) conv=notrunc status=none
expect 'checksum|xxh3|corrupt' "$tessera" inspect "$work/flipped.tsr" --verify
# A device profile that was changed, cut short, or is of another version.
"$tessera" calibrate --seconds 0 --out "$work/profile.json" --json >/dev/null
"$tessera" plan "$model" --devices cpu:2 --profile "$work/profile.json" --json | grep -q "\"profile\":\"$(sed -n 's/.*"checksum": "\(.*\)".*/\1/p' "$work/profile.json")\""
for change in 's/"cores": [0-9]*/"cores": 3/' '0,/"seconds": \[/s//"seconds": [ -1,/' 's/"version": [0-9]*/"version": 7/' '$d'; do
  sed "$change" "$work/profile.json" >"$work/changed.json"
  ! cmp -s "$work/profile.json" "$work/changed.json" || { echo "FAILED: $change changes nothing"; exit 1; }
  expect 'changed.json.*(cores|checksum|above 0|version is 7|not JSON).*calibrate' "$tessera" plan "$model" --devices cpu:2 --profile "$work/changed.json"
done
# A learning rate that makes the loss overflow: stops, says so, and keeps the last good checkpoint.
expect 'finite|nan' "$tessera" train "$model" --data "$text" --steps 200 --batch 4 --seq 16 --lr 1e6 --weight-decay 1 --clip-norm 0 \
  --checkpoint-every 1 --out "$work/nan.tsr"
[ -d "$work/nan.tsr.checkpoint" ] && [ ! -e "$work/nan.tsr" ] || { echo "FAILED: NaN: no checkpoint, or a model was written"; exit 1; }
# A full disk while saving: the old file stays whole.
"$tessera" new llama:L=1,C=32,H=2,F=64,V=256,T=64 --tokenizer bytes -o "$work/keep.tsr" >/dev/null
before=$(sha256sum <"$work/keep.tsr")
expect 'space|large|write' bash -c "ulimit -f 40; exec '$tessera' new llama:L=4,C=128,H=2,F=256,V=256,T=64 -o '$work/keep.tsr'"
[ "$before" = "$(sha256sum <"$work/keep.tsr")" ] || { echo "FAILED: a failed save changed the old file"; exit 1; }
ls "$work" | grep -q 'keep.tsr.' && { echo "FAILED: a failed save left a file behind: $(ls "$work")"; exit 1; }
# Vectors and classes of texts.
printf 'one\ttwo\nno tab here\n' >"$work/pairs.tsv"
expect 'no texts: wanted --file' "$tessera" embed "$model"
expect 'wanted one of them' "$tessera" embed "$model" --file "$work/pairs.tsv" --text a
expect 'line 2 has no tab' "$tessera" embed "$model" --file "$work/pairs.tsv" --pairs
expect 'wanted a second text for each' "$tessera" embed "$model" --text a --text b --pair c
expect "option 'pooling' is 'max'" "$tessera" embed "$model" --text a --pooling max
expect 'the model has no classes' "$tessera" classify "$model" --text a
"$tessera" new bert:L=1,C=16,H=2,V=256,T=32,N=2 --tokenizer bytes -o "$work/classes.tsr" >/dev/null
"$tessera" classify "$work/classes.tsr" --text a --pair b | grep -q '^LABEL_[01] 0\..*LABEL_[01] 0\.' || { echo "FAILED: no classes of a pair"; exit 1; }
# A certificate of a searched plan holds as written, and is refused when something in it is changed.
"$tessera" plan gpt2:L=12,C=1024,H=16,V=51200,T=1024 --cluster dgx-a100-40gb:8 --batch 32 --parallel mb=2 --certificate "$work/good.json" >/dev/null
"$tessera" plan --check "$work/good.json" | grep -q '^valid' || { echo "FAILED: a certificate as written does not hold"; exit 1; }
sed 's/"bound_seconds": /"bound_seconds": 1/' "$work/good.json" >"$work/bad.json"
expect 'a gap of|a bound of' "$tessera" plan --check "$work/bad.json"
sed 's/"memory_limit": 0/"memory_limit": 4000000000/' "$work/good.json" >"$work/bad.json"
expect 'the limit is|is listed with' "$tessera" plan --check "$work/bad.json"
echo "every bad input was answered"
