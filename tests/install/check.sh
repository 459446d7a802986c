#!/usr/bin/env bash
# The installed library as a user meets it: header as C11 and C++, samples through pkg-config and under valgrind, static
# linking, the CMake package, and the other languages, with the C samples' losses to the bit. Argument: the build folder.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name tessera.pc)")
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(pkg-config --variable=libdir tessera)
strict=(-Wall -Wextra -pedantic -Werror)

echo '#include <tessera/tessera.h>
int main(void) { return tsr_version_check(TSR_VERSION) != 0; }' >"$work/header.c"
cp "$work/header.c" "$work/header.cc"
# shellcheck disable=SC2046
cc -std=c11 "${strict[@]}" "$work/header.c" $(pkg-config --cflags --libs tessera) -o "$work/header_c"
c++ -std=c++11 "${strict[@]}" "$work/header.cc" $(pkg-config --cflags --libs tessera) -o "$work/header_cc"
"$work/header_c" && "$work/header_cc"
c++ "$work/header.cc" $(pkg-config --cflags tessera) -static-libstdc++ "$(pkg-config --variable=libdir tessera)/libtessera.a" \
  $(pkg-config --static --libs-only-l tessera | sed 's/-ltessera\b//') -o "$work/header_static"
LD_LIBRARY_PATH= "$work/header_static"
# Without any shared library. Debian has no static Highway, so that a stand-in shows that nothing else is missing.
# shellcheck disable=SC2207
fully_static=(cc -static "$work/header.c" $(pkg-config --static --cflags --libs tessera))
if "${fully_static[@]}" -o "$work/header_full" 2>"$work/static.log"; then
  echo "ok: fully static: as it is"
else
  grep -q 'cannot find -lhwy' "$work/static.log" || { cat "$work/static.log"; exit 1; }
  cat >"$work/hwy.cc" <<'CODE'
#include <hwy/targets.h>
namespace hwy {
int64_t SupportedTargets() { return HWY_STATIC_TARGET; }
ChosenTarget& GetChosenTarget() { static ChosenTarget chosen; return chosen; }
}
CODE
  c++ -c "$work/hwy.cc" -o "$work/hwy.o" && ar rcs "$work/libhwy.a" "$work/hwy.o"
  "${fully_static[@]}" -L"$work" -o "$work/header_full" 2>"$work/static.log" || { cat "$work/static.log"; exit 1; }
  echo "ok: fully static: with a libhwy.a, which this system lacks"
fi
LD_LIBRARY_PATH= "$work/header_full"
doc=$work/prefix/share/doc/tessera
for file in LICENSE README.md CHANGELOG.md docs/architecture.md docs/overview.svg samples/c/finetune.c; do
  [ -s "$doc/$file" ] || { echo "FAILED: $file is not installed"; exit 1; }
done
# Links of what is installed lead somewhere, but those to the source tree.
python3 - "$doc" <<'CODE'
import pathlib, re, sys
for page in pathlib.Path(sys.argv[1]).rglob("*.md"):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        wanted = (page.parent / link).resolve()
        assert wanted.exists() or not link.endswith(".md") and "/" in link, f"{page}: {link} leads nowhere"
CODE
echo "ok: documents and the licence are installed"
echo "ok: header: C11 and C++11 with ${strict[*]}; shared and static"

text=/usr/share/games/fortunes/computers
head -c 60000 "$text" >"$work/text.txt"
for sample in "$here"/samples/c/*.c; do
  cc -std=c11 "${strict[@]}" "$sample" $(pkg-config --cflags --libs tessera) -lm -o "$work/$(basename "$sample" .c)"
done
"$work/prefix/bin/tessera" new llama:L=2,C=32,H=4,KV=2,F=64,V=256,T=64 --tokenizer bytes --seed 1 -o "$work/small.tsr"
memcheck=(valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,possible)
cd "$work"
"${memcheck[@]}" ./finetune small.tsr text.txt tuned.tsr cpu:2 3 | tee c.txt
"${memcheck[@]}" ./training_run small.tsr text.txt memcheck.tsr 2
"${memcheck[@]}" ./generate tuned.tsr "A computer" 8
"${memcheck[@]}" ./own_model
"${memcheck[@]}" ./convert small.tsr converted.tsr
cmp small.tsr converted.tsr
"${memcheck[@]}" ./plan small.tsr cpu:2
"${memcheck[@]}" ./score tuned.tsr "A computer" " is a" " of a"
# Users of a chat, the last message of each alone, so that it fits the small context; two of them make mistakes.
cat >chat.txt <<'CODE'
ann A computer
bob is "x" \ y
ann again
noone

zoe zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz
bob more
CODE
last='{{ messages[-1].content }}'
"${memcheck[@]}" ./chat_server small.tsr 8 cpu:2 0 "$last" <chat.txt | sort -s -k1,1 >chat_c.txt
[ "$(cut -d: -f1 chat_c.txt | xargs)" = "ann ann bob bob noone zoe" ] && grep -q '^noone: a prompt needs at least one token$' chat_c.txt ||
  { cat chat_c.txt; echo "FAILED: chat_server: wanted two answers to ann and bob, and errors to others"; exit 1; }
printf 'ann A computer\nann again\nann /stop\nbob is\n' | ./chat_server --stream small.tsr 50 cpu:1 0 "$last" >stream.txt
grep -q '^bob: ' stream.txt
echo "ok: C samples: clean under valgrind"

# A backend that was built outside of the tree, against the installed header alone.
mkdir plugin
chmod 700 "$work" plugin  # a plugin is not loaded where others can write
cc -std=c11 "${strict[@]}" -shared -fPIC -fvisibility=hidden "$here/samples/backend/sample_backend.c" $(pkg-config --cflags tessera) \
  -o plugin/libtessera_sample.so
cc -std=c11 "${strict[@]}" "$here/tests/install/backend.c" $(pkg-config --cflags --libs tessera) -o backend
./backend plugin
echo "ok: a backend of one C file, built against the installed header, runs a graph; what it cannot do is refused by its own words"

# What each language has to repeat.
mkdir expected
./finetune small.tsr text.txt expected/tuned.tsr cpu:2 20 >expected/finetune.txt
./generate expected/tuned.tsr "A computer" 8 >expected/generate.txt
./own_model >expected/own_model.txt
./plan small.tsr cpu:4 8 >expected/plan.txt
"$work/prefix/bin/tessera" train small.tsr --data text.txt --seq 32 --batch 8 --lr 1e-3 --steps 20 --eval-fraction 0.1 --eval-every 10 \
  --keep-best --patience 3 --keep 2 --sample "Once upon a time" --report expected/run.html --out expected/run.tsr --quiet >expected/run.txt
bash "$here/tests/install/training_run.sh" expected/run.tsr run.tsr ./training_run small.tsr text.txt run.tsr 20
cc -std=c11 "${strict[@]}" "$here/tests/install/sequences.c" $(pkg-config --cflags --libs tessera) -o sequences
"${memcheck[@]}" ./sequences small.tsr sequence >sequences.txt
./sequences small.tsr expected/sequence >expected/sequences.txt
mv chat_c.txt expected/chat_server.txt
bash "$here/tests/install/go.sh" "$work"
bash "$here/tests/install/java.sh" "$work"
bash "$here/tests/install/python.sh" "$work"
bash "$here/tests/install/two_processes.sh" "$work"
if [ "${TESSERA_TEST_FULL:-0}" != 0 ]; then
  bash "$here/tests/install/go_cycles.sh" "$work"
  bash "$here/tests/install/java_cycles.sh" "$work"
  bash "$here/tests/install/python_cycles.sh" "$work"
fi
