#!/usr/bin/env bash
# python_wheel.sh WORK: the wheel, installed where no library is found otherwise, passes the checks of python.sh under each
# of $PYTHONS (default python3), with NumPy where PyPI has it. WORK and the environment are those of python.sh. Needs PyPI.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$1" && pwd)
rm -rf "$work/wheel"
wheel=$(bash "$here/bindings/python/wheel.sh" "$work/wheel")
for python in ${PYTHONS:-python3}; do
  venv=$work/venv-$(basename "$python")
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "$wheel"
  "$venv/bin/pip" install -q --disable-pip-version-check numpy || echo "without NumPy"
  folder=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  env -u LD_LIBRARY_PATH -u PYTHONPATH PYTHON="$venv/bin/python" TESSERA_PYTHON="$folder" \
    bash "$here/tests/install/python.sh" "$work"
  echo "ok: Python wheel: $(basename "$wheel") under $("$venv/bin/python" --version)"
done
