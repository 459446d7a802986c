#!/usr/bin/env bash
# java.sh WORK: the Java binding over an installed library, which PKG_CONFIG_PATH and LD_LIBRARY_PATH lead to: its JUnit tests
# under -Xcheck:jni, the samples with the output of those in C, and how the library is found. WORK has small.tsr, text.txt,
# chat.txt, and expected/, what the samples in C printed and wrote, and the command. Needs JUnit 5 (JUNIT_JARS: the folder of its jars).
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$1" && pwd)/java
rm -rf "$work"
mkdir -p "$work/samples" "$work/tests" "$work/written" "$work/tmp" "$work/cache"
fail() { echo "FAILED: Java: $*"; exit 1; }

bash "$here/bindings/java/build.sh" "$work/out"
jar=$work/out/tessera.jar
natives=$work/out/tessera-natives.jar
jars=${JUNIT_JARS:-/usr/share/java}
junit=
for name in junit-jupiter-api junit-jupiter-engine junit-platform-commons junit-platform-engine junit-platform-launcher opentest4j \
  apiguardian-api; do
  [ -e "$jars/$name.jar" ] || fail "$jars/$name.jar is not there; Debian's package junit5 has it"
  junit+=:$jars/$name.jar
done
echo "$junit" >"$work/junit.txt"
javac --release 17 -encoding UTF-8 -Xlint:all -Werror -cp "$jar" -d "$work/samples" "$here"/samples/java/*.java
javac --release 17 -encoding UTF-8 -Xlint:all,-processing -Werror -cp "$jar$junit" -d "$work/tests" "$here"/tests/install/java/*.java

cd "$work"
# Small heaps and one compiler: many short runs.
java=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Djava.io.tmpdir=$work/tmp")
"${java[@]}" -Xcheck:jni "-Djava.library.path=$work/out/jni" -Dmodel=../small.tsr -Dtext=../text.txt -Dwork=written \
  -cp "tests:$jar$junit" RunChecks TextsTest HandlesTest BuffersTest ReadersTest GenerationTest EngineTest SequencesTest TrainingTest RunTest GraphsTest \
  WorkTest StepsTest CallbacksTest HostileTest >tests.txt || { cat tests.txt; exit 1; }
cat tests.txt
if grep -v '^ok: Java: ' tests.txt; then fail "-Xcheck:jni, or something else, said more than the tests"; fi
"${java[@]}" -Xcheck:jni "-Djava.library.path=$work/out/jni" -Dmodel= -Dtext= -Dwork= -cp "tests:$jar$junit" Exits >exits.txt 2>&1 ||
  { cat exits.txt; fail "the end of a program with requests in progress: status $?"; }
[ "$(cat exits.txt)" = ended ] || fail "the end of a program with requests in progress said: $(cat exits.txt)"
echo "ok: Java: a program ends cleanly while requests are in progress"

"${java[@]}" -Xcheck:jni "-Djava.library.path=$work/out/jni" -cp "tests:$jar" Sequences ../small.tsr sequence >sequences.txt
cmp ../expected/sequences.txt sequences.txt && cmp ../expected/sequence sequence || fail "sequences: C and Java differ"
echo "ok: Java: sequences that are forked, rewound, saved and restored go on as in C; their file is the same"

# The samples, each from another place of the library, say what those in C say.
installed=("${java[@]}" "-Ddev.tessera.library.path=$work/out/jni" -cp "samples:$jar")
alone=(env -u LD_LIBRARY_PATH "${java[@]}" -cp "samples:$jar:$natives")
modules=(env -u LD_LIBRARY_PATH "${java[@]}" -cp samples -p "$jar:$natives" --add-modules "dev.tessera,dev.tessera.natives")
same() {  # same SAMPLE COMMAND: prints what the sample in C printed
  local sample=$1
  shift
  "$@" >"$sample.txt"
  cmp "../expected/$sample.txt" "$sample.txt" || fail "$sample: C and Java differ"
}
same finetune "${alone[@]}" Finetune ../small.tsr ../text.txt tuned.tsr cpu:2 20
cmp ../expected/tuned.tsr tuned.tsr
same generate "${modules[@]}" Generate tuned.tsr "A computer" 8
sed -n '/^```java$/,/^```$/{//!p}' "$here/bindings/java/README.md" >Example.java
env -u LD_LIBRARY_PATH "${java[@]}" -cp "$jar:$natives" Example.java >example.txt
[ -s example.txt ] || fail "the example of bindings/java/README.md says nothing"
same own_model "${installed[@]}" OwnModel
same plan "${installed[@]}" Plan ../small.tsr cpu:4 8
last='{{ messages[-1].content }}'
"${alone[@]}" ChatServer ../small.tsr 8 cpu:2 0 "$last" <../chat.txt | sort -s -k1,1 >chat_server.txt
cmp ../expected/chat_server.txt chat_server.txt || fail "chat_server: C and Java differ"
printf 'ann A computer\nann again\nann /stop\nbob is\n' | "${installed[@]}" ChatServer --stream ../small.tsr 50 cpu:1 0 "$last" >stream.txt
grep -q '^bob: ' stream.txt || fail "chat_server --stream: no answer to bob"
echo "ok: Java: samples: $(tail -1 finetune.txt), every loss equal to the C sample's to the bit, the same model file, texts and plans"
bash "$here/tests/install/training_run.sh" ../expected/run.tsr run.tsr "${installed[@]}" TrainingRun ../small.tsr ../text.txt run.tsr 20
echo "ok: Java: a training run that is killed goes on from its checkpoint, to the files of the command"
status=0
"${installed[@]}" Plan nowhere.tsr cpu:4 >java.txt 2>error.txt || status=$?
[ $status = 1 ] && grep -q '^not_found: .*nowhere.tsr' error.txt || fail "a model that is absent: $status, $(cat error.txt)"

# Where the library is found, and what happens where it is not, or is another one.
[ -z "$(ls tmp)" ] || fail "unpacked files stay: $(ls tmp)"
env -u LD_LIBRARY_PATH "XDG_CACHE_HOME=$work/cache" "${java[@]}" -Djava.io.tmpdir=/proc/none -cp "samples:$jar:$natives" \
  Plan ../small.tsr cpu:1 >java.txt || fail "no library from the cache folder"
[ -z "$(ls cache/tessera)" ] || fail "unpacked files stay: $(ls cache/tessera)"
echo "ok: Java: natives unpack to a private folder, and leave nothing there"
refused() {
  local wanted=$1 status=0
  shift
  "$@" Plan ../small.tsr cpu:1 >java.txt 2>&1 || status=$?
  [ $status = 1 ] && grep -q "UnsatisfiedLinkError: .*$wanted" java.txt || fail "wanted \"$wanted\", found status $status: $(cat java.txt)"
}
refused "tessera-natives.jar" "${java[@]}" -cp "samples:$jar"
mkdir lacking older
soname=$(readelf -d out/jni/libtessera_java.so | sed -n 's/.*NEEDED.*\[\(libtessera\.so[^]]*\)\].*/\1/p')
echo 'int tsr_version(void) { return 100; }' >lacking.c
nm -D --undefined-only out/jni/libtessera_java.so | sed -n 's/.* U \(tsr_[a-z0-9_]*\).*/\1/p' | grep -vx 'tsr_version_check\|tsr_status_message' |
  sed 's/.*/void* &(void) { return 0; }/' >older.c
echo 'void* tsr_version_check(unsigned version) { return "x"; }
const char* tsr_status_message(void* status) { return "the library is older"; }' >>older.c
# With the same symbol version, where the library's symbols have one.
node=$(readelf -V out/jni/libtessera_java.so | sed -n '/File: libtessera/,/File:/s/.*Name: \(TESSERA[^ ]*\).*/\1/p')
echo "${node:+$node }{ global: *; };" >older.map
cc -shared -fPIC -Wl,-soname,"$soname",--version-script=older.map older.c -o "older/$soname"
cc -shared -fPIC -Wl,-soname,"$soname",--version-script=older.map lacking.c -o "lacking/$soname"
cp out/jni/libtessera_java.so lacking/
cp out/jni/libtessera_java.so older/
refused "undefined symbol: tsr_" "${java[@]}" -Ddev.tessera.library.path=lacking -cp "samples:$jar"
refused "the library is older" "${java[@]}" -Ddev.tessera.library.path=older -cp "samples:$jar"
refused "libtessera_java.so" "${java[@]}" -Ddev.tessera.library.path=/nowhere -cp "samples:$jar"
echo "ok: Java: a library that is absent, lacks functions or is older is refused with an error"
