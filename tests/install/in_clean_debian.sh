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
for sample in "$samples"/c/*.c; do
  # shellcheck disable=SC2046
  cc -std=c11 -Wall -Wextra -Werror "$sample" $(pkg-config --cflags --libs tessera) -lm -o "$(basename "$sample" .c)"
done
./finetune small.tsr text.txt tuned.tsr cpu:2 20 >c.txt
./generate tuned.tsr "A computer" 16 cpu:1 0 >c_text.txt
./own_model >/dev/null
./score tuned.tsr "A computer" " is a" >/dev/null
./convert small.tsr converted.tsr
echo "ok: C: $(tail -1 c.txt)"
