#!/usr/bin/env bash
# What tests/install/clean_debian.sh runs inside of the clean system. Argument: the folder of packages.
set -euo pipefail
packages=$1
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends "$packages"/deb/*.deb >/root/apt.log 2>&1 || { tail -20 /root/apt.log; exit 1; }
dpkg-query -W | awk '/tessera/ { print "installed", $1, $2 }'
samples=/usr/share/doc/tessera/samples
work=$(mktemp -d)
cd "$work"
head -c 60000 /usr/share/games/fortunes/computers >text.txt
tessera new llama:L=2,C=32,H=4,KV=2,F=64,V=256,T=64 --tokenizer bytes --seed 1 -o small.tsr
zcat /usr/share/man/man1/tessera-train.1.gz | grep -q 'fine\\-tune a model' || { echo "FAILED: no man page"; exit 1; }
# shellcheck disable=SC1091
(. /usr/share/bash-completion/completions/tessera; COMP_WORDS=(tessera tr) COMP_CWORD=1; _tessera; [ "${COMPREPLY[*]}" = train ])
echo "ok: the command, its man pages and its completion"
[ -s /usr/lib/systemd/system/tessera-service.service ] && zcat /usr/share/man/man1/tessera-serve.1.gz | grep -q 'tessera serve'
python3 -B /root/smoke.py /usr/bin/tessera "$work/small.tsr" "$work/service"
if [ -e "$packages"/deb/tessera-mpi_*.deb ]; then
  apt-get install -y -qq --no-install-recommends openmpi-bin >/root/apt.log 2>&1
  mpirun --allow-run-as-root --oversubscribe -n 2 tessera train small.tsr --data text.txt --seq 32 --steps 2 --parallel dp=2 --out two.tsr >two.txt 2>&1 || { cat two.txt; exit 1; }
  [ -s two.tsr ] && echo "ok: two processes"
fi
for sample in "$samples"/c/*.c; do
  # shellcheck disable=SC2046
  cc -std=c11 -Wall -Wextra -Werror "$sample" $(pkg-config --cflags --libs tessera) -lm -o "$(basename "$sample" .c)"
done
./finetune small.tsr text.txt tuned.tsr cpu:2 20 >finetune.txt
./generate tuned.tsr "A computer" 16 >generate.txt
./own_model >own_model.txt
./plan small.tsr cpu:4 8 >plan.txt
./score tuned.tsr "A computer" " is a" >/dev/null
./convert small.tsr converted.tsr
echo "ok: C: $(tail -1 finetune.txt)"

same() {  # same LANGUAGE SAMPLE COMMAND: prints what the sample in C printed
  local language=$1 sample=$2
  shift 2
  "$@" >"$sample.$language.txt" || { echo "FAILED: $language: $sample: status $?"; exit 1; }
  cmp "$sample.txt" "$sample.$language.txt" || { echo "FAILED: $language: $sample: C says something else"; exit 1; }
}
all() {  # all LANGUAGE PREFIX...: the four samples, started by words in which SAMPLE is its name
  local language=$1
  shift
  same "$language" finetune "${@//SAMPLE/finetune}" small.tsr text.txt "$language.tsr" cpu:2 20
  cmp tuned.tsr "$language.tsr" || { echo "FAILED: $language: another model file than C's"; exit 1; }
  same "$language" generate "${@//SAMPLE/generate}" "$language.tsr" "A computer" 16
  same "$language" own_model "${@//SAMPLE/own_model}"
  same "$language" plan "${@//SAMPLE/plan}" small.tsr cpu:4 8
  echo "ok: $language: the losses, the model file, the texts and the plan of C, bit for bit"
}

# Debian's packages.
all python python3 "$samples/python/SAMPLE.py"
mkdir java
apt-get install -y -qq --no-install-recommends openjdk-17-jdk-headless golang-go >/root/apt.log 2>&1 || { tail -20 /root/apt.log; exit 1; }
javac -cp /usr/share/java/tessera.jar -d java "$samples"/java/*.java
in_java() {
  local name
  name=$(sed -E 's/(^|_)(.)/\U\2/g' <<<"$1")
  shift
  java -cp "$class_path" "$name" "$@"
}
class_path=java:/usr/share/java/tessera.jar
all java in_java SAMPLE
# The Go module as a folder, vendored by a project elsewhere.
cp -r "$samples/go" go
cd go
export GOFLAGS=-mod=mod GOPROXY=off GONOSUMDB=tessera.dev GOTOOLCHAIN=local
go mod edit -replace tessera.dev/tessera=/usr/share/gocode/src/tessera.dev/tessera
mkdir bin
go build -o bin/ ./...
cd ..
all go ./go/bin/SAMPLE

# Without Debian's packages: the wheel, the jars and the proxy, whose module takes the relocatable tar's library.
cp -r "$samples" samples
samples=$work/samples
apt-get remove -y -qq 'libtessera*' >/root/apt.log 2>&1
[ -z "$(find /usr -name 'libtessera*')" ] || { echo "FAILED: packages leave files"; exit 1; }
apt-get install -y -qq --no-install-recommends python3-venv libhwy1 libpcre2-8-0 libutf8proc2 libxxhash0 libzstd1 >/root/apt.log 2>&1
python3 -m venv venv
venv/bin/pip install -q --no-index "$packages"/python/*.whl
rm -f ./*.python.txt ./*.java.txt ./*.go.txt python.tsr java.tsr go.tsr
all python venv/bin/python "$samples/python/SAMPLE.py"
venv/bin/tessera-serve --version
class_path=java:$packages/java/tessera.jar:$packages/java/tessera-natives.jar
all java in_java SAMPLE
mkdir opt elsewhere
tar -xzf "$packages"/tessera-*.tar.gz -C opt --strip-components=1
PKG_CONFIG_PATH=$(dirname "$(find "$PWD/opt" -name tessera.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$PWD/opt" -name libtessera.so)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
"$PWD/opt/bin/tessera" --version
(unset LD_LIBRARY_PATH && python3 -B /root/smoke.py "$PWD/opt/bin/tessera" "$work/small.tsr" "$work/service_of_the_tar")
for sample in finetune generate own_model plan; do
  mkdir -p "elsewhere/$sample"
  cp "$samples/go/$sample/main.go" "elsewhere/$sample/"
done
cd elsewhere
mkdir bin
export GOPROXY=file://$packages/go GOFLAGS="-mod=mod -modcacherw"
go mod init example.org/elsewhere 2>/dev/null
go get "tessera.dev/tessera@v$(pkg-config --modversion tessera)" 2>/dev/null
go mod vendor
GOPROXY=off GOFLAGS=-mod=vendor go build -o bin/ ./...
cd ..
all go ./elsewhere/bin/SAMPLE
