#!/usr/bin/env bash
# The installed library as a user meets it: header as C11 and C++, samples through pkg-config and under valgrind, static
# linking, the CMake package, and the Go sample with the C sample's loss to the bit. Argument: the build folder.
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
for file in LICENSE README.md docs/architecture.md samples/c/finetune.c; do
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
"${memcheck[@]}" ./generate tuned.tsr "A computer" 8
"${memcheck[@]}" ./own_model
"${memcheck[@]}" ./convert small.tsr converted.tsr
cmp small.tsr converted.tsr
"${memcheck[@]}" ./score tuned.tsr "A computer" " is a" " of a"
echo "ok: C samples: clean under valgrind"

bash "$here/bindings/go/build.sh" "$work/go/tessera"
cp -r "$here/samples/go" "$work/go/samples"
cd "$work/go/samples"
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOCACHE=$work/go/cache
go mod edit -replace "tessera=$work/go/tessera"
go build -o "$work/finetune_go" ./finetune
cp -r "$here/tests/install/go" checks
go run ./checks/texts "$work/small.tsr"
echo "ok: Go: empty texts, and texts with NULs in them, cross both ways"
go run ./checks/work "$work/small.tsr" "$work/work.tsr"
echo "ok: Go: progress of long work, and contexts end it"
go run ./checks/adapters "$work/small.tsr" "$work/adapter"
echo "ok: Go: adapters go out, come back and merge"
go run ./checks/scores "$work/small.tsr"
echo "ok: Go: texts score in any batch as by themselves"
go run ./checks/embeddings "$work/small.tsr"
echo "ok: Go: vectors of texts are the same in any batch"
go run ./checks/chats "$work/small.tsr"
echo "ok: Go: conversations become tokens, and their turns are computed once"
go run ./checks/handles "$work/small.tsr" "$work/text.txt"
echo "ok: Go: nil, zero and closed handles are refused; Close may meet other calls"
cd "$work"
./finetune small.tsr text.txt tuned_c.tsr cpu:2 20 >c.txt
./finetune_go small.tsr text.txt tuned_go.tsr cpu:2 20 >go.txt
diff <(grep '^step' c.txt) <(grep '^step' go.txt) || { echo "FAILED: C and Go differ"; exit 1; }
cmp tuned_c.tsr tuned_go.tsr
echo "ok: Go sample: $(tail -1 go.txt), every loss equal to the C sample's to the bit, and the same model file"
