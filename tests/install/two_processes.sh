#!/usr/bin/env bash
# two_processes.sh WORK: the sample finetune of each language under mpirun, with a device in each of two processes: every loss, and the file, of one process
# with two devices. After check.sh's other parts, which leave in WORK the samples, and expected/.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$1" && pwd)
fail() { echo "FAILED: $*"; exit 1; }
if ! command -v mpirun >/dev/null || [ ! -e "$(pkg-config --variable=libdir tessera)/libtessera_mpi.so" ]; then
  echo "skipped | samples over two processes | no Open MPI"
  exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$work"
over_two() { # over_two LANGUAGE COMMAND...
  local language=$1 process
  shift
  rm -f two.tsr two.*.txt
  # shellcheck disable=SC2016
  timeout 120 mpirun --oversubscribe -n 2 bash -c '"$@" >two.$OMPI_COMM_WORLD_RANK.txt 2>&1' - "$@" small.tsr text.txt "$work/two.tsr" cpu:1 20 >two.txt 2>&1 ||
    { cat two.txt two.*.txt; fail "$language over two processes"; }
  cmp expected/tuned.tsr two.tsr || fail "$language: another file over two processes"
  for process in 0 1; do
    cmp <(grep '^step\|^eval_loss' two.$process.txt) <(grep '^step\|^eval_loss' expected/finetune.txt) || { cat two.$process.txt; fail "$language: other losses in process $process"; }
  done
}
over_two C ./finetune
over_two Go go/bin/finetune
over_two Java java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Ddev.tessera.library.path=$work/java/out/jni" -cp "$work/java/samples:$work/java/out/tessera.jar" Finetune
over_two Python env PYTHONPATH="${TESSERA_PYTHON:-$work/python}" "${PYTHON:-python3}" "$here/samples/python/finetune.py"
echo "ok: C, Go, Java and Python over two processes: the losses and the file of one"
