#!/usr/bin/env bash
# python_cycles.sh WORK: memory of the Python binding under 10,000 handles, 100 trainings and cancels; WORK and the
# environment are those of python.sh, which has been run.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$1" && pwd)
export PYTHONPATH=${TESSERA_PYTHON:-$work/python} PYTHONDONTWRITEBYTECODE=1
export TESSERA_CHECK_MODEL=$work/small.tsr TESSERA_CHECK_TEXT=$work/text.txt
cd "$here/tests/install/python"
"${PYTHON:-python3}" -X faulthandler -X dev cycles.py
