#!/bin/bash
# coverage.sh BUILD [SECONDS = 60] [READER ...]: each reader of foreign files under libFuzzer for so long, with the address
# sanitizer. A finding ends it and stays in BUILD/fuzz/<reader>.finding-*; what reached new code stays in
# BUILD/fuzz/corpus/<reader>, made smaller at the end. Wants Debian's clang.
set -euo pipefail
build=$(realpath "${1:?usage: coverage.sh BUILD [SECONDS] [READER ...]}")
seconds=${2:-60}
readers=("${@:3}")
[ ${#readers[@]} -gt 0 ] || readers=(gguf config safetensors modules sequence tokenizer template)
root=$(realpath "$(dirname "$0")/../..")
out=$build/fuzz
mkdir -p "$out/objects"
compiler=$(command -v clang++ || command -v clang++-14) || { echo "coverage.sh: clang++ is missing: apt install clang" >&2; exit 2; }

# What loader_mutants is made of (CMakeLists.txt), and what adapters share with exporters.
mapfile -t sources < <(find "$root"/{graph,text,serialize} -name '*.cc' -not -path "$root/serialize/export/*" | sort)
for name in decoder_facts exported_config gguf_keys gguf_writer huggingface_encoder_writer; do
  sources+=("$root/serialize/export/$name.cc")
done
sources+=("$root"/tests/fuzz/{seeds,sites,reader_fuzzer}.cc)
# They are compiled together where their local names allow it; a rule for each unit: only what changed is compiled again.
mkdir -p "$out/batches"
declare -A text_of=()
declare -A is_batched=()
while read -r number source; do
  text_of[$number]+="#include \"$source\""$'\n'
  is_batched[$source]=1
done < <(python3 "$root/tests/batches/batches.py" 3000 "${sources[@]}")
units=()
for number in "${!text_of[@]}"; do
  unit=$out/batches/$number.cc
  units+=("$unit")
  [ "$(cat "$unit" 2>/dev/null)" = "${text_of[$number]%$'\n'}" ] || printf %s "${text_of[$number]}" >"$unit"
done
for source in "${sources[@]}"; do
  [ -n "${is_batched[$source]:-}" ] || units+=("$source")
done
{
  echo "CXX = $compiler -std=c++20 -O1 -g1 -UNDEBUG -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -I$root -I$build"
  objects=()
  for source in "${units[@]}"; do
    object=$out/objects/$(realpath --relative-to="$root" "$source" | tr / _).o
    objects+=("$object")
    printf '%s: %s\n\t$(CXX) -MMD -DTSR_SCHEMA_FOLDER=\\"%s\\" -c %s -o %s\n' "$object" "$source" "$build/tests/fuzz/schema" "$source" "$object"
  done
  printf '%s: %s\n\t$(CXX) -fsanitize=fuzzer %s -o %s -lpcre2-8 -lutf8proc -lxxhash -lzstd -lpthread\n' \
    "$out/reader_fuzzer" "${objects[*]}" "${objects[*]}" "$out/reader_fuzzer"
  printf -- '-include %s/objects/*.d\n' "$out"
} >"$out/Makefile"
make -k -s -f "$out/Makefile" -j"$(nproc --all)" "$out/reader_fuzzer"

for reader in "${readers[@]}"; do
  corpus=$out/corpus/$reader
  mkdir -p "$corpus"
  export TESSERA_FUZZ_READER=$reader
  TESSERA_FUZZ_SEEDS=$corpus "$out/reader_fuzzer"
  log=$out/$reader.log
  if ! "$out/reader_fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
       -artifact_prefix="$out/$reader.finding-" "$corpus" >"$log" 2>&1; then
    grep -E 'ERROR|SUMMARY|runtime error|internal' "$log" | head -5
    echo "$reader: a finding: $(ls "$out/$reader".finding-* | tail -1); all it said: $log"
    exit 1
  fi
  mkdir -p "$corpus.small"
  "$out/reader_fuzzer" -merge=1 "$corpus.small" "$corpus" >/dev/null 2>&1 && rm -r "$corpus" && mv "$corpus.small" "$corpus"
  echo "ok: $reader | $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$log") | $(grep -oE 'cov: [0-9]+' "$log" | tail -1) | corpus $(find "$corpus" -type f | wc -l) files"
done
