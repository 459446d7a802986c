#!/bin/bash
# Runs the benchmarks of a build made with TSR_BENCHMARKS=ON: run.sh BUILD [gemm | kernels | launch | train_gpt2 | plan_time | plan_choice] [ARGUMENTS]
# Numbers are worth something on an idle machine only: waits up to a minute for one, and says so when it is not.
set -euo pipefail
build=$1 name=${2:-all}
shift $(($# > 1 ? 2 : 1))
here=$(dirname "$(readlink -f "$0")")

for _ in $(seq 60); do
  read -r _ u1 n1 s1 i1 _ </proc/stat
  sleep 1
  read -r _ u2 n2 s2 i2 _ </proc/stat
  busy=$((u2 + n2 + s2 - u1 - n1 - s1)) idle=$((i2 - i1))
  [ $((busy * 100)) -gt $(((busy + idle) * 6)) ] || { quiet=1; break; }
done
[ -n "${quiet:-}" ] || echo "NOT QUIET: another load runs on this machine; ratios may hold, rates do not"

"$build/tests/bench_ceilings" "$(nproc)"
case $name in
  gemm | kernels | launch) "$build/tests/bench/bench_$name" "$@" ;;
  train_gpt2) python3 "$here/train_gpt2.py" --build "$build" "$@" ;;
  plan_choice)  # measures this machine first: about a minute, then four
    profile=$(mktemp --suffix=.json)
    trap 'rm -f "$profile"' EXIT
    "$build/cli/tessera" calibrate --devices cpu --out "$profile"
    "$build/tests/plan_choice" --profile "$profile" "$@"
    ;;
  plan_time) "$build/tests/bench/plan_time" "$@" ;;
  all)
    "$build/tests/bench/bench_gemm"
    "$build/tests/bench/bench_kernels"
    "$build/tests/bench/bench_launch"
    python3 "$here/train_gpt2.py" --build "$build"
    ;;
  *)
    echo "run.sh: no benchmark '$name'; there are gemm, kernels, launch, train_gpt2, plan_time, plan_choice" >&2
    exit 2
    ;;
esac
