#!/usr/bin/env bash
# java_cycles.sh WORK: what java.sh checks once, very often, under -Xcheck:jni; and callbacks of threads that Java does not
# know. Run java.sh WORK first.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$1/java"
work=$PWD
jar=$work/out/tessera.jar
fail() { echo "FAILED: Java: $*"; exit 1; }

# A library that calls the program on threads of its own.
{
  nm -D --undefined-only out/jni/libtessera_java.so | sed -n 's/.* U \(tsr_[a-z0-9_]*\).*/\1/p' |
    grep -vx 'tsr_model_load_reader\|tsr_runtime_set_log\|tsr_runtime_new_with_hooks' |
    sed 's/.*/void* &(void) { return 0; }/'
  cat "$here/tests/install/java/threads.c"
} >threads.c
mkdir -p threads
soname=$(readelf -d out/jni/libtessera_java.so | sed -n 's/.*NEEDED.*\[\(libtessera\.so[^]]*\)\].*/\1/p')
cc -shared -fPIC -pthread -Wl,-soname,"$soname",--version-script=older.map threads.c -o "threads/$soname"
cp out/jni/libtessera_java.so threads/
timeout 100 java -Xcheck:jni -Ddev.tessera.library.path=threads -cp "tests:$jar" ForeignThreads >cycles.txt 2>&1 || fail "$(cat cycles.txt)"
cat cycles.txt

java -Xcheck:jni "-Ddev.tessera.library.path=$work/out/jni" -Dtimes=500 -Dmodel=../small.tsr -Dtext=../text.txt -Dwork=written \
  -cp "tests:$jar$(cat junit.txt)" RunChecks HostileTest HandlesTest >cycles.txt 2>&1 || fail "$(cat cycles.txt)"
if grep -v '^ok: Java: ' cycles.txt; then fail "-Xcheck:jni, or something else, said more than the tests"; fi
cat cycles.txt

# A heap that is in memory from the start: what grows is not Java's. And one arena of malloc: how many there are, and how full,
# is otherwise a matter of when threads allocate.
MALLOC_ARENA_MAX=1 java -Xcheck:jni -Xms192m -Xmx192m -XX:+AlwaysPreTouch -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Ddev.tessera.library.path=$work/out/jni" \
  -cp "tests:$jar" Cycles ../small.tsr ../text.txt 10000 100 >cycles.txt 2>&1 || fail "$(cat cycles.txt)"
cat cycles.txt
if grep -v '^ok: Java: ' cycles.txt; then fail "-Xcheck:jni, or something else, said more than the cycles"; fi
