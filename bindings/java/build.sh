#!/usr/bin/env bash
# build.sh OUT: writes the Java binding to OUT: tessera.jar (classes), tessera-sources.jar, tessera-natives.jar (libtessera.so
# with what it needs and the JNI library, for programs on systems without them) and jni/libtessera_java.so (for systems that
# have libtessera.so). Needs swig, a JDK of 17 or later, cc and `pkg-config tessera`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
include=$(pkg-config --variable=includedir tessera)
java_home=${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")}
rm -rf "$out"
mkdir -p "$out/sources/dev/tessera/raw" "$out/classes" "$out/jni"
cp -r "$here/src/." "$out/sources/"
# SWIGWORDSIZE64: int64_t is `long`, as it is on every 64-bit Linux.
swig -DSWIGWORDSIZE64 -java -package dev.tessera.raw -module Raw -I"$here/.." -I"$include" -outdir "$out/sources/dev/tessera/raw" \
  -o "$out/tessera_java.c" "$here/../tessera.i"
rm -f "$out"/sources/dev/tessera/raw/SWIGTYPE_*.java

# Bound at once, so that a library that lacks a function is refused when it is loaded. What is next to the JNI library is
# taken before what the system has: the natives jar brings its own.
# shellcheck disable=SC2046
cc -std=c11 -O2 -fPIC -fno-strict-aliasing -Wall -Wextra -Wno-unused-parameter -Werror -shared "$out/tessera_java.c" \
  -I"$java_home/include" -I"$java_home/include/linux" $(pkg-config --cflags --libs tessera) \
  -Wl,-z,now,--disable-new-dtags,-rpath,'$ORIGIN' -o "$out/jni/libtessera_java.so"

find "$out/sources" -name '*.java' >"$out/sources.txt"
javac --release 17 -encoding UTF-8 -Xlint:all,-exports -Xdoclint:all,-missing -Werror -d "$out/classes" @"$out/sources.txt"
version=$(pkg-config --modversion tessera)
# pom ARTIFACT FOLDER: what Maven reads a jar's coordinates from, at its place in the jar's folder.
pom() {
  local folder=$2/META-INF/maven/dev.tessera/$1
  mkdir -p "$folder"
  cat >"$folder/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.tessera</groupId>
  <artifactId>$1</artifactId>
  <version>$version</version>
  <licenses><license><name>Apache-2.0</name></license></licenses>
</project>
XML
}
pom tessera "$out/classes"
printf 'Implementation-Title: Tessera\nImplementation-Version: %s\n' "$version" >"$out/manifest"
jar --create --file "$out/tessera.jar" --manifest "$out/manifest" -C "$out/classes" .
jar --create --file "$out/tessera-sources.jar" -C "$out/sources" .

# Everything except what every system with glibc and C++ has.
natives=$out/natives/dev/tessera/natives/linux-$(uname -m)
licenses=$out/natives/META-INF/licenses
mkdir -p "$natives" "$licenses"
[ ! -e "$here/../../LICENSE" ] || cp "$here/../../LICENSE" "$licenses/tessera"
cp "$out/jni/libtessera_java.so" "$natives/"
ldd "$out/jni/libtessera_java.so" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' |
  while read -r name path; do
    case $name in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libgcc_s.so.* | libstdc++.so.*) ;;
      *)
        cp -L "$path" "$natives/$name"
        package=$(dpkg-query -S "$(realpath "$path")" 2>/dev/null | cut -d: -f1 || true)
        [ -z "$package" ] || cp "/usr/share/doc/$package/copyright" "$licenses/$package"
        ;;
    esac
    if [[ $name == libtessera.so.* ]]; then
      for plugin in "$(dirname "$path")"/libtessera_*.so; do
        [ -n "${TESSERA_JAVA_PLUGINS:-}" ] && [ -e "$plugin" ] && cp -L "$plugin" "$natives/"
      done
    fi
  done
ls "$natives" >"$out/files.txt"
mv "$out/files.txt" "$natives/files.txt"
{
  cat "$out/manifest"
  echo "Automatic-Module-Name: dev.tessera.natives"
} >"$out/manifest_natives"
pom tessera-natives "$out/natives"
jar --create --file "$out/tessera-natives.jar" --manifest "$out/manifest_natives" -C "$out/natives" .
rm -rf "$out/natives" "$out/classes" "$out/sources" "$out"/*.txt "$out"/manifest* "$out/tessera_java.c"
