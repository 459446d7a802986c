#!/usr/bin/env bash
# check.sh BUILD: products with blocks of every type on ARM, emulated: compiled for NEON, run as on a CPU without dot
# products (SDOT), on one that has them, and on one that has all that the emulator knows. Results have the same bits as on
# this machine, if it has fused multiply-adds.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
skip() { echo "skipped | products with blocks on ARM | $1"; exit 0; }
compiler=$(command -v aarch64-linux-gnu-g++ aarch64-linux-gnu-g++-12 | head -n 1) || true
[ -n "$compiler" ] || skip "no aarch64-linux-gnu-g++: Debian's package g++-aarch64-linux-gnu"
command -v qemu-aarch64 >/dev/null || skip "no qemu-aarch64: Debian's package qemu-user"
launcher=$(command -v ccache || true)
objects=$build/arm
mkdir -p "$objects/include"
# Headers that do not depend on the machine, without those of its C library beside them.
for name in hwy doctest; do ln -sfn "/usr/include/$name" "$objects/include/$name"; done

object() { echo "$objects/${1//\//_}.o"; }
compile() {  # compile SOURCE, with the flags of CMakeLists.txt
  local contract=
  [[ $1 != graph/* ]] || contract=-ffp-contract=off
  $launcher "$compiler" -std=c++20 -O2 -Wall -Wextra -Wpedantic -Wno-restrict -Wno-stringop-overread \
    -Wno-maybe-uninitialized -Werror $contract -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS -isystem "$objects/include" -I. \
    -c "$1" -o "$(object "$1")"
}
link() {  # link PROGRAM SOURCE...
  local program=$objects/$1 source linked=()
  shift
  for source in "$@"; do linked+=("$(object "$source")"); done
  "$compiler" -static "${linked[@]}" -o "$program"
}
export -f compile object
export compiler launcher objects

kernels=runtime/backends/cpu/kernels
shared=(graph/base/{dtype,quote,status,text}.cc graph/base/blocks/*.cc tests/arm/targets.cc
  "$kernels"/quantized_{codes,gemv,grids,layout,panels,rows,rows_f32}.cc)
callers=("$kernels"/quantize.cc "$kernels"/quantized_matmul*.cc)  # compiled, not run: they need the whole backend
cases=(tests/main.cc tests/kernels/quantized_rows_test.cc)
printf '%s\n' "${shared[@]}" "${callers[@]}" "${cases[@]}" tests/arm/products.cc |
  xargs -P "$(nproc)" -I{} bash -euc 'compile {}'
link cases "${cases[@]}" "${shared[@]}"
link products tests/arm/products.cc "${shared[@]}"

run() {  # run CPU: what products prints, and that all its cases pass
  qemu-aarch64 -cpu "$1" "$objects/products" >"$objects/$1.txt" || { sed "s/^/$1: /" "$objects/$1.txt"; return 1; }
  qemu-aarch64 -cpu "$1" "$objects/cases" >"$objects/$1.cases.txt" || { cat "$objects/$1.cases.txt"; return 1; }
}
export -f run
cpus=(cortex-a53 neoverse-n1 max)
printf '%s\n' "${cpus[@]}" | xargs -P "$(nproc)" -I{} bash -euc 'run {}'
cat "$objects/cortex-a53.txt"
same_bits() {  # same_bits AS WHAT
  diff "$1" "$objects/cortex-a53.txt" || { echo "other bits on $2 (<) than on cortex-a53 (>)"; return 1; }
  echo "ok: $2 | the same bits"
}
for cpu in "${cpus[@]}"; do
  grep test.cases: "$objects/$cpu.cases.txt"
  [ "$cpu" = cortex-a53 ] || same_bits "$objects/$cpu.txt" "$cpu"
done
if grep -qw fma /proc/cpuinfo; then
  "$build/tests/block_products" >"$objects/here.txt"
  same_bits "$objects/here.txt" "this machine"
else
  skip "this machine has no fused multiply-add to compare bits with"
fi
