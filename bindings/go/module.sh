#!/usr/bin/env bash
# module.sh OUT: writes the Go module, generated code inside, to OUT in the form that a module proxy serves:
# GOPROXY=file://OUT. Needs swig, python3 and `pkg-config tessera`; the module takes its version from pkg-config.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
module=tessera.dev/tessera
version=v$(pkg-config --modversion tessera)
mkdir -p "$1/$module/@v"
served=$(cd "$1/$module/@v" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$here/build.sh" "$work/tessera"
cp "$here/go.mod" "$served/$version.mod"
# The time and order of the files are fixed, so that the same sources make the same bytes.
printf '{"Version":"%s","Time":"2000-01-01T00:00:00Z"}\n' "$version" >"$served/$version.info"
python3 - "$work/tessera" "$served/$version.zip" "$module@$version" <<'CODE'
import pathlib, sys, zipfile
root, out, prefix = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        entry = zipfile.ZipInfo(f"{prefix}/{path.relative_to(root)}", (2000, 1, 1, 0, 0, 0))
        entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        made.writestr(entry, path.read_bytes())
CODE
touch "$served/list"
grep -qx "$version" "$served/list" || echo "$version" >>"$served/list"
